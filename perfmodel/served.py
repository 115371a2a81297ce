"""From the roofline to a served request: first token, later tokens, end to end, throughput, what fits."""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from perfmodel._ops import Value, maximum, minimum, name_of_largest, real, where
from perfmodel.batching import chunked_prefill_time, mixed_time, prefill_interference, steady_step
from perfmodel.counts import active_parameters, total_parameters
from perfmodel.deployment import Deployment, Workload
from perfmodel.kvcache import (
    kv_budget,
    kv_bytes_of_request,
    kv_bytes_per_token,
    kv_capacity_tokens,
    kv_share,
    max_concurrency,
    stage_share,
    weight_bytes_per_gpu,
)
from perfmodel.prefix_cache import hit_tokens
from perfmodel.quantity import check_value, shown
from perfmodel.roofline import StepTime, decode_time, prefill_time
from perfmodel.speculative import expected_tokens

PREFILLS = ("exclusive", "fused", "apart")


@dataclass(frozen=True)
class Engine:
    """How requests are served: where prompts are prefilled, in what chunks, what is cached, what is drafted.

    The default is a server that prefills whole prompts between its decode steps.

    Parameters
    ----------
    prefill : str
        "exclusive", "fused" or "apart", as in `steady_step`.
    chunk : float or array, optional
        Prompt tokens of a step (chunked prefill, which is fused); None prefills whole prompts, fused ones in one step.
    shared_prefix : float or array
        Leading tokens of each prompt that a prefix cache holds; whole blocks of them count (`hit_tokens`).
    draft_tokens, acceptance, draft_cost : float or array
        Speculation: gamma, alpha and c of `speculative_speedup`; no draft tokens is plain decoding.
    """

    prefill: str = "exclusive"
    chunk: Value | None = None
    shared_prefix: Value = 0
    draft_tokens: Value = 0
    acceptance: Value = 0
    draft_cost: Value = 0

    def __post_init__(self) -> None:
        if self.prefill not in PREFILLS:
            raise ValueError(f"Engine: prefill={shown(self.prefill)} must be one of {', '.join(PREFILLS)}")
        if self.chunk is not None:
            check_value("Engine", "chunk", self.chunk, minimum=1, whole=True)
            if self.prefill != "fused":
                raise ValueError(f"Engine: chunk={shown(self.chunk)} needs prefill='fused', not {self.prefill!r}")
        check_value("Engine", "shared_prefix", self.shared_prefix, minimum=0)
        check_value("Engine", "draft_tokens", self.draft_tokens, minimum=0, whole=True)
        check_value("Engine", "acceptance", self.acceptance, minimum=0, maximum=1)
        check_value("Engine", "draft_cost", self.draft_cost, minimum=0)


@dataclass(frozen=True)
class Limits:
    """What a service promises: seconds to the first token, and for each token after it; None promises nothing."""

    ttft: Value | None = None
    tpot: Value | None = None

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            if limit is not None:
                check_value("Limits", name, limit)


@dataclass(frozen=True)
class Estimate:
    """What a deployment does with a workload, in SI base units; one replica unless the field says otherwise.

    Numbers, or arrays that broadcast with the workload's.
    """

    parameters: Value
    active_parameters: Value
    weight_bytes_per_gpu: Value
    kv_bytes_per_token: Value  # one copy over all accelerators of a replica
    kv_bytes_per_gpu: Value  # of `batch` finished requests
    kv_budget_bytes: Value  # beside weights and activations of an accelerator; below 0 it lacks so many
    kv_capacity_tokens: Value
    max_concurrency: Value  # whole requests of prompt + output tokens
    fits: Value  # the weights fit, and `batch` requests beside them
    ttft_s: Value  # one prefill, no queue in front of it
    decode_step_s: Value  # seconds a token by decode steps alone, or by rounds of speculation
    interference_s: Value
    tpot_s: Value  # mean time of each token after the first
    worst_gap_s: Value  # longest wait between two outputs, while another prompt is prefilled
    e2e_s: Value
    throughput_tok_s: Value  # output tokens, all replicas
    bound: Value  # largest share of the decode step: memory, compute, communication or overhead
    limits_met: Value  # whether the requests fit and each limit is kept; None without limits
    binding: Value  # the limit that is used up most: ttft, tpot or memory; None without limits


def end_to_end(ttft: Value, tpot: Value, output: Value) -> Value:
    """Seconds of a request: its first token, then N_out - 1 more: equation `eq-e2e`."""
    check_value("end_to_end", "ttft", ttft, minimum=0)
    check_value("end_to_end", "tpot", tpot, minimum=0)
    check_value("end_to_end", "output", output, minimum=1)
    return real(ttft) + real(tpot) * (real(output) - 1)


def estimate(
    deployment: Deployment, workload: Workload, engine: Engine = Engine(), limits: Limits | None = None
) -> Estimate:
    """Estimate one deployment under workloads of identical requests in a closed loop; arrays are evaluated at once.

    Parameters
    ----------
    deployment : Deployment
    workload : Workload
        Its fields, the engine's and the limits broadcast.
    engine : Engine
    limits : Limits, optional
        What is promised; without it no constraint binds.

    Returns
    -------
    Estimate
    """
    d, (prompt, output, batch) = deployment, (real(workload.prompt), real(workload.output), real(workload.batch))
    context, total = workload.context, workload.total
    hit = hit_tokens(prompt, engine.shared_prefix)
    plain, prefill = decode_time(d, batch, context), prefill_time(d, prompt - hit, prefix=hit).total
    rounds, yielded = _rounds(d, engine, batch, context, output, plain)
    step = rounds / yielded
    wait, gap = _others(d, engine, workload, hit, prefill, yielded)
    ttft = prefill
    if engine.prefill == "fused":
        # The chunks ride in steps of the others; a prompt that is not cut is one of them.
        tokens, chunk = real(engine.draft_tokens) + 1, prompt - hit if engine.chunk is None else engine.chunk
        alone = chunked_prefill_time(d, prompt - hit, chunk, prefix=hit)
        among = chunked_prefill_time(d, prompt - hit, chunk, maximum(batch - 1, 1), context, hit, tokens)
        ttft = where(batch > 1, among, alone)
    tpot = step + wait
    e2e = end_to_end(ttft, tpot, output)
    concurrency = max_concurrency(d, total)
    fits, used = batch <= concurrency, _used(limits or Limits(), ttft, tpot)
    return Estimate(
        parameters=total_parameters(d.model),
        active_parameters=active_parameters(d.model),
        weight_bytes_per_gpu=weight_bytes_per_gpu(d),
        kv_bytes_per_token=kv_bytes_per_token(d),
        kv_bytes_per_gpu=batch * kv_bytes_of_request(d, total) * kv_share(d) * stage_share(d),
        kv_budget_bytes=kv_budget(d),
        kv_capacity_tokens=kv_capacity_tokens(d),
        max_concurrency=concurrency,
        fits=fits,
        ttft_s=ttft,
        decode_step_s=step,
        interference_s=wait,
        tpot_s=tpot,
        worst_gap_s=rounds + gap,
        e2e_s=e2e,
        throughput_tok_s=d.data_parallel * batch * output / e2e,
        bound=plain.bound,
        limits_met=limits and reduce(np.logical_and, (share <= 1 for share in used.values()), fits),
        binding=limits and name_of_largest(**used, memory=batch / maximum(concurrency, 1e-9)),
    )


def _used(limits: Limits, ttft: Value, tpot: Value) -> dict[str, Value]:
    """How much of each limit is used up, as a share of it."""
    times = {"ttft": ttft, "tpot": tpot}
    return {name: times[name] / real(limit) for name, limit in vars(limits).items() if limit is not None}


def _rounds(
    d: Deployment, engine: Engine, batch: Value, context: Value, output: Value, plain: StepTime
) -> tuple[Value, Value]:
    """Seconds of a round of speculation, and the tokens that it yields; of a decode step without.

    A round yields no more than the N = N_out - 1 tokens that a request has left after its first, so min(gamma, N - 1)
    drafts count. N over this yield is the least that the rounds of a request can be on average: exact where one token
    is left, and below the true mean by less than a round, since the last may have more accepted than is wanted.
    """
    if not np.any(real(engine.draft_tokens) > 0):
        return plain.total, 1
    gamma = real(engine.draft_tokens)
    verify = decode_time(d, batch, context, gamma + 1).total
    yielded = expected_tokens(engine.acceptance, minimum(gamma, output - 2))
    return verify + gamma * real(engine.draft_cost) * plain.total, yielded


def _others(
    d: Deployment,
    engine: Engine,
    workload: Workload,
    hit: Value,
    prefill: Value,
    yielded: Value,
) -> tuple[Value, Value]:
    """Seconds that other requests' prefills add to each of my tokens, and at most to one.

    Exclusive prefills come between rounds, fused ones ride in the passes that decode or verify.
    """
    prompt, output, batch = real(workload.prompt), real(workload.output), real(workload.batch)
    if engine.prefill == "apart":
        return 0 * prefill * batch, 0 * prefill * batch
    if engine.prefill == "exclusive":
        held = prefill / d.pipeline_parallel  # a prefill holds up each stage for its own layers' share only
        return prefill_interference(batch, output, held), where(batch > 1, held, 0 * held)
    context, tokens = workload.context, real(engine.draft_tokens) + 1
    passes = maximum((output - 1) / yielded, 1)  # less only where a power is rounded up
    alone = decode_time(d, batch, context, tokens).total
    mean = steady_step(d, batch, prompt, 1 + passes, "fused", hit, context, tokens).total
    chunk = prompt - hit if engine.chunk is None else minimum(real(engine.chunk), prompt - hit)
    worst = mixed_time(d, batch, context, chunk, prompt - chunk, tokens).total
    return (mean - alone) / yielded, where(batch > 1, worst - alone, 0 * worst)
