"""What limits on latency allow: batches, prompts, chunks, rates, and the constraint that binds."""

from dataclasses import replace

import examples
import numpy as np
import pytest
from examples import SOURCE, batches, deployments, refused
from hypothesis import assume, given
from hypothesis import strategies as st
from test_batching import machines
from test_dimensions import ONE, second

import perfmodel as pm
from perfmodel import batching, queueing, slo

CLOSE = 1e-9
SOURCE4 = replace(SOURCE, tensor_parallel=4)
H100 = replace(SOURCE4, accelerator=replace(SOURCE.accelerator, memory_capacity=80e9))
limits = st.floats(1e-4, 10)
prompts = st.integers(1, 50_000)
outputs = st.integers(2, 5000)
modes = st.sampled_from(["apart", "exclusive", "fused"])

OPS_CALLS = {  # symbols for dense models alone: experts bend the straight lines
    "batch_limits": lambda d, B, S, n, s: slo.batch_limits(d, S, n, 0.5, 0.05, by_totals=True),
    "full_memory_time": lambda d, B, S, n, s: slo.full_memory_time(d),
    "largest_batch": lambda d, B, S, n, s: slo.largest_batch(d, S, n, 0.05, "apart", by_totals=True),
}
NUMERIC_CALLS = {
    "goodput": lambda d, B, S, n, s: slo.goodput(d, S, n, 0.5, 0.05),
    "largest_chunk": lambda d, B, S, n, s: slo.largest_chunk(d, B, s, 0.05, S),
    "largest_prompt": lambda d, B, S, n, s: slo.largest_prompt(d, B * 0.01),
    "safe_chunk": lambda d, B, S, n, s: slo.safe_chunk(d, B, s, 0.05, S),
}
DIMENSION_CALLS = {
    "attainment": (ONE, lambda d, u: slo.attainment([0.1, 0.3], [0.02, 0.02], 0.2, 0.05)),
    "batch_limits": (ONE, lambda d, u: slo.batch_limits(d, 1024, 256, 0.5 * u(second), 0.05 * u(second))),
    "full_memory_time": (second, lambda d, u: slo.full_memory_time(d)),
    "goodput": (1 / second, lambda d, u: slo.goodput(d, 1024, 256, 0.5 * u(second), 0.05 * u(second))),
    "largest_batch": (ONE, lambda d, u: slo.largest_batch(d, 1024, 256, 0.05 * u(second))),
    "largest_chunk": (ONE, lambda d, u: slo.largest_chunk(d, 64, 1280, 0.05 * u(second), 4096)),
    "largest_prompt": (ONE, lambda d, u: slo.largest_prompt(d, 0.5 * u(second))),
    "safe_chunk": (ONE, lambda d, u: slo.safe_chunk(d, 64, 1280, 0.05 * u(second), 4096)),
}


# A full memory


def test_one_reading_of_a_full_memory():
    """The audit's table: 80 GB at 3.35 TB/s are 23.9 ms, H200 29.4, one die of a 910C 40, or 50 at 80 %."""

    def seconds(capacity, bandwidth, **settings):
        machine = pm.Accelerator("any", memory_capacity=capacity, memory_bandwidth=bandwidth, bf16_flops=1e14)
        return slo.full_memory_time(pm.Deployment(SOURCE.model, machine, **settings))

    assert seconds(80e9, 3.35e12) == pytest.approx(23.9e-3, abs=5e-5)
    assert seconds(141e9, 4.8e12) == pytest.approx(29.4e-3, abs=5e-5)
    assert seconds(64e9, 1.6e12) == pytest.approx(40e-3)
    assert seconds(64e9, 1.6e12, constants=pm.Constants(bandwidth_efficiency=0.8)) == pytest.approx(50e-3)
    assert seconds(80e9, 3.35e12, pipeline_parallel=4) == pytest.approx(4 * 23.9e-3, abs=2e-4)
    assert seconds(80e9, 3.35e12, tensor_parallel=8) == seconds(80e9, 3.35e12)


@given(machines(), st.integers(1, 50_000))
def test_no_batch_that_fits_spends_longer_on_memory(d, context):
    """The embedding is in the memory and never read; a whole block is held where part of one is read."""
    batch = pm.max_concurrency(d, context)
    assume(batch >= d.pipeline_parallel)
    assert pm.decode_time(d, batch, context).memory.total <= slo.full_memory_time(d) * (1 + CLOSE)


# The batch


@pytest.mark.parametrize(
    ("efficiency", "by_totals", "expected"), [(1, False, 637), (0.8, True, 944), (0.8, False, 579)]
)
def test_the_audits_batches(efficiency, by_totals, expected):
    """Rows of the audit's first table: TP = 4, s = 1,280, 50 ms."""
    d = replace(SOURCE4, constants=pm.Constants(bandwidth_efficiency=efficiency))
    assert slo.largest_batch(d, 1024, 256, 0.05, "apart", by_totals, context=1280) == expected


def test_the_batch_of_the_source_formula():
    """Claim c09.4-10 recomputed: 0.05 x 4 F / (2 N) = 1060 without attention, where the source has 100.

    With a context of one token attention adds 1.9e-5 of the arithmetic: one request fewer at that exact boundary.
    """
    assert pytest.approx(1060) == 0.05 * 4 * 742e12 / (2 * 70e9)
    assert slo.largest_batch(SOURCE4, 1024, 256, 0.05, "apart", by_totals=True, context=1) == 1059
    assert slo.largest_batch(SOURCE4, 1024, 256, 0.05 * 1.00002, "apart", by_totals=True, context=1) == 1060


def exclusive_by_hand(batch, causal, others=1, per=255):
    """TPOT by totals at s = 1,280: decode step, and (B - others) / 255 prefills of 1,024 tokens."""
    weights, cache = 2 * 70e9, batch * 1280 * 2 * 80 * 8 * 128 * 2
    arithmetic = batch * (2 * 70e9 + 4 * 64 * 128 * 80 * 1280)
    pairs = 1024 * 1025 / 2 if causal else 1024**2
    prefill = (2 * 70e9 * 1024 + 4 * 64 * 128 * 80 * pairs) / (4 * 742e12)
    return max((weights + cache) / (4 * 3.35e12), arithmetic / (4 * 742e12)) + (batch - others) / per * prefill


def test_the_steady_state_of_the_audit():
    """176 with B / 255 prefills a step and 177 with (B - 1) / 255 (audit, without a causal mask); ours is causal."""
    assert exclusive_by_hand(176, causal=False, others=0) <= 0.05 < exclusive_by_hand(177, causal=False, others=0)
    assert exclusive_by_hand(177, causal=False) <= 0.05 < exclusive_by_hand(178, causal=False)
    found = slo.largest_batch(SOURCE4, 1024, 256, 0.05, "exclusive", by_totals=True, context=1280)
    assert exclusive_by_hand(found, causal=True) <= 0.05 < exclusive_by_hand(found + 1, causal=True)
    assert found == pytest.approx(177, abs=1.5)  # half a prefill's attention, 0.9 % of it


def test_the_fused_steady_state_of_the_audit():
    """208, by totals, with B / 255 prompts a step and no attention in decode steps; 207 / 255 and it: about as many."""
    found = slo.largest_batch(SOURCE4, 1024, 256, 0.05, "fused", by_totals=True, context=1280)
    assert found == pytest.approx(208, abs=1.5)


def keeps(d, batch, prompt, output, limit, mode, by_totals):
    step = batching.steady_step(d, batch, prompt, output, mode)
    return (step.by_totals if by_totals else step.total) <= limit * (1 + 1e-11)


@given(machines(), prompts, outputs, limits, modes, st.booleans())
def test_the_largest_batch_fits_and_one_more_does_not(d, prompt, output, limit, mode, by_totals):
    """Closed form of dense models and bisection of the others, in each mode, on either side of every kink."""
    batch = slo.largest_batch(d, prompt, output, limit, mode, by_totals)
    assert batch == np.floor(batch) >= 0
    if batch:
        assert keeps(d, batch, prompt, output, limit, mode, by_totals)
    assert not keeps(d, batch + 1, prompt, output, limit * (1 - 1e-9), mode, by_totals)


@given(machines(), prompts, outputs, limits)
def test_the_batch_shrinks_with_everything_that_costs_time(d, prompt, output, limit):
    batch = slo.largest_batch(d, prompt, output, limit)
    assert slo.largest_batch(d, 2 * prompt, output, limit) <= batch
    assert slo.largest_batch(d, prompt, output, 2 * limit) >= batch
    assert slo.largest_batch(d, prompt, output, limit, "apart") >= batch
    assert slo.largest_batch(d, prompt, output, limit, by_totals=True) >= batch


def test_batches_of_many_workloads_at_once():
    for d in (examples.served(), examples.served("mixtral-8x7b", tensor_parallel=2)):
        prompt, output = np.array([[256.0], [4096.0]]), np.array([64.0, 256.0, 1024.0])
        at_once = slo.largest_batch(d, prompt, output, 0.05)
        assert at_once.shape == (2, 3)
        assert at_once.tolist() == [[slo.largest_batch(d, float(s), float(n), 0.05) for n in output] for [s] in prompt]


# The constraint that binds


@pytest.mark.parametrize(("mode", "binding"), [("apart", "memory"), ("exclusive", "tpot"), ("fused", "tpot")])
def test_the_headline_of_the_source(mode, binding):
    """Audit: with prefill elsewhere memory binds, 338 requests at 90 % of four H100 (148 GB / 437 MB); with prefill
    on the same four, TPOT does. The audit counts no activations; 20 blocks of 16 tokens a request are 1,280."""
    found = slo.batch_limits(H100, 1024, 256, 0.2, 0.05, mode)
    assert found.binding == binding
    assert found.ttft == np.inf
    assert found.batch == min(found.tpot, found.memory)
    usable = 4 * 80e9 * 0.9 - 140e9
    assert found.memory == pytest.approx(usable / (1280 * 327_680), rel=0.03)


def test_the_first_token_allows_any_batch_or_none():
    """A prefill of 1,024 tokens takes 48.8 ms on four devices: 2 N S and 1,024 x 1,025 / 2 pairs over 4 F."""
    first = (2 * 70e9 * 1024 + 4 * 64 * 128 * 80 * 1024 * 1025 / 2) / (4 * 742e12)
    assert slo.batch_limits(H100, 1024, 256, first, 0.05).ttft == np.inf
    late = slo.batch_limits(H100, 1024, 256, first * 0.999, 0.05)
    assert (late.ttft, late.batch, late.binding) == (0, 0, "ttft")


@given(machines(), prompts, outputs, limits, limits, modes)
def test_the_constraint_that_binds_allows_least(d, prompt, output, ttft, tpot, mode):
    found = slo.batch_limits(d, prompt, output, ttft, tpot, mode)
    assert getattr(found, str(found.binding)) == found.batch == min(found.tpot, found.ttft, found.memory)
    assert found.memory == pm.max_concurrency(d, prompt + output)
    assert found.tpot == slo.largest_batch(d, prompt, output, tpot, mode)
    assert (found.ttft > 0) == (pm.prefill_time(d, prompt).total <= ttft * (1 + 1e-12))


def test_a_grid_of_constraints():
    prompt, output = np.array([[512], [1024], [200_000]]), np.array([64, 4096])
    found = slo.batch_limits(H100, prompt, output, 0.2, 0.05)
    assert found.binding.tolist() == [["tpot", "memory"], ["tpot", "memory"], ["ttft", "ttft"]]
    assert found.batch.shape == (3, 2)


# The prompt and the chunk


@given(machines(), limits, st.booleans(), st.integers(0, 100_000))
def test_the_longest_prompt_fits_and_one_more_token_does_not(d, limit, causal, prefix):
    prompt = slo.largest_prompt(d, limit, causal, prefix)
    assert prompt == np.floor(prompt) >= 0
    if prompt:
        assert pm.prefill_time(d, prompt, causal, prefix=prefix).total <= limit * (1 + 1e-11)
    assert pm.prefill_time(d, prompt + 1, causal, prefix=prefix).total > limit * (1 - 1e-11)


def test_prompts_of_several_limits():
    found = slo.largest_prompt(SOURCE4, np.array([1e-3, 0.2, 2]))
    assert found[0] == 0  # less than one reading of the weights, 10.4 ms
    assert found.tolist() == [slo.largest_prompt(SOURCE4, limit) for limit in (1e-3, 0.2, 2)]


@pytest.mark.parametrize(("prefix", "chunk"), [(0, 985), (98_000, 350)])
def test_the_chunk_of_the_design(prefix, chunk):
    """50 ms at B = 64, TP = 4, by totals, s = 1,280: counted here as FLOPs over 4 F, which is the larger side."""

    def flops(tokens):
        pairs = 64 * 1280 + tokens * prefix + tokens * (tokens + 1) / 2
        return 2 * 70e9 * (64 + tokens) + 4 * 64 * 128 * 80 * pairs

    assert flops(chunk) <= 0.05 * 4 * 742e12 < flops(chunk + 1)
    assert slo.largest_chunk(SOURCE4, 64, 1280, 0.05, prefix, by_totals=True) == chunk
    assert slo.largest_chunk(SOURCE4, 64, 1280, 0.05, prefix) <= chunk


def test_a_step_that_takes_exactly_its_limit_keeps_it():
    """Limits taken from the very steps: neither a last digit nor a default may cost a token."""
    for d in (SOURCE4, examples.served(), examples.served("mixtral-8x7b", tensor_parallel=2)):
        for count in (5, 512, 5000):
            gap = batching.mixed_time(d, 64, 1280, count, 300).total
            assert slo.largest_chunk(d, 64, 1280, gap, 300) == count
            assert slo.largest_chunk(d, 64, 1280, batching.mixed_time(d, 64, 1280, count).total) == count
            if count > 300:  # else only the weights' reading takes time, and a larger chunk as long
                assert slo.safe_chunk(d, 64, 1280, gap, 300 + count) == count
            assert slo.largest_prompt(d, pm.prefill_time(d, count).total) == count
            tpot = batching.steady_step(d, count, 1024, 256).total
            assert slo.largest_batch(d, 1024, 256, tpot) == count
        first = pm.prefill_time(d, 1024).total
        assert slo.batch_limits(d, 1024, 256, first, 1).ttft == np.inf
        assert slo.goodput(d, 1024, 256, first, 1) > 0


def test_one_size_for_all_chunks_is_that_of_the_last():
    """98,350 tokens: 350 keeps 50 ms with 98,000 behind it, and every earlier chunk is shorter; 351 does not."""
    chunk = slo.safe_chunk(SOURCE4, 64, 1280, 0.05, 98_350, by_totals=True)
    assert chunk == 350
    gaps = batching.mixed_time(SOURCE4, 64, 1280, chunk, np.arange(281) * chunk).by_totals
    assert np.all(np.diff(gaps) > 0)
    assert gaps[-1] <= 0.05
    assert slo.safe_chunk(SOURCE4, 64, 1280, 0.05, 200, by_totals=True) == 200  # the prompt itself


@given(machines(), batches, st.integers(0, 50_000), limits, st.integers(0, 100_000))
def test_the_largest_chunk_fits_and_one_more_token_does_not(d, batch, context, limit, prefix):
    chunk = slo.largest_chunk(d, batch, context, limit, prefix)
    if chunk:
        assert batching.mixed_time(d, batch, context, chunk, prefix).total <= limit * (1 + 1e-11)
    assert batching.mixed_time(d, batch, context, chunk + 1, prefix).total > limit * (1 - 1e-11)
    assert slo.largest_chunk(d, batch, context, limit, prefix + 1000) <= chunk
    assert slo.largest_chunk(d, batch + 1, context, limit, prefix) <= chunk
    safe = slo.safe_chunk(d, batch, context, limit, prefix + 1)
    assert safe <= min(prefix + 1, slo.largest_chunk(d, batch, context, limit, 0))
    if safe:
        last = batching.mixed_time(d, batch, context, safe, prefix + 1 - safe)
        assert last.total <= limit * (1 + 1e-11)


def test_the_largest_whole_number():
    assert slo.largest_whole(lambda x: x * x <= 80) == 8
    assert slo.largest_whole(lambda x: x <= 0) == 0
    assert slo.largest_whole(lambda x: x <= 1) == 1
    bounds = np.array([0, 1, 2, 3, 1023, 1024, 1025, 10**9])
    assert slo.largest_whole(lambda x: x <= bounds).tolist() == bounds.tolist()


def test_symbols_have_no_largest_whole_number():
    limit = pm.argument_symbols("context")
    refused(lambda: slo.largest_prompt(SOURCE4, limit), "no closed form", "numbers")


# Goodput


def test_goodput_counted_by_hand():
    """1,024 in, 256 out, TTFT 0.5 s, TPOT 50 ms: turnover of the largest batch, which here is the lower rate."""
    found = slo.batch_limits(H100, 1024, 256, 0.5, 0.05)
    prefill = pm.prefill_time(H100, 1024).total
    tpot = batching.steady_step(H100, found.batch, 1024, 256).total
    turnover = found.batch / (prefill + 255 * tpot)
    assert queueing.md1_within(turnover, prefill, 0.5 - prefill) > 0.9
    assert slo.goodput(H100, 1024, 256, 0.5, 0.05) == pytest.approx(turnover)


def test_goodput_under_a_tight_first_token():
    """One output token more than the first, so that the prefills' queue is what limits."""
    prefill = pm.prefill_time(H100, 1024).total
    rate = slo.goodput(H100, 1024, 2, 2 * prefill, 0.5)
    assert queueing.md1_within(rate, prefill, prefill) == pytest.approx(0.9, abs=1e-6)
    assert slo.goodput(H100, 1024, 2, 2 * prefill, 0.5, share=0.99) < rate


def test_goodput_of_a_single_request_at_a_time():
    tpot = pm.decode_time(H100, 1, 1024 + 128).total
    assert slo.goodput(H100, 1024, 256, 1, tpot) == pytest.approx(1 / (pm.prefill_time(H100, 1024).total + 255 * tpot))
    assert slo.goodput(H100, 1024, 256, 1, 0.99 * tpot) == 0


def test_a_pipeline_takes_the_next_prefill_after_a_stage():
    """Two stages: a prefill takes as long as before, and the next may start after half of it."""
    d = replace(H100, pipeline_parallel=2)
    prefill = pm.prefill_time(d, 1024).total
    rate = slo.goodput(d, 1024, 2, 1.5 * prefill, 0.5)
    assert queueing.md1_within(rate, prefill / 2, prefill / 2) == pytest.approx(0.9, abs=1e-6)


@given(machines(), prompts, outputs, limits, limits)
def test_goodput_rises_with_the_limits_and_with_replicas(d, prompt, output, ttft, tpot):
    rate = slo.goodput(d, prompt, output, ttft, tpot)
    assert rate >= 0
    assert slo.goodput(d, prompt, output, 2 * ttft, tpot) >= rate * (1 - 1e-6)
    assert slo.goodput(d, prompt, output, ttft, tpot, share=0.5) >= rate * (1 - 1e-6)
    limits = slo.batch_limits(d, prompt, output, ttft, tpot)
    assert (rate == 0) == (limits.batch == 0)


@given(deployments(experts=False), prompts, outputs, limits, limits)
def test_replicas_multiply_goodput(d, prompt, output, ttft, tpot):
    d = replace(d, data_parallel=1)
    three = slo.goodput(replace(d, data_parallel=3), prompt, output, ttft, tpot)
    assert three == pytest.approx(3 * slo.goodput(d, prompt, output, ttft, tpot))


def test_a_limit_may_be_a_list():
    for largest in (slo.largest_chunk, lambda *given: slo.safe_chunk(*given, 1000)):
        both = largest(SOURCE4, 64, 1280, [0.02, 0.05])
        assert both.tolist() == [largest(SOURCE4, 64, 1280, limit) for limit in (0.02, 0.05)]


@pytest.mark.parametrize("by_totals", [False, True])
def test_the_largest_batch_whose_cache_is_left_out(by_totals):
    """Without messages a step takes as long for any batch up to the ridge: 140 GB over 3.35 TB/s, 41.8 ms.

    Beyond it the step is arithmetic: 140 GFLOP a token at 742 TFLOP/s.
    """
    fits = [
        slo.largest_batch(SOURCE, 1024, 256, limit, "apart", by_totals, context=0) for limit in (0.0417, 0.042, 0.1)
    ]
    assert fits == [0, 0.042 * 742e12 // 140e9, 0.1 * 742e12 // 140e9]


def test_attainment_counts_requests_that_keep_both():
    ttft, tpot = [0.1, 0.1, 0.3, 0.2], [0.04, 0.06, 0.04, 0.05]
    assert slo.attainment(ttft, tpot, 0.2, 0.05) == 0.5


def test_bad_input():
    refused(lambda: slo.largest_batch(SOURCE4, 1024, 256, 0), "largest_batch", "limit=0")
    refused(lambda: slo.largest_batch(SOURCE4, 1024, 1, 0.05), "output=1", "at least 2")
    refused(lambda: slo.largest_batch(SOURCE4, 1024, 256, 0.05, "alone"), "prefill='alone'")
    refused(lambda: slo.largest_batch(SOURCE4, 0, 256, 0.05), "prompt=0")
    refused(lambda: slo.batch_limits(SOURCE4, 1024, 256, -1, 0.05), "ttft_limit=-1")
    refused(lambda: slo.largest_prompt(SOURCE4, float("nan")), "largest_prompt", "limit=nan")
    refused(lambda: slo.largest_chunk(SOURCE4, 64, 1280, "fast"), "largest_chunk", "limit='fast'")
    refused(lambda: slo.safe_chunk(SOURCE4, 64, 1280, 0.05, 0), "safe_chunk", "prompt=0")
    refused(lambda: slo.safe_chunk(SOURCE4, 64, 1280, -0.05, 10), "safe_chunk", "limit=-0.05")
    refused(lambda: slo.goodput(SOURCE4, 1024, 256, 0.2, 0.05, share=2), "share=2")
