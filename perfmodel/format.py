"""Numbers as a reader sees them: significant digits, a unit, a decimal prefix.

The only place, with the reader of data files, where prefixes exist: everything else is in SI base units.
"""

from __future__ import annotations

import math
import numbers
from fractions import Fraction

THIN = "\u202f"  # narrow no-break space: a number never parts from its unit at the end of a line
PREFIXES = {
    -12: "p",
    -9: "n",
    -6: "µ",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
    21: "Z",
}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
WORDS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
POWER = "10^"
DIGITS = 17  # a float has no more
LONGEST = 10_000  # bits of a number that can be written: floats have 1,074 at most
# The smallest and largest power of ten that may become a prefix. Nobody writes kiloseconds or millibytes.
SI_UNITS = {
    "s": (-12, 0),
    "B": (0, 21),
    "FLOP": (0, 21),
    "J": (-12, 21),
    "W": (-12, 21),
}
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def exact(value: object) -> Fraction:
    """Return a finite real number as an exact fraction; refuse everything else."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        raise ValueError(f"fmt: value={value!r} is a truth value, not a number")
    if isinstance(value, numbers.Rational):
        fraction = Fraction(int(value.numerator), int(value.denominator))
        if max(fraction.numerator.bit_length(), fraction.denominator.bit_length()) > LONGEST:
            raise ValueError("fmt: value has thousands of digits")
        return fraction
    if isinstance(value, numbers.Real) or (getattr(value, "is_number", False) and getattr(value, "is_real", False)):
        number = float(value)  # type: ignore[arg-type]
        if math.isnan(number):
            raise ValueError("fmt: value is NaN")
        if math.isinf(number):
            raise ValueError("fmt: value is infinite; allow_inf=True prints it as ∞")
        return Fraction(number)
    raise ValueError(f"fmt: value of type {type(value).__name__} is not one real number")


def _refuse_prefixed(unit: str) -> None:
    """Values are in base units: 42 in "ms" would print as 42 ms, and as "42 mms" with a prefix."""
    base = unit.split("/")[0]
    for prefix in (*filter(None, PREFIXES.values()), "u", "K", *BINARY):
        bare = base.removeprefix(prefix)
        if bare != base and bare in SI_UNITS and base not in SI_UNITS:
            raise ValueError(f"fmt: unit={unit!r} has a prefix of its own; give the value in {bare}")


def _significant(x: Fraction, digits: int) -> tuple[int, int]:
    """Round x > 0 half to even: ``n`` of exactly `digits` digits, and the power of ten of its first digit."""
    power = len(str(x.numerator)) - len(str(x.denominator))
    if x < Fraction(10) ** power:
        power -= 1
    n = round(x / Fraction(10) ** (power - digits + 1))
    return (n // 10, power + 1) if n == 10**digits else (n, power)


def _decimal(n: int, power: int, digits: int) -> str:
    """Write ``n`` (`digits` long, first digit worth 10**power) with separators between thousands."""
    after = digits - 1 - power
    if after <= 0:
        return f"{n * 10**-after:,}"
    whole, part = divmod(n, 10**after)
    return f"{whole:,}.{part:0{after}d}"


def _default_digits(x: Fraction, unit: str, count: bool) -> int:
    if count:
        return len(str(x.numerator))  # a count is exact
    return 2 if unit == "%" and x < 1 else 3


def _choose_prefix(power: int, unit: str) -> int:
    """The power of ten, a multiple of three, whose prefix leaves one to three digits before the point."""
    base = unit.split("/")[0]
    if base not in SI_UNITS or unit == "FLOP/B":  # an intensity is a ratio: "1,070 FLOP/B", never kFLOP/B
        return 0
    low, high = SI_UNITS[base]
    return min(max(power // 3 * 3, low), high)


def fmt(
    value: object,
    unit: str = "",
    digits: int | None = None,
    prefix: str | None = None,
    *,
    allow_inf: bool = False,
) -> str:
    """Write a number as the reader sees it: rounded half to even, with its unit.

    Parameters
    ----------
    value : real number
        In the base unit. Python, NumPy and SymPy scalars are taken.
    unit : str
        ``s``, ``B``, ``FLOP``, ``J``, ``W`` and what starts with them ("B/s") get an SI prefix. ``%`` takes a
        fraction (0.5 is 50 %), ``$`` stands before the number, ``×`` close behind it. Other words stay as they are.
    digits : int, optional
        Significant digits, at most 17. Without it: three, two for a percentage below 1 %, all of them for a whole
        number (type int) in a unit without prefix.
    prefix : str, optional
        ``"G"`` forces giga, ``"Gi"`` 2**30, ``""`` none, ``"billion"`` the word, ``"10^"`` a power of ten.
    allow_inf : bool
        Print an infinite value as ∞ instead of refusing it.

    Returns
    -------
    str
        For example "10.4 ms" with a narrow no-break space.

    Raises
    ------
    ValueError
        For NaN, infinity, complex numbers, arrays, truth values, text, an unknown prefix, and a unit with one ("ms").
    """
    if digits is not None and (isinstance(digits, bool) or not isinstance(digits, int) or not 1 <= digits <= DIGITS):
        raise ValueError(f"fmt: digits={digits!r} is not a whole number from 1 to {DIGITS}")
    _refuse_prefixed(unit)
    forced = None if prefix is None else _shift(prefix)
    if allow_inf and isinstance(value, numbers.Real) and math.isinf(value):
        return _join("−" if value < 0 else "", "∞", unit, prefix)
    x = exact(value)
    sign, x = ("−" if x < 0 else ""), abs(x)
    if x == 0:
        return _join("", "0", unit, prefix)
    if unit == "%":
        x *= 100
    if prefix in BINARY:
        x /= BINARY[prefix]
    whole = isinstance(value, numbers.Integral) and x.denominator == 1 and prefix not in WORDS
    count = whole and (prefix in BINARY or unit.split("/")[0] not in SI_UNITS)
    n, power = _significant(x, digits or _default_digits(x, unit, count))
    digits = len(str(n))
    shift = _choose_prefix(power, unit) if forced is None else forced
    if prefix == POWER or (prefix is None and not -3 <= power - shift < 15):
        ten = f"{THIN}×{THIN}10" + str(power).translate(SUPERSCRIPT)
        return _join(sign, _decimal(n, 0, digits) + ten, unit)
    return _join(sign, _decimal(n, power - shift, digits), unit, PREFIXES[shift] if prefix is None else prefix)


def _shift(prefix: str) -> int:
    """The power of ten that a prefix stands for; 0 for those that are none."""
    if prefix in BINARY or prefix == POWER:
        return 0
    if prefix in WORDS:
        return WORDS[prefix]
    for power, letter in PREFIXES.items():
        if letter == prefix:
            return power
    known = ", ".join(repr(p) for p in [*PREFIXES.values(), *BINARY, *WORDS, POWER])
    raise ValueError(f"fmt: prefix={prefix!r} is not one of {known}")


def _join(sign: str, number: str, unit: str, prefix: str | None = None) -> str:
    if prefix in WORDS:
        number += THIN + prefix
    elif prefix and prefix != POWER:
        unit = prefix + unit
    if unit.startswith("$"):
        return f"{sign}${number}{unit[1:]}"
    return sign + number + ("" if unit in ("", "×") else THIN) + unit
