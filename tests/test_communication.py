"""Messages, against what each accelerator sends step by step; and the degrees of parallelism that need them."""

from dataclasses import replace

import examples
import numpy as np
import pytest
from examples import LATENT, batches
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data, kvcache

LINK = pm.Link("any", bandwidth=100e9, latency=7e-6)
HOP = 2e-6
SIZES = st.integers(2, 40)
PAYLOADS = st.integers(1, 10**12)


def printed(value, last_digit):
    return pytest.approx(value, rel=0, abs=0.5 * last_digit * (1 + 1e-9))


# Collectives


@given(SIZES)
def test_a_ring_counted_step_by_step(n):
    """Send every chunk round the ring until all have the sum: count steps, and bytes out of one accelerator."""
    have = [[{i} for _ in range(n)] for i in range(n)]  # have[i][c]: whose parts of chunk c accelerator i has added up
    steps, chunks_sent = 0, 0
    while any(len(chunk) < n for accelerator in have for chunk in accelerator):
        # Accelerator i passes on the chunk that i - 1 passed on before.
        moving = [(i, (i - steps) % n) for i in range(n)]
        sent = [set(have[i][c]) for i, c in moving]
        for (i, c), chunk in zip(moving, sent, strict=True):
            have[(i + 1) % n][c] |= chunk
        steps, chunks_sent = steps + 1, chunks_sent + 1
    payload = 1e6 * n
    expected = steps * HOP + chunks_sent * 1e6 / 100e9
    assert pm.all_reduce_ring(payload, n, LINK, HOP) == pytest.approx(expected)
    assert pm.all_reduce(payload, n, LINK) == pytest.approx(7e-6 + chunks_sent * 1e6 / 100e9)


@given(SIZES)
def test_a_tree_counted_level_by_level(n):
    levels, reached = 0, 1
    while reached < n:
        levels, reached = levels + 1, 2 * reached
    assert pm.all_reduce_tree(1e6, n, LINK, HOP) == pytest.approx(2 * levels * HOP + 2 * 1e6 / 100e9)


@given(SIZES, PAYLOADS)
def test_what_leaves_one_accelerator(n, payload):
    wire = payload / 100e9
    assert pm.all_reduce_one_shot(payload, n, LINK, HOP) == pytest.approx(HOP + (n - 1) * wire)
    for collective in (pm.all_gather, pm.reduce_scatter, pm.all_to_all):
        assert collective(payload, n, LINK) == pytest.approx(7e-6 + wire - wire / n)
        assert collective(payload, 1, LINK) == 0
    assert pm.send(payload, LINK) == pytest.approx(7e-6 + wire)
    both = pm.all_gather(payload, n, LINK) + pm.reduce_scatter(payload, n, LINK)
    assert pm.all_reduce(payload, n, LINK) + 7e-6 == pytest.approx(both)


def test_small_messages_go_in_one_shot_and_large_ones_round_a_ring():
    """With the same time a step."""
    times = {
        payload: [f(payload, 8, LINK, HOP) for f in (pm.all_reduce_one_shot, pm.all_reduce_tree, pm.all_reduce_ring)]
        for payload in (1e3, 1e9)
    }
    assert times[1e3] == sorted(times[1e3])
    assert times[1e9] == sorted(times[1e9], reverse=True)


def test_without_a_link_messages_cost_nothing():
    for collective in (pm.all_reduce_ring, pm.all_reduce_tree, pm.all_reduce_one_shot):
        assert collective(1e9, 8, None, HOP) == 0
    for collective in (pm.all_gather, pm.reduce_scatter, pm.all_to_all):
        assert collective(1e9, 8, None) == 0
    assert pm.send(1e9, None) == 0


@pytest.mark.parametrize(("bandwidth", "batch"), [(360e9, 146), (48e9, 20)])
def test_an_all_reduce_of_a_decode_step_is_latency_until_this_batch(bandwidth, batch):
    """The article's model at TP = 4: 10 us against 1.5 B d b_a bytes. It crosses between this batch and the next."""
    link = pm.Link("any", bandwidth=bandwidth, latency=10e-6)
    crossing = 10e-6 * bandwidth / (1.5 * 8192 * 2)
    assert crossing == printed(batch, 1) or crossing == pytest.approx(146.5, abs=0.05)
    assert pm.all_reduce(crossing * 8192 * 2, 4, link) == pytest.approx(20e-6)


@pytest.mark.parametrize(("batch", "milliseconds"), [(1, 1.6), (128, 3.0), (411, 6.1)])
def test_all_reduces_of_a_step_of_the_source(batch, milliseconds):
    """160 all-reduces, 10 us each and a ring at 360 GB/s, over 4 GPUs; a prefill of 1,024 tokens takes 12.8 ms."""
    deployment = replace(examples.SOURCE, tensor_parallel=4, link=pm.Link("any", bandwidth=360e9, latency=10e-6))
    assert pm.tensor_parallel_time(deployment, batch) * 1e3 == printed(milliseconds, 0.1)
    assert pm.tensor_parallel_time(deployment, 1024) * 1e3 == printed(12.8, 0.1)


# Experts


def test_copies_of_a_token():
    """8 experts over 8 ranks reach 5.25 of them; 8 over very many ranks, 8."""
    assert pm.copies(8, 8) == printed(5.25, 0.01)
    assert pm.copies(8, 1e9) == pytest.approx(8, rel=1e-6)
    assert pm.copies(8, 1) == 1
    random = np.random.default_rng(1)
    drawn = random.integers(8, size=(100_000, 8))
    distinct = np.array([len(set(row)) for row in drawn])
    assert pm.copies(8, 8) == pytest.approx(distinct.mean(), abs=4 * distinct.std() / 100_000**0.5)


def test_exchange_of_experts_by_hand():
    """DeepSeek-V3 over 32 accelerators, DP 32: 58 layers, there and back, 128 tokens each."""
    deployment = examples.served(LATENT, tensor_parallel=1, data_parallel=32, expert_parallel=True, link=LINK)
    ranks = 32 * (1 - (31 / 32) ** 8)
    one = 7e-6 + 31 / 32 * 128 * ranks * 7168 * 2 / 100e9
    assert pm.expert_parallel_time(deployment, 128) == pytest.approx(58 * 2 * one)
    assert pm.tensor_parallel_time(deployment, 128) == 0
    assert pm.expert_parallel_time(replace(deployment, expert_parallel=False), 128) == 0


def test_layers_with_experts_have_one_all_reduce_less():
    """DeepSeek-V3 at TP 8, DP 4: two in each of 61 layers, less one in 58; ranks share the replica's 128 tokens out."""
    tensor = examples.served(LATENT, tensor_parallel=8, data_parallel=4, link=LINK)
    one = 7e-6 + 2 * 7 / 8 * 128 * 7168 * 2 / 100e9
    assert pm.tensor_parallel_time(tensor, 128) == pytest.approx(122 * one)
    experts = replace(tensor, expert_parallel=True)
    assert pm.tensor_parallel_time(experts, 128) == pytest.approx(64 * one)
    ranks = 32 * (1 - (31 / 32) ** 8)
    exchange = 7e-6 + 31 / 32 * 128 / 8 * ranks * 7168 * 2 / 100e9
    assert pm.expert_parallel_time(experts, 128) == pytest.approx(58 * 2 * exchange)


def test_a_pass_carries_all_of_its_messages():
    """All-reduces, exchanges of experts and the way to the next stage, of 1,024 tokens in two stages.

    That many are two prompts of 512, half of 2,048 requests, and half of 256 with eight new tokens each.
    """
    deployment = examples.served(
        LATENT, tensor_parallel=8, data_parallel=4, pipeline_parallel=2, expert_parallel=True, link=LINK
    )
    hidden = 1024 * 7168 * 2 / 100e9
    reduce, forward = 64 * (7e-6 + 2 * 7 / 8 * hidden), 7e-6 + hidden
    exchange = 58 * 2 * (7e-6 + 31 / 32 * hidden / 8 * 32 * (1 - (31 / 32) ** 8))
    assert pm.prefill_time(deployment, 512, prompts=2).communication == pytest.approx(reduce + exchange + forward)
    assert pm.decode_time(deployment, 2048, 1000).communication == pytest.approx(reduce + exchange + forward)
    assert pm.decode_time(deployment, 256, 1000, tokens=8).communication == pytest.approx(reduce + exchange + forward)


def test_more_expert_ranks_do_not_shrink_the_exchange():
    """At fixed tokens an accelerator the bytes grow toward q copies; they never fall as 1 / n."""
    times = [
        pm.expert_parallel_time(
            examples.served(LATENT, tensor_parallel=1, data_parallel=n, expert_parallel=True, link=LINK), 128
        )
        for n in (2, 4, 8, 32, 128, 256)
    ]
    assert times == sorted(times)
    assert times[-1] < 58 * 2 * (7e-6 + 8 * 128 * 7168 * 2 / 100e9)


def test_experts_see_the_tokens_of_all_replicas():
    """So that a rank's experts are read once for all, and fewer of them as ranks are added."""
    for replicas in (1, 4, 32):
        spread = examples.served(LATENT, tensor_parallel=8, data_parallel=replicas, expert_parallel=True, link=None)
        step = pm.decode_time(spread, 16, 1000).memory.experts * spread.bandwidth
        touched = 256 * (1 - (1 - 8 / 256) ** (16 * replicas))
        assert step == pytest.approx(58 * touched * 3 * 7168 * 2048 * 2 / (8 * replicas))


def test_the_busiest_rank_sets_the_pace():
    even = examples.served(LATENT, tensor_parallel=8)
    uneven = replace(even, constants=replace(even.constants, expert_imbalance=1.5))
    a, b = pm.prefill_time(even, 4096).compute, pm.prefill_time(uneven, 4096).compute
    assert (b.experts, b.linear, b.attention) == (pytest.approx(1.5 * a.experts), a.linear, a.attention)


# Stages


@given(st.integers(1, 8), batches)
def test_a_pipeline_is_a_pass_of_a_part_of_the_batch(stages, part):
    """Whatever the stages, a token passes all layers; the weights are read once for each part of the batch."""
    flat = examples.served("llama-3.1-70b", tensor_parallel=2)
    deep = replace(flat, pipeline_parallel=stages)
    one, many = pm.decode_time(flat, part, 1000), pm.decode_time(deep, stages * part, 1000)
    assert many.parts.total == pytest.approx(one.parts.total)
    hidden = part * 8192 * 2
    sends = (stages - 1) * (flat.link.latency + hidden / flat.link.bandwidth)
    assert many.communication == pytest.approx(one.communication + sends)


def test_fewer_requests_than_stages_leave_stages_idle():
    deep = examples.served("llama-3.1-70b", tensor_parallel=2, pipeline_parallel=4)
    assert pm.decode_time(deep, 2, 1000).total == pm.decode_time(deep, 4, 1000).total


def test_a_batch_below_nothing_is_not_an_idle_pipeline():
    deep = examples.served("llama-3.1-70b", tensor_parallel=2, pipeline_parallel=4)
    examples.refused(lambda: pm.decode_time(deep, -8, 1000), "decode_time: batch=-8 must be above 0")


def test_a_stage_holds_its_layers():
    """126 layers on 4 stages: 32 on the largest."""
    whole = examples.served("llama-3.1-405b", tensor_parallel=8)
    deep = replace(whole, pipeline_parallel=4)
    count, table = pm.parameters(whole.model), 128256 * 16384
    layer = (count.total - 2 * table) / 126  # the last norm goes to the layers: 16,384 of 405e9
    assert pm.weight_bytes_per_gpu(deep) == pytest.approx(32 * layer * 2 / 8)  # without a table: they lie on 31 layers
    assert pm.weight_bytes_per_gpu(replace(whole, pipeline_parallel=6)) == pytest.approx((21 * layer + table) * 2 / 8)
    assert pm.weight_bytes_per_gpu(whole) == pytest.approx(count.total * 2 / 8)
    assert pm.kv_bytes_per_token_per_gpu(deep) == 32 * 2 * 8 * 128 * 2 / 8


def split(layers, stages):
    """Layers of each stage as vLLM has them: what is left over goes to the last stages but the very last."""
    sizes = [layers // stages] * stages
    for stage in range(2, layers % stages + 2):
        sizes[-stage] += 1
    return sizes


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 7, 8, 16, 30, 31, 58, 60, 61])
def test_the_largest_stage_of_deepseek_layer_by_layer(stages):
    """Experts are 257 of 3 x 7,168 x 2,048 and a router with a bias; a layer without has 3 x 7,168 x 18,432 instead."""
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    every = attention + 2 * 7168 + 1536 + 512 + 7168 / 61  # and its part of the norm behind the last layer
    experts, dense = 257 * 3 * 7168 * 2048 + 256 * (7168 + 1), 3 * 7168 * 18432
    deep = examples.served(LATENT, tensor_parallel=8, pipeline_parallel=stages, weight_bytes=1)
    found, layer = [], 0
    for place, size in enumerate(split(61, stages)):
        mixed = sum(number >= 3 for number in range(layer, layer + size))
        layer += size
        table = 129280 * 7168 * (place in (0, stages - 1))
        found.append((size * every + mixed * experts + (size - mixed) * dense + table) / 8)
    assert layer == 61
    assert pm.weight_bytes_per_gpu(deep) == pytest.approx(max(found), rel=1e-12)


# Sequences


def test_keys_and_values_round_the_ring_by_hand():
    deployment = examples.served(tensor_parallel=8, context_parallel=4, link=LINK)
    part = 100_000 / 4 * 2 * 128 * 2  # one key-value head of eight on each
    assert pm.pass_kv_time(deployment, 100_000) == pytest.approx(80 * 3 * (7e-6 + part / 100e9))


def test_copied_heads_and_latent_vectors_go_round_whole():
    """Beyond eight accelerators each still holds one head; a latent vector is on every one."""
    part = 100_000 / 4 * 2 * 128 * 2
    copied = examples.served(tensor_parallel=16, context_parallel=4, link=LINK)
    assert pm.pass_kv_time(copied, 100_000) == pytest.approx(80 * 3 * (7e-6 + part / 100e9))
    few = examples.served(tensor_parallel=2, context_parallel=4, link=LINK)
    assert pm.pass_kv_time(few, 100_000) == pytest.approx(80 * 3 * (7e-6 + 4 * part / 100e9))
    latent = examples.served(LATENT, tensor_parallel=16, context_parallel=4, link=LINK)
    assert pm.pass_kv_time(latent, 100_000) == pytest.approx(61 * 3 * (7e-6 + 25_000 * (512 + 64) * 2 / 100e9))


def test_groups_share_experts_in_prefill_and_attention_in_decode():
    alone = examples.served("mixtral-8x7b", tensor_parallel=2)
    ring = replace(alone, context_parallel=4)
    one, four = pm.prefill_time(alone, 8192), pm.prefill_time(ring, 8192)
    assert one.compute.experts * alone.flops == pytest.approx(2 * 32 * 2 * 3 * 4096 * 14336 * 8192 / 2)
    assert four.compute.experts == pytest.approx(one.compute.experts / 4)
    assert four.compute.lm_head == one.compute.lm_head
    one, four = pm.decode_time(alone, 64, 8192), pm.decode_time(ring, 64, 8192)
    assert one.compute.attention * alone.flops == pytest.approx(4 * 64 * 8192 * 32 * 128 * 32 / 2)
    assert four.compute.attention == pytest.approx(one.compute.attention / 4)
    assert (four.compute.experts, four.compute.lm_head) == (one.compute.experts, one.compute.lm_head)


def test_queries_to_the_cache_by_hand():
    deployment = examples.served(tensor_parallel=8, context_parallel=4, link=LINK)
    payload = 64 * 64 * 128 / 8 * 2
    assert pm.pass_q_time(deployment, 64) == pytest.approx(80 * 2 * (7e-6 + 3 / 4 * payload / 100e9))
    latent = examples.served(LATENT, tensor_parallel=8, decode_context_parallel=8, link=LINK)
    gathered = 64 * 128 * (512 + 64) * 2  # every part of the cache needs the queries of all heads
    assert pm.pass_q_time(latent, 64) == pytest.approx(61 * 2 * (7e-6 + 7 / 8 * gathered / 100e9))


@pytest.mark.parametrize(("groups", "parts"), [(2, 1), (1, 2), (2, 2)])
def test_queries_meet_a_cache_in_few_parts(groups, parts):
    """64 queries of 64 heads over TP 16, gathered by every accelerator that holds a part of the cache, and back."""
    degrees = {"tensor_parallel": 16, "context_parallel": groups, "decode_context_parallel": parts, "link": LINK}
    n, payload = groups * parts, 64 * 64 * 128 / 16 * parts * 2
    queries = 80 * 2 * (7e-6 + (n - 1) / n * payload / 100e9)
    reduces = 160 * (7e-6 + 2 * 15 / 16 * 64 * 8192 * 2 / 100e9)
    assert pm.decode_time(examples.served(**degrees), 64, 1000).communication == pytest.approx(queries + reduces)


def test_keys_and_values_between_two_groups():
    """Of 64 tokens, which attention is too short to hide: it reads one of eight heads of its 32."""
    ring = replace(examples.SOURCE, tensor_parallel=16, context_parallel=2, link=LINK)
    around = 80 * (7e-6 + 32 * 2 * 128 * 2 / 100e9)
    attention = max(4 * 64 * 65 / 2 * 64 * 128 * 80 / 32 / 742e12, 32 * 80 * 2 * 128 * 2 / 3.35e12)
    reduces = 160 * (7e-6 + 2 * 15 / 16 * 32 * 8192 * 2 / 100e9)
    assert pm.prefill_time(ring, 64).communication == pytest.approx(reduces + around - attention)


def test_the_prefix_of_each_prompt_goes_round():
    """Three prompts of 64 behind 4,096 tokens each: half of the tokens on each side of the ring."""
    ring = replace(examples.SOURCE, tensor_parallel=16, context_parallel=2, link=LINK)
    half = 3 * (64 + 4096) / 2
    around = 80 * (7e-6 + half * 2 * 128 * 2 / 100e9)
    pairs = 3 * (64 * 65 / 2 + 64 * 4096)
    attention = max(4 * pairs * 64 * 128 * 80 / 32 / 742e12, half * 80 * 2 * 128 * 2 / 3.35e12)
    reduces = 160 * (7e-6 + 2 * 15 / 16 * 96 * 8192 * 2 / 100e9)
    step = pm.prefill_time(ring, 64, prompts=3, prefix=4096)
    assert step.communication == pytest.approx(reduces + around - attention)


def test_each_of_two_stages_works_on_half_of_the_batch():
    deep = replace(examples.SOURCE, pipeline_parallel=2)
    step = pm.decode_time(deep, 64, 1280, tokens=2)
    assert step.memory.attention == pytest.approx(32 * 1280 * 327_680 / 3.35e12)
    assert step.compute.linear == pytest.approx(2 * 70e9 * 32 * 2 / 742e12)


def test_context_parallel_prefill():
    """Work and cache are shared, weights are not; keys and values hide behind attention if it is long."""
    alone = examples.served(tensor_parallel=8)
    ring = replace(alone, context_parallel=4)
    one, four = pm.prefill_time(alone, 131_072), pm.prefill_time(ring, 131_072)
    assert four.compute.linear == pytest.approx(one.compute.linear / 4)
    assert four.compute.attention == pytest.approx(one.compute.attention / 4)
    assert four.memory.attention == pytest.approx(one.memory.attention / 4)
    assert four.memory.linear == one.memory.linear
    assert four.communication == pytest.approx(pm.tensor_parallel_time(alone, 131_072 / 4))
    short = pm.prefill_time(ring, 64)
    exposed = pm.pass_kv_time(ring, 64) - max(short.compute.attention, short.memory.attention)
    assert short.communication == pytest.approx(pm.tensor_parallel_time(alone, 16) + exposed)
    # A cached prefix goes round too.
    behind = pm.prefill_time(ring, 64, prefix=4096)
    exposed = pm.pass_kv_time(ring, 64 + 4096) - max(behind.compute.attention, behind.memory.attention)
    assert behind.communication == pytest.approx(pm.tensor_parallel_time(alone, 16) + exposed)


def test_context_parallel_decode():
    """The cache is read in parts, the weights by every group; queries travel."""
    alone = examples.served(tensor_parallel=8)
    ring = replace(alone, context_parallel=4)
    one, four = pm.decode_time(alone, 16, 131_072), pm.decode_time(ring, 16, 131_072)
    assert four.memory.attention == pytest.approx(one.memory.attention / 4)
    assert (four.memory.linear, four.compute.linear) == (one.memory.linear, one.compute.linear)
    assert four.communication == pytest.approx(one.communication + pm.pass_q_time(ring, 16))


def test_crossovers_of_context_parallelism():
    """At each, the totals of the step itself are equal."""
    ring = replace(examples.SOURCE, tensor_parallel=4, context_parallel=2)
    for causal in (True, False):
        step = pm.prefill_time(ring, pm.totals_ridge_prompt(ring, causal), causal)
        assert step.compute.total == pytest.approx(step.memory.total)
    step = pm.decode_time(ring, pm.totals_ridge_batch(ring, 1280), 1280)
    assert step.compute.total == pytest.approx(step.memory.total)
    step = pm.decode_time(ring, 64, pm.kv_equals_weights(ring, 64))
    assert step.memory.attention == pytest.approx(step.memory.linear)


def test_crossovers_of_a_pipeline():
    """A stage works on a quarter of the batch: 140 GB of weights against 327,680 bytes of cache a token, 16 requests.

    As many requests take as long in arithmetic as in reads where 140e9 / 3.35e12 + b s k / 3.35e12 is
    b (140e9 + 4 x 64 x 128 x 80 s) / 742e12.
    """
    deep = replace(examples.SOURCE, pipeline_parallel=4)
    assert pm.kv_equals_weights(deep, 64) == pytest.approx(140e9 / (327_680 * 16))
    step = pm.decode_time(deep, 64, pm.kv_equals_weights(deep, 64))
    assert step.memory.attention == pytest.approx(step.memory.linear)
    gain = (140e9 + 4 * 64 * 128 * 80 * 100) / 742e12 - 100 * 327_680 / 3.35e12
    assert pm.totals_ridge_batch(deep, 100) == pytest.approx(4 * 140e9 / 3.35e12 / gain)
    step = pm.decode_time(deep, pm.totals_ridge_batch(deep, 100), 100)
    assert step.compute.total == pytest.approx(step.memory.total)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 100))
def test_messages_behind_work(work, messages, parts):
    """Micro-batches in a row: while one works the one before sends."""
    done = sent = 0
    for _ in range(parts):
        done += work / parts
        sent = max(sent, done) + messages / parts
    assert pm.overlapped(work, messages, parts) == pytest.approx(max(sent, done), abs=1e-9)


# All degrees together


@given(batches, st.integers(1, 200_000), st.sampled_from(["dense", "latent"]))
def test_splitting_never_makes_work_vanish(batch, context, kind):
    """Bytes of weights on all accelerators together never fall below those of the model; nor does the cache."""
    model = LATENT if kind == "latent" else data.model("llama-3.1-70b")
    whole = examples.served(model, tensor_parallel=1)
    for given_ in (
        {"tensor_parallel": 16},
        {"tensor_parallel": 8, "pipeline_parallel": 3},
        {"context_parallel": 4},
        {"tensor_parallel": 16, "decode_context_parallel": 2},
        {"tensor_parallel": 4, "data_parallel": 8, "expert_parallel": kind == "latent"},
    ):
        split = replace(whole, **given_)
        assert pm.weight_bytes_per_gpu(split) * split.accelerators >= pm.weight_bytes_per_gpu(whole) * (1 - 1e-9)
        assert pm.kv_bytes_per_token_per_gpu(split) * split.replica >= pm.kv_bytes_per_token(whole) * (1 - 1e-9)
        step = pm.decode_time(split, batch, context)
        assert step.total >= step.by_totals * (1 - 1e-9)
        alone = pm.decode_time(replace(whole, link=None), batch / split.pipeline_parallel, context)
        assert step.parts.total * split.replica >= alone.parts.total * (1 - 1e-9) or split.expert_parallel


def test_shares_of_the_cache():
    """8 heads over 16 accelerators: each holds one, two hold the same; context parallelism inside shares the copies."""
    deployment = examples.served(tensor_parallel=16)
    assert kvcache.kv_share(deployment) == 1 / 8
    assert kvcache.kv_share(replace(deployment, decode_context_parallel=2)) == 1 / 16
    assert kvcache.kv_share(replace(deployment, context_parallel=4)) == 1 / 32


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 3]), st.booleans())
def test_bytes_of_experts_and_tables(t, replicas, parallel):
    """Each kind of weight at its own precision, experts over their own accelerators."""
    given_ = {"weight_bytes": 1, "expert_bytes": 0.5, "table_bytes": 2}
    replicas = replicas if replicas != 3 else 1
    model = data.model("mixtral-8x7b")
    deployment = examples.served(model, tensor_parallel=t, data_parallel=replicas, **given_)
    if parallel and 8 % (t * replicas) == 0:
        deployment = replace(deployment, expert_parallel=True)
    experts, tables = 32 * 8 * 3 * 4096 * 14336, 2 * 32000 * 4096
    rest = 46_702_792_704 - experts - tables
    shards = t * replicas if deployment.expert_parallel else t
    assert pm.weight_bytes_per_gpu(deployment) == pytest.approx(rest / t + experts / 2 / shards + 2 * tables / t)
    step = pm.decode_time(replace(deployment, constants=pm.IDEAL), 1e6, 0)
    assert step.memory.linear == pytest.approx(rest / t / 3.35e12)
    assert step.memory.experts == pytest.approx(experts / 2 / shards / 3.35e12)
    assert step.memory.lm_head == pytest.approx(tables / t / 3.35e12)
