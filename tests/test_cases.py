"""The cases of `data/cases.csv` that need more than the shape of an attention; the rest are in `test_published`."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import examples
import pytest
from examples import INDEXER, LATENT, WINDOWED

import perfmodel as pm
from perfmodel import data

with (Path(__file__).parent / "data" / "cases.csv").open(encoding="utf-8", newline="") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file) if row["quantity"] == "other"}

QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
QWEN2_72B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 29568,
    "vocab_size": 152064,
}


def windowed_cache(requests, tokens):
    return requests * pm.kv_bytes_of_request(examples.served(WINDOWED), tokens) / 2**30


def latent_cache():
    return pm.kv_bytes_per_token(examples.served(LATENT))


def indexed_cache(tokens):
    """576 numbers of a vector take 656 byte with their scales and the rotary part in BF16."""
    indexed = examples.served(replace(LATENT, indexer=INDEXER), kv_bytes=656 / 576)
    return tokens * pm.kv_bytes_per_token(indexed) / 2**30


def visited(tokens):
    return pm.touched_experts(data.model("deepseek-v3"), tokens)


def transfer_rate(megabytes, milliseconds):
    """The bandwidth, in MB/s, of the link over which `send` takes as long as was logged."""
    slow = pm.Link("1 MB/s", bandwidth=1e6, latency=0)
    return pm.send(megabytes * 1e6, slow) / (milliseconds / 1e3)


def blocks_left(capacity_gb, weights_gb, utilization):
    model = pm.Model.of_size("any", weights_gb * 1e9 / 2, layers=61, heads=64, kv_heads=8, head_dim=128)
    card = pm.Accelerator("any", memory_capacity=capacity_gb * 1e9, memory_bandwidth=4.8e12, bf16_flops=989e12)
    return pm.kv_blocks(pm.Deployment(model, card, memory_utilization=utilization), step_tokens=0)


VALUES = {
    "kv-22": windowed_cache,
    "kv-26": latent_cache,
    "kv-27": indexed_cache,
    "wt-03": lambda: pm.total_parameters(pm.Model.from_hf_config(QWEN3_4B)),
    "wt-04": lambda: pm.total_parameters(pm.Model.from_hf_config(QWEN2_72B)),
    "moe-02": visited,
    "pd-01": transfer_rate,
    "wt-08": blocks_left,
}


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_case(case):
    value = VALUES[case["id"]](**json.loads(case["inputs"]))
    assert value == pytest.approx(float(case["expected"]), rel=1e-12, abs=float(case["tolerance"])), case["source"]


def test_every_function_has_a_row():
    assert set(VALUES) == set(ROWS)


def test_weights_that_fit_leave_blocks():
    """The engine names 0.9113 as the least share of the memory that starts."""
    assert blocks_left(140.4, 125.65, 0.9113) > 0
