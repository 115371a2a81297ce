"""Sentences hold no typed results, pictures have words, and a letter means one thing."""

import ast
import re

import jupytext
import prose
import pytest
from jupyter_cache import get_cache
from myst_nb.core.read import myst_nb_reader_plugin

import perfmodel as pm
from tools import book

PAGES = pytest.mark.parametrize("page", book.files("book", ".md"), ids=book.docname)
CHAPTERS = pytest.mark.parametrize("page", book.chapters(), ids=book.docname)
CHARTS = {"lines", "live", "roofline", "stacked_bars"}


@pytest.mark.parametrize(
    "sentence",
    [
        "It takes 42 ms.",
        "It takes 42\u202fms.",
        "It takes 42ms.",
        "A step of 3 tokens.",
        "It is 1.05× as long.",
        "It is 2x faster.",
        "Memory is 80 % full.",
        "Memory is 80% full.",
        "It has 70 billion parameters.",
        "A 70B model.",
        "A context of 4K.",
        "It costs $3 a day.",
        "Up to 64 at once.",
        "A prompt of 2048.",
        "A prompt of 2,048 is long.",
        "A share of 0.5 is lost.",
        "At 3.35 TB/s.",
        "At 742 TFLOP/s.",
        "The maximum is 1 GiB",
        "**42 ms**",
        "# Why 42 ms?",
        "- an item of 42 ms",
        "| a cell | 42 ms |",
        "with `42 ms` in code",
        "see [42 ms](elsewhere.md)",
        "![a chart that ends at 42 ms](chart.svg)",
        "$T = 0.042$",
        "$T = 42\\,\\mathrm{ms}$",
        "$S = 2048$",
        "$$S = 2{,}048$$",
        "```{math}\n:label: eq-x\nT = 41.8\n```",
        ":::{note} After 42 ms\nNothing.\n:::",
        ":::{note}\n:class: tip\n\nAfter 42 ms.\n:::",
        "```{exercise} How long are 42 ms?\n:label: ex-x\nThink.\n```",
        "```{exercise}\n:label: ex-x\n\nA prompt of 300 words.\n```",
        "```{figure} x.svg\n:alt: it ends at 42 ms\n```",
        "{eval}`tpot` is not 42 ms.",
        "He found it {cite:p}`someone`. It takes 42 ms.",
        "A sentence that\ngoes on for 42\nms.",
        "It takes 42 milliseconds.",
        "A 42-millisecond step.",
        "*42 ms*",
        "_42 ms_",
        "<b>42 ms</b>",
        "~42 ms",
        "1e9 operations.",
        "10⁹ operations.",
        "3/4 of the time.",
        "1½ of it.",
        "10 000 at once.",
        "10’000 at once.",
        "US$ 3 a day.",
        "£3 a day.",
        "On 12 chips.",
        "For 2 weeks.",
        "Twelve milliseconds.",
        "A two-second wait.",
        "Forty-two gigabytes.",
        "Seventy billion parameters.",
        "It is ten times faster.",
        "Half a second.",
        "`42ms` in code",
        "$42$ ms",
        "$42\\%$",
        "$L = 80$, as before",
        '[elsewhere](elsewhere.md "after 42 ms")',
        "<abbr title='42 ms'>TPOT</abbr>",
        '<img src="a.png" alt="a chart that ends at 42 ms">',
        "{abbr}`TPOT (42 ms)`",
        "```{image} x.svg\n:alt: it ends at 42 ms\n```",
        ":::{figure} x.svg\n:alt: a chart\n\nIt ends at 42 ms.\n:::",
        "```{list-table} After 42 ms\n* - cell\n```",
        "```{list-table} Title\n* - 42 ms\n  - cell\n```",
        "`````{tab-set}\n````{tab-item} At 42 ms\nNothing.\n````\n`````",
        "Term\n: a definition of 42 ms",
        "[^note]: 42 ms in a footnote",
        "> 42 ms quoted",
    ],
)
def test_a_typed_quantity_is_refused(sentence):
    assert len(prose.findings(f"Before.\n\n{sentence}\n\nAfter.")) == 1


@pytest.mark.parametrize("sentence", ["Between 40-50 ms.", "Between 40–50 ms.", "From 40 to 50 ms.", "It is 13/14."])
def test_a_range_is_refused(sentence):
    assert prose.findings(f"Before.\n\n{sentence}\n\nAfter.")


@pytest.mark.parametrize(
    "text",
    [
        "It takes {eval}`tpot`.",
        "The paper measured 42 ms {cite:p}`someone2024`.",
        "{cite:t}`someone2024` measured 42 ms.",
        "Two of the 3 steps, and twelve more.",
        "In 2024 it was new.",
        "See Section 7.2, Chapters 9 and 10, and Step 3.",
        "Python 3.11; the text is under CC BY 4.0.",
        "Llama-2-70B, Llama-3.1-8B and Llama 3.1 on an H100, an A100 or a 910C.",
        "16-bit weights, 8-bit arithmetic, all in 16 bits.",
        "A multiply-add is two FLOPs.",
        "$2 N S + 4 S^2 H_q D L$ and $\\max(b_w / \\beta, 10^{12})$",
        "```{math}\n:label: eq-2048\nT = 2 N / \\beta\n```",
        "```{math}\n:label: eq-x\nT = 64\\,N\n```",
        "```{code-cell} ipython3\n:tags: [hide-input]\n\nx = 42  # ms\n```",
        "```\n42 ms\n```",
        "````{note}\n```python\nx = '42 ms'\n```\n````",
        "(sec-2048)=",
        "% a comment of 42 ms",
        "<https://example.org/2048>",
        "[elsewhere](https://example.org/2048)",
        "{doc}`../lab/2048`",
        "1. first\n2. second\n13. thirteenth",
        "`--tp 4 --prompt 1024`",
        "The 99th percentile, p99, a 1st and a 2nd.",
        "Two FLOPs, two halves, four H100s, sixty-four users, two bytes an element, many times.",
        "$L = 2 N$, $x = 64\\,N$ and $q > 1$",
        "An `a_42` of H100-80GB.",
        "| A | B |\n|---|---|\n| {eval}`a` | {eval}`b` |",
        ":::{note}\n:class: w-2048\n:name: n-512\nNothing.\n:::",
    ],
)
def test_what_is_no_result_may_be_typed(text):
    assert prose.findings(f"Before.\n\n{text}\n\nAfter.") == []


def test_a_finding_says_where():
    (found,) = prose.findings("---\ntitle: 42 ms\n---\n\n# Title\n\nOne.\nTwo are 42 ms. Three.\n")
    assert found == (7, "42 ms", "Two are 42 ms.")


@PAGES
def test_no_sentence_holds_a_typed_quantity(page):
    found = prose.findings(page.read_text("utf8"))
    assert not found, "\n".join(f"{page.name}:{line}: {typed!r} in: {sentence}" for line, typed, sentence in found)


def cells(page):
    """Source and syntax tree of each code cell."""
    for cell in jupytext.read(page, fmt="md:myst").cells:
        if cell.cell_type == "code":
            yield cell.source, ast.parse(cell.source)


def calls(tree):
    """Name and node of each call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


def words(node):
    """Text of a string or f-string, with ‹said› for what is computed; empty for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "‹said›" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@CHAPTERS
def test_no_caption_or_description_holds_a_typed_quantity(page):
    """Words around charts and tables are prose too, though they stand in cells: an f-string computes their numbers."""
    texts = []
    for _, tree in cells(page):
        for name, call in calls(tree):
            texts += [words(given.value) for given in call.keywords if given.arg in ("title", "description", "caption")]
            texts += [words(argument) for argument in call.args[2:3] if name == "table"]
            texts += [words(argument) for argument in call.args[1:2] if name == "say"]
            texts += [words(argument) for argument in call.args[:1] if name in ("Markdown", "HTML", "Latex")]
    found = [f"{finding.typed!r} in: {text}" for text in texts for finding in prose.findings(text)]
    assert not found, "\n".join(found)


@CHAPTERS
def test_every_chart_is_described(page, site):
    """In the executed chapter, and by its author: each call that draws one passes a description."""
    cache, notebook = get_cache(book.execution_cache()), myst_nb_reader_plugin(page)
    executed = cache.get_cache_bundle(cache.match_cache_notebook(notebook).pk).nb
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    specs = [data for out in outputs for mime, data in out.get("data", {}).items() if "vegalite" in mime]
    assert all(len(spec.get("description", "").split()) >= 5 for spec in specs)
    drawing = [call for _, tree in cells(page) for name, call in calls(tree) if name in CHARTS]
    assert all("description" in {keyword.arg for keyword in call.keywords} for call in drawing)
    assert len(specs) >= len(drawing)


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        ("![](a.svg)", "no alternative text"),
        ("![ ](a.svg)", "no alternative text"),
        ("text ![][a] text", "no alternative text"),
        ('<img src="a.svg">', "no alternative text"),
        ('<p><img src="a.svg" alt=""></p>', "no alternative text"),
        ("```{image} a.svg\n```", "no alternative text"),
        ("```{image} a.svg\n:width: 99px\n:alt:\n```", "no alternative text"),
        (":::{figure} a.svg\n:name: a\n\nA caption of `:alt: words`.\n:::", "no alternative text"),
        ("- item\n\n  ```{figure} a.svg\n  :name: a\n  ```", "no alternative text"),
        ("~~~{image} a.svg\n~~~", "no alternative text"),
        ("![It ends at {eval}`tpot`](a.svg)", "{eval} is not evaluated"),
        ("<img alt='It ends at {eval}`tpot`' src='a.svg'>", "{eval} is not evaluated"),
        ("```{figure} a.svg\n:alt: it ends at {eval}`tpot`\n```", "{eval} is not evaluated"),
    ],
)
def test_a_picture_without_words_is_refused(picture, said):
    ((line, problem),) = prose.undescribed(f"Before.\n\n{picture}\n")
    assert line >= 3
    assert said in problem


@pytest.mark.parametrize(
    "picture",
    [
        "![A chart](a.svg)",
        "![A chart][a]",
        '<img src="a.svg" alt="A chart">',
        "```{image} a.svg\n:width: 99px\n:alt: A chart\n```",
        ":::{figure} a.svg\n:name: a\n:alt: A chart\n\nA caption of {eval}`tpot`.\n:::",
    ],
)
def test_a_picture_with_words_is_taken(picture):
    assert prose.undescribed(f"Before.\n\n{picture}\n") == []


@PAGES
def test_every_picture_is_described(page):
    assert prose.undescribed(page.read_text("utf8")) == []


LETTERS = {letter.symbol for letter in pm.notation()}


def letters(page):
    """Line and letters of each symbol that a page's cells make; a line may call them local, as an index is."""
    for source, tree in cells(page):
        for name, call in calls(tree):
            if name in ("symbols", "Symbol") and ast.unparse(call.func).startswith("sp."):
                named = words(call.args[0]) or ast.unparse(call.args[0])
                yield source.splitlines()[call.lineno - 1], set(re.split(r"[\s,]+", named.strip()))


@CHAPTERS
def test_cells_use_the_letters_of_the_notation(page):
    for line, made in letters(page):
        assert made <= LETTERS | {"letter", "letter.symbol"} or "# local: " in line, f"{made - LETTERS} in: {line}"


@CHAPTERS
def test_sentences_use_the_letters_of_the_notation(page):
    """A letter that stands alone in a sentence is in the notation, or local to a cell of the page."""
    known = LETTERS.union(*(made for line, made in letters(page) if "# local: " in line))
    for line, block in prose.blocks(page.read_text("utf8")):
        for maths in re.findall(r"(?<!\$)\$([^$]+)\$(?!\$)", block):
            if re.fullmatch(r"([A-Za-z]|\\[a-z]+|\\[A-Z][a-z]+)(_(\w|\{(\\(mathrm|text)\{)?\w+\}+))?", maths):
                letter = re.sub(r"\\(mathrm|text)|[\\{}]", "", maths)
                assert letter in known, f"{page.name}:{line}: ${maths}$ is not in the notation"


def test_a_letter_has_one_meaning():
    symbols = [letter.symbol for letter in pm.notation()]
    assert sorted(symbols) == sorted(set(symbols))
    assert all(letter.meaning and letter.unit for letter in pm.notation())
    assert not [letter.meaning for letter in pm.notation() if "`" in letter.meaning]  # the table is no docstring
