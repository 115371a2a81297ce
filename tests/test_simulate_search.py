"""Sweeps and the goodput search: the same rows on any executor, after dead workers and after Ctrl-C; capacities."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel import data
from perfmodel.queueing import md1_capacity
from perfmodel.simulate import search
from perfmodel.simulate.cluster import DecodePool, simulate
from perfmodel.simulate.generate import Lengths, closed_loop, poisson, preset
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.search import TRIES, Point, Processes, Stopped, goodput_capacity, sweep
from perfmodel.simulate.settings import Settings

ROOT = Path(pm.__file__).parents[1]
H100 = data.accelerator("h100-sxm")
DEPLOYMENT = pm.Deployment(data.model("llama-3.1-8b"), H100, link=H100.link)
DRAWN = poisson(20, 60, Lengths.uniform(1, 3000), Lengths.uniform(0, 60))
POINT = Point(DRAWN, DEPLOYMENT, ttft=0.1, tpot=0.01)


def points():
    """Rates, settings, deployments, pools, workloads that are sent, and one that is drawn where it is served."""
    twice = replace(DEPLOYMENT, data_parallel=2)
    drawn = partial(preset, "azure-code", 40, seed=3)
    few = Settings(num_blocks=300, num_speculative_tokens=2, acceptance=0.7, draft_cost=0.05)
    return [
        *(replace(POINT, rate=rate) for rate in (200, 0.5, 50, 7)),
        replace(POINT, settings=Settings(policy="v0")),
        replace(POINT, settings=few, rate=300),
        replace(POINT, deployment=twice, router="least-loaded", by_totals=True),
        replace(POINT, decode_pool=DecodePool(twice, H100.link)),
        replace(POINT, requests=closed_loop(5, 30, 500, 20)),
        replace(POINT, requests=drawn, rate=30, ttft=None),
    ]


POINTS = points()


@pytest.fixture(scope="module")
def rows():
    """The rows of `POINTS`, served here; not when this module is imported, for workers import it too."""
    return [point.serve() for point in POINTS]


class InTurn(Executor):
    """Serves when it is asked, in the caller's thread."""

    def submit(self, function, /, *args, **named):
        future = Future()
        future.set_result(function(*args, **named))
        return future


class Backwards(Executor):
    """Serves so many when it has them all, the last first."""

    def __init__(self, total):
        self.total, self.taken = total, []

    def submit(self, function, /, *args, **named):
        self.taken.append((Future(), lambda: function(*args, **named)))
        if len(self.taken) == self.total:
            threading.Thread(target=self.serve).start()
        return self.taken[-1][0]

    def serve(self):
        for future, call in reversed(self.taken):
            future.set_result(call())


@pytest.fixture(scope="module")
def dask():
    """Dask's executor, on two processes that Dask starts again when they die; it gives up on a task at once then."""
    from dask import config
    from distributed import Client, LocalCluster

    with (
        config.set({"distributed.scheduler.allowed-failures": 0, "distributed.comm.timeouts.connect": "10s"}),
        LocalCluster(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client.get_executor()


def text(rows):
    """All bits of the rows: repr gives each float the digits that tell it from its neighbours."""
    return [repr(row) for row in rows]


def children():
    """Processes of ours that are left; Dask keeps its own for the next test."""
    return [child for child in multiprocessing.active_children() if "Dask" not in child.name]


# The same rows


def test_a_row_is_the_summary_of_the_run(rows):
    expected = simulate(DRAWN.scaled(50), DEPLOYMENT, Settings(policy="v0")).summary(0.1, 0.01)
    row = replace(POINT, rate=50, settings=Settings(policy="v0")).serve()
    assert row.pop("rate") == 50
    assert expected.pop("wall_s") > 0
    assert row == expected
    assert 0 < row["compliant_share"] < 1
    assert POINT.serve()["rate"] == DRAWN.rate
    assert len(set(text(rows))) == len(rows)


@pytest.mark.parametrize(
    "executor",
    [
        lambda: Processes(1),
        lambda: Processes(2),
        lambda: ProcessPoolExecutor(2, multiprocessing.get_context("spawn")),
        lambda: ThreadPoolExecutor(3),
        InTurn,
        lambda: Backwards(len(POINTS)),
    ],
    ids=["a process", "two processes", "a pool", "threads", "in turn", "backwards"],
)
def test_the_same_bits_on_any_executor(executor, rows):
    with executor() as chosen:
        assert text(sweep(POINTS, chosen)) == text(rows)
        if isinstance(chosen, ThreadPoolExecutor):
            assert chosen.submit(int, 3).result() == 3  # it is left open
    assert not children()


def test_the_same_bits_on_dask(dask, rows):
    assert text(sweep(POINTS, dask)) == text(rows)


def test_known_points_are_not_served_again():
    """Nor is one that is asked for twice."""
    served, done = [], {}

    def drawn():
        served.append(1)
        return DRAWN

    first, second = (Point(drawn, DEPLOYMENT, rate=rate) for rate in (5, 6))
    one, other, again = sweep([first, second, first], InTurn(), done=done)
    assert (len(served), one, list(done)) == (2, again, [first, second])
    assert sweep([second, first], InTurn(), done=done) == [other, one]
    assert len(served) == 2


# Workers that die


def dies(marker, times):
    """Requests, but the process that draws them is killed so many times."""
    with Path(marker).open("a") as file:
        file.write("drawn\n")
    if Path(marker).read_text().count("drawn") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return DRAWN


@pytest.mark.parametrize("where", ["processes", "dask"])
def test_killed_workers_change_nothing(where, tmp_path, request, rows):
    """The point that they die of is tried as often as may be."""
    executor = request.getfixturevalue("dask") if where == "dask" else Processes(2)
    killer = replace(POINT, requests=partial(dies, str(tmp_path / "marker"), TRIES - 1))
    served = sweep([*POINTS[:2], killer, *POINTS[2:]], executor)
    assert (tmp_path / "marker").read_text().count("drawn") == TRIES
    assert text(served) == text([*rows[:2], POINT.serve(), *rows[2:]])
    if where == "processes":
        executor.shutdown()


class Forgets(Processes):
    """The first that is submitted is lost, as it may be while a pool breaks."""

    broken = True
    forgot = False

    def submit(self, *given, **named):
        if self.forgot:
            return super().submit(*given, **named)
        self.forgot = True
        return Future()


def test_what_a_breaking_pool_forgets_is_served_again(rows):
    with Forgets(1) as executor:
        assert text(sweep(POINTS[:1], executor)) == text(rows[:1])
    assert executor.forgot


def test_a_worker_that_always_dies_ends_in_one_line(tmp_path, rows):
    killer = replace(POINT, requests=partial(dies, str(tmp_path / "marker"), inf), rate=9)
    done = {}
    with Processes(1) as executor:
        with pytest.raises(
            BrokenExecutor, match=r"^sweep: 3 tries of rate=9 lost their worker; BrokenProcessPool: .+$"
        ):
            sweep([POINTS[0], killer, POINTS[1]], executor, done=done)
        assert (tmp_path / "marker").read_text().count("drawn") == TRIES
        assert text(done.values()) == text(rows[:1])
        assert text(sweep(POINTS[1:2], executor)) == text(rows[1:2])  # it goes on
    assert not children()


def test_dask_gives_up_too(dask, tmp_path):
    killer = replace(POINT, requests=partial(dies, str(tmp_path / "marker"), inf), rate=9)
    with pytest.raises(BrokenExecutor, match=r"^sweep: 3 tries of rate=9 lost their worker; KilledWorker: .+$"):
        sweep([killer], dask)


def test_a_pool_that_was_given_and_broke_says_so(tmp_path):
    killer = replace(POINT, requests=partial(dies, str(tmp_path / "marker"), inf))
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
        pytest.raises(BrokenExecutor, match=r"^.+not usable anymore$"),
    ):
        sweep([killer], pool)


# Bad input


def notes(folder, name):
    """Requests; leaves a file behind."""
    (Path(folder) / name).touch()
    return DRAWN


@pytest.mark.parametrize("executor", [lambda: Processes(1), lambda: ThreadPoolExecutor(1), InTurn])
def test_bad_input_is_raised_at_once(executor, tmp_path):
    """Once, as it is; what comes after it is not begun."""
    later = [replace(POINT, requests=partial(notes, str(tmp_path), str(place))) for place in range(20)]
    bad = replace(POINT, router="nearest")
    with executor() as chosen, pytest.raises(ValueError, match=r"^simulate: router='nearest' must be one of .+$"):
        sweep([bad, *later], chosen)
    assert len(list(tmp_path.iterdir())) <= 2  # of those that a worker may have begun in the meantime
    assert not children()


def test_what_does_not_pickle_is_told():
    point = replace(POINT, requests=lambda: DRAWN)
    with pytest.raises(BrokenExecutor, match=r"^sweep: 3 tries of rate=None lost their worker; .+pickle.+lambda.+$"):
        sweep([point], Processes(1))


AT_ONCE = Requests([1.0, 1.0], [5, 5], [5, 5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Point([1, 2], DEPLOYMENT), r"Point: requests=\[1, 2\] must be Requests"),
        (lambda: Point(DRAWN, H100), r"Point: deployment=Accelerator.* must be Deployment"),
        (lambda: replace(POINT, settings="v1"), "Point: settings='v1' must be Settings"),
        (lambda: replace(POINT, rate=0), "Point: rate=0 must be above 0 and finite"),
        (lambda: replace(POINT, ttft=-1), "Point: ttft=-1 must be above 0 and finite"),
        (lambda: replace(POINT, tpot=[0.1]), r"Point: tpot=\[0.1\] must be one number"),
        (lambda: Processes(0), "Processes: workers=0 must be at least 1 and finite"),
        (lambda: Processes(1.5), "Processes: workers=1.5 must be a whole number"),
        (lambda: goodput_capacity(POINT, share=1.1), "goodput_capacity: share=1.1 must be at most 1"),
        (lambda: goodput_capacity(POINT, tolerance=0), "goodput_capacity: tolerance=0 must be at least 1e-06.*"),
        (lambda: goodput_capacity(Point(DRAWN, DEPLOYMENT)), "goodput_capacity: ttft=None must be given, or tpot"),
        (lambda: goodput_capacity(replace(POINT, requests=AT_ONCE)), "goodput_capacity: rate=inf cannot be scaled.*"),
        (
            lambda: goodput_capacity(replace(POINT, requests=closed_loop(2, 9, 5, 5, stagger=1))),
            "goodput_capacity: rate=8 cannot be scaled.* in a closed loop",
        ),
        (lambda: goodput_capacity(replace(POINT, router="x"), executor=InTurn()), "simulate: router='x' must be .*"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


# Ctrl-C


def stop_after(monkeypatch, count):
    """Have the progress line press Ctrl-C when so many are done."""

    class Line(search.Progress):
        def add(self, points):
            super().add(points)
            if self._done == count:
                raise KeyboardInterrupt(signal.SIGINT)

    monkeypatch.setattr(search, "Progress", Line)


@pytest.mark.parametrize("executor", [lambda: None, lambda: ThreadPoolExecutor(1), InTurn])
def test_ctrl_c_keeps_what_is_done(executor, monkeypatch, tmp_path):
    """The rest is cancelled, no process stays, and the same call serves what is left."""
    counted = [replace(POINT, requests=partial(notes, str(tmp_path), str(n)), rate=1 + n) for n in range(12)]
    done, chosen = {}, executor()
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Stopped) as stop:
            sweep(counted, chosen, done=done)
    assert not children()
    if isinstance(chosen, ThreadPoolExecutor):
        chosen.shutdown()  # waits for what it had begun
    assert stop.value.args == (signal.SIGINT,)  # which the command line returns to the shell
    assert stop.value.done is done
    assert len(done) == 3
    assert text(done.values()) == text(point.serve() for point in done)
    assert len(list(tmp_path.iterdir())) <= 6
    for path in tmp_path.iterdir():
        path.unlink()
    assert text(sweep(counted, InTurn(), done=done)) == text(replace(POINT, rate=1 + n).serve() for n in range(12))
    assert len(list(tmp_path.iterdir())) == 12 - 3


def test_ctrl_c_in_a_search_goes_on_from_there(monkeypatch):
    expected, done = goodput_capacity(POINT, executor=InTurn()), {}
    with monkeypatch.context() as patch:
        stop_after(patch, 4)  # at the end of the first round
        with pytest.raises(Stopped):
            goodput_capacity(POINT, executor=InTurn(), done=done)
    known = list(done)
    assert len(known) == 4
    assert goodput_capacity(POINT, executor=InTurn(), done=done) == expected
    assert list(done)[:4] == known
    assert len(done) == len(expected.points)


SCRIPT = """
import sys
from dataclasses import replace
from functools import partial
import perfmodel as pm
from perfmodel import data
from perfmodel.simulate.generate import poisson
from perfmodel.simulate.search import Point, Processes, Stopped, sweep

if __name__ == "__main__":
    requests = partial(poisson, 20, 400, 500, 100)
    point = Point(requests, pm.Deployment(data.model("llama-3.1-8b"), data.accelerator("h100-sxm")))
    done = {}
    try:
        sweep([replace(point, rate=1 + n / 100) for n in range(1000)], Processes(2), done=done, progress=True)
    except Stopped as stop:
        print(len(done), stop.done is done)
"""


@pytest.mark.skipif(os.name != "posix", reason="groups of processes are POSIX's")
@pytest.mark.parametrize("kind", ["SIGINT", "SIGKILL"])
def test_no_process_outlives_its_parent(kind, tmp_path):
    """Ctrl-C reaches all processes of a terminal, SIGKILL one."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(script)], cwd=ROOT, start_new_session=True, **pipes) as running:
        try:
            assert re.match("perfmodel: 1 of 1,000 points", running.stderr.readline())
            if kind == "SIGINT":
                os.killpg(running.pid, signal.SIGINT)
            else:
                running.kill()
            out, complaints = running.communicate(timeout=20)  # all who hold the pipes have ended
            if kind == "SIGINT":
                count, same = out.split()
                assert (running.returncode, same) == (0, "True")
                assert 1 <= int(count) < 1000
                assert not [line for line in complaints.splitlines() if "of 1,000 points" not in line]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def test_progress_is_told_if_wanted(capsys):
    sweep(POINTS[:2], InTurn())
    assert capsys.readouterr().err == ""
    sweep(POINTS[:2], InTurn(), progress=True)
    assert re.match(r"perfmodel: 1 of 2 points, \d+ s left\n", capsys.readouterr().err)


# The search


SERVICE = float(pm.prefill_time(DEPLOYMENT, 2000).total)
ONE_AT_A_TIME = Settings(num_blocks=inf, max_num_batched_tokens=2000)


def share_within(requests, rate, wait):
    """Share of requests that wait so long at most before a server, by Lindley's recursion."""
    gaps = np.diff(requests.scaled(rate).arrival)
    waits = [0.0]
    for gap in gaps.tolist():
        waits.append(max(waits[-1] + SERVICE - gap, 0.0))
    return np.mean(np.array(waits) <= wait)


def test_the_capacity_of_a_queue():
    """Prompts that fill a step each, and no more output, are an M/D/1 queue.

    Of these very requests, Lindley's recursion tells the capacity: between the answer and 1 % more. Of all Poisson
    requests, `md1_capacity` does. Here 90 % wait at most 4 services at a load of 0.78, and a rate that is 1 % higher
    costs 0.9 % of them. The waits of one busy period are alike, so 6,000 of them tell a share to about 0.012, and the
    rate to about 1.4 %: six other seeds are off by -1.5 to 1.5 %. Three times that is the tolerance.
    """
    requests = poisson(1, 6000, 2000, 1, seed=1)
    found = goodput_capacity(Point(requests, DEPLOYMENT, ONE_AT_A_TIME, ttft=5 * SERVICE))
    assert share_within(requests, found.rate, 4 * SERVICE) == pytest.approx(found.share, abs=1e-9)
    assert share_within(requests, found.rate * 1.01, 4 * SERVICE) < 0.9 <= found.share
    assert found.rate == pytest.approx(md1_capacity(SERVICE, 4 * SERVICE, 0.9), rel=0.045)
    assert found.reason == ""
    rates = [row["rate"] for row in found.points]
    assert rates == sorted(rates)
    assert found.rate in rates
    p90 = [row["ttft_s"]["p90"] for row in found.points]
    assert p90 == pytest.approx(sorted(p90), rel=1e-6)  # at the lowest rate the clock shows years and 1e-8 s
    assert p90[0] == pytest.approx(SERVICE, rel=1e-6)


def test_the_answer_does_not_depend_on_the_executor(dask):
    expected = goodput_capacity(POINT, executor=InTurn())
    assert 0 < expected.rate < inf
    assert expected.share >= 0.9
    for executor in (None, ThreadPoolExecutor(3), dask):
        found = goodput_capacity(POINT, executor=executor)
        assert repr(found) == repr(expected)
    assert not children()


def test_limits_that_fail_when_alone():
    found = goodput_capacity(replace(POINT, ttft=1e-4), executor=InTurn())
    assert (found.rate, found.share) == (0, found.points[0]["compliant_share"])
    assert re.fullmatch(r"too few keep the limits even at \S+ requests/s, when they hardly meet", found.reason)
    assert found.points[0]["most_running"] == 1
    assert found.share < 0.9


def test_limits_that_hold_when_all_come_at_once():
    found = goodput_capacity(replace(POINT, ttft=100, tpot=10), executor=InTurn())
    assert (found.rate, found.share) == (inf, 1)
    assert found.reason == "enough keep the limits even when all 60 come at once"
    assert found.points[-1]["rate"] == 60 / search.TOGETHER


def test_refused_requests_keep_no_limit():
    requests = poisson(1, 10, [10] * 8 + [5000] * 2, 5)
    found = goodput_capacity(Point(requests, DEPLOYMENT, Settings(max_model_len=100), ttft=9), executor=InTurn())
    assert (found.rate, found.share) == (0, 0.8)


def searched(monkeypatch, holds, point=POINT, **how):
    """The search over a rule instead of simulations, and the rates of each round."""
    rounds = []

    def rule(points, executor=None, **_):
        rounds.append([point.rate for point in points])
        return [{"rate": point.rate, "compliant_share": float(holds(point.rate))} for point in points]

    monkeypatch.setattr(search, "sweep", rule)
    return goodput_capacity(point, executor=InTurn(), **how), rounds


@pytest.mark.parametrize("tolerance", [1e-6, 0.01, 0.3, 1])
@pytest.mark.parametrize("capacity", [1e-7, 0.003, 11, 15.99, 16, 33.4, 1e4, 5e7])
def test_the_capacity_is_found_to_its_tolerance(capacity, tolerance, monkeypatch):
    found, rounds = searched(monkeypatch, lambda rate: rate <= capacity, tolerance=tolerance)
    assert found.rate <= capacity < found.rate * (1 + tolerance) * (1 + 1e-12)
    assert all(len(rates) == search.GRID for rates in rounds)
    assert len(found.points) == sum(map(len, rounds))
    assert len(rounds) <= 1 + 12 + 10  # the ends and the middle; doublings; a fifth of the interval each


def test_the_search_starts_where_it_is_told(monkeypatch):
    _, rounds = searched(monkeypatch, lambda rate: rate <= 900)
    assert {16, 32} < set(rounds[0])
    found, rounds = searched(monkeypatch, lambda rate: rate <= 900, replace(POINT, rate=700))
    assert {512, 1024} < set(rounds[0])
    assert found.rate == pytest.approx(900, rel=0.01)
    assert len(rounds) == 4


def test_a_share_that_rises_again(monkeypatch):
    """The answer is the highest rate looked at below which all hold."""
    found, _ = searched(monkeypatch, lambda rate: rate <= 20 or rate > 40)
    assert found.rate == pytest.approx(20, rel=0.01)
    assert any(row["compliant_share"] for row in found.points if row["rate"] > found.rate)


def test_a_share_that_is_just_enough_holds(monkeypatch):
    found, _ = searched(monkeypatch, lambda rate: 0.95 if rate <= 20 else 0.9499, share=0.95)
    assert found.rate == pytest.approx(20, rel=0.01)


# The environment


def test_it_is_imported_when_it_is_asked_for_and_needs_numpy_alone():
    code = """
import sys
import perfmodel
assert "perfmodel.simulate" not in sys.modules
import perfmodel.simulate.search
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"numpy", "dask", "distributed", "sympy", "pandas", "altair", "cloudpickle", "tornado"}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("numpy\n", "")
