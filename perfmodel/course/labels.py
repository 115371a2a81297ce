"""Where the labels of a chart stand, so that they keep out of each other's way and off the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

HEIGHT = 300  # pixels of every chart; the width is the page's
WIDTHS = (220, 640)  # of the plot on a phone and on a desk: labels must fit both
CHARACTER = 6  # mean width of a character at 12 px
EDGE = 0.98  # further right than this, a line ends at the edge of the plot
Spot = tuple[float, float]  # a place in the plot: 0, 0 is its upper left corner and 1, 1 the lower right one
Box = tuple[float, float, float, float]
# The sides of its point where a label may stand (align, dx, dy), the pleasantest first.
SIDES = [
    ("left", 10, 0),
    ("center", 0, -15),
    ("center", 0, 17),
    ("right", -10, 0),
    ("left", 8, 14),
    ("left", 8, -14),
    ("right", -8, -14),
    ("right", -8, 14),
    ("left", 18, 0),
    ("right", -18, 0),
]


@dataclass(frozen=True)
class Label:
    """A text and where it might stand."""

    text: str
    at: Spot
    align: str = "left"
    dx: float = 0
    dy: float = 0

    @property
    def mark(self) -> dict[str, Any]:
        """Properties of the text mark."""
        return {"align": self.align, "dx": self.dx, "dy": self.dy}

    @property
    def width(self) -> float:
        """Its length in pixels."""
        return len(self.text) * CHARACTER

    def box(self, plot: int) -> Box:
        """Left, top, right and bottom in a plot of that width."""
        left = self.at[0] * plot + self.dx - {"left": 0, "center": self.width / 2, "right": self.width}[self.align]
        middle = self.at[1] * HEIGHT + self.dy
        return left, middle - 7, left + self.width, middle + 7


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move label heights (pixels) apart until no two are nearer than `gap`."""
    moved = list(heights)
    order = sorted(range(len(moved)), key=lambda i: moved[i])
    for _ in range(200):
        for above, below in pairwise(order):
            lacking = max(0.0, gap - (moved[below] - moved[above]))
            moved[above] -= lacking / 2
            moved[below] += lacking / 2
    return moved


def place(
    texts: Iterable[str], points: Sequence[Spot], drawn: Sequence[Spot], taken: Sequence[Label] = ()
) -> list[Label]:
    """Choose for each label the side of its point where it covers least of the points, labels and lines there."""
    options = [[Label(text, point, *side) for side in SIDES] for text, point in zip(texts, points, strict=True)]
    chosen = [sides[0] for sides in options]
    marks = [*taken, *(Label("oo", point, "center") for point in points)]
    for _ in range(4):  # each in turn, given where the others now stand
        for i, sides in enumerate(options):
            chosen[i] = quietest(sides, marks + chosen[:i] + chosen[i + 1 :], drawn)
    return chosen


def at_ends(texts: Sequence[str], ends: Sequence[Spot], drawn: Sequence[Spot]) -> list[Label]:
    """Labels of lines: beside the plot where a line reaches its edge, and where there is room where it does not."""
    edge = [i for i, (x, _) in enumerate(ends) if x > EDGE]
    heights = spread([ends[i][1] * HEIGHT for i in edge], 15)
    labels = {
        i: Label(texts[i], ends[i], "left", 7, y - ends[i][1] * HEIGHT) for i, y in zip(edge, heights, strict=True)
    }
    for i in range(len(texts)):
        if i not in labels:
            sides = [Label(texts[i], ends[i], *side) for side in SIDES]
            labels[i] = quietest(sides, list(labels.values()), drawn)
    return [labels[i] for i in range(len(texts))]


def quietest(options: Sequence[Label], taken: Sequence[Label], drawn: Sequence[Spot]) -> Label:
    """The option that covers least, on a phone and on a desk; of equals the first."""
    lines = np.array(drawn)

    def cost(label: Label) -> float:
        total = 0.0
        for width in WIDTHS:
            left, top, right, bottom = box = label.box(width)
            total += 14 * (max(0, -left) + max(0, right - width) + max(0, -top) + max(0, bottom - HEIGHT))
            total += sum(_overlap(box, other.box(width)) for other in taken)
            x, y = lines[:, 0] * width, lines[:, 1] * HEIGHT
            total += 10 * np.count_nonzero((left - 1 < x) & (x < right + 1) & (top - 1 < y) & (y < bottom + 1))
        return total

    return min(options, key=lambda label: round(cost(label)))


def trace(corners: Sequence[Spot], samples: int = 300) -> list[Spot]:
    """A line as a row of places: dense where a label must not cross it."""
    steps, (xs, ys) = np.linspace(0, len(corners) - 1, samples), np.transpose(corners)
    known = range(len(corners))
    return list(zip(np.interp(steps, known, xs), np.interp(steps, known, ys), strict=True))


def _overlap(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
