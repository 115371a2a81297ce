"""Measure the simulator: how time and memory grow with the requests, and SimPy beside it. Part of `make bench`."""

import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
AZURE = 19_366  # requests of the published hour


def deployment(name, tensor_parallel):
    import perfmodel as pm
    from perfmodel import data

    machine = data.accelerator("h100-sxm")
    return pm.Deployment(
        data.model(name), machine, link=machine.link, tensor_parallel=tensor_parallel, constants=data.constants()
    )


def run(n):
    """n requests with the statistics of the Azure conversation trace, on Llama-3.1-70B and four H100s."""
    code = (
        "import json, re, sys; sys.path.insert(0, '.');"
        "from tools.bench_simulator import deployment;"
        "from perfmodel.simulate import cluster, generate;"
        f"found = cluster.simulate(generate.preset('azure-conversation', {n}), deployment('llama-3.1-70b', 4));"
        # Linux; the peak that `resource` knows is that of the process that started this one, if it was larger.
        "size = 1024 * int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]);"
        "print(json.dumps({'requests': len(found.arrival), 'seconds': found.wall_s, 'bytes': size,"
        " 'steps': found.steps, 'tokens': int(found.output.sum()), 'finished': int(found.finished.sum())}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def with_simpy(requests, machine, budget):
    """The same scheduler written the obvious way: a process for each request, which wakes for every token.

    First come, first served, with one budget of tokens a step; memory without limit. The times of the steps are those
    of `mixed_time` and `decode_time`, summed over the requests of a step.
    """
    import simpy

    from perfmodel.simulate.clock import StepClock

    clock, env = StepClock(machine), simpy.Environment()
    waiting, running, finish = [], [], {}
    wake = [env.event()]

    def request(index):
        yield env.timeout(requests.arrival[index])
        state = {"left": int(requests.prompt[index]), "computed": 0, "token": env.event()}
        waiting.append(state)
        if not wake[0].triggered:
            wake[0].succeed()
        for _ in range(requests.output[index]):
            yield state["token"]
            state["token"] = env.event()
        running.remove(state)
        finish[index] = env.now

    def server():
        while True:
            if not waiting and not running:
                wake[0] = env.event()
                yield wake[0]
            left, contexts, chunks, emit = budget, [], [], []
            for state in running:
                if state["left"]:
                    tokens = min(state["left"], left)
                    chunks.append((tokens, state["computed"]))
                    state["left"] -= tokens
                else:
                    tokens = 1
                    contexts.append(state["computed"] + 1)
                state["computed"] += tokens
                left -= tokens
                if not state["left"]:
                    emit.append(state)
            while waiting and left:
                state = waiting.pop(0)
                running.append(state)
                tokens = min(state["left"], left)
                chunks.append((tokens, 0))
                state["left"] -= tokens
                state["computed"] = tokens
                left -= tokens
                if not state["left"]:
                    emit.append(state)
            yield env.timeout(clock.step(contexts, chunks))
            for state in emit:
                state["token"].succeed()
            yield env.timeout(0)  # the requests take their tokens, and those that have all leave

    for index in range(len(requests)):
        env.process(request(index))
    env.process(server())
    while len(finish) < len(requests):
        env.step()
    return [finish[index] for index in range(len(requests))]


def beside_simpy(name, n, rate):
    """Seconds of both for the same requests, and the largest difference of their ends."""
    from perfmodel.simulate import generate
    from perfmodel.simulate.cluster import simulate
    from perfmodel.simulate.settings import Settings

    machine, settings = deployment("llama-3.1-8b", 1), Settings(num_blocks=float("inf"))
    requests = generate.preset(name, n, rate)
    ours = simulate(requests, machine, settings)
    seconds = min([ours.wall_s, *(simulate(requests, machine, settings).wall_s for _ in range(4))])
    start = time.perf_counter()
    theirs = with_simpy(requests, machine, settings.max_num_batched_tokens)
    taken = time.perf_counter() - start
    return {
        "workload": name,
        "requests": n,
        "rate": rate,
        "tokens": int(requests.output.sum()),
        "seconds": seconds,
        "simpy_seconds": taken,
        "difference_s": max(abs(one - other) for one, other in zip(ours.finish, theirs, strict=True)),
    }


def measure():
    """All of it, for `benchmark.json`."""
    return {
        "curve": [run(n) for n in SIZES],
        "azure": run(AZURE),
        "simpy": [beside_simpy("azure-conversation", 500, 5), beside_simpy("servegen-deepseek-r1", 400, 0.2)],
    }
