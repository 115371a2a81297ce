"""Mixture of experts: routing simulated with a fixed seed, binomials by hand, and the memory of published models."""

from dataclasses import replace
from itertools import permutations
from math import comb, pi, sqrt

import examples
import numpy as np
import pytest
import sympy as sp
from examples import refused
from hypothesis import assume, given
from hypothesis import strategies as st
from test_dimensions import ONE, byte

import perfmodel as pm
from perfmodel import moe
from perfmodel.moe import (
    expected_imbalance,
    expert_bytes_read,
    load_imbalance,
    rank_memory,
    replicate,
    token_copies,
    visit_chances,
    visited_experts,
    zipf_popularity,
)

CLOSE = 1e-9  # relative: sums of a few hundred terms of one sign in double precision


def mixture(experts, experts_per_token):
    """A model of which only the routing matters."""
    return pm.Model(
        "mixture", 2, 64, 4, 4, 16, ffn_size=8, vocab_size=0, experts=experts, experts_per_token=experts_per_token
    )


# Shapes as the config.json of deepseek-ai/DeepSeek-V3 has them.
DEEPSEEK = pm.Model(
    "DeepSeek-V3",
    layers=61,
    hidden_size=7168,
    heads=128,
    kv_heads=128,
    head_dim=192,
    ffn_size=2048,
    vocab_size=129280,
    experts=256,
    experts_per_token=8,
    shared_ffn_size=2048,
    dense_layers=3,
    dense_ffn_size=18432,
    latent=pm.model.Latent(kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128, query_rank=1536),
    router_bias=True,
)
EXPERT = 58 * 3 * 7168 * 2048  # one expert in all of its 58 layers with experts: 2.554e9
DIE = pm.Accelerator("any", memory_capacity=96e9, memory_bandwidth=2e12, bf16_flops=400e12)
QUANTISED = pm.Deployment(DEEPSEEK, DIE, weight_bytes=1, expert_parallel=True)


@st.composite
def chances(draw):
    """Chances of any experts, with any popularity."""
    popularity = draw(st.lists(st.floats(1e-3, 1), min_size=2, max_size=40))
    return visit_chances(popularity, draw(st.integers(1, len(popularity))))


def drawn_one_after_another(popularity, experts_per_token, tokens, seed):
    """Experts of each token, drawn in proportion to popularity and not put back: the q largest Gumbel scores."""
    scores = np.log(popularity) + np.random.default_rng(seed).gumbel(size=(tokens, len(popularity)))
    return np.argsort(-scores, axis=1)[:, :experts_per_token]


def drawn_with_chances(chances, tokens, seed):
    """Experts of each token with exactly these chances: ticks one apart on the running sum of the chances."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(chances))
    ticks = rng.random((tokens, 1)) + np.arange(round(chances.sum()))
    return order[np.minimum(np.searchsorted(np.cumsum(chances[order]), ticks), len(chances) - 1)]


def mean_and_error(values):
    """Mean of independent trials, and four standard errors of it: beyond them lies one seed in 16,000."""
    return np.mean(values), 4 * np.std(values, ddof=1) / sqrt(len(values))


# Popularity and chances


@given(st.integers(1, 512), st.floats(0, 2))
def test_zipf(experts, exponent):
    popularity = zipf_popularity(experts, exponent)
    assert popularity.sum() == pytest.approx(1)
    assert popularity[0] / popularity[-1] == pytest.approx(experts**exponent)
    assert np.all(np.diff(popularity) <= 0)
    assert zipf_popularity(experts, 0) == pytest.approx(np.full(experts, 1 / experts))


def test_zipf_by_hand():
    assert zipf_popularity(3, 1) == pytest.approx([6 / 11, 3 / 11, 2 / 11])
    assert zipf_popularity(2, 2) == pytest.approx([0.8, 0.2])


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60), st.data())
def test_chances_sum_to_the_experts_of_a_token(popularity, data):
    q = data.draw(st.integers(1, len(popularity)))
    found = visit_chances(popularity, q)
    assert found.sum() == pytest.approx(q, rel=1e-6)
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found[np.argsort(popularity)]) >= 0)  # the more popular, the more visits
    assert visit_chances(np.array(popularity) * 7, q) == pytest.approx(found, rel=1e-6, abs=1e-12)


@given(st.integers(1, 300), st.data())
def test_uniform_popularity_has_uniform_chances(experts, data):
    q = data.draw(st.integers(1, experts))
    assert visit_chances(np.ones(experts), q) == pytest.approx(np.full(experts, q / experts))


def test_an_expert_that_nobody_wants():
    assert visit_chances([1, 0, 1], 2) == pytest.approx([1, 0, 1])
    assert visit_chances([3, 0, 3], 1) == pytest.approx([0.5, 0, 0.5])


@pytest.mark.parametrize("exponent", [0.3, 0.6, 1.0])
@pytest.mark.parametrize(("experts", "q"), [(8, 2), (8, 3), (16, 2), (16, 4)])
def test_chances_against_all_orders_of_drawing(experts, q, exponent):
    """Few experts can be enumerated: all sequences of q different ones with their probabilities."""
    popularity = zipf_popularity(experts, exponent)
    exact = np.zeros(experts)
    for drawn in permutations(range(experts), q):
        chance, left = 1.0, 1.0
        for i in drawn:
            chance *= popularity[i] / left
            left -= popularity[i]
        exact[list(drawn)] += chance
    found = visit_chances(popularity, q)
    assert found == pytest.approx(exact, abs=0.03)
    tokens = np.array([2, 8, 32])
    assert visited_experts(found, tokens) == pytest.approx(visited_experts(exact, tokens), rel=0.02)


@pytest.mark.parametrize(("experts", "q", "exponent"), [(64, 6, 1.0), (128, 8, 0.5), (256, 8, 1.0)])
def test_chances_against_simulated_drawing(experts, q, exponent):
    popularity, tokens = zipf_popularity(experts, exponent), 20_000
    drawn = drawn_one_after_another(popularity, q, tokens, seed=1)
    shares = np.bincount(drawn.ravel(), minlength=experts) / tokens
    # Besides the 0.01 of the approximation, four standard errors of a share: sqrt(1/4 / 20,000) at most.
    assert visit_chances(popularity, q) == pytest.approx(shares, abs=0.01 + 4 * 0.5 / sqrt(tokens))


# Experts visited


@pytest.mark.parametrize(
    ("experts", "q", "tokens", "visited"),
    [
        (256, 8, 64, 222.4),  # closed form, for the dependence on the batch that a peer leaves open
        (256, 8, 1, 8),
        (256, 8, 512, 256.0),
        (256, 8, 8, 57),  # the ledger's audit: 57, 163 and 252 experts of DeepSeek-V3 at 8, 32 and 128 tokens
        (256, 8, 32, 163),
        (256, 8, 128, 251.60115),
        (8, 2, 4, 8 * (1 - 0.75**4)),
    ],
)
def test_uniform_routing_visits(experts, q, tokens, visited):
    chance = np.full(experts, q / experts)
    assert visited_experts(chance, tokens) == pytest.approx(visited, abs=0.5 if visited in (57, 163) else 0.05)
    assert visited_experts(chance, tokens) == pytest.approx(pm.touched_experts(mixture(experts, q), tokens))


@given(chances(), st.integers(0, 10_000))
def test_visited_experts_grow_with_tokens_and_are_most_when_uniform(chance, tokens):
    found, q = visited_experts(chance, tokens), chance.sum()
    assert visited_experts(chance, 0) == 0
    assert visited_experts(chance, 1) == pytest.approx(q)
    assert found <= visited_experts(chance, tokens + 1) + CLOSE
    assert found <= min(len(chance), q * tokens) * (1 + CLOSE)
    # (1 - p)^B is convex, so equal chances leave the fewest experts idle.
    assert found <= visited_experts(np.full(len(chance), q / len(chance)), tokens) * (1 + CLOSE)


def test_visited_experts_takes_arrays_of_any_shape():
    chance = visit_chances(zipf_popularity(8, 1), 2)
    batch = np.array([[1, 2], [4, 8]])
    found = visited_experts(chance, batch)
    assert found.shape == (2, 2)
    assert found[1, 0] == pytest.approx(sum(1 - (1 - p) ** 4 for p in chance))


@pytest.mark.parametrize("exponent", [0, 0.6, 1.0])
def test_visited_experts_against_simulated_routing(exponent):
    """Tokens with exactly the given chances, whose own choices are far from independent: the formula is exact."""
    chance, tokens = visit_chances(zipf_popularity(256, exponent), 8), 24
    mean, error = mean_and_error([len(np.unique(drawn_with_chances(chance, tokens, seed))) for seed in range(400)])
    assert visited_experts(chance, tokens) == pytest.approx(mean, abs=error)


def test_visited_experts_against_drawing_by_popularity():
    """256 experts under Zipf's law, 16 tokens: 68 experts, where q p_i as a chance, cut at 1, makes 62."""
    popularity = zipf_popularity(256, 1)
    trials = [len(np.unique(drawn_one_after_another(popularity, 8, 16, seed))) for seed in range(400)]
    mean, error = mean_and_error(trials)
    assert visited_experts(visit_chances(popularity, 8), 16) == pytest.approx(mean, abs=error + 0.01 * mean)
    assert visited_experts(np.minimum(8 * popularity, 1), 16) < mean * 0.93


# Bytes of a step


def test_expert_bytes_of_mixtral():
    """Four tokens touch 8 (1 - (3/4)^4) = 5.47 experts of 3 x 4096 x 14336 weights in 32 layers."""
    mixtral = examples.served("mixtral-8x7b", tensor_parallel=2)
    touched = 8 * (1 - 0.75**4) * 32 * 3 * 4096 * 14336
    assert expert_bytes_read(mixtral, 4) == pytest.approx(touched * 2 / 2)
    uniform = np.full(8, 0.25)
    assert expert_bytes_read(mixtral, 4, uniform) == pytest.approx(touched)
    assert expert_bytes_read(replace(mixtral, expert_bytes=1), 4) == pytest.approx(touched / 2)


def test_expert_bytes_of_wide_expert_parallelism():
    """An accelerator with 2 of 256 experts, for all tokens of 32 replicas: 2 (1 - (1 - 8/256)^(32 B)) of them."""
    wide = replace(QUANTISED, tensor_parallel=4, data_parallel=32)
    assert expert_bytes_read(wide, 4) == pytest.approx(2 * (1 - (1 - 8 / 256) ** 128) * EXPERT, rel=1e-12)
    apart = replace(wide, expert_parallel=False)  # a quarter of every expert, for the tokens of one replica
    assert expert_bytes_read(apart, 4) == pytest.approx(64 * (1 - (1 - 8 / 256) ** 4) * EXPERT, rel=1e-12)
    assert expert_bytes_read(wide, [1, 4]) == pytest.approx([expert_bytes_read(wide, tokens) for tokens in (1, 4)])
    popular = visit_chances(zipf_popularity(256, 1), 8)
    assert expert_bytes_read(wide, 4, popular) == pytest.approx(visited_experts(popular, 128) / 128 * EXPERT)


@pytest.mark.parametrize("expert_parallel", [False, True])
@pytest.mark.parametrize("tokens", [1, 7, 300])
def test_a_decode_step_reads_these_bytes(tokens, expert_parallel):
    deployment = replace(QUANTISED, tensor_parallel=2, data_parallel=8, expert_parallel=expert_parallel)
    read = pm.decode_time(deployment, tokens, 0).memory.experts * deployment.bandwidth
    assert expert_bytes_read(deployment, tokens) == pytest.approx(read)


def test_replicas_are_read_as_well():
    """Two replicas of an expert that every token visits are both read by nearly every step of eight tokens."""
    chance = np.array([1, 0.5, 0.5, 0])
    slots = replicate(chance, 1)
    assert visited_experts(slots, 8) == pytest.approx(2 * (1 - 0.5**8) + 2 * (1 - 0.5**8))
    assert visited_experts(chance, 8) == pytest.approx(1 + 2 * (1 - 0.5**8))


# Copies


@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (8, 5.2947), (256, 8)])
def test_copies_of_a_token_of_deepseek(ranks, copies):
    """8 of 256: one rank of 8 is spared with chance C(224, 8)/C(256, 8) = 0.3382; on a rank each, all 8 are apart."""
    by_hand = ranks * (1 - comb(256 - 256 // ranks, 8) / comb(256, 8))
    assert by_hand == pytest.approx(copies, abs=5e-5)
    assert token_copies(DEEPSEEK, ranks) == pytest.approx(by_hand, rel=1e-12)


def test_bytes_sent_grow_with_the_ranks():
    """The ledger's check of "all-to-all falls as 1/EP": what leaves a rank grows 1.72 times from 8 ranks to 256."""
    sent = [token_copies(DEEPSEEK, ranks) * (1 - 1 / ranks) for ranks in (8, 256)]
    assert sent[1] / sent[0] == pytest.approx(1.72, abs=0.005)


@given(st.integers(1, 12), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_copies_lie_between_one_and_all(q, ranks):
    model = mixture(64, q)
    found = token_copies(model, ranks)
    independent = ranks * (1 - (1 - 1 / ranks) ** q)
    assert independent * (1 - CLOSE) <= found <= min(q, ranks) * (1 + CLOSE)
    assert token_copies(model, 64) == pytest.approx(q)
    assert token_copies(model, 1) == pytest.approx(1)


@pytest.mark.parametrize(("ranks", "groups", "chosen"), [(8, 8, 4), (32, 8, 4), (8, 1, 1), (64, 4, 2)])
def test_copies_against_simulated_routing(ranks, groups, chosen):
    """A token first chooses its groups, then eight experts in them."""
    rng = np.random.default_rng(2)
    counts = []
    for _ in range(4000):
        scores = rng.random(256)
        open_groups = rng.permutation(groups)[:chosen]
        closed = ~np.isin(np.arange(256) // (256 // groups), open_groups)
        experts = np.argsort(np.where(closed, 2, scores))[:8]
        counts.append(len(np.unique(experts // (256 // ranks))))
    mean, error = mean_and_error(counts)
    assert token_copies(DEEPSEEK, ranks, groups, chosen) == pytest.approx(mean, abs=error)


def test_node_limited_routing_of_deepseek():
    """At most 4 of 8 nodes (DeepSeek-V3 report, section 2.1.2): 8 of 128 experts on 4 nodes reach 3.63 of them."""
    by_hand = 4 * (1 - comb(96, 8) / comb(128, 8))
    assert (
        token_copies(DEEPSEEK, 8, groups=8, groups_per_token=4)
        == pytest.approx(by_hand)
        == pytest.approx(3.63, abs=0.01)
    )
    assert by_hand < 4 < token_copies(DEEPSEEK, 8)


def test_more_groups_than_a_token_has_experts():
    """16 of 64 groups of four experts: C(60, 8)/C(64, 8) is the chance that an open group is spared."""
    by_hand = 16 * (1 - comb(60, 8) / comb(64, 8))
    assert token_copies(DEEPSEEK, 64, groups=64, groups_per_token=16) == pytest.approx(by_hand, rel=1e-12)


def test_copies_of_symbols():
    """Eight factors give what binomials give, with symbols for the experts, the ranks and the experts of a token."""
    experts, ranks, q = sp.symbols("X n q", positive=True, integer=True)
    shape = pm.symbols(pm.Model, name="any")
    exact = 8 * (1 - sp.binomial(224, 8) / sp.binomial(256, 8))
    for model in (
        replace(shape, experts=experts, experts_per_token=8),
        replace(shape, experts=experts, experts_per_token=q),
    ):
        traced = token_copies(model, ranks)
        assert sp.simplify(traced.subs({experts: 256, ranks: 8, q: 8}) - exact) == 0
    assert token_copies(DEEPSEEK, [1, 8, 256]) == pytest.approx([1, float(exact), 8])


# Imbalance


def visits_of_the_busiest(experts, q, ranks, tokens, trials):
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(trials):
        drawn = np.argpartition(rng.random((tokens, experts)), q - 1, axis=1)[:, :q]
        load = np.bincount((drawn // (experts // ranks)).ravel(), minlength=ranks)
        ratios.append(load.max() / load.mean())
    return mean_and_error(ratios)


@pytest.mark.parametrize(
    ("experts", "q", "ranks", "tokens", "tolerance"),
    [
        (8, 2, 2, 64, 0),
        (8, 2, 8, 64, 0.01),
        (64, 6, 8, 64, 0.01),
        (256, 8, 8, 64, 0.01),
        (256, 8, 32, 256, 0.015),
        (256, 8, 64, 256, 0.03),  # 32 visits a rank
        (256, 8, 64, 64, 0.06),  # 8 visits a rank
    ],
)
def test_imbalance_against_simulated_routing(experts, q, ranks, tokens, tolerance):
    mean, error = visits_of_the_busiest(experts, q, ranks, tokens, trials=400)
    found = expected_imbalance(mixture(experts, q), tokens, ranks)
    assert found == pytest.approx(mean, abs=error + tolerance * mean)


def test_imbalance_is_too_low_where_visits_are_few():
    mean, error = visits_of_the_busiest(256, 8, 256, 16, trials=200)  # half a visit a rank
    assert expected_imbalance(DEEPSEEK, 16, 256) < mean - error


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.integers(1, 32), st.integers(1, 10**6))
def test_imbalance_falls_with_tokens(ranks, q, tokens):
    model = mixture(32, q)
    found = expected_imbalance(model, tokens, ranks)
    assert found >= 1
    if ranks == 1 or q == 32:  # one rank is its own mean; a token that visits all experts leaves nothing to chance
        assert found == pytest.approx(1)
    assert found - 1 == pytest.approx(2 * (expected_imbalance(model, 4 * tokens, ranks) - 1))
    assert found <= expected_imbalance(model, tokens, 2 * ranks if ranks < 32 else 32) + CLOSE


def test_largest_of_a_few_normal_variables():
    """Known means: 1/sqrt(pi) of two, 3/(2 sqrt(pi)) of three, 1.42360 of eight (Harter 1961)."""
    assert moe._largest_of(1) == pytest.approx(0, abs=1e-12)
    assert moe._largest_of(2) == pytest.approx(1 / sqrt(pi), rel=1e-6)
    assert moe._largest_of(3) == pytest.approx(1.5 / sqrt(pi), rel=1e-6)
    assert moe._largest_of(8) == pytest.approx(1.42360, abs=1e-5)


def test_imbalance_by_hand():
    """Two ranks, one of two experts a token: B throws of a fair coin, whose heads and tails differ by sqrt(2 B/pi) on
    average, half of it above the mean of B/2."""
    assert expected_imbalance(mixture(2, 1), 400, 2) == pytest.approx(1 + sqrt(2 / (pi * 400)), rel=1e-6)
    # Two of four experts a token: 0, 1 or 2 of them on a rank with chances 1/6, 4/6 and 1/6, a third of the variance.
    assert expected_imbalance(mixture(4, 2), 400, 2) == pytest.approx(1 + sqrt(2 / (3 * pi * 400)), rel=1e-6)


@given(chances(), st.integers(0, 40))
def test_replicas_share_the_visits_of_their_expert(chance, redundant):
    slots = replicate(chance, redundant)
    assert len(slots) == len(chance) + redundant
    assert slots.sum() == pytest.approx(chance.sum())
    assert slots.max() <= chance.max() + CLOSE
    assert replicate(chance, redundant + 1).max() <= slots.max() + CLOSE


def test_replicas_by_hand():
    """0.9 becomes 2 x 0.45; then 0.6 is the busiest and becomes 2 x 0.3; then 0.5."""
    chance = np.array([0.9, 0.6, 0.5])
    assert replicate([0.9, 0.6, 0.5], 0) == pytest.approx(chance)
    assert replicate(chance, 1) == pytest.approx([0.45, 0.45, 0.6, 0.5])
    assert replicate(chance, 2) == pytest.approx([0.45, 0.45, 0.3, 0.3, 0.5])
    assert replicate(chance, 3) == pytest.approx([0.45, 0.45, 0.3, 0.3, 0.25, 0.25])


def test_balancing_by_hand():
    """In order the ranks get 0.9 + 0.8 and 0.2 + 0.1 of a mean of 1; busiest first, 0.9 + 0.1 and 0.8 + 0.2."""
    chance = np.array([0.9, 0.8, 0.2, 0.1])
    assert load_imbalance(chance, 2, balanced=False) == pytest.approx(1.7)
    assert load_imbalance(chance, 2) == pytest.approx(1.0)
    assert load_imbalance(chance, 4) == pytest.approx(0.9 / 0.5)
    # A rank that is full takes no more, idle as it may be: 0.9 goes with 0.05, not with both small ones.
    assert load_imbalance(np.array([0.9, 0.05, 0.04, 0.01]), 2) == pytest.approx((0.9 + 0.01) / 0.5)


@given(chances(), st.integers(1, 8), st.integers(0, 16))
def test_load_imbalance_is_at_least_one_and_at_most_the_ranks(chance, ranks, redundant):
    assume(not (len(chance) + redundant) % ranks)
    for balanced in (True, False):
        assert 1 - CLOSE <= load_imbalance(chance, ranks, redundant, balanced) <= ranks * (1 + CLOSE)
    even = np.full(len(chance) + redundant, 0.5)
    assert load_imbalance(even, ranks) == pytest.approx(1)


def test_redundant_experts_even_out_popular_ones():
    """256 experts under Zipf's law on 32 ranks: 32 replicas, as DeepSeek-V3 prefills with (9 slots a rank), suffice."""
    chance = visit_chances(zipf_popularity(256, 1), 8)
    alone = load_imbalance(chance, 32)
    assert alone == pytest.approx(
        chance.max() / (8 / 32), rel=0.1
    )  # the first expert alone is more than its rank's share
    assert load_imbalance(chance, 32, redundant=32) < 1.01 < alone
    assert load_imbalance(chance, 32, balanced=False) > alone


# Memory


@pytest.mark.parametrize(
    ("tensor_parallel", "data_parallel", "shared_copied", "gigabytes"),
    [(4, 32, True, 11.4), (4, 32, False, 9.5), (1, 128, True, 22.2)],
)
def test_weights_of_deepseek_on_128_ranks(tensor_parallel, data_parallel, shared_copied, gigabytes):
    """The ledger's audit of section 10.1, which prints 5.2 GB: one byte a weight, two experts a rank.

    The audit keeps routers whole on each rank, 0.11 GB, where we cut them as the rest: 1 % of the sum.
    """
    wide = replace(QUANTISED, tensor_parallel=tensor_parallel, data_parallel=data_parallel)
    found = rank_memory(wide, shared_copied=shared_copied)
    assert found.total == pytest.approx(gigabytes * 1e9, rel=0.012)
    assert found.experts == pytest.approx(2 * EXPERT)
    assert found.experts + found.shared_experts == pytest.approx((7.663e9 if shared_copied else 5.747e9), rel=1e-3)
    assert found.kv == 0


def test_cloudmatrix_has_a_slot_a_die():
    """320 slots on 320 dies: 256 experts, 32 replicas and 32 copies of the shared expert (arXiv 2506.12708)."""
    slots = len(replicate(np.full(256, 1 / 32), 32)) + 32
    assert slots == 320
    wide = replace(QUANTISED, data_parallel=256)
    assert rank_memory(wide, redundant=32).experts == pytest.approx(EXPERT * 288 / 256)


def test_tensor_against_data_parallel_ranks():
    """Eight ranks share the experts either way. DP copies the rest, TP copies the latent cache: 70,272 bytes a token
    (61 layers x 576 x 2) on each rank, of all requests, against those of its own eighth."""
    tp, dp = (
        rank_memory(replace(QUANTISED, tensor_parallel=t, data_parallel=8 // t), cached_tokens=800_000) for t in (8, 1)
    )
    assert tp.experts == dp.experts == pytest.approx(32 * EXPERT)
    assert dp.shared_experts == pytest.approx(8 * tp.shared_experts) == pytest.approx(EXPERT)
    assert dp.rest == pytest.approx(8 * tp.rest)
    assert tp.kv == pytest.approx(800_000 * 70_272)
    assert dp.kv == pytest.approx(100_000 * 70_272)


def test_cache_of_one_of_32_replicas():
    """Section 10.2: each of 32 data-parallel ranks holds 0.03125 of the cache."""
    alone, wide = (rank_memory(replace(QUANTISED, data_parallel=r), cached_tokens=1e6) for r in (1, 32))
    assert wide.kv / alone.kv == pytest.approx(0.03125)


@given(examples.deployments(), st.integers(0, 10**7), st.booleans())
def test_rank_memory_is_that_of_the_weights_and_the_cache(deployment, tokens, copied):
    found = rank_memory(deployment, tokens, shared_copied=copied)
    kv = tokens * pm.kv_bytes_per_token_per_gpu(deployment) / deployment.data_parallel
    copies = deployment.tensor_parallel if copied else 1
    shared = found.shared_experts * (1 - 1 / copies)
    assert found.total == pytest.approx(pm.weight_bytes_per_gpu(deployment) + shared + kv)
    assert rank_memory(deployment, tokens, redundant=deployment.model.experts).experts == pytest.approx(
        2 * found.experts
    )
    assert min(found.experts, found.shared_experts, found.kv) >= 0
    assert found.rest >= -1e-9 * found.total


def test_rank_memory_of_a_pipeline_stage():
    """Two stages of 31 and 30 layers. The second is the larger, since the first has the three without experts: it holds
    30 of the 58 layers with them. The larger part of the cache is 31/61."""
    staged = rank_memory(replace(QUANTISED, pipeline_parallel=2), cached_tokens=1000, redundant=256)
    whole = rank_memory(QUANTISED, cached_tokens=1000, redundant=256)
    for part, share in (("experts", 30 / 58), ("shared_experts", 30 / 58), ("kv", 31 / 61)):
        assert getattr(staged, part) == pytest.approx(getattr(whole, part) * share)


def test_lengths_may_be_lists():
    assert visited_experts([0.5, 1.0], [1, 2]) == pytest.approx([1.5, 1.75])
    assert expected_imbalance(mixture(2, 1), [100, 400], 2) == pytest.approx(
        1 + np.sqrt(2 / (pi * np.array([100, 400])))
    )
    several, one = rank_memory(QUANTISED, [0, 10], [0, 256]), rank_memory(QUANTISED, 10, 256)
    assert several.total[1] == pytest.approx(one.total)


# Bad input, three kinds of number, units


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: zipf_popularity(0, 1), ("zipf_popularity", "experts=0", "at least 1")),
        (lambda: zipf_popularity(2.5, 1), ("experts=2.5", "whole")),
        (lambda: zipf_popularity(8, -1), ("exponent=-1", "at least 0")),
        (lambda: visit_chances([0.5, -0.5], 1), ("visit_chances", "popularity", "at least 0")),
        (lambda: visit_chances([0.5, float("nan")], 1), ("popularity", "finite")),
        (lambda: visit_chances("popular", 1), ("popularity='popular'", "not a number")),
        (lambda: visit_chances([1, 1], 0), ("experts_per_token=0", "at least 1")),
        (lambda: visit_chances([1, 1], 1.5), ("experts_per_token=1.5", "whole")),
        (lambda: visit_chances([1, 0, 1], 3), ("experts_per_token=3", "at most 2")),
        (lambda: visit_chances([0, 0], 1), ("experts_per_token=1", "at most 0")),
        (lambda: visited_experts([0.5, 1.5], 4), ("visited_experts", "chances", "at most 1")),
        (lambda: visited_experts([0.5, -0.1], 4), ("chances", "at least 0")),
        (lambda: visited_experts([0.5], -4), ("tokens=-4", "at least 0")),
        (lambda: expert_bytes_read(QUANTISED, -1), ("expert_bytes_read", "tokens=-1", "at least 0")),
        (lambda: token_copies(DEEPSEEK, 0), ("token_copies", "ranks=0", "at least 1")),
        (
            lambda: token_copies(DEEPSEEK, 7),
            ("token_copies", "ranks=7", "does not divide", "experts=256", "DeepSeek-V3"),
        ),
        (lambda: token_copies(DEEPSEEK, np.array([8, 7])), ("ranks=[8 7]", "does not divide")),
        (lambda: token_copies(mixture(24, 2), 1.5), ("ranks=1.5", "whole")),
        (lambda: token_copies(DEEPSEEK, 8, 0), ("groups=0", "at least 1")),
        (lambda: token_copies(DEEPSEEK, 8, 1.6), ("groups=1.6", "whole")),
        (lambda: token_copies(DEEPSEEK, 8, 8, 1.5), ("groups_per_token=1.5", "whole")),
        (lambda: token_copies(DEEPSEEK, 8, 4, 5), ("groups_per_token=5", "at most 4")),
        (lambda: token_copies(DEEPSEEK, 8, 4, 0), ("groups_per_token=0", "at least 1")),
        (lambda: token_copies(DEEPSEEK, 4, 8, 4), ("groups=8", "does not divide ranks=4")),
        (lambda: token_copies(DEEPSEEK, 128, 64, 1), ("groups_per_token=1 of 64", "fewer than 8 experts")),
        (lambda: expected_imbalance(DEEPSEEK, 0, 8), ("expected_imbalance", "tokens=0", "above 0")),
        (lambda: expected_imbalance(DEEPSEEK, 64, 7), ("expected_imbalance", "ranks=7", "does not divide")),
        (lambda: replicate([0.5, 2], 1), ("replicate", "chances", "at most 1")),
        (lambda: replicate([0.5], -1), ("redundant=-1", "at least 0")),
        (lambda: replicate([0.5], 0.5), ("redundant=0.5", "whole")),
        (lambda: load_imbalance([0.5, 0.5], 0), ("load_imbalance", "ranks=0", "at least 1")),
        (lambda: load_imbalance([0.5, 0.5, 0.5], 1.5), ("ranks=1.5", "whole")),
        (lambda: load_imbalance([0.5, 0.5, 0.5], 2), ("ranks=2", "does not divide the 3 slots")),
        (lambda: load_imbalance([0.5, 0.5], 2, 1), ("does not divide the 3 slots",)),
        (lambda: rank_memory(QUANTISED, -1), ("rank_memory", "cached_tokens=-1", "at least 0")),
        (lambda: rank_memory(QUANTISED, 0, -1), ("rank_memory", "redundant=-1", "at least 0")),
    ],
)
def test_bad_input(call, words):
    refused(call, *words)


# Functions of popularity or chances take numbers alone; they have no row here.
OPS_CALLS = {
    "expected_imbalance": lambda d, B, S, n, s: expected_imbalance(d.model, B, 1),
    "expert_bytes_read": lambda d, B, S, n, s: expert_bytes_read(d, B),
    "rank_memory": lambda d, B, S, n, s: rank_memory(d, B * s, n),
    "token_copies": lambda d, B, S, n, s: token_copies(d.model, d.model.experts),
}
DIMENSION_CALLS = {
    "expected_imbalance": (ONE, lambda d, u: expected_imbalance(d.model, 64, 1)),
    "expert_bytes_read": (byte, lambda d, u: expert_bytes_read(d, 64)),
    "rank_memory": (byte, lambda d, u: rank_memory(d, 1e5, 2)),
    "token_copies": (ONE, lambda d, u: token_copies(d.model, d.model.experts)),
}


def test_imbalance_of_symbols():
    """The mean of the largest is a number for each count of ranks; all else may be a symbol."""
    tokens = pm.argument_symbols("batch")
    traced = expected_imbalance(replace(pm.symbols(pm.Model, name="any"), experts=64, experts_per_token=6), tokens, 8)
    assert float(traced.subs(tokens, 48)) == pytest.approx(expected_imbalance(mixture(64, 6), 48, 8))
    several = expected_imbalance(mixture(64, 6), np.array([3, 48], dtype=np.int32), 8)
    assert several == pytest.approx([expected_imbalance(mixture(64, 6), tokens, 8) for tokens in (3, 48)])
