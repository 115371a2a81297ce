"""Our numbers against numbers that others published or logged, and against counts written out by hand.

Every tolerance is that of the source: half of its last printed digit unless a comment says otherwise.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import examples
import pytest

import perfmodel as pm
from perfmodel import data

GIB = 2**30
with (Path(__file__).parent / "data" / "cases.csv").open(encoding="utf-8", newline="") as file:
    CASES = {row["id"]: row for row in csv.DictReader(file)}


def printed(value, last_digit):
    """A number whose source prints no digit beyond `last_digit`."""
    return pytest.approx(value, rel=0, abs=0.5 * last_digit * (1 + 1e-9))


# Parameter counts: sizes of the checkpoints as published.


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-2-70b", 68_976_648_192),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_parameter_counts(name, count):
    assert pm.total_parameters(data.model(name)) == count


def test_llama_2_70b_counted_by_hand():
    layer = 8192 * 8192 + 2 * 8192 * 1024 + 8192 * 8192 + 3 * 8192 * 28672 + 2 * 8192
    by_hand = 80 * layer + 8192 + 2 * 32000 * 8192
    assert pm.total_parameters(data.model("llama-2-70b")) == by_hand == 68_976_648_192


def test_mixtral_counted_by_hand():
    """Router and norms count; a token meets two of eight experts. The paper says 47B and 13B active."""
    expert = 3 * 4096 * 14336
    layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * 4096
    tables = 2 * 32000 * 4096 + 4096
    model = data.model("mixtral-8x7b")
    assert pm.total_parameters(model) == 32 * (layer + 8 * expert) + tables == 46_702_792_704
    assert pm.active_parameters(model) == 32 * (layer + 2 * expert) + tables == 12_879_925_248
    assert pm.active_parameters(model) / 1e9 == printed(13, 1)


def test_a_tied_head_is_counted_once():
    """The shape of Llama-3.2-1B, which ties its embeddings: 1,235,814,400 parameters on the model hub."""
    model = pm.Model("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, tied_embeddings=True)
    assert pm.total_parameters(model) == 1_235_814_400


def test_heads_wider_than_the_hidden_state_allows():
    """Mistral-Nemo-Base-2407: 32 heads of 128 on a width of 5,120; 12,247,782,400 parameters on the model hub."""
    model = pm.Model("mistral-nemo", 40, 5120, 32, 8, head_dim=128, ffn_size=14336, vocab_size=131072)
    assert pm.total_parameters(model) == 12_247_782_400


def test_learned_positions_biases_and_layer_norms():
    """GPT-2 small, every part by hand: 124,439,808 parameters, as the model hub shows."""
    shape = pm.Model("gpt-2", 12, 768, 12, 12, 64, 3072, 50257, positions=1024, tied_embeddings=True)
    model = replace(shape, ffn_matrices=2, ffn_bias=True, norm_vectors=2, biases=3 * 768 + 768)
    count = pm.parameters(model)
    assert count.embedding == 50257 * 768 + 1024 * 768
    assert count.attention == 12 * 4 * 768 * 768
    assert count.ffn == 12 * 2 * 768 * 3072
    assert count.norms == (12 * 2 + 1) * 2 * 768
    assert count.biases == 12 * (4 * 768 + 3072 + 768)
    assert (count.experts, count.shared_experts, count.router, count.lm_head) == (0, 0, 0, 0)
    assert count.total == 124_439_808


def test_biases_of_dense_layers_experts_and_router():
    """5 layers of width 8, the first two dense: a bias for each output of gate, up and down, wherever there is one."""
    mixture = {"experts": 2, "experts_per_token": 1, "shared_ffn_size": 5, "dense_layers": 2, "dense_ffn_size": 7}
    plain = pm.Model("any", 5, 8, 2, 2, 4, ffn_size=6, vocab_size=10, **mixture)
    model = replace(plain, biases=3, ffn_bias=True, router_bias=True, qk_norm=True)
    dense, expert, shared = 7 + 7 + 8, 6 + 6 + 8, 5 + 5 + 8
    count = pm.parameters(model)
    assert count.biases == 5 * 3 + 2 * dense + 3 * (2 * expert + shared + 2)
    assert count.ffn == 2 * 3 * 8 * 7
    assert count.experts == 3 * 2 * 3 * 8 * 6
    assert count.shared_experts == 3 * 3 * 8 * 5
    assert count.router == 3 * 8 * 2
    assert count.norms == (2 * 5 + 1) * 8 + 5 * 2 * 4
    assert pm.parameters(replace(model, shared_ffn_size=0)).biases == count.biases - 3 * shared
    assert pm.parameters(replace(model, shared_ffn_size=1)).biases == count.biases - 3 * shared + 3 * (1 + 1 + 8)
    assert pm.parameters(replace(model, ffn_bias=False, router_bias=False)).biases == 5 * 3
    assert pm.parameters(replace(model, norms=0)).norms == 5 * 2 * 4  # nor is there one after the last layer
    # One expert in each of three layers rests while a token passes, with its biases.
    assert pm.active_parameters(model) == count.total - 3 * (3 * 8 * 6 + expert)
    # A token meets no bias or norm as a matrix; the embedding is looked up.
    assert pm.matmul_parameters(model) == 5 * 4 * 8 * 8 + count.ffn + 3 * (3 * 8 * 6 + 3 * 8 * 5 + 8 * 2)
    touched = pm.touched_parameters(model, 2)  # of two experts each misses both tokens once in four
    assert touched.experts == pytest.approx(3 * 2 * 0.75 * (3 * 8 * 6 + expert))
    assert touched.linear == count.total - 2 * 80 - 3 * 2 * (3 * 8 * 6 + expert)
    assert touched.lm_head == 80


def test_new_tokens_of_a_step_multiply_all_of_its_work():
    """Verifying four drafted tokens: five go through every matrix, the LM head too, and attend to all of the cache."""
    flops = pm.decode_flops(SOURCE.model, 64, 1280, tokens=5)
    assert flops.linear == pytest.approx(2 * 70e9 * 64 * 5)
    assert flops.attention == pytest.approx(4 * 64 * 5 * 1280 * 64 * 128 * 80)
    llama = pm.decode_flops(data.model("llama-2-70b"), 64, 1280, tokens=5)
    assert llama.lm_head == 2 * 32000 * 8192 * 64 * 5
    routed = pm.decode_flops(data.model("mixtral-8x7b"), 64, 1280, tokens=5)
    assert routed.experts == 2 * 32 * 2 * 3 * 4096 * 14336 * 64 * 5
    # The cache is read once for all five.
    assert pm.decode_time(SOURCE, 64, 1280, tokens=5).memory.attention == pytest.approx(64 * 1280 * 327_680 / 3.35e12)


# KV cache


@pytest.mark.parametrize("name", ["llama-2-70b", "llama-3.1-70b"])
def test_kv_bytes_of_a_token(name):
    """2 x 80 layers x 8 heads x 128 x 2 byte; at TP 8 an eighth of it on each GPU."""
    assert pm.kv_bytes_per_token(examples.served(name)) == 327_680
    assert pm.kv_bytes_per_token_per_gpu(examples.served(name, tensor_parallel=8)) == 40_960


def budget(inputs):
    """Bytes for the cache on each GPU, as the log states them."""
    if "budget_bytes" in inputs:
        return inputs.pop("budget_bytes")
    stated = inputs.pop("budget_gib")
    if isinstance(stated, list):
        total, utilization, peak, other = stated
        stated = total * utilization - peak - other
    return stated * GIB


def computed(quantity, inputs):
    """The case's quantity, by the functions of the package."""
    if quantity == "weights":
        count = pm.parameters(data.model(inputs["model"]))
        tables = count.embedding + count.lm_head + count.norms
        return inputs["table_bytes"] * tables + inputs["linear_bytes"] * (count.total - tables)
    if quantity in ("blocks", "tokens"):
        deployment, paging = examples.cache_of(budget(inputs), **inputs)
        return {"blocks": pm.kv_blocks, "tokens": pm.kv_capacity_tokens}[quantity](deployment, **paging)
    tokens = inputs.pop("tokens", 1)
    deployment, _ = examples.cache_of(1e9, **inputs)
    if quantity == "cache":
        return tokens * pm.kv_bytes_per_token(deployment)
    if quantity == "cache_per_gpu":
        return tokens * pm.kv_bytes_per_token_per_gpu(deployment)
    assert quantity == "kv_heads_per_gpu"
    return pm.kv_bytes_per_token_per_gpu(deployment) / pm.kv_bytes_per_token(deployment) * inputs["kv_heads"]


@pytest.mark.parametrize(
    "case", [row for row in CASES.values() if row["quantity"] not in ("concurrency", "other")], ids=lambda r: r["id"]
)
def test_logged_cases(case):
    expected, tolerance = float(case["expected"]), float(case["tolerance"])
    value = computed(case["quantity"], json.loads(case["inputs"]))
    assert value == pytest.approx(expected, rel=1e-12, abs=tolerance), case["source"]


@pytest.mark.parametrize(
    "case", [row for row in CASES.values() if row["quantity"] == "concurrency"], ids=lambda r: r["id"]
)
def test_logged_concurrency(case):
    """vLLM prints blocks over blocks of a request with a fraction; we count whole requests of it."""
    inputs, logged = json.loads(case["inputs"]), float(case["expected"])
    blocks, tokens = inputs.pop("blocks"), inputs.pop("tokens")
    deployment, _ = examples.cache_of(0, **inputs)
    deployment, paging = examples.cache_of(blocks * 16 * pm.kv_bytes_per_token(deployment), **inputs)
    assert pm.kv_blocks(deployment, **paging) == blocks
    assert blocks / -(-tokens // 16) == pytest.approx(logged, abs=float(case["tolerance"]))
    assert pm.max_concurrency(deployment, tokens, **paging) == int(logged), case["source"]


def test_our_estimate_of_the_cache_is_an_upper_bound():
    """vLLM 0.19 on an RTX 4090 logged 41,408 tokens; it also keeps CUDA graphs and a context, which we leave out.

    casys-kaist/LLMServingSim, bench/examples/RTX4090/Llama-3.1-8B/vllm/meta.json.
    """
    card = pm.Accelerator("rtx-4090", memory_capacity=25_250_627_584, memory_bandwidth=1.008e12, bf16_flops=165e12)
    deployment = pm.Deployment(data.model("llama-3.1-8b"), card, memory_utilization=0.9)
    assert pm.kv_capacity_tokens(deployment, step_tokens=0) == 50_848  # weights alone; worked out in the source
    assert 41_408 < pm.kv_capacity_tokens(deployment, step_tokens=2048) < 50_848


# The article that the course grew out of: N = 70e9, 742 TFLOP/s, 3.35 TB/s, one hypothetical device.

SOURCE = examples.SOURCE


@pytest.mark.parametrize(("prompt", "arithmetic", "traffic"), [(128, 24.2, 41.8), (2048, 401.2, 42.0)])
def test_source_prefill(prompt, arithmetic, traffic):
    step = pm.prefill_time(SOURCE, prompt, causal=False)
    assert step.compute.total * 1e3 == printed(arithmetic, 0.1)
    assert step.memory.total * 1e3 == printed(traffic, 0.1)
    linear, attention = 2 * 70e9 * prompt, 4 * prompt**2 * 64 * 128 * 80
    assert step.compute.total == pytest.approx((linear + attention) / 742e12)
    assert step.memory.total == pytest.approx((2 * 70e9 + 2 * 2 * 80 * 8 * 128 * prompt) / 3.35e12)


def test_a_prefill_skips_the_masked_half_unless_said():
    flops, step = pm.prefill_flops(SOURCE.model, 2048), pm.prefill_time(SOURCE, 2048)
    assert flops.attention == pytest.approx(4 * 2048 * 2049 / 2 * 64 * 128 * 80)
    assert step.compute.attention == pytest.approx(flops.attention / 742e12)


@pytest.mark.parametrize("causal", [True, False])
def test_source_prefill_crossover(causal):
    """221 tokens, not the 400 that the article says."""
    assert pm.totals_ridge_prompt(SOURCE, causal) == printed(221, 1)
    assert pm.ridge_tokens(SOURCE) == pytest.approx(742 / 3.35)


def test_source_attention_is_a_small_part_at_the_crossover():
    flops = pm.prefill_flops(SOURCE.model, 221, causal=False)
    assert 100 * flops.attention / flops.total == printed(0.4, 0.1)


@pytest.mark.parametrize(
    ("batch", "context", "milliseconds"),
    [(1, 0, 41.8), (4, 1280, 42.3), (16, 1280, 43.8), (64, 1280, 49.8), (128, 1280, 57.8)],
)
def test_source_decode(batch, context, milliseconds):
    step = pm.decode_time(SOURCE, batch, context)
    assert step.total * 1e3 == printed(milliseconds, 0.1)
    assert step.total == pytest.approx((2 * 70e9 + batch * context * 327_680) / 3.35e12)


@pytest.mark.parametrize(
    ("tensor_parallel", "batch", "totals", "parts"),
    [(1, 256, 73.8, 80.4), (4, 221, 17.4, 17.4), (4, 256, 18.5, 20.1), (4, 411, 23.3, 32.3)],
)
def test_source_decode_by_totals_and_by_parts(tensor_parallel, batch, totals, parts):
    step = pm.decode_time(replace(SOURCE, tensor_parallel=tensor_parallel), batch, 1280)
    arithmetic = (2 * 70e9 * batch / 742e12, 4 * batch * 1280 * 64 * 128 * 80 / 742e12)
    traffic = (2 * 70e9 / 3.35e12, batch * 1280 * 327_680 / 3.35e12)
    assert step.by_totals == pytest.approx(max(sum(arithmetic), sum(traffic)) / tensor_parallel)
    assert step.total == pytest.approx(sum(map(max, arithmetic, traffic)) / tensor_parallel)
    assert step.by_totals * 1e3 == printed(totals, 0.1)
    assert step.total * 1e3 == printed(parts, 0.1)


def test_source_whole_step_crossovers():
    assert pm.totals_ridge_batch(SOURCE, 1280) == printed(615, 1)
    assert pm.totals_ridge_context(SOURCE) == printed(2001, 1)
    peak = replace(SOURCE, accelerator=replace(SOURCE.accelerator, bf16_flops=989e12))
    assert pm.totals_ridge_context(peak) == printed(1488, 1)


def test_source_attention_equals_the_linear_layers():
    """At N / (2 H_q D L) tokens without a mask, twice as many with it."""
    assert pm.attention_equals_linear(SOURCE.model, causal=False) == pytest.approx(70e9 / (2 * 64 * 128 * 80))
    assert pm.attention_equals_linear(SOURCE.model, causal=False) == printed(53_406, 1)
    assert pm.attention_equals_linear(SOURCE.model) == printed(106_811, 1)


def test_attention_has_an_intensity_of_its_own():
    """2 H_q / (H_kv b_kv) FLOP a byte, whatever batch and context: 8 for Llama-70B in BF16."""
    step = pm.decode_time(SOURCE, 64, 1280)
    assert step.compute.attention * 742e12 / (step.memory.attention * 3.35e12) == pytest.approx(2 * 64 / (8 * 2))


def test_experts_touched_by_a_batch():
    """DeepSeek-V3's routing, 8 of 256: the closed form at 64 tokens, 222.4, and its ends."""
    model = pm.Model("routed", 58, 7168, 128, 128, 128, 2048, 129280, experts=256, experts_per_token=8)
    assert pm.touched_experts(model, 64) == printed(222.4, 0.1)
    assert pm.touched_experts(model, 512) == printed(256.0, 0.1)


@pytest.mark.parametrize(
    ("model", "total", "active", "tokens"),
    [
        (data.model("mixtral-8x7b"), 46.7, 12.9, 1070),
        (examples.LATENT, 671, 37, 5350),
    ],
    ids=["mixtral", "deepseek-v3"],
)
def test_ridge_of_a_mixture_of_experts(model, total, active, tokens):
    """By the rule of thumb R N / N_act at R = 295 FLOP/byte; published sizes in billions of parameters.

    Our own leaves out the tables, which only the last token of a sequence meets, and counts what a layer multiplies.
    """
    assert pm.total_parameters(model) / 1e9 == pytest.approx(total, rel=5e-3)
    assert pm.active_parameters(model) / 1e9 == pytest.approx(active, rel=2e-2)
    assert 295 * pm.total_parameters(model) / pm.active_parameters(model) == pytest.approx(tokens, rel=2e-2)
    machine = pm.Accelerator("any", memory_capacity=1e12, memory_bandwidth=1e12, bf16_flops=295e12)
    tables = 2 * model.vocab_size * model.hidden_size
    without = (pm.total_parameters(model) - tables) / (pm.active_parameters(model) - tables)
    assert pm.ridge_tokens(pm.Deployment(model, machine)) == pytest.approx(295 * without, rel=1e-3)  # norms
    step = pm.decode_time(pm.Deployment(model, machine), pm.ridge_tokens(pm.Deployment(model, machine)), 0)
    both = [part.linear + part.experts for part in (step.compute, step.memory)]
    assert both[0] == pytest.approx(both[1], rel=1e-3)  # almost all experts are touched by then


def test_context_whose_cache_weighs_as_much_as_the_weights():
    """140 GB over 327,680 byte a token: 427,246 tokens, one request's or 64 requests' together."""
    assert pm.kv_equals_weights(SOURCE, 1) == pytest.approx(140e9 / 327_680)
    assert pm.kv_equals_weights(SOURCE, 64) == pytest.approx(140e9 / 327_680 / 64)
    step = pm.decode_time(SOURCE, 64, pm.kv_equals_weights(SOURCE, 64))
    assert step.memory.attention == pytest.approx(step.memory.linear)


def test_all_reduce_by_hand():
    """One token of Llama-70B is 16 KiB; over 4 GPUs 3/4 of it leave each GPU twice."""
    link = pm.Link("any", bandwidth=370e9, latency=10e-6)
    assert pm.all_reduce(16384, 4, link) == pytest.approx(10e-6 + 1.5 * 16384 / 370e9)
    deployment = replace(SOURCE, tensor_parallel=4, link=link)
    assert pm.tensor_parallel_time(deployment, 1) == pytest.approx(160 * (10e-6 + 1.5 * 16384 / 370e9))


def test_crossovers_of_a_mixture_with_latent_attention():
    """DeepSeek-V3 on one device of 295 FLOP/byte.

    Prefill expands the cache: 2 x 128 (192 + 128) FLOPs a pair and layer; decode absorbs: 2 x 128 (2 x 512 + 64).
    """
    machine = pm.Accelerator("any", memory_capacity=1e13, memory_bandwidth=1e12, bf16_flops=295e12)
    device = pm.Deployment(examples.LATENT, machine)
    matrices = 61 * 187_105_280 + 3 * 3 * 7168 * 18432 + 58 * (9 * 3 * 7168 * 2048 + 7168 * 256)
    table = 129280 * 7168
    unmasked = 2 * matrices / (61 * 2 * 128 * 320)
    assert pm.attention_equals_linear(examples.LATENT, causal=False) == pytest.approx(unmasked)
    assert pm.attention_equals_linear(examples.LATENT) == pytest.approx(2 * unmasked - 1)
    lost = 70_272 / 1e12 - 61 * 2 * 128 * 1088 / 295e12  # by a cached token: more traffic than arithmetic
    assert pm.totals_ridge_context(device) == pytest.approx(2 * (matrices + table) / 295e12 / lost)
    weights = 2 * (671_026_419_200 - table) / 1e12  # of which a step reads all but the embedding
    assert pm.totals_ridge_batch(device, 1000) == pytest.approx(
        weights / (2 * (matrices + table) / 295e12 - 1000 * lost)
    )
    assert pm.kv_equals_weights(device, 100) == pytest.approx(weights / (100 * 70_272 / 1e12))
    # Half of the pairs are masked unless said, so the traffic is outweighed later.
    assert pm.totals_ridge_prompt(device) > 1.01 * pm.totals_ridge_prompt(device, causal=False)
    for causal in (True, False):
        tokens = pm.totals_ridge_prompt(device, causal)  # thousands, which visit all experts
        pairs = 61 * 2 * 128 * 320 * (tokens * (tokens + 1) / 2 if causal else tokens**2)
        arithmetic = (2 * matrices * tokens + 2 * table + pairs) / 295e12
        assert arithmetic == pytest.approx(weights + 70_272 * tokens / 1e12)


# Measurements


def closed_loop(point):
    return point["note"].startswith("closed loop")


def predicted(point, **settings):
    """Seconds of a measured point: a static batch, all prompts prefilled in one pass, then decoded together.

    In a closed loop each prompt is prefilled by itself, at the earliest as soon as it comes.
    """
    accelerator, output = data.accelerator(point["accelerator"]), point["output"]
    if point["precision"] == "FP8":  # of the cache, too, where that is not stated: the faster
        settings |= {"weight_bytes": 1, "table_bytes": 2, "kv_bytes": 1, "compute": "fp8"}
    deployment = pm.Deployment(
        data.model(point["model"]), accelerator, tensor_parallel=point["tensor_parallel"], **settings
    )
    prompts = 1 if closed_loop(point) else point["batch"]
    ttft = pm.prefill_time(deployment, point["prompt"], prompts=prompts).total
    tpot = pm.decode_time(deployment, point["batch"], point["prompt"] + output / 2).total
    return {"ttft": ttft, "tpot": tpot, "e2e": pm.end_to_end(ttft, tpot, output)}[point["quantity"]]


@pytest.mark.parametrize("group", data.names("measurements"))
def test_measurements_lie_above_the_roofline(group):
    """A faster point would mean a wrong unit, shape or peak. The slowest of 2023 take five times the ideal.

    In a closed loop prefills come between a request's steps, and a prompt may wait for others: there is no such bound.
    The constants fitted elsewhere close part of the gap on every point, and overshoot none.
    """
    for point in data.measurements(group):
        ideal = predicted(point)
        served = predicted(point, link=data.accelerator(point["accelerator"]).link, constants=data.constants())
        assert ideal < served < point["value"], point
        assert closed_loop(point) or ideal > 0.2 * point["value"], point
