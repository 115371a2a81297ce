"""Where two formulas are compared: random points in realistic ranges, and points where a floor or ceiling jumps."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy as sp
from sympy.core.relational import Relational

from perfmodel.letters import notation

# Where symbols are tried: by letter, or else by the unit that the notation gives the letter, or else as a count.
# Wide enough to enter every regime of a real machine.
BY_LETTER = {
    "L": (1, 200),
    "D": (16, 512),
    "d": (64, 2e4),
    "t": (1, 64),
    "q": (1, 8),
    "X": (8, 512),  # at least q, or the chance that an expert sleeps is negative
    "b_w": (0.5, 4),
    "b_a": (0.5, 4),
    "b_kv": (0.5, 4),
    "kappa": (1e3, 1e7),
    "N": (1e8, 1e12),
    "N_act": (1e8, 1e12),
    "N_mm": (1e8, 1e12),
    "u": (0.1, 1),
    "eta_F": (0.1, 1),
    "eta_beta": (0.1, 1),
}
BY_UNIT = {"FLOP/s": (1e12, 1e16), "byte/s": (1e10, 1e14), "byte": (1e8, 1e12), "s": (1e-7, 1e-2), "token": (1, 1e6)}
COUNT = (1, 1e4)
EXPONENT = 10**5  # beyond it a power is not written out: two to the number of parameters would fill the memory
Ranges = Mapping[Any, tuple[float, float]] | None  # symbol or its name -> (low, high)
Point = dict[Any, Any]  # symbol -> exact number


def usual(sides: Sequence[Any], given: Mapping[Any, tuple[float, float]]) -> dict[Any, tuple[float, float]]:
    """Symbol -> (low, high); the given ones win.

    A letter in an exponent counts from 1: beside two to a large number, one more could not be seen.
    """
    symbols = sorted(set().union(*(side.free_symbols for side in sides)), key=str)
    raised = {letter.name for side in sides for power in side.atoms(sp.Pow) for letter in power.exp.free_symbols}
    given = {str(symbol): limits for symbol, limits in given.items()}
    if unknown := given.keys() - {symbol.name for symbol in symbols}:
        raise ValueError(f"assert_same: ranges names {min(unknown)}, which occurs on neither side")
    if wrong := [name for name, (low, high) in given.items() if not 0 < low < high < math.inf]:
        raise ValueError(f"assert_same: ranges[{wrong[0]}]={given[wrong[0]]} is not 0 < low < high")
    units = {letter.symbol: letter.unit for letter in notation()}
    known = {name: BY_UNIT.get(unit, COUNT) for name, unit in units.items()} | BY_LETTER
    known |= {name: COUNT for name in raised if known.get(name, COUNT)[1] > COUNT[1]} | given
    return {symbol: known.get(symbol.name, COUNT) for symbol in symbols}


def steps(*sides: Any) -> list[Any]:
    """The arguments of floors, ceilings and remainders: where one is whole, the function may jump."""
    rounded = {node.args[0] for side in sides for node in side.atoms(sp.floor, sp.ceiling, sp.frac)}
    divided = {node.args[0] / node.args[1] for side in sides for node in side.atoms(sp.Mod)}
    return sorted((argument for argument in rounded | divided if argument.free_symbols), key=str)


def borders(sides: Sequence[Any], given: Mapping[Any, tuple[float, float]]) -> list[tuple[Any, Any]]:
    """(symbol, number) of each condition that compares the two, as "more than one device": a case of its own.

    The usual range of the symbol may leave the number out, a given one rules it out.
    """
    limits = {str(symbol): ends for symbol, ends in given.items()}
    found = set()
    for condition in set().union(*(node.atoms(Relational) for side in sides for node in side.atoms(sp.Piecewise))):
        for symbol, number in (condition.args, condition.args[::-1]):
            low, high = limits.get(str(symbol), (0, math.inf))
            if symbol.is_Symbol and number.is_Rational and number.is_positive and low <= number <= high:
                found.add((symbol, number))
    return sorted(found, key=str)


def draw(
    within: Mapping[Any, tuple[float, float]], jumps: list[Any], edges: list[tuple[Any, Any]], seed: int
) -> Iterator[Point]:
    """Random points, log-uniform, without end; every fourth on an edge, if there are any.

    Where something jumps, a third of the points has whole numbers only, and a third lies on a jump: ``ceiling(x)``
    and ``floor(x) + 1`` differ nowhere else.
    """
    rng = random.Random(seed)
    for count in itertools.count():
        whole, point = jumps and count % 3 == 1, {}
        for symbol, (low, high) in within.items():
            value = math.exp(rng.uniform(math.log(low), math.log(high)))
            nearest = sp.Integer(max(1, round(value)))
            if symbol.is_integer or (whole and low <= nearest <= high):
                point[symbol] = nearest
            else:
                point[symbol] = sp.Rational(f"{value:.4g}")  # short enough to print
        if edges and count % 4 == 3:
            point |= [edges[count // 4 % len(edges)]]
        yield _onto(point, jumps[count // 3 % len(jumps)], within, rng) if jumps and count % 3 == 2 else point


def _onto(point: Point, argument: Any, within: Mapping[Any, tuple[float, float]], rng: random.Random) -> Point:
    """The point moved along one letter to where the argument is whole; as it was if no letter leads there.

    The argument must be linear in the letter or in its reciprocal, as nearly every count is.
    """
    letters = sorted(argument.free_symbols, key=str)
    for letter, power in itertools.product(rng.sample(letters, len(letters)), (1, -1)):
        start = point[letter] ** power
        at, twice, thrice = (argument.xreplace(point | {letter: (k * start) ** power}) for k in (1, 2, 3))
        slope = twice - at
        if not (at.is_Rational and slope.is_Rational) or slope == 0 or thrice - twice != slope:
            continue
        moved = start * (1 + (max(1, sp.ceiling(at)) - at) / slope)
        low, high = within[letter]
        if moved > 0 and low <= moved**power <= high and ((moved**power).is_integer or not letter.is_integer):
            return point | {letter: moved**power}
    return point


def value_at(expr: Any, point: Point) -> Any:
    """The exact value of an expression without branches, or sixty digits where it would be too long to write out."""
    powers = (power for power in expr.atoms(sp.Pow) if power.exp.free_symbols)
    if any(bool(abs(power.exp.xreplace(point)) > EXPONENT) for power in powers):
        point = {symbol: sp.Float(value, 60) for symbol, value in point.items()}
    return expr.xreplace(point)
