"""Attention of every kind, against counts by brute force: matrices listed one by one, pairs counted in loops."""

from dataclasses import replace

import examples
import pytest
from examples import INDEXER, LATENT, WINDOWED, refused
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import attention, crossovers, data, kvcache

SMALL = st.integers(1, 40)


# Weights


def test_latent_attention_of_deepseek_v3_counted_by_hand():
    """Each matrix as the paper draws it (arXiv:2412.19437, section 2.1.1; sizes in section 4.2)."""
    query = 7168 * 1536 + 1536 * (128 * (128 + 64))
    key_value = 7168 * (512 + 64) + 512 * (128 * (128 + 128))
    output = (128 * 128) * 7168
    assert attention.attention_weights(LATENT) == query + key_value + output == 187_105_280
    assert attention.attention_norms(LATENT) == 1536 + 512
    plain = replace(LATENT, latent=replace(LATENT.latent, query_rank=0))
    assert attention.attention_weights(plain) == 7168 * (128 * (128 + 64)) + key_value + output


def test_indexer_of_deepseek_v32_counted_by_hand():
    """64 heads of 128 on the compressed query, one key of 128 a token with a LayerNorm, 64 head weights."""
    added = attention.attention_weights(replace(LATENT, indexer=INDEXER)) - attention.attention_weights(LATENT)
    assert added == 1536 * 64 * 128 + 7168 * 128 + 7168 * 64
    assert attention.attention_norms(replace(LATENT, indexer=INDEXER)) == 1536 + 512 + 2 * 128


def test_norms_of_query_and_key():
    assert attention.attention_norms(replace(WINDOWED, qk_norm=True)) == 2 * 64
    assert attention.attention_norms(replace(WINDOWED, qk_norm=False)) == 0


# FLOPs


def test_flops_of_a_pair_by_multiplying_vectors():
    """Two FLOPs for each element of the score's and of the output's vectors, in every head."""
    assert attention.pair_flops(data.model("llama-2-70b"), absorbed=False) == 64 * (2 * 128 + 2 * 128)
    expanded = 128 * (2 * (128 + 64) + 2 * 128)
    absorbed = 128 * (2 * (512 + 64) + 2 * 512)
    assert attention.pair_flops(LATENT, absorbed=False) == expanded
    assert attention.pair_flops(LATENT, absorbed=True) == absorbed
    assert attention.expansion_flops(LATENT) == 2 * 512 * 128 * 128 * 2  # keys and values
    assert attention.expansion_flops(WINDOWED) == 0
    assert attention.index_flops(replace(LATENT, indexer=INDEXER)) == 2 * 64 * 128
    assert attention.index_flops(LATENT) == 0


def test_latent_attention_is_compute_bound_by_itself():
    """2 H (2 r_kv + d_rope) FLOPs over 2 (r_kv + d_rope) bytes: 242 FLOP a byte in BF16, near the ridge of an H100."""
    deployment = examples.served(LATENT, tensor_parallel=1, constants=pm.IDEAL)
    step = pm.decode_time(deployment, 64, 1280)
    intensity = step.compute.attention * deployment.flops / (step.memory.attention * deployment.bandwidth)
    assert intensity == pytest.approx(128 * (2 * 512 + 64) / (512 + 64))
    assert intensity == pytest.approx(242, abs=0.5)


@given(SMALL, st.integers(0, 40), SMALL, st.booleans())
def test_pairs_of_a_prefill_one_by_one(prompt, prefix, at_most, causal):
    seen = [prefix + i + 1 if causal else prefix + prompt for i in range(prompt)]
    assert attention.prefill_pairs(prompt, causal, prefix) == sum(seen)
    assert attention.prefill_pairs(prompt, causal, prefix, at_most) == sum(min(one, at_most) for one in seen)


@given(SMALL, st.integers(0, 40), SMALL, st.integers(0, 24))
def test_attended_tokens_layer_by_layer(prompt, prefix, window, windowed):
    model = replace(WINDOWED, window=pm.Window(window, windowed) if windowed else None)
    limits = [window] * windowed + [10**9] * (24 - windowed)
    expected = sum(min(prefix + i + 1, limit) for limit in limits for i in range(prompt))
    assert attention.prefill_attended(model, prompt, True, prefix) == expected
    assert attention.attended(model, prompt) == sum(min(prompt, limit) for limit in limits)


@given(SMALL, st.integers(0, 40), SMALL)
def test_an_index_selects_from_all_of_the_context(prompt, prefix, selected):
    model = replace(LATENT, indexer=replace(INDEXER, selected=selected))
    seen = [prefix + i + 1 for i in range(prompt)]
    flops = pm.prefill_flops(model, prompt, prefix=prefix)
    read = sum(min(one, selected) for one in seen) * 128 * (2 * (128 + 64) + 2 * 128)
    scored = sum(seen) * 2 * 64 * 128
    expanded = prefix * 4 * 512 * 128 * 128
    assert flops.attention == 61 * (read + scored + expanded)
    decode = pm.decode_flops(model, 3, prompt)
    assert decode.attention == 3 * 61 * (min(prompt, selected) * 128 * (4 * 512 + 2 * 64) + prompt * 2 * 64 * 128)


@given(st.sampled_from([data.model("llama-2-70b"), WINDOWED]), SMALL, st.integers(1, 40), SMALL)
def test_chunks_of_a_prompt_do_the_work_of_the_whole(model, first, second, prompts):
    """Without expansion of a latent cache, which every chunk repeats."""
    whole = pm.prefill_flops(model, first + second, prompts=prompts)
    one, two = (
        pm.prefill_flops(model, first, prompts=prompts),
        pm.prefill_flops(model, second, prompts=prompts, prefix=first),
    )
    assert one.linear + two.linear == pytest.approx(whole.linear)
    assert one.attention + two.attention == pytest.approx(whole.attention)
    assert one.experts + two.experts == pytest.approx(whole.experts)


# The cache


def test_kv_bytes_of_latent_and_indexed_attention():
    """61 layers of 512 + 64 numbers: 70,272 byte in BF16. DeepSeek-V3.2 in FP8: 656 byte, and 132 for the index."""
    assert pm.kv_bytes_per_token(examples.served(LATENT, tensor_parallel=8)) == 70_272
    indexed = examples.served(replace(LATENT, indexer=INDEXER), tensor_parallel=8, kv_bytes=656 / 576)
    # 975,424 tokens logged as 43.67 GiB: sgl-project/sglang pull 11309
    assert 975_424 * pm.kv_bytes_per_token(indexed) / 2**30 == pytest.approx(43.67, abs=0.01)
    assert kvcache.kv_bytes_read(indexed, 100_000) == pytest.approx(61 * (2048 * 656 + 100_000 * 132))


def test_a_latent_vector_is_on_every_accelerator():
    for t in (1, 8, 16):
        deployment = examples.served(LATENT, tensor_parallel=t)
        assert pm.kv_bytes_per_token_per_gpu(deployment) == 70_272
        shared = replace(deployment, decode_context_parallel=t)
        assert pm.kv_bytes_per_token_per_gpu(shared) == pytest.approx(70_272 / t)


def test_windowed_layers_hold_their_window():
    """gpt-oss-20b, 32 requests of 8,192 tokens: 6.09 GiB if windows are respected, 12.0 if not (hf-mem, pull 70)."""
    deployment = examples.served(replace(WINDOWED, heads=64, kv_heads=8, head_dim=64, layers=24), tensor_parallel=2)
    assert 32 * pm.kv_bytes_of_request(deployment, 8192) / 2**30 == pytest.approx(6.09, abs=0.005)
    assert 32 * 8192 * pm.kv_bytes_per_token(deployment) / 2**30 == pytest.approx(12.0, abs=0.005)
    assert kvcache.kv_bytes_read(deployment, 8192) == pm.kv_bytes_of_request(deployment, 8192)
    assert pm.kv_bytes_of_request(deployment, 100) == 100 * pm.kv_bytes_per_token(deployment)


@given(st.integers(1, 20_000), st.sampled_from([1, 16, 64]))
def test_requests_with_windows_hold_blocks_of_their_window(tokens, block_size):
    """The allocation block by block: full layers keep all, windowed ones those that the window can touch."""
    deployment = examples.served(WINDOWED, tensor_parallel=2)
    full = -(-tokens // block_size)
    windowed = min(full, -(-128 // block_size) + 1)
    bytes_of_request = block_size * (12 * full + 12 * windowed) * 2 * 8 * 64 * 2 / 2
    blocks = pm.kv_blocks(deployment, block_size) * block_size * pm.kv_bytes_per_token_per_gpu(deployment)
    requests = pm.max_concurrency(deployment, tokens, block_size)
    assert requests * bytes_of_request <= blocks * (1 + 1e-9)
    assert (requests + 1) * bytes_of_request > blocks * (1 - 1e-9)
    unlimited = replace(deployment, model=replace(WINDOWED, window=None))
    assert requests >= pm.max_concurrency(unlimited, tokens, block_size) or windowed == full


def test_activations_of_the_widest_layer():
    """Two of gate and up, as wide as what a token visits there, and four hidden states, for 100 tokens on 2 x 2."""
    model = pm.Model(
        "any", 4, 64, 4, 4, 16, ffn_size=100, vocab_size=10, experts=8, experts_per_token=2, shared_ffn_size=50
    )
    deployment = pm.Deployment(model, data.accelerator("h200"), tensor_parallel=2, context_parallel=2)
    assert pm.peak_activation_bytes(deployment, 100) == 100 / 2 * (2 * (2 * 100 + 50) / 2 + 4 * 64) * 2
    dense = replace(deployment, model=replace(model, dense_layers=1, dense_ffn_size=300), activation_bytes=4)
    assert pm.peak_activation_bytes(dense, 100) == 100 / 2 * (2 * 300 / 2 + 4 * 64) * 4


def test_crossovers_with_a_window_are_refused():
    for model, word in ((WINDOWED, "window"), (replace(LATENT, indexer=INDEXER), "indexer")):
        refused(lambda model=model: crossovers.attention_equals_linear(model), word, "no closed form")
        refused(lambda model=model: pm.totals_ridge_batch(examples.served(model), 64), word, "no closed form")
