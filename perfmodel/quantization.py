"""Fewer bits: what a quantised element takes, and where it pays in a decode step.

Weights, KV cache and activations are quantised apart: they are the fields `weight_bytes` (with `expert_bytes` and
`table_bytes`), `kv_bytes` and `activation_bytes` of a deployment, and `compute` is the precision of the arithmetic.
"""

from dataclasses import replace

from perfmodel._ops import Value, real
from perfmodel.deployment import Deployment
from perfmodel.kvcache import STEP_TOKENS, kv_budget, kv_bytes_per_token_per_gpu
from perfmodel.quantity import check_value, computed
from perfmodel.roofline import StepTime, decode_time, ridge_tokens


def element_bytes(bits: Value, group: Value = 1, scale_bytes: Value = 0, zero_bytes: Value = 0) -> Value:
    """Bytes of a quantised element, its part of the scale and the zero point of its group counted.

    Parameters
    ----------
    bits : float, array or symbol
        Bits of the element itself.
    group : float, array or symbol
        Elements that share a scale.
    scale_bytes, zero_bytes : float, array or symbol
        Bytes of one scale, and of one zero point (0 in a symmetric format).
    """
    check_value("element_bytes", "bits", bits)
    check_value("element_bytes", "group", group, minimum=1)
    check_value("element_bytes", "scale_bytes", scale_bytes, minimum=0)
    check_value("element_bytes", "zero_bytes", zero_bytes, minimum=0)
    return real(bits) / 8 + (real(scale_bytes) + real(zero_bytes)) / real(group)


# Bytes of an element by format. Scales of a whole tensor, or of a row of thousands, are not counted.
FORMATS = {
    "bf16": element_bytes(16),
    "fp8": element_bytes(8),
    "int8": element_bytes(8),
    "int4-g128": element_bytes(4, 128, scale_bytes=2),  # GPTQ, Marlin: symmetric, FP16 scale
    "awq-g128": element_bytes(4, 128, scale_bytes=2, zero_bytes=0.5),  # asymmetric: a 4-bit zero point
    "mxfp8": element_bytes(8, 32, scale_bytes=1),  # OCP Microscaling Formats v1.0: E8M0 scale
    "mxfp4": element_bytes(4, 32, scale_bytes=1),
    "nvfp4": element_bytes(4, 16, scale_bytes=1),  # E4M3 scale
}


def weight_only_decode_time(
    deployment: Deployment, batch: Value, context: Value, dequantization: Value = 0, tokens: Value = 1
) -> StepTime:
    """Time of a decode step that unpacks its weights and multiplies at the precision `compute`, BF16 as a rule.

    A kernel unpacks each weight again for every tile of tokens, so unpacking is taken as a share of the arithmetic
    of the linear layers and the experts. The LM head is left as it is, as such formats do.

    Parameters
    ----------
    deployment : Deployment
        With the stored bytes of a weight, scales counted (`FORMATS`).
    batch, context, tokens : float, array or symbol
        As in `decode_time`.
    dequantization : float, array or symbol
        Time to unpack over time to multiply: 0 where the kernel hides it, 1 where it doubles the arithmetic.

    Returns
    -------
    StepTime
        Seconds.
    """
    check_value("weight_only_decode_time", "dequantization", dequantization, minimum=0)
    step = decode_time(deployment, batch, context, tokens)
    slower = 1 + real(dequantization)
    compute = replace(step.compute, linear=step.compute.linear * slower, experts=step.compute.experts * slower)
    return replace(step, compute=compute)


@computed("B_over", "1")
def overtaking_tokens(weight_only: Deployment, weight_bytes: Value = 1, dequantization: Value = 0) -> Value:
    """tokens in a step from which FP8 overtakes weight-only quantisation in the linear layers.

    Weight-only has the fewer bytes and the slower arithmetic. It falls behind where its arithmetic takes as long as
    the rival takes to read its own weights: the ridge of a device that computes as weight-only does and reads
    `weight_bytes` a weight. The KV cache does not matter, being the same for both. Needs a rival whose arithmetic is
    no slower; all experts touched.

    Parameters
    ----------
    weight_only : Deployment
        With the precision of the arithmetic (BF16) in `compute`; its own bytes of a weight do not matter.
    weight_bytes : float, array or symbol
        Bytes of a weight of the rival, routed experts included.
    dequantization : float, array or symbol
        As in `weight_only_decode_time`.
    """
    check_value("overtaking_tokens", "dequantization", dequantization, minimum=0)
    rival = replace(weight_only, weight_bytes=weight_bytes, expert_bytes=None)
    return ridge_tokens(rival) / (1 + real(dequantization))


def kv_capacity_gain(deployment: Deployment, quantized: Deployment, step_tokens: Value = STEP_TOKENS) -> Value:
    """Tokens of KV cache that fit in `quantized` over those in `deployment`, whole blocks aside.

    Smaller weights leave more room, smaller elements use less of it: the two gains multiply.

    Raises
    ------
    ValueError
        If `deployment` has no room for a KV cache, which no ratio can be taken of.
    """
    room = kv_budget(deployment, step_tokens)
    check_value("kv_capacity_gain", "KV budget of the first deployment", room)
    more_room = kv_budget(quantized, step_tokens) / room
    return more_room * kv_bytes_per_token_per_gpu(deployment) / kv_bytes_per_token_per_gpu(quantized)
