"""Mixture of experts: which experts a step touches when some are popular, and how evenly ranks share the work.

A rank is an accelerator that holds whole experts (expert parallelism). Functions of `popularity` or `chances` take
arrays over the experts, and no symbols.
"""

from dataclasses import dataclass
from functools import cache
from math import erf
from typing import Any

import numpy as np

from perfmodel._ops import Value, is_symbolic, maximum, real, sqrt
from perfmodel.counts import network_parameters, network_weights, routed_parameters, touched_experts
from perfmodel.deployment import Deployment
from perfmodel.kvcache import kv_bytes_per_token_per_gpu, moe_layers_of_stage, weight_bytes_per_gpu
from perfmodel.model import Model
from perfmodel.quantity import check_value


def zipf_popularity(experts: int, exponent: float) -> Any:
    """Popularity of X experts under Zipf's law, the i-th in proportion to 1 / i^exponent; sums to 1. 0 is uniform."""
    check_value("zipf_popularity", "experts", experts, minimum=1, whole=True)
    check_value("zipf_popularity", "exponent", exponent, minimum=0)
    weights = np.arange(1.0, real(experts) + 1) ** -real(exponent)
    return weights / weights.sum()


def visit_chances(popularity: Any, experts_per_token: int) -> Any:
    """Chance that a token visits each expert, if it draws q different ones by popularity; sums to q.

    Drawing one after another without putting back is a race of clocks: expert i's runs out at rate p_i, and the first
    q are drawn. With many experts q clocks have run out at nearly the same time T in every race, so the chance is
    1 - exp(-p_i T), with T such that they sum to q (Rosén 1997). Exact for uniform popularity; under Zipf's law with
    exponents up to 1, and q = 2 or more, each chance is good to 0.03 and the experts that a step visits to 2 %. (The
    simpler q p_i is no chance: for the first of 256 experts and q = 8 it is 1.3.) Where loads have been measured there
    is nothing to compute: a chance is an expert's visits over tokens.

    Parameters
    ----------
    popularity : array over experts
        Weights p_i on any scale.
    experts_per_token : int
        q, at most the number of experts with a popularity above 0.
    """
    owner = "visit_chances"
    check_value(owner, "popularity", popularity, minimum=0)
    check_value(owner, "experts_per_token", experts_per_token, minimum=1, whole=True)
    p = real(popularity)
    drawable = np.count_nonzero(p)
    if experts_per_token > drawable:
        raise ValueError(f"{owner}: experts_per_token={experts_per_token} must be at most {drawable}, the popular ones")
    low, high = 0.0, 800 / p[p > 0].min()  # by then every clock has run out, to the last digit
    for _ in range(200):
        middle = (low + high) / 2
        late = (1 - np.exp(-p * middle)).sum() >= experts_per_token
        low, high = (low, middle) if late else (middle, high)
    return 1 - np.exp(-p * high)


def visited_experts(chances: Any, tokens: Value) -> Any:
    """Experts that at least one token of a step visits, on average: `touched_experts` for any chances.

    Exact if tokens choose independently of each other, whatever a token's own choices have to do with one another.

    Parameters
    ----------
    chances : array over experts
        Chance that a token visits each: `visit_chances`, or measured.
    tokens : float or array
        Tokens of the step, of all replicas that share the experts.
    """
    check_value("visited_experts", "chances", chances, minimum=0, maximum=1)
    check_value("visited_experts", "tokens", tokens, minimum=0)
    return (1 - (1 - real(chances)) ** np.expand_dims(real(tokens), -1)).sum(axis=-1)


def expert_bytes_read(deployment: Deployment, tokens: Value, chances: Any = None) -> Value:
    """Bytes of routed experts that one accelerator reads in a step over `tokens` tokens a replica, on average.

    `chances` are those of experts, or of slots if some have replicas (`replicate`); without them routing is uniform.
    """
    check_value("expert_bytes_read", "tokens", tokens, minimum=0)
    d = deployment
    seen = real(tokens) * d.data_parallel if d.expert_parallel else real(tokens)
    touched = touched_experts(d.model, seen) if chances is None else visited_experts(chances, seen)
    return routed_parameters(d.model, touched) * d.bytes_of_experts / d.expert_shards


def token_copies(model: Model, ranks: Value, groups: Value = 1, groups_per_token: Value = 1) -> Value:
    """Ranks that a token's q different experts lie on, on average under uniform routing: copies of it that are sent.

    n times the chance that a rank holds one of them: n (1 - C(X - X/n, q) / C(X, q)).

    Parameters
    ----------
    ranks : int, array or symbol
        n, each with X/n of the experts; or nodes.
    groups, groups_per_token : int
        Node-limited routing: a token chooses its experts in so many of the groups (DeepSeek-V3: 4 of 8), each of
        which lies on ranks of its own.
    """
    owner, experts, q = "token_copies", model.experts, model.experts_per_token
    check_value(owner, "groups", groups, minimum=1, whole=True)
    check_value(owner, "groups_per_token", groups_per_token, minimum=1, maximum=groups, whole=True)
    _check_ranks(owner, model, ranks)
    if not is_symbolic(ranks, groups) and np.any(real(ranks) % real(groups)):
        raise ValueError(f"{owner}: groups={groups} does not divide ranks={ranks}; a group has ranks of its own")
    if not is_symbolic(q, experts) and q * real(groups) > experts * real(groups_per_token):
        raise ValueError(f"{owner}: groups_per_token={groups_per_token} of {groups} hold fewer than {q} experts")
    held, among = experts / real(ranks), experts * real(groups_per_token) / real(groups)
    return real(ranks) * real(groups_per_token) / real(groups) * (1 - _none_drawn(q, held, among))


def _none_drawn(drawn: Value, held: Value, among: Value) -> Value:
    """Chance that none of `drawn` different experts of `among` is one of the `held`: a quotient of binomials."""
    if is_symbolic(drawn):
        import sympy

        return sympy.binomial(among - held, drawn) / sympy.binomial(among, drawn)
    chance: Value = 1
    for i in range(int(drawn)):
        chance = chance * (among - held - i) / (among - i)
    return chance


def expected_imbalance(model: Model, tokens: Value, ranks: int) -> Value:
    """Visits to the busiest rank over the mean, on average, when routing is uniform: chance alone.

    B tokens pay n ranks q B / n visits each, give or take chance, and q B in all. The largest of n such normal
    variables exceeds their mean by E_n sqrt(q B / n (X - q) / (X - 1)), where E_n is the mean of the largest of n
    independent standard ones. Good to 6 % from 8 visits a rank on and to 3 % from 30; too low below. For a trained
    model it is the floor, and `load_imbalance` comes on top.

    Parameters
    ----------
    tokens : float, array or symbol
        Tokens B of the step, of all replicas that share the experts.
    ranks : int
        n, each with X/n of the experts.
    """
    check_value("expected_imbalance", "tokens", tokens)
    _check_ranks("expected_imbalance", model, ranks)
    experts, q = model.experts, model.experts_per_token
    different = (experts - q) / maximum(experts - 1, 1)  # drawing without repetition spreads visits more evenly
    return 1 + _largest_of(int(ranks)) * sqrt(real(ranks) * different / (q * real(tokens)))


@cache
def _largest_of(count: int) -> float:
    """Mean of the largest of `count` standard normal variables: the integral of 1 - P(x)^n - P(-x)^n over x > 0."""
    x = np.linspace(0, 9, 1801)
    below = np.array([(1 + erf(value / 2**0.5)) / 2 for value in x])
    return float(np.trapezoid(1 - below**count - (1 - below) ** count, x))


def replicate(chances: Any, redundant: int) -> Any:
    """Chance of a visit to each slot, once the busiest experts have replicas that share their tokens.

    The next of `redundant` replicas goes to the expert with most visits a replica, as DeepSeek's expert-parallel load
    balancer (EPLB) has it.
    """
    check_value("replicate", "chances", chances, minimum=0, maximum=1)
    check_value("replicate", "redundant", redundant, minimum=0, whole=True)
    chances = real(chances)
    replicas = np.ones(len(chances), dtype=int)
    for _ in range(int(redundant)):
        replicas[np.argmax(chances / replicas)] += 1
    return np.repeat(chances / replicas, replicas)


def load_imbalance(chances: Any, ranks: int, redundant: int = 0, balanced: bool = True) -> float:
    """Visits to the busiest rank over the mean when some experts are popular: the limit of many tokens.

    For `Constants.expert_imbalance`. At few tokens chance (`expected_imbalance`) comes on top.

    Parameters
    ----------
    chances : array over experts
        Chance that a token visits each.
    ranks, redundant : int
        Ranks, each with the same number of slots, and replicas of busy experts: `replicate`.
    balanced : bool
        Whether the busiest slot goes first, to the idlest rank with room (EPLB); else slots stay in order.
    """
    check_value("load_imbalance", "ranks", ranks, minimum=1, whole=True)
    slots = replicate(chances, redundant)
    room, left = divmod(len(slots), ranks)
    if left:
        raise ValueError(f"load_imbalance: ranks={ranks} does not divide the {len(slots)} slots")
    load, taken = slots.reshape(ranks, room).sum(axis=1), np.zeros(ranks)
    if balanced:
        load = np.zeros(ranks)
        for slot in np.sort(slots)[::-1]:
            idlest = np.argmin(np.where(taken < room, load, np.inf))
            load[idlest] += slot
            taken[idlest] += 1
    return float(load.max() / load.mean()) if load.any() else 1.0


def _check_ranks(owner: str, model: Model, ranks: Value) -> None:
    check_value(owner, "ranks", ranks, minimum=1, whole=True)
    if not is_symbolic(model.experts, ranks) and np.any(model.experts % real(ranks)):
        raise ValueError(f"{owner}: ranks={ranks} does not divide experts={model.experts} of {model.name}")


@dataclass(frozen=True)
class RankMemory:
    """Bytes that one accelerator holds of a mixture of experts, on the largest pipeline stage."""

    experts: Value
    shared_experts: Value
    rest: Value  # attention, dense layers, routers, norms, tables
    kv: Value

    @property
    def total(self) -> Value:
        """Sum over the parts."""
        return self.experts + self.shared_experts + self.rest + self.kv


def rank_memory(
    deployment: Deployment, cached_tokens: Value = 0, redundant: Value = 0, shared_copied: bool = False
) -> RankMemory:
    """Bytes that one accelerator holds when n = t r of them share the experts.

    TP+EP is t = n: the rest is cut n times, and a latent KV cache lies on all ranks. DP+EP is r = n: the rest lies
    on all ranks, and each keeps the KV cache of its own requests.

    Parameters
    ----------
    cached_tokens : float, array or symbol
        Tokens in the KV caches of all replicas together, spread evenly over the replicas.
    redundant : float, array or symbol
        Replicas of busy experts in each layer, over all ranks.
    shared_copied : bool
        Whether each accelerator holds the shared experts whole, as wide expert parallelism has it, or a t-th of them.
    """
    check_value("rank_memory", "cached_tokens", cached_tokens, minimum=0)
    check_value("rank_memory", "redundant", redundant, minimum=0)
    d, m, mixed = deployment, deployment.model, moe_layers_of_stage(deployment)
    routed = mixed * m.experts * network_parameters(m, m.ffn_size) * d.bytes_of_experts / d.expert_shards
    shared = mixed * network_weights(m, m.shared_ffn_size) * d.weight_bytes / d.tensor_parallel
    return RankMemory(
        experts=routed * (m.experts + real(redundant)) / m.experts,
        shared_experts=shared * (d.tensor_parallel if shared_copied else 1),
        rest=weight_bytes_per_gpu(d) - routed - shared,
        kv=kv_bytes_per_token_per_gpu(d) * real(cached_tokens) / d.data_parallel,
    )
