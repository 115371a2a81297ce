"""Build the site: `python tools/book.py`, which ends with the page to open.

Chapters are executed in parallel into a cache whose folder is named after everything that their numbers depend on
besides their own cells: the package, the data, the lock, Python. So a number cannot outlive the code that made it.
Jupyter Book then reads the cached outputs, and any warning fails the build. A second run waits for the first, and what
a run left half done is made again.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
HTML = BUILD / "html"
STAMP = BUILD / "book.json"
SECONDS_PER_CELL = 120
SECONDS_PER_RUN = 3600


def files(folder, *suffixes):
    """Files below a folder, without the litter that editors and Python leave; all suffixes where none is named."""
    litter = {"__pycache__", ".ipynb_checkpoints"}
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and not litter & set(path.parts))
    return [path for path in found if not suffixes or path.suffix in suffixes]


def digest(paths, *more):
    """Hash of the files' names and contents, of the Python that runs, and of some more words."""
    lines = [f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths]
    return hashlib.sha256("\n".join([sys.version, *more, *sorted(lines)]).encode()).hexdigest()


def chapters():
    """The text notebooks of the book."""
    return sorted(page for page in files("book", ".md") if page.read_text("utf8").startswith("---\njupytext:"))


def docname(page):
    """Sphinx's name of a page: its path from the root, without the suffix."""
    return page.relative_to(ROOT).with_suffix("").as_posix()


def code():
    """What the numbers of every chapter depend on, besides the chapter's own cells."""
    return [*files("perfmodel", ".py", ".toml"), *files("book", ".csv", ".bib"), ROOT / "locks/book.txt"]


def execution_cache():
    """Folder of the executed chapters."""
    return BUILD / "execution" / digest(code())[:16]


@contextmanager
def alone():
    """Wait until no other run is at work. The lock, a database's, goes with its process, however that ends."""
    BUILD.mkdir(exist_ok=True)
    with closing(sqlite3.connect(BUILD / "book.lock", timeout=0, isolation_level=None)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            print("Another run is at work; waiting for it", flush=True)
            lock.execute(f"PRAGMA busy_timeout = {SECONDS_PER_RUN * 1000}")
            lock.execute("BEGIN EXCLUSIVE")
        yield


def last_build():
    """What the last build was made from; nothing if it failed, or if its record cannot be read."""
    try:
        last = json.loads(STAMP.read_text("utf8"))
    except (OSError, ValueError):
        return {}
    return last if isinstance(last, dict) and (HTML / "index.html").exists() else {}


def opened(folder):
    """The cache in a folder, emptied if anything in it cannot be read: a run was cut short, or the disk was full."""
    import nbformat
    from jupyter_cache import get_cache

    cache = get_cache(folder)
    try:
        for record in cache.list_cache_records():
            nbformat.validate(cache.get_cache_bundle(record.pk).nb)
    except Exception:  # of the database, of JSON, of the notebook format
        print(f"{folder.name}: the cache of executed chapters is damaged; all are executed again", flush=True)
        shutil.rmtree(folder)
        cache = get_cache(folder)
    return cache


def execute(pages, folder):
    """Execute the chapters that the cache lacks, as many at once as there are cores; return what went wrong."""
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.executors.utils import single_nb_execution
    from myst_nb.core.read import myst_nb_reader_plugin

    cache, todo, complaints = opened(folder), [], []
    for page in pages:
        try:
            notebook = myst_nb_reader_plugin(page)
            cache.match_cache_notebook(notebook)
        except KeyError:
            todo.append((page, notebook))
        except Exception as error:  # a header or a cell's options that are no YAML
            complaints.append(f"{page.relative_to(ROOT).as_posix()}: {type(error).__name__}: {error}")

    # Every kernel would warn that its channel on this machine is not encrypted.
    options = {"extra_arguments": ["--IPKernelApp.log_level=ERROR"]}

    def one(item):
        (page, notebook), begun = item, []
        follow = options | {"on_cell_execute": lambda cell, cell_index: begun.append(cell_index)}
        try:
            done = single_nb_execution(notebook, str(page.parent), SECONDS_PER_CELL, allow_errors=False, **follow)
        except Exception as error:  # the kernel did not start, or died
            return error, 0, begun
        return done.err, done.time, begun

    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        for (page, notebook), (error, seconds, begun) in zip(todo, pool.map(one, todo), strict=True):
            name = page.relative_to(ROOT).as_posix()
            if wrong := complaint(name, notebook, error, begun):
                complaints.append(wrong)
                continue
            print(f"executed {name} in {seconds:.1f} s", flush=True)
            bundle = CacheBundleIn(notebook, str(page), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return complaints


def complaint(name, notebook, error, begun):
    """Chapter, line, cell and error of a chapter that stopped, or in which a cell raised whatever its tags say."""
    place = name
    for number, index in enumerate(begun, 1):
        cell, place = notebook.cells[index], f"{name}:{notebook.metadata['source_map'][index]}: code cell {number}"
        for output in cell.outputs:
            if output.output_type == "error":
                trace = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output.traceback))
                line = re.search(r"Cell In\[\d+\], line (\d+)", trace)
                source = cell.source.splitlines()[int(line[1]) - 1 if line else 0].strip()
                late = type(error).__name__ == "CellTimeoutError"
                what = f"still running after {SECONDS_PER_CELL} s" if late else f"{output.ename}: {output.evalue}"
                return f"{place}: {what}\n    {source}"
    return f"{place}: {type(error).__name__}: {error}" if error else None


def sphinx(cache):
    """Run Jupyter Book as `jupyter-book build -W -n --keep-going` does, with our cache; True if nothing was wrong."""
    from jupyter_book.sphinx import build_sphinx
    from sphinx.util.console import color_terminal, nocolor

    if not color_terminal():
        nocolor()
    settings = {
        "external_toc_path": (ROOT / "_toc.yml").as_posix(),
        "latex_individualpages": False,
        "nb_execution_cache_path": str(cache),
        "nb_execution_mode": "cache",
        "nb_execution_timeout": SECONDS_PER_CELL,
        "nitpicky": True,
    }
    strict = {"warningiserror": True, "keep_going": True, "quiet": True}
    status = build_sphinx(ROOT, HTML, noconfig=True, path_config=ROOT / "_config.yml", confoverrides=settings, **strict)
    return status == 0


def main():
    parser = argparse.ArgumentParser(description="Execute the chapters and build the site into _build/html.")
    parser.add_argument("--full", action="store_true", help="check every page, not only those that changed")
    parser.add_argument("--fresh", action="store_true", help="also execute every chapter again")
    args = parser.parse_args()

    with alone():
        build(args.full, args.fresh)
    print(f"The site: {(HTML / 'index.html').as_uri()}")


def build(full, fresh):
    """Bring the site up to date, or end the program with all that is wrong."""
    pages = files("book", ".md")
    frame = {*code(), *files("book"), *(ROOT / name for name in ("_config.yml", "_toc.yml", "tools/book.py"))}
    frame.difference_update(pages)
    now = {"pages": digest(pages), "frame": digest(frame, *sorted(map(str, pages)))}
    last = last_build()
    if last.items() >= now.items() and (last.get("full") or not full) and not fresh:
        return
    # Sphinx reads a page again if its own text changed. If anything else did, or the last build failed, all are read.
    full = full or fresh or last.get("frame") != now["frame"]
    STAMP.unlink(missing_ok=True)
    cache = execution_cache()
    for old in cache.parent.glob("*"):
        if fresh or old != cache:
            shutil.rmtree(old)
    if complaints := execute(chapters(), cache):
        sys.exit("\n".join([*complaints, f"{len(complaints)} chapter(s) failed; the site was not built."]))
    if execution_cache() != cache:
        shutil.rmtree(cache)  # nobody knows which code made which number
        sys.exit("The package or its data changed while the chapters ran: run this again.")
    for old in (HTML, BUILD / ".doctrees", BUILD / "jupyter_execute"):
        if full and old.exists():
            shutil.rmtree(old)
    if not sphinx(cache):
        sys.exit("The site has faults: each is named above.")
    STAMP.write_text(json.dumps(now | {"full": full}), "utf8")


if __name__ == "__main__":
    main()
