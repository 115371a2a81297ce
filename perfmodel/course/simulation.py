"""Charts of simulated runs: what happened to a few requests, to the batch and the cache, and at which rate it broke."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from perfmodel.course import axes
from perfmodel.course.charts import lines
from perfmodel.format import fmt
from perfmodel.simulate.results import Results

# What a request does, in the order of the legend, and how thick its bar is, which tells them apart without colour.
STATES = {"waits": 3, "prefill": 20, "decode": 9, "waits again": 3}
ROW = 28  # pixels
POINTS = 400  # of a line over time; more cannot be seen


def spans(results: Results, requests: Sequence[int]) -> pd.DataFrame:
    """What each of these requests did from when to when.

    Parameters
    ----------
    results : Results
        Of a run that kept its steps.
    requests : sequence of int
        Their numbers.

    Returns
    -------
    DataFrame
        Columns "request", "state" (of `STATES`), "start" and "end" in seconds.
    """
    if not results.chunks:
        raise ValueError("spans: results must be of a run with keep=True")
    chunks, lost = pd.DataFrame(results.chunks), pd.DataFrame(results.preempted)
    rows = []
    for request in requests:
        works = chunks[chunks.request == request].sort_values("start")
        marks = [("prefill", start, end) for start, end in zip(works.start, works.end, strict=True)]
        marks += [("lost", time, time) for time in lost[lost.request == request].time]
        now, state = float(results.arrival[request]), "waits"
        for kind, start, end in sorted(marks, key=lambda mark: (mark[1], mark[0] != "lost")):
            if start > now:
                rows.append((request, state, now, start))
            if kind == "lost":
                now, state = start, "waits again"
                continue
            rows.append((request, "prefill", start, end))
            now, state = end, "decode"
        end = float(results.finish[request])
        if end > now:
            rows.append((request, state, now, end))
    return pd.DataFrame(rows, columns=["request", "state", "start", "end"])


def timeline(results: Results, requests: Sequence[int], *, title: str, description: str) -> Any:
    """A bar for each of these requests: when it waited, prefilled, decoded, and waited again after a preemption.

    Parameters
    ----------
    results : Results
        Of a run that kept its steps.
    requests : sequence of int
    title, description : str
    """
    axes.described(title, description)
    done = spans(results, requests)
    done = done.assign(
        name=[f"request {number}" for number in done.request],
        text=[f"{fmt(start, 's')} to {fmt(end, 's')}" for start, end in zip(done.start, done.end, strict=True)],
    )
    there = [state for state in STATES if state in set(done.state)]
    colour = axes.names(alt.Color, "state", there, legend=True)
    x = axes.channel(alt.X, "start", "time", "s", (float(done.start.min()), float(done.end.max())), 0)
    y = alt.Y("name", type="nominal", title=None, sort=list(dict.fromkeys(done.name)), axis=alt.Axis(domain=False))
    tips = [
        alt.Tooltip(field, type="nominal", title=said)
        for field, said in {"name": "request", "state": "it", "text": "from"}.items()
    ]
    bars = [
        alt.Chart(done[done.state == state])
        .mark_bar(cornerRadius=0, size=STATES[state])
        .encode(x=x, x2="end", y=y, color=colour, tooltip=tips)
        for state in there
    ]
    return axes.finish(alt.layer(*bars), title, description).properties(height=ROW * done.name.nunique())


def over_time(
    results: Results, shown: Mapping[str, str], *, title: str, description: str, y_title: str, y_unit: str = ""
) -> Any:
    """How many requests or blocks there were, over time.

    Parameters
    ----------
    results : Results
        Of a run that kept its steps, on one replica.
    shown : mapping
        Columns of `Results.runs` ("running", "waiting", "blocks"), and what their lines are called.
    title, description, y_title, y_unit : str
        Blocks are a share of all of them, in %.
    """
    runs = pd.DataFrame(results.runs)
    if runs.empty or runs.replica.nunique() > 1:
        raise ValueError("over_time: results must be of a run with keep=True on one replica")
    times = np.linspace(runs.start.iloc[0], runs.end.iloc[-1], POINTS)
    at = np.maximum(np.searchsorted(runs.start.to_numpy(), times, side="right") - 1, 0)
    idle = times > runs.end.to_numpy()[at]
    frames = []
    for column, name in shown.items():
        values = runs[column].to_numpy()[at] * ~idle
        if column == "blocks":
            values = values / results.kv_blocks
        frames.append(pd.DataFrame({"time": times, "value": values, "what": name}))
    return lines(
        pd.concat(frames),
        "time",
        "value",
        "what",
        title=title,
        description=description,
        x_title="time",
        x_unit="s",
        y_title=y_title,
        y_unit=y_unit,
    )


def paging(held: Mapping[str, Sequence[int]], total: int, *, title: str, description: str, columns: int = 16) -> Any:
    """The blocks of a cache as cells, each with the letter of the request that holds it; free ones stay empty.

    Parameters
    ----------
    held : mapping
        Name of a request to the blocks that it holds, in order; a block that several hold shows them all.
    total : int
        Blocks of the cache.
    title, description : str
    columns : int
        Cells of a row.
    """
    axes.described(title, description)
    owners: dict[int, list[str]] = {block: [] for block in range(total)}
    for name, blocks in held.items():
        for block in blocks:
            if block not in owners:
                raise ValueError(f"paging: block {block} of request {name} must be below total={total}")
            owners[block].append(name)
    rows = [
        {
            "column": block % columns,
            "row": block // columns,
            "letters": "".join(names),
            "holder": "free" if not names else names[0] if len(names) == 1 else "shared",
            "text": f"block {block}: {' and '.join(names) or 'free'}",
        }
        for block, names in owners.items()
    ]
    cells = pd.DataFrame(rows)
    order = [name for name in [*held, "shared"] if name in set(cells.holder)]
    apart = alt.Scale(paddingInner=0.12)
    place = {
        "x": alt.X("column", type="ordinal", axis=None, scale=apart),
        "y": alt.Y("row", type="ordinal", axis=None, scale=apart),
    }
    tips = [alt.Tooltip("text", type="nominal", title="")]
    taken, empty = cells[cells.holder != "free"], cells[cells.holder == "free"]
    layers = [alt.Chart(empty).mark_rect(style="guide", opacity=0.12).encode(**place, tooltip=tips)]
    colour = axes.names(alt.Color, "holder", order, legend=False)
    layers.append(alt.Chart(taken).mark_rect(opacity=0.4).encode(**place, color=colour, tooltip=tips))
    layers.append(alt.Chart(taken).mark_text(style="value").encode(**place, text="letters:N", tooltip=tips))
    return axes.finish(alt.layer(*layers), title, description).properties(height=ROW * (1 + cells.row.max()))
