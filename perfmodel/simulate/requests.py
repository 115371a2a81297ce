"""What a simulated engine is asked to do: when requests arrive, how long they are, and which prefixes they share."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perfmodel.quantity import check_value, shown

MOST_SECONDS = 1e10  # beyond it a double no longer tells microseconds apart
MOST_TOKENS = 2**31 - 1  # of a request: sums over a billion of them stay exact in 64 bits
MOST_ID = 2**62

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Requests:
    """A workload: columns, one entry a request, in order of arrival. They cannot be changed afterwards.

    An id stands for its piece of a prompt and for all before it: two prompts agree on their first (j + 1) units exactly
    if their j-th ids are equal. The last id of a prompt may stand for a shorter piece. Where a prompt has fewer ids
    than pieces, the rest of it is like no other.

    Parameters
    ----------
    arrival : array of n
        Seconds, in order.
    prompt : array of n
        Prompt tokens, at least 1.
    output : array of n
        Output tokens; 0 means that the request ends with its prefill.
    ids, offsets : arrays, optional
        Request i's prompt is cut into pieces of `unit` tokens, named by `ids[offsets[i] : offsets[i + 1]]`.
    unit : int, optional
        Tokens of a piece; given with the ids.
    users : int, optional
        A closed loop: only the first `users` arrivals count. A later request arrives when one has ended, and its user
        has thought.
    think : float
        Seconds between the end of a request of a closed loop and the next of its user.

    Raises
    ------
    ValueError
        In one line that names the column and the first index at fault.
    """

    arrival: Floats
    prompt: Integers
    output: Integers
    ids: Integers | None = None
    offsets: Integers | None = None
    unit: int | None = None
    users: int | None = None
    think: float = 0.0

    def __post_init__(self) -> None:
        arrival = column("Requests", "arrival", self.arrival, 0, MOST_SECONDS, whole=False)
        prompt = column("Requests", "prompt", self.prompt, 1, MOST_TOKENS)
        output = column("Requests", "output", self.output, 0, MOST_TOKENS)
        for name, values in {"prompt": prompt, "output": output}.items():
            if len(values) != len(arrival):
                raise ValueError(f"Requests: {name} has {len(values)} values, arrival {len(arrival)}; must be as many")
        if not len(arrival):
            raise ValueError("Requests: arrival=[] must hold a request")
        _check_order("arrival", arrival)
        self._set(arrival=arrival, prompt=prompt, output=output)
        self._check_ids()
        if self.users is not None:
            users = scalar("Requests", "users", self.users, minimum=1, maximum=len(arrival), whole=True)
            self._set(users=int(users))
        think = scalar("Requests", "think", self.think, minimum=0, maximum=MOST_SECONDS)
        if think and self.users is None:
            raise ValueError(f"Requests: think={think} must be 0 without users: nobody waits for an end")
        self._set(think=float(think))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_ids(self) -> None:
        given = [name for name in ("ids", "offsets", "unit") if getattr(self, name) is not None]
        if not given:
            return
        if len(given) < 3:
            raise ValueError(f"Requests: {given[0]} must be given with all of ids, offsets and unit")
        unit = int(scalar("Requests", "unit", self.unit, minimum=1, maximum=MOST_TOKENS, whole=True))
        ids = column("Requests", "ids", self.ids, 0, MOST_ID)
        offsets = column("Requests", "offsets", self.offsets, 0, len(ids))
        if len(offsets) != len(self) + 1:
            raise ValueError(f"Requests: offsets has {len(offsets)} values for {len(self)} requests; must be one more")
        for index, end in ((0, 0), (len(self), len(ids))):
            if offsets[index] != end:
                raise ValueError(f"Requests: offsets[{index}]={offsets[index]} must be {end}")
        _check_order("offsets", offsets)
        pieces, most = np.diff(offsets), -(-self.prompt // unit)
        if (bad := np.flatnonzero(pieces > most)).size:
            i = bad[0]
            raise ValueError(f"Requests: offsets[{i + 1}]={offsets[i + 1]} must give request {i} at most {most[i]} ids")
        self._set(ids=ids, offsets=offsets, unit=unit)

    def __len__(self) -> int:
        return len(self.arrival)

    def __getitem__(self, part: slice) -> Self:
        """Neighbouring requests, such as the first hundred; they arrive when they did."""
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise ValueError(f"Requests: index={part} must be a slice of neighbours")
        start, stop, _ = part.indices(len(self))
        part = slice(start, max(start, stop))
        users = None if self.users is None else min(self.users, part.stop - part.start)
        found: dict[str, Any] = {
            "arrival": self.arrival[part],
            "prompt": self.prompt[part],
            "output": self.output[part],
        }
        if self.ids is None or self.offsets is None:
            return replace(self, users=users, **found)
        offsets = self.offsets[part.start : part.stop + 1]
        ids = self.ids[offsets[0] : offsets[-1]]
        return replace(self, users=users, ids=ids, offsets=offsets - offsets[0], **found)

    @property
    def rate(self) -> float:
        """Requests a second from the first arrival to the last, the first not counted; infinite if all come at once."""
        span = float(self.arrival[-1] - self.arrival[0])
        return (len(self) - 1) / span if span else np.inf

    def scaled(self, rate: float) -> Self:
        """The same requests at another rate: all times between arrivals are stretched alike.

        Parameters
        ----------
        rate : float
            Requests a second.
        """
        scalar("Requests", "rate", rate, minimum=1 / MOST_SECONDS)
        if self.users is not None:
            raise ValueError(f"Requests: rate={rate} cannot be set in a closed loop of users={self.users}")
        if np.isinf(self.rate):
            raise ValueError(f"Requests: rate={rate} cannot be met by requests that all arrive at once")
        return replace(self, arrival=self.arrival * (self.rate / rate))


def scalar(owner: str, name: str, value: Any, **rules: Any) -> Any:
    """`value`, if it is one number that `check_value` lets pass."""
    check_value(owner, name, value, **rules)
    if np.ndim(value):
        raise ValueError(f"{owner}: {name}={shown(value)} must be one number")
    return value


def column(owner: str, name: str, values: Any, least: float, most: float, *, whole: bool = True) -> Any:
    """`values` as an array that cannot be written: 64-bit integers if `whole`, else doubles, from least to most."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.empty(0, dtype=object)
    masked = isinstance(values, np.ndarray) and hasattr(values, "mask")
    if array.ndim != 1 or array.dtype.kind not in "iuf" or masked:
        raise ValueError(f"{owner}: {name}={shown(values)} must be a row of numbers")
    bad = ~((array >= least) & (array <= most))  # in this form it catches what is not a number
    if whole and array.dtype.kind == "f":
        bad |= array != np.floor(array)
    if bad.any():
        i = int(np.argmax(bad))
        kind = "whole number" if whole else "number"
        raise ValueError(f"{owner}: {name}[{i}]={array[i]} must be a {kind} from {least:g} to {most:.10g}")
    dtype = np.dtype(np.int64 if whole else np.float64)
    if array.dtype != dtype or array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, dtype=dtype, order="C")  # a copy, which nobody else can write to
        array.flags.writeable = False
    return array


def _check_order(name: str, values: NDArray[Any]) -> None:
    if (falls := np.flatnonzero(values[1:] < values[:-1])).size:
        i = falls[0]
        raise ValueError(f"Requests: {name}[{i + 1}]={values[i + 1]} must be at least {name}[{i}]={values[i]}")


@dataclass(frozen=True)
class PrefixHits:
    """What a prefix cache finds of a workload: pieces and tokens, of all that were asked for."""

    hit_pieces: int
    pieces: int
    hit_tokens: int
    prompt_tokens: int

    @property
    def piece_rate(self) -> float:
        """Share of the pieces that hit; 0 if no prompt holds a whole one."""
        return self.hit_pieces / max(self.pieces, 1)

    @property
    def token_rate(self) -> float:
        """Share of the prompt tokens that hit."""
        return self.hit_tokens / self.prompt_tokens


def prefix_bound(requests: Requests) -> dict[str, PrefixHits]:
    """The most that a prefix cache can find: it holds everything, forgets nothing, and serves first come, first served.

    A piece hits while it and every earlier piece of its prompt occurred in an earlier request. Only prompts are
    looked at: what an engine caches of its answers comes on top.

    Parameters
    ----------
    requests : Requests
        With ids.

    Returns
    -------
    dict
        ``"bound"`` counts all pieces, the short last one of a prompt too, as the Mooncake traces are counted. ``"V1"``
        counts as vLLM does: whole pieces only, and the last token of a prompt is always computed, so that at most
        floor((prompt - 1) / unit) pieces hit.
    """
    if requests.ids is None or requests.offsets is None or requests.unit is None:
        raise ValueError("prefix_bound: ids=None must be given: without them no prefixes are known")
    prompt, unit, named = requests.prompt, requests.unit, np.diff(requests.offsets)
    tokens = int(prompt.sum())

    hits = _leading_hits(requests.ids, named)
    bound = PrefixHits(
        int(hits.sum()), int((-(-prompt // unit)).sum()), int(np.minimum(hits * unit, prompt).sum()), tokens
    )

    place = np.arange(len(requests.ids)) - np.repeat(requests.offsets[:-1], named)
    full = requests.ids[place < np.repeat(prompt // unit, named)]
    hits = np.minimum(_leading_hits(full, np.minimum(named, prompt // unit)), (prompt - 1) // unit)
    v1 = PrefixHits(int(hits.sum()), int((prompt // unit).sum()), int(hits.sum()) * unit, tokens)
    return {"bound": bound, "V1": v1}


def _leading_hits(ids: Integers, pieces: Integers) -> Integers:
    """How many of each request's first ids occurred in earlier requests."""
    owner = np.repeat(np.arange(len(pieces)), pieces)
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    new = np.flatnonzero(owner[first][which] == owner)
    ends = np.cumsum(pieces)
    stops = np.append(new, len(ids))[np.searchsorted(new, ends - pieces)]
    hits: Integers = np.minimum(stops, ends) - (ends - pieces)
    return hits
