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
    guarded = sp.Max(sp.Piecewise((0, B > 1), (t, True)) * 2, 0 * t + sp.Piecewise((0, B > 1), (S, True)))
    _, active = evaluate(guarded, {B: sp.Integer(3), S: sp.Integer(3), t: sp.Integer(1)})
    assert {i for _, i in active} == {0}  # but what was asked on the way to it was asked
    assert len(active) == 2


def test_a_branch_that_is_never_entered_is_named():
    with pytest.raises(AssertionError, match=r"not entered twice .* set ranges: branch 1 of Max\(1, B\)"):
        assert_same(sp.Max(B, 1) * 2, B * 2, ranges={"B": (2, 100)})


def test_whole_symbols_get_whole_values():
    """Half a number down and half of it up make the number, if it is whole."""
    k = sp.Symbol("k", positive=True, integer=True)
    assert_same(sp.floor(k / 2) + sp.ceiling(k / 2), k)
    with pytest.raises(AssertionError):
        assert_same(sp.floor(B / 2) + sp.ceiling(B / 2), B)


k, m = sp.symbols("k m", positive=True, integer=True)


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (sp.ceiling(B), sp.floor(B) + 1),
        (sp.ceiling(S / B), sp.floor(S / B) + 1),
        (sp.ceiling(k / m), sp.floor(k / m) + 1),
        (D * sp.ceiling(S / D) * t, D * (sp.floor(S / D) + 1) * t),
        (sp.ceiling(N / (t * S)), sp.floor(N / (t * S)) + 1),
        (sp.ceiling(S**2 / D), sp.floor(S**2 / D) + 1),  # linear in neither S, but in 1/D
        (sp.ceiling(2.0 * S / 3), sp.floor(2.0 * S / 3) + 1),
        (sp.Max(sp.ceiling(S / D), t), sp.Max(sp.floor(S / D) + 1, t)),
        (sp.Mod(S, D), S - D * (sp.ceiling(S / D) - 1)),
        (sp.floor(S - D), sp.ceiling(S - D) - 1),
        (sp.ceiling(t**2 + t), sp.floor(t**2 + t) + 1),  # linear in nothing, but whole where t is
    ],
)
def test_a_ceiling_is_not_a_floor_and_one(up, down):
    """They differ only where the argument is whole, which no random point meets."""
    with pytest.raises(AssertionError, match="; at "):
        assert_same(up, down)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (sp.ceiling(S / D), -sp.floor(-S / D)),
        (sp.ceiling(k / m), sp.floor((k + m - 1) / m)),
        (sp.ceiling(0.1 * S), sp.ceiling(S / 10)),  # in floats 0.1 * 30 may lie above 3
        (sp.Mod(S, D), S - D * sp.floor(S / D)),
        (sp.Max(sp.ceiling(S / D), t) * 2, sp.Max(2 * sp.ceiling(S / D), 2 * t)),
    ],
)
def test_what_jumps_alike_is_accepted(one, other):
    assert "is whole" not in repr(assert_same(one, other))


def test_a_jump_that_was_not_met_is_named():
    proof = assert_same(sp.floor(sp.sqrt(B) * sp.pi) * 2.0, 2 * sp.floor(sp.pi * sp.sqrt(B)))
    assert repr(proof).endswith("random points, none where pi*sqrt(B) is whole")


MANY = sp.Piecewise((B, t > 1), (S, True))
FEW = sp.Piecewise((B, t >= 1), (S, True))


def test_the_edge_of_a_condition_is_a_case_of_its_own():
    """One device is a case that no random number of devices meets, though it may lie outside the usual range."""
    assert "every branch of Piecewise" in repr(assert_same(2.0 * MANY, 2 * MANY))
    with pytest.raises(AssertionError, match=r"; at .*t = 1:"):
        assert_same(2.0 * MANY, 2 * FEW, ranges={"t": (0.5, 2)})
    X = sp.Symbol("X", positive=True)
    dense = sp.Piecewise((B, X > 1), (S, True))
    assert "every branch of Piecewise" in repr(assert_same(2.0 * dense, 2 * dense))
    with pytest.raises(AssertionError, match="not entered twice"):
        assert_same(2.0 * dense, 2 * dense, ranges={X: (8, 512)})


def test_a_question_that_is_settled_is_not_asked_again():
    """Inside "more than one device", the branch for one device is dead: no point could enter it."""
    inside = sp.Piecewise((MANY + 1, t > 1), (L, True)) * 2
    assert_same(inside, sp.Piecewise((2 * B + 2.0, t > 1), (2 * L, True)))
    outside = sp.Piecewise((L, t > 1), (sp.Max(MANY, D), True)) * 2
    assert_same(outside, sp.Piecewise((2 * L, t > 1), (2.0 * sp.Max(S, D), True)))
    with pytest.raises(AssertionError, match="; at "):
        assert_same(outside, sp.Piecewise((2 * L, t > 1), (2.0 * sp.Max(B, D), True)))


def test_points_lie_within_the_ranges_given():
    """One minus a share of 1 would be 0: rounding to whole numbers must not leave the range."""
    ranges = {"S": (0.1, 0.9), "B": (1.1, 1.9)}
    assert_same(sp.floor(1 / (1 - S)) + 1 / (B - 1) * 2.0, 1 + sp.floor(S / (1 - S)) + 2 / (B - 1), ranges=ranges)


@pytest.mark.parametrize("points", [0, -1, True, 2.0, None])
def test_nothing_passes_without_a_point(points):
    with pytest.raises(ValueError, match=f"^assert_same: points={points} is not a whole number of at least 1"):
        assert_same(sp.Max(B, S), sp.Max(B, 2 * S), points=points)


@pytest.mark.parametrize(
    ("derived", "code"), [(2**N, 3**N), (N**100, 2 * N**100), (B, sp.I * B), (sp.I * B, B), (2**N, 2**N + 1)]
)
@pytest.mark.parametrize("ranges", [{}, {"N": (10, 1e12)}])
def test_the_huge_and_the_complex_are_no_trouble(derived, code, ranges):
    """Two to the power of the parameters has a hundred thousand million digits."""
    start = time.perf_counter()
    with pytest.raises(AssertionError, match="perfmodel / derived"):
        assert_same(derived, code, ranges={name: limits for name, limits in ranges.items() if code.has(N)})
    assert time.perf_counter() - start < 10


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
        ((B, 2.0 * B), {"ranges": {B: (1, float("inf"))}}, ValueError, r"ranges\[B\]=\(1, inf\) is not 0 < low < high"),
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
