"""Measure perfmodel beside its peers on one question, in one process: `make bench`, which has what this imports.

Llama-2-70B (Llama-3-70B where a peer knows no other) on four H100 SXM, tensor parallelism 4, BF16, prompts of 1,024
tokens: time to the first token of the whole batch, and time of a decode step behind 1,024 tokens. The results go to
`book/reference/benchmark.json`, which the page of that name shows. Times are medians of runs that take turns, so that
whatever else the machine does hits all alike; the page gives them as ratios too.
"""

import json
import logging
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "book" / "reference" / "benchmark.json"
sys.path.insert(0, str(ROOT))

from tools import bench_simulator  # noqa: E402 - ROOT makes it importable

BATCHES = (1, 16, 64, 128)
PROMPT = 1024
ROUNDS = 15
BURST = 0.05  # seconds: evaluations in a row, to outweigh the clock

# The peers write to the log and warn of what is not installed.
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def perfmodel():
    """The ideal machine: efficiencies 1, messages over the link, nothing lost."""
    import perfmodel as pm
    from perfmodel import data

    machine = data.accelerator("h100-sxm")
    deployment = pm.Deployment(data.model("llama-2-70b"), machine, link=machine.link, tensor_parallel=4)

    def ask(batch):
        ttft = pm.prefill_time(deployment, PROMPT, prompts=batch).total
        return ttft, pm.decode_time(deployment, batch, PROMPT).total

    return ask


def llm_analysis():
    """Its own configuration of the model; both phases and the memory come from one call."""
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import (
        ParallelismConfig,
        get_dtype_config_by_name,
        get_gpu_config_by_name,
        get_model_config_by_name,
    )

    analysis = LLMAnalysis(
        get_model_config_by_name("upstage_Llama-2-70b-instruct-v2"),
        get_gpu_config_by_name("h100-sxm-80gb"),
        get_dtype_config_by_name("w16a16e16"),
        ParallelismConfig(tp_size=4),
    )

    def ask(batch):
        found = analysis.inference(batch_size_per_gpu=batch, seq_len=PROMPT, num_tokens_to_generate=1)
        return found["prefill_latency"], found["decode_latency"]

    return ask


def genz():
    """One call for each phase; answers in milliseconds."""
    from GenZ import decode_moddeling, prefill_moddeling

    h100 = {"Flops": 989, "Memory_size": 80, "Memory_BW": 3350, "ICN": 450, "real_values": True}

    def ask(batch):
        given = {
            "model": "meta-llama/llama-2-70b",
            "batch_size": batch,
            "input_tokens": PROMPT,
            "system_name": h100,
            "bits": "bf16",
            "tensor_parallel": 4,
        }
        prefill = prefill_moddeling(**given)["Latency"]
        return prefill / 1e3, decode_moddeling(Bb=1, output_tokens=1, **given)["Latency"] / 1e3

    return ask


def mlsysim():
    """It has no tensor parallelism: one device with four times everything, and no messages."""
    from mlsysim import Hardware, Models
    from mlsysim.solvers import ServingModel

    one = Hardware.Cloud.H100
    rates = {name: 4 * rate for name, rate in one.compute.precision_flops.items()}
    compute = {"peak_flops": 4 * one.compute.peak_flops, "precision_flops": rates}
    memory = {"bandwidth": 4 * one.memory.bandwidth, "capacity": 4 * one.memory.capacity}
    four = one.model_copy(
        update={"compute": one.compute.model_copy(update=compute), "memory": one.memory.model_copy(update=memory)}
    )

    def ask(batch):
        found = ServingModel().solve(
            Models.Language.Llama3_70B, four, seq_len=PROMPT, batch_size=batch, precision="fp16", efficiency=1.0
        )
        return found.ttft.to("s").magnitude, found.itl.to("s").magnitude

    return ask


TOOLS = {  # package on the registry, module, what asks it
    "perfmodel": ("", "perfmodel", perfmodel),
    "llm-analysis": ("llm-analysis", "llm_analysis.analysis", llm_analysis),
    "GenZ": ("genz-llm", "GenZ", genz),
    "mlsysim": ("mlsysim", "mlsysim", mlsysim),
}


def seconds(function, *given):
    start = time.perf_counter()
    function(*given)
    return time.perf_counter() - start


def scalar():
    """Answers of every tool, and seconds of one evaluation of both phases."""
    asks = {name: make() for name, (_, _, make) in TOOLS.items()}
    answers = {name: [ask(batch) for batch in BATCHES] for name, ask in asks.items()}
    repeats = {name: max(1, int(BURST / seconds(ask, 64))) for name, ask in asks.items()}
    taken = {name: [] for name in asks}
    for _ in range(ROUNDS):
        for name, ask in asks.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                ask(64)
            taken[name].append((time.perf_counter() - start) / repeats[name])
    return [
        {
            "tool": name,
            "version": version(package) if package else "this repository",
            "ttft_s": [answer[0] for answer in answers[name]],
            "tpot_s": [answer[1] for answer in answers[name]],
            "evaluation_s": statistics.median(taken[name]),
            "import_s": import_seconds(module),
        }
        for name, (package, module, _) in TOOLS.items()
    ]


def import_seconds(module):
    """Seconds to import in a fresh interpreter, less those of an interpreter that imports nothing."""

    def start(code):
        command = [sys.executable, "-W", "ignore", "-c", code]
        return seconds(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True))

    start(f"import {module}")  # the first writes byte code
    return statistics.median(start(f"import {module}") - start("pass") for _ in range(5))


def grid():
    """Seconds of one call for 10^6 deployments: TTFT, TPOT, memory and binding constraint of each."""
    import numpy as np

    import perfmodel as pm
    from perfmodel import data

    machine = data.accelerator("h100-sxm")
    deployment = pm.Deployment(
        data.model("llama-2-70b"), machine, link=machine.link, tensor_parallel=4, constants=data.constants()
    )
    sizes = np.arange(1.0, 101)
    workloads = pm.Workload(
        prompt=40 * sizes[:, None, None], output=1 + 5 * sizes[None, :, None], batch=4 * sizes[None, None, :]
    )

    def ask():
        found = pm.estimate(deployment, workloads, limits=pm.Limits(ttft=0.2, tpot=0.05))
        return found.ttft_s, found.tpot_s, found.kv_bytes_per_gpu, found.binding

    ask()
    return statistics.median(seconds(ask) for _ in range(ROUNDS))


def sweep():
    """Seconds and largest resident memory of a sweep of 10^7 points into a file."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "perfmodel", "sweep", "--model", "llama-2-70b", "--accelerator", "h100-sxm"]
        command += ["--tp", "4", "--prompt", "128:25600:128", "--output", "8:800:8", "--batch", "1:500"]
        taken = seconds(lambda: subprocess.run([*command, "--out", f"{folder}/sweep.csv"], cwd=ROOT, check=True))
    return taken, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main():
    sweep_s, sweep_bytes = sweep()  # first: the memory is the largest of all child processes so far
    found = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "batches": BATCHES,
        "tools": scalar(),
        "grid_s": grid(),
        "sweep_points": 200 * 100 * 500,
        "sweep_s": sweep_s,
        "sweep_bytes": sweep_bytes,
        "simulator": bench_simulator.measure(),
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for tool in found["tools"]:
        print(f"{tool['tool']:<14}{tool['evaluation_s'] * 1e6:>12,.0f} us an evaluation")
    print(f"10^6 deployments in one call: {found['grid_s']:.3f} s")
    print(f"10^7 points into a file: {sweep_s:.0f} s, {sweep_bytes / 1e9:.2f} GB of memory at most")
    for one in found["simulator"]["curve"]:
        print(f"{one['requests']:>9,} requests simulated: {one['seconds']:.2f} s, {one['bytes'] / 1e6:.0f} MB")
    for one in found["simulator"]["simpy"]:
        print(f"{one['workload']}: SimPy takes {one['simpy_seconds'] / one['seconds']:.0f} times as long")
    print(f"Written: {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
