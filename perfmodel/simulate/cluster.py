"""Runs: requests arrive, a router gives each to a replica, which serves it; also in two pools with a link between."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np

from perfmodel.deployment import Deployment
from perfmodel.disaggregation import kv_transfer_time
from perfmodel.hardware import Link
from perfmodel.quantity import shown
from perfmodel.simulate.engine import Engine
from perfmodel.simulate.job import Job
from perfmodel.simulate.records import CHUNKS, PREEMPTIONS, RUNS, Records, columns
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.results import Results
from perfmodel.simulate.routers import ROUTERS, Router
from perfmodel.simulate.settings import V1, Settings


@dataclass(frozen=True)
class DecodePool:
    """Replicas that only decode, and the link that brings them the KV caches of prefilled prompts.

    Parameters
    ----------
    deployment : Deployment
        Its replicas; the deployment that the run is given has the prefills to itself.
    link : Link
        From a prefill replica, one cache after the other.
    settings : Settings
    links : int
        Links that carry a part of each cache at the same time, as in `kv_transfer_time`.
    """

    deployment: Deployment
    link: Link
    settings: Settings = V1
    links: int = 1


def simulate(
    requests: Requests,
    deployment: Deployment,
    settings: Settings = V1,
    *,
    router: str = "round-robin",
    decode_pool: DecodePool | None = None,
    by_totals: bool = False,
    fast: bool = True,
    keep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Results:
    """Serve requests on the replicas of a deployment.

    Where pools are apart, the first token comes from the prefill and the others when the cache has been sent; a prefill
    replica frees its blocks as soon as it has computed them.

    Parameters
    ----------
    requests : Requests
    deployment : Deployment
        `data_parallel` replicas, each with a scheduler and a KV cache of its own.
    settings : Settings
        Of each replica.
    router : str
        "round-robin", "least-loaded" or "prefix-aware": which replica a request goes to when it arrives.
    decode_pool : DecodePool, optional
        Other replicas that decode.
    by_totals : bool
        As in `StepClock`.
    fast : bool
        Whether decode steps that are alike are advanced at once; False is the plain way, with the same times.
    keep : bool
        Whether `Results` has runs of steps, chunks of prompts and preemptions.
    progress : callable, optional
        Told how many more requests have ended.

    Returns
    -------
    Results
    """
    if router not in ROUTERS:
        raise ValueError(f"simulate: router={shown(router)} must be one of {', '.join(ROUTERS)}")
    run = _Run(requests, deployment, settings, ROUTERS[router], decode_pool, by_totals, fast, keep)
    return run.results(progress or (lambda ended: None))


class _Run:
    """The course of events: whatever is next in time happens next."""

    def __init__(
        self,
        requests: Requests,
        deployment: Deployment,
        settings: Settings,
        router: Router,
        decode_pool: DecodePool | None,
        by_totals: bool,
        fast: bool,
        keep: bool,
    ) -> None:
        def engines(d: Deployment, s: Settings) -> list[Engine]:
            return [Engine(d, s, requests, by_totals, fast, keep) for _ in range(d.data_parallel)]

        self.wall = time.perf_counter()
        self.requests, self.router, self.pool = requests, router, decode_pool
        self.engines = engines(deployment, settings)
        self.decoders = engines(decode_pool.deployment, decode_pool.settings) if decode_pool else []
        self.free_links = [0.0] * len(self.engines)  # when each prefill replica's link has sent all
        self.prompt, self.output = requests.prompt.tolist(), requests.output.tolist()
        self.begun = self.sent = 0  # requests of the table, and those of a closed loop after them, that have arrived
        self.open = len(requests) if requests.users is None else requests.users
        self.arrival = requests.arrival.copy()
        self.events: list[tuple[float, int, Job | None]] = []  # arrivals of a closed loop, ends of transfers
        n = len(requests)
        self.times = {name: np.full(n, np.nan) for name in ("scheduled", "first_token", "finish")}
        self.counts = {"preemptions": np.zeros(n, int), "cached": np.zeros(n, int), "replica": np.full(n, -1)}
        self.refused: dict[int, str] = {}

    def results(self, progress: Callable[[int], None]) -> Results:
        """Let all happen."""
        everyone = self.engines + self.decoders
        while True:
            coming = self._coming()
            busy = [engine for engine in everyone if engine.busy]
            engine = min(busy, key=lambda engine: engine.now, default=None)
            if engine is not None and engine.now < coming:
                ended = engine.advance(self._horizon(engine, busy, coming))
                for job in ended:
                    self._ended(engine, job, engine.now)
                if ended:
                    progress(len(ended))
            elif coming < inf:
                self._arrive(coming)
            else:
                return self._collect()

    def _coming(self) -> float:
        """When the next request arrives, as far as is known."""
        listed = self.arrival[self.begun] if self.begun < self.open else inf
        return min(listed, self.events[0][0]) if self.events else listed

    def _horizon(self, engine: Engine, busy: list[Engine], coming: float) -> float:
        """Until when an engine cannot be reached by what others do, nor by what is coming."""
        if len(self.engines) == 1 and not self.decoders:
            waits = engine.scheduler.in_turn and engine.scheduler.waiting
            return inf if waits else coming  # who comes has to wait, whenever it comes
        others = [other.now for other in busy if other is not engine]
        if self.requests.users is None and engine in self.decoders:
            others = [other.now for other in busy if other in self.engines]
        elif self.requests.users is None:
            others = []
        return min([coming, *others])

    def _arrive(self, now: float) -> None:
        """The next request comes, or the next cache."""
        if self.begun < self.open and self.arrival[self.begun] == now:
            self._submit(self.begun, now)
            self.begun += 1
            return
        _, index, job = heappop(self.events)
        if job is None:
            self.arrival[index] = now
            self._submit(index, now)
        else:
            self.decoders[self.router(self.decoders, job)].submit(job, now)

    def _submit(self, index: int, now: float) -> None:
        output = self.output[index]
        job = Job(index, now, self.prompt[index], min(output, 1) if self.decoders else output)
        place = self.router(self.engines, job)
        reason = None
        if self.decoders and output > 1:
            reason = self.decoders[0].scheduler.refusal(Job(index, now, self.prompt[index], output))
        reason = reason or self.engines[place].submit(job, now)
        if reason is None:
            self.counts["replica"][index] = place
        else:
            self.refused[index] = reason
            self._next_user(now)

    def _ended(self, engine: Engine, job: Job, now: float) -> None:
        index = job.index
        self.counts["preemptions"][index] += job.preemptions
        if engine in self.engines:
            self.times["scheduled"][index] = job.scheduled
            self.times["first_token"][index] = np.nan if job.first is None else job.first
            self.counts["cached"][index] = job.cached
            if self.pool and self.output[index] > 1:
                self._send(self.engines.index(engine), job, now, self.pool)
                return
        self.times["finish"][index] = now
        self._next_user(now)

    def _send(self, place: int, job: Job, now: float, pool: DecodePool) -> None:
        """Send the cache of a prefilled prompt to the pool that decodes, after those before it."""
        seconds = kv_transfer_time(self.engines[place].deployment, job.prompt, pool.link, pool.links)
        self.free_links[place] = arrives = max(self.free_links[place], now) + float(seconds)
        decoding = Job(job.index, job.arrival, job.prompt, self.output[job.index])
        decoding.computed, decoding.done = job.prompt, 1
        decoding.scheduled, decoding.first, decoding.last = job.scheduled, job.first, now
        heappush(self.events, (arrives, job.index, decoding))

    def _next_user(self, end: float) -> None:
        """In a closed loop, the user of a request that ended sends the next."""
        users = self.requests.users
        if users is not None and self.open + self.sent < len(self.requests):
            heappush(self.events, (end + self.requests.think, self.open + self.sent, None))
            self.sent += 1

    def _collect(self) -> Results:
        everyone = self.engines + self.decoders
        records = [engine.records for engine in everyone]
        first = [engine.scheduler for engine in self.engines]
        return Results(
            arrival=self.arrival,
            prompt=self.requests.prompt,
            output=self.requests.output,
            **self.times,
            **self.counts,
            refused=self.refused,
            gap_s=np.concatenate([np.frombuffer(record.seconds) for record in records]),
            gap_count=np.concatenate([np.frombuffer(record.counts, dtype=np.int64) for record in records]),
            steps=sum(record.steps for record in records),
            busy_s=sum(record.busy for record in records),
            computed_tokens=sum(record.tokens for record in records),
            looked_up_blocks=sum(one.full_blocks for one in first),
            hit_blocks=sum(one.hit_blocks for one in first),
            kv_blocks=sum(engine.pool.usable for engine in everyone),
            block_seconds=sum(record.block_seconds for record in records),
            most_running=max(record.most_running for record in records),
            wall_s=time.perf_counter() - self.wall,
            runs=_columns("runs", RUNS, records),
            chunks=_columns("chunks", CHUNKS, records),
            preempted=_columns("preemptions", PREEMPTIONS, records),
        )


def _columns(kind: str, names: tuple[str, ...], records: list[Records]) -> dict[str, Any]:
    """The rows of all replicas, with a column that says whose they are; nothing if they were not kept."""
    if not records[0].keep:
        return {}
    rows = [(place, *row) for place, record in enumerate(records) for row in getattr(record, kind)]
    return columns(("replica", *names), rows)
