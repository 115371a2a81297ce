"""Other rules for the same engine, to compare with V1's."""

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

from perfmodel.simulate.blocks import CountedBlocks
from perfmodel.simulate.job import Job
from perfmodel.simulate.scheduler import Plan, Scheduler
from perfmodel.simulate.settings import Settings


class DecodeFirst(Scheduler):
    """Requests that decode get tokens before half-done prompts, and are preempted after them."""

    def running_order(self) -> list[Job]:
        """Those that decode, then those that prefill, each in order of admission."""
        return sorted(self.running, key=lambda job: job.computed + 1 < job.tokens)


class ShortestFirst(Scheduler):
    """The waiting request with the shortest prompt is admitted first, a preempted one too."""

    def __init__(self, settings: Settings, pool: CountedBlocks) -> None:
        super().__init__(settings, pool)
        self.waiting: Any = ByPrompt()
        self.in_turn = False


class ByPrompt:
    """A queue whose head has the shortest prompt, the earliest of those that are equal."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Job]] = []

    def append(self, job: Job) -> None:
        """Let a request wait."""
        heappush(self._heap, (job.prompt, job.index, job))

    appendleft = append

    def extendleft(self, jobs: Iterable[Job]) -> None:
        """Let requests wait."""
        for job in jobs:
            self.append(job)

    def popleft(self) -> Job:
        """Take the head out."""
        return heappop(self._heap)[-1]

    def __getitem__(self, place: int) -> Job:
        return self._heap[place][-1]

    def __len__(self) -> int:
        return len(self._heap)


class Contiguous(Scheduler):
    """Each request reserves a fixed number of tokens when it is admitted, as before paging; nothing is preempted."""

    def __init__(self, settings: Settings, pool: CountedBlocks) -> None:
        super().__init__(settings, pool)
        self.reserve = int(settings.reserve or settings.max_model_len or 0)

    def refusal(self, job: Job) -> str | None:
        """As `Scheduler.refusal`; and no request outgrows its reservation."""
        if job.total > self.reserve:
            return f"{job.total} cached tokens exceed the {self.reserve} that are reserved for each request"
        return super().refusal(job)

    def needs(self, job: Job) -> int:
        """Blocks of the reservation."""
        return -(-self.reserve // self.settings.block_size)

    def admit(self, job: Job, tokens: int, left: int) -> bool:
        """Let a waiting request run if its reservation fits."""
        return super().admit(job, self.reserve - job.computed, left)


class WholePromptsFirst(Scheduler):
    """V0: a step prefills whole prompts, as many as fit the budget, or else decodes all that run.

    A preempted request is swapped out to the host and keeps what it has computed; who is swapped out comes back before
    anyone new is admitted. Without a link to swap over it computes all again.

    Parameters
    ----------
    settings : Settings
    pool : CountedBlocks
    swap_time : callable, optional
        From tokens to the seconds that their keys and values travel to the host, or back.
    """

    def __init__(
        self, settings: Settings, pool: CountedBlocks, swap_time: Callable[[int], float] | None = None
    ) -> None:
        super().__init__(settings, pool)
        self.swap_time = swap_time
        self.swapped: deque[Job] = deque()

    def refusal(self, job: Job) -> str | None:
        """As `Scheduler.refusal`; and a prompt, with the output so far if it is computed again, fits in a step."""
        tokens, budget = job.prompt if self.swap_time else job.total, self.settings.max_num_batched_tokens
        if tokens > budget:
            return f"{tokens} tokens exceed max_num_batched_tokens = {budget} in one piece"
        return super().refusal(job)

    @property
    def jobs(self) -> int:
        """As `Scheduler.jobs`."""
        return super().jobs + len(self.swapped)

    def plan(self) -> Plan:
        """Prompts if any can be admitted, or else decode steps."""
        self.stall, self.preempted = 0.0, []
        plan: Plan = []
        if not self.swapped:
            self.plan_prompts(plan)
        if plan:
            return plan
        budget = self.plan_running(plan, self.settings.max_num_batched_tokens)
        if not self.preempted:
            self.plan_swapped(plan, budget)
        return plan

    def plan_prompts(self, plan: Plan) -> None:
        """Admit whole prompts, first come first served."""
        budget = self.settings.max_num_batched_tokens
        while self.waiting and len(self.running) < self.settings.max_num_seqs:
            job = self.waiting[0]
            tokens = job.tokens - job.computed
            if tokens > budget or not self.admit(job, tokens, tokens):
                break
            self.waiting.popleft()
            plan.append((job, tokens))
            budget -= tokens

    def plan_swapped(self, plan: Plan, budget: int) -> None:
        """Fetch requests back from the host; they decode in the same step."""
        while self.swapped and budget > 0 and len(self.running) < self.settings.max_num_seqs:
            job = self.swapped[0]
            if self.pool.admit(job, 1) is None:
                break
            self.swapped.popleft()
            self.stall += self.swap_time(job.computed) if self.swap_time else 0
            self.running.append(job)
            plan.append((job, 1))
            budget -= 1

    def preempt(self, victim: Job) -> None:
        """Swap a running request out, or let it compute all again."""
        if self.swap_time is None:
            super().preempt(victim)
            return
        self.running.remove(victim)
        self.pool.release(victim)
        victim.preemptions += 1
        self.stall += self.swap_time(victim.computed)
        self.swapped.append(victim)


class Static(Scheduler):
    """A batch at a time: it keeps all its slots, those that have nothing left to decode too, until its last ends."""

    def plan(self) -> Plan:
        """Chunks of the prompts until all are done; then a token for each slot."""
        if not self.running:
            self.form()
        plan: Plan = []
        budget, whole = self.settings.max_num_batched_tokens, not self.settings.enable_chunked_prefill
        most = self.settings.long_prefill_token_threshold or budget
        for job in self.running:
            left = min(job.prompt - job.computed, most)
            if budget and left > 0 and not (whole and left > budget):
                plan.append((job, min(left, budget)))
                budget -= plan[-1][1]
        return plan or [(job, 1) for job in self.running]

    def form(self) -> None:
        """Take the next batch: as many as have room if each outputs as much as the longest."""
        s, b = self.settings, self.settings.block_size
        prompts: list[int] = []
        longest = 0
        while self.waiting and len(prompts) < min(s.max_num_seqs, s.max_num_batched_tokens):
            job = self.waiting[0]
            longest = max(longest, job.output - 1)
            if sum(-(-(prompt + longest) // b) for prompt in [*prompts, job.prompt]) + s.watermark > self.pool.usable:
                break
            prompts.append(job.prompt)
            self.running.append(self.waiting.popleft())
        longest = max([0, *(job.output - 1 for job in self.running)])
        for job in self.running:
            self.pool.admit(job, job.prompt + longest - job.computed)
            self.looked_up += 1
            self.full_blocks += job.prompt // b

    def end(self, job: Job) -> None:
        """Free the batch when its last request has ended."""
        if all(one.ended for one in self.running):
            for one in self.running:
                self.pool.release(one)
            self.running.clear()


CLASSES: dict[str, type[Scheduler]] = {
    "v1": Scheduler,
    "decode-first": DecodeFirst,
    "shortest-first": ShortestFirst,
    "contiguous": Contiguous,
    "static": Static,
}


def scheduler(settings: Settings, pool: CountedBlocks, swap_time: Callable[[int], float] | None = None) -> Scheduler:
    """The scheduler of a policy."""
    if settings.policy == "v0":
        return WholePromptsFirst(settings, pool, swap_time)
    return CLASSES[settings.policy](settings, pool)
