"""Time of messages between accelerators: latency and bytes over bandwidth."""

from perfmodel._ops import Value, real, where
from perfmodel.deployment import Deployment
from perfmodel.hardware import Link


def all_reduce(payload: Value, accelerators: Value, link: Link | None) -> Value:
    """Seconds of a ring all-reduce.

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
    if link is None:
        return 0
    n = accelerators
    return where(n > 1, link.latency + 2 * (n - 1) / n * real(payload) / link.bandwidth, 0)


def tensor_parallel_time(deployment: Deployment, tokens: Value) -> Value:
    """Seconds of all-reduces in one forward pass over `tokens` tokens: two a layer, of tokens x d activations."""
    m = deployment.model
    payload = real(tokens) * m.hidden_size * deployment.activation_bytes
    return 2 * m.layers * all_reduce(payload, deployment.tensor_parallel, deployment.link)
