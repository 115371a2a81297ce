"""Models, accelerators, links, constants and measured points by name, each value with its source: shipped or your own.

The files in `perfmodel/data/` keep the number and the unit that the source prints; here they become SI. They are read
at the first use, not at import. `load` reads a file of your own in the same form.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel._entry import ABOUT, CLASSES, SOURCES, build, items, si
from perfmodel.deployment import Constants
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Model
from perfmodel.quantity import shown

__all__ = [
    "KINDS",
    "SOURCES",
    "Catalogue",
    "accelerator",
    "constants",
    "link",
    "load",
    "measurements",
    "model",
    "names",
    "nearest",
    "provenance",
    "si",
]

KINDS = (*CLASSES, "measurements")
_LIMIT = 10_000_000  # bytes of a file


@cache
def _read(kind: str) -> dict[str, Any]:
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} must be one of {', '.join(KINDS)}")
    file = files("perfmodel") / "data" / (kind.removesuffix("s") + "s.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that holds `name`, or else looks most like it: 0 and O, 1 and l count as alike.

    None if less than half of it is alike.
    """

    def look(text: str) -> str:
        return text.lower().translate(str.maketrans("oil", "011"))

    given = look(str(name))
    likeness = {
        one: (bool(given) and given in look(one), SequenceMatcher(None, given, look(one)).ratio()) for one in known
    }
    best = max(likeness, key=likeness.__getitem__)
    return best if likeness[best] >= (False, 0.5) else None


def _entry(kind: str, name: str, entries: Mapping[str, Any]) -> Any:
    if not isinstance(name, str) or name not in entries:
        near = nearest(name, entries)
        closest = f"nearest: {near}; " if near else ""
        raise ValueError(f"{kind} {shown(name)} is unknown; {closest}known: {', '.join(entries)}")
    return entries[name]


class Catalogue:
    """What can be asked for by name: all that is shipped, and what one file of yours adds (see `load`)."""

    def __init__(self, own: Mapping[str, dict[str, Any]] | None = None) -> None:
        self._own = own or {}
        self._built: dict[tuple[str, str], Any] = {}

    def _entries(self, kind: str) -> dict[str, Any]:
        return _read(kind) | self._own.get(kind, {})

    def names(self, kind: str) -> list[str]:
        """Names of all entries of a kind, one of `KINDS`."""
        return list(self._entries(kind))

    def _get(self, kind: str, name: str) -> Any:
        entry = _entry(kind, name, self._entries(kind))
        if (kind, name) not in self._built:
            self._built[kind, name] = build(kind, name, entry, self.link)
        return self._built[kind, name]

    def model(self, name: str) -> Model:
        """A `Model`; an unknown name raises ValueError and names the nearest."""
        model: Model = self._get("model", name)
        return model

    def link(self, name: str) -> Link:
        """A `Link`; an unknown name raises ValueError and names the nearest."""
        link: Link = self._get("link", name)
        return link

    def accelerator(self, name: str) -> Accelerator:
        """An `Accelerator` with its link; an unknown name raises ValueError and names the nearest."""
        accelerator: Accelerator = self._get("accelerator", name)
        return accelerator

    def constants(self, name: str = "default") -> Constants:
        """`Constants` between the roofline and a served token; shipped are those that published runs suggest."""
        constants: Constants = self._get("constants", name)
        return constants

    def provenance(self, kind: str) -> list[dict[str, Any]]:
        """Where every value of a kind comes from: one row a value.

        Returns
        -------
        list of dict
            `name`, `field` (of a nested table: "latent.kv_rank"), `value` in SI, `printed` and `unit` as the source
            has them, `source`, `url` (or "none found"), `date` (ISO, to the year, month or day), `kind` (spec, keynote,
            paper, config, measured, fitted, derived, assumed), `note`. What is not said is "".
        """
        if kind == "measurements":
            rows = [(point["group"], point["id"], point | {"value": point["printed"]}) for point in measurements()]
        else:
            rows = [(name, *item) for name, entry in self._entries(kind).items() for item in items(kind, entry)]
        return [
            {"name": name, "field": field, "printed": item["value"], "unit": item["unit"]}
            | {"value": item["value"] if item["unit"] == "1" else si(item["value"], item["unit"])}
            | {key: item.get(key, "") for key in ABOUT}
            for name, field, item in rows
        ]


_SHIPPED = Catalogue()


def load(path: str | PathLike[str]) -> Catalogue:
    """The shipped catalogue and the entries of a TOML file of your own, all of them checked.

    The file has one table an entry, `[model.NAME]`, `[accelerator.NAME]`, `[link.NAME]` or `[constants.NAME]`, in the
    form of the shipped files: fields of the class; a value with a unit as `{ value = 3.35, unit = "TB/s" }`; source,
    date and kind (and, if you like, url and note) above the values or beside one. An accelerator names its link;
    one that has none is for deployments of one accelerator.

    Raises
    ------
    ValueError
        In one line that names file, entry, field, value and rule. Nothing is loaded then.
    """
    try:
        own = _tables(Path(path))
        catalogue = Catalogue(own)
        for kind, entries in own.items():
            for name in entries:
                catalogue._get(kind, name)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return catalogue


def _too_long(raw: bytes) -> str:
    """The line with a number that Python does not read: its own words name neither."""
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), start=1):
        if re.search(r"[0-9_]{4300}", line):
            return f"line {number}: {shown(line[:60])}... holds a number of more than 4,300 digits"
    return ""


def _tables(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a user's file by kind and name, still unchecked inside."""
    with path.open("rb") as file:
        raw = file.read(_LIMIT + 1)
    if len(raw) > _LIMIT:
        raise ValueError(f"is larger than {_LIMIT:,} bytes")
    try:
        own = tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        why = _too_long(raw) if "digits" in str(error) else ""
        raise ValueError(why or f"is not TOML: {error}") from None
    if not any(own.values()):
        raise ValueError(f"holds no entry; write [KIND.NAME], where KIND is one of {', '.join(CLASSES)}")
    for kind, entries in own.items():
        if kind not in CLASSES or not isinstance(entries, dict):
            form = f"[KIND.NAME], where KIND is one of {', '.join(CLASSES)}, without an s"
            raise ValueError(f"{shown(kind)} must be a table, {form}")
        for name, entry in entries.items():
            if not isinstance(entry, dict):
                raise ValueError(f"{kind} {shown(name)}={shown(entry)} must be a table of its own, [{kind}.NAME]")
            if not name.strip() or not name.isprintable():
                raise ValueError(f"{kind} {shown(name)} must have a printable name")
            if name in _read(kind):
                raise ValueError(f"{kind} {name!r} is shipped already; give yours another name")
    return own


def names(kind: str) -> list[str]:
    """Names of all shipped entries of a kind, one of `KINDS`."""
    return _SHIPPED.names(kind)


def model(name: str) -> Model:
    """A shipped `Model`; an unknown name raises ValueError and names the nearest."""
    return _SHIPPED.model(name)


def link(name: str) -> Link:
    """A shipped `Link`; an unknown name raises ValueError and names the nearest."""
    return _SHIPPED.link(name)


def accelerator(name: str) -> Accelerator:
    """A shipped `Accelerator` with its link; an unknown name raises ValueError and names the nearest."""
    return _SHIPPED.accelerator(name)


def constants(name: str = "default") -> Constants:
    """Shipped `Constants` between the roofline and a served token, as published runs suggest them."""
    return _SHIPPED.constants(name)


def provenance(kind: str) -> list[dict[str, Any]]:
    """Where every shipped value of a kind comes from: the rows of `Catalogue.provenance`."""
    return _SHIPPED.provenance(kind)


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
        shared = dict(_entry("measurements", name, _read("measurements")))
        columns, rows = shared.pop("columns"), shared.pop("points")
        for row in rows:
            point: dict[str, Any] = {"group": name} | shared | dict(zip(columns, row, strict=True))
            points.append(point | {"value": si(point["value"], point["unit"]), "printed": point["value"]})
    return points
