"""Exercises: each has a solution that runs and is checked, and its check refuses what is wrong."""

import ast
import contextlib
import math
import re

import jupytext
import pytest
import sympy as sp

from perfmodel.course import exercise
from perfmodel.course.exercise import check_formula, check_value
from tools import book

DIRECTIVE = re.compile(
    r"^(`{3,}|:{3,})\{(exercise|solution)(?:-start)?\}[ ]*(.*)\n((?::[\w-]+:.*\n)*)((?:.*\n)*?)\1$", re.MULTILINE
)
WITH_EXERCISES = [page for page in book.chapters() if "{exercise}" in page.read_text("utf8")]
CHAPTERS = pytest.mark.parametrize("page", WITH_EXERCISES, ids=book.docname)


def directives(page, kind):
    """(title or target, options, body, what follows up to the next directive) of each exercise or solution."""
    text = page.read_text("utf8")
    found = list(DIRECTIVE.finditer(text))
    for match, after in zip(found, [*found[1:], None], strict=True):
        if match[2] == kind:
            options = dict(re.findall(r"^:([\w-]+):[ ]*(.*)$", match[4], re.MULTILINE))
            yield match[3].strip(), options, match[5], text[match.end() : after.start() if after else len(text)]


def code(page):
    """Source of each code cell."""
    return [cell.source for cell in jupytext.read(page, fmt="md:myst").cells if cell.cell_type == "code"]


def checks(source):
    """Labels that a piece of code checks, inside `solved`: a wrong solution stops the build."""
    return re.findall(r"solved\(\s*check_(?:value|formula)\(\s*\"([\w-]+)\"", source)


@pytest.fixture(scope="module")
def references():
    """Page -> the answers that its cells register; the cells run here, as they do in the book."""
    found = {}
    for page in WITH_EXERCISES:
        exercise.REFERENCES.clear()
        names = {}
        with contextlib.chdir(page.parent):
            for source in code(page):
                exec(compile(source, str(page), "exec"), names)
        found[page] = dict(exercise.REFERENCES)
    return found


def test_there_are_chapters_with_exercises():
    assert WITH_EXERCISES


@CHAPTERS
def test_every_exercise_has_a_label_and_a_folded_solution(page):
    labels = [options.get("label") for _, options, _, _ in directives(page, "exercise")]
    assert all(labels)
    assert len(labels) == len(set(labels)) == page.read_text("utf8").count("{exercise}")
    solutions = {target: options for target, options, _, _ in directives(page, "solution")}
    assert list(solutions) == labels
    assert all("dropdown" in options.get("class", "") for options in solutions.values())


@CHAPTERS
def test_every_kind_of_exercise_is_there(page):
    titles = " ".join(title for title, *_ in directives(page, "exercise"))
    stars = [len(run) for run in re.findall("★+", titles)]
    assert [stars.count(n) for n in (1, 2, 3)] >= [2, 3, 1]
    assert titles.count("◆") == 1


@CHAPTERS
def test_every_solution_is_worked_out_in_a_cell_and_checked(page, references):
    """The cell stands right after the solution, and passes its result through the check that the student calls."""
    solutions = {target: checks(after) for target, _, _, after in directives(page, "solution")}
    for label in references[page]:
        assert label in solutions[label], f"the solution of {label} is not checked"
    assert {label for source in code(page) for label in checks(source)} == set(references[page])


@CHAPTERS
def test_every_answer_is_registered_before_it_is_checked(page):
    sources = code(page)
    for position, source in enumerate(sources):
        for label in checks(source):
            assert any(f'reference("{label}"' in earlier for earlier in sources[:position]), label


@CHAPTERS
def test_no_answer_is_typed(page):
    """References are computed by the package: no number stands where the value belongs."""
    calls = [
        node
        for source in code(page)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "reference"
    ]
    assert calls
    for call in calls:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        for value in (given.get("value"), given.get("function")):
            inside = list(ast.walk(value)) if value else []
            assert not value or any(isinstance(node, ast.Name) for node in inside), ast.unparse(call)
            assert not any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in inside)


def wrong(expected):
    """Answers that are none."""
    return [
        expected * 2, expected / 2, expected * 1000, -expected, 0, expected + 1e3 * expected,
        math.nan, math.inf, None, ..., "abc", str(expected), True, [expected], {}, 1j, sp.Symbol("x"), lambda: expected,
    ]  # fmt: skip


@CHAPTERS
def test_checks_accept_the_answer_and_nothing_else(page, references):
    exercise.REFERENCES.update(references[page])
    for label, expected in references[page].items():
        if expected.value is not None:
            assert check_value(label, expected.value).ok
            verdicts = [check_value(label, answer) for answer in wrong(expected.value)]
        else:
            # A student writes a function of named arguments; build one for each wrong formula.
            def answering(formula, names=tuple(expected.symbols)):
                return eval(f"lambda {', '.join(names)}: formula", {"formula": formula})

            right = expected.expression
            assert check_formula(label, answering(right)).ok
            formulas = [2 * right, right / 2, right + 1, right**2, None, "abc", sp.nan, sp.Integer(1)]
            verdicts = [check_formula(label, answering(formula)) for formula in formulas]
            verdicts += [check_formula(label, answer) for answer in (None, right, "abc", lambda: 1 / 0, lambda q: q)]
        assert not [verdict for verdict in verdicts if verdict.ok or not verdict.text], label
        assert all("\n" not in verdict.text for verdict in verdicts)
