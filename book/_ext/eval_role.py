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
    """A computed value in a sentence. Attributes: ``key``, its name; ``how``, the formula in words or nothing."""


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
        return [said(text, text, key=key, how=how, classes=["said"])], []


class PlaceValues(SphinxTransform):
    """Values in headings become plain text, so that contents lists and page titles carry no tooltips.

    Elsewhere the first place where a value stands can be linked to: the ledger of the article's claims does.
    """

    default_priority = 700  # before lists of contents are made, at 720 and 880

    def apply(self):
        placed = set()
        for node in list(self.document.findall(said)):
            title = next((above for above in _ancestors(node) if isinstance(above, nodes.title)), None)
            if title is not None and isinstance(title.parent, nodes.section):
                node.parent.replace(node, nodes.Text(node.astext()))
            elif node["key"] not in placed:
                placed.add(node["key"])
                node["ids"].append(f"said-{node['key']}")


def _ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def visit_said(self, node):
    # The browser shows a title on hover; course.js makes it reachable by keyboard and touch too.
    attributes = {"title": node["how"]} if node["how"] else {}
    self.body.append(self.starttag(node, "span", "", **attributes))


def depart_said(self, node):
    self.body.append("</span>")


def setup(app):
    app.add_node(said, html=(visit_said, depart_said))
    app.add_role("eval", EvalRole(), override=True)
    app.add_transform(PlaceValues)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
