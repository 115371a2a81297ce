"""Every chapter runs, hides no check, and says and claims what it did when someone last looked."""

import ast
import json
import re

import jupytext
import pytest
import yaml
from jupyter_cache import get_cache
from myst_nb.core.read import myst_nb_reader_plugin

from tools import book
from tools.book import docname

GOLDEN = book.ROOT / "tests/golden"
CHECKS = {"assert_same", "claim", "reference", "say", "solved"}
# What could swallow a check that fails, or pass it by. A loop may hold one: what it said and claimed is accepted below.
SHELTERS = ast.Try | ast.TryStar | ast.With | ast.If | ast.IfExp | ast.BoolOp | ast.While | ast.FunctionDef | ast.Lambda
UNRUN = {"raises-exception", "skip-execution"}  # tags under which a cell may fail, or does not run
CHAPTERS = pytest.mark.parametrize("page", book.chapters(), ids=docname)


@CHAPTERS
def test_every_cell_ran_in_order_without_error(page, site):
    cache, notebook = get_cache(book.execution_cache()), myst_nb_reader_plugin(page)
    executed = cache.get_cache_bundle(cache.match_cache_notebook(notebook).pk).nb
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        errors = [output.ename for output in cell.outputs if output.output_type == "error"]
        assert not errors, f"{cell.source}\n{errors}"


def name(call):
    """What a call calls."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def hidden(source):
    """Checks of a cell that could fail, or not run, without anybody seeing it."""
    found = []

    def visit(node, sheltered):
        if isinstance(node, ast.Call) and name(node) in CHECKS:
            certain = name(node) == "claim" and isinstance(node.args[0], ast.Constant)
            found.extend([ast.unparse(node)] if sheltered or certain else [])
        for child in ast.iter_child_nodes(node):
            visit(child, sheltered or isinstance(node, SHELTERS))

    visit(ast.parse(source), False)
    return found


def sentences(source):
    """A pattern for each sentence that a cell claims; what an f-string computes may be anything."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and name(node) == "claim":
            sentence = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg == "sentence")][0]
            parts = sentence.values if isinstance(sentence, ast.JoinedStr) else [sentence]
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in parts)


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    claim(a < b, 'so')\nexcept AssertionError:\n    pass",
        "with suppress(AssertionError):\n    claim(a < b, 'so')",
        "if False:\n    claim(a < b, 'so')",
        "if a < b:\n    pass\nelse:\n    claim(a < b, 'so')",
        "a < b and claim(a < b, 'so')",
        "claim(a < b, 'so') if a else None",
        "while a:\n    claim(a < b, 'so')",
        "def never():\n    claim(a < b, 'so')",
        "never = lambda: course.claim(a < b, 'so')",
        "for b in range(a):\n    try:\n        assert_same(a, b)\n    except AssertionError:\n        pass",
        "if False:\n    solved(check_value('ex', a))",
        "claim(True, 'so')",
        "claim(1, 'so')",
    ],
)
def test_a_check_that_could_be_passed_by_is_found(source):
    assert len(hidden(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "claim(a < b, 'so')",
        "for a in (1, 2):\n    claim(a < b, f'{a} so')",
        "x = [assert_same(a, b) for a in c]",
        "if a:\n    b",
    ],
)
def test_a_check_in_the_open_is_not(source):
    assert hidden(source) == []


def test_computed_parts_of_a_sentence_may_be_anything():
    (pattern,) = sentences("claim(a, f'At {b} (of {c}) it binds')")
    assert re.fullmatch(pattern, "At 64 (of 128) it binds")
    assert not re.fullmatch(pattern, "At 64 it binds")


@CHAPTERS
def test_no_check_can_fail_unseen(page):
    notebook = jupytext.read(page, fmt="md:myst")
    assert not {"execution", "mystnb"} & set(notebook.metadata), "the header changes how the chapter is run"
    for cell in notebook.cells:
        assert not UNRUN & set(cell.metadata.get("tags", [])), f"{cell.source}\n{cell.metadata.tags}"
        assert cell.cell_type != "code" or hidden(cell.source) == []


@CHAPTERS
def test_every_claim_of_the_source_was_made(page, said):
    made = [value["text"] for key, value in said[docname(page)].items() if key.startswith("claim-")]
    for cell in jupytext.read(page, fmt="md:myst").cells:
        for pattern in sentences(cell.source) if cell.cell_type == "code" else ():
            assert any(re.fullmatch(pattern, sentence) for sentence in made), pattern


@CHAPTERS
def test_said_values_are_the_accepted_ones(page, said, request):
    """Claims too: their keys are hashes of the sentences, so one that is deleted or no longer reached shows."""
    path = GOLDEN / f"{docname(page)}.json"
    now = {name: value["text"] for name, value in said[docname(page)].items()}
    if request.config.getoption("update_golden"):
        path.unlink(missing_ok=True)
        if now:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(now, indent=2, ensure_ascii=False) + "\n", "utf8")
    accepted = json.loads(path.read_text("utf8")) if path.exists() else {}
    names = [*accepted, *(name for name in now if name not in accepted)]
    changes = [
        f"{name}: accepted {accepted.get(name, 'nothing')}, now {now.get(name, 'nothing')}"
        for name in names
        if accepted.get(name) != now.get(name)
    ]
    assert not changes, "\n".join(["the chapter says other numbers (if they are right: make golden)", *changes])


def test_accepted_values_belong_to_a_chapter(chapters):
    known = {GOLDEN / f"{docname(page)}.json" for page in chapters}
    assert not set(GOLDEN.rglob("*.json")) - known


def test_every_page_is_in_the_contents():
    contents = yaml.safe_load((book.ROOT / "_toc.yml").read_text("utf8"))
    listed, todo = [], [contents]
    while todo:
        entry = todo.pop()
        listed += [entry[key] for key in ("root", "file") if key in entry]
        todo += [child for key in ("parts", "chapters", "sections") for child in entry.get(key, [])]
    assert sorted(listed) == sorted(docname(page) for page in book.files("book", ".md"))
