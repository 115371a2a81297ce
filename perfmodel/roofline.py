"""Time of a step on the roofline."""

from dataclasses import dataclass, fields, replace

from perfmodel._ops import Value, is_symbolic, maximum, name_of_largest, real, where
from perfmodel.communication import (
    expert_parallel_time,
    pass_kv_time,
    pass_q_time,
    pipeline_time,
    tensor_parallel_time,
)
from perfmodel.counts import (
    Parts,
    decode_flops,
    linear_parameters,
    matmul_parameters,
    prefill_flops,
    routed_parameters,
    touched_parameters,
)
from perfmodel.deployment import Deployment
from perfmodel.kvcache import kv_bytes_per_token, kv_bytes_read, kv_share
from perfmodel.quantity import check_value, computed


@dataclass(frozen=True)
class StepTime:
    """Seconds of one forward pass: arithmetic and traffic of each part, messages, host."""

    compute: Parts
    memory: Parts
    communication: Value
    overhead: Value

    @property
    def _roofs(self) -> list[tuple[Value, Value]]:
        """Arithmetic and traffic of each part."""
        return [(getattr(self.compute, part.name), getattr(self.memory, part.name)) for part in fields(Parts)]

    @property
    def parts(self) -> Parts:
        """Each part at the slower of its two roofs, since its kernels run one after the other."""
        return Parts(*(maximum(c, m) for c, m in self._roofs))

    @property
    def total(self) -> Value:
        """Sum over parts, messages and host: the time that the course predicts."""
        return self.parts.total + self.communication + self.overhead

    @property
    def by_totals(self) -> Value:
        """Maximum of all arithmetic and all traffic, plus messages and host: a lower bound on `total`."""
        return maximum(self.compute.total, self.memory.total) + self.communication + self.overhead

    @property
    def shares(self) -> dict[str, Value]:
        """Seconds by cause: `memory`, `compute`, `communication`, `overhead`; they sum to `total`."""
        return {
            "memory": sum(where(m >= c, m, 0) for c, m in self._roofs),
            "compute": sum(where(m >= c, 0, c) for c, m in self._roofs),
            "communication": self.communication,
            "overhead": self.overhead,
        }

    @property
    def bound(self) -> Value:
        """Name of the largest share, or an array of names."""
        return name_of_largest(**self.shares)


def _step_time(deployment: Deployment, flops: Parts, traffic: Parts, messages: Value) -> StepTime:
    """Work of one replica, as one of its accelerators sees it, each with its own two roofs; `traffic` is its own."""
    d = deployment
    rate = d.tensor_parallel * d.flops  # a pass goes through all stages one after the other
    busiest = d.constants.expert_imbalance
    return StepTime(
        compute=Parts(
            flops.linear / rate, flops.attention / rate, flops.lm_head / rate, flops.experts * busiest / rate
        ),
        memory=Parts(
            traffic.linear / d.bandwidth,
            traffic.attention / d.bandwidth,
            traffic.lm_head / d.bandwidth,
            traffic.experts / d.bandwidth,
        ),
        communication=messages,
        overhead=d.constants.step_overhead,
    )


def _traffic(deployment: Deployment, tokens: Value, kv_bytes: Value) -> Parts:
    """Bytes that one accelerator moves: the weights that `tokens` tokens touch, and its share of `kv_bytes`.

    Under expert parallelism the experts see the tokens of all replicas.
    """
    d = deployment
    touched = touched_parameters(d.model, tokens, tokens * d.data_parallel if d.expert_parallel else None)
    return Parts(
        linear=touched.linear * d.weight_bytes / d.tensor_parallel,
        attention=kv_bytes * kv_share(d),
        lm_head=touched.lm_head * d.bytes_of_tables / d.tensor_parallel,
        experts=touched.experts * d.bytes_of_experts / d.expert_shards,
    )


def prefill_time(
    deployment: Deployment, prompt: Value, causal: bool = True, prompts: Value = 1, prefix: Value = 0
) -> StepTime:
    """Time of a prefill: equation `eq-prefill-time`.

    Weights are read once, the KV cache of the prompt is written once; keys and values are read from
    on-chip memory as the kernel tiles them, and not counted again. Those of a cached prefix are read once.
    Context parallelism cuts the prompt into t_cp parts; keys and values that go round show where attention does not
    hide them. The stages of a pipeline work one after the other: the prompt is one micro-batch.

    Parameters
    ----------
    prompt : float, array or symbol
        Prompt tokens S.
    causal : bool
        Whether attention skips the masked half.
    prompts : float, array or symbol
        Prompts of that length in one pass.
    prefix : float, array or symbol
        Tokens before the prompt that are in the KV cache already.

    Returns
    -------
    StepTime
        Seconds.
    """
    d, m = deployment, deployment.model
    flops = prefill_flops(m, prompt, causal, prompts, prefix)
    prompt, prompts, prefix = real(prompt), real(prompts), real(prefix)
    tokens = prompt * prompts
    n = d.context_parallel
    part = tokens / n
    traffic = _traffic(d, part, (tokens + prefix * prompts) * kv_bytes_per_token(d))
    share = Parts(flops.linear / n, flops.attention / n, flops.lm_head, flops.experts / n)
    messages = tensor_parallel_time(d, part) + expert_parallel_time(d, part) + pipeline_time(d, part)
    step = _step_time(d, share, traffic, messages)
    if not is_symbolic(n) and n == 1:
        return step
    around = pass_kv_time(d, tokens + prefix * prompts)
    return replace(step, communication=messages + maximum(around - step.parts.attention, 0))


def decode_time(deployment: Deployment, batch: Value, context: Value, tokens: Value = 1) -> StepTime:
    """Time of one decode step: equation `eq-decode-time`.

    Each of p pipeline stages works on another p-th of the batch meanwhile, so a token's step is a pass of
    B / p requests through all layers.

    Parameters
    ----------
    batch : float, array or symbol
        Requests B of the step.
    context : float, array or symbol
        Tokens s that each has in the KV cache; broadcasts against `batch`. 0 leaves the KV reads out.
    tokens : float, array or symbol
        New tokens of each request: 1 in plain decoding, gamma + 1 to verify a draft. The cache is read once for all.

    Returns
    -------
    StepTime
        Seconds.
    """
    d = deployment
    check_value("decode_time", "batch", batch)
    requests = real(batch)
    if is_symbolic(d.pipeline_parallel) or d.pipeline_parallel > 1:
        requests = maximum(requests / d.pipeline_parallel, 1)
    flops = decode_flops(d.model, requests, context, tokens)
    n = d.context_parallel
    share = Parts(flops.linear, flops.attention / n, flops.lm_head, flops.experts)
    new = requests * real(tokens)
    messages = tensor_parallel_time(d, new) + expert_parallel_time(d, new) + pipeline_time(d, new)
    if is_symbolic(n, d.decode_context_parallel) or n * d.decode_context_parallel > 1:
        messages += pass_q_time(d, new)
    return _step_time(d, share, _traffic(d, new, requests * kv_bytes_read(d, context)), messages)


@computed("R", "FLOP/byte")
def ridge_point(deployment: Deployment) -> Value:
    """arithmetic intensity at which both roofs of an accelerator meet, F / beta."""
    return deployment.flops / deployment.bandwidth


@computed("B_ridge", "1")
def ridge_tokens(deployment: Deployment) -> Value:
    """tokens in a step at which the linear layers leave the memory roof, all experts touched."""
    return linear_bytes(deployment) * ridge_point(deployment) / (2 * matmul_parameters(deployment.model))


def linear_bytes(deployment: Deployment) -> Value:
    """Bytes of all weights of the linear layers, all experts."""
    d, routed = deployment, routed_parameters(deployment.model, deployment.model.experts)
    return (linear_parameters(d.model) - routed) * d.weight_bytes + routed * d.bytes_of_experts
