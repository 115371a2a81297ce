"""Live charts: the formula that a chapter derived, moved by sliders, with nothing typed a second time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
import sympy as sp

from perfmodel.course import axes
from perfmodel.course.labels import HEIGHT
from perfmodel.course.vega import vega

HEADROOM = 1.35  # the result is written above the curve


@dataclass(frozen=True)
class Slider:
    """A symbol that the reader moves.

    Attributes
    ----------
    symbol : SymPy symbol
    label : str
        What the page writes beside it, with the unit of the numbers it shows.
    value : float
        Where it starts.
    low, high, step : float
        Its range; or else `options`, a list to choose from.
    scale : float
        What one of its numbers is in base units: 1e12 for a slider in TB/s.
    """

    symbol: sp.Symbol
    label: str
    value: float
    low: float = 0
    high: float = 0
    step: float = 1
    options: Sequence[float] = ()
    scale: float = 1

    def __post_init__(self) -> None:
        if self.options and self.value not in self.options:
            raise ValueError(f"slider {self.symbol}: value={self.value} is not one of {list(self.options)}")
        if not self.options and not (self.low < self.high and self.low <= self.value <= self.high and self.step > 0):
            raise ValueError(
                f"slider {self.symbol}: low={self.low} <= value={self.value} <= high={self.high} "
                f"with step={self.step} is no range"
            )

    @property
    def name(self) -> str:
        """The parameter's name in the chart."""
        return "p_" + re.sub(r"\W", "_", self.symbol.name)

    @property
    def term(self) -> str:
        """Vega expression of the symbol's value in base units."""
        return self.name if self.scale == 1 else f"({self.name} * {self.scale!r})"

    def parameter(self) -> alt.Parameter:
        """The parameter with its control."""
        bind: Any
        if self.options:
            bind = alt.binding_select(options=list(self.options), name=f"{self.label} ")
        else:
            bind = alt.binding_range(min=self.low, max=self.high, step=self.step, name=f"{self.label} ")
        return alt.param(name=self.name, value=self.value, bind=bind)


def live(
    expression: sp.Expr,
    *,
    x: Slider,
    sliders: Iterable[Slider],
    title: str,
    description: str,
    y_title: str,
    y_unit: str = "",
    x_unit: str = "",
    x_title: str = "",
    log_x: int = False,
    log_y: int = False,
    regimes: Mapping[str, sp.Expr] | None = None,
    rules: Mapping[str, Any] | None = None,
    claims: pd.DataFrame | None = None,
    samples: int = 160,
) -> Any:
    """A curve compiled from a SymPy expression, which follows the sliders.

    Parameters
    ----------
    expression : SymPy expression
        What is drawn, in the base unit `y_unit`; usually a function of the package, called with symbols.
    x : Slider
        The horizontal axis. The slider moves the point on the curve whose value the chart writes out.
    sliders : iterable of Slider
        The other symbols of the expression.
    title, description, y_title, y_unit, x_unit : str
    x_title : str
        The slider's label, unless given.
    log_x, log_y : int
        False for a linear axis, True for decades, 2 for powers of two.
    regimes : dict, optional
        Name -> expression. Colour and shape say which is the largest ("memory", "compute", ...).
    rules : dict, optional
        Name -> where on the horizontal axis a line of that name stands: a number or an expression.
    claims : DataFrame, optional
        Columns "x", "y" (base units) and "label": values printed elsewhere, to compare the curve with. A column for
        each symbol in `sliders` says at which value it holds: it is shown only while all sliders stand there.
    samples : int
        Points of the curve.

    Raises
    ------
    ValueError
        If a symbol has no slider, a slider no symbol, Vega has no word for a function, or a claim does not say at
        which values of the sliders it holds.
    """
    axes.described(title, description)
    others = list(sliders)
    controls = [x, *others]
    regimes = dict(regimes or {})
    used = set().union(*(sp.sympify(e).free_symbols for e in (expression, *regimes.values())))
    if idle := [slider.symbol for slider in controls if slider.symbol not in used]:
        raise ValueError(f"live: slider {idle[0]} moves nothing in the chart")
    fixed = {slider.symbol: slider.term for slider in controls}

    def points(data: Any, where: str) -> alt.Chart:
        """A layer whose rows have x, y and regime, x being the Vega expression `where`."""
        names = {**fixed, x.symbol: "datum.x"}
        regime = _largest({name: vega(e, names) for name, e in regimes.items()})
        return (
            alt.Chart(data)
            .transform_calculate(x=where)
            .transform_calculate(y=vega(expression, names))
            .transform_calculate(top=f"datum.y * {HEADROOM}", regime=regime)
        )

    low, high = (min(x.options), max(x.options)) if x.options else (x.low, x.high)
    ends = (low * x.scale, high * x.scale)
    if log_x and low <= 0:
        raise ValueError(f"live: low={low} of slider {x.symbol} cannot start a logarithmic axis")
    step = f"datum.i / {samples}"
    grid = f"{ends[0]} * pow({ends[1] / ends[0]}, {step})" if log_x else f"{ends[0]} + {ends[1] - ends[0]} * {step}"
    across = axes.channel(alt.X, "x", x_title or x.label, x_unit, ends, log_x)
    up = alt.Y("y", type="quantitative", axis=axes.axis(y_title, y_unit, moving_log=bool(log_y)), scale=_height(log_y))
    tips = [
        alt.Tooltip("x_text", type="nominal", title=x_title or x.label),
        alt.Tooltip("y_text", type="nominal", title=y_title),
        *([alt.Tooltip("regime", type="nominal", title="largest part")] if regimes else []),
    ]
    texts = {"x_text": axes.written("datum.x", x_unit, ".3s"), "y_text": axes.written("datum.y", y_unit, ".3s")}
    names = list(regimes) or [y_title]
    look = {
        "color": axes.names(alt.Color, "regime", names, legend=bool(regimes)),
        "shape": axes.names(alt.Shape, "regime", names, legend=bool(regimes), marks=["circle", *axes.SHAPES[1:]]),
    }
    curve = points(alt.sequence(0, samples + 1, 1, as_="i"), grid)
    shapes = curve.transform_calculate(**texts).transform_filter(f"datum.i % {max(1, samples // 16)} === 0")
    pieces = curve.transform_window(x2="lead(x)", y2="lead(y)", sort=[alt.SortField("i")]).transform_filter(
        "datum.x2 !== null"
    )
    texts["x_text"] = axes.written("datum.x", x_unit)  # the reader's own number, as it is
    here = points(pd.DataFrame({"i": [0]}), x.term).transform_calculate(**texts)
    result = "datum.y_text + ' at ' + datum.x_text" + (" + ', ' + datum.regime" if regimes else "")
    layers = [
        _room(curve, across, log_y),
        pieces.mark_rule(strokeWidth=2.5, strokeCap="round", aria=False).encode(
            x=across, y=up, x2="x2", y2="y2", color=look["color"]
        ),
        shapes.mark_point(size=50, filled=True, aria=False).encode(x=across, y=up, tooltip=tips, **look),
        here.mark_rule(style="guide", strokeDash=axes.DASH).encode(x=across, y=up, y2=alt.value(HEIGHT)),
        here.mark_point(filled=True, size=180).encode(x=across, y=up, tooltip=tips, **look),
        here.transform_calculate(result=result)
        .mark_text(style="value", align="left", baseline="top", dx=6, dy=2)
        .encode(x=alt.value(0), y=alt.value(0), text="result:N"),
    ]
    for name, where in (rules or {}).items():
        row = alt.Chart(pd.DataFrame({"name": [name]})).transform_calculate(x=vega(sp.sympify(where), fixed))
        layers += _rule(
            row.transform_filter(f"{ends[0]} <= datum.x && datum.x <= {ends[1]}"), across, x_unit, ends, log_x
        )
    if claims is not None:
        for _, claim in claims.iterrows():
            layers += _claim(claim, others, across, up, log_y, axes.position(claim.x, ends, log_x))
    chart = alt.layer(*layers).add_params(*(slider.parameter() for slider in controls))
    return axes.finish(chart, title, description)


def _largest(terms: Mapping[str, str]) -> str:
    """Vega expression of the name whose term is largest; the first of equals."""
    if not terms:
        return "''"
    best, *rest = reversed(list(terms))
    text = f"'{best}'"
    for name in rest:
        others = ", ".join(term for other, term in terms.items() if other != name)
        text = f"({terms[name]} >= max({others}) ? '{name}' : {text})"
    return text


def _height(log: int) -> alt.Scale:
    return alt.Scale(type="log", base=10, nice=False) if log else alt.Scale(zero=True, nice=True)


def _room(rows: Any, across: Any, log: int) -> Any:
    """Points that nobody sees: they make room above the curve, and on a logarithmic axis below it."""
    unseen = rows.mark_point(opacity=0, aria=False, tooltip=False)
    above = unseen.encode(x=across, y=alt.Y("top", type="quantitative"))
    below = unseen.transform_calculate(foot=f"datum.y / {HEADROOM}")
    return alt.layer(above, below.encode(x=across, y=alt.Y("foot", type="quantitative"))) if log else above


def _rule(row: Any, across: Any, unit: str, ends: tuple[float, float], log: int) -> list[Any]:
    """A line from top to bottom; its name and place stand at its foot, on the side where there is more room."""
    low, high = ends
    middle = (low * high) ** 0.5 if log else (low + high) / 2
    text = row.transform_calculate(text=f"datum.name + ' ' + {axes.written('datum.x', unit, '.3s')}")
    names = [
        text.transform_filter(f"datum.x {side} {middle}")
        .mark_text(style=style, align=align, dx=dx, dy=-9, aria=style == "note")
        .encode(x=across, y=alt.value(HEIGHT), text="text:N")
        for side, align, dx in (("<=", "left", 5), (">", "right", -5))
        for style in ("halo", "note")
    ]
    line = row.mark_rule(style="guide", strokeDash=axes.DASH).encode(x=across, y=alt.value(0), y2=alt.value(HEIGHT))
    return [line, *names]


def _claim(claim: Any, sliders: Iterable[Slider], across: Any, up: Any, log: int, position: float) -> list[Any]:
    """A value printed elsewhere, while the sliders stand where it holds: a mark of its own, and whose it is."""
    data = alt.Chart(pd.DataFrame([claim])).transform_calculate(top=f"datum.y * {HEADROOM}")
    for slider in sliders:
        if slider.symbol.name not in claim:
            raise ValueError(f"live: claim {claim.label!r} does not say at which {slider.symbol} it holds")
        value = float(claim[slider.symbol.name])
        data = data.transform_filter(f"abs({slider.term} - {value!r}) <= {1e-9 * abs(value)!r}")
    text = data.mark_text(style="note", dy=-13, align="right" if position > 0.5 else "left")
    return [
        _room(data, across, log),
        data.mark_point(style="note", shape="diamond", filled=True, size=110).encode(x=across, y=up),
        text.encode(x=across, y=up, text="label:N"),
    ]
