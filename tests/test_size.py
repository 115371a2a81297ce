"""The package stays small enough to be read in an evening."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

import perfmodel as pm

PACKAGE = Path(pm.__file__).parent
# What reads and writes; the rest are formulas and what they are about.
PLUMBING = {"__init__", "__main__", "_entry", "data", "format", "hf", "hf_architectures", "hf_schema", "letters"}
PLUMBING |= {"_interrupt", "options", "question", "rows", "sweep", "terminal"}
CORE = sorted({path.stem for path in PACKAGE.glob("*.py")} - PLUMBING)
TEXT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(path):
    """Lines that hold code: neither blank, nor comment, nor docstring."""
    source = path.read_text("utf8")
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in TEXT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def test_the_formulas_are_an_evenings_reading():
    assert sum(code_lines(PACKAGE / f"{name}.py") for name in CORE) <= 2000


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_is_one_concept(path):
    assert len(path.read_text("utf8").splitlines()) <= 250
