"""The book's own Sphinx extensions, on small books: what they show, and what they refuse; and the charts' colours."""

import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from colour import contrast
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import myst_nb_reader_plugin
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import book

STATIC = book.ROOT / "book/_static"
CONF = """
extensions = ["myst_nb", "eval_role", "vega_charts"]
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
"""
BARS = {
    "description": "Two bars, the second twice as high as the first.",
    "data": {"values": [{"x": "a", "y": 1}, {"x": "b", "y": 2}]},
    "mark": "bar",
    "encoding": {"x": {"field": "x", "type": "nominal"}, "y": {"field": "y", "type": "quantitative"}},
    "width": 640,
    "usermeta": {"fill": True},  # as a notebook has it
}


def says(name, text, how=""):
    """A cell as `say` leaves it."""
    record = "application/papermill.record/"
    metadata = {"scrapbook": {"name": name, "mime_prefix": record}, "how": how}
    return new_code_cell(
        "say(...)",
        outputs=[new_output("display_data", {f"{record}text/plain": text}, metadata=metadata)],
        metadata={"tags": ["remove-cell"]},
    )


def draws(spec):
    """A cell as a chart leaves it."""
    data = {"application/vnd.vegalite.v5+json": spec, "text/plain": "Chart"}
    return new_code_cell("chart", outputs=[new_output("display_data", data)])


def build(folder, *cells):
    """Build a book of one executed notebook; return its page and the warnings."""
    (folder / "conf.py").write_text(CONF)
    language = {"language_info": {"name": "python", "pygments_lexer": "python"}}
    nbformat.write(new_notebook(cells=list(cells), metadata=language), folder / "index.ipynb")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-w", "warnings", ".", "out"]
    environment = os.environ | {"PYTHONPATH": str(book.ROOT / "book/_ext"), "NO_COLOR": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return (folder / "out/index.html").read_text("utf8"), (folder / "warnings").read_text("utf8")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    prose = """# A token in {eval}`tpot`

:::{contents}
:::

## At {eval}`tpot` each

It takes {eval}`tpot`, or {eval}`plain`.

| time |
|---|
| {eval}`tpot` |

:::{admonition} Title {eval}`tpot`
Body {eval}`tpot`
:::

:::{list-table} Caption {eval}`tpot`
* - cell
:::
"""
    cells = says("tpot", "41.8 ms", 'weights "over" bandwidth'), says("plain", "221"), new_markdown_cell(prose)
    folder = tmp_path_factory.mktemp("sound")
    return folder, *build(folder, *cells, draws(BARS))


def test_a_sound_book_has_no_warnings(sound):
    assert sound[2] == ""


def test_values_appear_with_their_formula(sound):
    page = sound[1]
    shown = 'class="said"{} title="weights &quot;over&quot; bandwidth">41.8 ms</span>'
    for before, anchor, after in (
        ("It takes <span ", ' id="said-tpot"', ", or"),  # the first place that can be linked to
        ("<p><span ", "", "</p></td>"),
        ('<p class="admonition-title">Title <span ', "", "</p>"),
        ("<p>Body <span ", "", "</p>"),
        ("Caption <span ", "", "</span>"),
    ):
        assert before + shown.format(anchor) + after in page
    assert 'or <span class="said" id="said-plain">221</span>.' in page


def test_headings_and_contents_stay_plain(sound):
    page = sound[1]
    assert re.search(r"<h1>.*>A token in 41\.8 ms<", page)
    assert re.search(r"<h2>.*>At 41\.8 ms each<", page)
    assert "<title>A token in 41.8 ms" in page
    assert re.search(r'<a class="reference internal" href="#[^"]+" id="[^"]+">At 41\.8 ms each</a>', page)


def test_a_chart_has_a_picture_a_place_and_its_specification(sound):
    folder, page, _ = sound
    alt = re.escape(BARS["description"])
    picture = re.search(rf'<img alt="{alt}" class="chart-static" src="([^"]+\.svg)"', page)
    svg = (folder / "out" / picture[1]).read_text("utf8")
    assert svg.count('aria-roledescription="bar"') == 2 or svg.count("<path") >= 2
    light = json.loads((STATIC / "chart-theme.json").read_text("utf8"))["light"]
    assert light["mark"]["color"] in svg
    assert re.search(rf'<div class="chart-live" role="img" aria-label="{alt}" hidden>', page)
    spec = re.search(r'<script class="chart-spec" type="application/json">(.*?)</script>', page)[1]
    assert json.loads(spec) == BARS | {"width": "container"}
    assert page.index("vega-bundle.js") < page.index("charts.js")


def test_the_build_warns_of_what_the_page_could_not_show(tmp_path):
    slider = {"name": "p", "value": 1, "bind": {"input": "color"}}
    _, warnings = build(
        tmp_path,
        says("twice", "1"),
        says("twice", "2"),
        new_markdown_cell("# Title\n\nIt takes {eval}`nope`."),
        draws(BARS | {"description": " "}),
        draws(BARS | {"params": [slider]}),
    )
    complaints = warnings.splitlines()
    for number, part in enumerate(
        ("'twice'", "nothing said 'nope' in this chapter", "chart without a description", "chart control 'color'")
    ):
        assert sum(part in line for line in complaints) == 1, f"{number}: {part} in {warnings}"
    assert all("index.ipynb" in line for line in complaints)


# ------------------------------------------------------------------------------------------- The notebook to download
CHAPTER = """---
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
:tags: [hide-input]

x = 1
```

It takes {eval}`tpot`.

```{code-cell} ipython3
say("tpot", x)
x
```
"""


def test_the_notebook_to_download_has_the_outputs_of_the_executed_chapter(tmp_path):
    """As `tools/book.py` builds: outputs come from the cache, and nobody runs the cells again."""
    (tmp_path / "index.md").write_text(CHAPTER, "utf8")
    (tmp_path / "conf.py").write_text(
        'extensions = ["myst_nb", "eval_role", "course_site"]\nhtml_theme = "alabaster"\nexclude_patterns = ["cache"]\n'
        f'nb_execution_mode = "cache"\nnb_execution_cache_path = {str(tmp_path / "cache")!r}\n'
    )
    ran = myst_nb_reader_plugin(tmp_path / "index.md")
    first, second = (cell for cell in ran.cells if cell.cell_type == "code")
    first.execution_count, second.execution_count = 1, 2
    second.outputs = [*says("tpot", "1").outputs, new_output("execute_result", {"text/plain": "1"}, execution_count=2)]
    cache = get_cache(tmp_path / "cache")
    cache.cache_notebook_bundle(CacheBundleIn(ran, "index.md", data={}))
    cache.db.dispose()
    environment = os.environ | {"PYTHONPATH": str(book.ROOT / "book/_ext"), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", ".", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    offered = nbformat.read(tmp_path / "out/_sources/index.ipynb", as_version=4)
    nbformat.validate(offered)
    _, folded, sentence, shown = offered.cells
    assert [cell.get("execution_count") for cell in (folded, shown)] == [1, 2]
    assert folded.outputs == []
    assert folded.metadata["jupyter"] == {"source_hidden": True}
    assert shown.outputs[1].data["text/plain"] == "1"
    assert sentence.metadata["user_expressions"][0]["result"]["data"] == {"text/plain": "1"}
    assert len({cell.id for cell in offered.cells}) == 4


# -------------------------------------------------------------------------------------------------- Colours and fonts
@pytest.mark.parametrize(("mode", "background"), [("light", "#ffffff"), ("dark", "#121212")])
def test_chart_colours_can_be_read_on_the_page(mode, background):
    """Lines are named in their own colour, so series need the contrast of text."""
    theme = json.loads((STATIC / "chart-theme.json").read_text("utf8"))[mode]
    text = [
        *theme["range"]["category"],
        *(style["color"] for name, style in theme["style"].items() if name != "halo"),  # a halo is the page itself
        *(theme[part][key] for part in ("axis", "legend") for key in ("labelColor", "titleColor")),
        theme["title"]["color"],
        theme["mark"]["color"],
    ]
    assert {colour: contrast(colour, background) for colour in text if contrast(colour, background) < 4.5} == {}
    assert theme["style"]["halo"]["color"] == background


def test_charts_are_set_in_the_font_of_the_page():
    css = (STATIC / "course.css").read_text("utf8")
    font = json.loads((STATIC / "chart-theme.json").read_text("utf8"))["common"]["font"]
    assert re.search(r"--course-font: (.*);", css)[1].replace('"', "'") == font
