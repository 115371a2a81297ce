"""A request while an engine has it."""

from typing import Any


class Job:
    """A request's progress. `tokens` are those it has, `computed` those whose keys and values are cached."""

    __slots__ = (
        "arrival",
        "blocks",
        "cached",
        "computed",
        "done",
        "drafted",
        "filled",
        "finish",
        "first",
        "index",
        "keys",
        "last",
        "output",
        "preemptions",
        "prompt",
        "rng",
        "room",
        "scheduled",
    )

    def __init__(self, index: int, arrival: float, prompt: int, output: int) -> None:
        self.index, self.arrival, self.prompt, self.output = index, arrival, prompt, output
        self.done = 0  # output tokens
        self.computed = 0
        self.drafted = 0  # tokens that wait to be verified
        self.cached = 0  # prompt tokens that the prefix cache supplied when it was first admitted
        self.preemptions = 0
        self.scheduled: float | None = None  # times: of the first step, the first, the last token, the end
        self.first: float | None = None
        self.last = -1.0
        self.finish: float | None = None
        self.blocks: Any = None  # what it holds: a count, or ids
        self.room = 0  # tokens that its blocks can hold
        self.keys: list[int] | None = None  # of the full blocks of its prompt
        self.filled = 0  # blocks that others can find
        self.rng: Any = None

    @property
    def tokens(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt + self.done

    @property
    def total(self) -> int:
        """Tokens that it has cached when it ends; the last output token is never computed."""
        return self.prompt + max(self.output - 1, 0)

    @property
    def ended(self) -> bool:
        """Whether it has all its tokens."""
        return self.finish is not None
