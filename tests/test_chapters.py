"""Every chapter runs, and what it says is what it said when someone last looked."""

import json

import pytest
import yaml
from jupyter_cache import get_cache
from myst_nb.core.read import myst_nb_reader_plugin

from tools import book
from tools.book import docname

GOLDEN = book.ROOT / "tests/golden"
CHAPTERS = pytest.mark.parametrize("page", book.chapters(), ids=docname)


@CHAPTERS
def test_every_cell_ran_in_order_without_error(page, site):
    cache, notebook = get_cache(book.execution_cache()), myst_nb_reader_plugin(page)
    executed = cache.get_cache_bundle(cache.match_cache_notebook(notebook).pk).nb
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        errors = [output.ename for output in cell.outputs if output.output_type == "error"]
        assert not errors or "raises-exception" in cell.metadata.get("tags", []), f"{cell.source}\n{errors}"


@CHAPTERS
def test_said_values_are_the_accepted_ones(page, said, request):
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
