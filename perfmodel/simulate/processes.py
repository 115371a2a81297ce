"""Processes that work side by side, end with their parent, and come back when one has died."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from perfmodel.simulate.requests import scalar


class Processes(Executor):
    """So many processes, by default one for each core. They start when first needed, and anew when one has died."""

    def __init__(self, workers: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(cores, 61) if workers is None else workers  # Windows waits for no more
        self.workers = int(scalar("Processes", "workers", workers, minimum=1, maximum=1000, whole=True))
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """As any executor does."""
        try:
            if self._pool is not None:
                return self._pool.submit(function, *args, **named)
        except BrokenExecutor:
            self.shutdown()
        # Not forked: the copy of a process that has threads, such as a notebook's, may hang.
        self._pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), _begin)
        with _held_back():
            return self._pool.submit(function, *args, **named)

    @property
    def broken(self) -> bool:
        """Whether a process has died, and nothing new was submitted since."""
        return self._pool is not None and bool(getattr(self._pool, "_broken", False))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes: when they have done what was submitted or, with `cancel_futures`, now."""
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()) if cancel_futures else []:
                process.kill()
            pool.shutdown(wait, cancel_futures=cancel_futures)


def _begin() -> None:
    """In a new process: Ctrl-C is its parent's business, and it ends with its parent, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


@contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C waits. So it does in processes that start meanwhile, which until `_begin` would end with a traceback."""
    mask: Any = getattr(signal, "pthread_sigmask", None)  # not on Windows
    before = mask(signal.SIG_BLOCK, {signal.SIGINT}) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
