"""What came of a run: times of each request, and their statistics."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.simulate.requests import Floats, Integers, scalar

PERCENTS = (50, 90, 99)


@dataclass(frozen=True, eq=False)
class Results:
    """Columns with an entry for each request, in the order of the workload, and sums over all steps.

    Times are in seconds, NaN where there is none: of a request that was refused, a first token of one without output.
    """

    arrival: Floats
    prompt: Integers
    output: Integers
    scheduled: Floats  # start of the first step that computes a part of it
    first_token: Floats
    finish: Floats
    preemptions: Integers
    cached: Integers  # prompt tokens that the prefix cache supplied when it was first admitted
    replica: Integers  # which served it; the one that prefilled, where pools are apart; -1 if refused
    refused: dict[int, str]  # why, of each request that could never run
    gap_s: Floats  # between two output tokens of a request
    gap_count: Integers  # how many gaps are so long
    steps: int
    busy_s: float  # in steps, all replicas
    computed_tokens: int
    looked_up_blocks: int  # full blocks of the prompts of admitted requests
    hit_blocks: int
    kv_blocks: float  # that requests can hold, all replicas
    block_seconds: float
    most_running: int  # at once, on one replica
    wall_s: float  # how long the simulation took
    runs: dict[str, Any] = field(default_factory=dict)  # of steps that are alike; if they were kept
    chunks: dict[str, Any] = field(default_factory=dict)  # of prompts
    preempted: dict[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> Any:
        """Which requests have all their tokens."""
        return ~np.isnan(self.finish)

    @property
    def ttft(self) -> Floats:
        """From arrival to first token."""
        return self.first_token - self.arrival

    @property
    def e2e(self) -> Floats:
        """From arrival to last token."""
        return self.finish - self.arrival

    @property
    def tpot(self) -> Floats:
        """Mean time of a token after the first; NaN of requests with fewer than two."""
        later = np.where(self.output > 1, self.output - 1, np.nan)
        return (self.finish - self.first_token) / later

    @property
    def wait(self) -> Floats:
        """From arrival to the first step."""
        return self.scheduled - self.arrival

    @property
    def duration(self) -> float:
        """From the first arrival to the last end; 0 if all were refused."""
        return float(np.nanmax(self.finish) - self.arrival.min()) if self.finished.any() else 0.0

    @property
    def throughput(self) -> float:
        """Output tokens a second of the run."""
        return _share(float(self.output[self.finished].sum()), self.duration)

    @property
    def occupancy(self) -> float:
        """Mean share of the blocks that requests hold, over the duration; 0 of an unlimited cache."""
        return _share(self.block_seconds, self.duration * self.kv_blocks)

    def compliant(self, ttft: float | None = None, tpot: float | None = None) -> Any:
        """Which requests finished within the limits, seconds to the first token and for each after it.

        A time that a request does not have keeps any limit.
        """
        kept = self.finished
        for name, times, limit in ("ttft", self.ttft, ttft), ("tpot", self.tpot, tpot):
            if limit is not None:
                kept = kept & ~(times > scalar("compliant", name, limit))
        return kept

    def goodput(self, ttft: float | None = None, tpot: float | None = None) -> float:
        """Requests a second of the run that finished within the limits."""
        return _share(float(self.compliant(ttft, tpot).sum()), self.duration)

    def statistics(self) -> dict[str, dict[str, float | None]]:
        """Mean and percentiles of TTFT, TPOT, gap between tokens and end-to-end time; None where no request has one."""
        found = {f"{name}_s": _summary(getattr(self, name)) for name in ("ttft", "tpot", "e2e")}
        return found | {"itl_s": _summary(self.gap_s, self.gap_count)}

    def summary(self, ttft: float | None = None, tpot: float | None = None) -> dict[str, Any]:
        """All that the command line prints as JSON, goodput under these limits."""
        prompts = int(self.prompt[self.replica >= 0].sum())
        return {
            "requests": len(self.arrival),
            "finished": int(self.finished.sum()),
            "refused": len(self.refused),
            "preemptions": int(self.preemptions.sum()),
            "steps": self.steps,
            "duration_s": self.duration,
            **self.statistics(),
            "throughput_tok_s": self.throughput,
            "request_rate": _share(float(self.finished.sum()), self.duration),
            "goodput_req_s": self.goodput(ttft, tpot),
            "compliant_share": _share(float(self.compliant(ttft, tpot).sum()), len(self.arrival)),
            "prefix_hit_blocks": _share(self.hit_blocks, self.looked_up_blocks),
            "prefix_hit_tokens": _share(float(self.cached.sum()), prompts),
            "kv_occupancy_mean": self.occupancy if np.isfinite(self.kv_blocks) else None,
            "most_running": self.most_running,
            "wall_s": self.wall_s,
        }


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _summary(values: Any, counts: Any = None) -> dict[str, float | None]:
    """Mean and percentiles, interpolated as NumPy does, of values that occur so often."""
    there = ~np.isnan(values)
    values, counts = values[there], None if counts is None else counts[there]
    names = [f"p{percent}" for percent in PERCENTS]
    if not len(values):
        return dict.fromkeys(["mean", *names])
    if counts is None:
        return dict(
            zip(["mean", *names], [float(values.mean()), *np.percentile(values, PERCENTS).tolist()], strict=True)
        )
    order = np.argsort(values, kind="stable")
    values, upto = values[order], np.cumsum(counts[order])
    place = np.array(PERCENTS) / 100 * (upto[-1] - 1)
    low, high = (values[np.searchsorted(upto, at, side="right")] for at in (np.floor(place), np.ceil(place)))
    found = low + (high - low) * (place - np.floor(place))
    mean = float(values @ counts[order]) / float(upto[-1])
    return {"mean": mean} | dict(zip(names, found.tolist(), strict=True))
