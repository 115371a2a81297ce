"""A reader's session in JupyterLab: open a chapter, run it, change a cell, read the new sentence, save."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from jupytext import TextFileContentsManager

from tools import book

CHAPTER = "book/serving/06-roofline-to-latency.md"
INPUT, CHANGED = "B = 64", "B = 65"  # one line of one cell
SAID = "tpot"  # a value that depends on it

RUN = "() => jupyterapp.commands.execute('{}')"
CELL = """text => {
  const notebook = jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = notebook.widgets.findIndex(cell =>
    cell.model.type === 'code' && cell.model.sharedModel.source.split('\\n').includes(text));
  notebook.mode = 'edit';
  return notebook.activeCell.model.sharedModel.source;
}"""
SENTENCES = """name => jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'markdown' && cell.model.sharedModel.source.includes('{eval}`' + name + '`'))
  .map(cell => cell.node.textContent)"""

ERRORS = """() => jupyterapp.shell.currentWidget.content.model.toJSON().cells.flatMap(cell => cell.outputs || [])
  .filter(output => output.output_type === 'error').map(output => output.ename + ': ' + output.evalue)"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A repository of one's own with the tree as it is, and a home without settings."""
    home = tmp_path_factory.mktemp("home")
    tree = home / "course"
    built = shutil.ignore_patterns(
        ".git", ".venv", "_build", ".*_cache", ".hypothesis", "__pycache__", ".ipynb_checkpoints"
    )
    shutil.copytree(book.ROOT, tree, ignore=built)
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "-c", "user.name=reader", "-c", "user.email=reader@example.org", "commit", "--quiet", "-m", "clone")
    return home, tree


@pytest.fixture(scope="module")
def lab(reader):
    """Address of JupyterLab, started as `make lab` does."""
    home, tree = reader
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--expose-app-in-browser"]
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="]
    with (home / "lab.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *options],
            cwd=tree,
            env=outer | {"HOME": str(home), "JUPYTER_CONFIG_PATH": str(tree / "jupyter")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        address = f"http://127.0.0.1:{port}"
        try:
            answered(f"{address}/api", server, home / "lab.log")
            yield address
        finally:
            server.terminate()
            server.wait(30)


def answered(address, server, log):
    """Wait until the server answers."""
    for _ in range(300):
        try:
            return urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            assert server.poll() is None, f"JupyterLab ended:\n{log.read_text()}"
            time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not answer:\n{log.read_text()}")


def git(tree, *command):
    return subprocess.run(["git", *command], cwd=tree, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def notebook(lab, reader, browser):
    """The chapter, opened by a double click on its name and run from top to bottom."""
    git(reader[1], "checkout", "--quiet", ".")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    strangers = []
    page.on(
        "request",
        lambda request: None if request.url.startswith((lab, "data:", "blob:")) else strangers.append(request.url),
    )
    folder, name = CHAPTER.rsplit("/", 1)
    page.goto(f"{lab}/lab/tree/{folder}?reset")
    page.locator(f".jp-DirListing-item[title*='{name}']").dblclick()
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.evaluate("() => jupyterapp.shell.currentWidget.context.ready")
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.ready")
    run(page, "notebook:run-all-cells")
    yield page
    page.close()
    assert not strangers


def run(page, command):
    """Run cells to the end; a cell that raises fails the test."""
    done = page.evaluate(RUN.format(command))
    assert page.evaluate(ERRORS) == []
    assert done


def sentence(page, text):
    """Wait until every sentence that reads the value shows the text."""
    page.wait_for_function(
        f"text => ({SENTENCES})('{SAID}').every(sentence => sentence.includes(text))", arg=text, timeout=20_000
    )


def save(page, tree):
    """Save; return what git finds changed."""
    before = (tree / CHAPTER).stat().st_mtime_ns
    page.evaluate(RUN.format("docmanager:save"))
    assert (tree / CHAPTER).stat().st_mtime_ns > before, "JupyterLab did not write the file"
    return git(tree, "diff", "--unified=0"), git(tree, "status", "--short")


@pytest.mark.parametrize("page", book.chapters(), ids=book.docname)
def test_every_chapter_is_saved_as_it_was(page, reader):
    tree = reader[1]
    path = page.relative_to(book.ROOT).as_posix()
    contents = TextFileContentsManager(root_dir=str(tree))
    model = contents.get(path, type="notebook")
    contents.save({key: model[key] for key in ("type", "format", "content")}, path)
    assert git(tree, "diff") == ""


def test_a_chapter_that_was_only_run_is_saved_as_it_was(notebook, reader, said):
    text = said[CHAPTER.removesuffix(".md")][SAID]["text"]
    sentence(notebook, text)
    assert save(notebook, reader[1]) == ("", "")


def test_the_sentence_follows_the_cell(notebook, reader, said):
    text = said[CHAPTER.removesuffix(".md")][SAID]["text"]
    sentence(notebook, text)
    source = notebook.evaluate(CELL, INPUT)
    notebook.keyboard.press("ControlOrMeta+a")
    notebook.keyboard.insert_text(source.replace(INPUT, CHANGED))
    run(notebook, "notebook:run-all-below")
    notebook.wait_for_function(f"text => ({SENTENCES})('{SAID}').every(sentence => !sentence.includes(text))", arg=text)
    for now in notebook.evaluate(SENTENCES, SAID):
        assert re.search(r"\d", now)
        assert "Error" not in now
    diff, status = save(notebook, reader[1])
    assert [line for line in diff.splitlines() if re.match(r"[-+](?![-+])", line)] == [f"-{INPUT}", f"+{CHANGED}"]
    assert status == f" M {CHAPTER}\n"
