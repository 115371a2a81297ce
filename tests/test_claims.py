"""The ledger of the article's claims: every row leads to an answer, and the answers are right.

The pages compute our values. The evidence that they are right is `data/claims_expected.csv`: the same quantities,
worked out by hand and independently of this package from the article's inputs.
"""

import csv
import re
from html.parser import HTMLParser

import pytest

from perfmodel.course import ledger
from perfmodel.format import BINARY, PREFIXES, SI_UNITS, SUPERSCRIPT, WORDS
from tools import book

EXPECTED = book.ROOT / "tests/data/claims_expected.csv"
CLAIMS = pytest.mark.parametrize("claim", ledger.claims(book.ROOT / ledger.FILE), ids=lambda claim: claim.id)
COUNTED = {"cards", "dies", "GPUs"}  # one thing, called by three names
EVIDENCE = 0.005  # three printed digits


def expected():
    with EXPECTED.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def quantity(text, unit=""):
    """A printed quantity as (value, half a unit of its last digit, unit), in base units; None if it is no number.

    >>> quantity("41.8 ms")
    (0.0418, 5e-05, 's')
    """
    match = re.fullmatch(r"([−-]?)\$?([\d,]+(?:\.\d+)?)(?:e\+?(\d+)|\s*×\s*10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?\s*(.*)", text.strip())
    if not match:
        return None
    sign, digits, power, raised, words = match.groups()
    exponent = int(power or (raised or "0").translate({new: old for old, new in SUPERSCRIPT.items()}))
    size, base = _base(words or unit)
    decimals = len(digits.partition(".")[2])
    value = float(digits.replace(",", "")) * 10.0**exponent * size
    return (-value if sign else value), 0.5 * 10.0 ** (exponent - decimals) * size, base


def _base(unit):
    """Size of a unit in base units, and the base unit: ("ms") -> (0.001, "s")."""
    unit = {"x": "×", "TFLOPS": "TFLOP/s"}.get(unit, unit)
    first, _, rest = unit.partition(" ")
    if first in WORDS:
        return 10.0 ** WORDS[first], rest
    if unit == "%":
        return 0.01, "×"
    for prefix, size in [*BINARY.items(), *((letter, 10.0**power) for power, letter in PREFIXES.items() if letter)]:
        if unit.startswith(prefix) and unit.removeprefix(prefix).split("/")[0] in SI_UNITS:
            return size, unit.removeprefix(prefix)
    return 1.0, {"": "×"}.get(unit, "accelerators" if unit in COUNTED else unit)


@pytest.mark.parametrize(
    ("text", "unit", "value", "half", "base"),
    [
        ("41.8\u202fms", "", 0.0418, 5e-5, "s"),
        ("1,285\u202ftok/s", "", 1285, 0.5, "tok/s"),
        ("1.79e13", "FLOP", 1.79e13, 5e10, "FLOP"),
        ("1.80\u202f×\u202f10¹³\u202fFLOP", "", 1.8e13, 5e10, "FLOP"),
        ("742", "TFLOPS", 742e12, 5e11, "FLOP/s"),
        ("0.41\u202f%", "", 0.0041, 5e-5, "×"),
        ("1.05×", "", 1.05, 0.005, "×"),
        ("80\u202fGiB", "", 80 * 2**30, 2**29, "B"),
        ("2.19", "cards", 2.19, 0.005, "accelerators"),
    ],
)
def test_printed_quantities_are_read(text, unit, value, half, base):
    found = quantity(text, unit)
    assert found[:2] == pytest.approx((value, half))
    assert found[2] == base


class _Ids(HTMLParser):
    """The ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found |= {value for name, value in attrs if name == "id"}


@CLAIMS
def test_every_claim_leads_to_its_answer(claim, said, site):
    """`where` names a page, and on it a number that a sentence reads, a label, or a source that the page cites."""
    page = f"book/{claim.page}"
    source = (book.ROOT / f"{page}.md").read_text("utf8")
    if claim.key in said[page]:
        assert f"{{eval}}`{claim.key}`" in source, "the number is computed but no sentence says it"
    else:
        label = rf"^(:label: {re.escape(claim.key)}|\({re.escape(claim.key)}\)=)$"
        cited = rf"\{{cite(:\w+)?\}}`[^`]*\b{re.escape(claim.key)}\b"
        assert re.search(label, source, re.MULTILINE) or re.search(cited, source), f"{page} has no {claim.key}"
    ids = _Ids((site / f"{page}.html").read_text("utf8")).found
    assert ledger.anchor(claim.key) in ids, "the ledger's link leads nowhere"


@CLAIMS
def test_our_value_is_what_the_page_says(claim, said):
    """To the digits printed, and in the same unit: the ledger's table shows our value under the article's unit."""
    ours = quantity(claim.our_value, claim.unit)
    on_page = said[f"book/{claim.page}"].get(claim.key)
    if on_page is None:
        assert ledger.anchor(claim.key) != f"said-{claim.key}"  # an equation, exercise or section says no number
        return
    theirs = quantity(on_page["text"])
    assert ours, f"{claim.key} says {on_page['text']}, our_value is {claim.our_value!r}"
    assert ours[2] == theirs[2], f"the ledger shows {claim.our_value} {claim.unit}, the page {on_page['text']}"
    assert abs(ours[0] - theirs[0]) <= 1.001 * max(ours[1], theirs[1])


@pytest.mark.parametrize("row", expected(), ids=lambda row: row["id"])
def test_our_value_is_right(row, said):
    """Evidence: worked out independently, to half a per cent."""
    claim = next(claim for claim in ledger.claims(book.ROOT / ledger.FILE) if claim.id == row["id"])
    by_hand = quantity(row["recomputed"], row["unit"])
    on_page = said[f"book/{claim.page}"].get(claim.key)
    values = [quantity(claim.our_value, claim.unit), on_page and quantity(on_page["text"])]
    for value in filter(None, values):
        assert value[2] == by_hand[2]
        assert value[0] == pytest.approx(by_hand[0], rel=EVIDENCE), row["note"]
    assert any(values)


@CLAIMS
def test_the_verdict_fits_the_numbers(claim):
    """What is reproduced agrees to a hundredth or to the digits printed; what is contradicted does not."""
    printed, ours = quantity(claim.source_value, claim.unit), quantity(claim.our_value, claim.unit)
    if not (printed and ours) or printed[2] != ours[2] or claim.verdict not in ("reproduced", "contradicted"):
        return
    near = abs(printed[0] - ours[0]) <= max(0.01 * ours[0], printed[1] + ours[1])
    assert near == (claim.verdict == "reproduced"), f"the article {claim.source_value}, we {claim.our_value}"
