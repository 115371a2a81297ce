"""Fields and functions that know their letter, unit and meaning.

The notation table, the SymPy symbols of the derivations and the checks at the door are all made
from this one description, so they cannot disagree.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from decimal import Decimal
from typing import Any, NoReturn, TypeVar

import numpy as np

from perfmodel._ops import Value, is_symbolic

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Letters of arguments that no dataclass holds.
ARGUMENTS: dict[str, "Letter"] = {}
# Functions whose value has a letter of its own; filled by `computed`.
COMPUTED: list["Letter"] = []


@dataclass(frozen=True)
class Letter:
    """One row of the notation table."""

    symbol: str
    unit: str
    meaning: str
    where: str


def quantity(
    symbol: str,
    unit: str,
    meaning: str,
    *,
    default: Any = MISSING,
    minimum: float | None = None,
    maximum: float | None = None,
    whole: bool = False,
    absent: bool = False,
) -> Any:
    """A dataclass field with a letter, a unit, a meaning and the range of its values.

    Letters are spelt as SymPy prints them in LaTeX: `H_kv`, `beta`. Without `minimum` the value must be above 0.
    `absent` marks what few instances have: `symbols` leaves it at its default.
    """
    metadata = {"symbol": symbol, "unit": unit, "meaning": meaning, "absent": absent}
    return field(default=default, metadata=metadata | {"minimum": minimum, "maximum": maximum, "whole": whole})


def part(symbol: str, unit: str, meaning: str, *, whole: bool = False) -> Any:
    """A `quantity` that is 0 where the part is absent."""
    return quantity(symbol, unit, meaning, default=0, minimum=0, whole=whole, absent=True)


def computed(symbol: str, unit: str) -> Callable[[F], F]:
    """Decorator: the function's value has this letter and unit; its docstring's first line is the meaning."""

    def mark(function: F) -> F:
        meaning = (function.__doc__ or " ").splitlines()[0].rstrip(".")
        COMPUTED.append(Letter(symbol, unit, meaning, f"{function.__module__}.{function.__name__}"))
        return function

    return mark


def argument(name: str, symbol: str, unit: str, meaning: str) -> None:
    """Register the letter of a function argument (batch, prompt length, context)."""
    ARGUMENTS[name] = Letter(symbol, unit, meaning, name)


argument("batch", "B", "1", "requests decoded together, on one replica")
argument("prompt", "S", "token", "prompt tokens of a request")
argument("output", "N_out", "token", "output tokens of a request")
argument("context", "s", "token", "tokens a request has in the KV cache during a decode step")


def check_value(
    owner: str,
    name: str,
    value: Value,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    whole: bool = False,
) -> None:
    """Raise ValueError in one line unless `value` is a finite number (or array of them) in its range.

    SymPy symbols and quantities with units pass: they are checked by algebra and by dimension.
    """
    if (is_symbolic(value) and value.free_symbols) or hasattr(value, "dimensionality"):
        return
    plain = type(value) in (int, float) and (value > 0 if minimum is None else value >= minimum)
    if plain and value <= (maximum or 1e300) and (not whole or value % 1 == 0):
        return  # the common case, without the cost of an array
    rule = "must be above 0" if minimum is None else f"must be at least {minimum}"

    def refuse(why: str) -> NoReturn:
        raise ValueError(f"{owner}: {name}={shown(value)} {why}") from None

    if hasattr(value, "mask") and hasattr(value, "dtype"):  # numpy.ma, whose import alone takes as long as ours
        refuse("is masked; fill it first")
    if isinstance(value, np.ndarray | np.generic | list | tuple) and np.asarray(value).dtype.kind not in "iuf":
        refuse(f"is not real numbers; each {rule}")
    if isinstance(value, (bool, str, bytes, Decimal)) or value is None:
        refuse(f"is not a number; it {rule}")
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        refuse(f"is not a number; it {rule}")
    low = numbers <= 0 if minimum is None else numbers < minimum
    if not np.all(np.isfinite(numbers)) or np.any(low):
        refuse(f"{rule} and finite")
    if maximum is not None and np.any(numbers > maximum):
        refuse(f"must be at most {maximum}")
    if whole and np.any(numbers != np.floor(numbers)):
        refuse("must be a whole number")


def check_values(owner: str, minimum: float | None, **values: Value) -> None:
    """`check_value` for several values with one minimum, each under its name."""
    for name, value in values.items():
        check_value(owner, name, value, minimum=minimum)


def within_reach(value: float) -> bool:
    """Whether a number that people wrote is 0, or of a size at which products of several do not overflow."""
    return not (0 < abs(value) < 1e-30 or 1e30 < abs(value) < np.inf)


REACH = "must be 0, or from 1e-30 to 1e30"


def shown(value: Any) -> str:
    """A value as an error message quotes it: in one line, and not the whole of a long one."""
    value = value.item() if isinstance(value, np.number) else value
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        text = f"<{type(value).__name__} with thousands of digits>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def own(value: Value) -> Value:
    """A NumPy number as Python's own: the products of narrow kinds wrap or overflow, and lose digits."""
    if not isinstance(value, np.generic | np.ndarray) or value.dtype.kind not in "iuf":
        return value
    return float(value) if value.dtype.kind == "f" else int(value)


def check_fields(instance: Any) -> None:
    """`check_value` for every quantity of a dataclass instance; call it from `__post_init__`."""
    owner = f"{type(instance).__name__} {getattr(instance, 'name', '')}".strip()
    for item in fields(instance):
        rules: dict[str, Any] = {key: item.metadata.get(key) for key in ("minimum", "maximum", "whole")}
        value = getattr(instance, item.name)
        if "symbol" in item.metadata:
            check_value(owner, item.name, value, **rules)
        if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) and np.asarray(value).dtype.kind in "iuf":
            raise ValueError(f"{owner}: {item.name}={shown(value)} must be one number; arrays go into the functions")
        if own(value) is not value:
            object.__setattr__(instance, item.name, own(value))


def _symbol(letter: str, whole: bool) -> Any:
    import sympy

    return sympy.Symbol(letter, positive=True, **({"integer": True} if whole else {}))


def symbols(cls: Callable[..., T], **given: Any) -> T:
    """An instance of a dataclass whose quantities are SymPy symbols, except those given or `absent` in most."""
    values = {
        item.name: _symbol(item.metadata["symbol"], item.metadata["whole"])
        for item in fields(cls)  # type: ignore[arg-type]
        if "symbol" in item.metadata and not item.metadata["absent"] and item.name not in given
    }
    return cls(**values, **given)


def argument_symbols(*names: str) -> Any:
    """SymPy symbols for arguments, in the order given: ``B, s = argument_symbols("batch", "context")``."""
    unknown = [name for name in names if name not in ARGUMENTS]
    if unknown:
        raise ValueError(f"argument_symbols: {shown(unknown[0])} is unknown; known: {', '.join(ARGUMENTS)}")
    found = tuple(_symbol(ARGUMENTS[name].symbol, whole=False) for name in names)
    return found[0] if len(found) == 1 else found
