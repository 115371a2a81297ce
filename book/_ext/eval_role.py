"""The role ``{eval}`name` `` of the built book: it reads what ``say("name", ...)`` said in the same chapter.

JupyterLab evaluates the role in the running kernel. Here the value comes from the executed chapter, so that any
execution mode of the build, cached ones included, gives the same text.
"""

from docutils import nodes
from myst_nb.core.variables import RetrievalError
from myst_nb.ext.glue.utils import glue_warning, retrieve_glue_data
from myst_nb.ext.utils import RoleBase
from sphinx.transforms import SphinxTransform


class said(nodes.inline):  # noqa: N801 (docutils names node classes so)
    """A computed value in a sentence. Attribute ``how``: the formula in words, or an empty string."""


class EvalRole(RoleBase):
    """Put the text said under a name into the sentence."""

    def run(self):
        key = self.text.strip()
        # A translated paragraph is parsed again, outside its notebook: it finds the value that the original found.
        known = self.document.settings.env.temp_data.setdefault("said", {})
        try:
            output = retrieve_glue_data(self.document, key)
        except RetrievalError:
            pass
        else:
            known[key] = output.data["text/plain"], output.metadata.get("how", "")
        if key not in known:
            return [], [glue_warning(f"nothing said {key!r} in this chapter", self.document, self.line)]
        text, how = known[key]
        # The first place where a value stands can be linked to: the ledger of the article's claims does.
        anchors = self.document.settings.env.temp_data.setdefault("said anchors", set())
        ids = [] if key in anchors else [f"said-{key}"]
        anchors.add(key)
        return [said(text, text, how=how, classes=["said"], ids=ids)], []


class PlainHeadings(SphinxTransform):
    """A value in a heading is plain text, so that contents lists and page titles carry no tooltips."""

    default_priority = 800  # before the contents lists are collected, at 880

    def apply(self):
        for title in self.document.findall(nodes.title):
            if isinstance(title.parent, nodes.section):
                for node in list(title.findall(said)):
                    node.parent.replace(node, nodes.Text(node.astext()))


def visit_said(self, node):
    # The browser shows a title on hover; course.js makes it reachable by keyboard and touch too.
    attributes = {"title": node["how"]} if node["how"] else {}
    self.body.append(self.starttag(node, "span", "", **attributes))


def depart_said(self, node):
    self.body.append("</span>")


def setup(app):
    app.add_node(said, html=(visit_said, depart_said))
    app.add_role("eval", EvalRole(), override=True)
    app.add_transform(PlainHeadings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
