"""One replica: it plans a step, the clock says how long it takes, and its requests move on."""

from math import inf
from typing import Any

import numpy as np

from perfmodel.deployment import Deployment
from perfmodel.kvcache import kv_bytes_per_token_per_gpu
from perfmodel.simulate.blocks import CountedBlocks
from perfmodel.simulate.cached_blocks import CachedBlocks, keys_of
from perfmodel.simulate.clock import StepClock
from perfmodel.simulate.job import Job
from perfmodel.simulate.policies import scheduler
from perfmodel.simulate.records import Records
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.scheduler import Plan
from perfmodel.simulate.settings import Settings

LONGEST = 4096  # steps that are looked ahead at once


class Engine:
    """Requests in, tokens out, in steps.

    Parameters
    ----------
    deployment : Deployment
        One replica of it serves.
    settings : Settings
    requests : Requests
        Those that will come; prefixes are cached if they name theirs, or if the settings say so.
    by_totals : bool
        As in `StepClock`.
    fast : bool
        Whether steps that are alike are advanced at once. The times are the same.
    keep : bool
        Whether all steps are recorded.
    """

    def __init__(
        self,
        deployment: Deployment,
        settings: Settings,
        requests: Requests,
        by_totals: bool = False,
        fast: bool = True,
        keep: bool = False,
    ) -> None:
        self.deployment, self.settings, self.fast, self.now = deployment, settings, fast, 0.0
        self.clock = StepClock(deployment, by_totals)
        usable = settings.usable_blocks(deployment)
        caching = settings.enable_prefix_caching
        if caching is None:
            caching = requests.ids is not None and settings.policy not in ("v0", "static", "contiguous")
        size = settings.block_size
        self.pool = CachedBlocks(usable, size, keys_of(requests, size)) if caching else CountedBlocks(usable, size)
        link, each = settings.swap_link, kv_bytes_per_token_per_gpu(deployment)
        swap_time = None if link is None else lambda tokens: link.latency + tokens * each / link.bandwidth
        self.scheduler = scheduler(settings, self.pool, swap_time)
        self.records = Records(keep)
        self._drafts = settings.num_speculative_tokens
        self._cost = settings.num_speculative_tokens * settings.draft_cost

    def submit(self, job: Job, now: float) -> str | None:
        """Take a request that comes now; returns the reason if it can never run."""
        reason = self.scheduler.refusal(job)
        if reason is None:
            if not self.scheduler.jobs:
                self.now = max(self.now, now)
            self.scheduler.submit(job)
        return reason

    @property
    def busy(self) -> bool:
        """Whether it has requests that have not ended."""
        return self.scheduler.jobs > 0

    def advance(self, until: float = inf) -> list[Job]:
        """Carry out one step, and those after it that are like it and start before `until`; returns who ended.

        `until` is when the next request comes.
        """
        before = len(self.scheduler.running)
        plan = self.scheduler.plan()
        if not plan:
            raise RuntimeError(f"no step for {self.scheduler.jobs} requests; this is a fault of the simulator")
        ended, decoded = self._step(plan)
        if self.fast and decoded == len(plan) == len(self.scheduler.running) == before and not ended:
            return self._coast(until)
        return ended

    def _step(self, plan: Plan) -> tuple[list[Job], int]:
        """One step; returns who ended, and how many only decoded a token."""
        start = self.now
        decodes = [(job.computed + 1, tokens) for job, tokens in plan if tokens == 1 or job.drafted]
        chunks = [(tokens, job.computed) for job, tokens in plan if tokens > 1 and not job.drafted]
        for job, _ in plan:
            if job.scheduled is None:
                job.scheduled = start
        contexts = [context for context, _ in decodes]
        new = [tokens for _, tokens in decodes] if self._drafts else None
        end = self.now = start + (self.clock.step(contexts, chunks, new, self._cost) + self.scheduler.stall)
        self.records.step(self, plan, start, end, len(decodes))
        ended, decoded, regular = [], 0, 0
        for job, tokens in plan:
            job.computed += tokens
            if job.finish is not None:  # a static batch computes its empty slots, too
                decoded += 1
            elif job.computed >= job.prompt + job.done:
                if tokens == 1 and job.last == start and not self._drafts:
                    regular += 1
                    decoded += 1
                    job.done += 1
                    job.last = end
                    if job.done < job.output:
                        continue
                    job.finish = end
                else:
                    self._sample(job, tokens, end)
                if job.finish is not None:
                    ended.append(job)
        self.records.gap(end - start, regular)
        for job in ended:
            self.scheduler.end(job)
        return ended, decoded

    def _sample(self, job: Job, tokens: int, end: float) -> None:
        """Give a request its next token, and those that were drafted and accepted."""
        new = 1
        if self._drafts:
            new = self._verify(job, tokens - 1) if job.drafted else 1
            limit = self.settings.max_model_len
            room = self._drafts if limit is None else limit - 1 - job.tokens - new
            job.drafted = min(self._drafts, max(room, 0))
        new = min(new, job.output - job.done)
        job.done += new
        if new:
            if job.first is None:
                job.first = end
            else:
                self.records.gap(end - job.last, 1)
            self.records.gap(0.0, new - 1)
            job.last = end
        if job.done >= job.output:
            job.finish = end

    def _verify(self, job: Job, drafted: int) -> int:
        """Tokens that come out of a pass over so many drafts: those accepted, and one of the target's own."""
        alpha = self.settings.acceptance
        if job.rng is None:
            job.rng = np.random.default_rng([self.settings.seed, job.index])
        accepted = 0
        while accepted < drafted and job.rng.random() < alpha:
            accepted += 1
        job.computed -= drafted - accepted
        return accepted + 1

    def _coast(self, until: float) -> list[Job]:
        """The steps after one in which all that run decoded: until one ends or comes, or blocks run out."""
        jobs = self.scheduler.running
        left = min(job.output - job.done for job in jobs if job.finish is None)
        contexts = np.array([job.computed + 1 for job in jobs])
        steps = min(left, LONGEST)
        first = float(self.clock.decode(contexts, 1)[0])
        if until < inf:
            steps = min(steps, max(int((until - self.now) / first) + 2, 1))  # later steps take no less
        ends = np.cumsum(np.concatenate([[self.now], self.clock.decode(contexts, steps)]))
        steps = min(steps, int(np.searchsorted(ends, until)))  # those that start before it
        if not steps:
            return []
        takes = np.cumsum(self.pool.takes(jobs, steps))
        steps = int(np.searchsorted(takes, self.pool.free, side="right"))
        if not steps:
            return []
        return self._alike(jobs, ends[: steps + 1], takes[:steps])

    def _alike(self, jobs: list[Job], ends: Any, takes: Any) -> list[Job]:
        """Move `jobs` on by decode steps that end at `ends[1:]`."""
        steps = len(takes)
        self.records.alike(self, ends, self.pool.used + takes)
        self.pool.decoded(jobs, steps)
        end = self.now = float(ends[-1])
        ended, decoding = [], 0
        for job in jobs:
            job.computed += steps
            if job.finish is not None:
                continue
            decoding += 1
            job.done += steps
            job.last = end
            if job.done == job.output:
                job.finish = end
                ended.append(job)
        self.records.gaps(np.diff(ends), decoding)
        for job in ended:
            self.scheduler.end(job)
        return ended
