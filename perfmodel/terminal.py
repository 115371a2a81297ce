"""What people and shells see: results on stdout, one line of complaint on stderr, how far a long run has come."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Self, TextIO

from perfmodel.format import THIN


def one_line(text: str) -> str:
    """The text without newlines and terminal escapes, and without the middle of a very long one."""
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in " ".join(text.split()))
    return line if len(line) <= 1000 else f"{line[:600]} ... {line[-300:]}"


def plain(text: str) -> str:
    """The text in ASCII, for a stream that knows no more: 10¹² becomes 10^12."""
    powers = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
    text = re.sub(f"10(?=[{powers}])", "10^", text)
    text = text.translate(str.maketrans(f"{powers}{THIN}µ×", "-0123456789 ux"))
    return text.encode("ascii", "backslashreplace").decode()


def put(stream: TextIO | None, text: str) -> None:
    """Print now, while a failure can still be told: OSError."""
    if stream is None:
        raise OSError("it is closed")
    if not (stream.encoding or "utf-8").lower().startswith("utf"):
        text = plain(text)
    try:
        print(text, file=stream, flush=True)
    except OSError:  # what is left over must go somewhere, or Python complains of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def note(message: str) -> None:
    """One line on stderr."""
    with suppress(OSError):
        put(sys.stderr, f"perfmodel: {one_line(message)}")


def fail(message: str, status: int = 2) -> NoReturn:
    """End with one line on stderr. Status 2 is bad input; 1 a machine that cannot."""
    note(message)
    sys.exit(status)


def show(text: str) -> None:
    """Print a result. A reader that left early is told nothing, and the shell what it expects: 128 + SIGPIPE."""
    try:
        put(sys.stdout, text)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(f"cannot write to stdout: {error.strerror or error}", status=1)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let signals to end and to hang up stop the work as Ctrl-C does, so that it cleans up: KeyboardInterrupt."""

    def stop(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt(number)

    kinds = [kind for kind in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")) if kind is not None]
    before = {kind: signal.getsignal(kind) for kind in kinds}
    for kind, handler in before.items():
        if handler is signal.SIG_DFL:  # nohup has SIGHUP ignored
            signal.signal(kind, stop)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


class Progress:
    """How much of a long run is done, on stderr about once a second: a line that is written over, if it is a terminal.

    Without a terminal it is silent, unless `always` asks for a line a time.
    """

    def __init__(self, total: int, always: bool = False, what: str = "points") -> None:
        self._what = what
        self._total, self._done, self._start, self._next = total, 0, time.monotonic(), 0.0
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._silent = not (self._terminal or always)

    def __enter__(self) -> Self:
        return self

    def add(self, points: int) -> None:
        """Say that so many more are done."""
        self._done += points
        now = time.monotonic()
        if self._silent or now < self._next:
            return
        self._next = now + 1
        left = (now - self._start) * (self._total / self._done - 1)
        text = f"{self._done:,} of {self._total:,} {self._what}, {left:,.0f} s left"
        if self._terminal:
            self._write(text)
        else:
            note(text)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def __exit__(self, *error: object) -> None:
        if self._terminal:
            self._write("")
