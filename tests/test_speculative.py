"""Speculative decoding: expected tokens by counting, Leviathan's limits, the batch and the context where it pays."""

from dataclasses import replace

import examples
import numpy as np
import pytest
import sympy as sp
from examples import SOURCE, batches, deployments, refused
from hypothesis import assume, given
from hypothesis import strategies as st
from test_dimensions import ONE

import perfmodel as pm
from perfmodel.speculative import (
    best_draft_length,
    break_even_batch,
    expected_tokens,
    free_batch,
    paying_context,
    relative_draft_cost,
    relative_verify_cost,
    speculative_speedup,
)

CLOSE = 1e-9  # relative: a few terms of one sign in double precision
acceptances = st.floats(0, 1)
lengths = st.integers(0, 40)
costs = st.floats(0, 1)
contexts = st.integers(0, 1_000_000)

# The source's example: four drafted tokens, of which 0.8 are accepted each, by a model of a tenth of the size.
ALPHA, GAMMA, COST = 0.8, 4, 0.1
TAU = 1 + 0.8 + 0.64 + 0.512 + 0.4096  # 3.3616
DENSE = {"ideal": True, "experts": False, "bare": True}


# Expected tokens


@given(acceptances, lengths)
def test_expected_tokens_by_counting_outcomes(alpha, gamma):
    """k drafts accepted and then a refusal yield k + 1 tokens, and so do all gamma and the bonus token."""
    outcomes = [(k + 1, alpha**k * (1 - alpha)) for k in range(gamma)] + [(gamma + 1, alpha**gamma)]
    assert sum(chance for _, chance in outcomes) == pytest.approx(1)
    mean = sum(tokens * chance for tokens, chance in outcomes)
    # 1 - alpha^(gamma+1) over 1 - alpha loses digits near alpha = 1, to 1e-8 at the worst.
    assert expected_tokens(alpha, gamma) == pytest.approx(mean, rel=1e-7)
    assert expected_tokens(alpha, gamma) >= 1 - 1e-7
    assert expected_tokens(alpha, gamma) <= (gamma + 1) * (1 + 1e-7)


@given(lengths)
def test_expected_tokens_at_both_ends(gamma):
    assert expected_tokens(1.0, gamma) == gamma + 1
    assert expected_tokens(1, gamma) == gamma + 1
    assert expected_tokens(0.0, gamma) == 1
    assert expected_tokens(np.array([0.0, 1.0]), gamma).tolist() == [1, gamma + 1]
    alpha, length = pm.argument_symbols("acceptance", "draft_tokens")
    traced = expected_tokens(alpha, length)
    assert traced.subs({alpha: 1, length: gamma}) == gamma + 1
    assert expected_tokens(sp.Integer(1), length) == length + 1
    assert traced.subs({alpha: sp.Rational(4, 5), length: 4}) == sp.Rational(33616, 10000)


def test_arrays_of_both_arguments():
    found = expected_tokens([0.5, 1, 0.8], np.array([1, 2, 4], dtype=np.int32))
    assert found == pytest.approx([1.5, 3, 3.3616])
    assert expected_tokens(0.5, [0, 1, 2]) == pytest.approx([1, 1.5, 1.75])


def test_lengths_may_be_lists():
    assert speculative_speedup([2, 3], [1, 2], [0.5, 0.25], [1, 1.5]) == pytest.approx([2 / 1.5, 3 / 2])
    assert speculative_speedup([2, 3], 4, 0.25) == pytest.approx([1, 1.5])
    assert speculative_speedup(2, 4, 0.25, [1, 3]) == pytest.approx([1, 0.5])
    assert break_even_batch(SOURCE, [TAU, 1], GAMMA, COST) == pytest.approx([131.19446, 0])
    assert best_draft_length([0.05, 0.8], [0.1, 0.1]).tolist() == [0, 6]
    assert best_draft_length(0.8, [0.1, 0.9]).tolist() == [6, 0]
    assert relative_draft_cost(SOURCE, SOURCE, 1, [0, 9]) == pytest.approx([1, 1])
    assert break_even_batch(SOURCE, TAU, [GAMMA, 40], COST) == pytest.approx([131.19446, 0])
    assert break_even_batch(SOURCE, TAU, GAMMA, COST, [0, 1e9]).tolist() == pytest.approx([131.19446, np.inf])
    assert relative_draft_cost(SOURCE, SOURCE, [1, 2], [0, 0], [1, 2]) == pytest.approx([1, 1], rel=1e-4)
    assert free_batch(SOURCE, [0, 4]) == pytest.approx([221.4925, 221.4925 / 5], rel=1e-6)
    for found in (
        break_even_batch(SOURCE, [TAU, 1], [GAMMA, GAMMA], [COST, COST], [0, 0]),
        [break_even_batch(SOURCE, tokens, GAMMA, COST) for tokens in (TAU, 1)],
    ):
        assert found == pytest.approx([131.19446, 0])
    assert np.isinf(paying_context(SOURCE, [TAU, 1], [GAMMA, GAMMA], [COST, COST])).tolist() == [False, True]


# Leviathan's speed-up


@given(acceptances, costs)
def test_no_draft_is_plain_decoding(alpha, cost):
    assert speculative_speedup(expected_tokens(alpha, 0), 0, cost) == 1


@given(acceptances, lengths, costs, st.floats(1, 50))
def test_speedup_falls_with_every_cost_and_grows_with_acceptance(alpha, gamma, cost, verify):
    tokens = expected_tokens(alpha, gamma)
    found = speculative_speedup(tokens, gamma, cost, verify)
    assert found <= speculative_speedup(tokens, gamma, cost) * (1 + CLOSE)
    assert found <= (gamma + 1) * (1 + 1e-7)
    assert speculative_speedup(tokens, gamma, cost + 0.1, verify) <= found
    assert speculative_speedup(expected_tokens(alpha / 2, gamma), gamma, cost, verify) <= found * (1 + 1e-7)


def test_the_source_example():
    """Section 5.2 of the source: 0.67232 over 0.2 x 1.4."""
    assert expected_tokens(ALPHA, GAMMA) == pytest.approx(0.67232 / 0.2)
    assert speculative_speedup(TAU, GAMMA, COST) == pytest.approx(0.67232 / 0.28) == pytest.approx(2.4011429)
    # Section 5.4 calls the draft negligible: it is 0.4 of the 1.4 plain steps, and without it the speed-up is tau.
    assert 1 - speculative_speedup(TAU, GAMMA, COST) / speculative_speedup(TAU, GAMMA, 0) == pytest.approx(0.28571429)


@pytest.mark.parametrize(
    ("acceptance", "draft_tokens", "speedup"),
    [
        (1, 4, 3.57),  # section 5.3 promises 9 at low temperature: four drafts never give more than 5/1.4
        (1, 80, 9.0),  # 81/9
    ],
)
def test_a_perfect_draft(acceptance, draft_tokens, speedup):
    found = speculative_speedup(expected_tokens(acceptance, draft_tokens), draft_tokens, COST)
    assert found == pytest.approx(speedup, rel=0.002)  # printed with three digits


@pytest.mark.parametrize(("tokens", "alpha", "speedup"), [(3.4, 0.81, 2.43), (3.8, 0.86, 2.71)])
def test_measured_lengths_of_the_source(tokens, alpha, speedup):
    """Section 5.3 prints speed-ups of 1.9 and 2.0 beside 3.4 and 3.8 tokens a round: at c = 0.1 they were larger."""
    assert speculative_speedup(tokens, GAMMA, COST) == pytest.approx(speedup, rel=0.002)  # printed with three digits
    assert expected_tokens(alpha, GAMMA) == pytest.approx(tokens, rel=0.01)  # alpha with two digits


# The best length


@given(st.floats(0.01, 0.99), st.floats(0.005, 1))
def test_best_length_is_the_largest_of_all(alpha, cost):
    gamma = np.arange(33)
    by_trying = speculative_speedup(expected_tokens(alpha, gamma), gamma, cost)
    best = best_draft_length(alpha, cost)
    assert by_trying[best] == pytest.approx(by_trying.max(), rel=1e-12)


@given(acceptances, costs)
def test_speculation_pays_if_acceptance_exceeds_the_cost_of_a_draft(alpha, cost):
    """Leviathan et al., corollary 3.9; the first token alone then gives (1 + alpha)/(1 + c)."""
    assume(abs(alpha - cost) > 1e-9)
    best = best_draft_length(alpha, cost)
    assert (best > 0) == (alpha > cost)
    if best:
        speedup = speculative_speedup(expected_tokens(alpha, best), best, cost)
        assert speedup >= (1 + alpha) / (1 + cost) * (1 - 1e-7)


def test_best_length_of_the_source_example():
    """By hand: speed-ups at gamma = 4 ... 8 are 2.4011, 2.4595, 2.4696, 2.4477, 2.4049."""
    sums = [sum(0.8**i for i in range(gamma + 1)) / (1 + gamma / 10) for gamma in (4, 5, 6, 7, 8)]
    assert sums == pytest.approx([2.4011, 2.4595, 2.4696, 2.4477, 2.4049], abs=1e-4)
    assert best_draft_length(0.8, 0.1) == 6


def test_a_free_or_a_perfect_draft_has_no_longest_length():
    assert best_draft_length(1.0, 0.2) == 32
    assert best_draft_length(0.5, 0, longest=10) == 10
    assert best_draft_length(1, 1) == 0
    assert best_draft_length(np.array([0.05, 0.8, 1.0]), 0.1, longest=12).tolist() == [0, 6, 12]


# Verification on the roofline


def test_flat_up_to_44_and_below_1_from_131_on_weights_alone():
    """B* is 742e12/3.35e12 = 221.49 requests: a fifth of it verifies for free, and v = 5 B/B* is tau - 0.4 at 131.2."""
    ridge = 742e12 / 3.35e12
    assert free_batch(SOURCE, GAMMA) == pytest.approx(ridge / 5)
    assert int(free_batch(SOURCE, GAMMA)) == 44
    assert break_even_batch(SOURCE, TAU, GAMMA, COST) == pytest.approx(ridge * (TAU - 0.4) / 5)
    assert int(break_even_batch(SOURCE, TAU, GAMMA, COST)) == 131


@pytest.mark.parametrize(
    ("batch", "speedup"),
    [(1, 2.4011429), (16, 2.4011429), (32, 2.4011), (44, 2.4011), (64, 1.8222583), (128, 1.021922)],
)
def test_roofline_speedup_on_weights_alone(batch, speedup):
    """The ledger's recomputation of sections 5.4 and 9.6, where the source prints 1.3, 1.1 and 1."""
    verify = relative_verify_cost(SOURCE, batch, 0, GAMMA + 1)
    assert speculative_speedup(TAU, GAMMA, COST, verify) == pytest.approx(speedup, rel=2e-5)


# A draft with its own cache, beside the 70B target with 327,680 bytes of cache a token: Llama-2-7B keeps a key and a
# value of 32 heads x 128 in 32 layers, 524,288 bytes a token; an 8B with 8 heads keeps 131,072.
MHA_DRAFT = replace(SOURCE, model=pm.Model.of_size("7B", 7e9, layers=32, heads=32, kv_heads=32, head_dim=128))
GQA_DRAFT = replace(SOURCE, model=pm.Model.of_size("8B", 8e9, layers=32, heads=32, kv_heads=8, head_dim=128))


@pytest.mark.parametrize(("batch", "cost"), [(64, 0.34), (128, 0.52)])
def test_draft_with_more_cache_than_its_target(batch, cost):
    """All reads: (14e9 + B 1280 524288)/(140e9 + B 1280 327680)."""
    by_hand = (14e9 + batch * 1280 * 524288) / (140e9 + batch * 1280 * 327680)
    assert by_hand == pytest.approx(cost, abs=0.005)
    assert relative_draft_cost(MHA_DRAFT, SOURCE, batch, 1280) == pytest.approx(by_hand, rel=1e-12)


def test_draft_steps_read_a_growing_cache():
    """Three draft steps at contexts 1000, 1001 and 1002 cost what three at 1001 do."""
    steps = [pm.decode_time(MHA_DRAFT, 32, 1000 + i).total for i in range(3)]
    plain = pm.decode_time(SOURCE, 32, 1000).total
    assert relative_draft_cost(MHA_DRAFT, SOURCE, 32, 1000, 3) == pytest.approx(sum(steps) / 3 / plain, rel=1e-12)
    assert relative_draft_cost(MHA_DRAFT, SOURCE, 32, 1000) == pytest.approx(steps[0] / plain, rel=1e-12)


@pytest.mark.parametrize(
    ("draft", "speedups"),
    [
        (MHA_DRAFT, {16: 2.01, 32: 1.75, 64: 1.30, 128: 0.81}),
        (GQA_DRAFT, {32: 2.16, 64: 1.81, 128: 1.17}),
    ],
    ids=["MHA 7B", "GQA 8B"],
)
def test_speedup_with_the_cache_of_both(draft, speedups):
    """The ledger's recomputation takes the maximum of the totals, and no FLOPs of attention: 2.4 % of a pass here."""
    for batch, speedup in speedups.items():
        plain = pm.decode_time(SOURCE, batch, 1280).by_totals
        verify = pm.decode_time(SOURCE, batch, 1280, GAMMA + 1).by_totals / plain
        cost = pm.decode_time(draft, batch, 1280).by_totals / plain
        assert speculative_speedup(TAU, GAMMA, cost, verify) == pytest.approx(speedup, rel=0.03)


@given(deployments(**DENSE), batches, contexts, st.integers(1, 16))
def test_verifying_costs_between_one_and_all_tokens(target, batch, context, gamma):
    cost = relative_verify_cost(target, batch, context, gamma + 1)
    assert 1 - CLOSE <= cost <= (gamma + 1) * (1 + CLOSE)
    assert relative_verify_cost(target, batch, context, 1) == pytest.approx(1)


@given(deployments(**DENSE), contexts, st.integers(1, 16), st.floats(0.01, 0.999))
def test_verifying_is_free_up_to_the_free_batch(target, context, gamma, share):
    free = free_batch(target, gamma, context)
    assume(free > 0)
    assert relative_verify_cost(target, share * free, context, gamma + 1) == pytest.approx(1, rel=CLOSE)
    assert relative_verify_cost(target, free * 1.01, context, gamma + 1) > 1


@given(deployments(**DENSE), st.integers(1, 100_000), st.integers(1, 200))
def test_nothing_is_free_once_attention_is_at_the_arithmetic_roof(target, context, gamma):
    if not free_batch(target, gamma, context):
        assert relative_verify_cost(target, 1e-6, context, gamma + 1) > 1


def test_attention_of_eight_query_heads_a_key_verifies_27_tokens_for_free():
    """4 H_q D L FLOPs a cached token and 327,680 bytes of it: 8 FLOPs a byte and token verified, against 221.5."""
    assert free_batch(SOURCE, 26, context=1280) == pytest.approx(221.4925 / 27, rel=1e-6)
    assert free_batch(SOURCE, 27, context=1280) == 0
    assert free_batch(SOURCE, 27) == pytest.approx(221.4925 / 28, rel=1e-6)


@given(deployments(**DENSE), st.integers(1, 8), st.floats(0.3, 0.99), st.floats(0, 0.3), contexts)
def test_speculation_loses_beyond_the_break_even_batch_alone(target, gamma, alpha, cost, context):
    assume(attention_is_memory_bound(target))
    tokens = expected_tokens(alpha, gamma)
    assume(abs(tokens - gamma * cost - 1) > 1e-3)

    def speedup(batch):
        return speculative_speedup(tokens, gamma, cost, relative_verify_cost(target, batch, context, gamma + 1))

    even = break_even_batch(target, tokens, gamma, cost, context)
    ridge = pm.ridge_tokens(target)
    if even == 0:
        assert speedup(1e-6) <= 1
    elif np.isinf(even):
        assert min(speedup(batch) for batch in (1, ridge / gamma, ridge, 100 * ridge)) >= 1 - CLOSE
    else:
        assert even <= ridge * (1 + CLOSE)
        assert speedup(even) == pytest.approx(1, rel=1e-6)
        assert speedup(even * 0.99) > 1
        assert speedup(min(even * 1.01, ridge)) <= 1 + CLOSE


def attention_is_memory_bound(target, tokens=1):
    """Attention's own intensity stays below the ridge, at any context."""
    one = pm.decode_time(target, 1, 1000, tokens)
    return one.compute.attention <= one.memory.attention


@given(deployments(**DENSE), st.integers(1, 8), st.floats(0.3, 0.99), st.floats(0, 0.3))
def test_beyond_the_paying_context_there_is_no_break_even(target, gamma, alpha, cost):
    """MagicDec: what a short context loses at a large batch, a long one gains."""
    tokens = expected_tokens(alpha, gamma)
    context = paying_context(target, tokens, gamma, cost)
    if tokens - gamma * cost <= 1:
        assert np.isinf(context)
        assert break_even_batch(target, tokens, gamma, cost, 1e6) == 0
        return
    if np.isinf(context):
        assert not attention_is_memory_bound(target, gamma + 1)
        assert np.isfinite(break_even_batch(target, tokens, gamma, cost, 1e9))
        return
    assume(1e-3 < context < 1e12)
    assert np.isinf(break_even_batch(target, tokens, gamma, cost, context * 1.001))
    below = break_even_batch(target, tokens, gamma, cost, context * 0.999)
    assert below <= pm.ridge_tokens(target)
    assert break_even_batch(target, tokens, gamma, cost) <= below


def test_paying_context_of_the_source_example():
    """Past the ridge each request adds a = 2N/F of arithmetic and k = 327680/beta a cached token: 1 where
    (tau - 0.4)(a + k s) = 5 a + k s."""
    a, k = 2 * 70e9 / 742e12, 327680 / 3.35e12
    assert paying_context(SOURCE, TAU, GAMMA, COST) == pytest.approx(
        a * (5 - (TAU - 0.4)) / (k * (TAU - 1.4)), rel=1e-9
    )


def test_stages_of_a_pipeline_share_the_batch():
    """Two stages work on half the batch each, so every batch above doubles."""
    staged = replace(SOURCE, pipeline_parallel=2)
    assert free_batch(staged, GAMMA) == pytest.approx(2 * 221.4925 / 5, rel=1e-6)
    for context in (0, 1280):
        alone = break_even_batch(SOURCE, TAU, GAMMA, COST, context)
        assert break_even_batch(staged, TAU, GAMMA, COST, context) == pytest.approx(2 * alone)
    assert paying_context(staged, TAU, GAMMA, COST) == pytest.approx(paying_context(SOURCE, TAU, GAMMA, COST))


def test_the_lm_head_is_read_and_multiplied_as_well():
    """With a vocabulary too the whole step breaks even there; norms, 3e-5 of its weights, do no arithmetic."""
    target = examples.served("llama-3.1-8b", tensor_parallel=1, link=None, constants=pm.IDEAL)
    for context in (0, 300):
        even = break_even_batch(target, TAU, GAMMA, COST, context)
        verify = relative_verify_cost(target, even, context, GAMMA + 1)
        assert speculative_speedup(TAU, GAMMA, COST, verify) == pytest.approx(1, rel=1e-4)


def test_drafting_nothing_never_pays():
    assert np.isinf(paying_context(SOURCE, 1, 0, COST))
    assert break_even_batch(SOURCE, 1, 0, COST) == 0


@given(deployments(**DENSE), batches, st.integers(0, 500_000), st.integers(1, 500_000), st.integers(1, 8))
def test_a_longer_context_never_makes_verifying_dearer(target, batch, context, more, gamma):
    assume(free_batch(target, gamma, context + more) > 0)
    short = relative_verify_cost(target, batch, context, gamma + 1)
    assert relative_verify_cost(target, batch, context + more, gamma + 1) <= short * (1 + CLOSE)


def test_a_longer_draft_pays_at_a_small_batch_and_not_at_a_large_one():
    gamma = np.arange(1, 17)
    best = []
    for batch in (1, 64):
        verify = relative_verify_cost(SOURCE, batch, 0, gamma + 1)
        best.append(gamma[np.argmax(speculative_speedup(expected_tokens(0.8, gamma), gamma, 0.1, verify))])
    assert best[0] == best_draft_length(0.8, 0.1) == 6
    assert best[1] < 6


def test_verifying_touches_more_experts():
    """A mixture of experts has no batch at which verifying is free from the first request on: two tokens of Mixtral
    touch 8 (1 - (3/4)^2) = 3.5 experts, one touches 2."""
    mixtral = examples.served("mixtral-8x7b", link=None, constants=pm.IDEAL)
    one, two = (pm.decode_time(mixtral, 1, 0, tokens).memory.total for tokens in (1, 2))
    experts = 3 * 4096 * 14336 * 32 * 2 / (4 * 3.35e12)  # seconds to read one expert of all layers
    assert two - one == pytest.approx(1.5 * experts, rel=1e-9)
    assert relative_verify_cost(mixtral, 1, 0, 2) > 1.5


# Measured


def eagle(target, **changes):
    """EAGLE's draft head: one layer of the target's width, a matrix 2d x d before it, and the target's LM head.

    The matrix counts as feed-forward width: 2 d^2 weights of three matrices d x d_ff make 2 d / 3 more of d_ff.
    """
    m = target.model
    return replace(
        target, model=replace(m, name="EAGLE", layers=1, ffn_size=m.ffn_size + 2 * m.hidden_size / 3), **changes
    )


def test_measured_eagle_on_llama_3_8b():
    """vLLM pull request 16035: 128.64 tokens/s alone; 175.49 with k = 2 (1.89 a round), 165.65 with k = 4 (2.08).

    A round then took tau/speed-up = 1.385 and 1.615 plain steps. The difference is two draft steps, so c = 0.115: the
    roofline gives 0.104 for the bytes of the head and leaves a tenth to the host. The rest, v = 1.155, is not
    a matter of bytes either: the roofline is 15 % too fast for both, and right about which is the faster.
    """
    target = examples.served("llama-3.1-8b", tensor_parallel=1, link=None, constants=pm.IDEAL)
    round_cost = {2: 1.89 / (175.49 / 128.64), 4: 2.08 / (165.65 / 128.64)}
    assert round_cost == pytest.approx({2: 1.385, 4: 1.615}, abs=0.001)
    measured_cost = (round_cost[4] - round_cost[2]) / 2
    cost = relative_draft_cost(eagle(target), target, 1, 100)
    head = 2 * 4096 * 128 * (32 + 8) + 3 * 4096 * 14336 + 2 * 4096**2 + 128256 * 4096
    assert cost == pytest.approx(head / (8.03e9 - 128256 * 4096), rel=0.01)  # weights alone; embedding not read
    assert cost == pytest.approx(measured_cost, rel=0.12)
    predicted = {
        k: 128.64 * speculative_speedup(tokens, k, cost, relative_verify_cost(target, 1, 100, k + 1))
        for k, tokens in {2: 1.89, 4: 2.08}.items()
    }
    for k, measured in {2: 175.49, 4: 165.65}.items():
        assert 1.1 < predicted[k] / measured < 1.2
        implied = speculative_speedup({2: 1.89, 4: 2.08}[k], k, measured_cost, round_cost[2] - 2 * measured_cost)
        assert 128.64 * implied == pytest.approx(measured, abs=0.1)
    assert predicted[2] > predicted[4]


def test_a_draft_that_is_not_sharded_costs_more_beside_a_sharded_target():
    """SGLang issue 6949, QwQ-32B with EAGLE: 21 to 30 tokens/s on one GPU, 61 to 59 on four. The draft stayed on one,
    so four GPUs make its c four times as large; one c and one tau explain both speed-ups within a tenth."""
    target = examples.served("llama-3.1-70b", "h200", tensor_parallel=1, link=None, constants=pm.IDEAL)
    costs = [relative_draft_cost(eagle(target), replace(target, tensor_parallel=t), batch=1, context=0) for t in (1, 4)]
    assert costs[1] == pytest.approx(4 * costs[0], rel=1e-9)
    gain_alone, gain_of_four = 30 / 21, 59 / 61
    # tau/(1 + x) = 1.43 and tau/(1 + 4 x) = 0.97 with x = gamma c: x = 0.19, tau = 1.70.
    x = (gain_alone - gain_of_four) / (4 * gain_of_four - gain_alone)
    tau = gain_alone * (1 + x)
    assert (x, tau) == pytest.approx((0.19, 1.70), abs=0.01)
    assert speculative_speedup(tau, 1, 4 * x) == pytest.approx(gain_of_four)


def test_a_tree_of_drafts():
    """EAGLE-2's acceptance length of 4.83 from 60 nodes: free for one request, and no gain for 64."""
    cost = 0.05
    verify = relative_verify_cost(SOURCE, np.array([1, 64]), 0, 61)
    speedups = speculative_speedup(4.83, 6, cost, verify)
    assert speedups == pytest.approx([4.83 / 1.3, 4.83 / (0.3 + 64 * 61 * 3.35 / 742)], rel=1e-9)
    assert speedups[1] < 1


# Bad input, three kinds of number, units


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expected_tokens(1.01, 4), ("expected_tokens", "acceptance=1.01", "at most 1")),
        (lambda: expected_tokens(-0.1, 4), ("acceptance=-0.1", "at least 0")),
        (lambda: expected_tokens(float("nan"), 4), ("acceptance=nan",)),
        (lambda: expected_tokens("0.8", 4), ("acceptance='0.8'", "not a number")),
        (lambda: expected_tokens(0.8, -1), ("draft_tokens=-1", "at least 0")),
        (lambda: expected_tokens(0.8, 1.5), ("draft_tokens=1.5", "whole")),
        (lambda: speculative_speedup(0.5, 4, 0.1), ("speculative_speedup", "tokens=0.5", "at least 1")),
        (lambda: speculative_speedup(2, -4, 0.1), ("draft_tokens=-4", "at least 0")),
        (lambda: speculative_speedup(2, 4, -0.1), ("draft_cost=-0.1", "at least 0")),
        (lambda: speculative_speedup(2, 4, 0.1, 0), ("verify_cost=0", "above 0")),
        (lambda: best_draft_length(2, 0.1), ("best_draft_length", "acceptance=2", "at most 1")),
        (lambda: best_draft_length(0.5, -1), ("best_draft_length", "draft_cost=-1", "at least 0")),
        (lambda: best_draft_length(0.5, 0.1, longest=0), ("longest=0", "at least 1")),
        (lambda: relative_verify_cost(SOURCE, 0, 100, 5), ("batch=0", "above 0")),
        (lambda: relative_verify_cost(SOURCE, 1, 100, 0), ("tokens=0", "above 0")),
        (
            lambda: relative_draft_cost(SOURCE, SOURCE, 1, 100, 0),
            ("relative_draft_cost", "draft_tokens=0", "at least 1"),
        ),
        (lambda: free_batch(SOURCE, -1), ("free_batch", "draft_tokens=-1", "at least 0")),
        (lambda: break_even_batch(SOURCE, 0, 4, 0.1), ("break_even_batch", "tokens=0", "at least 1")),
        (lambda: break_even_batch(SOURCE, 2, -4, 0.1), ("break_even_batch", "draft_tokens=-4", "at least 0")),
        (lambda: break_even_batch(SOURCE, 2, 4, -0.1), ("break_even_batch", "draft_cost=-0.1", "at least 0")),
        (lambda: break_even_batch(SOURCE, 2, 4, 0.1, -1), ("break_even_batch", "context=-1", "at least 0")),
        (lambda: paying_context(SOURCE, 0, 4, 0.1), ("paying_context", "tokens=0", "at least 1")),
    ],
)
def test_bad_input(call, words):
    refused(call, *words)


OPS_CALLS = {
    "best_draft_length": lambda d, B, S, n, s: best_draft_length(n / (n + 1), 1 / (B + 1), longest=5),
    "break_even_batch": lambda d, B, S, n, s: break_even_batch(d, 3.36, 4, 1 / (B + 9), s),
    "expected_tokens": lambda d, B, S, n, s: expected_tokens(n / (n + 1), S),
    "free_batch": lambda d, B, S, n, s: free_batch(d, S, s),
    "paying_context": lambda d, B, S, n, s: paying_context(d, 4 - 1 / n, 4, 1 / (B + 9)),
    "relative_draft_cost": lambda d, B, S, n, s: relative_draft_cost(d, d, B, s, 4),
    "relative_verify_cost": lambda d, B, S, n, s: relative_verify_cost(d, B, s, 5),
    "speculative_speedup": lambda d, B, S, n, s: speculative_speedup(n, S, 1 / B, B),
}
DIMENSION_CALLS = {
    "best_draft_length": (ONE, lambda d, u: best_draft_length(0.8, 0.1)),
    "break_even_batch": (ONE, lambda d, u: break_even_batch(d, 3.36, 4, 0.1, 1280)),
    "expected_tokens": (ONE, lambda d, u: expected_tokens(0.8, 4)),
    "free_batch": (ONE, lambda d, u: free_batch(d, 4, 1280)),
    "paying_context": (ONE, lambda d, u: paying_context(d, 3.36, 4, 0.1)),
    "relative_draft_cost": (ONE, lambda d, u: relative_draft_cost(d, d, 64, 1280, 4)),
    "relative_verify_cost": (ONE, lambda d, u: relative_verify_cost(d, 64, 1280, 5)),
    "speculative_speedup": (ONE, lambda d, u: speculative_speedup(3.36, 4, 0.1, relative_verify_cost(d, 64, 1280, 5))),
}
