"""What the built site needs beside the theme: MathJax of its own, notebooks to download, numbers by page."""

import json
import re
import shutil
from importlib.metadata import files
from pathlib import Path

import jupytext
import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from myst_nb.core.read import myst_nb_reader_plugin

EVAL = re.compile(r"\{eval\}`\s*([A-Za-z_]\w*)\s*`")
MENDS = (  # markup that screen readers stumble over, and what stands in its place
    ('<summary aria-label="Toggle hidden content">', "<summary>"),  # it hides the visible words "Show code"
    ("<th></th>", "<td></td>"),  # the corner of a pandas table heads nothing
    (' role="doc-biblioentry"', ' role="listitem"'),  # an item of the list of citations around it
)
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


def copy_mathjax(app):
    """Copy MathJax and its fonts from the installed package into the site."""
    if app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static"
    for path in files("sphinx-mathjax-offline"):
        name = path.as_posix().partition("/static/")[2]
        if name == "mathjax/tex-mml-chtml.js" or name.startswith("mathjax/output/chtml/fonts/woff-v2/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path.locate(), target / name)


def number_by_page(app, env):
    """Number figures, tables, equations and exercises from 1 on each page, as JupyterLab does in each notebook."""
    for groups in env.toc_fignumbers.values():
        for numbers in groups.values():
            for position, label in enumerate(sorted(numbers, key=numbers.get), start=1):
                numbers[label] = (position,)
    return []


def drop_repeated_ids(app, doctree, docname):
    """Exercises and solutions all carry the same two ids for their inner sections, which nothing refers to."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if name not in ("exercise-content", "solution-content")]


def note_maths_in_tables(app, doctree, docname):
    """Sphinx loads MathJax on pages with maths of its own; a computed table brings some as markup."""
    if any("mathjax_process" in markup.astext() for markup in doctree.findall(nodes.raw)):
        app.env.get_domain("math").data["has_equations"][docname] = True


def notebook(source, executed, said):
    """Return the notebook that a page offers for download.

    It is the text source with the outputs of the executed copy. Values in sentences travel as the expressions that
    jupyterlab-myst evaluates, so they show before anything is run; cells that the page hides are folded.
    """
    nb = jupytext.reads(source, fmt="md:myst")
    written, run = ([cell for cell in book.cells if cell.cell_type == "code"] for book in (nb, executed))
    for cell, done in zip(written, run, strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    for cell in nb.cells:
        if cell.cell_type == "code":
            if FOLDED & set(cell.metadata.get("tags", [])):
                cell.metadata["jupyter"] = {"source_hidden": True}
        elif cell.cell_type == "markdown" and (names := EVAL.findall(cell.source)):
            cell.metadata["user_expressions"] = [
                {"expression": name, "result": {"status": "ok", "data": {"text/plain": said[name]}, "metadata": {}}}
                for name in dict.fromkeys(names)
                if name in said
            ]
    nb.metadata.pop("jupytext", None)
    return nb


def executed(app, pagename):
    """Return a page's executed notebook. The copy that myst-nb writes lacks the outputs that it took from the cache."""
    if app.config.nb_execution_mode == "cache":
        cache, page = get_cache(app.config.nb_execution_cache_path), myst_nb_reader_plugin(app.env.doc2path(pagename))
        return cache.merge_match_into_notebook(page)[1]
    return nbformat.read(Path(app.outdir).parent / "jupyter_execute" / f"{pagename}.ipynb", as_version=4)


def offer_notebook(app, pagename, templatename, context, doctree):
    """Offer an executed chapter for download as a notebook; the theme does so only for books with a repository."""
    glue = Path(app.outdir).parent / "jupyter_execute" / f"{pagename}.glue.json"
    if doctree is None or "kernelspec" not in app.env.metadata[pagename]:
        return
    said = {}
    if glue.exists():
        for name, value in json.loads(glue.read_text(encoding="utf-8")).items():
            said[name] = value["data"].get("text/plain", "")
    source = Path(app.env.doc2path(pagename)).read_text(encoding="utf-8")
    target = Path(app.outdir) / "_sources" / f"{pagename}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(source, executed(app, pagename), said), target)
    context["ipynb_source"] = f"{pagename}.ipynb"


def mend_markup(app, pagename, templatename, context, doctree):
    """Mend what other extensions' markup withholds from screen readers."""
    for found, better in MENDS:
        if "body" in context:
            context["body"] = context["body"].replace(found, better)


def setup(app):
    app.connect("builder-inited", copy_mathjax)
    app.connect("env-get-updated", number_by_page, priority=900)
    app.connect("doctree-resolved", drop_repeated_ids)
    app.connect("doctree-resolved", note_maths_in_tables)
    app.connect("html-page-context", offer_notebook)  # before the theme draws its buttons at priority 501
    app.connect("html-page-context", mend_markup)
    app.add_js_file("course.js", loading_method="defer")
    app.add_css_file("course.css", priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
