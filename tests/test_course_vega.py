"""The Vega printer, judged by Vega itself: both evaluate the same formulas at the same points."""

import random
import re

import mpmath
import pytest
import sympy as sp
import vl_convert

import perfmodel as pm
from perfmodel import data
from perfmodel.course.vega import vega

x, y, z = sp.symbols("x y z", positive=True)
r = sp.Symbol("r", real=True)
FORMULAS = [
    x * y / z - 3 * x**2 / (7 * z**3),
    sp.Rational(22, 7) * x + sp.Float("0.1") * y - 10**25 + sp.Rational(1, 3),
    sp.sqrt(x) / sp.sqrt(y) + x ** sp.Rational(2, 3) * y ** sp.Rational(-5, 4) + x**y / x**z + 1 / x,
    sp.Max(x, y, z) - sp.Min(x * y, z, 3) + sp.Max(sp.Min(x, 2), y / 2),
    sp.ceiling(x / 3) * sp.floor(y * 2) + sp.Abs(r * x - y) - sp.Abs(r),
    sp.exp(-x) + sp.exp(2 * r) + sp.log(x) + sp.log(y, 2) + sp.E * sp.pi,
    sp.Mod(sp.floor(r * 10), 3) + sp.Mod(sp.floor(x), -4),
    sp.Piecewise((x, x < y), (y**2, sp.And(y <= z, z > 1)), (0, sp.Or(x >= 9, sp.Ne(y, z))), (z, True)),
    sp.Piecewise((1, sp.Not(sp.And(x > y, r < 0))), (sp.Min(x, sp.oo), True)),
    sp.Piecewise((1, sp.Eq(sp.floor(x), 2)), (-(x + y) * -z - r * -2, True)),
]


def vega_values(expressions, rows):
    """Let Vega evaluate the expressions on each row; its text marks carry the result in full precision."""
    marks = [
        {"type": "text", "from": {"data": "rows"}, "encode": {"enter": {"text": {"signal": f"'' + ({text})"}}}}
        for text in expressions
    ]
    svg = vl_convert.vega_to_svg({"width": 9, "height": 9, "data": [{"name": "rows", "values": rows}], "marks": marks})
    found = [float(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]
    return [found[i : i + len(rows)] for i in range(0, len(found), len(rows))]


def test_vega_evaluates_as_sympy_does():
    rng = random.Random(7)
    names = {s: f"datum.{s}" for s in (x, y, z, r)}
    rows = [
        {"x": rng.uniform(0.1, 12), "y": rng.uniform(0.1, 12), "z": rng.uniform(0.1, 12), "r": rng.uniform(-3, 3)}
        for _ in range(200)
    ]
    values = vega_values([vega(f, names) for f in FORMULAS], rows)
    with mpmath.workdps(40):
        for formula, column in zip(FORMULAS, values, strict=True):
            exact = sp.lambdify([x, y, z, r], formula, "mpmath")
            for row, value in zip(rows, column, strict=True):
                assert value == pytest.approx(float(exact(**row)), rel=1e-12), (formula, row)


def test_the_traced_step_gives_what_the_package_gives():
    """One formula, three runtimes: the function traced by SymPy and run by Vega, and the function on floats."""
    t = sp.Symbol("t", positive=True)
    B, s = pm.argument_symbols("batch", "context")
    model, accelerator, link = data.model("mixtral-8x7b"), data.accelerator("h100-sxm"), data.link("nvlink4")
    traced = pm.decode_time(pm.Deployment(model, accelerator, link, tensor_parallel=t), B, s)
    text = vega(traced.total, {B: "datum.B", s: "datum.s", t: "datum.t"})
    rows = [{"B": 3**i, "s": 7**j, "t": 2**k} for i in range(7) for j in range(7) for k in range(4)]
    (values,) = vega_values([text], rows)
    for row, value in zip(rows, values, strict=True):
        deployment = pm.Deployment(model, accelerator, link, tensor_parallel=row["t"])
        assert value == pytest.approx(pm.decode_time(deployment, row["B"], row["s"]).total, rel=1e-12), row


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (sp.gamma(x), "cannot print gamma"),
        (sp.Piecewise((x, x < 1)), "no branch for all other cases"),
        (sp.I * x, "cannot print ImaginaryUnit"),
        (sp.Sum(x, (x, 1, y)), "cannot print Sum"),
        (x + z, "symbol z has no value in the chart; known are x, y"),
        (sp.zoo, "cannot print ComplexInfinity"),
        (sp.Function("f")(x), "cannot print f"),
    ],
)
def test_what_it_cannot_print_is_refused(expression, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        vega(expression, {"x": "datum.x", y: "p_y"})
