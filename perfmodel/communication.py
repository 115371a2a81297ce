"""Time of messages between accelerators: latency and bytes over bandwidth.

`payload` is always the whole tensor: what every accelerator holds after the operation (all-reduce, all-gather), held
before it (reduce-scatter), or sends in all (all-to-all). No link is the ideal link, which costs nothing.
"""

from collections.abc import Callable
from typing import TypeAlias

from perfmodel._ops import Value, ceil, log2, maximum, minimum, real, where
from perfmodel.counts import moe_layers
from perfmodel.deployment import Deployment
from perfmodel.hardware import Link
from perfmodel.kvcache import kv_bytes_per_layer
from perfmodel.quantity import check_value

Share: TypeAlias = Callable[[Value], Value]  # of n accelerators


def _collective(
    name: str, payload: Value, accelerators: Value, link: Link | None, sent: Share, latency: Share | None = None
) -> Value:
    """Seconds in which each of n accelerators sends `sent(n)` payloads, after `latency(n)` or the link's latency."""
    check_value(name, "payload", payload, minimum=0)
    check_value(name, "accelerators", accelerators, minimum=1)
    if link is None:
        return 0
    n = real(accelerators)
    wait = link.latency if latency is None else latency(n)
    return where(n > 1, wait + sent(n) * real(payload) / link.bandwidth, 0)


def all_reduce(payload: Value, accelerators: Value, link: Link | None) -> Value:
    """Seconds of an all-reduce: the latency measured for the whole operation, and a ring's bytes.

    A reduce-scatter and an all-gather each move (n - 1)/n of the payload out of every accelerator.

    Parameters
    ----------
    payload : float, array or symbol
        Bytes of the tensor that every accelerator holds before and after.
    accelerators : int or symbol
        n, the number that take part; 1 costs nothing.
    link : Link or None
        None is the ideal link, which costs nothing.
    """
    return _collective("all_reduce", payload, accelerators, link, lambda n: 2 * (n - 1) / n)


def all_reduce_ring(payload: Value, accelerators: Value, link: Link | None, hop: Value) -> Value:
    """Seconds of a ring all-reduce whose 2 (n - 1) steps take `hop` seconds each beside their bytes."""
    check_value("all_reduce_ring", "hop", hop, minimum=0)
    return _collective(
        "all_reduce_ring", payload, accelerators, link, lambda n: 2 * (n - 1) / n, lambda n: 2 * (n - 1) * real(hop)
    )


def all_reduce_tree(payload: Value, accelerators: Value, link: Link | None, hop: Value) -> Value:
    """Seconds of a tree all-reduce: up and down ceil(log2 n) levels; two trees share the bytes, 2 payloads in all."""
    check_value("all_reduce_tree", "hop", hop, minimum=0)
    return _collective(
        "all_reduce_tree", payload, accelerators, link, lambda n: 2, lambda n: 2 * ceil(log2(n)) * real(hop)
    )


def all_reduce_one_shot(payload: Value, accelerators: Value, link: Link | None, hop: Value) -> Value:
    """Seconds of a one-shot all-reduce: each sends all of its payload to each of the n - 1 others, in one step."""
    check_value("all_reduce_one_shot", "hop", hop, minimum=0)
    return _collective("all_reduce_one_shot", payload, accelerators, link, lambda n: n - 1, lambda n: real(hop))


def all_gather(payload: Value, accelerators: Value, link: Link | None) -> Value:
    """Seconds of an all-gather to `payload` bytes everywhere: each accelerator's n-th reaches the n - 1 others."""
    return _collective("all_gather", payload, accelerators, link, lambda n: (n - 1) / n)


def reduce_scatter(payload: Value, accelerators: Value, link: Link | None) -> Value:
    """Seconds of a reduce-scatter of `payload` bytes everywhere: as an all-gather, the other way round."""
    return _collective("reduce_scatter", payload, accelerators, link, lambda n: (n - 1) / n)


def all_to_all(payload: Value, accelerators: Value, link: Link | None) -> Value:
    """Seconds of an all-to-all in which each accelerator sends `payload` bytes, an n-th of them to itself."""
    return _collective("all_to_all", payload, accelerators, link, lambda n: (n - 1) / n)


def send(payload: Value, link: Link | None) -> Value:
    """Seconds to send `payload` bytes to one other accelerator."""
    return _collective("send", payload, 2, link, lambda n: 1)


def tensor_parallel_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds of all-reduces in one forward pass over `tokens` tokens: two a layer, of tokens x d activations.

    Under expert parallelism a layer with experts has one; its experts exchange tokens (`expert_parallel_time`).
    """
    check_value("tensor_parallel_time", "tokens", tokens, minimum=0)
    d, m = deployment, deployment.model
    count = 2 * m.layers - (moe_layers(m) if d.expert_parallel else 0)
    payload = real(tokens) * m.hidden_size * d.activation_bytes
    return count * all_reduce(payload, d.tensor_parallel, d.link)


def copies(experts_per_token: Value, accelerators: Value) -> Value:
    """Accelerators that a token's q experts lie on, on average, each on any of n alike: n (1 - (1 - 1/n)^q).

    A token travels once to each of them, however many of its experts are there. q experts drawn without repetition
    spread a little wider (`perfmodel.moe`).
    """
    check_value("copies", "experts_per_token", experts_per_token)
    check_value("copies", "accelerators", accelerators, minimum=1)
    n = real(accelerators)
    return n * (1 - (1 - 1 / n) ** real(experts_per_token))


def expert_parallel_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds in which experts receive their tokens and return them, in one pass over `tokens` tokens of a replica.

    Two all-to-alls in each layer with experts. The t accelerators of a replica share its tokens; each token goes to
    `copies` of the n accelerators. At fixed tokens an accelerator the bytes grow with n, up to q copies.
    """
    check_value("expert_parallel_time", "tokens", tokens, minimum=0)
    d, m, n = deployment, deployment.model, deployment.expert_shards
    if not d.expert_parallel:
        return 0
    sent = real(tokens) / d.tensor_parallel * copies(m.experts_per_token, n) * m.hidden_size * d.activation_bytes
    return 2 * moe_layers(m) * all_to_all(sent, n, d.link)


def pipeline_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds in which the activations of `tokens` tokens pass from stage to stage, p - 1 times."""
    check_value("pipeline_time", "tokens", tokens, minimum=0)
    d = deployment
    hidden = real(tokens) * d.model.hidden_size * d.activation_bytes
    return (d.pipeline_parallel - 1) * send(hidden, d.link)


def pass_kv_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds in which keys and values of `tokens` tokens go round the ring of t_cp groups, in all layers.

    Each group holds a t_cp-th and passes it on t_cp - 1 times; the t accelerators of a group share its heads.
    """
    check_value("pass_kv_time", "tokens", tokens, minimum=0)
    d, m, n = deployment, deployment.model, deployment.context_parallel
    heads = maximum(1 / d.tensor_parallel, 1 / m.kv_heads) if m.latent is None else 1
    part = real(tokens) / n * kv_bytes_per_layer(d) * heads
    return m.layers * (n - 1) * send(part, d.link)


def pass_q_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds in which the queries of `tokens` tokens meet a KV cache spread over n accelerators, in all layers.

    Queries are gathered by all n = t_cp t_dcp, and their outputs reduced and scattered: tokens x H_q D numbers of a
    tensor-parallel share, twice. It wins over passing the cache when the new tokens are few: H_q tokens < 2 H_kv s.
    """
    check_value("pass_q_time", "tokens", tokens, minimum=0)
    d, m = deployment, deployment.model
    n = d.context_parallel * d.decode_context_parallel
    width = m.head_dim if m.latent is None else m.latent.kv_rank + m.latent.rope_dim
    payload = real(tokens) * m.heads * width / d.tensor_parallel * d.decode_context_parallel * d.activation_bytes
    return m.layers * (all_gather(payload, n, d.link) + reduce_scatter(payload, n, d.link))


def overlapped(work: Value, messages: Value, batches: Value = 2) -> Value:
    """Seconds of a step whose messages hide behind work, cut into micro-batches: one works while another sends.

    The longer of the two takes its whole time, the shorter shows in one micro-batch of it.
    """
    check_value("overlapped", "work", work, minimum=0)
    check_value("overlapped", "messages", messages, minimum=0)
    check_value("overlapped", "batches", batches, minimum=1)
    work, messages = real(work), real(messages)
    return maximum(work, messages) + minimum(work, messages) / real(batches)
