"""Requests that are drawn: arrivals, lengths and shared prefixes of random workloads.

`prompt` and `output` are tokens: a number for all requests, an array with one for each, or `Lengths` to draw them from.
The same arguments and `seed` give the same requests, under one version of NumPy. Arrivals are drawn first and divided
by the rate: at another rate the same requests come in the same pattern, stretched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from perfmodel.quantity import shown
from perfmodel.simulate.requests import MOST_SECONDS, MOST_TOKENS, Floats, Integers, Requests, column, scalar

MOST_REQUESTS = 10**7
MOST_PIECES = 10**8  # that have ids
UNIT = 16  # tokens of a piece, as in vLLM's blocks


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths: its mean in tokens, and what draws n of them."""

    mean: float
    draw: Callable[[np.random.Generator, int], Integers]

    @classmethod
    def from_quantiles(
        cls, quantiles: Mapping[float, int], minimum: int, maximum: int, mean: float | None = None
    ) -> Self:
        """Lengths that have these quantiles and, if it is given, this mean.

        Between two quantiles, a tokens at the share p and b at q, the inverse CDF is a + (b - a) ((u - p) / (q - p))^k.
        The k that all parts share follows from the mean; k = 1, straight parts, without one. So whatever mean some
        distribution with these quantiles has can be met. Bending the ends alone is not enough: the published mean of
        heavy tails is often below that of straight parts in the middle.

        Parameters
        ----------
        quantiles : mapping
            Share of the requests, between 0 and 1, to the tokens that they have at most.
        minimum, maximum : int
            Tokens of the shortest and the longest.
        mean : float, optional
            Tokens.
        """
        shares = column("Lengths", "quantiles", [0.0, *sorted(quantiles), 1.0], 0, 1, whole=False)
        tokens = [minimum, *(quantiles[share] for share in sorted(quantiles)), maximum]
        tokens = column("Lengths", "tokens", tokens, 0, MOST_TOKENS)
        steps, rises = np.diff(shares), np.diff(tokens)
        if (steps <= 0).any() or (rises < 0).any():
            raise ValueError(f"Lengths: quantiles={shown(dict(quantiles))} must rise from {minimum} to {maximum}")
        low, high = float(steps @ tokens[:-1]), float(steps @ tokens[1:])
        mean = (low + high) / 2 if mean is None else scalar("Lengths", "mean", mean)
        if not low < mean < high:
            raise ValueError(f"Lengths: mean={mean} must be above {low:g} and below {high:g} for these quantiles")
        power = (high - low) / (mean - low) - 1  # a part's mean is a + (b - a) / (k + 1)

        def draw(rng: np.random.Generator, n: int) -> Integers:
            share = rng.random(n)
            part = np.searchsorted(shares, share, side="right") - 1
            exact = tokens[part] + rises[part] * ((share - shares[part]) / steps[part]) ** power
            # Up with the chance of what is behind the point: rounded so, the mean and the quantiles stay.
            rounded: Integers = np.floor(exact + rng.random(n)).astype(np.int64)
            return rounded

        return cls(mean, draw)

    @classmethod
    def geometric(cls, mean: float) -> Self:
        """At least one token; after each, the request ends with the same chance."""
        scalar("Lengths", "mean", mean, minimum=1, maximum=MOST_TOKENS)
        return cls(mean, lambda rng, n: rng.geometric(1 / mean, n))

    @classmethod
    def uniform(cls, low: int, high: int) -> Self:
        """Each whole number of tokens from low to high as likely as the others."""
        scalar("Lengths", "low", low, minimum=0, maximum=MOST_TOKENS, whole=True)
        scalar("Lengths", "high", high, minimum=low, maximum=MOST_TOKENS, whole=True)
        return cls((low + high) / 2, lambda rng, n: rng.integers(int(low), int(high) + 1, n))


Tokens = int | Sequence[int] | Integers | Lengths


def poisson(rate: float, n: int, prompt: Tokens, output: Tokens, seed: int = 0) -> Requests:
    """Arrivals that know nothing of each other: the times between them are exponential. `rate` is in requests/s."""
    return gamma(rate, n, 1, prompt, output, seed)


def gamma(rate: float, n: int, cv: float, prompt: Tokens, output: Tokens, seed: int = 0) -> Requests:
    """Times between arrivals from a gamma distribution: bursts if their coefficient of variation `cv` is above 1."""
    scalar("generate", "cv", cv, minimum=0.001, maximum=1000)
    rng, n = _rng(seed), _count("n", n)
    gaps = rng.standard_gamma(1 / cv**2, n) * cv**2
    return _requests(np.cumsum(gaps) / _rate(rate), prompt, output, rng)


def constant(rate: float, n: int, prompt: Tokens, output: Tokens, seed: int = 0) -> Requests:
    """An arrival every 1 / rate seconds, the first at 0."""
    rng, n = _rng(seed), _count("n", n)
    return _requests(np.arange(n) / _rate(rate), prompt, output, rng)


def closed_loop(
    users: int, n: int, prompt: Tokens, output: Tokens, think: float = 0, stagger: float = 0, seed: int = 0
) -> Requests:
    """Users who wait for the end of their request, think for `think` seconds and send the next of the n.

    User k sends the first at k times `stagger` seconds.
    """
    rng, n, users = _rng(seed), _count("n", n), _count("users", users)
    scalar("generate", "stagger", stagger, minimum=0, maximum=MOST_SECONDS)
    first = np.minimum(np.arange(n), users - 1) * stagger
    return _requests(first, prompt, output, rng, users=users, think=think)


def shared_prefix(
    requests: Requests, families: int, prefix: int, zipf: float = 1, unit: int = UNIT, seed: int = 0
) -> Requests:
    """The same requests, in families whose prompts begin alike: a system prompt, a document, a conversation.

    Parameters
    ----------
    requests : Requests
        Without ids; their lengths stay.
    families : int
        A request belongs to family k with a probability in proportion to 1 / k^zipf.
    prefix : int
        Tokens at the head of a prompt that are its family's; the whole of a prompt that has no more.
    zipf : float
        0 makes all families alike.
    unit : int
        Tokens of a piece.
    """
    counts = {"families": families, "prefix": prefix, "unit": unit}
    families, prefix, unit = (_count(name, value) for name, value in counts.items())
    scalar("generate", "zipf", zipf, minimum=0, maximum=100)
    if requests.ids is not None:
        raise ValueError("generate: requests must be without ids: theirs would be lost")
    weights = np.arange(1, families + 1) ** -float(zipf)
    family = _rng(seed, 1).choice(families, len(requests), p=weights / weights.sum())
    pieces = np.minimum(requests.prompt, prefix) // unit
    offsets = np.concatenate([[0], np.cumsum(pieces)])
    if offsets[-1] > MOST_PIECES:
        raise ValueError(f"generate: unit={unit} must be larger: {offsets[-1]} ids are more than {MOST_PIECES}")
    # A family's ids count up from its first.
    ids = np.arange(offsets[-1]) + np.repeat(family * (prefix // unit) - offsets[:-1], pieces)
    return replace(requests, ids=ids, offsets=offsets, unit=unit)


def _requests(arrival: Floats, prompt: Tokens, output: Tokens, rng: np.random.Generator, **loop: Any) -> Requests:
    n = len(arrival)
    return Requests(arrival, _tokens("prompt", prompt, n, rng), _tokens("output", output, n, rng), **loop)


def _tokens(name: str, tokens: Any, n: int, rng: np.random.Generator) -> Any:
    if isinstance(tokens, Lengths):
        return tokens.draw(rng, n)
    if hasattr(tokens, "__len__"):
        return tokens  # one for each, checked with the other columns
    return np.full(n, int(scalar("generate", name, tokens, minimum=0, maximum=MOST_TOKENS, whole=True)))


def _rng(seed: int, *stream: int) -> np.random.Generator:
    """Random bits; those of another stream are independent although the seed is the same."""
    return np.random.default_rng([int(scalar("generate", "seed", seed, minimum=0, maximum=2**63, whole=True)), *stream])


def _count(name: str, value: int) -> int:
    return int(scalar("generate", name, value, minimum=1, maximum=MOST_REQUESTS, whole=True))


def _rate(rate: float) -> float:
    return float(scalar("generate", "rate", rate, minimum=1 / MOST_SECONDS))


@dataclass(frozen=True)
class Preset:
    """A workload by its published statistics; prompt and output of a request are drawn apart."""

    source: str
    prompt: Lengths
    output: Lengths
    rate: float | None = None  # requests/s
    cv: float = 1
    per_family: float = 0  # requests whose prompts begin alike, on average; 0 for no such prefixes
    unit: int = UNIT


# Quantiles, means, rates and variation as published; the shortest and longest are counted in the traces, or else said.
PRESETS = {
    "azure-code": Preset(
        "Azure LLM inference trace 2023, code: Azure/AzurePublicDataset, Splitwise (ISCA 2024); CC-BY-4.0",
        Lengths.from_quantiles({0.5: 1469, 0.9: 5187, 0.99: 7436}, 3, 7437, 2048),
        Lengths.from_quantiles({0.5: 13, 0.9: 55, 0.99: 251}, 6, 1899, 27.9),
        rate=2.57,
        cv=13.2,
    ),
    "azure-conversation": Preset(
        "Azure LLM inference trace 2023, conversation: Azure/AzurePublicDataset, Splitwise (ISCA 2024); CC-BY-4.0",
        Lengths.from_quantiles({0.5: 1020, 0.9: 2734, 0.99: 4142}, 2, 14050, 1155),
        Lengths.from_quantiles({0.5: 129, 0.9: 424, 0.99: 601}, 7, 1000, 211),
        rate=5.53,
        cv=1.09,
    ),
    "mooncake-conversation": Preset(
        "Mooncake trace, conversation: kvcache-ai/Mooncake (FAST 2025); Apache-2.0. Its stamps come in steps of 3 s, so"
        " Poisson arrivals are assumed; families are sized to its prefix bound of 36.6 % of blocks",
        Lengths.from_quantiles({0.5: 6909, 0.9: 27367, 0.99: 85400}, 891, 126195, 12035),
        Lengths.from_quantiles({0.5: 350, 0.9: 597, 0.99: 1118}, 1, 2000, 343),
        rate=3.40,
        per_family=3.2,
        unit=512,
    ),
    "servegen-deepseek-r1": Preset(
        "ServeGen, deepseek-r1 on Alibaba Model Studio: alibaba/ServeGen; Apache-2.0. Its authors scaled the rate;"
        " assumed: Poisson arrivals, 1 to 65,536 tokens in and 1 to 32,768 out",
        Lengths.from_quantiles({0.5: 208, 0.9: 2092, 0.95: 6714, 0.99: 23423}, 1, 65536, 1268),
        Lengths.from_quantiles({0.5: 792, 0.9: 3432, 0.95: 5701, 0.99: 12607}, 1, 32768, 1527),
        rate=16,
    ),
    "sharegpt": Preset(
        "ShareGPT: prompts of AccelMark's sharegpt_standard_v1 (CC-BY-4.0), mean output of published runs of vLLM's"
        " benchmark; assumed: prompts of 4 to 1,024 tokens, as it cuts them, geometric outputs, Poisson arrivals",
        Lengths.from_quantiles({0.5: 199, 0.9: 457, 0.99: 578}, 4, 1024, 236),
        Lengths.geometric(201),
    ),
}


def preset(name: str, n: int, rate: float | None = None, seed: int = 0) -> Requests:
    """n requests of one of the `PRESETS`, at its rate or another."""
    if name not in PRESETS:
        raise ValueError(f"generate: preset={shown(name)} must be one of {', '.join(PRESETS)}")
    chosen = PRESETS[name]
    rate = chosen.rate if rate is None else rate
    if rate is None:
        raise ValueError(f"generate: rate=None must be given: {name} has none of its own")
    requests = gamma(rate, n, chosen.cv, chosen.prompt, chosen.output, seed)
    if not chosen.per_family:
        return requests
    families, longest = max(round(n / chosen.per_family), 1), int(requests.prompt.max())
    return shared_prefix(requests, families, longest, zipf=0, unit=chosen.unit, seed=seed)
