"""The cases of `data/cases.csv` that need more than the shape of an attention; the rest are in `test_published`."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import examples
import pytest
from examples import CONFIGS, INDEXER, LATENT, LLAMA, WINDOWED, refused

import perfmodel as pm
from perfmodel import data

HERE = Path(__file__).parent
with (HERE / "data" / "cases.csv").open(encoding="utf-8", newline="") as file:
    EVERY = list(csv.DictReader(file))
ROWS = {row["id"]: row for row in EVERY if row["quantity"] == "other"}

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
# Its shape is in a comment of the issue of sd-03, and has as many parameters as Qwen2.5-32B on the model hub.
QWQ = pm.Model("QwQ-32B", 64, 5120, 40, 8, 128, 27648, 152064, biases=(40 + 2 * 8) * 128)
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


def capacity_beside(capacity, utilization, kept_gib):
    """Tokens beside the weights and what the engine keeps, which the capacity here is made to lack."""
    lacking = capacity - kept_gib * 2**30 / utilization
    card = pm.Accelerator("rtx-4090", memory_capacity=lacking, memory_bandwidth=1.008e12, bf16_flops=165e12)
    deployment = pm.Deployment(data.model("llama-3.1-8b"), card, memory_utilization=utilization)
    return pm.kv_capacity_tokens(deployment, step_tokens=0)


def drafted(plain, tokens, draft_tokens, round_cost):
    """Tokens a second if verifying is free and drafts take the rest of the round."""
    return plain * pm.speculative_speedup(tokens, draft_tokens, (round_cost - 1) / draft_tokens)


def drafted_by_four(plain_of_one, drafted_of_one, plain_of_four, draft_tokens):
    """The gain on one GPU tells the tokens of a round; on four the head takes as long, and the target a quarter.

    EAGLE's head is a layer, a matrix 2d x d (as wide as 2 d / 3 more of feed-forward) and the target's LM head. Bytes
    alone set the ratio, so any card will do.
    """
    card = pm.Accelerator("any", memory_capacity=80e9, memory_bandwidth=1e12, bf16_flops=400e12)
    one = pm.Deployment(QWQ, card)
    four = replace(one, tensor_parallel=4)
    head = replace(one, model=replace(QWQ, layers=1, ffn_size=QWQ.ffn_size + 2 * QWQ.hidden_size / 3))
    costs = [pm.relative_draft_cost(head, target, 1, 0) for target in (one, four)]
    tokens = drafted_of_one / plain_of_one / pm.speculative_speedup(1, draft_tokens, costs[0])
    return plain_of_four * pm.speculative_speedup(tokens, draft_tokens, costs[1])


VALUES = {
    "kv-36": capacity_beside,
    "sd-01": drafted,
    "sd-02": drafted,
    "sd-03": drafted_by_four,
    "kv-22": windowed_cache,
    "kv-26": latent_cache,
    "kv-27": indexed_cache,
    "wt-03": lambda: pm.total_parameters(pm.Model.from_hf_config(QWEN3_4B)),
    "wt-04": lambda: pm.total_parameters(pm.Model.from_hf_config(QWEN2_72B)),
    "moe-02": visited,
    "pd-01": transfer_rate,
    "wt-08": blocks_left,
}


MEASURED = ("ms-70b-tp4-c4", "ms-01", "ms-02")


@pytest.mark.parametrize("name", VALUES)
def test_case(name):
    case = ROWS[name]
    value = VALUES[name](**json.loads(case["inputs"]))
    assert value == pytest.approx(float(case["expected"]), rel=1e-12, abs=float(case["tolerance"])), case["source"]


def step(model, accelerator, prompt, output, batch, fitted=False, **settings):
    """Milliseconds of a decode step at the mean context: the roofline, or with link and constants fitted elsewhere."""
    machine = data.accelerator(accelerator)
    served = {"link": machine.link, "constants": data.constants()} if fitted else {}
    deployment = pm.Deployment(data.model(model), machine, **served, **settings)
    return 1e3 * pm.decode_time(deployment, batch, prompt + output / 2).total


@pytest.mark.parametrize("name", MEASURED)
def test_measured_case(name):
    """A step faster than measured would mean a wrong unit, shape or peak; the tolerance is how far below it may be."""
    case = ROWS[name]
    inputs, measured = json.loads(case["inputs"]), float(case["expected"])
    assert measured - float(case["tolerance"]) < step(**inputs) < step(**inputs, fitted=True) < measured, case["source"]


def test_a_latent_cache_is_light():
    """ms-02: 8,192 tokens of prompt in place of 1,024 make a step 0.5 ms longer, 16.6 for 16.1; the bytes take 0.15.

    7,168 tokens of 70,272 byte, a copy on each GPU at 3.35 TB/s.
    """
    inputs = json.loads(ROWS["ms-02"]["inputs"])
    longer = step(**inputs | {"prompt": 8192}) - step(**inputs)
    assert longer == pytest.approx(1e3 * 7168 * 70_272 / 3.35e12)
    assert longer < 16.6 - 16.1


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "MistralForCausalLM", "Qwen3VLForConditionalGeneration"])
@pytest.mark.parametrize("block", json.loads(ROWS["cf-06"]["inputs"])["blocks"])
def test_sizes_in_a_nested_block_are_refused(architecture, block):
    """cf-06. So is a nested block beside sizes at the top, which are those of another part."""
    assert ROWS["cf-06"]["expected"] == "refused"
    nested = {key: value for key, value in LLAMA.items() if key != "architectures"}
    for name in reversed(block.split(".")):
        nested = {name: nested}
    words = "is missing" if architecture.endswith("CausalLM") else "is not known"
    refused(lambda: pm.Model.from_hf_config({"architectures": [architecture]} | nested), words)
    if architecture == "LlamaForCausalLM" and "." not in block:
        refused(lambda: pm.Model.from_hf_config(LLAMA | nested), f"{block}=", "is not a setting of")


@pytest.mark.parametrize("architecture", ["DeepseekV4ForCausalLM", "DeepseekV3ForCausalLM", "LlamaForCausalLM"])
def test_a_compressed_cache_is_refused(architecture):
    """cf-08: under its own name, and under a name whose keys are there."""
    assert ROWS["cf-08"]["expected"] == "refused"
    given = json.loads(ROWS["cf-08"]["inputs"])
    latent = json.loads((CONFIGS / "deepseek-ai--DeepSeek-V3.json").read_text(encoding="utf-8"))
    base = latent if architecture == "DeepseekV3ForCausalLM" else LLAMA
    words = {
        "DeepseekV4ForCausalLM": "is not known",
        "DeepseekV3ForCausalLM": "kv_lora_rank is null",
        "LlamaForCausalLM": "q_lora_rank=1024 is not a setting of",
    }
    refused(lambda: pm.Model.from_hf_config(base | given | {"architectures": [architecture]}), words[architecture])
    only = {"compress_ratios": given["compress_ratios"]}
    refused(lambda: pm.Model.from_hf_config(LLAMA | only), "compress_ratios=", "is not a setting of LlamaForCausalLM")


def test_every_row_is_used():
    """Rows called other are named here; `test_published` takes the rest by a quantity that it names."""
    assert {*VALUES, *MEASURED, "cf-06", "cf-08"} == set(ROWS)
    assert len({row["id"] for row in EVERY}) == len(EVERY)
    elsewhere = (HERE / "test_published.py").read_text(encoding="utf-8")
    assert 'not in ("concurrency", "other")' in elsewhere
    for row in EVERY:
        assert row["id"] in ROWS or f'"{row["quantity"]}"' in elsewhere, row["id"]


def test_the_shape_of_qwq():
    assert pm.total_parameters(QWQ) == 32_763_876_352


def test_weights_that_fit_leave_blocks():
    """The engine names 0.9113 as the least share of the memory that starts."""
    assert blocks_left(140.4, 125.65, 0.9113) > 0
