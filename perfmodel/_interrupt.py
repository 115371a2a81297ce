"""Ctrl-C while the command still imports its modules ends it quietly, with the status that it has later on.

Imported before NumPy, which takes most of that time. What Python does before the first line of this package, its own
start-up of some hundredths of a second, is out of reach: a Ctrl-C there ends in Python's own words.
"""

import os
import signal
import sys
from types import FrameType


def is_command() -> bool:
    """Whether the process is `perfmodel` or `python -m perfmodel`, and not a program that uses the package.

    Of Python's arguments that is the one before those of the program.
    """
    program = [*sys.orig_argv[-len(sys.argv) :], ""][0]
    return os.path.basename(program).removesuffix(".exe") in ("perfmodel", "-mperfmodel")  # noqa: PTH119


def end(number: int, frame: FrameType | None) -> None:
    """End at once: a KeyboardInterrupt would find nobody to catch it."""
    os._exit(128 + number)


def hand_over() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again, which is caught."""
    if signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
    signal.signal(signal.SIGINT, end)
