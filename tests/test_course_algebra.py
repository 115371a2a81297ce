"""The chapters' proof: what is the same is accepted, what differs is named, and no branch goes unseen."""

import re
import time

import numpy as np
import pytest
import sympy as sp

import perfmodel as pm
from perfmodel.course.algebra import assert_same, evaluate

B, S, N, F, beta, kappa, t, s, H_q, H_kv, D, L = sp.symbols("B S N F beta kappa t s H_q H_kv D L", positive=True)
LINEAR = sp.Max(2 * N / (t * beta), 2 * N * B / (t * F))
ATTENTION = sp.Max(B * s * kappa / (t * beta), 4 * B * s * H_q * D * L / (t * F))
FACTORED = 2 * N / t * sp.Max(1 / beta, B / F) + B * s / t * sp.Max(kappa / beta, 4 * H_q * D * L / F)


@pytest.mark.parametrize(
    ("derived", "code", "method"),
    [
        (2 * N * S, N * S * 2, "term by term"),
        ((B + S) ** 2, B**2 + 2 * B * S + S**2, "by simplification"),
        (LINEAR + ATTENTION, FACTORED, "at 40 random points, every branch of Max entered"),
        (sp.Min(B, S), sp.Piecewise((B, B < S), (S, True)), "at 40 random points, every branch of Min and Piecewise"),
        (sp.sqrt(B * S) + sp.Max(B, S), sp.sqrt(B) * sp.sqrt(S) + (B + S + sp.Abs(B - S)) / 2, "every branch of Max"),
        (2.0 * B, 2 * B, "at 40 random points"),
        (3, 3.0, "number for number"),
        (np.float64(0.1) + 0.2, sp.Rational(3, 10), "number for number"),
        (sp.Rational(1, 3), sp.Rational(2, 6), "term by term"),
    ],
)
def test_what_is_the_same_is_accepted(derived, code, method):
    proof = assert_same(derived, code)
    assert repr(proof).startswith("✓ derived = perfmodel, ")
    assert method in repr(proof)
    assert "<p" in proof._repr_html_()


@pytest.mark.parametrize(
    ("derived", "code", "said"),
    [
        (2 * N * S, 4 * N * S, "perfmodel / derived = 2;"),
        (4 * L * H_q * D, 4 * L * H_kv * D, "perfmodel / derived = H_kv/H_q;"),
        (2 * N * S, 2 * N * S + B, "; at "),
        (3, 4, "= 4/3; derived 3, perfmodel 4"),
        (0 * B, B, "= inf; at B ="),
        (2.0 * B, 2.000001 * B, "= 1 + 5e-07; at B ="),
        (LINEAR + ATTENTION, FACTORED.subs(L, 2 * L), "; at "),
    ],
)
def test_a_difference_is_named(derived, code, said):
    with pytest.raises(AssertionError, match=re.escape(said)):
        assert_same(derived, code)


def test_exactness_is_not_a_tolerance():
    """One part in 10**20 is a difference of formulas, not of rounding."""
    with pytest.raises(AssertionError, match=r"1 \+ 1e-20"):
        assert_same(sp.Max(B, S), sp.Max(B, S) * (1 + sp.Rational(1, 10**20)))
    with pytest.raises(AssertionError):
        assert_same(sp.sqrt(B), sp.sqrt(B) * (1 + sp.Rational(1, 10**20)))


def test_a_wrong_branch_cannot_hide():
    """The last branch is the largest at one point in some hundred; forty points would not meet it."""
    rare = 5000 * B * S / 10**8
    right = sp.Max(B, S, rare) * 2
    with pytest.raises(AssertionError, match="perfmodel / derived"):
        assert_same(right, sp.Max(2 * B, 2 * S, 3 * rare), ranges={B: (1, 1e6), S: (1, 1e6)}, points=1)
    proof = assert_same(right, sp.Max(2 * B, 2 * S, 2 * rare), ranges={B: (1, 1e6), S: (1, 1e6)}, points=1)
    assert "every branch of Max" in repr(proof)


def test_a_branch_inside_an_idle_branch_does_not_count():
    inner = sp.Max(B, S)
    expr = sp.Piecewise((inner, B > 100), (t, True))
    _, active = evaluate(expr, {B: sp.Integer(3), S: sp.Integer(5), t: sp.Integer(1)})
    assert active == {(expr, 1)}
    _, active = evaluate(expr, {B: sp.Integer(300), S: sp.Integer(500), t: sp.Integer(1)})
    assert active == {(expr, 0), (inner, inner.args.index(S))}
    outer = sp.Max(sp.Min(B, S), t)
    _, active = evaluate(outer, {B: sp.Integer(3), S: sp.Integer(5), t: sp.Integer(7)})
    assert active == {(outer, outer.args.index(t))}
    _, active = evaluate(sp.Max(B, S), {B: sp.Integer(3), S: sp.Integer(3)})
    assert active == set()  # a tie shows nothing about either


def test_a_branch_that_is_never_entered_is_named():
    with pytest.raises(AssertionError, match=r"not entered twice .* set ranges: branch 1 of Max\(1, B\)"):
        assert_same(sp.Max(B, 1) * 2, B * 2, ranges={"B": (2, 100)})


def test_whole_symbols_get_whole_values():
    """Half a number down and half of it up make the number, if it is whole."""
    k = sp.Symbol("k", positive=True, integer=True)
    assert_same(sp.floor(k / 2) + sp.ceiling(k / 2), k)
    with pytest.raises(AssertionError):
        assert_same(sp.floor(B / 2) + sp.ceiling(B / 2), B)


def test_what_is_granted_is_replaced_and_reported():
    d = sp.Symbol("d", positive=True)
    with pytest.raises(AssertionError):
        assert_same(2 * d * L, 2 * H_q * D * L)
    assert repr(assert_same(2 * d * L, 2 * H_q * D * L, assume={d: H_q * D})).endswith("given d = D*H_q")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ((sp.Eq(B, S), S), {}, TypeError, "derived is of type Equality"),
        ((B, "B"), {}, TypeError, "code is of type str"),
        ((B, None), {}, TypeError, "code is of type NoneType"),
        ((sp.nan, sp.nan), {}, ValueError, "derived = nan is not finite"),
        ((sp.Symbol("B"), B), {}, ValueError, "two symbols are called B"),
        ((B, 2 * B), {"ranges": {"C": (1, 2)}}, ValueError, "ranges names C"),
        ((B, 2 * B), {"ranges": {B: (0, 2)}}, ValueError, r"ranges\[B\]=\(0, 2\) is not 0 < low < high"),
    ],
)
def test_bad_input_is_refused(arguments, options, error, said):
    with pytest.raises(error, match=f"^assert_same: .*{said}"):
        assert_same(*arguments, **options)


def test_the_package_is_compared_in_seconds():
    """The largest formula of the package against itself, rewritten: no simplification that takes minutes."""
    model = pm.symbols(pm.Model, name="any", norms=0)
    given = {"data_parallel": 1, "constants": pm.IDEAL}
    server = pm.symbols(
        pm.Deployment, model=model, accelerator=pm.symbols(pm.Accelerator, name="any"), link=None, **given
    )
    batch, context = pm.argument_symbols("batch", "context")
    step = pm.decode_time(server, batch, context)
    start = time.perf_counter()
    assert_same(step.total, sum(sp.expand(part) for part in vars(step.parts).values()))
    with pytest.raises(AssertionError):
        assert_same(step.total, step.by_totals)
    assert time.perf_counter() - start < 20
