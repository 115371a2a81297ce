"""Who shares a step: mixed steps, chunks, steady states, static batches."""

from dataclasses import replace
from itertools import product

import examples
import numpy as np
import pytest
from examples import SOURCE, batches, deployments, refused
from hypothesis import assume, given
from hypothesis import strategies as st
from test_dimensions import ONE, second

import perfmodel as pm
from perfmodel import batching

CLOSE = 1e-9  # relative: sums of a few terms of one sign in double precision
SOURCE4 = replace(SOURCE, tensor_parallel=4)
chunks = st.integers(1, 16_384)
prefixes = st.integers(0, 200_000)
contexts = st.integers(0, 200_000)

OPS_CALLS = {
    "expected_longest": lambda d, B, S, n, s: pm.expected_longest([10, 20, 500], B, [3, 2, 1]),
    "mixed_time": lambda d, B, S, n, s: batching.mixed_time(d, B, s, S, n),
    "multi_step_time": lambda d, B, S, n, s: batching.multi_step_time(d, B, s, n),
    "request_rate": lambda d, B, S, n, s: batching.request_rate(d, B, S, n),
    "static_idle_share": lambda d, B, S, n, s: pm.static_idle_share([10, 20, 500], B + 1),
    "steady_step": lambda d, B, S, n, s: batching.steady_step(d, B, S, n, "fused"),
}
NUMERIC_CALLS = {  # a sum over as many chunks as there are: lengths are numbers
    "chunked_prefill_time": lambda d, B, S, n, s: batching.chunked_prefill_time(d, S, 512, B, s),
}
DIMENSION_CALLS = {
    "chunked_prefill_time": (second, lambda d, u: batching.chunked_prefill_time(d, 5000, 2048, 64, 1280)),
    "expected_longest": (ONE, lambda d, u: pm.expected_longest([10, 1000], 8)),
    "mixed_time": (second, lambda d, u: batching.mixed_time(d, 64, 1280, 512, 4096)),
    "multi_step_time": (second, lambda d, u: batching.multi_step_time(d, 64, 1280, 8)),
    "request_rate": (1 / second, lambda d, u: batching.request_rate(d, 64, 1024, 256)),
    "static_idle_share": (ONE, lambda d, u: pm.static_idle_share([10, 1000], 8)),
    "steady_step": (second, lambda d, u: batching.steady_step(d, 64, 1024, 256, "fused")),
}


@st.composite
def machines(draw):
    """Any deployment, and any degree of the parallelism that its model allows; some models with windows or MLA."""
    d = draw(deployments())
    model = d.model
    if draw(st.booleans()):
        window = pm.Window(tokens=draw(st.integers(1, 8192)), layers=draw(st.integers(1, model.layers)))
        model = replace(model, window=window)
    elif draw(st.booleans()):
        model = replace(model, latent=pm.Latent(query_rank=0, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128))
    spread = model.experts > 1 and not model.experts % (d.tensor_parallel * d.data_parallel)
    return replace(
        d,
        model=model,
        pipeline_parallel=draw(st.integers(1, min(4, model.layers))),
        context_parallel=draw(st.sampled_from([1, 1, 2, 4])),
        expert_parallel=spread and draw(st.booleans()),
    )


def approx(value, rel=CLOSE):
    return pytest.approx(value, rel=rel, abs=0)


# A mixed step


def by_hand(batch, context, chunk, prefix, chips=4):
    """Bytes and FLOPs of the source's 70B in one step, counted here: 70e9 weights, 80 layers, 64 and 8 heads of 128.

    Arithmetic: 2 FLOPs a weight and token; 4 x 64 x 128 x 80 a pair of a token and one it attends to. Traffic: each
    weight once; 2 x 80 x 8 x 128 x 2 bytes a cached token, read by decoding and by the chunk, written by the chunk.
    """
    pairs = batch * context + sum(prefix + i for i in range(1, chunk + 1))
    linear, attention = 2 * 70e9 * (batch + chunk), 4 * 64 * 128 * 80 * pairs
    cache = 2 * 80 * 8 * 128 * 2 * (batch * context + prefix + chunk)
    rate, bandwidth = chips * 742e12, chips * 3.35e12
    return (linear / rate, attention / rate), (2 * 70e9 / bandwidth, cache / bandwidth)


@pytest.mark.parametrize("step", [(64, 1280, 512, 0), (64, 1280, 350, 98_000), (1, 1, 1, 0), (200, 50_000, 16, 7)])
def test_a_mixed_step_counted_by_hand(step):
    (linear, attention), (weights, cache) = by_hand(*step)
    found = batching.mixed_time(SOURCE4, *step)
    assert found.total == approx(max(linear, weights) + max(attention, cache))
    assert found.by_totals == approx(max(linear + attention, weights + cache))
    assert found.communication == found.overhead == 0
    first, cold = (batching.mixed_time(SOURCE4, *step[:3], *prefix).total for prefix in ([], [0]))
    assert first == cold


@given(machines(), batches, contexts, chunks, prefixes)
def test_a_mixed_step_costs_no_more_than_its_two_halves_apart_and_no_less_than_either(d, batch, context, chunk, prefix):
    mixed = batching.mixed_time(d, batch, context, chunk, prefix)
    decode, prefill = pm.decode_time(d, batch, context), pm.prefill_time(d, chunk, prefix=prefix)
    assert mixed.total <= (decode.total + prefill.total) * (1 + CLOSE)
    assert mixed.total >= decode.total * (1 - CLOSE)
    assert mixed.total >= prefill.total * (1 - CLOSE)
    assert mixed.compute.total == approx(decode.compute.total + prefill.compute.total)


@given(deployments(experts=False), batches, contexts, chunks, prefixes)
def test_a_mixed_step_saves_one_reading_of_the_weights(d, batch, context, chunk, prefix):
    mixed = batching.mixed_time(d, batch, context, chunk, prefix).memory
    decode, prefill = pm.decode_time(d, batch, context).memory, pm.prefill_time(d, chunk, prefix=prefix).memory
    assert mixed.attention == approx(decode.attention + prefill.attention)
    assert mixed.linear == approx(prefill.linear)
    assert mixed.lm_head == approx(prefill.lm_head)


def test_experts_and_messages_meet_the_tokens_of_both():
    """Mixtral: 64 requests and 192 prompt tokens touch the experts, and fill the messages, of 256 tokens."""
    d = examples.served("mixtral-8x7b", tensor_parallel=2)
    mixed, together = batching.mixed_time(d, 64, 1000, 192), pm.decode_time(d, 256, 1000)
    assert mixed.memory.experts == approx(together.memory.experts)
    assert mixed.communication == approx(together.communication)
    assert mixed.overhead == approx(together.overhead)


def test_each_micro_batch_of_a_pipeline_has_its_chunk():
    """Two stages: a token's step is a pass of half the requests and the chunk through all layers."""
    d = replace(SOURCE4, pipeline_parallel=2)
    assert batching.mixed_time(d, 64, 1280, 512).total == approx(batching.mixed_time(SOURCE4, 32, 1280, 512).total)


def test_a_pipeline_that_is_not_full_passes_one_request_at_a_time():
    """Mixtral, two requests in four stages: each pass has one of them and a chunk of three tokens."""
    d = examples.served("mixtral-8x7b", tensor_parallel=2, link=None)
    few = batching.mixed_time(replace(d, pipeline_parallel=4), 2, 1000, 3)
    assert few.memory.experts == approx(batching.mixed_time(d, 1, 1000, 3).memory.experts)
    assert few.total == approx(batching.mixed_time(d, 1, 1000, 3).total)


def test_messages_of_a_mixed_step_in_a_ring():
    """Two groups share 512 prompt tokens, not the 64 that decode, whose queries go round; keys and values of the prompt
    go round as far as its attention does not hide them."""
    d = examples.served(tensor_parallel=2, context_parallel=2)
    prefill = pm.prefill_time(d, 512)
    hidden = max(prefill.compute.attention, prefill.memory.attention)
    expected = pm.tensor_parallel_time(d, 64 + 256) + pm.pass_q_time(d, 64) + pm.pass_kv_time(d, 512) - hidden
    assert pm.pass_kv_time(d, 512) > hidden
    assert batching.mixed_time(d, 64, 1280, 512).communication == approx(expected)


@given(machines(), batches, contexts, chunks, prefixes)
def test_more_work_never_shortens_a_mixed_step(d, batch, context, chunk, prefix):
    """But for messages that go round: they hide behind the attention of the prompt, which is longer for more of it."""

    def seconds(*work):
        step = batching.mixed_time(d, *work)
        return step.total if d.context_parallel == 1 else step.parts.total

    base = seconds(batch, context, chunk, prefix) * (1 - CLOSE)
    assert seconds(batch + 1, context, chunk, prefix) >= base
    assert seconds(batch, context + 1, chunk, prefix) >= base
    assert seconds(batch, context, chunk + 1, prefix) >= base
    assert seconds(batch, context, chunk, prefix + 1) >= base


# A prompt in chunks


@given(machines(), chunks)
def test_one_chunk_is_the_whole_prefill(d, prompt):
    assert batching.chunked_prefill_time(d, prompt, prompt) == approx(pm.prefill_time(d, prompt).total)
    assert batching.chunked_prefill_time(d, prompt, 10 * prompt) == approx(pm.prefill_time(d, prompt).total)


@given(machines(), st.integers(1, 20_000), st.integers(256, 8192))
def test_chunks_never_shorten_a_prefill(d, prompt, chunk):
    assert batching.chunked_prefill_time(d, prompt, chunk) >= pm.prefill_time(d, prompt).total * (1 - CLOSE)


def test_chunks_of_a_long_prompt_do_the_same_arithmetic():
    """The source's 100,000 tokens in chunks of 8,192: every chunk, 1,696 tokens at the end, is compute-bound, so on
    an idle machine of no overhead chunking costs nothing; beside 64 requests it costs their decoding, 13 times."""
    whole = pm.prefill_time(SOURCE4, 100_000).total
    assert batching.chunked_prefill_time(SOURCE4, 100_000, 8192) == approx(whole)
    beside = batching.chunked_prefill_time(SOURCE4, 100_000, 8192, batch=64, context=1280)
    decoding = 13 * 64 * (2 * 70e9 + 4 * 64 * 128 * 80 * 1280) / (4 * 742e12)
    assert beside == approx(whole + decoding)
    bare, none = (batching.chunked_prefill_time(SOURCE4, 5000, 512, 64, *context) for context in ([], [0]))
    assert bare == none


def test_an_overhead_counts_once_a_chunk():
    d = replace(SOURCE4, constants=pm.Constants(step_overhead=0.002))
    extra = batching.chunked_prefill_time(d, 5000, 1024) - batching.chunked_prefill_time(SOURCE4, 5000, 1024)
    assert extra == approx(5 * 0.002, rel=1e-6)


@given(machines(), chunks, st.lists(st.integers(1, 20_000), min_size=1, max_size=5))
def test_prompts_of_several_lengths_at_once(d, chunk, prompts):
    chunk = max(chunk, 500)
    at_once = batching.chunked_prefill_time(d, prompts, chunk, 8, 1000)
    assert at_once == approx([batching.chunked_prefill_time(d, prompt, chunk, 8, 1000) for prompt in prompts])


# Steady states


@given(machines(), batches, st.integers(1, 50_000), st.integers(2, 5000))
def test_prefill_elsewhere_exclusive_and_fused(d, batch, prompt, output):
    apart, exclusive, fused = (
        batching.steady_step(d, batch, prompt, output, kind) for kind in ("apart", "exclusive", "fused")
    )
    decode = pm.decode_time(d, batch, prompt + output / 2)
    assert apart == decode
    held = pm.prefill_interference(batch, output, pm.prefill_time(d, prompt).total / d.pipeline_parallel)
    assert exclusive.total == approx(decode.total + held)
    assert fused.total >= decode.total * (1 - CLOSE)
    prompts = (batch - 1) / (output - 1) / d.pipeline_parallel
    assert fused.compute.total == approx(decode.compute.total + prompts * pm.prefill_time(d, prompt).compute.total)
    alone = batching.steady_step(d, 1, prompt, output, "fused")
    assert alone.total == approx(pm.decode_time(d, 1, prompt + output / 2).total)


@given(deployments(ideal=True, experts=False), batches, st.integers(1, 50_000), st.integers(2, 5000))
def test_fusing_beats_waiting(d, batch, prompt, output):
    """Without latencies, whose number a fraction of a prompt a step does not divide."""
    assume(d.pipeline_parallel == 1)
    assume((batch - 1) / (output - 1) >= 1)  # at least a prompt a step: else exclusive prefills share their weights
    fused, exclusive = (batching.steady_step(d, batch, prompt, output, kind) for kind in ("fused", "exclusive"))
    assert fused.total <= exclusive.total * (1 + CLOSE)


def test_the_fused_step_counted_by_hand():
    """B = 208, S = 1,024, N_out = 256 on the source's device: 207 / 255 prompts a step."""
    prompts, context = 207 / 255, 1024 + 128
    pairs = 208 * context + prompts * 1024 * 1025 / 2
    linear = 2 * 70e9 * (208 + prompts * 1024) / (4 * 742e12)
    attention = 4 * 64 * 128 * 80 * pairs / (4 * 742e12)
    cache = 2 * 80 * 8 * 128 * 2 * (208 * context + prompts * 1024) / (4 * 3.35e12)
    assert linear > 2 * 70e9 / (4 * 3.35e12)
    assert batching.steady_step(SOURCE4, 208, 1024, 256, "fused").total == approx(linear + max(attention, cache))


def test_a_cached_prefix_is_not_prefilled_in_either_way():
    """400 of 1,024 tokens cached, 63 / 255 prefills a step."""
    rest = pm.prefill_time(SOURCE4, 624, prefix=400)
    decode = pm.decode_time(SOURCE4, 64, 1152)
    exclusive, fused = (batching.steady_step(SOURCE4, 64, 1024, 256, kind, 400) for kind in ("exclusive", "fused"))
    assert exclusive.total == approx(decode.total + 63 / 255 * rest.total)
    assert fused.compute.total == approx(decode.compute.total + 63 / 255 * rest.compute.total)
    assert fused.memory.attention == approx(decode.memory.attention + 63 / 255 * rest.memory.attention)


def test_the_context_of_a_step_may_be_another_than_the_mean():
    last = batching.steady_step(SOURCE4, 64, 1024, 256, "apart", context=1280)
    assert last == pm.decode_time(SOURCE4, 64, 1280)


@given(machines(), batches, st.integers(2, 50_000), st.integers(2, 5000), st.data())
def test_a_cycle_is_the_prefills_and_one_decoding(d, batch, prompt, output, data):
    """B (T_prefill) + (N_out - 1) T_decode finish B requests; on one stage, since each gets its prefill once."""
    assume(d.pipeline_parallel == 1)
    prefix = data.draw(st.integers(0, prompt - 1))
    prefill = pm.prefill_time(d, prompt - prefix, prefix=prefix).total
    cycle = batch * prefill + (output - 1) * pm.decode_time(d, batch, prompt + output / 2).total
    assert batching.request_rate(d, batch, prompt, output, prefix) == approx(batch / cycle)


@given(machines(), batches, st.integers(1, 50_000), st.integers(2, 5000))
def test_a_larger_batch_never_lowers_the_rate(d, batch, prompt, output):
    """Weights are shared; whatever else is linear. A pipeline needs a request for every stage first."""
    assume(d.pipeline_parallel == 1)
    rates = [batching.request_rate(d, b, prompt, output) for b in (batch, 2 * batch)]
    assert rates[1] >= rates[0] * (1 - CLOSE)


# The host


def test_multi_step_scheduling_as_the_source_reports_it():
    """25.96 to 44.44 requests a second with N = 8 (claims c02.4-01 and -02) put the host at 48 % of a step (audit).

    By hand: T = g + h and g + h / 8 = T 25.96 / 44.44, so h / T = (1 - 25.96 / 44.44) / (1 - 1 / 8) = 0.475.
    """
    share = (1 - 25.96 / 44.44) / (1 - 1 / 8)
    assert share == pytest.approx(0.48, abs=0.005)
    kernels = pm.decode_time(SOURCE4, 32, 1280).total
    d = replace(SOURCE4, constants=pm.Constants(step_overhead=kernels * share / (1 - share)))
    one, eight = (batching.multi_step_time(d, 32, 1280, steps).total for steps in (1, 8))
    assert one / eight == approx(44.44 / 25.96)


@given(machines(), batches, contexts, st.integers(1, 64))
def test_the_host_counts_once_in_its_steps(d, batch, context, steps):
    single, multi = pm.decode_time(d, batch, context).total, batching.multi_step_time(d, batch, context, steps).total
    host = d.constants.step_overhead
    assert single - multi == pytest.approx(host * (1 - 1 / steps), rel=1e-9, abs=single * 1e-12)
    assert batching.multi_step_time(d, batch, context, 1).total == approx(single)


# Static batches

distributions = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 9)), min_size=1, max_size=4)


@given(distributions, st.integers(1, 4))
def test_the_longest_of_a_batch_over_all_draws(distribution, batch):
    """All batches that can be drawn, one by one, with their probability."""
    total = sum(weight for _, weight in distribution)
    expected = 0
    for draw in product(distribution, repeat=batch):
        probability = np.prod([weight / total for _, weight in draw])
        expected += probability * max(length for length, _ in draw)
    lengths, weights = zip(*distribution, strict=True)
    longest = pm.expected_longest(lengths, batch, weights)
    assert longest == pytest.approx(expected)
    mean = sum(length * weight for length, weight in distribution) / total
    assert pm.static_idle_share(lengths, batch, weights) == pytest.approx(1 - mean / expected, abs=1e-12)


@given(st.integers(1, 2000), st.integers(1, 500))
def test_the_longest_of_lengths_from_one_to_n(n, batch):
    """Each as likely: the sum over x = 1 .. n of P(longest >= x) = 1 - ((x - 1) / n)^B."""
    expected = sum(1 - ((x - 1) / n) ** batch for x in range(1, n + 1))
    assert pm.expected_longest(np.arange(1, n + 1), batch) == pytest.approx(expected)


def test_the_longest_of_lengths_that_end_at_random():
    """The longest of B exponential lengths is 1 + 1/2 + ... + 1/B times the mean; geometric ones of mean 200 are close
    (within half a token of 200 H_B, here 0.1 %), cut at 20 means, where e^-20 is left."""
    lengths = np.arange(1, 4001)
    weights = (1 - 1 / 200) ** (lengths - 1)
    for batch in (1, 8, 64):
        harmonic = sum(1 / k for k in range(1, batch + 1))
        assert pm.expected_longest(lengths, batch, weights) == pytest.approx(200 * harmonic, rel=2e-3)


def test_the_source_batch_of_a_short_and_a_long_request():
    """Claim c02.1-01: 10 and 1,000 tokens in one batch. Of 2 x 1,000 slots 1,010 are used; the short one waits 990."""
    assert pm.static_idle_share([10, 1000]) == pytest.approx(1 - 1010 / 2000)
    assert 1000 / 10 == 100  # the ratio in the ledger: the slot is held for a hundred times its use


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50), batches)
def test_idle_slots_grow_with_the_batch(lengths, batch):
    share = pm.static_idle_share(lengths, batch)
    assert share + 1e-12 >= 0
    assert share <= pm.static_idle_share(lengths, batch + 1) + 1e-12
    assert share <= 1 - np.mean(lengths) / max(lengths) + 1e-12
    assert pm.static_idle_share(lengths, 1) == pytest.approx(0, abs=1e-12)
    assert pm.static_idle_share(lengths, 1e9) == pytest.approx(pm.static_idle_share(lengths))


def test_equal_requests_leave_no_slot_idle():
    assert pm.static_idle_share([256] * 3) == pm.static_idle_share([256], 64) == 0


def test_bad_input():
    d = SOURCE4
    refused(lambda: batching.mixed_time(d, 0, 1280, 512), "batch=0", "above 0")
    refused(lambda: batching.mixed_time(d, 1, 1280, 0), "prompt=0", "above 0")
    refused(lambda: batching.mixed_time(d, 1, 1280, 512, -1), "prefix=-1")
    refused(lambda: batching.steady_step(d, 1, 1280, 256, "together"), "prefill='together'", "apart, exclusive, fused")
    refused(lambda: batching.steady_step(d, 8, 1280, 1), "output=1", "at least 2")
    refused(lambda: batching.request_rate(d, 8, 1280, 256, prefix=1280), "prompt=0")
    refused(lambda: batching.chunked_prefill_time(d, 1280, 0), "chunked_prefill_time", "chunk=0")
    refused(lambda: batching.chunked_prefill_time(d, float("inf"), 512), "prompt=inf")
    refused(lambda: batching.multi_step_time(d, 1, 1280, 0), "steps=0", "at least 1")
    refused(lambda: pm.expected_longest([10, 0], 4), "lengths", "above 0")
    refused(lambda: pm.expected_longest([], 4), "0 lengths")
    refused(lambda: pm.expected_longest([10, 20], 4, [1]), "2 lengths", "not 1")
    refused(lambda: pm.expected_longest([10, 20], 4, [1, 0]), "weights", "above 0")
    refused(lambda: pm.expected_longest([10], 0), "batch=0")
