"""Replies to answers: right ones pass, wrong ones get a sentence that helps and gives nothing away."""

import math

import numpy as np
import pandas as pd
import pytest
import sympy as sp

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
        ({}, "of type dict"),
    ],
)
def test_what_is_no_number_gets_a_sentence(answer, said):
    verdict = check_value("ex-time", answer)
    assert not verdict.ok
    assert said in verdict.text


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
        ("ex-time", lambda N: N, "asks for a number"),
    ],
)
def test_a_wrong_formula_gets_a_hint(label, answer, said):
    verdict = check_formula(label, answer)
    assert not verdict.ok
    assert said in verdict.text
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
        ({"value": 0}, "value=0.0"),
        ({"function": N}, "no symbols"),
    ],
)
def test_a_reference_is_checked(options, said):
    with pytest.raises(ValueError, match=f"^reference: .*{said}"):
        reference("ex-new", **options)
    assert "ex-new" not in exercise.REFERENCES
