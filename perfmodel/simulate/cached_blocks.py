"""Blocks of the paged KV cache with their contents: vLLM's prefix cache."""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from perfmodel.simulate.blocks import CountedBlocks
from perfmodel.simulate.job import Job
from perfmodel.simulate.requests import Requests

Keys = Callable[[int], list[int]]  # of the full blocks of a request's prompt


class CachedBlocks(CountedBlocks):
    """Blocks with contents: a released block is found again by its key until another request takes it.

    A block's key stands for its tokens and all before it. Only full blocks have one, as soon as the step that fills
    them is planned. Released blocks queue up, of each request the last one first; new ones are taken from the head of
    the queue, which evicts them. Two requests that compute the same block at the same time hold it twice.

    Parameters
    ----------
    keys : callable
        From the index of a request to the keys of the full blocks of its prompt, at least 0. Its other blocks, among
        them those of its output, are like nobody else's.
    """

    def __init__(self, usable: float, block_size: int, keys: Keys) -> None:
        super().__init__(usable, block_size)
        self._keys_of = keys
        self._fresh = 0  # blocks that were never held: they are at the head of the queue
        self._queue: OrderedDict[int, None] = OrderedDict()  # released, the next to be taken first
        self._holders: list[int] = []  # of each block
        self._key: list[int | None] = []  # of each block
        self._blocks: dict[int, int | dict[int, None]] = {}  # of a key: one block, or several

    def _find(self, job: Job) -> list[int]:
        """The leading blocks of a request that are cached; never all of it, since its last token is computed."""
        found = []
        for place in range((job.tokens - 1) // self.block_size):
            block = self._blocks.get(self._name(job, place))
            if block is None:
                break
            found.append(block if isinstance(block, int) else next(iter(block)))
        return found

    def _name(self, job: Job, place: int) -> int:
        """Key of a job's block; of one that is its own, a negative number."""
        if job.keys is None:
            job.keys = self._keys_of(job.index)
        return job.keys[place] if place < len(job.keys) else -(job.index * 2**40 + place + 1)

    def found(self, job: Job) -> int:
        """Tokens of `job` that the cache holds."""
        return len(self._find(job)) * self.block_size

    def admit(self, job: Job, tokens: int, room: int = 0, spare: int = 0) -> int | None:
        """As `CountedBlocks.admit`; tokens and room are counted beyond what the cache supplies."""
        hits = self._find(job) if job.computed == 0 else []
        cached = len(hits) * self.block_size
        need = -(-(job.computed + cached + tokens) // self.block_size) - len(hits)
        most = max(need, -(-(job.computed + cached + room) // self.block_size) - len(hits))
        idle = sum(not self._holders[block] for block in hits)  # they leave the queue, too
        if most + idle + spare > self.free:
            return None
        for block in hits:
            if not self._holders[block]:
                del self._queue[block]
                self.used += 1
            self._holders[block] += 1
        job.blocks = hits + self._take(need)
        job.room = len(job.blocks) * self.block_size
        job.filled = len(hits)
        self._fill(job, job.computed + cached + tokens)
        return cached

    def grow(self, job: Job, tokens: int) -> bool:
        """As `CountedBlocks.grow`."""
        end = job.computed + tokens
        need = -(-end // self.block_size) - len(job.blocks)
        if need > 0:
            if need > self.free:
                return False
            job.blocks += self._take(need)
            job.room += need * self.block_size
        self._fill(job, min(end, job.tokens))  # drafts may be rejected
        return True

    def release(self, job: Job) -> None:
        """As `CountedBlocks.release`; the last block becomes the first to be taken."""
        for block in reversed(job.blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._queue[block] = None
                self.used -= 1
        job.blocks = None

    def decoded(self, jobs: list[Job], steps: int) -> None:
        """As `CountedBlocks.decoded`, taken in the order of the steps, and in each in the order of the jobs."""
        b = self.block_size
        turns = sorted(
            (step, place) for place, job in enumerate(jobs) for step in range(job.room - job.computed, steps, b)
        )
        for (_, place), block in zip(turns, self._take(len(turns)), strict=True):
            jobs[place].blocks.append(block)
            jobs[place].room += b
        for job in jobs:
            self._fill(job, job.computed + steps)

    def _take(self, count: int) -> list[int]:
        """So many blocks from the head of the queue, which lose what they held."""
        self.used += count
        new = int(min(count, self.usable - self._fresh))
        taken = list(range(self._fresh, self._fresh + new))
        self._fresh += new
        self._holders += [1] * new
        self._key += [None] * new
        for _ in range(count - new):
            block, _ = self._queue.popitem(last=False)
            self._holders[block] = 1
            self._forget(block)
            taken.append(block)
        return taken

    def _forget(self, block: int) -> None:
        key = self._key[block]
        if key is None:
            return
        same = self._blocks[key]
        if isinstance(same, dict):
            del same[block]
        if not isinstance(same, dict) or not same:
            del self._blocks[key]
        self._key[block] = None

    def _fill(self, job: Job, tokens: int) -> None:
        """Give keys to the blocks of a job that are full when it has so many tokens."""
        for place in range(job.filled, tokens // self.block_size):
            block, key = job.blocks[place], self._name(job, place)
            self._key[block] = key
            same = self._blocks.get(key)
            if same is None:
                self._blocks[key] = block
            elif isinstance(same, dict):
                same[block] = None
            else:
                self._blocks[key] = {same: None, block: None}
        job.filled = max(job.filled, tokens // self.block_size)


def keys_of(requests: Requests, block_size: int) -> Keys:
    """The keys of a workload: of the full blocks of a prompt, from the ids of its pieces."""
    ids, offsets, unit, prompt = requests.ids, requests.offsets, requests.unit, requests.prompt
    if ids is None or offsets is None or unit is None:
        return lambda index: []
    _, ids = np.unique(ids, return_inverse=True)  # small numbers, for ids may be too large to multiply
    if unit % block_size and block_size % unit:
        raise ValueError(f"Settings: block_size={block_size} must divide unit={unit}, or be a multiple of it")
    parts = max(unit // block_size, 1)  # blocks of a piece
    pieces = max(block_size // unit, 1)  # pieces of a block

    def keys(index: int) -> list[int]:
        own = ids[offsets[index] : offsets[index + 1]][pieces - 1 :: pieces]
        named = (own[:, None] * parts + np.arange(parts)).ravel()
        found: list[int] = named[: prompt[index] // block_size].tolist()
        return found

    return keys
