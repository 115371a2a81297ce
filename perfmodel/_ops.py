"""The few operations that Python, NumPy and SymPy spell differently, under one name each.

Formulas in this package take floats, NumPy arrays or SymPy symbols. Plain arithmetic works on all
three; these are the exceptions. SymPy is imported only once a symbol has arrived.
"""

from functools import reduce
from typing import Any, TypeAlias

import numpy as np

Value: TypeAlias = Any  # a float, a NumPy array or a SymPy expression: what a formula takes and returns


PLAIN = (int, float)  # the common case, looked at first: a scalar call is a matter of microseconds


def is_symbolic(*values: Value) -> bool:
    """True if any value is a SymPy expression."""
    for value in values:  # noqa: SIM110 - `any` would take twice as long
        if type(value) not in PLAIN and hasattr(value, "free_symbols"):
            return True
    return False


def real(value: Value) -> Value:
    """`value`, with arrays and NumPy numbers as float64.

    Products such as batch x context x bytes pass 2**31 at once and 2**63 sometimes, and NumPy
    integers then wrap without a word (in the browser they have 32 bits); float16 ends at 65,504. Python's own
    integers are exact and stay as they are.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return np.asarray(value, dtype=float)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return value.astype("float64") if kind in "iuf" and kind else value


def _larger(one: Value, other: Value) -> Value:
    """Of Python's whole numbers one of them: NumPy would make it one of its own, whose products wrap."""
    return max(one, other) if type(one) is type(other) is int else np.maximum(one, other)


def _smaller(one: Value, other: Value) -> Value:
    return min(one, other) if type(one) is type(other) is int else np.minimum(one, other)


def maximum(first: Value, *others: Value) -> Value:
    """Largest of the values, element by element; NaN wins."""
    if is_symbolic(first, *others):
        import sympy

        return sympy.Max(first, *others)
    return reduce(_larger, others, first)


def minimum(first: Value, *others: Value) -> Value:
    """Smallest of the values, element by element; NaN wins."""
    if is_symbolic(first, *others):
        import sympy

        return sympy.Min(first, *others)
    return reduce(_smaller, others, first)


def floor(value: Value) -> Value:
    """Largest whole number not above `value`."""
    if is_symbolic(value):
        import sympy

        return sympy.floor(value)
    return np.floor(value)


def ceil(value: Value) -> Value:
    """Smallest whole number not below `value`."""
    if is_symbolic(value):
        import sympy

        return sympy.ceiling(value)
    return np.ceil(value)


def where(condition: Value, yes: Value, no: Value) -> Value:
    """`yes` where the condition holds, else `no`; both are evaluated."""
    if condition is True or condition is False:
        return yes if condition else no
    if is_symbolic(condition, yes, no):
        import sympy

        return sympy.Piecewise((yes, condition), (no, True))
    if isinstance(condition, np.bool_):
        return yes if condition else no
    return np.where(condition, yes, no)


def sqrt(value: Value) -> Value:
    """Square root."""
    if is_symbolic(value):
        import sympy

        return sympy.sqrt(value)
    return np.sqrt(value)


def log2(value: Value) -> Value:
    """Logarithm to base 2."""
    if is_symbolic(value):
        import sympy

        return sympy.log(value, 2)
    return np.log2(value)


def name_of_largest(**values: Value) -> Value:
    """Name of the largest of some numbers, the first of equals; of arrays, an array of names. No symbols."""
    names = list(values)
    largest, index = values[names[0]], 0
    for place, name in enumerate(names[1:], start=1):
        index = where(values[name] > largest, place, index)
        largest = np.maximum(largest, values[name])
    return np.array(names)[index]
