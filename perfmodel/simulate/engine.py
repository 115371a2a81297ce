"""One replica: it plans a step, the clock says how long it takes, and its requests move on."""

from math import inf

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
        self._decoding = False  # whether all that run are beyond their prompts

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
        scheduler, before = self.scheduler, len(self.scheduler.running)
        if self._decoding and scheduler.jobs == before <= self.settings.max_num_batched_tokens:
            return self._coast(until)  # nobody waits
        plan = scheduler.plan()
        if not plan:
            raise RuntimeError(f"no step for {scheduler.jobs} requests; this is a fault of the simulator")
        ended, decoded, sampled = self._step(plan)
        running = len(scheduler.running)
        self._decoding = self.fast and not self._drafts and sampled == len(plan) == running + len(ended)
        if self._decoding and not ended and decoded == running == before:
            return self._coast(until)  # whoever waits was not admitted in this step, nor will be in the next
        return ended

    def _step(self, plan: Plan) -> tuple[list[Job], int, int]:
        """One step; returns who ended, how many only decoded a token, and how many got one."""
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
        ended, decoded, regular, sampled = [], 0, 0, 0
        for job, tokens in plan:
            job.computed += tokens
            if job.finish is not None:  # a static batch computes its empty slots, too
                decoded += 1
                sampled += 1
            elif job.computed >= job.prompt + job.done:
                sampled += 1
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
        return ended, decoded, sampled

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
        """Decode steps of all that run: until one ends or comes, or blocks run out. Returns who ended."""
        jobs = self.scheduler.running
        contexts = [job.computed + 1 for job in jobs]
        steps = min(LONGEST, min(job.output - job.done for job in jobs if job.finish is None))
        if until < inf:  # later steps take no less than the first
            steps = min(steps, int((until - self.now) / self.clock.step(contexts, [])) + 2)
        ends = np.empty(steps + 1)
        ends[0], ends[1:] = self.now, self.clock.decode(np.array(contexts), steps)
        ends.cumsum(out=ends)
        steps = min(steps, int(ends.searchsorted(until)))  # those that start before it
        blocks = None
        if self.pool.usable < inf:
            blocks = self.pool.takes(jobs, steps).cumsum()
            steps = int(blocks.searchsorted(self.pool.free, side="right"))
            blocks = blocks[:steps] + self.pool.used
        if not steps:
            self._decoding = False  # somebody has to be preempted
            return []
        self.records.alike(self, len(jobs), ends[: steps + 1], blocks)
        self.pool.decoded(jobs, steps)
        return self._move(jobs, steps, float(ends[steps]))

    def _move(self, jobs: list[Job], steps: int, end: float) -> list[Job]:
        """Give each job that has not ended so many tokens, the last one now."""
        self.now, ended = end, []
        for job in jobs:
            job.computed += steps
            if job.finish is None:
                job.done += steps
                job.last = end
                if job.done == job.output:
                    job.finish = end
                    ended.append(job)
        for job in ended:
            self.scheduler.end(job)
        return ended
