"""Checks for exercises: right, or a sentence that says where to look.

A hidden cell registers what the answer is, computed by the package. Student and shown solution call the same check.
A wrong answer never ends in a traceback, and no reply gives the answer away.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from perfmodel.format import fmt

if TYPE_CHECKING:
    from perfmodel.course.algebra import Mismatch

CLOSE = 5e-3  # a factor is recognised within half a percent: 1 GiB is 7.4 % from 1 GB
# What a wrong answer over the right one suggests.
FACTORS = {
    2: "Twice the answer: is something counted double, or does this case have no keys and values, no multiply-add?",
    1 / 2: "Half the answer: keys and values are two, and so are the FLOPs of a multiply-add.",
    4: "Four times the answer: two factors of 2 too many.",
    1 / 4: "A quarter of the answer: two factors of 2 are missing.",
    8: "Eight times the answer: bits where bytes are asked for?",
    1 / 8: "An eighth of the answer: bytes where bits are asked for?",
    100: "A hundred times the answer: per cent where a fraction is asked for?",
    1 / 100: "A hundredth of the answer: a fraction where per cent is asked for?",
    1e3: "A thousand times the answer: look at the prefix of the unit (milli, kilo).",
    1e-3: "A thousandth of the answer: look at the prefix of the unit (milli, kilo).",
    1e6: "A million times the answer: look at the prefixes of the units.",
    1e-6: "A millionth of the answer: look at the prefixes of the units.",
    1e9: "A thousand million times the answer: look at the prefixes of the units (giga).",
    1e-9: "A thousand millionth of the answer: look at the prefixes of the units (giga).",
    2**30 / 1e9: "7.4 % too much: GiB are counted where GB are meant, or the reverse.",
    1e9 / 2**30: "6.9 % too little: GB are counted where GiB are meant, or the reverse.",
    -1: "The size is right, the sign is not.",
}


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
        Unit in which the answer is expected; named in the replies.
    rel : float
        Relative error that still passes.
    function : callable or SymPy expression, optional
        The right formula; a function is called with `symbols` in their order.
    symbols : sequence of SymPy symbols
        What a student's function may take, under these names and in any order.
    hints : dict, optional
        Wrong answer over right one -> sentence. Keys are numbers or, for formulas, expressions such as ``H_q / H_kv``.
    """
    offered = {str(symbol): symbol for symbol in symbols}
    if (value is None) == (function is None):
        raise ValueError(f"reference: {label} needs either a value or a function")
    if value is not None:
        value = float(value)
        if not math.isfinite(value) or value == 0:
            raise ValueError(f"reference: value={value} of {label} is not a finite number other than 0")
        REFERENCES[label] = Reference(label, value, unit, rel, hints=hints or {})
        return
    if not offered:
        raise ValueError(f"reference: {label} has a function but no symbols")
    expression = function(*offered.values()) if callable(function) else function
    REFERENCES[label] = Reference(label, expression=expression, symbols=offered, hints=hints or {})


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
    return Verdict(False, _suggestion(ratio, expected) or _too_far(ratio, expected.unit))


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
    wanted = list(inspect.signature(function).parameters)
    if unknown := [name for name in wanted if name not in expected.symbols]:
        return Verdict(False, f"Your function asks for {unknown[0]}; this exercise offers {offered}.")
    try:
        found = function(*(expected.symbols[name] for name in wanted))
    except Exception as error:
        return Verdict(False, _raised(error))
    if found is None:
        return Verdict(False, "Your function returned nothing: is the return missing?")
    try:
        difference = compare(expected.expression, found)
    except (TypeError, ValueError):
        return Verdict(False, f"Your function did not return a finite formula, but {str(found)[:80]!r}.")
    if not isinstance(difference, Mismatch):
        return Verdict(True, f"Right, for all values of {', '.join(wanted)}.")
    return Verdict(False, _suggestion(difference.ratio, expected) or _depends(difference))


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
    if isinstance(answer, str):
        return "That is text; a number is asked for, without quotes and without its unit."
    if isinstance(answer, bool):
        return "That is a truth value; a number is asked for."
    if callable(answer) and not hasattr(answer, "free_symbols"):
        return "That is a function; call it, and hand over the number."
    if free := getattr(answer, "free_symbols", None):
        return f"That still contains {', '.join(sorted(map(str, free)))}; put numbers in their place."
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return f"One number is asked for; this is of type {type(answer).__name__}."
    if math.isnan(number):
        return "NaN: somewhere on the way there is 0/0 or infinity minus infinity."
    return number if math.isfinite(number) else "Infinite: somewhere on the way something is divided by 0."


def _suggestion(ratio: Any, expected: Reference) -> str | None:
    """The sentence of the exercise, or else of the general list, for this ratio of answer to reference."""
    for factor, sentence in [*expected.hints.items(), *FACTORS.items()]:
        if _is_number(ratio) and _is_number(factor):
            if abs(float(ratio) / float(factor) - 1) <= CLOSE:
                return sentence
        elif ratio == factor:
            return sentence
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) or bool(getattr(value, "is_number", False))


def _too_far(ratio: float, unit: str) -> str:
    """How far off in words: the exact factor would be the answer."""
    asked = f" The answer is asked in {unit}." if unit else ""
    if ratio <= 0:
        return ("The sign is wrong." if ratio else "Zero is not it.") + asked
    side, factor = ("large", ratio) if ratio > 1 else ("small", 1 / ratio)
    if factor < 2:
        return f"Close, but too {side}.{asked}"
    return f"Too {side}, by {'less' if factor < 10 else 'more'} than ten times.{asked}"


def _depends(difference: Mismatch) -> str:
    letters = ", ".join(sorted(map(str, difference.ratio.free_symbols)))
    if letters:
        return f"Not yet: look at how your formula depends on {letters}."
    return "Not yet: the letters may be right, but a factor or a term is not."


def _raised(error: Exception) -> str:
    text = f"Your function raised {type(error).__name__}: {error}"
    if any(hint in str(error) for hint in ("truth value", "Cannot convert", "loop of ufunc")):
        text += ". It is called with symbols: use sp.Max, sp.Min, sp.Piecewise instead of max, min, if and NumPy."
    return text
