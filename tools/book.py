"""Build the site: `python tools/book.py`, which ends with the page to open.

Chapters are executed in parallel into a cache whose folder is named after everything that their numbers depend on
besides their own cells: the package, the data, the lock, Python. So a number cannot outlive the code that made it.
Jupyter Book then reads the cached outputs, and any warning fails the build.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "_build"
HTML = BUILD / "html"
STAMP = BUILD / "book.json"
SECONDS_PER_CELL = 120


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


def execute(pages, folder):
    """Execute the chapters that the cache lacks, as many at once as there are cores; return what went wrong."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn
    from jupyter_cache.executors.utils import single_nb_execution
    from myst_nb.core.read import myst_nb_reader_plugin

    cache, todo = get_cache(folder), []
    for page in pages:
        notebook = myst_nb_reader_plugin(page)
        try:
            cache.match_cache_notebook(notebook)
        except KeyError:
            todo.append((page, notebook))

    # Every kernel would warn that its channel on this machine is not encrypted.
    options = {"extra_arguments": ["--IPKernelApp.log_level=ERROR"]}

    def one(item):
        page, notebook = item
        try:
            return single_nb_execution(notebook, str(page.parent), SECONDS_PER_CELL, allow_errors=False, **options)
        except Exception as error:  # the kernel did not start, or died
            return error

    complaints = []
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        for (page, notebook), result in zip(todo, pool.map(one, todo), strict=True):
            name = page.relative_to(ROOT).as_posix()
            error = result if isinstance(result, Exception) else result.err
            if error:
                complaints.append(complaint(name, notebook, error))
                continue
            print(f"executed {name} in {result.time:.1f} s", flush=True)
            bundle = CacheBundleIn(notebook, str(page), data={"execution_seconds": result.time})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return complaints


def complaint(name, notebook, error):
    """Chapter, line, cell and error of a chapter that stopped."""
    cells = zip(notebook.metadata["source_map"], notebook.cells, strict=True)
    for number, (at, cell) in enumerate(((at, cell) for at, cell in cells if cell.cell_type == "code"), 1):
        for output in cell.outputs:
            if output.output_type == "error":
                trace = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output.traceback))
                line = re.search(r"Cell In\[\d+\], line (\d+)", trace)
                source = cell.source.splitlines()[int(line[1]) - 1].strip() if line else cell.source.splitlines()[0]
                return f"{name}:{at}: code cell {number}: {output.ename}: {output.evalue}\n    {source}"
    return f"{name}: {type(error).__name__}: {error}"


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

    pages = files("book", ".md")
    frame = {*code(), *files("book"), *(ROOT / name for name in ("_config.yml", "_toc.yml", "tools/book.py"))}
    frame.difference_update(pages)
    now = {"pages": digest(pages), "frame": digest(frame, *sorted(map(str, pages)))}
    last = json.loads(STAMP.read_text()) if STAMP.exists() else {}

    # Sphinx reads a page again if its own text changed. If anything else did, or the last build failed, all are read.
    full = args.full or args.fresh or last.get("frame") != now["frame"]
    done = last.items() >= now.items() and (last["full"] or not args.full) and not args.fresh
    if not done:
        STAMP.unlink(missing_ok=True)
        cache = execution_cache()
        for old in cache.parent.glob("*"):
            if args.fresh or old != cache:
                shutil.rmtree(old)
        complaints = execute(chapters(), cache)
        if complaints:
            sys.exit(
                "\n".join(
                    [
                        *complaints,
                        f"{len(complaints)} chapter(s) failed; the site was not built.",
                    ]
                )
            )
        for old in (HTML, BUILD / ".doctrees", BUILD / "jupyter_execute"):
            if full and old.exists():
                shutil.rmtree(old)
        if not sphinx(cache):
            sys.exit("The site has faults: each is named above.")
        STAMP.write_text(json.dumps(now | {"full": full}))
    print(f"The site: {(HTML / 'index.html').as_uri()}")


if __name__ == "__main__":
    main()
