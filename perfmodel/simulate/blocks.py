"""Blocks of the paged KV cache as a number: enough where nothing that is released is found again.

A pool has three verbs. `admit` gives a waiting request the blocks of its first tokens, and says how many tokens it need
not compute; `grow` gives a running one blocks for more; `release` takes all back. None of them gives a part: there is
room, or nothing has happened.
"""

import numpy as np

from perfmodel.simulate.job import Job
from perfmodel.simulate.requests import Integers


class CountedBlocks:
    """How many blocks each request holds.

    Parameters
    ----------
    usable : float
        Blocks that requests can hold; infinity for no limit.
    block_size : int
        Tokens of a block.
    """

    def __init__(self, usable: float, block_size: int) -> None:
        self.usable, self.block_size = usable, block_size
        self.used = 0

    @property
    def free(self) -> float:
        """Blocks that nobody holds."""
        return self.usable - self.used

    def admit(self, job: Job, tokens: int, room: int = 0, spare: int = 0) -> int | None:
        """Give a waiting request blocks for its next `tokens` tokens, if there is room for `room` tokens or more.

        `spare` blocks must stay free. Returns the tokens that the cache supplied (none), or None if there is no room.
        """
        need = -(-(job.computed + tokens) // self.block_size)
        if max(need, -(-(job.computed + room) // self.block_size)) + spare > self.free:
            return None
        self.used += need
        job.blocks = need
        job.room = need * self.block_size
        return 0

    def found(self, job: Job) -> int:
        """Tokens of `job` that the cache holds."""
        return 0

    def grow(self, job: Job, tokens: int) -> bool:
        """Give `job` blocks for its next `tokens` tokens, or none and return False."""
        need = -(-(job.computed + tokens) // self.block_size) - job.blocks
        if need > 0:
            if need > self.free:
                return False
            self.used += need
            job.blocks += need
            job.room += need * self.block_size
        return True

    def release(self, job: Job) -> None:
        """Take back all that `job` holds."""
        self.used -= job.blocks
        job.blocks = None

    def takes(self, jobs: list[Job], steps: int) -> Integers:
        """Blocks that the next steps take, one after the other, if each job decodes a token in each."""
        b = self.block_size
        first = np.array([job.room - job.computed for job in jobs])  # the step in which each needs one more
        counts = np.bincount(first[first < steps], minlength=steps)
        rows = np.zeros(-(-steps // b) * b, dtype=np.int64)
        rows[:steps] = counts[:steps]
        return rows.reshape(-1, b).cumsum(axis=0).ravel()[:steps]  # and another b steps later

    def decoded(self, jobs: list[Job], steps: int) -> None:
        """Give the blocks of those steps; there must be room."""
        for job in jobs:
            if job.computed + steps > job.room:
                self.grow(job, steps)
