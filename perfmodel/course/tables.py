"""Tables of computed numbers, as HTML that the site, JupyterLab and a screen reader all read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from perfmodel.format import fmt

NONE = "–"  # nothing to say in this cell
SHORT = 16  # characters: the heading of a row that stays on one line, on a phone too
KINDS = ("number", "text", "prose", "code", "maths", "html")


@dataclass(frozen=True)
class Column:
    r"""How a column is headed and its numbers are written.

    Attributes
    ----------
    title : str
        The heading; ``\(...\)`` in it is maths.
    unit, digits : str, int
        As in `perfmodel.format.fmt`.
    prefix : str, optional
        One prefix for the whole column: the unit then moves into the heading.
    kind : str
        "number", "text", "prose" for whole sentences, or "code" for names; cells of kind "maths" hold LaTeX, of kind
        "html" markup.
    """

    title: str
    unit: str = ""
    digits: int | None = 3
    prefix: str | None = None
    kind: str = "number"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"table: kind={self.kind!r} of column {self.title!r} is not one of {', '.join(KINDS)}")

    @property
    def around(self) -> tuple[str, str]:
        """What `fmt` writes before and after each number: ("$", "/h") or ("", " ms")."""
        before, _, after = fmt(0, self.unit, self.digits, self.prefix).partition("0")
        return before, after

    @property
    def heading_unit(self) -> str:
        """The unit that stands in the heading since the cells leave it out."""
        return "" if self.prefix is None else "".join(self.around).strip()

    def heading(self) -> str:
        """The heading as plain text."""
        return f"{self.title} ({self.heading_unit})" if self.heading_unit else self.title

    def cell(self, value: Any) -> str:
        """One cell as plain text."""
        if isinstance(value, str) or self.kind != "number":
            return str(value)
        text = fmt(value, self.unit, self.digits, self.prefix, allow_inf=True)
        if self.prefix is None:
            return text
        before, after = self.around
        return text.replace(before, "", 1).removesuffix(after)


class Table:
    """A finished table; a notebook shows it through `_repr_html_`."""

    def __init__(self, rows: list[dict[str, Any]], columns: dict[str, Column], caption: str, cards: bool) -> None:
        self.columns, self.caption, self.cards = columns, caption, cards
        self.cells = [[column.cell(row[key]) for key, column in columns.items()] for row in rows]

    def __repr__(self) -> str:
        lines = [[column.heading() for column in self.columns.values()], *self.cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.caption, *body])

    def _repr_html_(self) -> str:
        # The caption stands outside the box, so that it stays in view while a wide table scrolls.
        # Roles are spelled out because cards, made of a table by the page's style, would lose them.
        columns, caption = list(self.columns.values()), escape(self.caption)
        look = "course-table cards" if self.cards else "course-table"
        head = "".join(map(_head, columns))
        body = "\n".join(
            f'<tr role="row">{"".join(map(_cell, columns, line, range(len(line))))}</tr>' for line in self.cells
        )
        return (
            f'<figure class="course-table-frame" style="margin: 0">\n<figcaption>{caption}</figcaption>\n'
            f'<div class="course-table-box" tabindex="0" role="group" aria-label="{caption}">'
            f'<table class="{look} mathjax_process" role="table" aria-label="{caption}">\n'
            f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
            f'<tbody role="rowgroup">\n{body}\n</tbody>\n</table></div>\n</figure>'
        )


def _head(column: Column) -> str:
    unit = f' <span class="unit">({escape(column.heading_unit)})</span>' if column.heading_unit else ""
    return f'<th scope="col" role="columnheader" class="{column.kind}">{escape(column.title)}{unit}</th>'


def _cell(column: Column, text: str, position: int) -> str:
    shown = text if column.kind == "html" else escape(text)
    if column.kind == "maths":
        shown = rf"\({shown}\)"
    if column.kind == "text":
        shown = re.sub(r"/(?=\w\w\w)", "/<wbr>", shown)  # FLOP/byte may part, FLOP/s not
    if column.kind == "code":  # a long name may part after a dot or an underscore
        shown = "<code>" + re.sub("([._])", r"\1<wbr>", shown) + "</code>"
    if position == 0:
        kind = f"{column.kind} short" if len(text) <= SHORT and column.kind == "text" else column.kind
        return f'<th scope="row" role="rowheader" class="{kind}">{shown}</th>'
    kind = f"{column.kind} none" if text == NONE else column.kind  # a card leaves the line out
    return f'<td role="cell" class="{kind}" data-label="{escape(column.heading())}">{shown}</td>'


def table(rows: Any, columns: Mapping[str, Column | str], caption: str, *, cards: bool = False) -> Table:
    """Make a table.

    Parameters
    ----------
    rows : DataFrame or iterable of mappings
        One a row.
    columns : mapping of str to Column or str
        Key in a row -> how to show it, in this order; a bare heading is a column of text. The first column heads
        its row.
    caption : str
        What the table shows; it stands above, and is read out first.
    cards : bool
        On a phone each row becomes a card: for tables whose cells are sentences.

    Raises
    ------
    ValueError
        If the caption or a heading is empty, or a row lacks a column.
    """
    if not caption.strip():
        raise ValueError("table: caption is empty; it must say what the table shows")
    specs = {key: Column(spec, kind="text") if isinstance(spec, str) else spec for key, spec in columns.items()}
    for key, spec in specs.items():
        if not spec.title.strip():
            raise ValueError(f"table: column {key!r} has an empty heading; screen readers need one")
    return Table(_rows(rows, specs), specs, caption, cards)


def _rows(rows: Any, columns: Iterable[str]) -> list[dict[str, Any]]:
    records = rows.to_dict("records") if hasattr(rows, "to_dict") else [dict(row) for row in rows]
    for number, row in enumerate(records, 1):
        for key in columns:
            if key not in row:
                raise ValueError(f"table: row {number} has no {key!r}; it has {', '.join(map(str, row))}")
    return records
