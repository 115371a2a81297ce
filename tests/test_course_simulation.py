"""Charts of simulated runs: what they show is what happened."""

import numpy as np
import pandas as pd
import pytest
from examples import refused
from test_course_charts import ABOUT, THEME, drawn, texts

import perfmodel as pm
from perfmodel import data
from perfmodel.course import simulation
from perfmodel.simulate.cluster import simulate
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import Settings

SERVER = pm.Deployment(data.model("llama-3.1-8b"), data.accelerator("h100-sxm"))
# Four prompts of 600 tokens and a cache that holds two of them and a little: two wait, and one is preempted.
REQUESTS = Requests([0, 0, 0.001, 0.002], [600] * 4, [200] * 4)
RUN = simulate(REQUESTS, SERVER, Settings(num_blocks=86, max_num_batched_tokens=256), keep=True)


def test_spans_are_the_life_of_a_request():
    """Without a gap from arrival to end; prefill in chunks of at most 256 tokens."""
    assert RUN.preemptions.sum() > 0
    found = simulation.spans(RUN, range(4))
    for request, own in found.groupby("request"):
        assert own.start.iloc[0] == RUN.arrival[request]
        assert own.end.iloc[-1] == RUN.finish[request]
        assert own.start.to_numpy()[1:] == pytest.approx(own.end.to_numpy()[:-1])
        assert (own.end > own.start).all()
        assert (own.state == "waits again").any() == bool(RUN.preemptions[request])
        first = own[own.state == "prefill"].iloc[0]
        assert first.start == RUN.scheduled[request]
        assert own[own.state == "decode"].end.max() == RUN.finish[request]
    assert (found[found.request == 0].state == "prefill").sum() == 3


def test_spans_of_one_that_never_waits():
    alone = simulate(Requests([1.0], [100], [5]), SERVER, keep=True)
    found = simulation.spans(alone, [0])
    assert found.state.tolist() == ["prefill", "decode"]
    assert found.end.tolist() == [alone.first_token[0], alone.finish[0]]


def test_states_differ_in_thickness():
    spec = simulation.timeline(RUN, range(4), **ABOUT).to_dict()
    states = [layer["mark"]["size"] for layer in spec["layer"]]
    assert states == [3, 20, 9, 3]
    kinds = {text for text, _ in texts(drawn(simulation.timeline(RUN, range(4), **ABOUT), 640))}
    assert {"waits", "prefill", "decode", "waits again", "request 0", "request 3"} <= kinds


def test_lines_over_time_are_what_the_steps_say():
    shown = {"running": "running", "waiting": "waiting"}
    spec = simulation.over_time(RUN, shown, y_title="requests", **ABOUT).to_dict()
    values = pd.DataFrame(next(iter(spec["datasets"].values())))
    runs = pd.DataFrame(RUN.runs)
    for _, row in values[values.what == "running"].iloc[::20].iterrows():
        at = runs[(runs.start <= row.time) & (row.time <= runs.end)].iloc[-1]
        assert row.value == at.running
    assert values[values.what == "waiting"].value.max() == runs.waiting.max() > 0
    held = simulation.over_time(RUN, {"blocks": "held"}, y_title="held", y_unit="%", **ABOUT).to_dict()
    shares = [row["value"] for row in next(iter(held["datasets"].values()))]
    assert 0.8 < max(shares) <= 1
    assert max(shares) == pytest.approx(runs.blocks.max() / 85, rel=0.05)


def test_nothing_runs_between_two_requests():
    two = simulate(Requests([0.0, 5.0], [100, 100], [5, 5]), SERVER, keep=True)
    spec = simulation.over_time(two, {"running": "running"}, y_title="requests", **ABOUT).to_dict()
    values = pd.DataFrame(next(iter(spec["datasets"].values())))
    assert values[(values.time > 0.5) & (values.time < 4.9)].value.max() == 0
    assert values.value.max() == 1


def test_a_map_of_blocks():
    chart = simulation.paging({"A": [0, 1], "B": [0, 2]}, 8, columns=4, **ABOUT)
    scene = drawn(chart, 640)
    assert sorted(text for text, _ in texts(scene) if text in ("A", "B", "AB")) == ["A", "AB", "B"]
    cells = [item for kind, item, *_ in scene if kind == "rect" and item.get("opacity")]
    assert len(cells) == 8
    colours = {item["fill"] for item in cells}
    assert colours <= {*THEME["light"]["range"]["category"], THEME["light"]["style"]["guide"]["color"]}
    assert len(colours) == 4  # A, B, both, none


def test_bad_input_is_refused():
    bare = simulate(REQUESTS, SERVER)
    refused(lambda: simulation.spans(bare, [0]), "keep=True")
    refused(lambda: simulation.over_time(bare, {"running": "r"}, y_title="requests", **ABOUT), "keep=True")
    refused(lambda: simulation.paging({"A": [9]}, 8, **ABOUT), "block 9", "total=8")
    assert np.isfinite(RUN.finish).all()
