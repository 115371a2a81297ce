"""Which requests share the next step: vLLM's V1 scheduler, line by line.

There is no prefill phase and no decode phase. Each request tries to bring `computed` up to its tokens and drafts; a
step has a budget of tokens. Running requests come first, in the order in which they were admitted, then waiting ones.
"""

from collections import deque

from perfmodel.simulate.blocks import CountedBlocks
from perfmodel.simulate.job import Job
from perfmodel.simulate.settings import Settings

Plan = list[tuple[Job, int]]  # of a step: each request and how many of its tokens are computed


class Scheduler:
    """Waiting and running requests of one engine, and what its next step computes.

    Parameters
    ----------
    settings : Settings
    pool : CountedBlocks
    """

    def __init__(self, settings: Settings, pool: CountedBlocks) -> None:
        self.settings, self.pool = settings, pool
        self.in_turn = settings.enable_chunked_prefill  # who comes later is never admitted before those who wait
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.preempted: list[Job] = []  # by the last plan
        self.stall = 0.0  # seconds that the planned step waits for something else than computation
        self.looked_up = self.hit_blocks = self.full_blocks = self.hit_tokens = 0  # of prompts, when first admitted

    def refusal(self, job: Job) -> str | None:
        """Why a request could never run to its end, or None if it can."""
        s, blocks = self.settings, self.needs(job)
        if s.max_model_len is not None and job.prompt + job.output > s.max_model_len:
            tokens = job.prompt + job.output
            return f"prompt + output = {tokens} tokens exceed max_model_len = {s.max_model_len}"
        if blocks + s.watermark > self.pool.usable:
            spare = f" and a watermark of {s.watermark}" if s.watermark else ""
            return f"{job.total} cached tokens need {blocks} blocks{spare}, more than the {self.pool.usable} there are"
        if not s.enable_chunked_prefill and job.total > s.max_num_batched_tokens:
            # After a preemption all tokens so far are a prompt again.
            return f"{job.total} tokens exceed max_num_batched_tokens = {s.max_num_batched_tokens} in one piece"
        return None

    def needs(self, job: Job) -> int:
        """Blocks that a request holds in the end, those for rejected drafts among them."""
        return -(-(job.total + self.settings.num_speculative_tokens) // self.settings.block_size)

    def submit(self, job: Job) -> None:
        """Let a request wait behind the others."""
        self.waiting.append(job)

    @property
    def jobs(self) -> int:
        """Requests that have not ended."""
        return len(self.running) + len(self.waiting)

    def plan(self) -> Plan:
        """The next step; empty if nothing is left to do."""
        plan: Plan = []
        budget = self.plan_running(plan, self.settings.max_num_batched_tokens)
        if not self.preempted:
            self.plan_waiting(plan, budget)
        return plan

    def plan_running(self, plan: Plan, budget: int) -> int:
        """Continue what runs; returns the tokens of the budget that are left."""
        self.preempted = []
        most = self.settings.long_prefill_token_threshold or budget
        grow, order, place = self.pool.grow, self.running_order(), 0
        while place < len(order) and budget > 0:
            job = order[place]
            tokens = job.prompt + job.done + job.drafted - job.computed
            if tokens > 1:
                tokens = min(tokens, most, budget)
            while job.computed + tokens >= job.room and not grow(job, tokens):  # grow, or fill the last block
                victim = order.pop()
                self.preempted.append(victim)
                self.preempt(victim)
                if victim is job:
                    return budget
            plan.append((job, tokens))
            budget -= tokens
            place += 1
        return budget

    def running_order(self) -> list[Job]:
        """Running requests in the order in which they get tokens; the last is preempted first."""
        return self.running.copy()

    def preempt(self, victim: Job) -> None:
        """Take all from a running request; it keeps its output and computes all its tokens again."""
        self.running.remove(victim)
        self.pool.release(victim)
        victim.computed = victim.drafted = 0
        victim.preemptions += 1
        self.return_to_wait(victim)

    def return_to_wait(self, victim: Job) -> None:
        """A preempted request waits before all others."""
        self.waiting.appendleft(victim)

    def plan_waiting(self, plan: Plan, budget: int) -> None:
        """Admit requests, first come first served, until one does not fit."""
        s, aside = self.settings, []
        while self.waiting and budget > 0 and len(self.running) < s.max_num_seqs:
            job = self.waiting[0]
            left = job.tokens - (job.computed or self.pool.found(job))
            tokens = min(left, s.long_prefill_token_threshold or left)
            if tokens > budget and not s.enable_chunked_prefill:
                aside.append(self.waiting.popleft())
                continue
            tokens = min(tokens, budget)
            if not self.admit(job, tokens, left):
                break
            self.waiting.popleft()
            plan.append((job, tokens))
            budget -= tokens
        self.waiting.extendleft(reversed(aside))

    def admit(self, job: Job, tokens: int, left: int) -> bool:
        """Let a waiting request run if its blocks fit: those of the first `tokens` tokens, or of all `left`."""
        s = self.settings
        cached = self.pool.admit(job, tokens, left if s.scheduler_reserve_full_isl else 0, s.watermark)
        if cached is None:
            return False
        if job.computed == 0:
            job.computed = cached
            if job.scheduled is None:  # the first time
                self.looked_up += 1
                job.cached = cached
                self.hit_tokens += cached
                self.hit_blocks += cached // s.block_size
                self.full_blocks += job.prompt // s.block_size
        self.running.append(job)
        return True

    def end(self, job: Job) -> None:
        """Forget a request that has all its tokens."""
        self.running.remove(job)
        self.pool.release(job)
