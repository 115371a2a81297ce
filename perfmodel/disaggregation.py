"""Prefill and decode on accelerators of their own: what the transfer costs, and when the split pays.

An instance is one replica. Where seconds are arguments they come from `prefill_time` and `decode_time`, so that each
pool may have accelerators, precisions and degrees of its own; with p pipeline stages a prefill counts as a p-th, since
the next one follows so soon.
"""

from perfmodel._ops import Value, maximum, minimum, real, where
from perfmodel.deployment import Deployment
from perfmodel.hardware import Link
from perfmodel.kvcache import kv_bytes_of_request, max_concurrency
from perfmodel.quantity import check_value, check_values, computed
from perfmodel.queueing import md1_capacity
from perfmodel.roofline import decode_time, prefill_time
from perfmodel.slo import ROUNDING, largest_batch


@computed("T_kv", "s")
def kv_transfer_time(deployment: Deployment, prompt: Value, link: Link, links: Value = 1, messages: Value = 1) -> Value:
    """time to send the KV cache of a prompt from a prefill instance to a decode instance.

    Parameters
    ----------
    deployment : Deployment
        Whose KV cache it is; one copy of it is sent.
    prompt : float, array or symbol
        Prompt tokens S.
    link : Link
        Between the instances: bandwidth and latency of one.
    links : float, array or symbol
        Links that carry a part each at the same time: t where every accelerator has its own.
    messages : float, array or symbol
        Messages one after the other, each with the link's latency: L where each layer is sent by itself.
    """
    check_value("kv_transfer_time", "prompt", prompt, minimum=0)
    check_value("kv_transfer_time", "links", links, minimum=1)
    check_value("kv_transfer_time", "messages", messages, minimum=1)
    carried = kv_bytes_of_request(deployment, prompt)
    return real(messages) * link.latency + carried / (real(links) * link.bandwidth)


def exposed_transfer_time(transfer: Value, prefill: Value, messages: Value = 1) -> Value:
    """Seconds of a transfer that are left when the prefill ends.

    The prefill releases n equal messages at even distances, and the link carries one after the other. Either the link
    keeps up, and the last message is left over; or it is busy from the first message on, which came after 1/n of the
    prefill. One message hides nothing.

    Parameters
    ----------
    transfer : float, array or symbol
        Seconds of all messages together.
    prefill : float, array or symbol
        Seconds of the prefill.
    messages : float, array or symbol
        n: L where each layer is sent as soon as it is computed, 1 where all is sent in the end.
    """
    check_value("exposed_transfer_time", "transfer", transfer, minimum=0)
    check_value("exposed_transfer_time", "prefill", prefill, minimum=0)
    check_value("exposed_transfer_time", "messages", messages, minimum=1)
    transfer, prefill, n = real(transfer), real(prefill), real(messages)
    return maximum(transfer / n, transfer - (n - 1) / n * prefill)


def transfer_share(transfer: Value, prefill: Value, messages: Value = 1) -> Value:
    """Share of the time to first token that goes to the transfer, with no queue before the prefill.

    For engines that emit the first token on the decode side. Where the prefill side emits it, TTFT holds no transfer
    and the second token waits for it.
    """
    check_value("transfer_share", "prefill", prefill)
    exposed = exposed_transfer_time(transfer, prefill, messages)
    return exposed / (real(prefill) + exposed)


def _check(owner: str, batch: Value, output: Value, prefill: Value, decode_step: Value, transfer: Value) -> None:
    check_values(owner, None, batch=batch, decode_step=decode_step)
    check_values(owner, 2, output=output)
    check_values(owner, 0, prefill=prefill, transfer=transfer)


def request_time(batch: Value, output: Value, prefill: Value, decode_step: Value, transfer: Value = 0) -> Value:
    """Seconds of one instance that a request costs: its prefill and its share of N_out - 1 decode steps.

    Colocated or split makes no difference to it: n colocated instances, and n instances in two pools in balance, both
    serve n requests in this time. They differ in the batch that their TPOT allows.

    Parameters
    ----------
    batch : float, array or symbol
        Requests B of a decode step.
    output : float, array or symbol
        Output tokens N_out of a request, at least 2.
    prefill, decode_step : float, array or symbol
        Seconds of one prefill, and of one decode step of B requests.
    transfer : float, array or symbol
        Seconds that a request's place in the decode batch waits for its KV cache; 0 if colocated.
    """
    _check("request_time", batch, output, prefill, decode_step, transfer)
    return real(prefill) + ((real(output) - 1) * real(decode_step) + real(transfer)) / real(batch)


def prefill_per_decode(batch: Value, output: Value, prefill: Value, decode_step: Value, transfer: Value = 0) -> Value:
    """Prefill instances for each decode instance at which neither pool waits for the other.

    A prefill instance starts 1/T_prefill requests a second. A decode instance ends B of them each time that a place
    comes free: after N_out - 1 steps, and the transfer before them. Arguments as in `request_time`.
    """
    _check("prefill_per_decode", batch, output, prefill, decode_step, transfer)
    return real(batch) * real(prefill) / ((real(output) - 1) * real(decode_step) + real(transfer))


def pool_rate(
    prefill_instances: Value,
    decode_instances: Value,
    batch: Value,
    output: Value,
    prefill: Value,
    decode_step: Value,
    transfer: Value = 0,
) -> Value:
    """Requests a second of two pools of whole instances: the slower pool decides. Arguments as in `request_time`."""
    check_values(
        "pool_rate", None, prefill_instances=prefill_instances, decode_instances=decode_instances, prefill=prefill
    )
    balance = prefill_per_decode(batch, output, prefill, decode_step, transfer)
    return minimum(real(prefill_instances), real(decode_instances) * balance) / real(prefill)


def split_goodput(
    deployment: Deployment,
    prompt: Value,
    output: Value,
    ttft_limit: Value,
    tpot_limit: Value,
    transfer: Value = 0,
    share: float = 0.9,
) -> Value:
    """Requests a second of a deployment's accelerators divided into two pools in balance, both limits kept.

    To be compared with `goodput` of the same deployment, which does both on every replica: the split pays where this is
    more. Decode steps have all of the TPOT limit to themselves, so that the batch is larger, up to what fits in
    memory; where memory binds already, the wait for transfers is all that changes. A prefill instance is idle as
    often as the TTFT limit demands (M/D/1 as in `goodput`), so that a request costs its `request_time` with 1 / its
    rate for the prefill. The pools in balance (`prefill_per_decode`) are rarely whole instances. By bisection, of
    numbers and arrays alone.

    Parameters
    ----------
    prompt, output : float or array
        Tokens S and N_out of each request.
    ttft_limit, tpot_limit : float or array
        Seconds to the first token, the transfer before it included, and seconds a token after it.
    transfer : float or array
        Seconds that a request waits for its KV cache, in its place of the decode batch.
    share : float
        Of the requests that keep the TTFT limit.
    """
    check_value("split_goodput", "ttft_limit", ttft_limit)
    check_value("split_goodput", "output", output, minimum=2)
    check_value("split_goodput", "transfer", transfer, minimum=0)
    d, prompt, transfer = deployment, real(prompt), real(transfer)
    first = prefill_time(d, prompt).total
    stage = first / d.pipeline_parallel
    started = md1_capacity(stage, real(ttft_limit) * ROUNDING - first - transfer, share)
    batch = minimum(
        largest_batch(d, prompt, output, tpot_limit, prefill="apart"), max_concurrency(d, prompt + real(output))
    )
    held = maximum(batch, 1)
    step = decode_time(d, held, prompt + real(output) / 2).total
    ended = ((real(output) - 1) * step + transfer) / held  # seconds of a decode instance that a request takes
    rate = d.data_parallel * started / (1 + started * ended)
    return where(batch >= 1, rate, 0 * rate)
