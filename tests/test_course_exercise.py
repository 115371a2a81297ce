"""Replies to answers: right ones pass, wrong ones get a sentence that helps and gives nothing away."""

import math
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pint
import pytest
import sympy as sp
from sympy.physics.units import second

from perfmodel.course import exercise
from perfmodel.course.exercise import check_formula, check_value, reference, solved
from perfmodel.format import THIN

N, B, H_q, H_kv = sp.symbols("N B H_q H_kv", positive=True)
TIME = 0.0417910447761194


@pytest.fixture(autouse=True)
def exercises():
    exercise.REFERENCES.clear()
    reference("ex-time", value=TIME, unit="s", hints={sp.Rational(5, 3): "The wrong accelerator."})
    reference("ex-batch", function=lambda N, B: sp.Max(2 * N, N * B), symbols=(N, B))
    reference("ex-kv", function=2 * N * H_kv, symbols=(N, H_kv, H_q), hints={H_q / H_kv: "Caches belong to KV heads."})
    yield
    exercise.REFERENCES.clear()


@pytest.mark.parametrize("answer", [TIME, 0.0418, sp.Rational(418, 10000), np.float64(TIME), np.array(TIME)])
def test_a_right_value_passes(answer):
    verdict = check_value("ex-time", answer)
    assert verdict.ok
    assert repr(verdict) in (f"✓ Right: 41.79{THIN}ms.", f"✓ Right: 41.80{THIN}ms.")
    assert 'course-check-right" role="status">✓ Right' in verdict._repr_html_()
    assert solved(verdict) is verdict


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (2, "Twice the answer"),
        (1 / 2, "keys and values are two"),
        (8, "bits where bytes"),
        (1 / 8, "bytes where bits"),
        (1000, "prefix of the unit"),
        (1 / 1000, "prefix of the unit"),
        (2**30 / 1e9, "GiB"),
        (1e9 / 2**30, "GiB"),
        (-1, "sign is not"),
        (5 / 3, "The wrong accelerator."),
        (1.3, "Close, but too large."),
        (0.7, "Close, but too small."),
        (3.3, "Too large, by less than ten times."),
        (1 / 37, "Too small, by more than ten times."),
        (-3, "The sign is wrong."),
        (0, "Zero is not it."),
    ],
)
def test_a_wrong_value_gets_a_hint(factor, said):
    verdict = check_value("ex-time", TIME * factor)
    assert not verdict.ok
    assert said in verdict.text
    with pytest.raises(AssertionError, match="the shown solution is wrong"):
        solved(verdict)


def test_the_exercise_sets_how_near_is_near():
    reference("ex-near", value=100.0, rel=1e-3)
    assert check_value("ex-near", 100.09).ok
    assert not check_value("ex-near", 100.11).ok


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "No answer yet"),
        (..., "No answer yet"),
        ("0.0418", "That is text"),
        (True, "truth value"),
        (math.nan, "NaN"),
        (math.inf, "Infinite"),
        (2 * N / B, "still contains B, N"),
        (lambda: TIME, "That is a function"),
        ([TIME, TIME], "of type list"),
        (np.array([TIME, TIME]), "of type ndarray"),
        (pd.Series([TIME, TIME]), "of type Series"),
        (1j, "of type complex"),
        (10**400, "Far too large"),
        (np.True_, "truth value"),
        ({}, "of type dict"),
    ],
)
def test_what_is_no_number_gets_a_sentence(answer, said):
    verdict = check_value("ex-time", answer)
    assert not verdict.ok
    assert said in verdict.text


class Hostile:
    """An answer whose every question raises."""

    def __float__(self):
        raise RuntimeError("never")

    free_symbols = property(lambda self: 1 / 0)


ODD = [
    10**400, -(10**400), sp.Integer(10) ** 400, sp.oo, sp.zoo, sp.nan, sp.true, np.True_, Decimal("NaN"),
    Decimal("sNaN"), 1 + 0j, np.complex128(1), np.array(1 + 0j), sp.I, np.array([1.0]), pd.Series([1.0]),
    pd.DataFrame({"x": [1.0]}),
    [1], (1,), {1}, range(1), b"1", bytearray(b"1"), "1", "", "1 s", object(), object, float, sp.Symbol, sp, Hostile(),
    np.datetime64("2026-01-01"), date(2026, 1, 1), second, 1.0 * second, pint.UnitRegistry().second, sp.Eq(N, 1),
    sp.Eq(1, 1), pint.UnitRegistry().Quantity(1.0, "s"), pint.UnitRegistry().Quantity(1.0), pytest, print, max, N**N,
]  # fmt: skip


@pytest.mark.parametrize("answer", ODD, ids=lambda answer: type(answer).__name__)
def test_an_odd_answer_gets_one_line(answer):
    """Neither a traceback nor a warning, and no pass, though many are as good as the right answer 1."""
    reference("ex-one", value=1)
    verdict = check_value("ex-one", answer)
    assert not verdict.ok
    assert 0 < len(verdict.text) < 200
    assert "\n" not in verdict.text
    verdict = check_formula("ex-batch", answer)
    assert not verdict.ok
    assert "\n" not in verdict.text
    verdict = check_formula("ex-batch", lambda N, B: answer)
    assert not verdict.ok
    assert "\n" not in verdict.text


@pytest.mark.parametrize("factor", [1.3, 0.7, 3.3, 2, 1000, 0, -1])
def test_no_reply_gives_the_answer_away(factor):
    text = check_value("ex-time", TIME * factor).text
    assert "41.8" not in text
    assert "0.0418" not in text
    assert f"{factor:.2g} times" not in text


@pytest.mark.parametrize(
    "answer",
    [
        lambda N, B: sp.Max(2 * N, N * B),
        lambda B, N: N * sp.Max(B, 2),  # other order, other form
        lambda N, B: 2.0 * sp.Max(N, N * B / 2),
        lambda N, *, B: sp.Max(2 * N, N * B),
        lambda N, B, /: sp.Max(2 * N, N * B),
        lambda B, N: N * sp.Max(B, 2, sp.Rational(1, 10**9)),  # a branch that is never the largest is no mistake
    ],
)
def test_a_right_formula_passes(answer):
    verdict = check_formula("ex-batch", answer)
    assert verdict.ok, verdict
    assert verdict.text.startswith("Right, for all values of ")


@pytest.mark.parametrize(
    ("label", "answer", "said"),
    [
        ("ex-kv", lambda N, H_kv: 4 * N * H_kv, "Twice the answer"),
        ("ex-kv", lambda N, H_kv: N * H_kv, "keys and values are two"),
        ("ex-kv", lambda N, H_q: 2 * N * H_q, "Caches belong to KV heads."),
        ("ex-kv", lambda N, H_kv: 2 * N**2 * H_kv, "depends on N."),
        ("ex-kv", lambda N, H_kv: 3 * N * H_kv, "a factor or a term is not"),
        ("ex-batch", lambda N, B: N * B, "a factor or a term is not"),
        ("ex-batch", lambda N, batch: N * batch, "asks for batch; this exercise offers N, B"),
        ("ex-batch", lambda N, B: None, "returned nothing"),
        ("ex-batch", lambda N, B: "2 N", "did not return a finite formula, but '2 N'"),
        ("ex-batch", lambda N, B: N / 0, "did not return a finite formula"),
        ("ex-batch", lambda N, B: 1 / 0, "raised ZeroDivisionError: division by zero"),
        ("ex-batch", lambda N, B: max(2 * N, N * B), "use sp.Max"),
        ("ex-batch", lambda N, B: np.sqrt(N), "use sp.Max"),
        ("ex-batch", lambda N, B: math.sqrt(N), "use sp.Max"),
        ("ex-batch", lambda N, B: N[0], "raised TypeError"),
        ("ex-batch", 2 * N, "Hand over the function itself, of N, B"),
        ("ex-batch", None, "Hand over the function itself"),
        ("ex-batch", max, "asks for|does not say"),
        ("ex-batch", lambda N, B: sp.Max(2 * sp.Symbol("N"), sp.Symbol("N") * B), "has a N of its own"),
        ("ex-batch", lambda N, B: N * B * H_q, "has a H_q of its own; use the arguments, of N, B"),
        ("ex-batch", lambda N, B: sp.Max(2 * N, N * B) * second, "did not return a finite formula"),
        ("ex-batch", lambda N, B: sp.I * N, "a factor or a term is not"),
        ("ex-batch", lambda N, B: N**200, "a factor or a term is not"),
        ("ex-batch", lambda N, B: 2**N, "a factor or a term is not|depends on"),
        ("ex-batch", lambda N, B: sp.Max(2 * N, N * B) > 1, "did not return a finite formula"),
        ("ex-batch", lambda N, B: sp.Eq(B, N), "did not return a finite formula"),
        ("ex-batch", lambda N, B: exit(), "raised SystemExit|returned nothing"),
        ("ex-batch", lambda *letters: letters[0], "asks for letters"),
        ("ex-batch", lambda N, B: int("a\nb"), "raised ValueError: invalid literal"),
        ("ex-time", lambda N: N, "asks for a number"),
    ],
)
def test_a_wrong_formula_gets_a_hint(label, answer, said):
    verdict = check_formula(label, answer)
    assert not verdict.ok
    assert any(part in verdict.text for part in said.split("|"))
    assert "\n" not in verdict.text


def test_a_value_is_not_a_formula():
    assert "asks for a formula" in check_value("ex-batch", 3).text


def test_an_unknown_label_is_the_authors_mistake():
    with pytest.raises(ValueError, match=r"label='ex-none' is not registered; registered are ex-time"):
        check_value("ex-none", 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs either a value or a function"),
        ({"value": 1, "function": N, "symbols": (N,)}, "needs either a value or a function"),
        ({"value": math.nan}, "value=nan"),
        ({"value": 0}, "value=0 of"),
        ({"value": True}, "value=True"),
        ({"value": "42"}, "value='42'"),
        ({"value": 10**400}, "value=1000"),
        ({"value": 1, "rel": -1}, "rel=-1 of ex-new is not a number of at least 0"),
        ({"value": 1, "rel": math.nan}, "rel=nan"),
        ({"value": 1, "rel": 0.5}, "rel=0.5"),
        ({"value": 1, "rel": "1 %"}, "rel='1 %'"),
        ({"value": 1, "rel": True}, "rel=True"),
        ({"value": 1, "hints": {0: "Never."}}, r"hints\[0\]"),
        ({"value": 1, "hints": {1.005: "Right, in fact."}}, r"hints\[1.005\]"),
        ({"function": N}, "no symbols"),
    ],
)
def test_a_reference_is_checked(options, said):
    with pytest.raises(ValueError, match=f"^reference: .*{said}"):
        reference("ex-new", **options)
    assert "ex-new" not in exercise.REFERENCES


def test_a_reference_is_in_a_base_unit():
    """Or the reply "Right: 41.8 mms." would wait for the first right answer."""
    with pytest.raises(ValueError, match="unit='ms' has a prefix"):
        reference("ex-new", value=41.8, unit="ms")


def test_an_exact_answer_can_be_asked_for():
    reference("ex-whole", value=7, rel=0)
    assert check_value("ex-whole", sp.Integer(7)).ok
    assert not check_value("ex-whole", 7.0000001).ok
