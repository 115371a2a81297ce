"""The kinds of chart: drawn by Vega itself, on a phone and on a desk, and read back."""

import itertools
import json
import re

import altair as alt
import numpy as np
import pandas as pd
import pytest
import sympy as sp
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data
from perfmodel.course import charts, labels, simulation
from perfmodel.course.sliders import Slider, live
from perfmodel.format import THIN, fmt
from perfmodel.simulate.cluster import simulate
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import Settings
from tools import book

ABOUT = {"title": "A chart", "description": "What a reader who cannot see the chart is told"}
THEME = json.loads((book.ROOT / "book/_static/chart-theme.json").read_text("utf8"))
B, s, t = sp.symbols("B s t", positive=True)
SERVER = pm.Deployment(data.model("llama-2-70b"), data.accelerator("h100-sxm"), tensor_parallel=t)
STEP = pm.decode_time(SERVER, B, s)


def lines(**options):
    sizes = np.unique(np.geomspace(1, 512, 40).round())
    frames = [
        pd.DataFrame({"batch": sizes, "tpot": pm.decode_time(server(n), sizes, 1280).total, "tp": f"TP = {n}"})
        for n in (1, 2, 4, 8)
    ]
    axes = {"x_title": "batch", "x_unit": "requests", "y_title": "TPOT", "y_unit": "s"}
    return charts.lines(pd.concat(frames), "batch", "tpot", "tp", **{**ABOUT, **axes, **options})


def server(n):
    return pm.Deployment(data.model("llama-2-70b"), data.accelerator("h100-sxm"), tensor_parallel=n)


def roofline(*, both=True):
    roofs = {"H100": (742e12, 3.35e12), "910C die": (376e12, 1.6e12)}
    work = pd.DataFrame(
        [("S = 128", "prefill", 127), ("S = 2,048", "prefill", 2000), ("B = 1", "decode", 1), ("B = 64", "decode", 53)],
        columns=["label", "kind", "intensity"],
    ).assign(roof="H100")
    return charts.roofline(roofs if both else {"H100": roofs["H100"]}, work, **ABOUT)


def bars():
    rows = []
    for batch in (1, 64, 256):
        parts = pm.decode_time(server(4), batch, 1280).parts
        rows += [{"batch": f"B = {batch}", "part": name, "time": value} for name, value in vars(parts).items()]
    return charts.stacked_bars(pd.DataFrame(rows), "batch", "time", "part", value_title="time", unit="s", **ABOUT)


def sliding(value=64, **options):
    sliders = [Slider(s, "context s", 1280, 128, 16384, 128), Slider(t, "accelerators t", 4, options=(1, 2, 4, 8))]
    regimes = {name: STEP.shares[name] for name in ("memory", "compute")}
    about = {**ABOUT, "y_title": "TPOT", "y_unit": "s", "x_unit": "requests", "x_title": "batch", "log_x": 2}
    claims = pd.DataFrame([{"x": 64.0, "y": 0.08, "s": 1280, "t": 4, "label": "the article"}])
    given = {"x": Slider(B, "batch B", value, 1, 1024), "sliders": sliders, "regimes": regimes, "claims": claims}
    return live(STEP.total, **{**about, **given, **options})


RULES = [{"y": 0.05, "label": "limit"}, {"x": 221, "label": "ridge"}]
MARKS = pd.DataFrame(
    [
        {"batch": n, "tpot": pm.decode_time(server(1), n, 1280).total, "tp": "TP = 1", "label": f"B = {n}"}
        for n in (64, 256)
    ]
)
POINTS = pd.DataFrame({"batch": [1, 64], "tpot": [0.013, 0.028], "label": "measured"})
RUN = simulate(
    Requests([0, 0, 0.001, 0.002], [600] * 4, [200] * 4),
    pm.Deployment(data.model("llama-3.1-8b"), data.accelerator("h100-sxm")),
    Settings(num_blocks=86, max_num_batched_tokens=256),
    keep=True,
)
KINDS = {
    "timeline": lambda: simulation.timeline(RUN, range(4), **ABOUT),
    "over time": lambda: simulation.over_time(RUN, {"running": "run", "waiting": "wait"}, y_title="requests", **ABOUT),
    "paging": lambda: simulation.paging({"A": [0, 1, 5, 6, 7], "B": [0, 2, 8, 20]}, 64, **ABOUT),
    "lines": lambda: lines(rules=RULES, points=POINTS),
    "lines, named": lambda: lines(marks=MARKS),
    "lines, logarithmic": lambda: lines(rules=RULES, points=POINTS, log_x=2, log_y=True),
    "roofline of two": roofline,
    "roofline of one": lambda: roofline(both=False),
    "stacked bars": bars,
    "live": sliding,
    "live, logarithmic": lambda: sliding(log_y=True, rules={"ridge": 221.49}),
}
EVERY_KIND = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def drawn(chart, width, mode="light"):
    """Vega's scene: (kind of mark, item, left and top of its group) for all that is drawn, at a width in pixels."""
    spec = {**chart.to_dict(), "width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    config = {**THEME["common"], **{k: {**THEME["common"].get(k, {}), **v} for k, v in THEME[mode].items()}}
    if width < 520:
        config["legend"] = {**config["legend"], "columns": 1}
    scene = vl_convert.vegalite_to_scenegraph(spec, config=config)
    return list(_items(scene["scenegraph"], *scene["origin"]))


def _items(mark, left, top):
    for item in mark.get("items", []):
        yield mark.get("marktype"), item, left, top
        if mark.get("marktype") == "group":
            for inner in item.get("items", []):
                yield from _items(inner, left + item.get("x", 0), top + item.get("y", 0))


def texts(scene):
    """Text and box (left, top, right, bottom) of all that can be read."""
    for kind, item, left, top in scene:
        halo = "stroke" in item  # the ground around a label, not a second label
        if kind == "text" and str(item.get("text", "")).strip() and item.get("opacity", 1) and not halo:
            size = item.get("fontSize", 11)
            wide = len(str(item["text"])) * size * (0.53 if item.get("fontWeight") else 0.48)
            x = (
                left
                + item.get("x", 0)
                + item.get("dx", 0)
                - wide * {"center": 0.5, "right": 1}.get(item.get("align"), 0)
            )
            lift = {"top": 0, "middle": 0.5, "bottom": 1}.get(item.get("baseline"), 0.8) * size
            y = top + item.get("y", 0) + item.get("dy", 0) - lift
            yield str(item["text"]), (x, y, x + wide, y + size)


@EVERY_KIND
def test_a_notebook_gets_the_newest_format_that_it_can_draw(make):
    charts.enable()
    chart = make()
    bundle, _ = chart._repr_mimebundle_()
    spec = bundle["application/vnd.vegalite.v5+json"]
    assert spec["$schema"].endswith("/v5.json")
    assert spec["description"] == ABOUT["description"]
    assert spec["width"] > 350  # a chart that fills a cell out of view hangs JupyterLab
    assert spec["usermeta"]["fill"] is True  # the site lets it fill its column
    assert "config" not in spec  # the page brings the theme
    assert ABOUT["description"] in bundle["text/plain"]
    for version in ("5.8", "6.4"):  # JupyterLab's and the site's
        svg = vl_convert.vegalite_to_svg({**spec, "width": 400}, vl_version=version)
        assert svg.count("<path") > 10


@EVERY_KIND
def test_colours_are_the_pages(make):
    spec = json.dumps(make().to_dict())
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb\(|\"(black|white|red|blue|green|grey|gray|firebrick)\"", spec)


@EVERY_KIND
@pytest.mark.parametrize("width", [350, 700])
def test_labels_are_whole_and_apart(make, width):
    found = list(texts(drawn(make(), width)))
    assert len(found) > 8
    for text, (left, _, right, _) in found:
        assert left > -2, text
        assert right < width + 2, text
    for (one, a), (other, b) in itertools.combinations(found, 2):
        across = min(a[2], b[2]) - max(a[0], b[0])
        down = min(a[3], b[3]) - max(a[1], b[1])
        assert across < 4 or down < 4, f"{one} over {other}"


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lines, {"TP = 1", "TP = 2", "TP = 4", "TP = 8"}),
        (lambda: lines(points=POINTS, rules=RULES), {"measured", "limit", "ridge"}),
        (roofline, {"H100", "910C die", "S = 128", "B = 64"}),
        (bars, {"linear", "attention", "lm_head", "B = 64"}),
        (lambda: lines(marks=MARKS), {"B = 64", "B = 256"}),
        (sliding, {"memory", "compute", "the article"}),
        (lambda: sliding(rules={"ridge": 221.49}), {f"ridge 221{THIN}requests"}),
    ],
)
def test_what_a_colour_says_words_say_too(make, names):
    assert names <= {text for text, _ in texts(drawn(make(), 350))}


def test_regimes_differ_in_shape_too():
    shapes = {}
    for kind, item, *_ in drawn(sliding(claims=None), 700):
        if kind == "symbol" and item.get("opacity", 1):
            shapes.setdefault(item["fill"], set()).add(item.get("shape", "circle"))
    assert len(shapes) == 2
    assert not set.intersection(*shapes.values())


def test_long_names_get_a_legend_and_dashes():
    df = pd.DataFrame(
        {"x": [1.0, 2.0] * 2, "y": [1.0, 2.0, 2.0, 3.0], "name": ["a name of many words"] * 2 + ["b"] * 2}
    )
    scene = drawn(charts.lines(df, "x", "y", "name", x_title="x", y_title="y", **ABOUT), 700)
    assert len({str(item.get("strokeDash")) for kind, item, *_ in scene if kind == "line"}) == 2
    assert "a name of many words" in {text for text, _ in texts(scene)}


def test_lines_keep_their_order_and_their_values():
    """A curve of latency against throughput turns back; it must not be sorted along x."""
    df = pd.DataFrame({"x": [1.0, 3.0, 2.0], "y": [1.0, 2.0, 3.0], "name": "one"})
    chart = charts.lines(df, "x", "y", "name", x_title="x", y_title="y", **ABOUT)
    spots = [(item["x"], item["y"]) for kind, item, *_ in drawn(chart, 400) if kind == "line"]
    first, second, third = spots
    assert first[0] < third[0] < second[0]
    assert first[1] - second[1] == pytest.approx(second[1] - third[1])


def test_ticks_carry_prefix_and_unit():
    ticks = {text for text, _ in texts(drawn(lines(), 700))}
    assert {f"20{THIN}ms", f"0{THIN}s", "100", "batch (requests)"} <= ticks
    logarithmic = {text for text, _ in texts(drawn(lines(log_x=2, log_y=True), 700))}
    assert {f"10{THIN}ms", "1", "64", "256"} <= logarithmic
    roofs = {text for text, _ in texts(drawn(roofline(), 700))}
    assert {f"100{THIN}T", "performance (FLOP/s)", "1,000", f"ridge 221{THIN}FLOP/B"} <= roofs


def test_bars_end_with_their_total():
    said = [text for text, _ in texts(drawn(bars(), 700))]
    for batch in (1, 64, 256):
        assert fmt(pm.decode_time(server(4), batch, 1280).total, "s") in said


@pytest.mark.parametrize("batch", [1, 64, 300, 1000])
@pytest.mark.parametrize("context", [1280, 16384])
def test_the_live_chart_writes_what_sympy_computes(batch, context):
    """As if the reader had moved the sliders: the parameters start elsewhere."""
    spec = sliding().to_dict()
    for param in spec["params"]:
        param["value"] = {"p_B": batch, "p_s": context, "p_t": 2}.get(param["name"], param.get("value"))
    scene = drawn(alt.Chart.from_dict(spec), 700)
    (result,) = [text for text, _ in texts(scene) if f" at {batch:,}" in text]
    point = {B: batch, s: context, t: 2}
    shares = {name: STEP.shares[name].subs(point) for name in ("memory", "compute")}
    expected = f"{fmt(float(STEP.total.subs(point)), 's')} at {batch:,}{THIN}requests, {max(shares, key=shares.get)}"
    assert result == expected


def test_the_live_curve_is_the_formula():
    scene = drawn(sliding(log_x=False, claims=None), 700)
    pieces = [item for kind, item, *_ in scene if kind == "rule" and item.get("strokeWidth") == 2.5]
    assert len(pieces) == 160
    heights = np.array([piece["y"] for piece in pieces])
    sizes = 1 + 1023 * np.arange(160) / 160
    step = pm.decode_time(server(4), sizes, 1280).total
    slope = (heights[-1] - heights[0]) / (step[-1] - step[0])
    assert np.allclose(heights, heights[0] + slope * (step - step[0]), atol=1e-6)


def test_the_result_stands_above_the_curve():
    """Even above a flat one, wherever the reader is on it."""
    scene = drawn(sliding(x=Slider(B, "batch B", 2, 1, 4), claims=None, log_x=False), 350)
    curve = min(top + item["y"] for kind, item, _, top in scene if kind == "rule" and item.get("strokeWidth") == 2.5)
    (bottom,) = [box[3] for text, box in texts(scene) if " at 2" in text]
    assert bottom < curve - 8


def test_sliders_are_named_and_start_where_they_should():
    params = {param["name"]: param for param in sliding().to_dict()["params"] if "bind" in param}
    assert list(params) == ["p_B", "p_s", "p_t"]
    assert params["p_s"]["value"] == 1280
    assert params["p_s"]["bind"] == {"input": "range", "min": 128, "max": 16384, "step": 128, "name": "context s "}
    assert params["p_t"]["bind"]["options"] == [1, 2, 4, 8]


def moved(chart, **values):
    """The chart as it is once the reader has set these parameters."""
    spec = chart.to_dict()
    for param in spec["params"]:
        param["value"] = values.get(param["name"], param.get("value"))
    return alt.Chart.from_dict(spec)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, True),
        ({"p_B": 300}, True),  # it stands at its own place on the horizontal axis
        ({"p_s": 2560}, False),
        ({"p_t": 8}, False),
        ({"p_s": 1280, "p_t": 4}, True),
    ],
)
def test_a_claim_is_shown_only_where_it_holds(values, shown):
    scene = drawn(moved(sliding(), **values), 700)
    assert ("the article" in {text for text, _ in texts(scene)}) == shown
    diamonds = [item for kind, item, *_ in scene if kind == "symbol" and item.get("shape") == "diamond"]
    assert any(item.get("opacity", 1) for item in diamonds) == shown


@pytest.mark.parametrize("log_x", [0, 2])
def test_a_rule_stands_where_its_formula_says(log_x):
    """At the batch of 100 t: 400 as the chart opens, past the end of the axis at 16 accelerators."""
    options = {"rules": {"knee": 100 * t}, "log_x": log_x, "log_y": True}
    options["sliders"] = [
        Slider(s, "context s", 1280, 128, 16384, 128),
        Slider(t, "accelerators t", 4, options=(1, 2, 4, 16)),
    ]
    found = {}
    for accelerators in (1, 2, 4, 16):
        scene = drawn(moved(sliding(claims=None, **options), p_t=accelerators, p_B=400), 700)
        dashed = [item for kind, item, *_ in scene if kind == "rule" and "strokeDash" in item]
        height = [abs(item.get("y2", 0) - item.get("y", 0)) for item in dashed]
        wide = max(item.get("x2", 0) for kind, item, *_ in scene if kind == "rule" and item.get("x") == 0)
        found[accelerators] = [
            item["x"] / wide for item, h in zip(dashed, height, strict=True) if h > labels.HEIGHT - 1
        ]
        said = [text for text, _ in texts(scene) if text.startswith("knee")]
        assert said == ([f"knee {100 * accelerators}{THIN}requests"] if accelerators < 16 else [])
    assert found[16] == []
    for accelerators in (1, 2, 4):
        share = (
            np.log2(100 * accelerators) / 10 if log_x else (100 * accelerators - 1) / 1023
        )  # of an axis from 1 to 1,024
        assert found[accelerators] == pytest.approx([share])


def test_a_logarithmic_live_chart_labels_ones_twos_and_fives():
    for context in (1280, 16384):
        scene = drawn(moved(sliding(log_y=True, claims=None), p_s=context), 700)
        ticks = [text for text, _ in texts(scene) if re.fullmatch(rf"\d+{THIN}m?s", text)]
        assert len(ticks) >= 2
        assert {text[0] for text in ticks} <= set("125")
        grid = [
            item for kind, item, *_ in scene if kind == "rule" and item["stroke"] == THEME["light"]["axis"]["gridColor"]
        ]
        assert len([line for line in grid if line.get("opacity", 1)]) == len(ticks) < len(grid)


def test_named_points_lie_on_their_line():
    scene = drawn(lines(marks=MARKS), 700)
    dots = [item for kind, item, *_ in scene if kind == "symbol" and item.get("size") == 45]
    assert len(dots) == 2
    for dot in dots:
        path = [item for kind, item, *_ in scene if kind == "line" and item["stroke"] == dot["fill"]]
        line = np.interp(dot["x"], [item["x"] for item in path], [item["y"] for item in path])
        assert dot["y"] == pytest.approx(line, abs=1)  # pixels: the line has corners, the curve has none


def test_a_slider_may_count_in_larger_units():
    beta = sp.Symbol("beta", positive=True)
    chart = live(
        140e9 / beta * B,
        x=Slider(beta, "bandwidth (TB/s)", 3.5, 1, 8, 0.1, scale=1e12),
        sliders=[Slider(B, "passes", 2, 1, 4)],
        y_title="time",
        y_unit="s",
        x_unit="B/s",
        **ABOUT,
    )
    assert f"80.0{THIN}ms at 3.5{THIN}TB/s" in {text for text, _ in texts(drawn(chart, 700))}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lines(description=" "), "description"),
        (lambda: lines(description="a chart"), "must say what the chart shows"),
        (lambda: lines(title=""), "title is empty"),
        (lambda: sliding(description=""), "description"),
        (lambda: lines(log_x=True, rules=[{"x": 0, "label": "zero"}]), "0 cannot be shown on a logarithmic axis"),
        (lambda: sliding(x=Slider(B, "batch B", 1, 0, 9)), "low=0 of slider B"),
        (lambda: sliding(sliders=[]), "symbol [st] has no value"),
        (lambda: sliding(sliders=[Slider(sp.Symbol("z"), "z", 1, 0, 2)]), "slider z moves nothing"),
        (
            lambda: sliding(claims=pd.DataFrame([{"x": 64.0, "y": 0.08, "s": 1280, "label": "the article"}])),
            "claim 'the article' does not say at which t it holds",
        ),
        (lambda: Slider(B, "batch B", 9, 1, 8), r"low=1 <= value=9 <= high=8"),
        (lambda: Slider(B, "batch B", 3, options=(1, 2, 4)), r"value=3 is not one of \[1, 2, 4\]"),
    ],
)
def test_bad_input_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8))
def test_labels_are_spread(heights):
    moved = labels.spread(heights, 15)
    assert all(b - a > 14.5 for a, b in itertools.pairwise(sorted(moved)))
    assert sum(moved) == pytest.approx(sum(heights))  # pushed apart, not pushed away
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    assert order == sorted(range(len(heights)), key=lambda i: moved[i])


def test_a_label_avoids_lines_and_points():
    diagonal = labels.trace([(0, 1), (1, 0)])
    label = labels.place(["on the line"], [(0.5, 0.5)], diagonal)[0]
    assert (label.align, label.dy > 0) in {("left", True), ("right", False)}  # the two free corners
    crowd = labels.place(["first", "second", "third"], [(0.5, 0.5), (0.52, 0.5), (0.54, 0.5)], [(0.0, 0.0)])
    for width in labels.WIDTHS:
        for a, b in itertools.combinations([one.box(width) for one in crowd], 2):
            assert min(a[2], b[2]) <= max(a[0], b[0]) or min(a[3], b[3]) <= max(a[1], b[1])
