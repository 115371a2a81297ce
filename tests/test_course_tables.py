"""Tables of computed numbers: read by people, by screen readers and as plain text."""

import math
import re

import pandas as pd
import pytest

from perfmodel.course.tables import Column, table
from perfmodel.format import THIN

ROWS = [{"name": "one <b>", "tpot": 0.0418, "batch": 1}, {"name": "two", "tpot": 0.00104, "batch": 4096}]
COLUMNS = {
    "name": "Server & model",
    "tpot": Column("TPOT", "s", prefix="m"),
    "batch": Column("Batch", "requests", digits=None),
}


def test_cells_are_written_as_in_the_prose():
    made = table(ROWS, COLUMNS, "Two servers")
    assert made.cells == [["one <b>", "41.8", f"1{THIN}requests"], ["two", "1.04", f"4,096{THIN}requests"]]


@pytest.mark.parametrize(
    ("column", "value", "cell"),
    [
        (Column("Time", "s"), 0.0418, f"41.8{THIN}ms"),
        (Column("Ridge", "FLOP/B", prefix=""), 221.49, "221"),
        (Column("Ratio", "×", prefix=""), 1.0469, "1.05"),
        (Column("Ratio", prefix=""), 0.512, "0.512"),
        (Column("Share", "%", prefix="", digits=2), 0.75, "75"),
        (Column("Batch"), math.inf, "∞"),
        (Column("Printed"), "42 ms", "42 ms"),
    ],
)
def test_the_unit_stands_in_the_heading_or_in_the_cell(column, value, cell):
    assert table([{"row": "a", "x": value}], {"row": "Row", "x": column}, "One").cells == [["a", cell]]


def test_html_is_what_a_screen_reader_needs():
    html = table(pd.DataFrame(ROWS), COLUMNS, "Two <servers>")._repr_html_()
    assert "<caption>Two &lt;servers&gt;</caption>" in html
    assert re.findall(r'<th scope="col" class="(\w+)">', html) == ["text", "number", "number"]
    assert re.findall(r'<th scope="row" class="(\w+)">([^<]*)</th>', html) == [
        ("text", "one &lt;b&gt;"),
        ("text", "two"),
    ]
    assert re.findall(r'<td class="number">([^<]*)</td>', html)[0] == "41.8"
    assert 'tabindex="0" role="group" aria-label="Two &lt;servers&gt;"' in html  # it scrolls on a phone
    assert "Server &amp; model" in html
    assert not re.search(r"<t[hd][^>]*></t", html)


def test_maths_and_markup_are_kept():
    columns = {"letter": Column("Letter", kind="maths"), "link": Column("Where", kind="html")}
    html = table([{"letter": r"\kappa < 1", "link": '<a href="#x">here</a>'}], columns, "Letters")._repr_html_()
    assert r"\(\kappa &lt; 1\)" in html
    assert '<td class="html"><a href="#x">here</a></td>' in html


def test_plain_text_is_aligned():
    caption, head, first, second = repr(table(ROWS, COLUMNS, "Two servers")).splitlines()
    assert caption == "Two servers"
    assert len(head) == len(first) == len(second)
    assert head.split("  ")[-1].strip() == "Batch"


@pytest.mark.parametrize(
    ("rows", "columns", "caption", "said"),
    [
        (ROWS, COLUMNS, " ", "caption is empty"),
        (ROWS, {"name": ""}, "Two", "column 'name' has an empty heading"),
        (ROWS, {"ttft": Column("TTFT", "s")}, "Two", "row 1 has no 'ttft'; it has name, tpot, batch"),
        ([{"x": math.nan}], {"x": Column("X", "s")}, "One", "NaN"),
        ([{"x": None}], {"x": Column("X", "s")}, "One", "NoneType"),
        ([{"x": [1, 2]}], {"x": Column("X", "s")}, "One", "list"),
    ],
)
def test_bad_input_is_refused(rows, columns, caption, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        table(rows, columns, caption)
