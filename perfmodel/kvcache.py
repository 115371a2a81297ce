"""Bytes of the KV cache, and what fits beside the weights."""

from perfmodel._ops import Value, ceil, floor, maximum, minimum, real, where
from perfmodel.attention import attended
from perfmodel.counts import (
    linear_parameters,
    moe_layers,
    network_parameters,
    parameters,
    routed_parameters,
)
from perfmodel.deployment import Deployment
from perfmodel.quantity import check_value, computed

BLOCK_SIZE = 16  # tokens in a block of the paged cache: vLLM's default on GPUs
STEP_TOKENS = 8192  # token budget of a step, `max_num_batched_tokens`: vLLM's default for a server on large GPUs


def kv_bytes_per_layer(deployment: Deployment) -> Value:
    """KV bytes of a token in one layer: keys and values of the key-value heads, or the latent vector of MLA."""
    m = deployment.model
    elements = 2 * m.kv_heads * m.head_dim if m.latent is None else m.latent.kv_rank + m.latent.rope_dim
    return elements * deployment.kv_bytes


def index_bytes_per_layer(deployment: Deployment) -> Value:
    """Bytes of the indexer's key of a token in one layer; 0 without an indexer."""
    return deployment.model.indexer.key_bytes if deployment.model.indexer else 0 * deployment.kv_bytes


@computed("kappa", "byte")
def kv_bytes_per_token(deployment: Deployment) -> Value:
    """KV bytes of a token, key and value in all layers, one copy over all accelerators.

    Layers with a window count: they hold a token until `window.tokens` newer ones have come (`kv_bytes_of_request`).
    """
    return deployment.model.layers * (kv_bytes_per_layer(deployment) + index_bytes_per_layer(deployment))


def kv_bytes_of_request(deployment: Deployment, tokens: Value) -> Value:
    """KV bytes of a request of `tokens` tokens, one copy: layers with a window hold no more than the window."""
    check_value("kv_bytes_of_request", "tokens", tokens, minimum=0)
    window, tokens = deployment.model.window, real(tokens)
    whole = kv_bytes_per_token(deployment) * tokens
    if window is None:
        return whole
    return whole - window.layers * kv_bytes_per_layer(deployment) * maximum(tokens - window.tokens, 0)


def kv_bytes_read(deployment: Deployment, context: Value) -> Value:
    """KV bytes that a request reads in one decode step, one copy.

    What attention attends to, and the indexer's keys of all of the context.
    """
    read = attended(deployment.model, context) * kv_bytes_per_layer(deployment)
    return read + deployment.model.layers * index_bytes_per_layer(deployment) * real(context)


def kv_share(deployment: Deployment) -> Value:
    """Part of one layer's KV cache that one accelerator holds.

    Tensor parallelism shares heads out and copies them once t exceeds H_kv; a latent vector belongs to all
    heads and is copied to all t. Context parallelism shares out the tokens.
    """
    m, t = deployment.model, deployment.tensor_parallel
    heads = maximum(1 / t, 1 / m.kv_heads) if m.latent is None else 1
    return heads / (deployment.context_parallel * deployment.decode_context_parallel)


def stage_share(deployment: Deployment) -> Value:
    """Part of the layers that the pipeline stage with most of them holds."""
    layers = deployment.model.layers
    return ceil(layers / deployment.pipeline_parallel) / layers


def kv_bytes_per_token_per_gpu(deployment: Deployment) -> Value:
    """KV bytes of a token that one accelerator holds: heads are shared out, and copied once t exceeds H_kv."""
    return kv_bytes_per_token(deployment) * kv_share(deployment) * stage_share(deployment)


def weight_bytes_per_gpu(deployment: Deployment) -> Value:
    """Bytes of weights that one accelerator holds, on the largest pipeline stage.

    Embedding and LM head are shared among t; the first pipeline stage has the one and the last the other. Engines
    copy a few small matrices to each of the t (key and value beyond H_kv, down projections of MLA): not counted.
    """
    return maximum(*(_stage_bytes(deployment, *stage) for stage in _stages(deployment)))


def _stages(deployment: Deployment) -> list[tuple[Value, Value, Value]]:
    """Layers of the pipeline stages that may be the largest, those of them with experts, and weights of tables.

    As vLLM splits a model: p stages of L / p layers, of which the last ones but the very last take one more if p does
    not divide L. The largest is the first, with the embedding, the last, with the LM head, or the last but one: a
    layer without experts, all of which come first, is taken to be no heavier than one with them.
    """
    m, stages = deployment.model, deployment.pipeline_parallel
    count, mixed, head = parameters(m), moe_layers(m), m.vocab_size * m.hidden_size
    if stages == 1:
        return [(m.layers, mixed, count.embedding + count.lm_head)]
    few, many, first = floor(m.layers / stages), ceil(m.layers / stages), floor((m.layers + 1) / stages)
    return [
        (layers, minimum(maximum(mixed - after, 0), layers), tables)
        for layers, after, tables in ((first, m.layers - first, count.embedding), (many, few, 0), (few, 0, head))
    ]


def moe_layers_of_stage(deployment: Deployment) -> Value:
    """Layers with experts on the pipeline stage with most bytes of weights."""
    largest, found = weight_bytes_per_gpu(deployment), 0
    for stage in _stages(deployment):
        found = where(_stage_bytes(deployment, *stage) >= largest, stage[1], found)
    return found


def _stage_bytes(deployment: Deployment, layers: Value, mixed: Value, tables: Value) -> Value:
    """Bytes of weights of a pipeline stage on one accelerator: an even share, but for its layers with experts."""
    d, m = deployment, deployment.model
    fewer = moe_layers(m) * layers / m.layers - mixed  # layers with experts than an even share has
    rest = (linear_parameters(m) - routed_parameters(m, m.experts)) * layers / m.layers
    router = (m.hidden_size + (1 if m.router_bias else 0)) * m.experts
    rest = rest + fewer * (network_parameters(m, m.dense_ffn_size) - network_parameters(m, m.shared_ffn_size) - router)
    experts = mixed * m.experts * network_parameters(m, m.ffn_size) * d.bytes_of_experts / d.expert_shards
    return (rest * d.weight_bytes + tables * d.bytes_of_tables) / d.tensor_parallel + experts


def peak_activation_bytes(deployment: Deployment, step_tokens: Value = STEP_TOKENS) -> Value:
    """Bytes of activations that one accelerator holds at the peak of a step over `step_tokens` tokens.

    The widest moment of a layer: gate and up of the feed-forward part (2 d_ff / t), and four hidden states
    (residual, normalised input, attention output, sum), each for every token of the step. An estimate: the
    engine measures its own peak when it starts.
    """
    check_value("peak_activation_bytes", "step_tokens", step_tokens, minimum=0)
    m = deployment.model
    inner = maximum(m.ffn_size * m.experts_per_token + m.shared_ffn_size, m.dense_ffn_size)
    width = 2 * inner / deployment.tensor_parallel + 4 * m.hidden_size
    return real(step_tokens) / deployment.context_parallel * width * deployment.activation_bytes


def kv_budget(deployment: Deployment, step_tokens: Value = STEP_TOKENS) -> Value:
    """Bytes that one accelerator has for the KV cache; below 0 it lacks so many.

    Following vLLM: the memory that the engine may use, less weights, less the peak of the activations. The pipeline
    stage with most weights is taken to be the one with most of the cache as well, as it is within a layer or two.
    """
    usable = deployment.accelerator.memory_capacity * deployment.memory_utilization
    return usable - weight_bytes_per_gpu(deployment) - peak_activation_bytes(deployment, step_tokens)


def kv_blocks(deployment: Deployment, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS) -> Value:
    """Whole blocks of the paged KV cache that one replica holds; 0 if not even the weights fit."""
    check_value("kv_blocks", "block_size", block_size, minimum=1, whole=True)
    budget = kv_budget(deployment, step_tokens)
    return floor(maximum(budget / (real(block_size) * kv_bytes_per_token_per_gpu(deployment)), 0))


def kv_capacity_tokens(deployment: Deployment, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS) -> Value:
    """Tokens of KV cache that one replica holds, in whole blocks."""
    return kv_blocks(deployment, block_size, step_tokens) * real(block_size)


def max_concurrency(
    deployment: Deployment, tokens: Value, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS
) -> Value:
    """Requests of `tokens` tokens (prompt and output) that fit in one replica at once, in whole blocks each.

    A layer with a window holds the blocks of its window and one more, since the window rarely starts with a block.
    """
    check_value("max_concurrency", "tokens", tokens, minimum=1)
    blocks = kv_blocks(deployment, block_size, step_tokens)
    block_size = real(block_size)
    need = ceil(real(tokens) / block_size)
    window = deployment.model.window
    if window is not None:
        held = minimum(need, ceil(window.tokens / block_size) + 1)
        need = need - (need - held) * window.layers / deployment.model.layers
    return floor(blocks / need)
