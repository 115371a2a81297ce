"""What requests cost each other when prefill and decode share the same accelerators."""

from perfmodel._ops import Value, real
from perfmodel.quantity import check_value, computed


@computed("Delta", "s")
def prefill_interference(batch: Value, output: Value, prefill: Value) -> Value:
    """time that the prefills of other requests add to each token of mine.

    A closed loop of B requests, out of step with one another: while I decode N_out - 1 times, each of the
    B - 1 others ends once and its successor prefills once, with the decode steps waiting.

    Parameters
    ----------
    batch : float, array or symbol
        Requests in flight B.
    output : float, array or symbol
        Output tokens N_out of a request, at least 2.
    prefill : float, array or symbol
        Seconds of one prefill.
    """
    check_value("prefill_interference", "output", output, minimum=2)
    return (real(batch) - 1) / (real(output) - 1) * prefill
