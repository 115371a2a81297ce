"""What the tests share: the built site, what its chapters said, and a browser."""

import json
import subprocess
import sys

import pytest

from tools import book, env


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="accept the numbers that the chapters now say")


@pytest.fixture(scope="session")
def site():
    """Folder of the site, every page of it checked, with warnings as errors; `make test` has built it already."""
    done = subprocess.run([sys.executable, "tools/book.py", "--full"], cwd=book.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"tools/book.py --full failed:\n{done.stdout}{done.stderr}"
    return book.HTML


@pytest.fixture(scope="session")
def chapters():
    """Paths of the text notebooks."""
    return book.chapters()


@pytest.fixture(scope="session")
def said(site, chapters):
    """What each chapter's cells said: ``said["book/serving/06-…"]["tpot"] == {"text": …, "how": …}``."""
    return {book.docname(page): _said(page) for page in chapters}


def _said(page):
    path = book.BUILD / "jupyter_execute" / f"{book.docname(page)}.glue.json"
    if not path.exists():
        return {}
    outputs = json.loads(path.read_text("utf8"))
    return {
        name: {"text": out["data"]["text/plain"], "how": out["metadata"].get("how", "")}
        for name, out in outputs.items()
        if "text/plain" in out["data"]
    }


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium, without a window and without calls of its own to other hosts."""
    from playwright.sync_api import sync_playwright

    quiet = ["background-networking", "component-update", "gpu", "quic", "sync"]
    flags = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=env.chromium(), args=flags)
        yield chromium
        chromium.close()
