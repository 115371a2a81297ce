"""Rows of a sweep as CSV or Parquet, in a file that gets its name once it is complete."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import repeat
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from perfmodel._ops import Value
from perfmodel.terminal import fail, note, show

GROUP = 2**17  # rows that a Parquet file keeps together at least
Columns = Mapping[str, Value]  # by name: one value, or an array that broadcasts to the block's shape


class Sink(Protocol):
    """Takes rows a block at a time."""

    def add(self, columns: Columns, shape: tuple[int, ...]) -> None:
        """The rows of a block, in C order."""


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


# How values are written, by NumPy's kind of them: 12 digits are more than any model is good for.
FORMATS: dict[str, Callable[[Any], str]] = {
    "f": "%.12g".__mod__,
    "i": str,
    "b": lambda value: "true" if value else "false",
    "U": _cell,
}


def _texts(value: Value, shape: tuple[int, ...]) -> Iterable[str]:
    """A column as texts. Each value is formatted once, however often it is repeated: most of the time goes there."""
    array = np.asarray(value)
    words = list(map(FORMATS[array.dtype.kind], array.ravel().tolist()))
    if array.size == 1:
        return repeat(words[0], prod(shape))
    cells: list[str] = np.broadcast_to(np.array(words, dtype=object).reshape(array.shape), shape).ravel().tolist()
    return cells


class Csv:
    """Comma-separated values in UTF-8: a header, then lines that end in a newline."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write, self._empty = write, True

    def add(self, columns: Columns, shape: tuple[int, ...]) -> None:
        """The rows of a block, in C order."""
        header = [",".join(map(_cell, columns))] if self._empty else []
        rows = map(",".join, zip(*(_texts(value, shape) for value in columns.values()), strict=True))
        self._write("\n".join([*header, *rows]))
        self._empty = False


class Parquet:
    """A Parquet file. Needs pyarrow."""

    def __init__(self, file: BinaryIO) -> None:
        self._arrow, self._parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        self._file: BinaryIO = file
        self._writer: Any = None
        self._tables: list[Any] = []

    def add(self, columns: Columns, shape: tuple[int, ...]) -> None:
        """The rows of a block, in C order."""
        self._tables.append(self._arrow.table({name: self._column(value, shape) for name, value in columns.items()}))
        if sum(map(len, self._tables)) >= GROUP:
            self._flush()

    def _column(self, value: Value, shape: tuple[int, ...]) -> Any:
        array = np.asarray(value)
        if array.dtype.kind == "U":
            array = array.astype(object)
        return self._arrow.array(np.broadcast_to(array, shape).ravel())

    def _flush(self) -> None:
        table = self._arrow.concat_tables(self._tables)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)
        self._tables = []

    def close(self) -> None:
        """Write what is left, and the index of all; there was a block."""
        if self._tables:
            self._flush()
        self._writer.close()

    def let_go(self) -> None:
        """Keep pyarrow from closing, and so writing, a file that was given up, whenever it is collected."""
        if self._writer is not None:
            self._writer.is_open = False


@contextmanager
def rows_to(out: str | None) -> Iterator[Sink]:
    """Where rows go: to a file, CSV or Parquet by its name, or as CSV to stdout.

    Raises
    ------
    ValueError
        If there can be no such file.
    """
    if out is None:
        yield Csv(show)
        return
    path = Path(out)
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"argument --out: {out} must end in .csv or .parquet")
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(f"argument --out: {out} is not a file")
    if mode is not None and not mode & 0o222:  # replacing it would need no right to write it
        raise ValueError(f"argument --out: {out} is read-only")
    with _complete(path, mode) as file:
        if path.suffix == ".csv":
            yield Csv(lambda text: file.write(f"{text}\n".encode()))
            return
        try:
            sink = Parquet(file)
        except ImportError:
            fail("argument --out: Parquet needs pyarrow, which is not installed: pip install pyarrow", status=1)
        try:
            yield sink
            sink.close()
        finally:
            sink.let_go()


def _mode(path: Path) -> int | None:
    """What `stat` says of the file's kind and rights, through links; None if there is none."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None
    except OSError as error:  # such as links that lead back to themselves
        raise ValueError(f"argument --out: cannot write {path}: {error.strerror or error}") from None


@contextmanager
def _complete(path: Path, mode: int | None) -> Iterator[BinaryIO]:
    """A file beside `path` that takes its place and its rights at the end; what fails on the way leaves nothing behind.

    Its name is drawn: process numbers repeat among containers that share a folder.
    """
    path = path.resolve()  # through a link, which stays
    part = path.with_name(f".perfmodel-{os.urandom(8).hex()}.part")
    rights = 0o666 if mode is None else stat.S_IMODE(mode)
    try:
        file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, rights))  # noqa: SIM115 - `with`, below
    except OSError as error:
        raise ValueError(f"argument --out: cannot write to {path.parent}: {error.strerror or error}") from None
    try:
        with file:
            if mode is not None:
                part.chmod(rights)  # what the umask took away
            yield file
        part.replace(path)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}", status=1)
    except KeyboardInterrupt:
        note(f"stopped: {path} is not written")
        raise
    finally:
        part.unlink(missing_ok=True)
