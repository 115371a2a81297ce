"""Drawn workloads: arrivals, lengths and families against theory, presets against what was published.

Tolerances are four or five standard errors of what is estimated.
"""

from math import exp, sqrt

import numpy as np
import pytest
from examples import refused
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.simulate.generate import (
    PRESETS,
    Lengths,
    closed_loop,
    constant,
    gamma,
    poisson,
    preset,
    shared_prefix,
)
from perfmodel.simulate.requests import Requests, prefix_bound

N = 200_000


def gaps(requests):
    return np.diff(requests.arrival, prepend=0)


def same(one, other):
    return all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ("arrival", "prompt", "output")
    )


# Arrivals


@pytest.mark.parametrize("cv", [0.3, 1, 2, 13.2])
def test_gaps_have_their_mean_and_variation(cv):
    """Standard errors of the mean, cv / sqrt(n), and of the variation of a gamma: cv sqrt((1 + cv^2) / 2 n)."""
    found = gaps(gamma(5, N, cv, 1, 1))
    assert found.mean() == pytest.approx(1 / 5, rel=4 * cv / sqrt(N))
    assert found.std() / found.mean() == pytest.approx(cv, rel=4 * sqrt((1 + cv**2) / 2 / N))


@pytest.mark.parametrize("times", [0.1, 0.5, 1, 2, 4])
def test_the_distribution_of_gaps(times):
    """Longer than t: e^-rt for Poisson arrivals; (1 + 2 r t) e^-2rt for two stages, whose variation is sqrt(1/2)."""
    error = 4 * 0.5 / sqrt(N)
    assert np.mean(gaps(poisson(5, N, 1, 1)) > times / 5) == pytest.approx(exp(-times), abs=error)
    two = (1 + 2 * times) * exp(-2 * times)
    assert np.mean(gaps(gamma(5, N, sqrt(0.5), 1, 1)) > times / 5) == pytest.approx(two, abs=error)


def test_a_gap_says_nothing_of_the_next():
    found = gaps(poisson(5, N, 1, 1))
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 4 / sqrt(N)


def test_constant_arrivals():
    requests = constant(4, 3, 10, [1, 2, 3])
    assert requests.arrival.tolist() == [0, 0.25, 0.5]
    assert requests.prompt.tolist() == [10, 10, 10]
    assert requests.output.tolist() == [1, 2, 3]


def test_a_closed_loop_starts_user_by_user():
    requests = closed_loop(3, 5, 10, 2, think=1.5, stagger=0.25)
    assert requests.arrival.tolist() == [0, 0.25, 0.5, 0.5, 0.5]
    assert (requests.users, requests.think, len(requests)) == (3, 1.5, 5)


def test_the_seed_alone_decides():
    lengths = Lengths.uniform(1, 1000)
    assert same(poisson(2, 100, lengths, lengths, seed=3), poisson(2, 100, lengths, lengths, seed=3))
    assert not same(poisson(2, 100, lengths, lengths, seed=3), poisson(2, 100, lengths, lengths, seed=4))
    assert not np.array_equal(*(getattr(poisson(2, 100, lengths, lengths), name) for name in ("prompt", "output")))


def test_another_rate_stretches_the_same_requests():
    slow, fast = (gamma(rate, 100, 2, Lengths.geometric(50), 1) for rate in (2, 8))
    assert slow.arrival == pytest.approx(4 * fast.arrival)
    assert slow.prompt.tolist() == fast.prompt.tolist()


# Lengths


def drawn(lengths, n=N):
    return lengths.draw(np.random.default_rng(1), n)


def test_geometric_lengths():
    """P(more than k) = (1 - 1/mean)^k; the standard deviation is sqrt(mean (mean - 1))."""
    found = drawn(Lengths.geometric(20))
    assert found.min() == 1
    assert found.mean() == pytest.approx(20, abs=4 * sqrt(20 * 19 / N))
    for k in (1, 10, 40):
        assert np.mean(found > k) == pytest.approx(0.95**k, abs=4 * 0.5 / sqrt(N))
    assert drawn(Lengths.geometric(1), 50).tolist() == [1] * 50


def test_uniform_lengths():
    lengths = Lengths.uniform(3, 7)
    assert lengths.mean == 5
    counts = np.bincount(drawn(lengths), minlength=8)
    assert counts[:3].tolist() == [0, 0, 0]
    assert counts[3:] / N == pytest.approx([0.2] * 5, abs=4 * sqrt(0.2 * 0.8 / N))
    assert drawn(Lengths.uniform(6, 6), 5).tolist() == [6] * 5


def test_a_bent_distribution_by_hand():
    """Half of the requests below 10 tokens, half between 10 and 20. Their mean lies between 5 and 15.

    For a mean of 7.5 both halves have a quarter of their width, 1 / (k + 1): k = 3. So F(y) = (y / 10)^(1/3) / 2 below
    10. A length is rounded up with the chance of its fraction: P(X <= m) is the integral of F from m to m + 1.
    """
    lengths = Lengths.from_quantiles({0.5: 10}, 0, 20, mean=7.5)
    found = drawn(lengths)
    assert lengths.mean == 7.5
    assert found.mean() == pytest.approx(7.5, abs=4 * found.std() / sqrt(N))
    for m in (0, 1, 5, 9):
        integral = 0.5 * 10 ** (-1 / 3) * 0.75 * ((m + 1) ** (4 / 3) - m ** (4 / 3))
        assert np.mean(found <= m) == pytest.approx(integral, abs=4 * 0.5 / sqrt(N))
        assert np.mean(found <= m + 10) == pytest.approx(0.5 + integral, abs=4 * 0.5 / sqrt(N))
    for mean in (5, 15, 4, float("nan")):
        words = ("mean=", "finite" if mean != mean else "above 5 and below 15")
        refused(lambda mean=mean: Lengths.from_quantiles({0.5: 10}, 0, 20, mean=mean), *words)


def test_straight_parts_without_a_mean():
    """Parts of 0 to 10 and 10 to 40 with 3/4 and 1/4 of the requests: 0.75 * 5 + 0.25 * 25 = 10."""
    assert Lengths.from_quantiles({0.75: 10}, 0, 40).mean == pytest.approx(10)
    found = drawn(Lengths.from_quantiles({0.75: 10}, 0, 40))
    assert np.mean(found <= 24) == pytest.approx(0.75 + 0.25 * 14.5 / 30, abs=4 * 0.5 / sqrt(N))


@given(
    st.lists(st.integers(1, 100_000), min_size=3, max_size=6, unique=True),
    st.lists(st.floats(0.02, 0.98), min_size=4, max_size=4, unique=True),
    st.floats(0.02, 0.98),
)
def test_quantiles_and_mean_are_met(tokens, shares, place):
    """Any mean between what the quantiles allow: all requests at the low end of their part, or all at the high end.

    No distribution between a and b with the mean m has a variance above (b - m) (m - a).
    """
    low, *middle, high = sorted(tokens)
    shares = sorted(shares)[: len(middle)]
    weights = np.diff([0, *shares, 1])
    ends = [float(weights @ [low, *middle]), float(weights @ [*middle, high])]
    mean = ends[0] + place * (ends[1] - ends[0])
    found = drawn(Lengths.from_quantiles(dict(zip(shares, middle, strict=True)), low, high, mean), 20_000)
    assert low <= found.min()
    assert found.max() <= high
    assert found.mean() == pytest.approx(mean, abs=5 * sqrt(((high - mean) * (mean - low) + 1) / 20_000))
    check_quantiles(found, dict(zip(shares, middle, strict=True)))


def check_quantiles(found, quantiles):
    """Each is a quantile but for the sampling error of a share: at least q at or below it, at most q below it."""
    for share, tokens in quantiles.items():
        error = 5 * sqrt(share * (1 - share) / len(found))
        assert np.mean(found < tokens) <= share + error
        assert np.mean(found <= tokens) >= share - error


# Shared prefixes


def test_ids_of_a_family_by_hand():
    """40 tokens in common hold two pieces of 16. A prompt of 20 has one of them, a prompt of 10 none."""
    requests = shared_prefix(Requests([0, 1, 2], [100, 20, 10], [5, 6, 7]), families=1, prefix=40)
    assert requests.ids.tolist() == [0, 1, 0]
    assert requests.offsets.tolist() == [0, 2, 3, 3]
    assert requests.unit == 16
    assert (requests.prompt.tolist(), requests.output.tolist()) == ([100, 20, 10], [5, 6, 7])


def test_families_are_drawn_by_their_rank():
    """Weights 1, 1/2 and 1/3 are 6, 3 and 2 of 11; pieces of one token name the family. Alike with zipf=0."""
    alike = constant(1, N, 1, 1)
    for zipf, expected in ((1, [6 / 11, 3 / 11, 2 / 11]), (0, [1 / 3] * 3)):
        found = shared_prefix(alike, 3, 1, zipf=zipf, unit=1).ids
        assert np.bincount(found) / N == pytest.approx(expected, abs=4 * 0.5 / sqrt(N))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 70), st.integers(0, 9))
def test_a_family_computes_its_longest_prompt_once(prompts, families, prefix, seed):
    """With pieces of one token: all tokens hit, but those behind the prefix and, once a family, its longest head."""
    requests = shared_prefix(constant(1, len(prompts), prompts, 1), families, prefix, unit=1, seed=seed)
    family = requests.ids[requests.offsets[:-1]] // prefix
    assert set(family) <= set(range(families))
    heads = np.minimum(prompts, prefix)
    longest = sum(max(heads[family == one]) for one in set(family))
    assert prefix_bound(requests)["bound"].hit_tokens == sum(heads) - longest


def test_families_do_not_depend_on_the_arrivals():
    """Although one seed draws both. The first twenty requests of a thousand seeds: used twice, the same bits would soon
    be out of step."""
    some = [shared_prefix(poisson(1, 20, 1, 1, seed), 2, 1, zipf=0, unit=1, seed=seed) for seed in range(1000)]
    family, gap = (np.concatenate([column(one) for one in some]) for column in (lambda one: one.ids, gaps))
    assert abs(np.corrcoef(family, gap)[0, 1]) < 4 / sqrt(20_000)


def test_the_seed_alone_decides_the_families():
    one, other = (
        [shared_prefix(poisson(rate, 50, 1, 1), 9, 1, unit=1, seed=seed).ids.tolist() for seed in (5, 6)]
        for rate in (1, 2)
    )
    assert one == other
    assert one[0] != one[1]


# Presets: rate, variation; quantiles and mean of prompts and outputs, as published.

PUBLISHED = {
    "azure-code": (
        (2.57, 13.2),
        ({0.5: 1469, 0.9: 5187, 0.99: 7436}, 2048),
        ({0.5: 13, 0.9: 55, 0.99: 251}, 27.9),
    ),
    "azure-conversation": (
        (5.53, 1.09),
        ({0.5: 1020, 0.9: 2734, 0.99: 4142}, 1155),
        ({0.5: 129, 0.9: 424, 0.99: 601}, 211),
    ),
    "mooncake-conversation": (
        (3.40, 1),
        ({0.5: 6909, 0.9: 27367, 0.99: 85400}, 12035),
        ({0.5: 350, 0.9: 597, 0.99: 1118}, 343),
    ),
    "servegen-deepseek-r1": (
        (16, 1),
        ({0.5: 208, 0.9: 2092, 0.95: 6714, 0.99: 23423}, 1268),
        ({0.5: 792, 0.9: 3432, 0.95: 5701, 0.99: 12607}, 1527),
    ),
    "sharegpt": ((None, 1), ({0.5: 199, 0.9: 457, 0.99: 578}, 236), ({}, 201)),
}


def test_each_preset_is_checked_and_says_where_it_is_from():
    assert PRESETS.keys() == PUBLISHED.keys()
    for chosen in PRESETS.values():
        assert "CC-BY-4.0" in chosen.source or "Apache-2.0" in chosen.source


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_published_statistics(name):
    (rate, cv), *lengths = PUBLISHED[name]
    requests = preset(name, N, rate=None if rate else 1, seed=1)
    found = gaps(requests)
    assert found.mean() == pytest.approx(1 / (rate or 1), rel=4 * cv / sqrt(N))
    assert found.std() / found.mean() == pytest.approx(cv, rel=4 * sqrt((1 + cv**2) / 2 / N))
    for tokens, (quantiles, mean) in zip((requests.prompt, requests.output), lengths, strict=True):
        assert tokens.mean() == pytest.approx(mean, abs=4 * tokens.std() / sqrt(N))
        check_quantiles(tokens, quantiles)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_mooncake_preset_shares_as_much_as_the_trace(seed):
    """As many requests as in the trace. Published: 36.6 % of blocks. By vLLM's rule, counted in the trace: 38.2 % of
    whole blocks, 37.3 % of tokens. Between seeds they differ by 0.3 points: three times that."""
    found = prefix_bound(preset("mooncake-conversation", 12031, seed=seed))
    assert found["bound"].piece_rate == pytest.approx(0.366, abs=0.01)
    assert found["V1"].piece_rate == pytest.approx(0.382, abs=0.01)
    assert found["V1"].token_rate == pytest.approx(0.373, abs=0.01)


def test_a_preset_at_another_rate():
    one, other = preset("azure-code", 50), preset("azure-code", 50, rate=25.7)
    assert one.arrival == pytest.approx(10 * other.arrival)
    assert one.output.tolist() == other.output.tolist()


def test_bad_input():
    refused(lambda: poisson(0, 10, 1, 1), "generate: rate=0")
    refused(lambda: poisson(1, 0, 1, 1), "generate: n=0", "at least 1")
    refused(lambda: poisson(1, 10**7 + 1, 1, 1), "n=10000001", "at most 10000000")
    refused(lambda: poisson(1, [5, 6], 1, 1), "n=[5, 6]", "one number")
    refused(lambda: poisson(1, 10, 1, 1, seed=-1), "seed=-1")
    refused(lambda: poisson(1, 10, 0, 1), "prompt[0]=0")
    refused(lambda: poisson(1, 10, 2.5, 1), "prompt=2.5", "whole")
    refused(lambda: poisson(1, 10, "many", 1), "prompt='many'")
    refused(lambda: poisson(1, 10, None, 1), "prompt=None")
    refused(lambda: poisson(1, 10, [1, 2], 1), "prompt has 2 values, arrival 10")
    refused(lambda: poisson(1, 10, 1, Lengths.geometric(1e9)), "output[", "to 2147483647")
    refused(lambda: gamma(1, 10, 0, 1, 1), "cv=0")
    refused(lambda: closed_loop(11, 10, 1, 1), "users=11", "at most 10")
    refused(lambda: closed_loop(1, 10, 1, 1, stagger=-1), "stagger=-1")
    refused(lambda: closed_loop(1, 10, 1, 1, think=-1), "think=-1")
    refused(lambda: Lengths.geometric(0.5), "mean=0.5")
    refused(lambda: Lengths.uniform(5, 4), "high=4", "at least 5")
    refused(lambda: Lengths.uniform(-1, 4), "low=-1")
    refused(lambda: Lengths.from_quantiles({0.5: 10, 0.9: 9}, 1, 20), "quantiles={0.5: 10, 0.9: 9}", "must rise")
    refused(lambda: Lengths.from_quantiles({0.5: 10}, 11, 20), "must rise from 11 to 20")
    refused(lambda: Lengths.from_quantiles({0: 10}, 1, 20), "quantiles={0: 10}")
    refused(lambda: Lengths.from_quantiles({50: 10}, 1, 20), "quantiles[1]=50.0")
    refused(lambda: Lengths.from_quantiles({0.5: 10}, -1, 20), "tokens[0]=-1")
    alike = constant(1, 10, 20, 1)
    refused(lambda: shared_prefix(alike, 0, 16), "families=0")
    refused(lambda: shared_prefix(alike, 1, 0), "prefix=0")
    refused(lambda: shared_prefix(alike, 1, 16, zipf=-1), "zipf=-1")
    refused(lambda: shared_prefix(alike, 1, 16, unit=0), "unit=0")
    refused(lambda: shared_prefix(shared_prefix(alike, 1, 16), 1, 16), "requests must be without ids")
    refused(lambda: shared_prefix(constant(1, 11, 10**7, 1), 1, 10**7, unit=1), "unit=1", "110000000 ids")
    refused(lambda: preset("azure", 10), "preset='azure'", "azure-code")
    refused(lambda: preset("sharegpt", 10), "rate=None", "sharegpt has none")
