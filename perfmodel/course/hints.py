"""What a wrong answer suggests: a sentence for the ratio of the answer to the right one, which it never gives away."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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


def suggestion(ratio: Any, hints: Mapping[Any, str]) -> str | None:
    """The sentence of the exercise, or else of the general list, for this ratio of answer to reference."""
    size = as_number(ratio)
    for factor, sentence in [*hints.items(), *FACTORS.items()]:
        if ratio == factor or (size and (known := as_number(factor)) and abs(size / known - 1) <= CLOSE):
            return sentence
    return None


def as_number(value: Any) -> float | None:
    """A number, be it of SymPy, as a float; None for formulas, complex numbers and what is beyond the floats."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def too_far(ratio: float, unit: str) -> str:
    """How far off in words: the exact factor would be the answer."""
    asked = f" The answer is asked in {unit}." if unit else ""
    if ratio <= 0:
        return ("The sign is wrong." if ratio else "Zero is not it.") + asked
    side, factor = ("large", ratio) if ratio > 1 else ("small", 1 / ratio)
    if factor < 2:
        return f"Close, but too {side}.{asked}"
    return f"Too {side}, by {'less' if factor < 10 else 'more'} than ten times.{asked}"
