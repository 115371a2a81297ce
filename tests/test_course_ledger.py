"""The ledger's reader: what it refuses, what it quotes, what it shows."""

import re

import pytest

from perfmodel.course import ledger
from perfmodel.format import THIN

HEAD = ",".join(ledger.COLUMNS)
GOOD = "c01-01,1,Ridge,206,FLOP/B,221,contradicted,Another accelerator.,serving/01-why#ridge"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a ledger into a checkout of its own, and work inside it."""

    def write(*rows, head=HEAD):
        path = tmp_path / "book/lab/claims.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([head, *rows]) + "\n", "utf8")
        (tmp_path / "book/serving").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "book/serving")
        ledger.claims.cache_clear()
        return path

    yield write
    ledger.claims.cache_clear()


def test_it_is_found_from_a_chapters_folder(write):
    write(GOOD)
    (claim,) = ledger.claims()
    assert (claim.page, claim.key) == ("serving/01-why", "ridge")
    assert ledger.source("c01-01") == f"206{THIN}FLOP/B"


def test_without_a_ledger_it_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger.claims.cache_clear()
    with pytest.raises(ValueError, match=r"book/lab/claims.csv is neither in .* nor above it"):
        ledger.claims()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([GOOD, GOOD], "id=c01-01 stands twice"),
        ([GOOD.replace("contradicted", "wrong")], "c01-01: verdict='wrong' must be one of reproduced, "),
        (
            [GOOD.replace("Another accelerator.", " ")],
            "c01-01: why is empty; a claim that is contradicted needs a reason",
        ),
        ([GOOD.replace("#ridge", "")], "c01-01: where='serving/01-why' must be page#key"),
        ([GOOD.replace("serving/01-why#", "#")], "c01-01: where='#ridge' must be page#key"),
        ([GOOD, f"{GOOD},more"], "line 3: 10 values; id, chapter, quantity, source_value, unit, our_value, verdict, "),
        ([GOOD, "c01-02,1"], "line 3: 2 values; id, "),
        ([GOOD.replace("c01-01", "")], "line 2: id is empty"),
        ([GOOD.replace("c01-01", "  ")], "line 2: id is empty"),
        ([GOOD.replace("Ridge", '"Ridge')], "this is no table of comma-separated values: unexpected end of data"),
    ],
)
def test_a_bad_row_is_named(write, rows, said):
    write(*rows)
    with pytest.raises(ValueError, match=r"^claims.csv: " + re.escape(said)) as refused:
        ledger.claims()
    assert "\n" not in str(refused.value)


def test_another_encoding_is_named(write):
    path = write(GOOD)
    path.write_bytes(path.read_bytes().replace(b"Another", "Größer".encode("latin-1")))
    with pytest.raises(ValueError, match=r"^claims.csv: byte \d+ is not UTF-8; save the file in that encoding$"):
        ledger.claims()


def test_the_columns_are_fixed(write):
    write(GOOD, head=HEAD.replace("why", "because"))
    with pytest.raises(ValueError, match="columns are"):
        ledger.claims()


@pytest.mark.parametrize("verdict", ["reproduced", "rounding"])
def test_what_agrees_needs_no_reason(write, verdict):
    write(GOOD.replace("contradicted,Another accelerator.", f"{verdict},"))
    assert ledger.claims()[0].why == ""


def test_only_what_is_there_is_quoted(write):
    write(GOOD, GOOD.replace("c01-01", "c01-02").replace("206,FLOP/B", ",FLOP/B"))
    with pytest.raises(ValueError, match="claim 'c09-99' is not in the ledger"):
        ledger.source("c09-99")
    with pytest.raises(ValueError, match="claim c01-02 has no value to quote"):
        ledger.source("c01-02")


def test_printed_values_read_like_the_prose(write):
    write(GOOD.replace("206,FLOP/B", "1.79e13,FLOP"), GOOD.replace("c01-01", "c01-02").replace("206,FLOP/B", "1.05,x"))
    assert re.sub(r"\s", " ", ledger.source("c01-01")) == "1.79 × 10¹³ FLOP"
    assert ledger.source("c01-02") == "1.05×"


def test_we_may_answer_in_another_unit(write):
    write(GOOD, GOOD.replace("c01-01", "c01-02").replace("221", "7.2 %"))
    assert [claim.ours for claim in ledger.claims()] == [f"221{THIN}FLOP/B", f"7.2{THIN}%"]


def test_the_page_shows_each_claim_with_its_verdict_and_its_answer(write):
    write(GOOD, GOOD.replace("c01-01,1", "c01-02,2").replace("contradicted", "inconsistent"))
    assert [row for row in ledger.summary().cells if row[1] != "0"] == [
        ["contradicted", "1"],
        ["inconsistent", "1"],
        ["all", "2"],
    ]
    html = ledger.render(1)._repr_html_()
    assert f'<a href="../serving/01-why.html#said-ridge">221{THIN}FLOP/B</a>' in html
    assert "contradicted" in html
    assert "Another accelerator." in html
    assert "c01-02" not in html
    with pytest.raises(ValueError, match="no claims of chapter 9"):
        ledger.render(9)
