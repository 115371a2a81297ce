"""Requests from files: the published traces of Azure and Mooncake, and CSV tables of your own.

A file is read whole or refused: `FILE line N: field=value must ...`. Rows out of order are sorted by arrival; those
that arrive together keep their order.
"""

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from perfmodel.quantity import shown
from perfmodel.simulate.requests import MOST_ID, MOST_SECONDS, MOST_TOKENS, Requests
from perfmodel.terminal import one_line

MOONCAKE_UNIT = 512  # tokens that each hash of the Mooncake traces stands for
# Azure's stamps of 2023 have seven decimals; those of 2024 have six and a time zone, always UTC.
STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,7}))?(?:\+00:00)?")
TICKS = 10**7  # of a stamp's last digit in a second
EPOCH = datetime(1970, 1, 1)

File = str | PathLike[str]
Read = tuple[Requests, int]  # and how many bad rows were left out
Row = tuple[Any, ...]  # arrival, prompt, output, and the ids of a Mooncake trace
Cell = Callable[[str, str], Any]  # reads a cell, given its column's name and its text


def read(path: File, format: str, skip_bad: bool = False) -> Read:
    """Read a file of requests.

    Parameters
    ----------
    path : str or path
        A text file in UTF-8, with or without a byte-order mark, with any ends of line.
    format : str
        ``"azure"``, ``"mooncake"`` or ``"csv"``.
    skip_bad : bool
        Leave bad rows out and count them, instead of refusing the file for the first.

    Returns
    -------
    requests : Requests
    skipped : int
        Rows left out.

    Raises
    ------
    ValueError
        In one line that names the file and what is wrong: a row, the header, or that the file cannot be read.
    """
    formats: dict[str, Callable[[File, bool], Read]] = {"azure": read_azure, "mooncake": read_mooncake, "csv": read_csv}
    if format not in formats:
        raise ValueError(f"read: format={shown(format)} must be one of {', '.join(formats)}")
    return formats[format](path, skip_bad)


def read_azure(path: File, skip_bad: bool = False) -> Read:
    """Read an Azure LLM inference trace: TIMESTAMP,ContextTokens,GeneratedTokens. Its first request arrives at 0 s."""
    columns = {"TIMESTAMP": _ticks, "ContextTokens": _prompt, "GeneratedTokens": _output}
    with _opened(path) as file:
        rows, skipped = _good(*_table(file, columns), skip_bad)
        first = rows[0][0]
        return _requests([((ticks - first) / TICKS, prompt, output) for ticks, prompt, output in rows]), skipped


def read_mooncake(path: File, skip_bad: bool = False) -> Read:
    """Read a Mooncake trace: JSON lines of timestamp (ms), input_length, output_length and hash_ids (512 tokens each).

    Other keys are not looked at.
    """
    with _opened(path) as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        rows, skipped = _good(lines, _mooncake, skip_bad)
        ids = np.array([one for row in rows for one in row[3]], dtype=np.int64)
        offsets = np.cumsum([0, *(len(row[3]) for row in rows)])
        return _requests([row[:3] for row in rows], ids=ids, offsets=offsets, unit=MOONCAKE_UNIT), skipped


def read_csv(path: File, skip_bad: bool = False, ignore: Collection[str] = ()) -> Read:
    """Read a table whose header names arrival (or arrival_s) in seconds, prompt and output in tokens, in any order.

    Parameters
    ----------
    path, skip_bad
        As for `read`.
    ignore : collection of str
        Columns to leave aside. Any other is refused: it may hold what should have been simulated.
    """
    with _opened(path) as file:
        table = _table(file, {"arrival": _arrival, "prompt": _prompt, "output": _output}, ignore)
        rows, skipped = _good(*table, skip_bad)
        return _requests(rows), skipped


@contextmanager
def _opened(path: File) -> Iterator[TextIO]:
    """The open file; whatever is wrong with it is told in one line that begins with its name."""
    place = Path(path)
    try:
        if place.exists() and not place.is_file():
            raise ValueError("is not a file")
        with place.open(encoding="utf-8-sig", newline="") as file:
            yield file
        return
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except UnicodeDecodeError:
        reason = "is not UTF-8"
    except csv.Error as error:
        reason = f"is not CSV: {error}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{one_line(str(path))}{'' if reason.startswith('line ') else ':'} {reason}")


def _good(rows: Iterable[tuple[int, Any]], parse: Callable[[Any], Row], skip_bad: bool) -> tuple[list[Row], int]:
    """The rows that can be parsed, in order of arrival, and the number of the others."""
    good: list[Row] = []
    skipped, first = 0, ""
    for line, row in rows:
        try:
            good.append(parse(row))
        except ValueError as error:
            if not skip_bad:
                raise ValueError(f"line {line}: {error}") from None
            skipped, first = skipped + 1, first or f"; the first bad row is on line {line}: {error}"
    if not good:
        raise ValueError(f"must hold a request{first}")
    good.sort(key=itemgetter(0))
    return good, skipped


def _requests(rows: list[Row], **ids: Any) -> Requests:
    arrival, prompt, output = zip(*rows, strict=True)
    return Requests(np.array(arrival, dtype=float), np.array(prompt), np.array(output), **ids)


def _table(
    file: TextIO, columns: Mapping[str, Cell], ignore: Collection[str] = ()
) -> tuple[Iterator[tuple[int, list[str]]], Callable[[list[str]], Row]]:
    """The rows below a header, with the number of their line, and what parses one."""
    reader = csv.reader(file, skipinitialspace=True)
    header = [name.strip() for name in next(reader, [])]
    names = ["arrival" if name == "arrival_s" and "arrival" in columns else name for name in header]
    for name in columns:
        if names.count(name) != 1:
            many = "is missing" if name not in names else "stands twice"
            raise ValueError(f"line 1: header={shown(','.join(header))} must name {', '.join(columns)}; {name} {many}")
    if unknown := [name for name in names if name not in columns and name not in ignore]:
        raise ValueError(f"line 1: column={shown(unknown[0])} must be one of {', '.join(columns)}")
    cells = [(name, read_cell, names.index(name)) for name, read_cell in columns.items()]

    def parse(row: list[str]) -> Row:
        if len(row) != len(names):
            raise ValueError(f"cells={len(row)} must be {len(names)}, as in the header")
        return tuple([read_cell(name, row[place]) for name, read_cell, place in cells])

    return ((reader.line_num, row) for row in reader if row), parse


def _whole(name: str, text: str, least: int) -> int:
    text = text.strip()
    # int() takes more: signs, underscores, digits of other scripts.
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
    if not least <= value <= MOST_TOKENS:
        raise ValueError(f"{name}={shown(text)} must be a whole number from {least} to {MOST_TOKENS}")
    return value


def _prompt(name: str, text: str) -> int:
    return _whole(name, text, 1)


def _output(name: str, text: str) -> int:
    return _whole(name, text, 0)


def _arrival(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= MOST_SECONDS or "_" in text or not text.isascii():
        raise ValueError(f"{name}={shown(text)} must be seconds from 0 to {MOST_SECONDS:.10g}")
    return seconds


def _ticks(name: str, text: str) -> int:
    """A stamp in tenths of a microsecond since 1970, so that none of its digits is lost."""
    found = STAMP.fullmatch(text.strip())
    try:
        since = datetime.fromisoformat(found[1]) - EPOCH if found else None
    except ValueError:  # the 30th of February
        since = None
    if found is None or since is None:
        raise ValueError(f"{name}={shown(text)} must be a stamp such as 2023-11-16 18:17:03.9799600")
    return (since.days * 86400 + since.seconds) * TICKS + int((found[2] or "").ljust(7, "0"))


def _mooncake(line: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"request={shown(line.strip())} must be a JSON object")
    arrival: Any = found.get("timestamp")
    ids = found.get("hash_ids")
    if type(arrival) not in (int, float) or not 0 <= arrival <= MOST_SECONDS * 1000:  # a boolean is no number here
        raise ValueError(f"timestamp={shown(arrival)} must be milliseconds from 0 to {MOST_SECONDS * 1000:.10g}")
    for name, least in (("input_length", 1), ("output_length", 0)):
        if type(found.get(name)) is not int or not least <= found[name] <= MOST_TOKENS:
            raise ValueError(f"{name}={shown(found.get(name))} must be a whole number from {least} to {MOST_TOKENS}")
    most = -(-found["input_length"] // MOONCAKE_UNIT)
    if type(ids) is not list or len(ids) > most or not all(type(one) is int and 0 <= one <= MOST_ID for one in ids):
        raise ValueError(f"hash_ids={shown(ids)} must be at most {most} whole numbers from 0 to {MOST_ID}")
    return arrival / 1000, found["input_length"], found["output_length"], ids
