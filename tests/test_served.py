"""A served request, against its parts put together by hand; and a million of them at once."""

from dataclasses import FrozenInstanceError, fields, replace

import examples
import numpy as np
import pytest
from examples import deployments, refused
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import batching

D = examples.served()
WORK = pm.Workload(prompt=1024, output=256, batch=64)
workloads = st.builds(
    pm.Workload, prompt=st.integers(1, 100_000), output=st.integers(2, 5_000), batch=st.integers(1, 4096)
)


# What the engine does


def test_a_whole_prompt_between_steps_by_hand():
    """Each of 63 other requests holds me up once in my 255 steps."""
    result = pm.estimate(D, WORK)
    prefill, step = pm.prefill_time(D, 1024).total, pm.decode_time(D, 64, 1024 + 128).total
    assert result.ttft_s == pytest.approx(prefill)
    assert result.tpot_s == pytest.approx(step + 63 / 255 * prefill)
    assert result.worst_gap_s == pytest.approx(step + prefill)
    assert result.e2e_s == pytest.approx(prefill + 255 * (step + 63 / 255 * prefill))


def test_prompts_elsewhere_leave_no_gap():
    result = pm.estimate(D, WORK, pm.Engine(prefill="apart"))
    assert (result.interference_s, result.worst_gap_s) == (0, result.decode_step_s)


def test_chunks_make_the_gap_shorter_and_the_first_token_later():
    whole, chunked = pm.estimate(D, WORK), pm.estimate(D, WORK, pm.Engine(prefill="fused", chunk=256))
    mixed = [batching.mixed_time(D, 63, 1152, 256, prefix).total for prefix in (0, 256, 512, 768)]
    assert chunked.ttft_s == pytest.approx(sum(mixed))
    assert chunked.ttft_s > whole.ttft_s
    assert chunked.worst_gap_s == pytest.approx(batching.mixed_time(D, 64, 1152, 256, 768).total)
    assert chunked.worst_gap_s < whole.worst_gap_s
    assert chunked.tpot_s == pytest.approx(batching.steady_step(D, 64, 1024, 256, "fused").total)
    alone = pm.estimate(D, replace(WORK, batch=1), pm.Engine(prefill="fused", chunk=256))
    assert alone.ttft_s == pytest.approx(sum(pm.prefill_time(D, 256, prefix=p).total for p in (0, 256, 512, 768)))
    assert alone.worst_gap_s == pytest.approx(alone.decode_step_s)


def test_a_whole_prompt_that_rides_in_a_step_takes_that_step():
    """Counted on the source's 70B: all weights once; the cache of 63 others at 64 + 2,048 tokens, and the prompt's own.

    127 tokens are below the ridge of 742 / 3.35 = 221, so that the step is its reads.
    """
    result = pm.estimate(examples.SOURCE, pm.Workload(64, 4096, 64), pm.Engine(prefill="fused"))
    reads = 2 * 70e9 + (63 * 2112 + 64) * 80 * 2 * 8 * 128 * 2
    assert result.ttft_s == pytest.approx(reads / 3.35e12)
    assert result.ttft_s == pytest.approx(
        pm.estimate(examples.SOURCE, pm.Workload(64, 4096, 64), pm.Engine(prefill="fused", chunk=64)).ttft_s
    )


def test_a_cached_prefix_by_hand():
    """1,000 shared tokens are 62 blocks of 16: 32 tokens of 1,024 are left to compute."""
    result = pm.estimate(D, WORK, pm.Engine(shared_prefix=1000))
    prefill = pm.prefill_time(D, 32, prefix=992).total
    assert result.ttft_s == pytest.approx(prefill)
    assert result.interference_s == pytest.approx(63 / 255 * prefill)
    chunked = pm.estimate(D, WORK, pm.Engine(prefill="fused", chunk=16, shared_prefix=1000))
    assert chunked.ttft_s == pytest.approx(
        sum(batching.mixed_time(D, 63, 1152, 16, prefix).total for prefix in (992, 1008))
    )


def test_speculation_by_hand():
    """Four drafted tokens at 0.8: 1 + 0.8 + 0.64 + 0.512 + 0.4096 tokens for one pass over five and four drafts."""
    result = pm.estimate(D, WORK, pm.Engine(draft_tokens=4, acceptance=0.8, draft_cost=0.05))
    plain = pm.decode_time(D, 64, 1152).total
    rounds = pm.decode_time(D, 64, 1152, 5).total + 4 * 0.05 * plain
    assert result.decode_step_s == pytest.approx(rounds / 3.3616)
    assert result.worst_gap_s == pytest.approx(rounds + result.ttft_s)
    assert pm.estimate(D, WORK, pm.Engine(acceptance=0.8, draft_cost=0.05)) == pm.estimate(D, WORK)


def test_a_pipeline_is_held_up_for_one_stage_of_each_prefill():
    deep = replace(D, pipeline_parallel=2)
    result = pm.estimate(deep, WORK)
    assert result.interference_s == pytest.approx(63 / 255 * result.ttft_s / 2)
    assert result.worst_gap_s == pytest.approx(result.decode_step_s + result.ttft_s / 2)


def test_one_request_alone_waits_for_no_other_and_two_for_one():
    alone, two = (pm.estimate(D, replace(WORK, batch=batch)) for batch in (1, 2))
    prefill = pm.prefill_time(D, 1024).total
    assert alone.worst_gap_s == alone.tpot_s == pytest.approx(pm.decode_time(D, 1, 1152).total)
    assert two.worst_gap_s == pytest.approx(pm.decode_time(D, 2, 1152).total + prefill)
    assert two.tpot_s == pytest.approx(pm.decode_time(D, 2, 1152).total + prefill / 255)
    fused = pm.estimate(D, replace(WORK, batch=2), pm.Engine(prefill="fused", chunk=512))
    assert fused.ttft_s == pytest.approx(sum(batching.mixed_time(D, 1, 1152, 512, p).total for p in (0, 512)))
    assert fused.worst_gap_s == pytest.approx(batching.mixed_time(D, 2, 1152, 512, 512).total)


@pytest.mark.parametrize("chunk", [None, 32, 256])
def test_what_is_left_of_a_cached_prompt_is_one_chunk(chunk):
    """32 of 1,024 tokens are left behind 992, however many a chunk may have."""
    engine = pm.Engine(prefill="fused", chunk=chunk, shared_prefix=1000)
    result = pm.estimate(D, WORK, engine)
    assert result.worst_gap_s == pytest.approx(batching.mixed_time(D, 64, 1152, 32, 992).total)
    assert result.tpot_s == pytest.approx(batching.steady_step(D, 64, 1024, 256, "fused", prefix=992).total)
    among = batching.mixed_time(D, 63, 1152, 32, 992).total
    alone = pm.prefill_time(D, 32, prefix=992).total
    assert result.ttft_s == pytest.approx(among)
    assert pm.estimate(D, replace(WORK, batch=1), engine).ttft_s == pytest.approx(alone)


def test_drafts_are_refused_and_cost_nothing_unless_said():
    """So each round of three tokens' work gives one."""
    result = pm.estimate(D, WORK, pm.Engine(draft_tokens=2))
    assert result.decode_step_s == pytest.approx(pm.decode_time(D, 64, 1152, 3).total)
    assert pm.Engine() == pm.Engine("exclusive", None, 0, 0, 0, 0)


# What fits and what binds


def test_bytes_of_the_cache_and_of_what_is_left():
    result = pm.estimate(D, WORK)
    assert result.kv_bytes_per_gpu == 64 * 1280 * 327_680 / 4
    used = 0.9 * 80e9 - 68_976_648_192 * 2 / 4 - pm.peak_activation_bytes(D)
    assert result.kv_budget_bytes == pytest.approx(used)
    short = pm.estimate(replace(D, tensor_parallel=1), WORK)
    assert short.kv_budget_bytes == pytest.approx(0.9 * 80e9 - 2 * 68_976_648_192 - 8192 * 2 * (2 * 28672 + 4 * 8192))
    assert not short.fits
    assert short.max_concurrency == short.kv_capacity_tokens == 0


def test_a_stage_holds_the_cache_of_its_layers():
    """41 of 81 layers on the larger of two stages; 2 x 8 heads x 128 x 2 byte a token in each, over 4 devices."""
    model = replace(D.model, layers=81)
    result = pm.estimate(replace(D, model=model, pipeline_parallel=2), WORK)
    assert result.kv_bytes_per_gpu == pytest.approx(64 * 1280 * 41 * 4096 / 4)


def test_a_batch_fits_up_to_the_last_request():
    most = int(pm.max_concurrency(D, 1280))
    assert pm.estimate(D, replace(WORK, batch=most)).fits
    assert not pm.estimate(D, replace(WORK, batch=most + 1)).fits


@pytest.mark.parametrize(
    ("ttft", "tpot", "batch", "binding"),
    [(0.01, 1, 1, "ttft"), (10, 0.001, 1, "tpot"), (10, 1, 400, "memory"), (10, 1, 1, "memory")],
)
def test_the_limit_that_is_used_up_most(ttft, tpot, batch, binding):
    result = pm.estimate(D, replace(WORK, batch=batch), limits=pm.Limits(ttft, tpot))
    uses = {"ttft": result.ttft_s / ttft, "tpot": result.tpot_s / tpot, "memory": batch / result.max_concurrency}
    expected = max(uses, key=uses.get)
    assert result.binding == expected
    assert batch == 1 or result.binding == binding
    assert pm.estimate(D, WORK).binding is None


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        (pm.Limits(), True),
        (pm.Limits(ttft=100), True),
        (pm.Limits(ttft=0.01), False),
        (pm.Limits(tpot=100), True),
        (pm.Limits(tpot=0.001), False),
        (pm.Limits(ttft=100, tpot=0.001), False),
    ],
    ids=str,
)
def test_limits_that_are_kept(limits, met):
    result = pm.estimate(D, replace(WORK, batch=1), limits=limits)
    assert result.limits_met == met
    assert result.binding == ("memory" if met else "tpot" if limits.tpot else "ttft")
    assert not pm.estimate(D, replace(WORK, batch=4000), limits=limits).limits_met
    assert pm.estimate(D, WORK).limits_met is None


def test_drafts_verified_beside_chunks_by_hand():
    """A pass works on five tokens of each request and on its share of prompts; 255 tokens take 255 / 3.3616 passes."""
    engine = pm.Engine(prefill="fused", chunk=256, draft_tokens=4, acceptance=0.8, draft_cost=0.05)
    result = pm.estimate(D, WORK, engine)
    plain, verify = pm.decode_time(D, 64, 1152).total, pm.decode_time(D, 64, 1152, 5).total
    rounds, passes = verify + 4 * 0.05 * plain, 255 / 3.3616
    # Of 63 other requests each prefills once in those passes: the arithmetic of 63 x 1,024 tokens, spread evenly.
    share = batching.steady_step(D, 64, 1024, 1 + passes, "fused", context=1152, tokens=5)
    linear = pm.decode_flops(D.model, 64, 1152, 5).linear + 63 / passes * pm.prefill_flops(D.model, 1024).linear
    assert share.compute.linear == pytest.approx(linear / (4 * D.flops))
    assert result.tpot_s == pytest.approx((rounds + share.total - verify) / 3.3616)
    worst = batching.mixed_time(D, 64, 1152, 256, 768, 5)
    flops = pm.decode_flops(D.model, 64, 1152, 5).attention + pm.prefill_flops(D.model, 256, prefix=768).attention
    assert worst.compute.attention == pytest.approx(flops / (4 * D.flops))
    assert worst.memory.linear == pytest.approx(pm.decode_time(D, 64 * 5 + 256, 0).memory.linear)
    assert result.worst_gap_s == pytest.approx(rounds + worst.total - verify)
    among = [batching.mixed_time(D, 63, 1152, 256, prefix, 5).total for prefix in (0, 256, 512, 768)]
    assert result.ttft_s == pytest.approx(sum(among))


def test_an_answer_of_two_tokens_takes_a_whole_pass_though_drafts_would_yield_more():
    """So each of the 63 others prefills once in it: 63 x 1,024 tokens of linear arithmetic, and no more."""
    engine = pm.Engine(prefill="fused", draft_tokens=4, acceptance=0.8, draft_cost=0.05)
    result = pm.estimate(D, pm.Workload(1024, 2, 64), engine)
    linear = pm.decode_flops(D.model, 64, 1025, 5).linear + 63 * pm.prefill_flops(D.model, 1024).linear
    assert linear / (4 * D.flops) < result.tpot_s < 1.3 * linear / (4 * D.flops)


def test_one_token_left_takes_a_round():
    engine = pm.Engine(prefill="apart", draft_tokens=8, acceptance=0.9, draft_cost=0.05)
    result = pm.estimate(D, pm.Workload(1000, 2, 1), engine)
    rounds = pm.decode_time(D, 1, 1001, 9).total + 8 * 0.05 * pm.decode_time(D, 1, 1001).total
    assert result.tpot_s == result.worst_gap_s == pytest.approx(rounds)
    assert result.e2e_s == pytest.approx(result.ttft_s + rounds)


@pytest.mark.parametrize("gamma", [0, 1, 4, 8])
@pytest.mark.parametrize("alpha", [0, 0.3, 0.7, 0.9, 1])
def test_rounds_of_a_request_by_recursion(gamma, alpha):
    """Rounds to N tokens: one, and those of what the first leaves; it yields k with alpha^(k - 1) (1 - alpha)."""
    chances = [alpha**k * (1 - alpha) for k in range(gamma)] + [alpha**gamma]
    rounds = [0.0]
    for left in range(1, 120):
        rounds.append(1 + sum(p * rounds[max(left - k, 0)] for k, p in enumerate(chances, start=1)))
    output = np.arange(2, 121)
    engine = pm.Engine(prefill="apart", draft_tokens=gamma, acceptance=alpha, draft_cost=0.05)
    result = pm.estimate(D, pm.Workload(1000, output, 1), engine)
    taken = result.tpot_s * (output - 1) / result.worst_gap_s
    assert taken[0] == pytest.approx(1)
    assert np.all(taken <= np.array(rounds[1:]) * (1 + 1e-9))
    assert np.all(taken > np.array(rounds[1:]) - 1)
    assert taken[-1] == pytest.approx(119 / sum(alpha**i for i in range(gamma + 1)))  # eq-expected-tokens, unchanged


def test_without_room_memory_binds():
    """Not by a division by nothing."""
    assert pm.estimate(replace(D, tensor_parallel=1), WORK, limits=pm.Limits(1e-6, 1e-6)).binding == "memory"


# Arrays


@given(deployments(), st.lists(workloads, min_size=2, max_size=5), st.sampled_from(["exclusive", "fused", "apart"]))
def test_many_workloads_at_once_are_those_one_by_one(deployment, several, prefill):
    engine, limits = pm.Engine(prefill=prefill, shared_prefix=100, draft_tokens=2, acceptance=0.7), pm.Limits(0.2, 0.05)
    at_once = pm.estimate(
        deployment,
        pm.Workload(*(np.array([getattr(w, name) for w in several]) for name in ("prompt", "output", "batch"))),
        engine,
        limits,
    )
    for place, one in enumerate(several):
        alone = pm.estimate(deployment, one, engine, limits)
        for name, value in vars(alone).items():
            found = np.broadcast_to(getattr(at_once, name), len(several))[place]
            assert found == (value if isinstance(value, str) else pytest.approx(value, rel=1e-12)), name


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_narrow_numbers_of_a_workload_do_not_wrap(kind):
    sizes = [(1, 2, 1), (1024, 256, 64), (100_000, 5_000, 4096)]
    result = pm.estimate(D, pm.Workload(*np.array(sizes, kind).T), pm.Engine(shared_prefix=100))
    for place, one in enumerate(sizes):
        alone = pm.estimate(D, pm.Workload(*one), pm.Engine(shared_prefix=100))
        for name in ("ttft_s", "tpot_s", "e2e_s", "throughput_tok_s", "kv_bytes_per_gpu"):
            assert getattr(result, name)[place] == pytest.approx(getattr(alone, name), rel=1e-12), name


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("shared_prefix", [0, 100, 1000]),
        ("draft_tokens", [0, 2, 4]),
        ("acceptance", [0, 0.5, 1]),
        ("draft_cost", [0, 0.1, 1]),
        ("chunk", [16, 256, 2048]),
    ],
)
def test_many_engines_at_once_are_those_one_by_one(field, values):
    given_ = {"draft_tokens": 3, "acceptance": 0.8, "draft_cost": 0.05, "prefill": "fused", "chunk": 100}
    at_once = pm.estimate(D, WORK, pm.Engine(**given_ | {field: values}), pm.Limits([0.1, 0.2, 0.4], [0.1, 0.02, 0.01]))
    for place, value in enumerate(values):
        limits = pm.Limits((0.1, 0.2, 0.4)[place], (0.1, 0.02, 0.01)[place])
        alone = pm.estimate(D, WORK, pm.Engine(**given_ | {field: value}), limits)
        for name in ("ttft_s", "decode_step_s", "tpot_s", "worst_gap_s", "e2e_s", "binding"):
            found, expected = np.broadcast_to(getattr(at_once, name), 3)[place], getattr(alone, name)
            assert found == (expected if name == "binding" else pytest.approx(expected, rel=1e-12)), name


def test_a_million_deployments_are_one_call():
    sizes = np.arange(1, 101)
    grid = pm.Workload(
        prompt=sizes[:, None, None] * 40.0, output=1.0 + 8 * sizes[None, :, None], batch=sizes[None, None, :] * 4.0
    )
    result = pm.estimate(D, grid, limits=pm.Limits(0.4, 0.1))
    for name in ("tpot_s", "e2e_s", "kv_bytes_per_gpu", "fits", "bound", "binding"):
        assert getattr(result, name).shape == (100, 100, 100), name
    assert set(np.unique(result.binding)) == {"ttft", "tpot", "memory"}
    corner = pm.estimate(D, pm.Workload(4000, 801, 400), limits=pm.Limits(0.4, 0.1))
    assert result.tpot_s[-1, -1, -1] == pytest.approx(corner.tpot_s)
    assert result.binding[-1, -1, -1] == corner.binding


def test_what_was_asked_and_answered_stays():
    """A chapter that changed a result in place would say a number that nothing computes."""
    step = pm.decode_time(D, 64, 1152)
    for one in (pm.estimate(D, WORK), pm.Engine(), pm.Limits(1, 1), step, step.parts, pm.parameters(D.model)):
        for field in fields(one):
            with pytest.raises(FrozenInstanceError):
                setattr(one, field.name, 0)


# Bad input


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"prefill": "chunked"}, "prefill='chunked' must be one of exclusive, fused, apart"),
        ({"chunk": 512}, "chunk=512 needs prefill='fused', not 'exclusive'"),
        ({"chunk": 0, "prefill": "fused"}, "chunk=0 must be at least 1"),
        ({"chunk": 1.5, "prefill": "fused"}, "chunk=1.5 must be a whole number"),
        ({"shared_prefix": -1}, "shared_prefix=-1 must be at least 0"),
        ({"draft_tokens": 1.5}, "draft_tokens=1.5 must be a whole number"),
        ({"acceptance": 1.1}, "acceptance=1.1 must be at most 1"),
        ({"draft_cost": float("nan")}, "draft_cost=nan must be at least 0"),
    ],
)
def test_engines_that_cannot_be(given_, words):
    refused(lambda: pm.Engine(**given_), "Engine", words)


@pytest.mark.parametrize("field", ["ttft", "tpot"])
def test_limits_above_zero(field):
    refused(lambda: pm.Limits(**{"ttft": 1, "tpot": 1, field: 0}), f"Limits: {field}=0 must be above 0")
