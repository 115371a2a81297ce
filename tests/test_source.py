"""What the article computes outside chapter 6, against values worked out from its inputs by hand.

`data/source_computed.csv` holds the right value of each; where the article prints another, the note says which.
"""

import csv
from dataclasses import replace
from pathlib import Path

import examples
import pytest

import perfmodel as pm
from perfmodel import counts, data

with (Path(__file__).parent / "data" / "source_computed.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}

BF16 = examples.SOURCE
FP8 = replace(BF16, weight_bytes=1, compute="fp8", accelerator=replace(BF16.accelerator, fp8_flops=2 * 742e12))
INT4 = replace(BF16, weight_bytes=0.5)
ASCEND = pm.Accelerator("3.2 TB/s", memory_capacity=1e12, memory_bandwidth=3.2e12, bf16_flops=752e12)
NDR = pm.Link("400 Gb/s", bandwidth=400e9 / 8, latency=0)


def step(deployment, batch=1):
    """Milliseconds of a decode step on weights alone."""
    return pm.decode_time(deployment, batch, 0).by_totals * 1e3


def on_ascend(deployment, **degrees):
    return replace(deployment, accelerator=ASCEND, **degrees)


def weights(deployment):
    """Gigabytes of weights on an accelerator."""
    return pm.weight_bytes_per_gpu(deployment) / 1e9


def gain(batch):
    """Speed-up of four drafts accepted at 0.8, a draft a tenth of the cost, weights alone."""
    verify = pm.relative_verify_cost(BF16, batch, 0, 5)
    return pm.speculative_speedup(pm.expected_tokens(0.8, 4), 4, 0.1, verify)


def payload(tokens):
    """Bytes that one all-reduce sums: the link takes a second a byte, and a ring of two moves the payload once."""
    return pm.all_reduce(tokens * 8192 * 2, 2, pm.Link("1 B/s", bandwidth=1, latency=0))


def without_vectors(name, count):
    """Billions of parameters in matrices: the hand count leaves out norms, and the router's bias of DeepSeek-V3."""
    model = data.model(name)
    router_biases = (model.layers - model.dense_layers) * model.experts if model.router_bias else 0
    return (count(model) - pm.parameters(model).norms - router_biases) / 1e9


def first_token(deployment):
    """Seconds of a prefill of 1,024 tokens, every pair of tokens counted as the article does."""
    return pm.prefill_time(deployment, 1024, causal=False).by_totals


def to_the_end(deployment):
    """Seconds to the last of 256 tokens behind 1,024, on weights alone."""
    return first_token(deployment) + 255 * step(deployment) / 1e3


DEEPSEEK = data.model("deepseek-v3")
LATENT_TP_8 = examples.served("deepseek-v3", tensor_parallel=8)
LATENT_DCP_8 = replace(LATENT_TP_8, decode_context_parallel=8)

VALUES = {
    "c03.1-03": lambda: 100 * pm.contiguous_utilization(20, 4096),
    "c03.2-02": lambda: pm.blocks_of(30, 16),
    "c03.2-03": lambda: 16 - pm.wasted_tokens(30, 16),
    "c03.2-04": lambda: pm.blocks_of(8, 16),
    "c04.3-02": lambda: pm.kv_bytes_of_request(BF16, 32768) / 1e9,
    "c04.3-03": lambda: pm.kv_transfer_time(BF16, 32768, NDR) * 1e3,
    "c05.2-04": lambda: pm.expected_tokens(0.8, 4) * (1 - 0.8),
    "c05.2-06": lambda: pm.speculative_speedup(pm.expected_tokens(0.8, 4), 4, 0.1),
    "c07.1-01": lambda: weights(replace(BF16, tensor_parallel=4)),
    "c07.1-04": lambda: step(replace(BF16, tensor_parallel=4)),
    "c07.1-05": lambda: step(replace(BF16, pipeline_parallel=4)),
    "c07.1-10": lambda: 2 * payload(1024) / 1e6,
    "c07.1-11": lambda: payload(1) / 1e3,
    "c07.1-14": lambda: weights(replace(BF16, tensor_parallel=8)),
    "c07.1-15": lambda: step(on_ascend(BF16, tensor_parallel=8)),
    "c07.2-04": lambda: weights(replace(BF16, tensor_parallel=2)),
    "c07.2-10": lambda: 2 * without_vectors("mixtral-8x7b", pm.total_parameters),
    "c08.2-02": lambda: step(FP8),
    "c08.2-03": lambda: step(BF16) / step(FP8),
    "c08.2-06": lambda: step(BF16) / step(INT4),
    "c08.2-07": lambda: 100 * (1 - weights(INT4) / weights(BF16)),
    "c08.3-04": lambda: weights(FP8),
    "c08.3-05": lambda: step(on_ascend(BF16)),
    "c08.3-06": lambda: step(on_ascend(BF16, weight_bytes=1)),
    "c08.3-08": lambda: step(on_ascend(INT4)),
    "c09.2-04": lambda: first_token(replace(BF16, tensor_parallel=4)) * 1e3,
    "c09.2-07": lambda: to_the_end(replace(BF16, tensor_parallel=4)),
    "c09.2-08": lambda: 256 / to_the_end(replace(BF16, tensor_parallel=4)),
    "c09.2-05": lambda: step(replace(BF16, tensor_parallel=4)),
    "c09.3-02": lambda: 4 * weights(replace(BF16, tensor_parallel=4)),
    "c09.3-06": lambda: pm.kv_bytes_of_request(BF16, 1280) / 1e6,
    "c09.4-04": lambda: step(replace(BF16, tensor_parallel=4), 4),
    "c09.4-07": lambda: step(replace(BF16, tensor_parallel=4), 128),
    "c09.4-05": lambda: step(replace(BF16, tensor_parallel=4), 16),
    "c09.4-06": lambda: step(replace(BF16, tensor_parallel=4), 64),
    "c09.5-03": lambda: step(FP8) / step(replace(BF16, tensor_parallel=4)),
    "c09.5-08": lambda: step(replace(FP8, tensor_parallel=2)),
    "c09.5-14": lambda: step(replace(BF16, tensor_parallel=4)) / step(replace(FP8, tensor_parallel=4)),
    "c09.5-07": lambda: weights(replace(FP8, tensor_parallel=2)),
    "c09.5-12": lambda: weights(replace(FP8, tensor_parallel=4)),
    "c09.5-13": lambda: step(replace(FP8, tensor_parallel=4)),
    "c09.5-20": lambda: step(replace(FP8, tensor_parallel=4), 128),
    "c09.6-04": lambda: gain(4),
    "c09.6-07": lambda: gain(16),
    "c09.6-10": lambda: gain(64),
    "c09.6-13": lambda: gain(128),
    "c10.1-01": lambda: without_vectors("deepseek-v3", pm.total_parameters),
    "c10.1-07": lambda: (counts.routed_parameters(DEEPSEEK, 2) + pm.parameters(DEEPSEEK).shared_experts) / 1e9,
    "c10.3-01": lambda: pm.kv_bytes_per_token_per_gpu(LATENT_TP_8) / pm.kv_bytes_per_token_per_gpu(LATENT_DCP_8),
    "c10.5-08": lambda: without_vectors("mixtral-8x7b", pm.total_parameters),
    "c10.5-09": lambda: without_vectors("mixtral-8x7b", pm.active_parameters),
    "c10.5-16": lambda: without_vectors("deepseek-v3", pm.active_parameters),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_value(row):
    places = len(row["expected"].partition(".")[2])
    half_a_digit = 0.5 * 10**-places if places else 1e-9
    assert VALUES[row["id"]]() == pytest.approx(float(row["expected"]), rel=0, abs=half_a_digit * (1 + 1e-9)), row


def test_every_value_has_a_row():
    assert set(VALUES) == set(ROWS)
