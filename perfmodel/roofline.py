"""Time of a step on the roofline, and where its parts change from memory to arithmetic."""

from dataclasses import dataclass

import numpy as np

from perfmodel._ops import Value, is_symbolic, maximum, real, sqrt, where
from perfmodel.communication import tensor_parallel_time
from perfmodel.counts import (
    Parts,
    decode_flops,
    linear_parameters,
    matmul_parameters,
    prefill_flops,
    touched_parameters,
)
from perfmodel.deployment import Deployment
from perfmodel.kvcache import kv_bytes_per_token_per_gpu
from perfmodel.model import Model
from perfmodel.quantity import check_value, computed


@dataclass(frozen=True)
class StepTime:
    """Seconds of one forward pass: arithmetic and traffic of each part, messages, host."""

    compute: Parts
    memory: Parts
    communication: Value
    overhead: Value

    @property
    def parts(self) -> Parts:
        """Each part at the slower of its two roofs, since its kernels run one after the other."""
        c, m = self.compute, self.memory
        return Parts(maximum(c.linear, m.linear), maximum(c.attention, m.attention), maximum(c.lm_head, m.lm_head))

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
        names = ("linear", "attention", "lm_head")
        pairs = [(getattr(self.compute, name), getattr(self.memory, name)) for name in names]
        return {
            "memory": sum(where(m >= c, m, 0) for c, m in pairs),
            "compute": sum(where(m >= c, 0, c) for c, m in pairs),
            "communication": self.communication,
            "overhead": self.overhead,
        }

    @property
    def bound(self) -> Value:
        """Name of the largest share, or an array of names."""
        names, values = zip(*self.shares.items(), strict=True)
        largest = np.argmax(np.stack(np.broadcast_arrays(*values)), axis=0)
        return np.array(names)[largest]


def _step_time(deployment: Deployment, flops: Parts, traffic: Parts, tokens: Value) -> StepTime:
    """Work shared by t accelerators, each with its own two roofs; `traffic` is already per accelerator."""
    rate = deployment.tensor_parallel * deployment.flops
    bytes_per_second = deployment.bandwidth
    return StepTime(
        compute=Parts(flops.linear / rate, flops.attention / rate, flops.lm_head / rate),
        memory=Parts(
            traffic.linear / bytes_per_second, traffic.attention / bytes_per_second, traffic.lm_head / bytes_per_second
        ),
        communication=tensor_parallel_time(deployment, tokens),
        overhead=deployment.constants.step_overhead,
    )


def _traffic(deployment: Deployment, tokens: Value, kv_tokens: Value) -> Parts:
    """Bytes one accelerator moves: the weights that `tokens` tokens touch, and `kv_tokens` of KV cache."""
    share = deployment.weight_bytes / deployment.tensor_parallel
    touched = touched_parameters(deployment.model, tokens)
    return Parts(
        linear=touched.linear * share,
        attention=kv_tokens * kv_bytes_per_token_per_gpu(deployment),
        lm_head=touched.lm_head * share,
    )


def prefill_time(deployment: Deployment, prompt: Value, causal: bool = True, prompts: Value = 1) -> StepTime:
    """Time of a prefill: equation `eq-prefill-time`.

    Weights are read once, the KV cache of the prompt is written once; keys and values are read from
    on-chip memory as the kernel tiles them, and not counted again.

    Parameters
    ----------
    prompt : float, array or symbol
        Prompt tokens S.
    causal : bool
        Whether attention skips the masked half.
    prompts : float, array or symbol
        Prompts of that length in one pass.

    Returns
    -------
    StepTime
        Seconds.
    """
    check_value("prefill_time", "prompt", prompt)
    flops = prefill_flops(deployment.model, prompt, causal, prompts)
    tokens = real(prompt) * real(prompts)
    return _step_time(deployment, flops, _traffic(deployment, tokens, tokens), tokens)


def decode_time(deployment: Deployment, batch: Value, context: Value, tokens: Value = 1) -> StepTime:
    """Time of one decode step: equation `eq-decode-time`.

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
    check_value("decode_time", "batch", batch)
    flops = decode_flops(deployment.model, batch, context, tokens)
    new = real(batch) * real(tokens)
    return _step_time(deployment, flops, _traffic(deployment, new, real(batch) * real(context)), new)


@computed("R", "FLOP/byte")
def ridge_point(deployment: Deployment) -> Value:
    """arithmetic intensity at which both roofs of an accelerator meet, F / beta."""
    return deployment.flops / deployment.bandwidth


@computed("B_ridge", "1")
def ridge_tokens(deployment: Deployment) -> Value:
    """tokens in a step at which the linear layers leave the memory roof, all experts touched."""
    m = deployment.model
    return deployment.weight_bytes * linear_parameters(m) * ridge_point(deployment) / (2 * matmul_parameters(m))


def attention_equals_linear(model: Model, causal: bool = True) -> Value:
    """Prompt tokens at which attention costs as many FLOPs as the linear layers: equation `eq-attention-linear`."""
    unmasked = matmul_parameters(model) / (2 * model.layers * model.heads * model.head_dim)
    return 2 * unmasked - 1 if causal else unmasked


def _slopes(deployment: Deployment) -> tuple[Value, tuple[Value, Value], tuple[Value, Value]]:
    """Seconds that a step's totals gain: by the weights, by a token's arithmetic, by a cached token's two sides."""
    m, rate = deployment.model, deployment.tensor_parallel * deployment.flops
    one = decode_flops(m, 1, 1)
    weights = linear_parameters(m) + m.vocab_size * m.hidden_size
    return (
        weights * deployment.weight_bytes / (deployment.tensor_parallel * deployment.bandwidth),
        (one.linear / rate, one.lm_head / rate),
        (one.attention / rate, kv_bytes_per_token_per_gpu(deployment) / deployment.bandwidth),
    )


def totals_ridge_prompt(deployment: Deployment, causal: bool = True) -> Value:
    """Prompt tokens at which all of a prefill's arithmetic takes as long as all of its traffic (experts all touched).

    The positive root of a S^2 + b S = c, with attention's square in a and the KV cache's write in b.
    """
    weights, (linear, lm_head), (pair, kv) = _slopes(deployment)
    a = pair / 2 if causal else pair
    b = linear - kv + (a if causal else 0)
    c = weights - lm_head
    return (sqrt(b**2 + 4 * a * c) - b) / (2 * a)


@computed("B_total", "1")
def totals_ridge_batch(deployment: Deployment, context: Value) -> Value:
    """batch at which all of a decode step's arithmetic takes as long as all of its traffic; infinite if never."""
    weights, (linear, lm_head), (pair, kv) = _slopes(deployment)
    gap = linear + lm_head + real(context) * (pair - kv)
    if is_symbolic(gap):
        return weights / gap
    return where(gap > 0, weights / where(gap > 0, gap, 1), np.inf)


@computed("s_total", "token")
def totals_ridge_context(deployment: Deployment) -> Value:
    """context beyond which a decode step's arithmetic never outweighs its traffic, at any batch."""
    _, (linear, lm_head), (pair, kv) = _slopes(deployment)
    if is_symbolic(kv, pair):
        return (linear + lm_head) / (kv - pair)
    return where(kv > pair, (linear + lm_head) / where(kv > pair, kv - pair, 1), np.inf)
