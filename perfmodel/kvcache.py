"""Bytes of the KV cache, and what fits beside the weights."""

from perfmodel._ops import Value, ceil, floor, maximum, real
from perfmodel.counts import total_parameters
from perfmodel.deployment import Deployment
from perfmodel.quantity import check_value, computed

BLOCK_SIZE = 16  # tokens in a block of the paged cache: vLLM's default on GPUs
STEP_TOKENS = 8192  # token budget of a step, `max_num_batched_tokens`: vLLM's default for a server on large GPUs


@computed("kappa", "byte")
def kv_bytes_per_token(deployment: Deployment) -> Value:
    """KV bytes of a token, key and value in all layers, one copy over all accelerators."""
    m = deployment.model
    return 2 * m.layers * m.kv_heads * m.head_dim * deployment.kv_bytes


def kv_bytes_per_token_per_gpu(deployment: Deployment) -> Value:
    """KV bytes of a token that one accelerator holds: heads are shared out, and copied once t exceeds H_kv."""
    t, kv_heads = deployment.tensor_parallel, deployment.model.kv_heads
    return kv_bytes_per_token(deployment) * maximum(1 / t, 1 / kv_heads)


def weight_bytes_per_gpu(deployment: Deployment) -> Value:
    """Bytes of weights that one accelerator holds under tensor parallelism."""
    return total_parameters(deployment.model) * deployment.weight_bytes / deployment.tensor_parallel


def peak_activation_bytes(deployment: Deployment, step_tokens: Value = STEP_TOKENS) -> Value:
    """Bytes of activations that one accelerator holds at the peak of a step over `step_tokens` tokens.

    The widest moment of a layer: gate and up of the feed-forward part (2 d_ff / t), and four hidden states
    (residual, normalised input, attention output, sum), each for every token of the step. An estimate: the
    engine measures its own peak when it starts.
    """
    m = deployment.model
    width = 2 * m.ffn_size * m.experts_per_token / deployment.tensor_parallel + 4 * m.hidden_size
    return step_tokens * width * deployment.activation_bytes


def kv_blocks(deployment: Deployment, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS) -> Value:
    """Whole blocks of the paged KV cache that one replica holds; 0 if not even the weights fit.

    Following vLLM: the memory that the engine may use, less weights, less the peak of the activations.
    """
    check_value("kv_blocks", "block_size", block_size, minimum=1, whole=True)
    usable = deployment.accelerator.memory_capacity * deployment.memory_utilization
    room = usable - weight_bytes_per_gpu(deployment) - peak_activation_bytes(deployment, step_tokens)
    return maximum(floor(room / (block_size * kv_bytes_per_token_per_gpu(deployment))), 0)


def kv_capacity_tokens(deployment: Deployment, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS) -> Value:
    """Tokens of KV cache that one replica holds, in whole blocks."""
    return kv_blocks(deployment, block_size, step_tokens) * block_size


def max_concurrency(
    deployment: Deployment, tokens: Value, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS
) -> Value:
    """Requests of `tokens` tokens (prompt and output) that fit in one replica at once, in whole blocks each."""
    check_value("max_concurrency", "tokens", tokens, minimum=1)
    return floor(kv_blocks(deployment, block_size, step_tokens) / ceil(real(tokens) / block_size))
