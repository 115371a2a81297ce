"""What the article computes of memory, transfer, speculation, parallelism and quantisation (chapters 3 to 5, 7 and 8).

`data/source_first.csv` holds values worked out by hand to eight digits, trailing zeros left out; where the article
prints another, the note says which.
"""

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import examples
import pytest

import perfmodel as pm
from perfmodel import data

with (Path(__file__).parent / "data" / "source_first.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}
VALUES: dict[str, Callable[[], float]] = {}

BLOCK = 16
ACCEPTANCE, DRAFTS = 0.8, 4

# The article's 70B on one device that holds it, and on four and eight; FP8 and INT8 double the arithmetic.
BF16 = replace(examples.SOURCE, accelerator=replace(examples.SOURCE_DEVICE, fp8_flops=2 * 742e12))
FP8 = replace(BF16, weight_bytes=1, compute="fp8")
INT4 = replace(BF16, weight_bytes=0.5)
TP4, TP8 = (replace(BF16, tensor_parallel=cards) for cards in (4, 8))
PP4 = replace(BF16, pipeline_parallel=4)

# Its Ascend 910C has 3.2 TB/s; here too, one device holds the model.
ASCEND = pm.Accelerator("910C", memory_capacity=1e12, memory_bandwidth=3.2e12, bf16_flops=752e12, int8_flops=2 * 752e12)
ASCEND_BF16, ASCEND_TP8, ASCEND_INT4 = (replace(one, accelerator=ASCEND) for one in (BF16, TP8, INT4))
ASCEND_INT8 = replace(ASCEND_BF16, weight_bytes=1, compute="int8")

# 405e9 parameters with the attention of Llama-3.1-405B, and 7e9 with that of Llama-2-7B.
LARGE = pm.Model.of_size("405B", 405e9, layers=126, heads=128, kv_heads=8, head_dim=128)
LARGE_FP8 = replace(FP8, model=LARGE)
DRAFT = replace(BF16, model=pm.Model.of_size("7B", 7e9, layers=32, heads=32, kv_heads=32, head_dim=128))

NDR = pm.Link("400 Gb/s", bandwidth=400e9 / 8, latency=0)
HCCS = pm.Link("48 GB/s", bandwidth=48e9, latency=0)
COUNTER = pm.Link("1 B/s", bandwidth=1, latency=0)  # its seconds are the bytes that a card sends


def row(*ids):
    """Registers a function as the value of these rows."""

    def register(function):
        assert not VALUES.keys() & set(ids), ids
        VALUES.update(dict.fromkeys(ids, function))
        return function

    return register


def step(deployment):
    """Milliseconds of a decode step of one request on weights alone."""
    return pm.decode_time(deployment, 1, 0).by_totals * 1e3


def weights(deployment):
    """Gigabytes of weights on a card."""
    return pm.weight_bytes_per_gpu(deployment) / 1e9


def payload_of_a_layer(tokens):
    """Bytes of both all-reduces; in a ring of four a card sends 2 x 3/4 of them."""
    return pm.tensor_parallel_time(replace(TP4, link=COUNTER), tokens) / TP4.model.layers / (2 * 3 / 4)


# Chapter 3: places of the KV cache


@row("c03.1-03")
def used_of_a_reservation():
    return 100 * pm.contiguous_utilization(20, 4096)


@row("c03.2-02")
def blocks_of_30():
    return pm.blocks_of(30, BLOCK)


@row("c03.2-03")
def tokens_in_the_last_block():
    return BLOCK - pm.wasted_tokens(30, BLOCK)


@row("c03.2-04")
def blocks_of_8():
    return pm.blocks_of(8, BLOCK)


@row("c03.3-04")
def requests_over_those_before_paging():
    """24 tokens take 25 places at 96 %, and 60 at 40 %; 2,400 places of four bytes hold a whole number of either."""
    deployment, options = examples.cache_of(2400 * 4, layers=1, kv_heads=1, head_dim=1, block_size=1)
    paged, reserved = (pm.contiguous_concurrency(deployment, places, **options) for places in (25, 60))
    return paged / reserved


# Chapter 4: the cache on its way from prefill to decode


@row("c04.3-02")
def cache_of_a_long_prompt():
    return pm.kv_bytes_of_request(BF16, 32768) / 1e9


@row("c04.3-03")
def transfer_of_it():
    return pm.kv_transfer_time(BF16, 32768, NDR) * 1e3


# Chapter 5: speculation


@row("c05.1-02")
def tokens_of_a_round():
    return pm.expected_tokens(1, 3)


@row("c05.2-03")
def cost_of_a_draft():
    return pm.relative_draft_cost(DRAFT, BF16, 1, 0)


@row("c05.2-04")
def numerator():
    return pm.expected_tokens(ACCEPTANCE, DRAFTS) * (1 - ACCEPTANCE)


@row("c05.2-06")
def gain():
    return pm.speculative_speedup(pm.expected_tokens(ACCEPTANCE, DRAFTS), DRAFTS, cost_of_a_draft())


# Chapter 7: several cards


@row("c07.1-01")
def weights_at_tp_4():
    return weights(TP4)


@row("c07.1-04")
def step_at_tp_4():
    return step(TP4)


@row("c07.1-05")
def step_at_pp_4():
    return step(PP4)


@row("c07.1-10")
def payload_of_a_prompt():
    return payload_of_a_layer(1024) / 1e6


@row("c07.1-11")
def payload_of_a_token():
    return payload_of_a_layer(1) / 2 / 1e3


@row("c07.1-12")
def time_of_302_megabytes():
    return pm.send(302e6, HCCS) * 1e3


@row("c07.1-14")
def weights_at_tp_8():
    return weights(TP8)


@row("c07.1-15")
def step_at_tp_8_on_ascend():
    return step(ASCEND_TP8)


@row("c07.2-03")
def weights_in_bf16():
    return weights(BF16)


@row("c07.2-04")
def weights_at_tp_2():
    return weights(replace(BF16, tensor_parallel=2))


@row("c07.2-08")
def weights_of_405b():
    return weights(LARGE_FP8)


@row("c07.2-09")
def weights_of_405b_at_tp_8():
    return weights(replace(LARGE_FP8, tensor_parallel=8))


@row("c07.2-10")
def mixtral():
    """Without the norms, which the hand count leaves out."""
    deployment = replace(BF16, model=data.model("mixtral-8x7b"))
    return weights(deployment) - 2 * pm.parameters(deployment.model).norms / 1e9


# Chapter 8: fewer bits


@row("c08.2-01")
def step_in_bf16():
    return step(BF16)


@row("c08.2-02")
def step_in_fp8():
    return step(FP8)


@row("c08.2-03")
def speedup_of_fp8():
    return step(BF16) / step(FP8)


@row("c08.2-06")
def speedup_of_int4():
    return step(BF16) / step(INT4)


@row("c08.2-07")
def saved_by_int4():
    return 100 * (1 - weights(INT4) / weights(BF16))


@row("c08.3-04")
def weights_in_int8():
    return weights(ASCEND_INT8)


@row("c08.3-05")
def step_in_bf16_on_ascend():
    return step(ASCEND_BF16)


@row("c08.3-06")
def step_in_int8_on_ascend():
    return step(ASCEND_INT8)


@row("c08.3-08")
def step_in_int4_on_ascend():
    return step(ASCEND_INT4)


@pytest.mark.parametrize("given", ROWS.values(), ids=ROWS)
def test_value(given):
    expected = float(given["expected"])
    half_a_digit = 0.5 * 10.0 ** (math.floor(math.log10(expected)) - 7)  # the eighth
    assert VALUES[given["id"]]() == pytest.approx(expected, rel=0, abs=half_a_digit), given


def test_every_value_has_a_row():
    assert set(VALUES) == set(ROWS)
