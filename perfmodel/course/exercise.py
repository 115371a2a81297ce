"""Checks for exercises: right, or a sentence that says where to look.

A hidden cell registers what the answer is, computed by the package. Student and shown solution call the same check.
A wrong answer never ends in a traceback, and no reply gives the answer away.
"""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from perfmodel.course.hints import as_number, suggestion, too_far
from perfmodel.format import fmt

if TYPE_CHECKING:
    from perfmodel.course.algebra import Mismatch


@dataclass(frozen=True)
class Reference:
    """The right answer of one exercise: a value, or an expression in `symbols`."""

    label: str
    value: float | None = None
    unit: str = ""
    rel: float = 0.01
    expression: Any = None
    symbols: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The reply to an answer."""

    ok: bool
    text: str

    def __repr__(self) -> str:
        return ("✓ " if self.ok else "✗ ") + self.text

    def _repr_html_(self) -> str:
        kind = "right" if self.ok else "wrong"
        return f'<p class="course-check course-check-{kind}" role="status">{escape(repr(self))}</p>'


REFERENCES: dict[str, Reference] = {}


def reference(
    label: str,
    *,
    value: Any = None,
    unit: str = "",
    rel: float = 0.01,
    function: Any = None,
    symbols: Iterable[Any] = (),
    hints: Mapping[Any, str] | None = None,
) -> None:
    """Register the right answer of an exercise, computed by the package.

    Parameters
    ----------
    label : str
        Label of the exercise in the chapter.
    value : number, optional
        The right value, in `unit`.
    unit : str
        Base unit in which the answer is expected, as in `fmt`; named in the replies.
    rel : float
        Relative error that still passes, at least 0 and below 0.5: half and twice the answer are wrong.
    function : callable or SymPy expression, optional
        The right formula; a function is called with `symbols` in their order.
    symbols : sequence of SymPy symbols
        What a student's function may take, under these names and in any order.
    hints : dict, optional
        Wrong answer over right one -> sentence. Keys are numbers or, for formulas, expressions such as ``H_q / H_kv``.

    Raises
    ------
    ValueError
        Naming the label, the argument and the rule.
    """
    offered = {str(symbol): symbol for symbol in symbols}
    if (value is None) == (function is None):
        raise ValueError(f"reference: {label} needs either a value or a function")
    if isinstance(rel, bool) or not isinstance(rel, numbers.Real) or not 0 <= rel < 0.5:
        raise ValueError(f"reference: rel={rel!r} of {label} is not a number of at least 0 and below 0.5")
    hints = hints or {}
    if right := [factor for factor in hints if factor == 0 or abs((as_number(factor) or 2) - 1) <= rel]:
        raise ValueError(f"reference: hints[{right[0]}] of {label}: nobody's answer is wrong by this factor")
    if value is not None:
        number = _number(value)
        if isinstance(number, str) or number == 0:
            raise ValueError(f"reference: value={value!r} of {label} is not a finite number other than 0")
        fmt(number, unit)  # refuses a unit that the reply could not be written in
        REFERENCES[label] = Reference(label, number, unit, rel, hints=hints)
        return
    if not offered:
        raise ValueError(f"reference: {label} has a function but no symbols")
    expression = function(*offered.values()) if callable(function) else function
    REFERENCES[label] = Reference(label, expression=expression, symbols=offered, hints=hints)


def check_value(label: str, answer: Any) -> Verdict:
    """Compare a number with the right value of an exercise.

    Returns
    -------
    Verdict
        ``.ok``, and a sentence: right, what the ratio of the two suggests, or what kind of thing the answer is.
    """
    expected = _registered(label)
    if expected.value is None:
        return Verdict(False, f"{label} asks for a formula: hand your function to check_formula.")
    number = _number(answer)
    if isinstance(number, str):
        return Verdict(False, number)
    ratio = number / expected.value
    if abs(ratio - 1) <= expected.rel:
        shown = fmt(int(number), expected.unit) if number.is_integer() else fmt(number, expected.unit, 4)
        return Verdict(True, f"Right: {shown}.")
    return Verdict(False, suggestion(ratio, expected.hints) or too_far(ratio, expected.unit))


def check_formula(label: str, function: Any) -> Verdict:
    """Compare a student's function with the right formula of an exercise, for all values at once.

    The function is called with SymPy symbols, one for each of its arguments, matched by name.
    """
    from perfmodel.course.algebra import Mismatch, compare

    expected = _registered(label)
    if expected.expression is None:
        return Verdict(False, f"{label} asks for a number: hand it to check_value.")
    offered = ", ".join(expected.symbols)
    if not callable(function):
        return Verdict(
            False, f"Hand over the function itself, of {offered}; this is of type {type(function).__name__}."
        )
    try:
        asked = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Verdict(
            False, f"Hand over a function of your own, of {offered}: Python does not say what this one takes."
        )
    if unknown := [name for name in asked if name not in expected.symbols]:
        return Verdict(False, f"Your function asks for {unknown[0]}; this exercise offers {offered}.")
    named = {name: expected.symbols[name] for name, kind in asked.items() if kind.kind is kind.KEYWORD_ONLY}
    try:
        found = function(*(expected.symbols[name] for name in asked if name not in named), **named)
    except (Exception, SystemExit) as error:
        return Verdict(False, _raised(error))
    if found is None:
        return Verdict(False, "Your function returned nothing: is the return missing?")
    try:
        letters = {
            str(letter) for letter in getattr(found, "free_symbols", ()) if letter not in expected.symbols.values()
        }
        if foreign := sorted(letters):
            return Verdict(False, f"Your formula has a {foreign[0]} of its own; use the arguments, of {offered}.")
        difference = compare(expected.expression, found)
    except Exception:  # whatever SymPy makes of it, it is no formula of these letters
        return Verdict(False, f"Your function did not return a finite formula, but {_shown(found)}.")
    if not isinstance(difference, Mismatch):
        return Verdict(True, f"Right, for all values of {', '.join(asked)}.")
    return Verdict(False, suggestion(difference.ratio, expected.hints) or _depends(difference))


def solved(verdict: Verdict) -> Verdict:
    """Pass a right answer on, and stop the build at a wrong one: for the solutions that the book shows."""
    if not verdict.ok:
        raise AssertionError(f"the shown solution is wrong: {verdict.text}")
    return verdict


def _registered(label: str) -> Reference:
    if label not in REFERENCES:
        known = ", ".join(REFERENCES) or "none yet: run the cells above first"
        raise ValueError(f"exercise label={label!r} is not registered; registered are {known}")
    return REFERENCES[label]


def _number(answer: Any) -> float | str:
    """The answer as a float, or a sentence on what it is instead."""
    if answer is None or answer is Ellipsis:
        return "No answer yet: put yours in the place of the dots."
    kind = type(answer).__name__
    if isinstance(answer, str | bytes | bytearray):
        return "That is text; a number is asked for, without quotes and without its unit."
    if kind in ("bool", "bool_", "BooleanTrue", "BooleanFalse"):
        return "That is a truth value; a number is asked for."
    if inspect.isclass(answer) or (callable(answer) and not hasattr(answer, "free_symbols")):
        return "That is a function; call it, and hand over the number."
    one = f"One number is asked for; this is of type {kind}."
    try:
        if free := getattr(answer, "free_symbols", None):
            return f"That still contains {', '.join(sorted(map(str, free)))}; put numbers in their place."
        if getattr(answer, "units", None) is not None:
            return one
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns when it drops an imaginary part or the brackets
            number = float(answer)
    except OverflowError:
        return "Far too large: beyond what a float can hold."
    except Exception:  # a foreign type may raise what it likes
        return one
    if math.isnan(number):
        return "NaN: somewhere on the way there is 0/0 or infinity minus infinity."
    return number if math.isfinite(number) else "Infinite: somewhere on the way something is divided by 0."


def _depends(difference: Mismatch) -> str:
    letters = ", ".join(sorted(map(str, difference.ratio.free_symbols)))
    if letters:
        return f"Not yet: look at how your formula depends on {letters}."
    return "Not yet: the letters may be right, but a factor or a term is not."


def _shown(value: Any) -> str:
    """A few words of what a student's function returned."""
    try:
        return repr(str(value)[:80])
    except Exception:
        return f"something of type {type(value).__name__}"


def _raised(error: BaseException) -> str:
    text = f"Your function raised {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if any(hint in str(error) for hint in ("truth value", "Cannot convert", "loop of ufunc")):
        text += ". It is called with symbols: use sp.Max, sp.Min, sp.Piecewise instead of max, min, if and NumPy."
    return text
