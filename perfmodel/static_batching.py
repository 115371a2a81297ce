"""What a static batch wastes, in which requests of different lengths wait for the longest."""

import numpy as np

from perfmodel._ops import Value, real
from perfmodel.quantity import check_value


def expected_longest(lengths: Value, batch: Value, weights: Value | None = None) -> Value:
    """Expected output tokens of the longest of B requests drawn from a distribution of lengths.

    Exact: the longest is at most x with probability P(length <= x)^B.

    Parameters
    ----------
    lengths : array
        Output lengths that occur, numbers.
    batch : float, array or symbol
        Requests B of a batch.
    weights : array, optional
        How often each length occurs, in any unit; equally often by default.
    """
    check_value("expected_longest", "batch", batch, minimum=1)
    values, shares = _distribution(lengths, weights)
    below, batch = [0, *np.cumsum(shares).tolist()[:-1], 1], real(batch)  # P(length < x), and 1
    return sum(x * (upto**batch - less**batch) for x, less, upto in zip(values, below, below[1:], strict=False))


def static_idle_share(lengths: Value, batch: Value | None = None, weights: Value | None = None) -> Value:
    """Share of a static batch's slots that have nothing to decode: 1 - mean / longest, over all steps.

    A static batch runs until its longest request ends. Continuous batching gives a slot to the next request at
    once, so it finishes 1 / (1 - share) times the tokens in the same steps, as long as requests wait.

    Parameters
    ----------
    lengths : array
        Output lengths: of the requests of one batch, or those that occur.
    batch : float, array or symbol, optional
        Requests B drawn from `lengths`, on average over many batches; None takes `lengths` as the one batch.
    weights : array, optional
        How often each length occurs, in any unit; equally often by default.
    """
    values, shares = _distribution(lengths, weights)
    mean = sum(x * share for x, share in zip(values, shares, strict=True))
    return 1 - mean / (values[-1] if batch is None else expected_longest(lengths, batch, weights))


def _distribution(lengths: Value, weights: Value | None) -> tuple[list[float], list[float]]:
    """Lengths in ascending order, and the share of each."""
    check_value("lengths of requests", "lengths", lengths)
    lengths = np.ravel(np.asarray(lengths, dtype=float))
    weights = np.ones(lengths.size) if weights is None else np.ravel(real(weights))
    check_value("lengths of requests", "weights", weights)
    if lengths.size != weights.size or not lengths.size:
        raise ValueError(f"lengths of requests: {lengths.size} lengths need as many weights, not {weights.size}")
    values, index = np.unique(lengths, return_inverse=True)
    shares = np.bincount(index, weights) / weights.sum()
    return values.tolist(), shares.tolist()
