"""``assert_same``: a chapter's proof that the formula it derived is the formula the package computes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import sympy as sp

from perfmodel.course.sampling import Point, Ranges, borders, draw, steps, usual, value_at

BRANCHING = (sp.Max, sp.Min, sp.Piecewise)
MOST_POINTS = 4000


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
            ratio = f"1 + {_short(ratio - 1, 3)}" if near else _short(ratio, 9)
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
    is slightly shifted can, if it depends on two symbols.) With a floor, a ceiling or a remainder, points lie on their
    jumps too.

    Parameters
    ----------
    derived, code : SymPy expression or number
        What the chapter derived, and what the package returned for the same symbols.
    assume : dict, optional
        What the reader grants, replaced on both sides before comparing, such as ``{d: H_q * D}``.
    ranges : dict, optional
        Symbol or its name -> (low, high), where the usual range does not do.
    points : int
        Random points that must agree, at least 1; more are drawn while a branch has not been entered.
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
    if isinstance(points, bool) or not isinstance(points, int) or points < 1:
        raise ValueError(f"assert_same: points={points!r} is not a whole number of at least 1")
    derived, code = _expression(derived, "derived"), _expression(code, "code")
    if derived == code:
        return Proof("term by term")
    symbols = _symbols(derived, code)
    inexact = derived.has(sp.Float) or code.has(sp.Float)
    if not inexact and _simplifies(derived - code):
        return Proof("by simplification")
    if inexact and steps(derived, code):  # 0.1 x must jump where x/10 does
        derived, code = (sp.nsimplify(side, rational=True) for side in (derived, code))
    derived, code = unnested(derived, {}), unnested(code, {})
    sides, jumps = (derived, code), steps(derived, code)
    nodes = {node for side in (derived, code) for node in sp.preorder_traversal(side) if isinstance(node, BRANCHING)}
    entered = {(node, i): 0 for node in nodes for i in range(len(node.args))}
    met: set[Any] = set()  # of the jumps
    for tried, point in enumerate(draw(usual(sides, ranges or {}), jumps, borders(sides, ranges or {}), seed), 1):
        (a, active_a), (b, active_b) = evaluate(derived, point), evaluate(code, point)
        if not _equal(a, b, inexact):
            return _mismatch(derived, code, a, b, point)
        if not symbols:
            return Proof("number for number")
        met.update(jump for jump in jumps if jump.xreplace(point).is_integer)
        for branch in active_a | active_b:
            entered[branch] += 1
        if tried >= max(points, 6 * len(jumps)) and min(entered.values(), default=2) >= 2:
            break
        if tried >= MOST_POINTS:
            node, i = min(entered, key=lambda branch: entered[branch])
            return Proof(f"at {tried} random points", f"branch {node.args[i]} of {node}")
    kinds = " and ".join(sorted({type(node).__name__ for node in nodes}))
    branches = f", every branch of {kinds} entered" if nodes else ""
    missed = [str(jump) for jump in jumps if jump not in met]
    return Proof(f"at {tried} random points{branches}" + (f", none where {missed[0]} is whole" if missed else ""))


def evaluate(expr: Any, point: Point) -> tuple[Any, set[tuple[Any, int]]]:
    """Value of an expression at a point, and the set of branches (node, position) that were active on the way to it.

    A branch inside another that is not active is not active either; of two equal arguments of Max neither is.
    """
    if not expr.has(*BRANCHING):
        return value_at(expr, point), set()
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
        inside = set().union(*(parts[i][1] for i in largest))
        return value, inside | ({(expr, largest[0])} if len(largest) == 1 else set())
    return value, set().union(*(active for _, active in parts))


def unnested(expr: Any, known: Mapping[Any, Any]) -> Any:
    """The same expression, where a condition that an outer Piecewise has settled is not asked again inside it."""
    if not expr.has(sp.Piecewise):
        return expr
    if not isinstance(expr, sp.Piecewise):
        parts = [unnested(part, known) for part in expr.args]
        return expr if all(map(operator.is_, parts, expr.args)) else expr.func(*parts)
    pairs = []
    for value, condition in expr.args:
        asked = condition.xreplace(known)
        pairs.append((unnested(value, {**known, condition: sp.true}), asked))
        known = {**known, condition: sp.false}
    return sp.Piecewise(*pairs)


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


def _equal(a: Any, b: Any, inexact: bool) -> bool:
    """Exact for rationals, to forty digits for roots and logarithms, to twelve where a side holds floats."""
    if a.is_Rational and b.is_Rational:
        return bool(a == b)
    x, y = a.evalf(60), b.evalf(60)
    return bool(abs(x - y) <= sp.Rational(10) ** (-12 if inexact else -40) * max(abs(x), abs(y)))


def _short(number: Any, digits: int) -> str:
    """A number for a message, be it complex or beyond the floats."""
    if number.is_extended_real and (number in (0, sp.oo) or 1e-300 < abs(number) < 1e300):
        return f"{float(number):.{digits}g}"
    return str(sp.N(number, digits))


def _text(point: Point) -> str:
    return ", ".join(f"{symbol} = {float(value):g}" for symbol, value in point.items())


def _mismatch(derived: Any, code: Any, a: Any, b: Any, point: Point) -> Mismatch:
    """What is wrong, in a form that suggests why: a ratio of H_q/H_kv says more than two long formulas."""
    ratio = b / a if a != 0 else sp.oo
    if derived != 0 and not (derived.has(*BRANCHING) or code.has(*BRANCHING)):
        short = sp.simplify(code / derived)
        ratio = short if short.count_ops() <= 12 else ratio
    values = f"derived {_short(a, 6)}, perfmodel {_short(b, 6)}"
    return Mismatch(ratio, f"at {_text(point)}: {values}" if point else values)
