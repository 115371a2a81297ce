"""Tables of computed numbers: read by people, by screen readers and as plain text."""

import math
import re

import numpy as np
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
        (Column("Time", "s", prefix="m"), 0, "0"),
        (Column("Time", "s", prefix="m"), math.inf, "∞"),
        (Column("Time", "s", prefix="m"), -math.inf, "−∞"),
        (Column("Memory", "B", prefix="Gi"), np.inf, "∞"),
        (Column("Parameters", "weights", prefix="billion"), 70.55e9, "70.6"),
        (Column("Parameters", "weights", prefix="billion"), 0, "0"),
        (Column("Work", "FLOP", prefix="10^"), 2.98e14, f"2.98{THIN}×{THIN}10¹⁴"),
        (Column("Work", "FLOP", prefix="10^"), math.inf, "∞"),
        (Column("Price", "$/h", prefix=""), 2.5, "2.50"),
        (Column("Price", "$/h", prefix=""), 0, "0"),
        (Column("Saved", "$/h", prefix=""), -2.5, "−2.50"),
        (Column("Price", "$/h"), 2.5, "$2.50/h"),
    ],
)
def test_the_unit_stands_in_the_heading_or_in_the_cell(column, value, cell):
    assert table([{"row": "a", "x": value}], {"row": "Row", "x": column}, "One").cells == [["a", cell]]


@pytest.mark.parametrize(
    ("column", "heading"),
    [
        (Column("Time", "s", prefix="m"), "Time (ms)"),
        (Column("Time", "s"), "Time"),
        (Column("Ratio", prefix=""), "Ratio"),
        (Column("Parameters", "weights", prefix="billion"), f"Parameters (billion{THIN}weights)"),
        (Column("Work", "FLOP", prefix="10^"), "Work (FLOP)"),
        (Column("Price", "$/h", prefix=""), "Price ($/h)"),
    ],
)
def test_a_heading_names_the_unit_that_its_cells_leave_out(column, heading):
    assert column.heading() == heading


def test_html_is_what_a_screen_reader_needs():
    html = table(pd.DataFrame(ROWS), COLUMNS, "Two <servers>")._repr_html_()
    assert re.findall(r'<th scope="col" role="columnheader" class="(\w+)">', html) == ["text", "number", "number"]
    assert re.findall(r'<th scope="row" role="rowheader" class="text short">([^<]*)</th>', html) == [
        "one &lt;b&gt;",
        "two",
    ]
    assert re.findall(r'<td role="cell" class="number"[^>]*>([^<]*)</td>', html)[0] == "41.8"
    assert 'tabindex="0" role="group" aria-label="Two &lt;servers&gt;"' in html  # it scrolls on a phone
    assert re.search(r'<table [^>]*aria-label="Two &lt;servers&gt;"', html)
    assert "Server &amp; model" in html
    assert not re.search(r"<t[hd][^>]*></t", html)


def test_the_caption_stays_while_the_table_scrolls():
    html = table(ROWS, COLUMNS, "Two <servers>")._repr_html_()
    before_the_box, _, box = html.partition('<div class="course-table-box"')
    assert "<figcaption>Two &lt;servers&gt;</figcaption>" in before_the_box
    assert "figcaption" not in box


def test_a_card_names_what_each_of_its_lines_is():
    html = table(ROWS, COLUMNS, "Two servers", cards=True)._repr_html_()
    assert 'class="course-table cards ' in html
    assert re.findall(r'data-label="([^"]*)"', html) == ["TPOT (ms)", "Batch"] * 2
    assert html.count('role="row"') == 3  # shown as blocks, a table would lose its rows
    assert "cards" not in table(ROWS, COLUMNS, "Two servers")._repr_html_()
    assert table([{"a": "x", "b": "–"}], {"a": "A", "b": "B"}, "None")._repr_html_().count('class="text none"') == 1


def test_long_names_may_part():
    html = table([{"a": "x", "b": "roofline.ridge_tokens<T>"}], {"a": "A", "b": Column("B", kind="code")}, "Names")
    assert "<code>roofline.<wbr>ridge_<wbr>tokens&lt;T&gt;</code>" in html._repr_html_()
    assert "FLOP/<wbr>byte" in table([{"a": "x", "b": "FLOP/byte"}], {"a": "A", "b": "B"}, "Units")._repr_html_()
    assert "FLOP/s" in table([{"a": "x", "b": "FLOP/s"}], {"a": "A", "b": "B"}, "Units")._repr_html_()


def test_only_short_row_headings_stay_on_one_line():
    rows = [{"a": "Llama-3.1-70B"}, {"a": "kernels reach a share of the bandwidth"}]
    html = table(rows, {"a": "Model"}, "Models")._repr_html_()
    assert re.findall(r'<th scope="row" [^>]*class="([^"]*)"', html) == ["text short", "text"]


def test_maths_and_markup_are_kept():
    columns = {"letter": Column("Letter", kind="maths"), "link": Column("Where", kind="html")}
    html = table([{"letter": r"\kappa < 1", "link": '<a href="#x">here</a>'}], columns, "Letters")._repr_html_()
    assert r"\(\kappa &lt; 1\)" in html
    assert '<a href="#x">here</a></td>' in html


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


def test_an_unknown_kind_of_column_is_refused():
    with pytest.raises(ValueError, match="kind='numbers' of column 'Time' is not one of number, text, prose, "):
        Column("Time", kind="numbers")
