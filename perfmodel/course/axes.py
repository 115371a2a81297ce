"""What the chart kinds share: axes with units and tidy ticks, legends, reference lines, size and alternative text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from perfmodel.course.labels import HEIGHT, Label, Spot, quietest
from perfmodel.format import SI_UNITS, THIN, fmt

SHAPES = ["diamond", "triangle-up", "square", "cross", "triangle-down"]
DASH = [5, 4]


def prefixed(unit: str) -> bool:
    """Whether the unit takes SI prefixes."""
    return unit.split("/")[0] in SI_UNITS and unit != "FLOP/B"


def written(value: str, unit: str, form: str = "~s", *, bare: bool = False) -> str:
    """A Vega expression that writes a value with SI prefix and unit.

    Parameters
    ----------
    value : str
        Vega expression of the value, in the base unit.
    unit : str
    form : str
        d3 format: "~s" for ticks, ".3s" for results.
    bare : bool
        Leave the unit out, and the prefix in.
    """
    if unit == "%":
        return f"format({value}, '{form.replace('s', '%')}')"
    if prefixed(unit):
        return f"replace(format({value}, '{form}'), regexp('([a-zA-Zµ]?)$'), '{THIN}$1{'' if bare else unit}')"
    tail = f" + '{THIN}{unit}'" if unit and not bare else ""
    return f"(abs({value}) < 1e6 ? format({value}, ',{form.replace('s', 'r')}') : format({value}, '{form}')){tail}"


def axis(title: str, unit: str, ticks: Sequence[float] | None = None, *, moving_log: bool = False) -> alt.Axis:
    """An axis in base units. A tick says "10 ms"; a long unit stands in the title and the tick says "100 T".

    The ends of a logarithmic axis of a live chart move, so its ticks are chosen as it is drawn: of all that Vega
    offers, those that start with 1, 2 or 5.
    """
    short = prefixed(unit) and len(unit) <= 2
    label = written("datum.value", unit, bare=not short)
    few = "indexof('125', slice(format(datum.value, 'e'), 0, 1)) >= 0"
    shown = {"condition": {"test": few, "value": 1}, "value": 0}
    return alt.Axis(
        title=title if short or unit in ("", "%") else f"{title} ({unit})",
        labelExpr=f"{few} ? {label} : ''" if moving_log else label,
        gridOpacity=shown if moving_log else alt.Undefined,
        tickCount=6,
        values=alt.Undefined if ticks is None else list(ticks),
    )


def log_ticks(low: float, high: float, base: int) -> list[float]:
    """Powers of two, or of ten with 2 and 5 between where there is room."""
    if base == 2:
        first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
        return [2.0**i for i in range(first, last + 1, 1 + (last - first) // 9)]
    parts = (1, 2, 5) if high / low < 300 else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [p * 10.0**i for i in decades for p in parts if low * 0.999 <= p * 10.0**i <= high * 1.001]


def limits(values: Iterable[float], log: int, *, tight: bool = False) -> tuple[float, float]:
    """Ends of an axis: linear ones start at 0, and all end at a round number, or `tight` at the largest value.

    Raises
    ------
    ValueError
        If a value on a logarithmic axis is not above 0, or there is none.
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    if not finite:
        raise ValueError("chart: there is no finite value to show")
    low, high = min(finite), max(finite)
    if log and low <= 0:
        raise ValueError(f"chart: {low:g} cannot be shown on a logarithmic axis")
    if tight:
        return (low if log else min(0.0, low)), high
    return 1 / _round_up(1 / low) if log else min(0.0, low), _round_up(high)


def _round_up(value: float) -> float:
    """The next round number above."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        s * power for s in (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10) if value <= s * power * (1 + 1e-9)
    )


def scale(ends: tuple[float, float], log: int) -> alt.Scale:
    """The scale between two ends; `log` is the base, 0 or False for a linear one."""
    if log:
        return alt.Scale(domain=list(ends), nice=False, type="log", base=2 if log == 2 else 10)
    return alt.Scale(domain=list(ends), nice=False)


def position(value: float, ends: tuple[float, float], log: int) -> float:
    """Where a value lies between the ends of its axis: 0 at the low end, 1 at the high one."""
    low, high = ends
    return math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)


def described(title: str, description: str) -> None:
    """Refuse a chart without a heading or without an alternative text."""
    if not title.strip():
        raise ValueError("chart: title is empty")
    if len(description.split()) < 5:
        raise ValueError(f"chart: description={description!r} must say what the chart shows to those who cannot see it")


def channel(kind: Any, field: str, title: str, unit: str, ends: tuple[float, float], log: int) -> Any:
    """The x or y channel of a quantity."""
    ticks = log_ticks(*ends, base=log) if log else None
    return kind(field, type="quantitative", scale=scale(ends, log), axis=axis(title, unit, ticks))


def names(kind: Any, field: str, order: Sequence[str], *, legend: bool, marks: Sequence[str] = ()) -> Any:
    """The colour or shape channel of what has names, in that order; its legend stands above, to suit a phone."""
    domain = alt.Scale(domain=list(order), range=list(marks) or alt.Undefined)
    return kind(field, type="nominal", scale=domain, legend=alt.Legend(title=None, orient="top") if legend else None)


def rule(line: Mapping[str, Any], at: Mapping[str, Any], place: Spot, drawn: Sequence[Spot]) -> Any:
    """A reference line with its name at the end where it covers least; `place` is where it meets the two axes."""
    across = "y" in line
    way = "y" if across else "x"
    if across:
        spots = [((0.0, place[1]), "left", 4), ((1.0, place[1]), "right", -4)]
        options = [Label(line["label"], spot, align, dx, dy) for dy in (-9, 10) for spot, align, dx in spots]
    else:
        spots = [((place[0], 0.0), "left", 5), ((place[0], 0.0), "right", -5)]
        options = [Label(line["label"], spot, align, dx, dy) for dy in (8, 26) for spot, align, dx in spots]
    label = quietest(options, [], drawn)
    data = alt.Chart(pd.DataFrame([{at[way].shorthand: line[way], "text": label.text}]))
    end = {"x": alt.value("width" if label.at[0] else 0)} if across else {"y": alt.value(0)}
    name = data.mark_text(style="note", **label.mark).encode(**{way: at[way]}, **end, text="text:N")
    return alt.layer(data.mark_rule(style="guide", strokeDash=DASH).encode(**{way: at[way]}), name)


def hover(df: pd.DataFrame, at: Mapping[str, Any], colour: Any, tips: Sequence[alt.Tooltip]) -> Any:
    """A point that appears, with its values, on the line nearest to the pointer."""
    nearest = alt.selection_point(on="pointerover", nearest=True, empty=False, clear="pointerout")
    mark = alt.Chart(df).mark_point(size=70, filled=True, aria=False)
    shown = alt.condition(nearest, alt.value(1), alt.value(0))
    return mark.encode(**at, color=colour, opacity=shown, tooltip=list(tips)).add_params(nearest)


def with_texts(df: pd.DataFrame, x: str, y: str, x_unit: str, y_unit: str) -> pd.DataFrame:
    """The data, with what the tooltips say: numbers as in the prose."""
    return df.assign(x_text=[fmt(value, x_unit) for value in df[x]], y_text=[fmt(value, y_unit) for value in df[y]])


def tips(name: str, x_title: str, y_title: str) -> list[alt.Tooltip]:
    """What a point says when the pointer is on it."""
    fields = {name: name, "x_text": x_title, "y_text": y_title}
    return [alt.Tooltip(field, type="nominal", title=title) for field, title in fields.items()]


def finish(chart: Any, title: str, description: str) -> Any:
    """Title, alternative text and size. (Vega makes room for labels that stand beside the plot.)"""
    return chart.properties(title=title, description=description, width="container", height=HEIGHT)
