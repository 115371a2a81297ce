"""Computed numbers for the prose.

``say`` gives a number, written by `perfmodel.format.fmt`, a name that the prose reads with the
``{eval}`` role, and ``claim`` asserts what a sentence says in words.
"""

from __future__ import annotations

import builtins
import hashlib
import keyword
from typing import Any

from perfmodel.format import fmt

RECORD = "application/papermill.record/"  # where myst-nb looks for named results ("glue")
PAGE_TEXT = RECORD + "text/plain"


class Said(str):
    """Text for the prose. Its repr has no quotes, so a live notebook shows it as the book does."""

    def __repr__(self) -> str:
        return str.__str__(self)


def say(
    name: str,
    value: object,
    unit: str = "",
    digits: int | None = None,
    how: str = "",
    **options: Any,
) -> None:
    """Say a number: give its text to the page, and to the live notebook under `name`.

    Prose reads it with the ``{eval}`` role. Say a name once in a chapter (the build warns of a second time);
    running the same cell again is what a reader does, and works.

    Parameters
    ----------
    name : str
        A Python name that no variable of the notebook has, in ASCII, nor Python itself: it becomes a variable.
    value : real number or str
        A number goes through `fmt`; text is taken as it is, without unit, digits or options.
    unit, digits, **options
        As in `fmt`.
    how : str
        The formula in words; the page shows it as a tooltip.
    """
    _check_name(name)
    if isinstance(value, str):
        if unit or digits is not None or options:
            raise ValueError(f"say: {name}={value!r} is text already, so it takes no unit, digits or other option")
        text = value
    else:
        text = fmt(value, unit, digits, **options)
    if not text.strip():
        raise ValueError(f"say: {name} has nothing to say")
    shell = _shell()
    if shell is None:
        return
    if type(shell.user_ns.get(name, Said())) is not Said:
        raise ValueError(f"say: name={name!r} is already a variable of this notebook; say it under another name")
    shell.user_ns[name] = Said(text)
    _record(name, text, how)


def claim(condition: object, sentence: str) -> None:
    """Assert what a sentence of the prose says; a false one stops the build.

    Parameters
    ----------
    condition : bool
        Python, NumPy or SymPy truth value; nothing else is taken for one.
    sentence : str
        The claim in words. It is the error message, and is recorded with the notebook so that tests can list it.
    """
    if type(condition).__name__ not in ("bool", "bool_", "BooleanTrue", "BooleanFalse"):
        raise TypeError(
            f"claim: the condition is of type {type(condition).__name__}, neither true nor false: {sentence}"
        )
    if not sentence.strip():
        raise ValueError("claim: the sentence is empty")
    if not condition:
        raise AssertionError(f"not true: {sentence}")
    if _shell() is not None:
        _record(
            "claim-" + hashlib.sha256(sentence.encode()).hexdigest()[:12],
            sentence,
            "claim",
        )


def _check_name(name: object) -> None:
    """Refuse what cannot be a variable of the notebook, or would take a word of Python's or IPython's from it."""
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise ValueError(f"say: name={name!r} is not a Python name of ASCII letters, digits and _")
    if keyword.iskeyword(name) or hasattr(builtins, name):
        raise ValueError(f"say: name={name!r} is a word of Python's own; say it under another name")
    if name.startswith("_"):
        raise ValueError(f"say: name={name!r} starts with _, as names do that notebooks keep for themselves")


def _shell() -> Any:
    """The running notebook, or None in plain Python."""
    from IPython import get_ipython

    return get_ipython()


def _record(key: str, text: str, how: str) -> None:
    """Write a named result into the cell's output. Readers see nothing; myst-nb and the tests do."""
    from IPython.display import display

    display(
        {PAGE_TEXT: text},
        raw=True,
        metadata={"scrapbook": {"name": key, "mime_prefix": RECORD}, "how": how},
    )
