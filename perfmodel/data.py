"""The shipped data: models, accelerators, links, constants, measured points, each value with its source.

The files in `perfmodel/data/` keep the number and the unit that the source prints; here they become SI. They are read
at the first use, not at import.
"""

import difflib
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from perfmodel.deployment import Constants
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Model

KINDS = ("model", "accelerator", "link", "constants", "measurements")
_ABOUT = ("source", "date", "kind", "note")
_PREFIXES = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "m": -3, "u": -6, "n": -9}
_UNITS = ("1", "s", "B", "B/s", "FLOP/s", "OP/s")


def si(value: float, unit: str) -> float:
    """`value` in SI base units, for a unit such as "TB/s": a decimal prefix before byte, second, FLOP/s or none.

    Raises
    ------
    ValueError
        If the unit is unknown.
    """
    for base in _UNITS:
        prefix = unit.removesuffix(base)
        if prefix != unit and prefix in _PREFIXES:
            return float(f"{value}e{_PREFIXES[prefix]}")  # rounds once, where a product could round twice
    raise ValueError(f"unit {unit!r} is unknown; it must be one of {', '.join(_UNITS)} with a decimal prefix or none")


@cache
def _read(kind: str) -> dict[str, Any]:
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} must be one of {', '.join(KINDS)}")
    file = files("perfmodel") / "data" / (kind.removesuffix("s") + "s.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that `name` begins, or else the one spelt most like it."""
    low = str(name).lower()
    return max(known, key=lambda one: (one.startswith(low), difflib.SequenceMatcher(None, low, one).ratio()))


def _entry(kind: str, name: str) -> dict[str, Any]:
    entries = _read(kind)
    if name not in entries:
        raise ValueError(f"{kind} {name!r} is unknown; nearest: {nearest(name, entries)}; known: {', '.join(entries)}")
    entry: dict[str, Any] = entries[name]
    return entry


def names(kind: str) -> list[str]:
    """Names of all entries of a kind, one of `KINDS`."""
    return list(_read(kind))


def _values(kind: str, name: str) -> dict[str, float]:
    """Fields of an entry whose values are tables of their own, in SI."""
    entry = _entry(kind, name)
    return {field: si(item["value"], item["unit"]) for field, item in entry.items() if isinstance(item, dict)}


@cache
def model(name: str) -> Model:
    """A shipped `Model`; an unknown name raises ValueError and names the nearest."""
    return Model(name=name, **{field: value for field, value in _entry("model", name).items() if field not in _ABOUT})


@cache
def link(name: str) -> Link:
    """A shipped `Link`; an unknown name raises ValueError and names the nearest."""
    return Link(name=name, **_values("link", name))


@cache
def accelerator(name: str) -> Accelerator:
    """A shipped `Accelerator` with its link; an unknown name raises ValueError and names the nearest."""
    return Accelerator(name=name, link=link(_entry("accelerator", name)["link"]), **_values("accelerator", name))


@cache
def constants(name: str = "default") -> Constants:
    """Shipped `Constants` between the roofline and a served token, as published runs suggest them."""
    return Constants(**_values("constants", name))


def measurements(group: str | None = None) -> list[dict[str, Any]]:
    """Measured points of one group, or of all.

    Returns
    -------
    list of dict
        `quantity` ("ttft", "tpot", or "e2e": a whole batch from start to end), its `value` in seconds, and `printed` in
        `unit` as the source has it; `prompt`, `output`, `batch`; `group`, `id`; the deployment (`model`, `accelerator`,
        `tensor_parallel`, `precision`, `engine`); `source`, `date`, `kind`, `note`.
    """
    points = []
    for name in names("measurements") if group is None else [group]:
        shared = dict(_entry("measurements", name))
        columns, rows = shared.pop("columns"), shared.pop("points")
        for row in rows:
            point = {"group": name} | shared | dict(zip(columns, row, strict=True))
            points.append(point | {"value": si(point["value"], point["unit"]), "printed": point["value"]})
    return points


def provenance(kind: str) -> list[dict[str, Any]]:
    """Where every value of a kind comes from: one row a value.

    Returns
    -------
    list of dict
        `name`, `field`, `value` in SI, `printed` and `unit` as the source has them, `source`, `date` (ISO, to the year,
        month or day), `kind` (spec, paper, keynote, config, measured, fitted, assumed), `note`.
    """
    if kind == "measurements":
        items = [(point["group"], point["id"], point | {"value": point["printed"]}) for point in measurements()]
    else:
        items = [
            (name, field, item if isinstance(item, dict) else entry | {"value": item, "unit": "1"})
            for name, entry in _read(kind).items()
            for field, item in entry.items()
            if isinstance(item, dict) or (kind == "model" and field not in _ABOUT)
        ]
    return [
        {"name": name, "field": field, "value": si(item["value"], item["unit"]), "printed": item["value"]}
        | {key: item[key] for key in ("unit", *_ABOUT)}
        for name, field, item in items
    ]
