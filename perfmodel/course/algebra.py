"""``assert_same``: a chapter's proof that the formula it derived is the formula the package computes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import sympy as sp

from perfmodel.letters import notation

BRANCHING = (sp.Max, sp.Min, sp.Piecewise)
MOST_POINTS = 4000
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
Ranges = Mapping[Any, tuple[float, float]] | None  # symbol or its name -> (low, high)
Point = dict[Any, Any]  # symbol -> exact number


@dataclass(frozen=True)
class Proof:
    """How two expressions were shown to be the same; a notebook displays it as the chapter's proof line."""

    method: str
    never_entered: str = ""

    def __repr__(self) -> str:
        return f"✓ derived = perfmodel, {self.method}"

    def _repr_html_(self) -> str:
        return f'<p class="course-proof">{escape(repr(self))}</p>'


@dataclass(frozen=True)
class Mismatch:
    """Two expressions that differ: the second over the first, in symbols if that is short, and their values."""

    ratio: sp.Expr
    where: str

    def __repr__(self) -> str:
        ratio = self.ratio
        if not ratio.free_symbols and not (ratio.is_Rational and max(abs(ratio.p), ratio.q) < 1000):
            near = ratio != sp.oo and abs(ratio - 1) < 1e-6
            ratio = f"1 + {float(ratio - 1):.3g}" if near else f"{float(ratio):.9g}"
        return f"perfmodel / derived = {ratio}; {self.where}"


def assert_same(
    derived: Any,
    code: Any,
    *,
    assume: Mapping[Any, Any] | None = None,
    ranges: Ranges = None,
    points: int = 40,
    seed: int = 0,
) -> Proof:
    """Assert that a derived expression and the package's own are the same for all positive values.

    Structure is compared first, then ``simplify`` is asked. It misses many identities of Max and Min, so what is
    left is evaluated exactly at random points until each branch of every Max, Min and Piecewise, on either side,
    was the active one at least twice: a wrong branch cannot hide. (A border between two branches of a Piecewise that
    is slightly shifted can.)

    Parameters
    ----------
    derived, code : SymPy expression or number
        What the chapter derived, and what the package returned for the same symbols.
    assume : dict, optional
        What the reader grants, replaced on both sides before comparing, such as ``{d: H_q * D}``.
    ranges : dict, optional
        Symbol or its name -> (low, high), where the usual range does not do.
    points : int
        Random points that must agree; more are drawn while a branch has not been entered.
    seed : int
        Of the random points.

    Returns
    -------
    Proof

    Raises
    ------
    AssertionError
        If they differ: names the ratio and one point. Also if a branch was never entered.
    """
    given = ""
    if assume:
        derived, code = sp.sympify(derived).subs(assume), sp.sympify(code).subs(assume)
        given = ", given " + ", ".join(f"{letter} = {value}" for letter, value in assume.items())
    found = compare(derived, code, ranges=ranges, points=points, seed=seed)
    if isinstance(found, Mismatch):
        raise AssertionError(repr(found))
    if found.never_entered:
        raise AssertionError(f"not entered twice at {MOST_POINTS} points, set ranges: {found.never_entered}")
    return replace(found, method=found.method + given)


def compare(derived: Any, code: Any, *, ranges: Ranges = None, points: int = 40, seed: int = 0) -> Proof | Mismatch:
    """The comparison behind `assert_same`, for those who want the difference rather than an error."""
    derived, code = _expression(derived, "derived"), _expression(code, "code")
    if derived == code:
        return Proof("term by term")
    symbols = _symbols(derived, code)
    inexact = derived.has(sp.Float) or code.has(sp.Float)
    if not inexact and _simplifies(derived - code):
        return Proof("by simplification")
    within = _ranges(symbols, ranges or {})
    nodes = {node for side in (derived, code) for node in sp.preorder_traversal(side) if isinstance(node, BRANCHING)}
    entered = {(node, i): 0 for node in nodes for i in range(len(node.args))}
    kinds = " and ".join(sorted({type(node).__name__ for node in nodes}))
    rng, tried = random.Random(seed), 0
    while tried < points or min(entered.values(), default=2) < 2:
        if tried >= MOST_POINTS:
            node, i = min(entered, key=lambda branch: entered[branch])
            return Proof(f"at {tried} random points", f"branch {node.args[i]} of {node}")
        point = _point(within, rng)
        (a, active_a), (b, active_b) = evaluate(derived, point), evaluate(code, point)
        if not _equal(a, b, inexact):
            return _mismatch(derived, code, a, b, point)
        for branch in active_a | active_b:
            entered[branch] += 1
        tried += 1
        if not symbols:
            return Proof("number for number")
    return Proof(f"at {tried} random points" + (f", every branch of {kinds} entered" if nodes else ""))


def evaluate(expr: Any, point: Point) -> tuple[Any, set[tuple[Any, int]]]:
    """Value of an expression at a point, and the set of branches (node, position) that were active on the way to it.

    A branch inside another that is not active is not active either; of two equal arguments of Max neither is.
    """
    if not expr.has(*BRANCHING):
        return expr.xreplace(point), set()
    if isinstance(expr, sp.Piecewise):
        asked = set()
        for i, (value, condition) in enumerate(expr.args):
            holds, active = evaluate(condition, point)
            asked |= active
            if holds == sp.true:
                number, active = evaluate(value, point)
                return number, active | asked | {(expr, i)}
        raise ValueError(f"assert_same: no branch of {expr} holds at {_text(point)}")
    parts = [evaluate(arg, point) for arg in expr.args]
    value = expr.func(*(number for number, _ in parts))
    if isinstance(expr, sp.Max | sp.Min):
        largest = [i for i, (number, _) in enumerate(parts) if number == value]
        return value, parts[largest[0]][1] | {(expr, largest[0])} if len(largest) == 1 else set()
    return value, set().union(*(active for _, active in parts))


def _expression(value: Any, side: str) -> Any:
    try:
        expr = sp.sympify(value, strict=True)
    except sp.SympifyError:
        expr = None
    if not isinstance(expr, sp.Expr):
        kind = type(value).__name__
        raise TypeError(f"assert_same: {side} is of type {kind}, not an expression (of an equation, pass one side)")
    if expr.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        raise ValueError(f"assert_same: {side} = {expr} is not finite")
    return expr


def _symbols(derived: Any, code: Any) -> list[Any]:
    symbols = sorted(derived.free_symbols | code.free_symbols, key=str)
    for one, other in itertools.pairwise(symbols):
        if one.name == other.name:
            raise ValueError(f"assert_same: two symbols are called {one}, with different assumptions")
    return symbols


def _simplifies(difference: Any) -> bool:
    """Whether SymPy sees by itself that it is zero. Of large branching expressions it does not, and takes minutes."""
    if difference.has(*BRANCHING) and difference.count_ops() > 60:
        return False
    return bool(sp.simplify(difference) == 0)


def _ranges(symbols: list[Any], given: Mapping[Any, tuple[float, float]]) -> dict[Any, tuple[float, float]]:
    """Symbol -> (low, high); the given ones win."""
    given = {str(symbol): limits for symbol, limits in given.items()}
    if unknown := given.keys() - {symbol.name for symbol in symbols}:
        raise ValueError(f"assert_same: ranges names {min(unknown)}, which occurs on neither side")
    if wrong := [name for name, (low, high) in given.items() if not 0 < low < high]:
        raise ValueError(f"assert_same: ranges[{wrong[0]}]={given[wrong[0]]} is not 0 < low < high")
    units = {letter.symbol: letter.unit for letter in notation()}
    known = {name: BY_UNIT.get(unit, COUNT) for name, unit in units.items()} | BY_LETTER | given
    return {symbol: known.get(symbol.name, COUNT) for symbol in symbols}


def _point(within: Mapping[Any, tuple[float, float]], rng: random.Random) -> Point:
    """A random point, log-uniform, of rationals short enough to print."""
    point = {}
    for symbol, (low, high) in within.items():
        value = math.exp(rng.uniform(math.log(low), math.log(high)))
        point[symbol] = sp.Integer(max(1, round(value))) if symbol.is_integer else sp.Rational(f"{value:.4g}")
    return point


def _equal(a: Any, b: Any, inexact: bool) -> bool:
    """Exact for rationals, to forty digits for roots and logarithms, to twelve where a side holds floats."""
    if a.is_Rational and b.is_Rational:
        return bool(a == b)
    x, y = a.evalf(60), b.evalf(60)
    return bool(abs(x - y) <= sp.Rational(10) ** (-12 if inexact else -40) * max(abs(x), abs(y)))


def _text(point: Point) -> str:
    return ", ".join(f"{symbol} = {float(value):g}" for symbol, value in point.items())


def _mismatch(derived: Any, code: Any, a: Any, b: Any, point: Point) -> Mismatch:
    """What is wrong, in a form that suggests why: a ratio of H_q/H_kv says more than two long formulas."""
    ratio = b / a if a != 0 else sp.oo
    if derived != 0 and not (derived.has(*BRANCHING) or code.has(*BRANCHING)):
        short = sp.simplify(code / derived)
        ratio = short if short.count_ops() <= 12 else ratio
    values = f"derived {float(a):.6g}, perfmodel {float(b):.6g}"
    return Mismatch(ratio, f"at {_text(point)}: {values}" if point else values)
