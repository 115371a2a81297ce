"""The kinds of chart that the course draws again and again.

Every chart has a title and a description, its alternative text. Colours are roles that the page fills in for its light
and its dark theme (`book/_static/chart-theme.json`): series take the theme's category colours, and the styles are
"guide" (a limit or other reference line), "note" (what it is called, and what was measured or printed elsewhere),
"halo" (the page's ground around a note) and "value" (a result). What a colour says, a label or a shape says too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfmodel.course import axes, labels
from perfmodel.course.sliders import Slider, live
from perfmodel.format import fmt

__all__ = ["Slider", "enable", "lines", "live", "roofline", "stacked_bars"]
MIME = "application/vnd.vegalite.v5+json"  # the newest that JupyterLab renders by itself
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
NOTEBOOK_WIDTH = 640  # pixels


def enable() -> None:
    """Show charts as specifications that JupyterLab, the in-browser lab and the site each draw with their own Vega."""
    alt.theme.register("course", enable=True)(lambda: {})  # no configuration of its own: the page brings it
    alt.renderers.register("course", _render)
    alt.renderers.enable("course")


def _render(spec: dict[str, Any], **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    # An error here would vanish: notebooks swallow what a display method raises. The build checks the description.
    text = spec.get("description", "without description")
    spec = {**spec, "$schema": SCHEMA}
    if spec.get("width") == "container":
        # JupyterLab does not lay out a cell that is out of view; Vega then measures no width, and never comes back.
        # So notebooks get a fixed width, and the site, which reads the mark, the width of its column.
        spec |= {"width": NOTEBOOK_WIDTH, "usermeta": {**spec.get("usermeta", {}), "fill": True}}
    return {MIME: spec, "text/plain": f"Chart: {text}"}, {}


def lines(
    df: pd.DataFrame,
    x: str,
    y: str,
    series: str,
    *,
    title: str,
    description: str,
    x_title: str,
    y_title: str,
    x_unit: str = "",
    y_unit: str = "",
    log_x: int = False,
    log_y: int = False,
    points: pd.DataFrame | None = None,
    marks: pd.DataFrame | None = None,
    rules: Iterable[Mapping[str, Any]] = (),
) -> Any:
    """Lines of several series; short names stand at the lines' ends, long ones in a legend.

    Parameters
    ----------
    df : DataFrame
        Long form: columns `x`, `y` (base units) and `series` (the line's name), one row a point.
    title, description : str
        Heading, and the alternative text: what is shown, and what it says.
    x_title, y_title, x_unit, y_unit : str
    log_x, log_y : int
        False for a linear axis, True for decades, 2 for powers of two.
    points : DataFrame, optional
        Measured points: columns `x`, `y` and "label", the kind that the legend names; with a column `series` they
        take the colour of that line.
    marks : DataFrame, optional
        Points of the lines that are named: columns `x`, `y`, `series` and "label", the name.
    rules : iterable of dict, optional
        Reference lines ``{"y": 0.05, "label": "limit"}``, or with "x".
    """
    axes.described(title, description)
    rules, everything = list(rules), df if points is None else pd.concat([df, points])
    x_ends = axes.limits([*everything[x], *(rule["x"] for rule in rules if "x" in rule)], log_x, tight=True)
    y_ends = axes.limits([*everything[y], *(rule["y"] for rule in rules if "y" in rule)], log_y)
    at = {
        "x": axes.channel(alt.X, x, x_title, x_unit, x_ends, log_x),
        "y": axes.channel(alt.Y, y, y_title, y_unit, y_ends, log_y),
    }

    def where(x: Any, y: Any) -> labels.Spot:
        return axes.position(x, x_ends, log_x), 1 - axes.position(y, y_ends, log_y)

    names = list(dict.fromkeys(df[series]))
    longest = max(len(str(name)) for name in names)
    direct, several = longest <= 16, len(names) > 1
    colour = axes.names(alt.Color, series, names, legend=not direct)
    dash = {} if direct else {"strokeDash": axes.names(alt.StrokeDash, series, names, legend=True)}
    drawn = [
        spot
        for _, line in df.groupby(series, sort=False)
        for spot in labels.trace([where(*point) for point in zip(line[x], line[y], strict=True)])
    ]
    layers: list[Any] = [
        axes.rule(rule, at, where(rule.get("x", x_ends[0]), rule.get("y", y_ends[0])), drawn) for rule in rules
    ]
    in_order = alt.Chart(df.assign(row=np.arange(len(df))))  # a curve may turn back: latency against throughput does
    layers.append(in_order.mark_line().encode(**at, color=colour, order="row:Q", **dash))
    ends = df.groupby(series, sort=False).tail(1) if direct and several else df.head(0)
    spots = [where(*end) for end in zip(ends[x], ends[y], strict=True)]
    names_at_ends = labels.at_ends([str(name) for name in ends[series]], spots, drawn)
    for (_, end), label in zip(ends.iterrows(), names_at_ends, strict=True):
        text = alt.Chart(end.to_frame().T).mark_text(**label.mark)
        layers.append(text.encode(**at, color=colour, text=alt.Text(series, type="nominal")))
    layers.append(
        axes.hover(axes.with_texts(df, x, y, x_unit, y_unit), at, colour, axes.tips(series, x_title, y_title))
    )
    if marks is not None:
        dots = alt.Chart(axes.with_texts(marks, x, y, x_unit, y_unit)).mark_point(size=45, filled=True)
        layers.append(dots.encode(**at, color=colour, tooltip=axes.tips("label", x_title, y_title)))
        spots = [where(*spot) for spot in zip(marks[x], marks[y], strict=True)]
        layers += _notes(marks, x, y, at, labels.place(marks["label"], spots, drawn, names_at_ends))
    if points is not None:
        kinds = list(dict.fromkeys(points["label"]))
        shape = axes.names(alt.Shape, "label", kinds, legend=True, marks=axes.SHAPES)
        mark = alt.Chart(axes.with_texts(points, x, y, x_unit, y_unit)).mark_point(style="note", filled=True, size=80)
        tips = axes.tips("label", x_title, y_title)
        layers.append(mark.encode(**at, shape=shape, tooltip=tips, **({"color": colour} if series in points else {})))
    return axes.finish(alt.layer(*layers), title, description)


def roofline(roofs: Mapping[str, tuple[float, float]], points: pd.DataFrame, *, title: str, description: str) -> Any:
    """Roofs of one or more accelerators, their ridge points, and where work lies under them.

    Parameters
    ----------
    roofs : dict
        Accelerator -> (FLOP/s, byte/s).
    points : DataFrame
        Columns "label", "kind" (such as prefill or decode; its shape), "intensity" (FLOP/byte), and "roof", the
        accelerator whose roof it reaches. With a column "performance" (FLOP/s) it lies there instead.
    title, description : str
    """
    axes.described(title, description)
    ridges = pd.DataFrame(
        [{"roof": name, "intensity": rate / beta, "performance": rate} for name, (rate, beta) in roofs.items()]
    )
    work = points.copy()
    if "performance" not in work:
        work["performance"] = [
            min(roofs[r][0], i * roofs[r][1]) for r, i in zip(work.roof, work.intensity, strict=True)
        ]
    x_ends = axes.limits([*work.intensity / 1.5, *work.intensity * 2, *ridges.intensity * 8], 10, tight=True)
    lowest = min(beta * x_ends[0] for _, beta in roofs.values())
    y_ends = axes.limits([lowest, *work.performance, *ridges.performance * 2], 10)
    at = {
        "x": axes.channel(alt.X, "intensity", "arithmetic intensity", "FLOP/B", x_ends, 10),
        "y": axes.channel(alt.Y, "performance", "performance", "FLOP/s", y_ends, 10),
    }
    grid = np.geomspace(*x_ends, 161)
    roof = pd.concat(
        pd.DataFrame({"roof": name, "intensity": x, "performance": np.minimum(rate, beta * x)})
        for name, (rate, beta) in roofs.items()
        for x in [np.sort(np.append(grid, rate / beta))]
    )
    colour = axes.names(alt.Color, "roof", list(roofs), legend=len(roofs) > 1)
    kinds = list(dict.fromkeys(work.kind))
    shape = axes.names(alt.Shape, "kind", kinds, legend=False, marks=["circle", *axes.SHAPES])
    tips = [
        alt.Tooltip("label", type="nominal", title="work"),
        *axes.tips("roof", "arithmetic intensity", "performance"),
    ]
    layers = [
        alt.Chart(ridges).mark_rule(style="guide", strokeDash=axes.DASH).encode(**at, y2=alt.value(labels.HEIGHT)),
        alt.Chart(roof).mark_line(clip=True).encode(**at, color=colour),
        alt.Chart(axes.with_texts(work, "intensity", "performance", "FLOP/B", "FLOP/s"))
        .mark_point(size=80, filled=True)
        .encode(**at, color=colour, shape=shape, tooltip=tips),
    ]
    named = pd.concat([work, ridges.assign(label=[f"ridge {fmt(value, 'FLOP/B')}" for value in ridges.intensity])])

    def where(df: pd.DataFrame) -> list[labels.Spot]:
        pairs = zip(df.intensity, df.performance, strict=True)
        return [(axes.position(x, x_ends, 10), 1 - axes.position(y, y_ends, 10)) for x, y in pairs]

    drawn = where(roof) + [spot for x, y in where(ridges) for spot in labels.trace([(x, y), (x, 1)], 50)]
    grid_lines = [1 - axes.position(tick, y_ends, 10) for tick in axes.log_ticks(*y_ends, base=10)]
    drawn += [spot for y in grid_lines for spot in labels.trace([(0, y), (1, y)], 60)]
    layers += _notes(named, "intensity", "performance", at, labels.place(named.label, where(named), drawn))
    return axes.finish(alt.layer(*layers), title, description)


def stacked_bars(
    df: pd.DataFrame,
    category: str,
    value: str,
    part: str,
    *,
    title: str,
    description: str,
    value_title: str,
    unit: str = "",
) -> Any:
    """A horizontal bar for each category, made of its parts, with the total at its end.

    Parameters
    ----------
    df : DataFrame
        Long form: one row for each `category` and `part`, with its `value` in the base unit.
    title, description, value_title, unit : str
    """
    axes.described(title, description)
    parts, categories = list(dict.fromkeys(df[part])), list(dict.fromkeys(df[category]))
    totals = df.groupby(category, sort=False, as_index=False)[value].sum()
    totals["text"] = [fmt(total, unit) for total in totals[value]]
    ends = axes.limits(1.3 * totals[value], 0)  # room for the totals
    where = alt.Y(category, type="nominal", sort=categories, title=None, axis=alt.Axis(labelLimit=110, domain=False))
    length = axes.channel(alt.X, value, value_title, unit, ends, 0)
    shown = df.assign(text=[fmt(number, unit) for number in df[value]], rank=[parts.index(name) for name in df[part]])
    bars = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            y=where,
            x=length,
            color=axes.names(alt.Color, part, parts, legend=True),
            order=alt.Order("rank", type="quantitative"),
            tooltip=[
                alt.Tooltip(field, type="nominal", title=name)
                for field, name in ((category, category), (part, part), ("text", value_title))
            ],
        )
    )
    sums = alt.Chart(totals).mark_text(style="value", align="left", dx=6).encode(y=where, x=length, text="text:N")
    chart = axes.finish(alt.layer(bars, sums), title, description)
    return chart.properties(height=34 * len(categories))  # a step of the scale would make Vega warn


def _notes(df: pd.DataFrame, x: str, y: str, at: Mapping[str, Any], places: Sequence[labels.Label]) -> list[Any]:
    """The column "label" of each row, written beside its point; a halo keeps lines from striking it through."""
    texts = []
    for (_, row), place in zip(df.iterrows(), places, strict=True):
        text = alt.Chart(row[["label", x, y]].to_frame().T).encode(**at, text="label:N")
        texts += [text.mark_text(style=style, aria=style == "note", **place.mark) for style in ("halo", "note")]
    return texts
