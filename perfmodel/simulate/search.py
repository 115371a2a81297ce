"""Sweeps and the goodput search: many simulations at once, on processes, a cluster, or any other executor.

>>> point = Point(partial(preset, "sharegpt", 20_000), deployment, ttft=0.5, tpot=0.05)
>>> rows = sweep([replace(point, rate=rate) for rate in (4, 8, 16)])  # on a process for each core
>>> found = goodput_capacity(point)
>>> curve = [(row["rate"], row["ttft_s"]["p90"]) for row in found.points]  # with the knee
>>> goodput_capacity(point, done=done)  # a dict; after Ctrl-C, the same call does not serve again what is in it
>>> goodput_capacity(point, executor=distributed.Client("tcp://scheduler:8786").get_executor())  # Dask

Processes start afresh: a script calls these below ``if __name__ == "__main__":``. Workers elsewhere have this package.
On machines of one kind, the executor, the number of its workers and the order in which they end change no bit of a row.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf, isinf, log2
from queue import Empty, SimpleQueue
from typing import Any

from perfmodel.deployment import Deployment
from perfmodel.quantity import shown
from perfmodel.simulate.cluster import DecodePool, simulate
from perfmodel.simulate.processes import Processes
from perfmodel.simulate.requests import MOST_SECONDS, Requests, scalar
from perfmodel.simulate.settings import V1, Settings
from perfmodel.terminal import Progress, one_line

TRIES = 3  # of a point whose worker fails
GRID = 4  # rates in a round of the search, however many workers there are: they must not change what it finds
APART = MOST_SECONDS / 10  # seconds until the last of requests that hardly meet
TOGETHER = 1e-6  # seconds in which requests come that come at once: less than a step

Row = dict[str, Any]  # what comes of a point
Rows = dict["Point", Row]


@dataclass(frozen=True)
class Point:
    """One simulation, as in `simulate`. Points are equal if their parts are; requests, if they are the same object."""

    requests: Requests | Callable[[], Requests]  # a function draws them where they are served: less is sent
    deployment: Deployment
    settings: Settings = V1
    rate: float | None = None  # requests a second, to which they are scaled; None leaves them as they are
    ttft: float | None = None  # limit, seconds to the first token
    tpot: float | None = None  # limit, seconds for each token after it
    router: str = "round-robin"
    decode_pool: DecodePool | None = None
    by_totals: bool = False

    def __post_init__(self) -> None:
        kinds: dict[str, Any] = {"requests": (Requests, Callable), "deployment": Deployment, "settings": Settings}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"Point: {name}={shown(value)} must be {name.capitalize()}")
        for name in (name for name in ("rate", "ttft", "tpot") if getattr(self, name) is not None):
            scalar("Point", name, getattr(self, name))

    def drawn(self) -> Requests:
        """The requests at their own rate."""
        return self.requests if isinstance(self.requests, Requests) else self.requests()

    def serve(self) -> Row:
        """The rate, and the `summary` of the run but for the time that it took, which another run would not repeat."""
        requests = self.drawn() if self.rate is None else self.drawn().scaled(self.rate)
        how: dict[str, Any] = {name: getattr(self, name) for name in ("router", "decode_pool", "by_totals")}
        row = simulate(requests, self.deployment, self.settings, **how).summary(self.ttft, self.tpot)
        del row["wall_s"]
        return {"rate": requests.rate if self.rate is None else float(self.rate), **row}


class Stopped(KeyboardInterrupt):
    """Ctrl-C in a sweep; `done` has the row of each point that was served."""

    def __init__(self, *args: Any, done: Rows) -> None:
        super().__init__(*args)
        self.done = done


def sweep(
    points: Iterable[Point], executor: Executor | None = None, *, done: Rows | None = None, progress: bool = False
) -> list[Row]:
    """A row for each point, in their order: see `Point.serve`.

    Parameters
    ----------
    executor : concurrent.futures.Executor, optional
        None takes `Processes`, and ends them. Another stays open; what it cannot cancel when a sweep stops, runs on.
    done : dict, optional
        Rows that are known, by point; new ones are put in as they come.
    progress : bool
        Whether to say on stderr how far it is even if that is no terminal.

    Raises
    ------
    ValueError
        From bad input, at once.
    BrokenExecutor
        If a worker fails, by dying or otherwise, in each of `TRIES` tries of a point.
    Stopped
        On Ctrl-C.
    """
    points, done = list(points), {} if done is None else done
    left, tries = deque(point for point in dict.fromkeys(points) if point not in done), Counter[Point]()
    flying: dict[Future[Any], Point] = {}
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    with nullcontext(executor) if executor else Processes() as pool, Progress(len(left), progress) as line:
        # A process that dies takes along what is submitted to the others: no more than they can work on.
        most = pool.workers if isinstance(pool, Processes) else len(left)
        try:
            while left or flying:
                if left and len(flying) < most and ended.empty():
                    point = left.popleft()
                    # Dask gives the same task the failure that it has: the number of tries makes it another.
                    flying[future := pool.submit(_served, point, tries[point])] = point
                    future.add_done_callback(ended.put)
                    continue
                try:
                    future = ended.get(timeout=1)
                except Empty:
                    # What is submitted while a pool breaks is sometimes forgotten: nobody would ever end it.
                    for forgotten in flying if isinstance(pool, Processes) and pool.broken else ():
                        forgotten.cancel()
                    continue
                point = flying.pop(future)
                if lost := CancelledError("cancelled") if future.cancelled() else future.exception():
                    tries[point] += 1
                    if tries[point] == TRIES:
                        why = one_line(f"{type(lost).__name__}: {lost}")
                        raise BrokenExecutor(f"sweep: {TRIES} tries of rate={point.rate} lost their worker; {why}")
                    left.appendleft(point)
                elif isinstance(row := future.result(), Exception):
                    raise row
                else:
                    done[point] = row
                    line.add(1)
        except BaseException as error:
            for future in flying:
                future.cancel()
            if isinstance(pool, Processes):
                pool.shutdown(cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                raise Stopped(*error.args, done=done) from None
            raise
    return [done[point] for point in points]


def _served(point: Point, tries: int) -> Row | Exception:
    """On a worker: the row, or what is wrong with the point. Raised, it would look like a worker that failed."""
    try:
        return point.serve()
    except Exception as error:
        return error


@dataclass(frozen=True)
class Capacity:
    """What `goodput_capacity` found."""

    rate: float  # requests a second; 0 if the limits fail at any, infinite if they hold at any
    share: float  # of the requests within the limits at this rate; at the lowest or highest if it is 0 or infinite
    reason: str  # why it is 0 or infinite; else empty
    points: list[Row]  # of all rates that were looked at, in their order


def goodput_capacity(
    point: Point, share: float = 0.9, tolerance: float = 0.01, executor: Executor | None = None, **how: Any
) -> Capacity:
    """The highest rate at which at least a share of the requests keep the limits: goodput as a capacity.

    First come a rate at which requests hardly meet, one at which all come at once, and the power of two next to their
    own; then doublings or halvings; then rounds of `GRID` rates between the highest that holds and the lowest that
    does not. Should the share rise again with the rate, the answer is still the highest rate looked at below which all
    hold. A queue that grows slowly shows only in a run that is long beside the limits.

    Parameters
    ----------
    point : Point
        With a limit or both; the search starts at its `rate` if it has one.
    share : float
        Of all requests; those that were refused keep no limit.
    tolerance : float
        The answer holds, and a rate that was looked at and is larger by at most this share of it does not.
    executor, done, progress
        As in `sweep`.
    """
    scalar("goodput_capacity", "share", share, maximum=1)
    scalar("goodput_capacity", "tolerance", tolerance, minimum=1e-6, maximum=1)
    if point.ttft is None and point.tpot is None:
        raise ValueError("goodput_capacity: ttft=None must be given, or tpot")
    requests = point.drawn()
    if isinf(own := requests.rate) or requests.users is not None:
        raise ValueError(f"goodput_capacity: rate={own:g} cannot be scaled: requests come at once or in a closed loop")
    lowest, highest = float(own * requests.arrival[-1] / APART), len(requests) / TOGETHER
    start = 2.0 ** round(log2(own if point.rate is None else point.rate))
    rates = [lowest, highest, *(rate for rate in (start, 2 * start) if lowest < rate < highest)]
    rows: dict[float, Row] = {}
    with nullcontext(executor) if executor else Processes() as pool:
        while rates:
            rows |= {row["rate"]: row for row in sweep([replace(point, rate=rate) for rate in rates], pool, **how)}
            broken = min((rate for rate, row in rows.items() if row["compliant_share"] < share), default=inf)
            kept = max((rate for rate in rows if rate < broken), default=0.0)
            rates = []
            if kept and kept * (1 + tolerance) < broken < inf:
                ratio = min((broken / kept) ** (1 / (GRID + 1)), 2.0)  # far apart, they move from the end that is near
                powers = [ratio**step for step in range(1, GRID + 1)]
                rates = [kept * power if kept > lowest else broken / power for power in powers]
    points, reason = [rows[rate] for rate in sorted(rows)], ""
    if not kept:
        reason = f"too few keep the limits even at {lowest:.3g} requests/s, when they hardly meet"
    elif broken == inf:
        kept, reason = inf, f"enough keep the limits even when all {len(requests)} come at once"
    nearest = points[0] if not kept else points[-1] if kept == inf else rows[kept]
    return Capacity(kept, nearest["compliant_share"], reason, points)
