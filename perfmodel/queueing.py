"""Waiting in front of a server: what the arrival rate does to the time before the first token.

Arrivals are Poisson, first come is first served, and whoever waits stays. Prefills of equal prompts take equal times
(D in M/D/1); c is a number of servers that take from one queue, with exponential times (M/M/c).
"""

from collections.abc import Callable
from math import factorial

import numpy as np

from perfmodel._ops import Value, is_symbolic, maximum, minimum, real, where
from perfmodel.quantity import argument, check_value, computed

EXACT = 8  # services of waiting up to which the M/D/1 series is summed; beyond, one exponential is exact to 1e-9
HALVINGS = 50  # of the interval of loads: to the precision of a double

argument("rate", "lambda", "1/s", "requests that arrive a second, on one replica")


@computed("rho", "1")
def utilization(rate: Value, service: Value, servers: Value = 1) -> Value:
    """share of the time that a server is busy; a queue grows without end from 1 on.

    Parameters
    ----------
    rate : float, array or symbol
        Arrivals lambda a second.
    service : float, array or symbol
        Seconds of one service.
    servers : int, array or symbol
        Servers c of the queue.
    """
    check_value("utilization", "rate", rate, minimum=0)
    check_value("utilization", "service", service)
    check_value("utilization", "servers", servers, minimum=1, whole=True)
    return real(rate) * real(service) / real(servers)


def md1_wait(rate: Value, service: Value) -> Value:
    """Mean seconds in the queue before an M/D/1 server, rho D / (2 (1 - rho)); infinite from rho = 1 on.

    The queue and the half of a service that an arrival finds under way (Pollaczek and Khinchine).
    """
    rho = utilization(rate, service)
    free = where(rho < 1, 1 - rho, 1)
    return where(rho < 1, rho / (2 * free), np.inf) * real(service)


def md1_within(rate: Value, service: Value, wait: Value) -> Value:
    """Share of arrivals that wait at most `wait` seconds before an M/D/1 server. Numbers and arrays, no symbols.

    Erlang's series (1909) for up to `EXACT` services of waiting. Its terms alternate and outgrow a double's digits,
    so beyond that the series' own limit: P(W > t) -> (1 - rho) / (rho e^u - 1) e^(-u t / D), u = rho (e^u - 1).
    """
    _refuse_symbols("md1_within", rate, service, wait)
    rho = utilization(rate, service)
    check_value("md1_within", "wait", wait, minimum=0)
    services = real(wait) / real(service)
    short = minimum(services, EXACT)
    series = (1 - rho) * sum(
        where(short >= n, (rho * (n - minimum(short, EXACT))) ** n / factorial(n) * np.exp(rho * (short - n)), 0)
        for n in range(EXACT)
    )
    load = minimum(maximum(rho, 1e-9), 1 - 1e-9)
    u = -2 * np.log(load)  # above the root, since 2 (sinh v - v) > 0 at v = -ln rho; Newton then falls towards it
    for _ in range(40):
        u = u - (load * np.expm1(u) - u) / (load * np.exp(u) - 1)
    tail = (1 - load) / (load * np.exp(u) - 1) * np.exp(-u * services)
    return where(rho < 1, where(services < EXACT, series, 1 - tail), 0)


def erlang_c(servers: Value, load: Value) -> Value:
    """Probability that an arrival finds all c servers of an M/M/c queue busy; 1 if the load is c or more.

    Erlang's loss formula, server by server, then the share that waits instead of being lost.

    Parameters
    ----------
    servers : int or array
        Servers c, numbers.
    load : float, array or symbol
        Rate times service time, in servers kept busy.
    """
    check_value("erlang_c", "servers", servers, minimum=1, whole=True)
    check_value("erlang_c", "load", load, minimum=0)
    servers, load = real(servers), real(load)
    loss: Value = 1
    for count in range(1, int(np.max(servers)) + 1):
        loss = where(count <= servers, load * loss / (count + load * loss), loss)
    return where(load < servers, loss / (1 - load / servers * (1 - loss)), 1)


def mmc_wait(rate: Value, service: Value, servers: Value) -> Value:
    """Mean seconds in the queue before c servers with exponential times of mean `service`; infinite when saturated."""
    rho = utilization(rate, service, servers)
    free = where(rho < 1, 1 - rho, 1)
    busy = erlang_c(servers, rho * real(servers))
    return where(rho < 1, busy / (real(servers) * free), np.inf) * real(service)


def mmc_within(rate: Value, service: Value, servers: Value, wait: Value) -> Value:
    """Share of arrivals that wait at most `wait` seconds before c servers with exponential times.

    1 - C e^(-c (1 - rho) t / D): who waits at all waits for one of c busy servers, exponentially long.
    """
    rho = utilization(rate, service, servers)
    check_value("mmc_within", "wait", wait, minimum=0)
    idle = real(servers) * (1 - rho) * real(wait) / real(service)
    return where(rho < 1, 1 - erlang_c(servers, rho * real(servers)) * np.e ** (-idle), 0)


def md1_rate(service: Value, wait: Value) -> Value:
    """Highest rate at which the *mean* wait before an M/D/1 server is at most `wait` seconds."""
    check_value("md1_rate", "service", service)
    check_value("md1_rate", "wait", wait, minimum=0)
    return 2 * real(wait) / (real(service) * (real(service) + 2 * real(wait)))


def md1_capacity(service: Value, wait: Value, share: float = 0.9) -> Value:
    """Highest rate at which at least `share` of the arrivals wait at most `wait` seconds before an M/D/1 server.

    Goodput is defined for such a share, 90 % as a rule: a mean within the limit leaves many outside. 0 if `wait` is
    negative. Numbers and arrays, no symbols.
    """
    return _capacity(lambda rate: md1_within(rate, service, maximum(real(wait), 0)), service, 1, wait, share)


def mmc_capacity(service: Value, servers: Value, wait: Value, share: float = 0.9) -> Value:
    """Highest rate at which at least `share` of the arrivals wait at most `wait` seconds before c servers.

    As `md1_capacity`, for exponential service times.
    """
    return _capacity(
        lambda rate: mmc_within(rate, service, servers, maximum(real(wait), 0)), service, servers, wait, share
    )


def _capacity(within: Callable[[Value], Value], service: Value, servers: Value, wait: Value, share: float) -> Value:
    """Halve the interval between an idle and a saturated queue: the share that complies falls with the rate."""
    _refuse_symbols("capacity of a queue", service, servers, wait)
    check_value("capacity of a queue", "service", service)
    check_value("capacity of a queue", "servers", servers, minimum=1, whole=True)
    check_value("capacity of a queue", "wait", wait, minimum=-np.inf)
    check_value("capacity of a queue", "share", share, maximum=1)
    low, high = 0 / real(service), real(servers) / real(service)
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        enough = within(rate) >= share
        low, high = where(enough, rate, low), where(enough, high, rate)
    return where(real(wait) >= 0, low, 0 / real(service))


def _refuse_symbols(owner: str, *values: Value) -> None:
    if is_symbolic(*values):
        raise ValueError(f"{owner} has no closed form: pass numbers, not symbols")
