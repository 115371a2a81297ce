"""What blocks of a paged KV cache waste, and what reserving the longest possible request wasted before them."""

from perfmodel._ops import Value, ceil, floor, minimum, real
from perfmodel.deployment import Deployment
from perfmodel.kvcache import BLOCK_SIZE, STEP_TOKENS, kv_capacity_tokens
from perfmodel.quantity import check_value


def blocks_of(tokens: Value, block_size: int = BLOCK_SIZE) -> Value:
    """Whole blocks that a request of `tokens` cached tokens holds."""
    _check("blocks_of", tokens, block_size)
    return ceil(real(tokens) / real(block_size))


def wasted_tokens(tokens: Value, block_size: int = BLOCK_SIZE) -> Value:
    """Places that stay empty in the last block of a request of `tokens` cached tokens."""
    return blocks_of(tokens, block_size) * real(block_size) - real(tokens)


def expected_waste(block_size: Value = BLOCK_SIZE) -> Value:
    """Places that stay empty in the last block on average: equation `eq-block-waste`.

    The last block holds 1 to b tokens, each count as likely: b - 1 to 0 places are empty, (b - 1) / 2 on average.
    """
    check_value("expected_waste", "block_size", block_size, minimum=1, whole=True)
    return (real(block_size) - 1) / 2


def paged_utilization(tokens: Value, block_size: Value = BLOCK_SIZE) -> Value:
    """Share of the blocks' places that hold a token, for requests of `tokens` tokens give or take a block."""
    _check("paged_utilization", tokens, block_size)
    return real(tokens) / (real(tokens) + expected_waste(block_size))


def contiguous_utilization(tokens: Value, reserved: Value) -> Value:
    """Share of a contiguous reservation of `reserved` places that a request of `tokens` tokens uses.

    Engines before paging reserved the longest possible request for each. Measured over whole workloads, 20.4 to
    38.2 % of the cache held tokens, and 96.3 % with paging (Kwon et al., SOSP 2023, figure 2): the lower figures
    include holes between reservations of different size, which this share leaves out.
    """
    check_value("contiguous_utilization", "reserved", reserved, minimum=1)
    check_value("contiguous_utilization", "tokens", tokens)
    return minimum(real(tokens) / real(reserved), 1)


def contiguous_concurrency(
    deployment: Deployment, reserved: Value, block_size: int = BLOCK_SIZE, step_tokens: Value = STEP_TOKENS
) -> Value:
    """Requests that fit in one replica at once if each reserves `reserved` places, however short it is."""
    check_value("contiguous_concurrency", "reserved", reserved, minimum=1)
    return floor(kv_capacity_tokens(deployment, block_size, step_tokens) / real(reserved))


def _check(owner: str, tokens: Value, block_size: Value) -> None:
    check_value(owner, "tokens", tokens)
    check_value(owner, "block_size", block_size, minimum=1, whole=True)
