"""The program that builds the book: what it says of a chapter that fails, and what it makes of a damaged build."""

import itertools
import json
import subprocess
import sys
import time

import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import book

HEADER = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A chapter

```{code-cell} ipython3
x = 1
```

"""  # the next cell starts in line 18, and is the second
CELL = "```{{code-cell}} ipython3\n{}\n```\n".format
FAULTS = {
    "raises": ("def f():\n    return x / 0\n\nf()", ":18: code cell 2: ZeroDivisionError: division by zero\n    f()"),
    "tagged": (
        ":tags: [raises-exception]\n\nx / 0",
        ":18: code cell 2: ZeroDivisionError: division by zero\n    x / 0",
    ),
    "half": ("x = (", ":18: code cell 2: SyntaxError"),
    "kills": ("import os\n\nos._exit(1)", ":18: code cell 2: DeadKernelError"),
    "endless": ("while True:\n    pass", ":18: code cell 2: still running after 12 s"),
    "options": (":tags: [a\n\nx", ": MystMetadataParsingError: Code cell 2 at line 18"),
}
EXECUTE = """
import json, sys
from pathlib import Path
from tools import book
book.ROOT, book.SECONDS_PER_CELL = Path(sys.argv[1]), 12
print(json.dumps(book.execute(sorted(book.ROOT.glob("*.md")), book.ROOT / "cache")))
"""
LOCK = """
import sys, time
from pathlib import Path
from tools import book
book.BUILD = Path(sys.argv[1])
with book.alone():
    print(time.time(), flush=True)
    time.sleep(float(sys.argv[2]))
    print(time.time())
"""
ROOT = book.ROOT


def python(program, *arguments):
    """Start a program beside the tests; nbclient leaves sockets open, which would fail them."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def execute(folder):
    """What `book.execute` prints and returns for the chapters of a folder."""
    run = python(EXECUTE, folder)
    printed, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    *lines, complaints = printed.splitlines()
    return lines, json.loads(complaints)


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failed")
    for name, (cell, _) in FAULTS.items():
        (folder / f"{name}.md").write_text(HEADER + CELL(cell), "utf8")
    (folder / "sound.md").write_text(HEADER, "utf8")
    return folder, *execute(folder)


@pytest.mark.parametrize("name", FAULTS)
def test_a_chapter_that_fails_is_named_with_its_cell(failed, name):
    _, _, complaints = failed
    (complaint,) = (text for text in complaints if text.startswith(f"{name}.md"))
    assert complaint.startswith(f"{name}.md{FAULTS[name][1]}")


def test_only_what_ran_without_error_is_kept(failed):
    folder, printed, complaints = failed
    assert len(complaints) == len(FAULTS)
    assert [line.split()[1] for line in printed] == ["sound.md"]
    assert len(list(folder.glob("cache/executed/*"))) == 1


@pytest.fixture
def kept(tmp_path):
    """Folder of a cache with one executed notebook."""
    cell = new_code_cell("1", execution_count=1, outputs=[new_output("execute_result", {"text/plain": "1"})])
    cache = get_cache(tmp_path / "cache")
    cache.cache_notebook_bundle(CacheBundleIn(new_notebook(cells=[cell]), "one.md", data={}))
    cache.db.dispose()
    assert len(book.opened(tmp_path / "cache").list_cache_records()) == 1  # a sound cache is kept
    return tmp_path / "cache"


def bundle(cache):
    (path,) = cache.glob("executed/*/base.ipynb")
    return path


DAMAGE = {
    "a notebook cut short": lambda cache: bundle(cache).write_text(bundle(cache).read_text("utf8")[:99], "utf8"),
    "an empty notebook": lambda cache: bundle(cache).write_text(""),
    "a file of something else": lambda cache: bundle(cache).write_text("[]"),
    "an output of no kind": lambda cache: bundle(cache).write_text(
        bundle(cache).read_text("utf8").replace("_result", "")
    ),
    "no notebook": lambda cache: bundle(cache).unlink(),
    "a broken database": lambda cache: (cache / "global.db").write_bytes(b"no database" * 999),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_cache_is_emptied(kept, capsys, damage):
    damage(kept)
    assert book.opened(kept).list_cache_records() == []
    assert not list(kept.glob("executed/*"))
    assert "damaged; all are executed again" in capsys.readouterr().out


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Folder of a build that has its pages."""
    monkeypatch.setattr(book, "HTML", tmp_path / "html")
    monkeypatch.setattr(book, "STAMP", tmp_path / "book.json")
    book.HTML.mkdir()
    (book.HTML / "index.html").touch()
    book.STAMP.write_text('{"frame": "a"}')
    assert book.last_build() == {"frame": "a"}
    return tmp_path


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"null", b'"full"', b"\0", b"\xff\xfe"])
def test_an_unreadable_record_of_the_last_build_counts_as_none(build, text):
    book.STAMP.write_bytes(text)
    assert book.last_build() == {}


def test_a_build_whose_pages_were_deleted_counts_as_none(build):
    (build / "html/index.html").unlink()
    assert book.last_build() == {}


def test_a_second_run_waits_for_the_first(tmp_path):
    texts = [run.communicate(timeout=60)[0] for run in [python(LOCK, tmp_path, 2) for _ in range(3)]]
    spans = sorted(tuple(map(float, text.splitlines()[-2:])) for text in texts)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert sum("waiting" in text for text in texts) == 2


def test_a_run_that_was_killed_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(book, "BUILD", tmp_path)
    killed = python(LOCK, tmp_path, 99)
    assert float(killed.stdout.readline()) > 0
    killed.kill()
    killed.communicate()
    start = time.monotonic()
    with book.alone():
        assert time.monotonic() - start < 5
