"""Bytes of quantised elements, and where fewer of them pay: against counts by hand, published figures, decode_time."""

from dataclasses import replace

import examples
import numpy as np
import pytest
from examples import SOURCE, SOURCE_DEVICE, batches, deployments, refused
from hypothesis import given
from hypothesis import strategies as st
from test_dimensions import ONE, byte, second

import perfmodel as pm
from perfmodel.quantization import FORMATS, element_bytes, kv_capacity_gain, overtaking_tokens, weight_only_decode_time

OPS_CALLS = {
    "element_bytes": lambda d, B, S, n, s: element_bytes(n, s, B, S),
    "kv_capacity_gain": lambda d, B, S, n, s: kv_capacity_gain(
        replace(d, weight_bytes=0.1), replace(d, weight_bytes=0.05, kv_bytes=1), B
    ),
    "overtaking_tokens": lambda d, B, S, n, s: overtaking_tokens(d, 1, B / 4096),
    "weight_only_decode_time": lambda d, B, S, n, s: weight_only_decode_time(d, B, s, n / 4096, tokens=2),
}
DIMENSION_CALLS = {
    "element_bytes": (byte, lambda d, u: element_bytes(4 * u(byte), 128, 2 * u(byte), 0.5 * u(byte))),
    "kv_capacity_gain": (
        ONE,
        lambda d, u: kv_capacity_gain(
            replace(d, weight_bytes=0.1 * u(byte)), replace(d, weight_bytes=0.05 * u(byte), kv_bytes=1 * u(byte))
        ),
    ),
    "overtaking_tokens": (ONE, lambda d, u: overtaking_tokens(d, 1 * u(byte), 0.5)),
    "weight_only_decode_time": (second, lambda d, u: weight_only_decode_time(d, 64, 1280, 0.5)),
}

# The source's device with its arithmetic doubled at FP8.
FP8_DEVICE = replace(SOURCE_DEVICE, fp8_flops=2 * SOURCE_DEVICE.bf16_flops)
FP8 = replace(SOURCE, accelerator=FP8_DEVICE, weight_bytes=1, compute="fp8")
INT4 = replace(SOURCE, accelerator=FP8_DEVICE, weight_bytes=FORMATS["int4-g128"])


def milliseconds(deployment, batch=1, context=0):
    return 1e3 * pm.decode_time(deployment, batch, context).by_totals


# Bytes of an element


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("mxfp4", 4.25),  # gpt-oss model card, arXiv:2508.10925: 4.25 bits per parameter
        ("mxfp8", (32 * 8 + 8) / 32),  # OCP Microscaling Formats v1.0: 32 elements, one 8-bit scale
        ("nvfp4", 4.5),  # 16 elements of 4 bits and an FP8 scale: 72 bits
        ("awq-g128", 4 + 20 / 128),  # a 16-bit scale and a 4-bit zero point for 128 weights
        ("int4-g128", 4 + 16 / 128),
        ("bf16", 16),
        ("fp8", 8),
        ("int8", 8),
    ],
)
def test_bits_of_a_format(name, bits):
    assert 8 * FORMATS[name] == pytest.approx(bits, rel=1e-12)
    assert len(FORMATS) == 8


def test_the_ideal_of_four_bits_is_what_marlin_prints():
    """Its README gives 3.87 for 4 bits with a group of 128; 16 / 4.125 = 3.8788, cut off."""
    assert np.floor(100 * FORMATS["bf16"] / FORMATS["int4-g128"]) == 387


@given(st.integers(1, 16), st.integers(1, 4096), st.floats(0, 8), st.floats(0, 8))
def test_a_group_is_its_elements_and_its_scale_and_zero_point(bits, group, scale, zero):
    assert element_bytes(bits, scale_bytes=scale) == pytest.approx(bits / 8 + scale, rel=1e-12)
    assert group * element_bytes(bits, group, scale, zero) == pytest.approx(group * bits / 8 + scale + zero, rel=1e-12)
    assert element_bytes(bits, 2 * group, scale, zero) <= element_bytes(bits, group, scale, zero)


# A decode step with fewer bits: claims of the article, recomputed by hand from its own inputs (70e9 parameters)


@pytest.mark.parametrize(
    ("claim", "weight_bytes", "bandwidth", "expected"),
    [
        ("c08.2-01", FORMATS["bf16"], 3.35e12, 41.791045),
        ("c08.2-02", FORMATS["fp8"], 3.35e12, 20.895522),
        ("INT4 with group scales", FORMATS["awq-g128"], 3.35e12, 70e9 * (4 + 20 / 128) / 8 / 3.35e9),
        ("c08.3-05", FORMATS["bf16"], 3.2e12, 43.75),
        ("c08.3-06", FORMATS["int8"], 3.2e12, 21.875),
        ("c08.3-08", element_bytes(4), 3.2e12, 10.9375),  # without scales
    ],
)
def test_one_request_reads_the_weights_once(claim, weight_bytes, bandwidth, expected):
    device = replace(SOURCE_DEVICE, memory_bandwidth=bandwidth)
    deployment = replace(SOURCE, accelerator=device, weight_bytes=weight_bytes)
    assert milliseconds(deployment) == pytest.approx(expected, rel=1e-7), claim  # as many digits as carried over


def test_smaller_weights_gain_less_than_their_bytes_say_beside_a_cache_of_16_bits():
    """c08.2-09: the article says 2.1 at B = 64 and s = 1,280; its formula with the reads of the cache gives 1.72."""
    cache = 64 * 1280 * 2 * 80 * 8 * 128 * 2
    by_hand = (140e9 + cache) / (70e9 + cache)
    gain = milliseconds(SOURCE, 64, 1280) / milliseconds(FP8, 64, 1280)
    assert gain == pytest.approx(by_hand, rel=1e-9)
    assert gain == pytest.approx(1.72, abs=0.005)


@pytest.mark.parametrize(("kv_bytes", "context", "expected"), [(2, 0, 5.2), (2, 1280, 9.2), (1, 1280, 7.2)])
def test_weights_and_cache_are_quantised_apart(kv_bytes, context, expected):
    """c09.5-20: FP8 on four devices at B = 128, without the cache, with one of 16 bits, with one of 8."""
    deployment = replace(FP8, tensor_parallel=4, kv_bytes=kv_bytes)
    assert milliseconds(deployment, 128, context) == pytest.approx(expected, abs=0.05)  # as printed


def test_a_cache_of_8_bits_halves_what_a_longer_context_costs():
    """Measured: 54 % of the slope with 16 bits (Llama-3.1-8B on one H100, 8 requests; vLLM blog of 2026-04-22)."""
    wide = examples.served("llama-3.1-8b", tensor_parallel=1)
    slopes = []
    for kv_bytes in (2, 1):
        deployment = replace(wide, kv_bytes=kv_bytes)
        slopes.append(pm.decode_time(deployment, 8, 20_000).total - pm.decode_time(deployment, 8, 10_000).total)
    assert slopes[1] / slopes[0] == pytest.approx(0.5, rel=1e-9)
    assert slopes[1] / slopes[0] == pytest.approx(0.54, rel=0.1)  # the kernel converts what it reads


# Weight-only against FP8


@pytest.mark.parametrize(
    ("rate", "dequantization", "expected"),
    [(742e12, 0, 742 / (2 * 3.35)), (989.4e12, 0, 989.4 / (2 * 3.35)), (742e12, 0.5, 742 / (3 * 3.35))],
)
def test_fp8_overtakes_where_a_byte_takes_as_long_as_its_two_flops(rate, dequantization, expected):
    """By hand for a dense model: 1 byte / beta = (1 + delta) 2 B FLOPs / F; at 111 tokens on the source's device."""
    device = replace(SOURCE_DEVICE, bf16_flops=rate)
    for weight_bytes in (0.5, FORMATS["int4-g128"]):
        deployment = replace(SOURCE, accelerator=device, weight_bytes=weight_bytes)
        assert overtaking_tokens(deployment, 1, dequantization) == pytest.approx(expected, rel=1e-9)
        assert overtaking_tokens(deployment) == pytest.approx(rate / (2 * 3.35e12), rel=1e-9)


@given(deployments(experts=False), st.floats(0, 3), st.integers(0, 100_000))
def test_the_faster_format_changes_there_at_any_context(deployment, dequantization, context):
    """Found from two steps just beside it, cache, LM head, messages and host included."""
    device = replace(deployment.accelerator, fp8_flops=2 * deployment.accelerator.bf16_flops)
    slim = replace(deployment, accelerator=device, weight_bytes=FORMATS["int4-g128"], table_bytes=2)
    fast = replace(slim, weight_bytes=1, compute="fp8")
    meet = overtaking_tokens(slim, 1, dequantization)

    def lead(batch):
        """Seconds by which weight-only is ahead in the layers that it quantises."""
        ours = weight_only_decode_time(slim, batch, context, dequantization)
        return (pm.decode_time(fast, batch, context).parts.linear - ours.parts.linear) / ours.parts.linear

    assert lead(meet * 0.999) > 0 > lead(meet * 1.001)
    assert lead(meet) == pytest.approx(0, abs=1e-9)


def test_weight_only_keeps_its_gain_as_far_as_marlin_measured_and_not_beyond():
    """Near 3.87 up to a batch of 16 to 32 on an A10 (IST-DASLab/marlin, README); 125 TFLOP/s and 600 GB/s dense.

    By hand at 64: 16 bits are still read in 2 / 600e9, weight-only multiplies in 2 x 64 / 125e12 each weight.
    """
    a10 = pm.Accelerator("A10", memory_capacity=24e9, memory_bandwidth=600e9, bf16_flops=125e12)
    wide = replace(SOURCE, accelerator=a10)
    slim = replace(wide, weight_bytes=FORMATS["int4-g128"])
    gains = {b: pm.decode_time(wide, b, 0).total / weight_only_decode_time(slim, b, 0).total for b in (1, 16, 32, 64)}
    assert [gains[batch] for batch in (1, 16, 32)] == pytest.approx([16 / 4.125] * 3, rel=1e-9)
    assert gains[64] == pytest.approx((2 / 600e9) / (2 * 64 / 125e12), rel=1e-9)
    assert pm.decode_time(wide, 1000, 0).total == pytest.approx(weight_only_decode_time(slim, 1000, 0).total)


def test_the_order_of_formats_turns_as_measured():
    """Qwen3-8B on one H100 under a full load: FP8 1.24 and INT4 1.02 of BF16's throughput (gpustack performance lab,
    vLLM 0.9.2). Synchronous requests: W4A16 is ahead of W8A8 (arXiv:2411.02355)."""
    wide = replace(SOURCE, accelerator=FP8_DEVICE)
    alone = [milliseconds(deployment) for deployment in (INT4, FP8, wide)]
    full = [pm.decode_time(deployment, 256, 500).total for deployment in (FP8, INT4, wide)]
    assert alone == sorted(alone)
    assert full == sorted(full)


@given(deployments(), batches, st.floats(0, 4), st.floats(0, 4))
def test_unpacking_costs_arithmetic_of_linear_layers_and_experts_alone(deployment, batch, less, more):
    plain = pm.decode_time(deployment, batch, 1000)
    assert weight_only_decode_time(deployment, batch, 1000, 0) == plain
    step = weight_only_decode_time(deployment, batch, 1000, 1)
    assert step.compute.linear == pytest.approx(2 * plain.compute.linear, rel=1e-12)
    assert step.compute.experts == pytest.approx(2 * plain.compute.experts, rel=1e-12)
    assert (step.compute.attention, step.compute.lm_head) == (plain.compute.attention, plain.compute.lm_head)
    assert (step.memory, step.communication, step.overhead) == (plain.memory, plain.communication, plain.overhead)
    low, high = sorted((less, more))
    slow = weight_only_decode_time(deployment, batch, 1000, high).total
    assert weight_only_decode_time(deployment, batch, 1000, low).total <= slow
    assert slow <= (1 + high) * plain.total * (1 + 1e-12)


def test_several_new_tokens_a_request_are_unpacked_for_as_well():
    assert weight_only_decode_time(SOURCE, 8, 0, 1, tokens=5).compute.linear == pytest.approx(
        2 * 5 * pm.decode_time(SOURCE, 8, 0).compute.linear
    )


# Room for the cache


def test_what_fits_by_hand():
    """Four devices of 80 GB at 0.9: 72 - 35 GB each left for a cache at 16 bits, 72 - 17.5 GB at 8."""
    wide = replace(SOURCE, accelerator=replace(SOURCE_DEVICE, memory_capacity=80e9), tensor_parallel=4)
    small = replace(wide, weight_bytes=1)
    assert kv_capacity_gain(wide, small, step_tokens=0) == pytest.approx(54.5 / 37, rel=1e-9)
    assert kv_capacity_gain(wide, replace(wide, kv_bytes=1), step_tokens=0) == pytest.approx(2, rel=1e-12)
    assert kv_capacity_gain(wide, replace(small, kv_bytes=1), step_tokens=0) == pytest.approx(109 / 37, rel=1e-9)
    # Activations take from both: 8,192 tokens of 2 d_ff / 4 + 4 d numbers of 2 bytes.
    activations = 8192 * 2 * (2 * SOURCE.model.ffn_size / 4 + 4 * 8192) / 1e9
    assert kv_capacity_gain(wide, small) == pytest.approx((54.5 - activations) / (37 - activations), rel=1e-9)


def test_the_gain_is_that_of_the_blocks_that_an_engine_lays_out():
    base = examples.served("llama-3.1-70b", "h100-sxm")
    for changes in ({"weight_bytes": 1}, {"kv_bytes": 1}, {"weight_bytes": 1, "kv_bytes": 1}):
        better = replace(base, **changes)
        blocks = pm.kv_blocks(better) / pm.kv_blocks(base)
        assert kv_capacity_gain(base, better) == pytest.approx(blocks, rel=1e-3)  # a block of some thousands


# Bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: element_bytes(0), ["element_bytes", "bits=0", "above 0"]),
        (lambda: element_bytes(4, 0), ["group=0", "at least 1"]),
        (lambda: element_bytes(4, 128, -2), ["scale_bytes=-2", "at least 0"]),
        (lambda: element_bytes(4, 128, 2, float("nan")), ["zero_bytes=nan"]),
        (lambda: weight_only_decode_time(SOURCE, 1, 0, -0.1), ["dequantization=-0.1", "at least 0"]),
        (lambda: overtaking_tokens(SOURCE, 1, -1), ["dequantization=-1"]),
        (lambda: overtaking_tokens(SOURCE, 0), ["weight_bytes=0"]),
        (
            lambda: kv_capacity_gain(replace(SOURCE, accelerator=replace(SOURCE_DEVICE, memory_capacity=80e9)), SOURCE),
            ["kv_capacity_gain", "KV budget", "above 0"],
        ),
    ],
    ids=range(8),
)
def test_bad_input(call, words):
    refused(call, *words)
