"""Where a step changes from memory to arithmetic, and one cost overtakes another: in closed form."""

import numpy as np

from perfmodel._ops import Value, is_symbolic, real, sqrt, where
from perfmodel.attention import pair_flops
from perfmodel.counts import matmul_parameters
from perfmodel.deployment import Deployment
from perfmodel.kvcache import kv_bytes_per_token, kv_share
from perfmodel.model import Model
from perfmodel.quantity import check_value, computed
from perfmodel.roofline import linear_bytes


def attention_equals_linear(model: Model, causal: bool = True) -> Value:
    """Prompt tokens at which attention costs as many FLOPs as the linear layers: equation `eq-attention-linear`."""
    _refuse_limits(model)
    unmasked = 2 * matmul_parameters(model) / (model.layers * pair_flops(model, absorbed=False))
    return 2 * unmasked - 1 if causal else unmasked


@computed("s_kv", "token")
def kv_equals_weights(deployment: Deployment, batch: Value) -> Value:
    """context at which a decode step reads as many bytes of KV cache as of weights (experts all touched)."""
    check_value("kv_equals_weights", "batch", batch)
    weights, _, (_, kv) = slopes(deployment, absorbed=True)
    return deployment.pipeline_parallel * weights / (real(batch) * kv)


def _refuse_limits(model: Model) -> None:
    """The crossovers in closed form need attention that reads all of the context."""
    if model.window or model.indexer:
        name = "window" if model.window else "indexer"
        raise ValueError(f"{model.name}: {name} limits what attention reads, and this crossover has no closed form")


def slopes(deployment: Deployment, absorbed: bool) -> tuple[Value, tuple[Value, Value], tuple[Value, Value]]:
    """Seconds that a step's totals gain: by the weights, by a token's arithmetic, by a cached token's two sides.

    The arithmetic is that of a layer's matrices and of the LM head; attention's two sides are FLOPs and bytes. Decode
    (`absorbed`) shares attention alone among the groups of context parallelism, prefill the matrices too.
    """
    d, m = deployment, deployment.model
    _refuse_limits(m)
    rate, groups = d.tensor_parallel * d.flops, d.context_parallel
    tables = m.vocab_size * m.hidden_size
    weights = linear_bytes(d) + tables * d.bytes_of_tables
    return (
        weights / (d.tensor_parallel * d.bandwidth),
        (2 * matmul_parameters(m) / (rate if absorbed else rate * groups), 2 * tables / rate),
        (m.layers * pair_flops(m, absorbed) / (rate * groups), kv_bytes_per_token(d) * kv_share(d) / d.bandwidth),
    )


def totals_ridge_prompt(deployment: Deployment, causal: bool = True) -> Value:
    """Prompt tokens at which all of a prefill's arithmetic takes as long as all of its traffic (experts all touched).

    The positive root of a S^2 + b S = c, with attention's square in a and the KV cache's write in b.
    """
    weights, (linear, lm_head), (pair, kv) = slopes(deployment, absorbed=False)
    a = pair / 2 if causal else pair
    b = linear - kv + (a if causal else 0)
    c = weights - lm_head
    return (sqrt(b**2 + 4 * a * c) - b) / (2 * a)


@computed("B_total", "1")
def totals_ridge_batch(deployment: Deployment, context: Value) -> Value:
    """batch at which all of a decode step's arithmetic takes as long as all of its traffic; infinite if never.

    For symbols it is the quotient alone, which is negative where there is no such batch.
    """
    check_value("totals_ridge_batch", "context", context, minimum=0)
    weights, (linear, lm_head), (pair, kv) = slopes(deployment, absorbed=True)
    return deployment.pipeline_parallel * _meeting(weights, linear + lm_head + real(context) * (pair - kv))


@computed("s_total", "token")
def totals_ridge_context(deployment: Deployment) -> Value:
    """context beyond which a decode step's arithmetic never outweighs its traffic, at any batch; infinite if none.

    For symbols it is the quotient alone, which is negative where there is no such context.
    """
    _, (linear, lm_head), (pair, kv) = slopes(deployment, absorbed=True)
    return _meeting(linear + lm_head, kv - pair)


def _meeting(lead: Value, gain: Value) -> Value:
    """How often `gain` must be added to make up for `lead`; infinite where it never does."""
    if is_symbolic(lead, gain):
        return lead / gain
    with np.errstate(divide="ignore"):
        return where(gain > 0 * gain, np.divide(lead, abs(gain)), np.inf)
