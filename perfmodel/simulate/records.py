"""What happened in the steps of an engine, in columns."""

from array import array
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from perfmodel.simulate.engine import Engine
    from perfmodel.simulate.scheduler import Plan

RUNS = ("start", "end", "steps", "decoding", "prefilling", "prefill_tokens", "running", "waiting", "blocks")
CHUNKS = ("request", "start", "end", "tokens", "prefix")
PREEMPTIONS = ("request", "time")


class Records:
    """Sums over all steps, the gaps between output tokens and, if `keep`, every run of steps that are alike.

    Attributes
    ----------
    runs, chunks, preemptions : lists of tuples
        With the columns `RUNS`, `CHUNKS` and `PREEMPTIONS`, if they are kept. Blocks are counted at the end of a run.
    """

    def __init__(self, keep: bool) -> None:
        self.keep, self.steps, self.preempted, self.most_running = keep, 0, 0, 0
        self.busy = self.block_seconds = 0.0  # seconds in steps; blocks held, summed over them, if they are limited
        self.tokens = 0  # computed
        self.seconds, self.counts = array("d"), array("q")  # of gaps between tokens, and how many are as long
        self.runs: list[tuple[Any, ...]] = []
        self.chunks: list[tuple[Any, ...]] = []
        self.preemptions: list[tuple[Any, ...]] = []

    def step(self, engine: "Engine", plan: "Plan", start: float, end: float, decoding: int) -> None:
        """One step; its requests have not moved on yet."""
        scheduler, used = engine.scheduler, engine.pool.used
        self.steps += 1
        self.busy += end - start
        if engine.pool.usable < inf:
            self.block_seconds += used * (end - start)
        self.preempted += len(scheduler.preempted)
        self.most_running = max(self.most_running, len(scheduler.running))
        tokens = sum(new for _, new in plan)
        self.tokens += tokens
        if self.keep:
            pieces = [(job.index, start, end, new, job.computed) for job, new in plan if job.computed + 1 < job.tokens]
            prefill = sum(piece[3] for piece in pieces)
            running, waiting = len(scheduler.running), scheduler.jobs - len(scheduler.running)
            self.runs.append((start, end, 1, decoding, len(pieces), prefill, running, waiting, used))
            self.chunks += pieces
            self.preemptions += [(job.index, start) for job in scheduler.preempted]

    def alike(self, engine: "Engine", batch: int, ends: Any, blocks: Any) -> None:
        """Decode steps of all that run, the first of which starts at `ends[0]`; the blocks held in each, if counted."""
        gaps, running = ends[1:] - ends[:-1], sum(job.finish is None for job in engine.scheduler.running)
        steps = len(gaps)
        self.steps += steps
        self.busy += float(ends[-1] - ends[0])
        self.tokens += steps * batch
        self.seconds.frombytes(gaps.tobytes())
        self.counts += array("q", [running]) * steps
        if blocks is not None:
            self.block_seconds += float(blocks @ gaps)
        if self.keep:
            waiting = engine.scheduler.jobs - batch
            held = engine.pool.used if blocks is None else int(blocks[-1])
            self.runs.append((float(ends[0]), float(ends[-1]), steps, batch, 0, 0, batch, waiting, held))

    def gap(self, seconds: float, count: int) -> None:
        """So many tokens came so long after the one before."""
        if count:
            self.seconds.append(seconds)
            self.counts.append(count)


def columns(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows as arrays, by the name of their column."""
    values = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: np.array(list(column)) for name, column in zip(names, values, strict=True)}
