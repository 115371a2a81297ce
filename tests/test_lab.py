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

import perfmodel as pm
from perfmodel.format import fmt
from tools import book

FOUR = pm.Deployment(  # the chapter's four hypothetical devices
    pm.Model.of_size("70B", 70e9, layers=80, heads=64, kv_heads=8, head_dim=128),
    pm.Accelerator("hypothetical", memory_capacity=80e9, memory_bandwidth=3.35e12, bf16_flops=742e12),
    tensor_parallel=4,
)
DOCNAME = "book/serving/06-roofline-to-latency"
CHAPTER = f"{DOCNAME}.md"
INPUT = "work = pm.Workload(prompt=1024, output=256, batch=1)"  # one line of one cell
CHANGED = "work = pm.Workload(prompt=2048, output=256, batch=1)"
SAID = "ttft_e2e"  # a value that depends on it

SECONDS = 60_000  # ms; how long one answer of the page may take, also of one that hangs

WIDGET = "jupyterapp.shell.currentWidget"
READY = f"() => {WIDGET}.context?.isReady && {WIDGET}.sessionContext.session?.kernel?.connectionStatus === 'connected'"
START = """command => {
  window.outcome = null;
  jupyterapp.commands.execute(command).then(done => { window.outcome = { done }; });
}"""
CELLS = f"{WIDGET}.content.widgets.map(({{ node, model }}) => ({{ node, model, source: model.sharedModel.source }}))"
ERRORS = f"""() => {CELLS}.flatMap(cell => cell.model.toJSON().outputs ?? [])
  .filter(output => output.output_type === 'error').map(output => output.ename + ': ' + output.evalue)"""
# True when every sentence that reads a value shows the text (or, asked the other way, no longer does); editors apart.
SHOWN = f"""about => {CELLS}
  .filter(cell => cell.model.type === 'markdown' && cell.source.includes('{{eval}}`' + about.name + '`'))
  .every(cell => {{
    const copy = cell.node.cloneNode(true);
    copy.querySelectorAll('.jp-Editor').forEach(editor => editor.remove());
    return copy.textContent.includes(about.text) === about.shown;
  }})"""
EDIT = f"""line => {{
  const notebook = {WIDGET}.content;
  notebook.activeCellIndex = notebook.widgets.findIndex(cell => cell.model.type === 'code'
    && cell.model.sharedModel.source.split('\\n').includes(line));
  notebook.mode = 'edit';
  return notebook.activeCell.model.sharedModel.source;
}}"""


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
    page.set_default_timeout(SECONDS)
    strangers = []
    page.on(
        "request",
        lambda request: None if request.url.startswith((lab, "data:", "blob:")) else strangers.append(request.url),
    )
    folder, name = CHAPTER.rsplit("/", 1)
    page.goto(f"{lab}/lab/tree/{folder}?reset")
    page.locator(f".jp-DirListing-item[title*='{name}']").dblclick()
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.wait_for_function(READY)
    run(page, "notebook:run-all-cells")
    yield page
    page.close()
    assert not strangers


def ask(page, question, about=None):
    """Evaluate a function in the page; unlike `evaluate`, do not wait for ever when the page hangs."""
    return page.wait_for_function(f"about => ({{ answer: ({question})(about) }})", arg=about).json_value()["answer"]


def order(page, command):
    """Carry out one of JupyterLab's commands to its end."""
    page.evaluate(START, command)
    return page.wait_for_function("() => window.outcome").json_value().get("done")


def run(page, command):
    """Run cells to the end; a cell that raises fails the test."""
    done = order(page, command)
    assert ask(page, ERRORS) == []
    assert done


def show(page, name, text, shown=True):
    """Wait until every sentence that reads a value shows the text, or no longer shows it."""
    page.wait_for_function(SHOWN, arg={"name": name, "text": text, "shown": shown})


def save(page, tree):
    """Save; return what git finds changed."""
    before = (tree / CHAPTER).stat().st_mtime_ns
    order(page, "docmanager:save")
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


def test_a_chapter_reads_in_jupyterlab_as_on_the_site_and_is_saved_as_it_was(notebook, reader, said):
    for name, value in said[DOCNAME].items():
        show(notebook, name, value["text"])
    assert save(notebook, reader[1]) == ("", "")


def test_the_sentence_follows_the_cell(notebook, reader, said):
    old = said[DOCNAME][SAID]["text"]
    show(notebook, SAID, old)
    source = ask(notebook, EDIT, INPUT)
    notebook.keyboard.press("ControlOrMeta+a")
    notebook.keyboard.insert_text(source.replace(INPUT, CHANGED))
    run(notebook, "notebook:run-all-below")
    changed = fmt(pm.prefill_time(FOUR, 2048, causal=False).total, "s")  # what the edited cell computes
    assert changed != old
    show(notebook, SAID, changed)
    diff, status = save(notebook, reader[1])
    assert [line for line in diff.splitlines() if re.match(r"[-+](?![-+])", line)] == [f"-{INPUT}", f"+{CHANGED}"]
    assert status == f" M {CHAPTER}\n"
