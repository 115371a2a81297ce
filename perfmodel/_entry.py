"""One entry of a data file: its values in SI, what is said about each, and the object that they make."""

import datetime
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from decimal import Decimal
from numbers import Real
from typing import Any

from perfmodel.deployment import Constants
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Indexer, Latent, Model, Window
from perfmodel.quantity import REACH, shown, within_reach

CLASSES: dict[str, Any] = {"model": Model, "accelerator": Accelerator, "link": Link, "constants": Constants}
NESTED: dict[str, Any] = {"latent": Latent, "indexer": Indexer, "window": Window}
ABOUT = ("source", "url", "date", "kind", "note")
SOURCES = ("spec", "keynote", "paper", "config", "measured", "fitted", "derived", "assumed")
_PREFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "n": -9}
_UNITS = ("1", "s", "B", "B/s", "FLOP/s", "OP/s", "W")
# How files write the units of fields; a field with another unit, such as 1 or token, is a plain number.
_WRITTEN = {"byte": ("B",), "byte/s": ("B/s",), "FLOP/s": ("FLOP/s", "OP/s"), "s": ("s",), "W": ("W",)}


def _power(unit: str, bases: Iterable[str]) -> int | None:
    """The power of ten that the unit's decimal prefix stands for; None if it is none of the base units."""
    for base in bases:
        prefix = unit.removesuffix(base)
        if prefix != unit and prefix in _PREFIXES:
            return _PREFIXES[prefix]
    return None


def si(value: float, unit: str) -> float:
    """`value` in SI base units, for a unit such as "TB/s": a decimal prefix before byte, second, FLOP/s, watt or none.

    Raises
    ------
    ValueError
        If the unit is unknown, or the value is not a number.
    """
    power = _power(unit, _UNITS) if isinstance(unit, str) else None
    if power is None:
        units = ", ".join(_UNITS)
        raise ValueError(f"unit {shown(unit)} is unknown; it must be one of {units} with a decimal prefix or none")
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"value {shown(value)} must be a number, in {unit}")
    return float(Decimal(str(value)).scaleb(power))  # rounds once, where a product could round twice


def items(kind: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value of an entry: its field, and a table of value, unit and what is said about it.

    What stands above the values holds for those without a source of their own. Parts of a nested table are called
    `latent.kv_rank`. The link of an accelerator is a name and no value.
    """
    about = {key: entry[key] for key in ABOUT if key in entry}
    for field, item in entry.items():
        if field in ABOUT or (kind == "accelerator" and field == "link"):
            continue
        if not isinstance(item, dict):
            yield field, about | {"value": item, "unit": "1"}
        elif field in NESTED and "value" not in item:
            for part, value in item.items():
                yield f"{field}.{part}", about | {"value": value, "unit": "1"}
        else:
            yield field, ({} if "source" in item else about) | item


def build(kind: str, name: str, entry: Mapping[str, Any], link: Callable[[str], Link]) -> Any:
    """The object that an entry describes; `link` finds an accelerator's.

    Raises
    ------
    ValueError
        In one line that names entry, field, value and rule.
    """
    try:
        given: dict[str, Any] = {} if kind == "constants" else {"name": name}
        given |= _fields(kind, entry)
        if kind == "accelerator" and "link" in entry:
            given["link"] = link(entry["link"])
        return _make(CLASSES[kind], given)
    except ValueError as error:
        raise ValueError(f"{kind} {name!r}: {error}") from None


def _fields(kind: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Values of an entry by field, in SI; nested tables as objects."""
    known = {field.name: field for field in fields(CLASSES[kind]) if field.name != "name"}
    given: dict[str, Any] = {field: {} for field in NESTED if isinstance(entry.get(field), dict)}
    for place, item in items(kind, entry):
        field, _, part = place.partition(".")
        if field not in known:
            raise ValueError(_unknown(place, known))
        try:
            _check_about(item)
            value = item["value"] if part else _value(known[field], item)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if isinstance(value, int | float) and not within_reach(value):
            raise ValueError(f"{place}={shown(value)} {REACH}")
        if part:
            given[field][part] = value
        else:
            given[field] = value
    for field in given.keys() & NESTED.keys():
        if isinstance(given[field], dict):
            try:
                given[field] = _make(NESTED[field], given[field])
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from None
    return given


def _make(cls: Any, given: Mapping[str, Any]) -> Any:
    """The object of these fields, if they are all that it needs and no others."""
    known = {field.name: field for field in fields(cls)}
    for name in given:
        if name not in known:
            raise ValueError(_unknown(name, known))
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise ValueError(f"{name} is missing")
    try:
        return cls(**given)
    except ValueError as error:  # the class names itself first, as the caller does here
        owner = f"{cls.__name__} {given.get('name', '')}".strip()
        raise ValueError(str(error).removeprefix(f"{owner}: ")) from None


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"{shown(name)} is not a field; " + (f"nearest: {near[0]}" if near else f"known: {', '.join(known)}")


def _check_about(item: Mapping[str, Any]) -> None:
    """Refuse a value that does not say what it is and where it comes from."""
    for key in item:
        if key not in ("value", "unit", *ABOUT):
            raise ValueError(f"{shown(key)} is not known beside a value; known: value, unit, {', '.join(ABOUT)}")
    for key in ("value", "source", "date", "kind"):
        if key not in item:
            where = "" if key == "value" else "; every value needs source, date and kind, all beside it or all above"
            raise ValueError(f"{key} is missing{where}")
    for key in ABOUT:
        text = item.get(key, "")
        if not isinstance(text, str) or (key == "source" and not text.strip()):
            raise ValueError(f"{key}={shown(text)} must be a text, in quotes")
    date, source = item["date"], item["kind"]
    try:
        if not re.fullmatch(r"[0-9]{4}(-[0-9]{2}){0,2}", date):
            raise ValueError
        datetime.date.fromisoformat(date + "-01" * (2 - date.count("-")))
    except ValueError:
        raise ValueError(f"date={shown(date)} must be a date such as 2025, 2025-06 or 2025-06-15") from None
    if source not in SOURCES:
        raise ValueError(f"kind={shown(source)} must be one of {', '.join(SOURCES)}")


def _value(field: Field[Any], item: Mapping[str, Any]) -> Any:
    """One value: in SI if its field has a unit, and else as it stands, for the class to check."""
    value, unit, bases = item["value"], item.get("unit"), _WRITTEN.get(field.metadata.get("unit", "1"))
    if bases is None:
        if unit != "1":
            raise ValueError(f"unit {shown(unit)} must be '1': the field is a plain number")
        return value
    if not isinstance(unit, str) or _power(unit, bases) is None:
        form = f'{{ value = {shown(value)}, unit = "..." }}'
        raise ValueError(f"unit {shown(unit)} must be {' or '.join(bases)} with a decimal prefix or none, as in {form}")
    return si(value, unit)
