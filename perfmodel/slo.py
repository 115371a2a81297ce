"""What a limit on latency allows: the batch, the prompt, the chunk, the rate, and which limit is met first."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from perfmodel._ops import Value, floor, is_symbolic, maximum, minimum, real, where
from perfmodel.batching import mixed_time, request_rate, steady_step
from perfmodel.deployment import Deployment
from perfmodel.kvcache import max_concurrency
from perfmodel.quantity import check_value, check_values
from perfmodel.queueing import md1_capacity
from perfmodel.roofline import StepTime, prefill_time

ROUNDING = 1 + 1e-12  # a step that takes exactly its limit keeps it, whatever its last digits say
FAR = 1024  # requests between two points of a straight line: a power of two, and far enough to keep its digits


def full_memory_time(deployment: Deployment) -> Value:
    """Seconds to read a full memory once, p M / beta: no decode step's memory traffic takes longer.

    A step reads each byte that an accelerator holds once at most, stage after stage under pipeline parallelism.
    Except blocks of a shared prefix: they are held once and read for each request.
    """
    return deployment.pipeline_parallel * deployment.accelerator.memory_capacity / deployment.bandwidth


def largest_whole(fits: Callable[[Value], Value]) -> Value:
    """Largest whole number that fits, element by element; 0 if not even 1 does. Numbers only, no symbols.

    Parameters
    ----------
    fits : function
        Of a number or an array of them: true up to some number and false beyond it.
    """
    if is_symbolic(fits(1)):
        raise ValueError("the largest number that fits has no closed form: pass numbers, not symbols")
    step, found = 1, 0
    while np.any(fits(step)):
        step *= 2
    while step > 1:
        step //= 2
        found = where(fits(found + step), found + step, found)
    return found


def largest_chunk(
    deployment: Deployment, batch: Value, context: Value, limit: Value, prefix: Value = 0, by_totals: bool = False
) -> Value:
    """Largest chunk, in whole tokens, whose mixed step keeps the inter-token gap of B decoding requests in a limit.

    It shrinks with the prefix behind it, to which each of its tokens attends. 0 if no chunk is small enough.
    Found by bisection: numbers and arrays, no symbols.

    Parameters
    ----------
    limit : float or array
        Seconds between two tokens.
    by_totals : bool
        Whether to take the lower bound of the step's time, maximum of all arithmetic and all traffic.
    """
    check_value("largest_chunk", "limit", limit)
    most = real(limit) * ROUNDING
    return largest_whole(
        lambda chunk: _seconds(mixed_time(deployment, batch, context, chunk, prefix), by_totals) <= most
    )


def safe_chunk(
    deployment: Deployment, batch: Value, context: Value, limit: Value, prompt: Value, by_totals: bool = False
) -> Value:
    """Largest chunk size that keeps the inter-token gap in a limit for every chunk of a prompt of S tokens.

    The worst chunk is the last, with S - C tokens behind it: one size for all has to be chosen for it.
    """
    check_value("safe_chunk", "limit", limit)
    check_value("safe_chunk", "prompt", prompt)

    def fits(chunk: Value) -> Value:
        step = mixed_time(deployment, batch, context, chunk, maximum(real(prompt) - chunk, 0))
        return (chunk <= real(prompt)) & (_seconds(step, by_totals) <= real(limit) * ROUNDING)

    return largest_whole(fits)


def largest_batch(
    deployment: Deployment,
    prompt: Value,
    output: Value,
    limit: Value,
    prefill: str = "exclusive",
    by_totals: bool = False,
    context: Value | None = None,
) -> Value:
    """Largest batch, in whole requests, whose TPOT keeps a limit; 0 if even one request takes longer.

    Each part of a dense model's step is the larger of two straight lines in B, so the step is the largest of all
    sums of one line a part, and the batch the smallest that any of those sums allows. Experts and pipelines
    bend the lines: there it is found by bisection, of numbers and arrays alone. (With symbols take `by_totals`:
    the sum over parts is right, but too long to read.)

    Parameters
    ----------
    prompt, output : float, array or symbol
        Tokens S and N_out of each request.
    limit : float, array or symbol
        Seconds a token after the first.
    prefill, context
        As in `steady_step`. The mean context gives the mean TPOT of a request, S + N_out that of its last token.
    by_totals : bool
        Whether to take the lower bound of the step's time, maximum of all arithmetic and all traffic.
    """
    check_value("largest_batch", "limit", limit)
    d = deployment

    def step(batch: Value) -> StepTime:
        return steady_step(d, batch, prompt, output, prefill, context=context)

    bends = is_symbolic(d.model.experts, d.pipeline_parallel) or d.model.experts > 1 or d.pipeline_parallel > 1
    if bends:
        return largest_whole(lambda batch: _seconds(step(batch), by_totals) <= real(limit) * ROUNDING)
    near, far = (_roofs(step(batch), by_totals) for batch in (1, 1 + FAR))
    lines = [list(zip(*ends, strict=True)) for ends in zip(near, far, strict=True)]
    allowed = []
    for choice in product(*lines):
        slope = sum(last - first for first, last in choice) / FAR
        spare = real(limit) * ROUNDING - sum(first for first, _ in choice)
        flat = False if is_symbolic(slope, spare) else slope <= 0 * slope  # then any batch takes as long
        allowed.append(where(flat, np.inf * spare / real(limit), 1 + spare / where(flat, real(limit), slope)))
    return maximum(floor(minimum(*allowed)), 0)


def _roofs(step: StepTime, by_totals: bool) -> list[tuple[Value, ...]]:
    """What a dense step is the sum of: of each entry, the larger value."""
    c, m, rest = step.compute, step.memory, (step.communication + step.overhead,)
    if by_totals:
        return [(c.total, m.total), rest]
    return [(c.linear, m.linear), (c.attention, m.attention), (c.lm_head, m.lm_head), rest]


def _seconds(step: StepTime, by_totals: bool) -> Value:
    return step.by_totals if by_totals else step.total


def largest_prompt(deployment: Deployment, limit: Value, causal: bool = True, prefix: Value = 0) -> Value:
    """Longest prompt, in whole tokens, whose prefill alone keeps a TTFT limit; 0 if even one token takes longer.

    By bisection, of numbers and arrays alone. A queue in front of it takes its share of the limit first.

    Parameters
    ----------
    limit : float or array
        Seconds to the first token.
    causal, prefix
        As in `prefill_time`.
    """
    check_value("largest_prompt", "limit", limit)
    return largest_whole(
        lambda prompt: prefill_time(deployment, prompt, causal, prefix=prefix).total <= real(limit) * ROUNDING
    )


@dataclass(frozen=True)
class BatchLimits:
    """Requests that each constraint allows on one replica at once."""

    tpot: Value
    ttft: Value
    memory: Value

    @property
    def batch(self) -> Value:
        """Largest batch that all of them allow."""
        return minimum(self.tpot, self.ttft, self.memory)

    @property
    def binding(self) -> Value:
        """Name of the constraint that allows least, or an array of names; the first of those that allow as little."""
        names = ("tpot", "ttft", "memory")
        tightest = np.argmin(np.stack(np.broadcast_arrays(*(getattr(self, name) for name in names))), axis=0)
        return np.array(names)[tightest]


def batch_limits(
    deployment: Deployment,
    prompt: Value,
    output: Value,
    ttft_limit: Value,
    tpot_limit: Value,
    prefill: str = "exclusive",
    by_totals: bool = False,
) -> BatchLimits:
    """Largest batch under a TTFT limit, a TPOT limit and the memory, each by itself.

    TTFT is one prefill without a queue: it allows any batch or none. Memory holds whole requests of S + N_out tokens
    in whole blocks. TPOT is that of `steady_step`.

    Parameters
    ----------
    prompt, output : float, array or symbol
        Tokens S and N_out of each request; all arguments broadcast.
    ttft_limit, tpot_limit : float, array or symbol
        Seconds to the first token, and seconds a token after it.
    prefill, by_totals
        As in `largest_batch`.
    """
    check_value("batch_limits", "ttft_limit", ttft_limit)
    first = prefill_time(deployment, prompt).total
    return BatchLimits(
        tpot=largest_batch(deployment, prompt, output, tpot_limit, prefill, by_totals),
        ttft=where(first <= real(ttft_limit) * ROUNDING, np.inf, 0),
        memory=max_concurrency(deployment, real(prompt) + real(output)),
    )


def goodput(
    deployment: Deployment,
    prompt: Value,
    output: Value,
    ttft_limit: Value,
    tpot_limit: Value,
    share: float = 0.9,
) -> Value:
    """Requests a second at which at least `share` of them still keep both limits, all replicas: goodput as a capacity.

    The lower of two rates, each found as if the other did not matter:

    * prefills go first, one at a time, on Poisson arrivals: `share` of them wait no longer than TTFT leaves (M/D/1);
    * decoding, the closed loop of the largest batch that TPOT and memory allow turns over as many requests.

    Prefills are exclusive, requests equal and spread over the replicas at random. The batch varies around its
    mean in a real server, and an arrival meets a step under way: the scheduler laboratory has both. Numbers
    and arrays, no symbols.
    """
    batch = batch_limits(deployment, prompt, output, ttft_limit, tpot_limit).batch
    first = prefill_time(deployment, prompt).total
    stage = first / deployment.pipeline_parallel  # after which the next prefill may follow
    arrivals = md1_capacity(stage, real(ttft_limit) * ROUNDING - first, share)
    turnover = where(batch > 0, request_rate(deployment, maximum(batch, 1), prompt, output), 0)
    return deployment.data_parallel * minimum(arrivals, turnover)


def attainment(ttft: Value, tpot: Value, ttft_limit: Value, tpot_limit: Value) -> Value:
    """Share of finished requests, given the two times of each, that keep both limits."""
    check_values("attainment", 0, ttft=ttft, tpot=tpot, ttft_limit=ttft_limit, tpot_limit=tpot_limit)
    kept = (np.asarray(ttft) <= real(ttft_limit)) & (np.asarray(tpot) <= real(tpot_limit))
    check_value("attainment", "requests", kept.size)
    return np.mean(kept)
