"""Charts of the built book: a static SVG for paper and for browsers without JavaScript, a live chart for the rest.

A chapter's chart is a Vega-Lite specification in its outputs. Its ``description`` becomes the alternative text,
so a chart without one fails the build. Colours and fonts of both pictures come from ``_static/chart-theme.json``.
"""

import copy
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path

import vl_convert
from docutils import nodes
from myst_nb.core.render import load_mime_renders

MIME = "application/vnd.vegalite.v5+json"  # the newest that JupyterLab renders by itself
THEME = Path(__file__).parents[1] / "_static" / "chart-theme.json"
STATIC_WIDTH = 640  # pixels, for a chart that fills its container on the page
CONTROLS = {"range", "select", "radio", "checkbox"}  # what charts.js can draw


class chart(nodes.General, nodes.Element):  # noqa: N801 (docutils names node classes so)
    """A live chart. Attributes: ``spec`` (JSON text), ``alt``. Its only child is the static picture."""


@cache
def themes():
    """Return the Vega-Lite configurations ``light`` and ``dark``, each merged over what they share."""
    parts = json.loads(THEME.read_text(encoding="utf-8"))
    return {mode: merge(parts["common"], parts[mode]) for mode in ("light", "dark")}


def merge(base, over):
    """Return a copy of `base` in which the values of `over`, level by level, win."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return copy.deepcopy(over)
    return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}


def static_svg(spec):
    """Draw the specification as it first appears, in the light theme, at a width that fits a printed page."""
    if spec.get("width") == "container":
        spec = {**spec, "width": STATIC_WIDTH}
    return vl_convert.vegalite_to_svg(spec, config=themes()["light"])


def bindings(spec):
    """Yield the bindings of all parameters in a specification, those of nested views included."""
    if isinstance(spec, dict):
        if isinstance(spec.get("bind"), dict):
            yield spec["bind"]
        for value in spec.values():
            yield from bindings(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from bindings(value)


def problem(spec):
    """Say what the page could not show of a specification, or return None."""
    if not str(spec.get("description") or "").strip():
        return "chart without a description: the description is its alternative text"
    for bind in bindings({key: value for key, value in spec.items() if key not in ("data", "datasets")}):
        if bind.get("input") not in CONTROLS:
            return f"chart control {bind.get('input')!r}: the page can draw {', '.join(sorted(CONTROLS))}"
    return None


class ChartRenderer:
    """The myst-nb renderer of chart outputs."""

    mime_priority_overrides = [("*", MIME, 1)]

    @staticmethod
    def handle_mime(renderer, data, inline):
        if inline or data.mime_type != MIME:
            return None
        spec = {key: value for key, value in data.content.items() if key != "$schema"}
        if spec.get("usermeta", {}).get("fill"):  # a notebook needs a fixed width, the page does not
            spec["width"] = "container"
        if trouble := problem(spec):
            renderer.logger.warning(trouble, subtype="chart", line=data.line)
            return []
        text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
        svg = static_svg(spec).encode()
        name = f"chart-{hashlib.sha256(svg).hexdigest()[:16]}.svg"
        uri = renderer.write_file([name], svg, overwrite=False, exists_ok=True)
        picture = nodes.image(uri=uri, alt=spec["description"], classes=["chart-static"])
        return [chart("", picture, spec=text, alt=spec["description"])]


def visit_chart(self, node):
    self.body.append(self.starttag(node, "div", CLASS="chart"))


def depart_chart(self, node):
    spec = node["spec"].replace("<", r"\u003c")  # so that no text in it can end the script element
    self.body.append(
        f'<div class="chart-live" role="img" aria-label="{escape(node["alt"])}" hidden></div>\n'
        f'<script class="chart-spec" type="application/json">{spec}</script>\n</div>\n'
    )


def pass_through(self, node):
    """Other builders show the static picture alone."""


def write_bundle(app):
    """Write Vega, Vega-Lite, vega-embed and the themes as one classic script: modules do not load from file://."""
    if app.builder.format != "html":
        return
    target = Path(app.outdir) / "_static" / "vega-bundle.js"
    stamp = f"/* vl-convert {vl_convert.__version__} {hashlib.sha256(THEME.read_bytes()).hexdigest()} */\n"
    if target.exists() and target.read_text(encoding="utf-8").startswith(stamp):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    script = f"{stamp}(() => {{{vl_convert.javascript_bundle()}\n}})();\nwindow.chartThemes = {json.dumps(themes())};\n"
    partial = target.with_suffix(".part")
    partial.write_text(script, encoding="utf-8")
    partial.replace(target)


def load_scripts(app, pagename, templatename, context, doctree):
    """Load the scripts on the pages that have charts."""
    if doctree is not None and next(doctree.findall(chart), None):
        app.add_js_file("vega-bundle.js", loading_method="defer", priority=600)
        app.add_js_file("charts.js", loading_method="defer", priority=601)


def setup(app):
    # myst-nb finds such plugins through entry points of installed packages; this one is not packaged.
    if ChartRenderer not in load_mime_renders():
        load_mime_renders().append(ChartRenderer)
    ignore = (pass_through, pass_through)
    app.add_node(chart, html=(visit_chart, depart_chart), latex=ignore, text=ignore)
    app.connect("builder-inited", write_bundle)
    app.connect("html-page-context", load_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
