"""The ledger of the article's claims: `book/lab/claims.csv`, checked as it is read, quoted and rendered."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from perfmodel.course.tables import NONE, Column, Table, table
from perfmodel.format import SUPERSCRIPT, THIN

VERDICTS = (
    "reproduced",
    "rounding",
    "contradicted",
    "inconsistent",
    "unreproducible",
    "needs-source",
    "out-of-date",
)
COLUMNS = ("id", "chapter", "quantity", "source_value", "unit", "our_value", "verdict", "why", "where")
FILE = Path("book/lab/claims.csv")


@dataclass(frozen=True)
class Claim:
    """One claim of the article, and what became of it.

    `our_value` is in the article's unit unless it names its own. `where` is ``page#key``: the page below `book/`, and
    on it the name of a said number, or the label of an equation, an exercise or a section.
    """

    id: str
    chapter: str
    quantity: str
    source_value: str
    unit: str
    our_value: str
    verdict: str
    why: str
    where: str

    @property
    def page(self) -> str:
        """The page that answers the claim."""
        return self.where.partition("#")[0]

    @property
    def key(self) -> str:
        """What on that page answers it."""
        return self.where.partition("#")[2]

    @property
    def printed(self) -> str:
        """The value as the article prints it, with its unit."""
        return with_unit(self.source_value, self.unit)

    @property
    def ours(self) -> str:
        """Our value with its unit: the article's, or one of its own where it answers in another ("7.2 %")."""
        value, _, unit = self.our_value.partition(" ")
        return with_unit(value, unit or self.unit)


def with_unit(value: str, unit: str) -> str:
    """A value and its unit as a reader sees them; a count has no unit."""
    mantissa, _, exponent = value.partition("e")
    if exponent.isdigit():
        value = f"{mantissa}\u00a0×\u00a010{exponent.translate(SUPERSCRIPT)}"
    if not (value and unit):
        return value
    return f"{value}×" if unit == "x" else f"{value}{THIN}{unit}"


@cache
def claims(file: Path | None = None) -> tuple[Claim, ...]:
    """Read and check the ledger.

    Parameters
    ----------
    file : Path, optional
        The ledger; without it, `book/lab/claims.csv` of the checkout that the working folder is in.

    Raises
    ------
    ValueError
        Naming the row and the rule: an unknown verdict, an id twice, a claim not reproduced without a reason.
    """
    path = file or _find()
    try:
        found = tuple(_read(path))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: byte {error.start} is not UTF-8; save the file in that encoding") from None
    except csv.Error as error:
        raise ValueError(f"{path.name}: this is no table of comma-separated values: {error}") from None
    seen: set[str] = set()
    for claim in found:
        if claim.id in seen:
            raise ValueError(f"{path.name}: id={claim.id} stands twice")
        seen.add(claim.id)
        if claim.verdict not in VERDICTS:
            raise ValueError(f"{path.name}: {claim.id}: verdict={claim.verdict!r} must be one of {', '.join(VERDICTS)}")
        if claim.verdict not in ("reproduced", "rounding") and not claim.why.strip():
            raise ValueError(f"{path.name}: {claim.id}: why is empty; a claim that is {claim.verdict} needs a reason")
        if not (claim.page and claim.key):
            raise ValueError(f"{path.name}: {claim.id}: where={claim.where!r} must be page#key")
    return found


def _read(path: Path) -> Iterator[Claim]:
    with path.open(encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        columns = next(reader, [])
        if tuple(columns) != COLUMNS:
            raise ValueError(f"{path.name}: columns are {', '.join(columns)}; they must be {', '.join(COLUMNS)}")
        for row in reader:
            at = f"{path.name}: line {reader.line_num}"
            if len(row) != len(COLUMNS):
                raise ValueError(f"{at}: {len(row)} values; {', '.join(COLUMNS)} are {len(COLUMNS)}")
            if not row[0].strip():
                raise ValueError(f"{at}: id is empty")
            yield Claim(*row)


def _find() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / FILE).exists():
            return folder / FILE
    raise ValueError(f"{FILE} is neither in {here} nor above it; run this in a copy of the course")


def source(claim_id: str) -> str:
    """What the article prints for a claim, such as "80 ms": pages quote it from the ledger and never type it.

    Raises
    ------
    ValueError
        If the ledger has no such claim, or the claim has no value.
    """
    for claim in claims():
        if claim.id == claim_id:
            if not claim.printed:
                raise ValueError(f"claim {claim_id} has no value to quote")
            return claim.printed
    raise ValueError(f"claim {claim_id!r} is not in the ledger")


def anchor(key: str) -> str:
    """The id, on the built page, of what a `where` names."""
    if key.startswith("eq-"):
        return f"equation-{key}"
    return key if key.startswith(("ex-", "sec-")) else f"said-{key}"


def summary() -> Table:
    """How many claims got each verdict."""
    count = Counter(claim.verdict for claim in claims())
    rows = [{"verdict": verdict, "claims": count[verdict]} for verdict in VERDICTS if count[verdict]]
    columns: dict[str, Column | str] = {"verdict": "Verdict", "claims": Column("Claims", digits=None)}
    return table([*rows, {"verdict": "all", "claims": sum(count.values())}], columns, "Claims by verdict")


def render(chapter: int | str) -> Table:
    """The claims of one chapter of the article as a table whose last column links to the answer."""
    rows = [_row(claim) for claim in claims() if claim.chapter == str(chapter)]
    if not rows:
        raise ValueError(f"the ledger has no claims of chapter {chapter!r}")
    columns: dict[str, Column | str] = {
        "quantity": Column("Claim", kind="html"),
        "article": "The article",
        "ours": Column("Ours", kind="html"),
        "verdict": Column("Verdict", kind="html"),
        "why": Column("Why", kind="prose"),
    }
    return table(rows, columns, f"Claims of the article's chapter {chapter}", cards=True)


def _row(claim: Claim) -> dict[str, str]:
    link = f"../{claim.page}.html#{anchor(claim.key)}"
    ours = claim.ours or "see there"
    return {
        "quantity": f'{escape(claim.quantity)} <span class="claim-id">{claim.id}</span>',
        "article": claim.printed or NONE,
        "ours": f'<a href="{escape(link)}">{escape(ours)}</a>',
        "verdict": f'<span class="verdict verdict-{claim.verdict}">{claim.verdict.replace("-", " ")}</span>',
        "why": claim.why or NONE,
    }
