"""Waiting in front of a server: textbook values, limits, a simulated queue."""

import math
from fractions import Fraction

import numpy as np
import pytest
from examples import refused
from hypothesis import given
from hypothesis import strategies as st
from test_dimensions import ONE, second

from perfmodel import queueing

loads = st.floats(0.01, 0.99)
services = st.floats(1e-4, 10)

OPS_CALLS = {
    "erlang_c": lambda d, B, S, n, s: queueing.erlang_c(3, 1 / n + 2 * S / (S + s)),
    "md1_rate": lambda d, B, S, n, s: queueing.md1_rate(1 / s, 1 / n),
    "md1_wait": lambda d, B, S, n, s: queueing.md1_wait(B / (B + 1), 1 / n),
    "mmc_wait": lambda d, B, S, n, s: queueing.mmc_wait(B / (B + 1), 1 / n, 3),
    "mmc_within": lambda d, B, S, n, s: queueing.mmc_within(B / (B + 1), 1 / n, 3, 1 / s),
    "utilization": lambda d, B, S, n, s: queueing.utilization(B, 1 / n, 2),
}
# These search or iterate: floats and arrays, no symbols.
NUMERIC_CALLS = {
    "md1_capacity": lambda d, B, S, n, s: queueing.md1_capacity(1 / n, 1 / s),
    "md1_within": lambda d, B, S, n, s: queueing.md1_within(B / (B + 1), 1 / n, s / (s + n)),
    "mmc_capacity": lambda d, B, S, n, s: queueing.mmc_capacity(1 / n, 3, 1 / s),
}
DIMENSION_CALLS = {
    "erlang_c": (ONE, lambda d, u: queueing.erlang_c(3, 2.0 / u(second) * u(second))),
    "md1_capacity": (1 / second, lambda d, u: queueing.md1_capacity(0.05 * u(second), 0.1 * u(second))),
    "md1_rate": (1 / second, lambda d, u: queueing.md1_rate(0.05 * u(second), 0.1 * u(second))),
    "md1_wait": (second, lambda d, u: queueing.md1_wait(10 / u(second), 0.05 * u(second))),
    "md1_within": (ONE, lambda d, u: queueing.md1_within(10 / u(second), 0.05 * u(second), 0.1 * u(second))),
    "mmc_capacity": (1 / second, lambda d, u: queueing.mmc_capacity(0.05 * u(second), 3, 0.1 * u(second))),
    "mmc_wait": (second, lambda d, u: queueing.mmc_wait(10 / u(second), 0.05 * u(second), 3)),
    "mmc_within": (ONE, lambda d, u: queueing.mmc_within(10 / u(second), 0.05 * u(second), 3, 0.1 * u(second))),
    "utilization": (ONE, lambda d, u: queueing.utilization(10 / u(second), 0.05 * u(second), 2)),
}


def simulated_waits(load, requests=3_000_000):
    """Waits of an M/D/1 queue with a service of 1, by Lindley's recursion W' = max(W + 1 - gap, 0), as running sums."""
    gaps = np.random.default_rng(1).exponential(1 / load, requests)
    walk = np.concatenate([[0], np.cumsum(1 - gaps)])
    return walk - np.minimum.accumulate(walk)


# M/D/1


def test_the_prefill_pool_of_the_worked_example():
    """The audit of the source: prefills of 49.228 ms keep a mean TTFT of 200 ms up to a load of 0.86, 17.5 a second."""
    service = 49.228025e-3
    rate = queueing.md1_rate(service, 0.2 - service)
    assert rate == pytest.approx(17.46, abs=0.05)
    assert queueing.utilization(rate, service) == pytest.approx(0.86, abs=0.005)
    # By hand: T (1 + rho / (2 (1 - rho))) = 200 ms.
    rho = rate * service
    assert service * (1 + rho / (2 * (1 - rho))) == pytest.approx(0.2)


def test_mean_waits_by_hand():
    """rho D / (2 (1 - rho)): half a service at rho = 1/2, four and a half at 0.9."""
    assert queueing.md1_wait(0.5, 1) == pytest.approx(0.5)
    assert queueing.md1_wait(9, 0.1) == pytest.approx(0.45)
    assert queueing.md1_wait(0, 1) == 0
    assert queueing.md1_wait(1, 1) == queueing.md1_wait(3, 1) == math.inf
    assert queueing.md1_wait(np.array([0.5, 1, 2]), 1).tolist() == [0.5, math.inf, math.inf]


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
def test_a_simulated_queue_waits_as_long(load):
    """Three million requests; waits are correlated over some 1 / (1 - rho)^2 of them: within 4 % and 0.01 with room."""
    waits = simulated_waits(load)
    assert queueing.md1_wait(load, 1) == pytest.approx(waits.mean(), rel=0.04)
    for limit in (0, 0.4, 1, 2.5, 6, 12):
        assert queueing.md1_within(load, 1, limit) == pytest.approx(np.mean(waits <= limit), abs=0.01)


def crommelin(load, services):
    """Erlang's series in exact fractions, but for its exponentials: those with 60 digits."""
    from mpmath import mp, mpf

    with mp.workdps(60):
        terms = [
            (mpf(load) * (n - mpf(services))) ** n / math.factorial(n) * mp.exp(mpf(load) * (mpf(services) - n))
            for n in range(math.floor(services) + 1)
        ]
        return float((1 - mpf(load)) * sum(terms))


@given(loads, st.floats(0, 40), services)
def test_the_distribution_of_the_wait_is_erlangs(load, waited, service):
    """On both sides of where the code leaves the series for its limit; alike to 1e-8, the limit's error there."""
    expected = crommelin(load, waited)
    assert queueing.md1_within(load / service, service, waited * service) == pytest.approx(expected, abs=1e-8)


@given(loads)
def test_the_mean_wait_is_the_integral_of_what_waits_longer(load):
    """Trapezia of a hundredth of a service, up to where e^-30 is left."""
    end = 15 / (1 - load)
    limits = np.arange(0, end, 0.01)
    longer = 1 - queueing.md1_within(load, 1, limits)
    # The share that does not wait at all jumps at 0; everything after is continuous.
    integral = np.sum((longer[1:] + longer[:-1]) / 2) * 0.01
    assert queueing.md1_wait(load, 1) == pytest.approx(integral, rel=2e-3, abs=1e-4)


@given(loads, services)
def test_whoever_finds_an_idle_server_does_not_wait(load, service):
    assert queueing.md1_within(load / service, service, 0) == pytest.approx(1 - load)


@given(services, st.floats(0, 100), st.floats(0.5, 0.999))
def test_the_capacity_is_the_rate_at_which_the_share_is_met(service, waited, share):
    rate = queueing.md1_capacity(service, waited * service, share)
    assert 0 < rate < 1 / service
    assert queueing.md1_within(rate, service, waited * service) == pytest.approx(share, abs=1e-6)


def test_a_limit_that_the_service_breaks_alone_leaves_no_rate():
    assert queueing.md1_capacity(1, -0.1) == 0
    assert queueing.mmc_capacity(1, 4, -0.1) == 0
    assert queueing.md1_capacity(1, np.array([-1, 0]), 0.9) == pytest.approx([0, 0.1])


def test_nine_in_ten_asks_for_a_lower_rate_than_the_mean():
    """The same 200 ms and 49 ms: a mean inside the limit leaves more than a tenth outside."""
    service = 49.228025e-3
    mean, most = queueing.md1_rate(service, 0.2 - service), queueing.md1_capacity(service, 0.2 - service)
    assert most < mean
    assert queueing.md1_within(mean, service, 0.2 - service) < 0.9


# M/M/c


def erlang_by_definition(servers, load):
    """P(all busy) from the state probabilities a^n / n!, in exact fractions."""
    load = Fraction(load)
    states = [load**n / math.factorial(n) for n in range(servers)]
    waiting = load**servers / math.factorial(servers) / (1 - load / servers)
    return float(waiting / (sum(states) + waiting))


@pytest.mark.parametrize(("servers", "load", "busy"), [(1, 0.5, 1 / 2), (2, 1, 1 / 3), (3, 2, 4 / 9)])
def test_erlang_c_by_hand(servers, load, busy):
    """One server is busy for a share rho; (2, 1): 1 / (1 + 1 + 1) for 2 and more; (3, 2): 4 / (1 + 2 + 2 + 4)."""
    assert queueing.erlang_c(servers, load) == pytest.approx(busy)


def test_erlang_c_as_tables_print_it():
    """0.409 for ten servers and a load of eight: printed tables of the formula."""
    assert queueing.erlang_c(10, 8) == pytest.approx(0.409, abs=5e-4)


@given(st.integers(1, 60), loads)
def test_erlang_c_is_the_sum_over_states(servers, load):
    assert queueing.erlang_c(servers, load * servers) == pytest.approx(erlang_by_definition(servers, load * servers))


@given(loads, services)
def test_one_server_with_exponential_times(load, service):
    """M/M/1 waits rho / (1 - rho) services, twice as long as M/D/1."""
    rate = load / service
    assert queueing.mmc_wait(rate, service, 1) == pytest.approx(load / (1 - load) * service)
    assert queueing.mmc_wait(rate, service, 1) == pytest.approx(2 * queueing.md1_wait(rate, service))
    limit = 3 * service
    assert queueing.mmc_within(rate, service, 1, limit) == pytest.approx(1 - load * math.exp(-(1 - load) * 3))


@given(st.integers(1, 40), loads, services)
def test_the_mean_wait_of_those_who_wait(servers, load, service):
    """The wait is exponential with rate c (1 - rho) / service, with probability C, else 0."""
    rate = load * servers / service
    busy = queueing.erlang_c(servers, load * servers)
    assert queueing.mmc_wait(rate, service, servers) == pytest.approx(busy * service / (servers * (1 - load)))
    assert queueing.mmc_within(rate, service, servers, 0) == pytest.approx(1 - busy)


@given(st.integers(1, 40), loads, services)
def test_a_shared_queue_beats_one_for_each(servers, load, service):
    """Twice the servers for twice the arrivals wait less."""
    rate = load * servers / service
    assert queueing.mmc_wait(2 * rate, service, 2 * servers) <= queueing.mmc_wait(rate, service, servers)


@given(st.integers(1, 30), services, st.floats(0, 20))
def test_the_capacity_of_many_servers(servers, service, waited):
    rate = queueing.mmc_capacity(service, servers, waited * service)
    assert 0 < rate < servers / service
    assert queueing.mmc_within(rate, service, servers, waited * service) == pytest.approx(0.9, abs=1e-6)


def test_a_saturated_queue():
    assert queueing.erlang_c(4, 4) == queueing.erlang_c(4, 100) == 1
    assert queueing.mmc_wait(4, 1, 4) == math.inf
    assert queueing.mmc_within(4, 1, 4, 1e9) == queueing.md1_within(1, 1, 1e9) == 0
    assert queueing.mmc_within(5, 1, 4, 1) == queueing.md1_within(1.5, 1, 1) == 0
    expected = [1, *(erlang_by_definition(c, 1.5) for c in (2, 4))]
    assert queueing.erlang_c(np.array([1, 2, 4]), 1.5) == pytest.approx(expected)


@given(loads, st.floats(0, 30), services)
def test_more_arrivals_wait_longer(load, waited, service):
    rate, limit = load / service, waited * service
    for more in (1.01, 1.2):
        assert queueing.md1_wait(more * rate, service) > queueing.md1_wait(rate, service)
        assert queueing.mmc_wait(more * rate, service, 2) > queueing.mmc_wait(rate, service, 2)
        assert queueing.md1_within(more * rate, service, limit) <= queueing.md1_within(rate, service, limit) + 1e-9
        assert queueing.mmc_within(more * rate, service, 2, limit) <= queueing.mmc_within(rate, service, 2, limit)


def test_bad_input():
    refused(lambda: queueing.md1_wait(-1, 1), "rate=-1", "at least 0")
    refused(lambda: queueing.md1_wait(1, 0), "service=0", "above 0")
    refused(lambda: queueing.md1_within(1, 1, -1), "md1_within", "wait=-1")
    refused(lambda: queueing.mmc_wait(1, 1, 2.5), "servers=2.5", "whole")
    refused(lambda: queueing.mmc_within(1, 1, 2, float("nan")), "wait=nan")
    refused(lambda: queueing.erlang_c(0, 1), "erlang_c", "servers=0")
    refused(lambda: queueing.erlang_c(2, -1), "load=-1")
    refused(lambda: queueing.md1_rate(1, -1), "md1_rate", "wait=-1")
    refused(lambda: queueing.md1_rate(0, 1), "service=0")
    refused(lambda: queueing.md1_capacity(1, 1, share=1.5), "share=1.5", "at most 1")
    refused(lambda: queueing.md1_capacity(1, 1, share=0), "share=0")
    refused(lambda: queueing.mmc_capacity(-1, 2, 1), "service=-1")
