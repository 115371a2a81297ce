"""Tables of computed numbers, as HTML that the site, JupyterLab and a screen reader all read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from perfmodel.format import THIN, fmt


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
        "number", "text", or "prose" for whole sentences; cells of kind "maths" hold LaTeX, of kind "html" markup.
    """

    title: str
    unit: str = ""
    digits: int | None = 3
    prefix: str | None = None
    kind: str = "number"

    def heading(self) -> str:
        """The heading, with the unit where the cells leave it out."""
        return self.title if self.prefix is None else f"{self.title} ({self.prefix}{self.unit})"

    def cell(self, value: Any) -> str:
        """One cell as plain text."""
        if isinstance(value, str) or self.kind != "number":
            return str(value)
        text = fmt(value, self.unit, self.digits, self.prefix, allow_inf=True)
        return text if self.prefix is None else text.removesuffix(self.prefix + self.unit).removesuffix(THIN)


class Table:
    """A finished table; a notebook shows it through `_repr_html_`."""

    def __init__(self, rows: list[dict[str, Any]], columns: dict[str, Column], caption: str) -> None:
        self.columns, self.caption = columns, caption
        self.cells = [[column.cell(row[key]) for key, column in columns.items()] for row in rows]

    def __repr__(self) -> str:
        lines = [[column.heading() for column in self.columns.values()], *self.cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.caption, *body])

    def _repr_html_(self) -> str:
        columns = list(self.columns.values())
        head = "".join(map(_head, columns))
        body = "\n".join(f"<tr>{''.join(map(_cell, columns, line, range(len(line))))}</tr>" for line in self.cells)
        return (
            f'<div class="course-table-box" tabindex="0" role="group" aria-label="{escape(self.caption)}">'
            f'<table class="course-table mathjax_process">\n<caption>{escape(self.caption)}</caption>\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
        )


def _head(column: Column) -> str:
    unit = "" if column.prefix is None else f' <span class="unit">({escape(column.prefix + column.unit)})</span>'
    return f'<th scope="col" class="{column.kind}">{escape(column.title)}{unit}</th>'


def _cell(column: Column, text: str, position: int) -> str:
    shown = text if column.kind == "html" else escape(text)
    if column.kind == "maths":
        shown = rf"\({shown}\)"
    if position == 0:
        return f'<th scope="row" class="{column.kind}">{shown}</th>'
    return f'<td class="{column.kind}">{shown}</td>'


def table(rows: Any, columns: Mapping[str, Column | str], caption: str) -> Table:
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
    return Table(_rows(rows, specs), specs, caption)


def _rows(rows: Any, columns: Iterable[str]) -> list[dict[str, Any]]:
    records = rows.to_dict("records") if hasattr(rows, "to_dict") else [dict(row) for row in rows]
    for number, row in enumerate(records, 1):
        for key in columns:
            if key not in row:
                raise ValueError(f"table: row {number} has no {key!r}; it has {', '.join(map(str, row))}")
    return records
