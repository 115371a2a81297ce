"""`perfmodel simulate`: traces and drawn requests, every option, bad input in one line."""

import csv
import json
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_command_line import process, refusal

import perfmodel as pm
from perfmodel import data
from perfmodel.__main__ import main
from perfmodel.simulate import options
from perfmodel.simulate.cluster import DecodePool, simulate
from perfmodel.simulate.generate import closed_loop, gamma, preset
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import Settings

MACHINE = ["simulate", "--model=llama-3.1-8b", "--accelerator=h100-sxm"]
DRAWN = ["--prompt=500", "--output=50", "--requests=40", "--rate=20"]
DEPLOYMENT = pm.Deployment(
    data.model("llama-3.1-8b"),
    data.accelerator("h100-sxm"),
    link=data.accelerator("h100-sxm").link,
    constants=data.constants("default"),
)
TRACE = "arrival,prompt,output\n0,500,20\n0.5,300,10\n0.6,40,1\n2,900,30\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "night.csv"
    path.write_text(TRACE, encoding="utf-8")
    return path


def answers(capsys, *given):
    assert main([*MACHINE, "--json", *map(str, given)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def expected(requests, deployment=DEPLOYMENT, settings=None, **more):
    """The same from Python, through JSON, but for the time that it took."""
    limits = {name: more.pop(name, None) for name in ("ttft", "tpot")}
    found = simulate(requests, deployment, settings or Settings(), **more).summary(**limits)
    return json.loads(json.dumps(found | {"wall_s": 0}))


def without_wall(found):
    assert found["wall_s"] > 0
    return found | {"wall_s": 0}


def test_fields_that_are_promised(capsys, trace):
    found = answers(capsys, "--trace", trace, "--format=csv")
    promised = "requests finished refused preemptions steps duration_s ttft_s tpot_s e2e_s throughput_tok_s"
    promised += " goodput_req_s prefix_hit_blocks prefix_hit_tokens kv_occupancy_mean wall_s"
    assert set(promised.split()) <= set(found)
    for name in ("ttft_s", "tpot_s", "e2e_s", "itl_s"):
        assert list(found[name]) == ["mean", "p50", "p90", "p99"]
    assert (found["requests"], found["finished"], found["refused"], found["preemptions"]) == (4, 4, 0, 0)
    assert found["steps"] == 20 + 10 + 1 + 30  # none shares a step
    first = float(pm.prefill_time(DEPLOYMENT, 900).total)
    assert found["ttft_s"]["p99"] == pytest.approx(first, rel=0.05)
    assert found["throughput_tok_s"] == pytest.approx(61 / found["duration_s"])


def test_a_trace(capsys, trace):
    requests = Requests([0, 0.5, 0.6, 2], [500, 300, 40, 900], [20, 10, 1, 30])
    assert without_wall(answers(capsys, "--trace", trace, "--format=csv")) == expected(requests)
    found = without_wall(answers(capsys, "--trace", trace, "--format=csv", "--requests=2", "--rate=8"))
    assert found == expected(requests[:2].scaled(8))


def test_a_trace_with_a_bad_row(capsys, trace):
    trace.write_text(TRACE + "3,zero,5\n", encoding="utf-8")
    message = refusal([*MACHINE, "--trace", str(trace), "--format=csv"], capsys)
    assert "line 6" in message
    assert "prompt" in message
    assert main([*MACHINE, "--trace", str(trace), "--format=csv", "--skip-bad", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["requests"] == 4
    assert err == f"perfmodel: 1 bad rows of {trace} are left out\n"


def test_drawn_requests(capsys):
    assert without_wall(answers(capsys, *DRAWN)) == expected(gamma(20, 40, 1, 500, 50))
    bursts = without_wall(answers(capsys, *DRAWN, "--cv=4", "--seed=3"))
    assert bursts == expected(gamma(20, 40, 4, 500, 50, seed=3))
    found = answers(capsys, "--preset=azure-code", "--requests=50", "--rate=4", "--seed=2")
    assert without_wall(found) == expected(preset("azure-code", 50, 4, seed=2))
    loop = ["--prompt=500", "--output=50", "--users=4", "--requests=20", "--think=0.5", "--stagger=0.1"]
    assert without_wall(answers(capsys, *loop)) == expected(closed_loop(4, 20, 500, 50, think=0.5, stagger=0.1))


PREFIXED = ["--preset=mooncake-conversation", "--requests=30", "--rate=2"]
DRAFTS = {"num_speculative_tokens": 3, "acceptance": 0.5, "draft_cost": 0.4}
OTHERS = {  # each option of the engine: a value, what it needs, and the rules that all of these set
    "--policy": ("static", [], {"policy": "static"}),
    "--kv-blocks": (200, [], {"num_blocks": 200}),
    "--block-size": (64, [], {"block_size": 64}),
    "--max-num-batched-tokens": (300, [], {"max_num_batched_tokens": 300}),
    "--max-num-seqs": (3, [], {"max_num_seqs": 3}),
    "--max-model-len": (549, [], {"max_model_len": 549}),
    "--long-prefill-token-threshold": (100, [], {"long_prefill_token_threshold": 100}),
    "--watermark": (26200, [], {"watermark": 26200}),
    "--reserve": (100_000, ["--policy=contiguous"], {"reserve": 100_000, "policy": "contiguous"}),
    "--speculate": (3, ["--acceptance=0.5", "--draft-cost=0.4"], DRAFTS),
    "--acceptance": (0.5, ["--speculate=3", "--draft-cost=0.4"], DRAFTS),
    "--draft-cost": (0.4, ["--speculate=3", "--acceptance=0.5"], DRAFTS),
    "--swap-link": (
        "pcie4",
        ["--policy=v0", "--kv-blocks=100"],
        {"policy": "v0", "num_blocks": 100, "swap_link": data.link("pcie4")},
    ),
}


def test_every_option_of_the_engine_is_tested():
    assert {*OTHERS, "--prefix-caching"} == set(options.GROUPS["engine"])


@pytest.mark.parametrize("option", OTHERS)
def test_every_option_of_the_engine_counts(capsys, option):
    """It changes what comes out, to what the rules give that it sets."""
    value, needed, rules = OTHERS[option]
    drawn, requests = ["--prompt=500", "--output=50", "--requests=40", "--rate=400"], gamma(400, 40, 1, 500, 50)
    found = without_wall(answers(capsys, *drawn, *needed, f"{option}={value}"))
    assert found == expected(requests, settings=Settings(**rules))
    assert found != expected(requests)


def test_flags_of_the_engine(capsys):
    requests, drawn = gamma(400, 40, 1, 500, 50), ["--prompt=500", "--output=50", "--requests=40", "--rate=400"]
    for flag, rule in {
        "--no-chunked-prefill": {"enable_chunked_prefill": False},
        "--reserve-full": {"scheduler_reserve_full_isl": True},
    }.items():
        tight = {"max_num_batched_tokens": 700, "num_blocks": 150}
        given = [*drawn, "--max-num-batched-tokens=700", "--kv-blocks=150"]
        found = without_wall(answers(capsys, *given, flag))
        assert found == expected(requests, settings=Settings(**tight, **rule))
        assert found != without_wall(answers(capsys, *given))


def test_prefix_caching(capsys):
    on, off, default = (
        answers(capsys, *PREFIXED, *more) for more in (["--prefix-caching=on"], ["--prefix-caching=off"], [])
    )
    assert on["prefix_hit_tokens"] == default["prefix_hit_tokens"] > 0
    assert off["prefix_hit_tokens"] == off["prefix_hit_blocks"] == 0


def test_an_unlimited_cache(capsys):
    found = answers(capsys, *DRAWN, "--kv-blocks=unlimited")
    assert found["kv_occupancy_mean"] is None
    assert answers(capsys, *DRAWN)["kv_occupancy_mean"] > 0


def test_replicas_and_pools(capsys):
    requests = gamma(20, 40, 1, 500, 50)
    two = pm.Deployment(**(vars(DEPLOYMENT) | {"data_parallel": 2}))
    found = without_wall(answers(capsys, *DRAWN, "--dp=2", "--router=least-loaded"))
    assert found == expected(requests, two, router="least-loaded")
    found = without_wall(answers(capsys, *DRAWN, "--dp=2", "--decode-replicas=1", "--transfer-link=infiniband-ndr"))
    pool = DecodePool(DEPLOYMENT, data.link("infiniband-ndr"), Settings())
    assert found == expected(requests, two, decode_pool=pool)


def test_limits_in_milliseconds(capsys):
    found = answers(capsys, *DRAWN, "--slo-ttft=20", "--slo-tpot=7.5")
    assert without_wall(found) == expected(gamma(20, 40, 1, 500, 50), ttft=0.020, tpot=0.0075)
    assert 0 < found["compliant_share"] < 1
    assert found["goodput_req_s"] == pytest.approx(found["compliant_share"] * 40 / found["duration_s"])


def test_a_table_for_a_person(capsys):
    given = [*DRAWN, "--slo-ttft=100", "--max-model-len=549", "--kv-blocks=unlimited", "--dp=2"]
    assert main([*MACHINE, *given]) == 0
    out = capsys.readouterr().out
    assert "0 finished" in out
    assert "40 refused; the first: prompt + output = 550 tokens exceed max_model_len = 549" in out
    assert main([*MACHINE, *DRAWN, "--slo-ttft=100"]) == 0
    out = capsys.readouterr().out
    for word in ("TTFT", "TPOT", "end to end", "goodput", "40 finished", "p99", "simulated in"):
        assert word in out
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_of_times(capsys, tmp_path, suffix):
    path = tmp_path / f"times.{suffix}"
    answers(capsys, "--prompt=500", "--output=0", "--requests=5", "--rate=2", "--out", path)
    found = simulate(gamma(2, 5, 1, 500, 0), DEPLOYMENT)
    if suffix == "csv":
        rows = list(csv.DictReader(path.read_text("utf8").splitlines()))
        columns = {name: [float(row[name]) for row in rows] for name in rows[0]}
    else:
        columns = pq.read_table(path).to_pydict()
    assert columns["finish"] == pytest.approx(found.finish.tolist())
    assert columns["prompt"] == [500] * 5
    assert np.isnan(columns["first_token"]).all()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ["one of --trace, --preset and --prompt", "none is given"]),
        (["--preset=azure-code", "--prompt=5"], ["not both of --preset and --prompt"]),
        (["--trace=night.csv"], ["--trace", "needs --format"]),
        (["--trace=night.csv", "--format=csv"], ["night.csv", "No such file"]),
        (["--format=csv", *DRAWN], ["--format", "needs --trace"]),
        (["--skip-bad", *DRAWN], ["--skip-bad", "needs --trace"]),
        (["--prompt=5", "--output=5"], ["--prompt", "needs one of --rate and --users"]),
        ([*DRAWN, "--users=5"], ["--prompt", "needs one of --rate and --users"]),
        (["--prompt=5", "--rate=2"], ["--prompt", "needs --output"]),
        (["--preset=azure-code", "--output=5"], ["--output", "needs --prompt"]),
        (["--preset=sharegpt"], ["--rate", "must be given"]),
        (["--preset=none"], ["--preset", "azure-code"]),
        ([*DRAWN, "--think=1"], ["--think", "needs --users"]),
        (["--prompt=5", "--output=5", "--users=9", "--requests=3"], ["--users", "9", "at most 3"]),
        ([*DRAWN[:3], "--rate=0"], ["--rate", "0.0 must be at least"]),
        ([*DRAWN, "--policy=fifo"], ["--policy", "v1, decode-first"]),
        ([*DRAWN, "--kv-blocks=0"], ["--kv-blocks", "above 0"]),
        ([*DRAWN, "--kv-blocks=1"], ["--kv-blocks", "at least 2"]),
        ([*DRAWN, "--acceptance=0.5"], ["--acceptance", "needs --speculate"]),
        ([*DRAWN, "--speculate=3"], ["--speculate", "needs --acceptance"]),
        ([*DRAWN, "--speculate=3", "--acceptance=2", "--draft-cost=0"], ["--acceptance", "2.0 must be at most 1"]),
        ([*DRAWN, "--policy=contiguous"], ["--reserve", "must be given"]),
        ([*DRAWN, "--reserve=5"], ["--reserve", "5 must be left out"]),
        ([*DRAWN, "--swap-link=pcie5"], ["--swap-link", "must be left out"]),
        ([*DRAWN, "--policy=v0", "--swap-link=string"], ["string", "is unknown"]),
        ([*DRAWN, "--policy=v0", "--prefix-caching=on"], ["--prefix-caching", "must be left out"]),
        ([*DRAWN, "--decode-replicas=2"], ["--decode-replicas", "needs --transfer-link"]),
        ([*DRAWN, "--transfer-link=pcie5"], ["--transfer-link", "needs --decode-replicas"]),
        ([*DRAWN, "--router=random"], ["--router", "round-robin"]),
        ([*DRAWN, "--pp=2"], ["--pp", "2 must be 1"]),
        ([*DRAWN, "--slo-ttft=-1"], ["--slo-ttft", "not negative"]),
        ([*DRAWN, "--slo-ttft=0"], ["--slo-ttft", "above 0"]),
        ([*DRAWN, "--out=times.txt"], ["--out", ".csv or .parquet"]),
        ([*DRAWN, "--batch=5"], ["unrecognized arguments: --batch=5"]),
        ([*DRAWN, "--ideal", "--constants=default"], ["--constants", "not allowed with --ideal"]),
        (["--preset=mooncake-conversation", "--block-size=100"], ["--block-size", "100 must divide"]),
        (["--preset=azure-code", "--requests=99999999"], ["--requests", "99999999"]),
    ],
)
def test_bad_input(capsys, monkeypatch, tmp_path, given, words):
    monkeypatch.chdir(tmp_path)
    message = refusal([*MACHINE, *given], capsys)
    for word in words:
        assert word in message
    assert not list(tmp_path.iterdir())


def test_a_model_that_does_not_fit(capsys):
    given = ["simulate", "--model=llama-3.1-405b", "--accelerator=h100-sxm", *DRAWN]
    assert "llama-3.1-405b on h100-sxm leaves room for 0 blocks" in refusal(given, capsys)


def test_an_interrupt_leaves_no_file(tmp_path):
    """A long run: a million requests, stopped while it draws or serves."""
    given = [
        *MACHINE,
        "--prompt=100",
        "--output=100",
        "--rate=50",
        "--requests=1000000",
        "--progress",
        "--out=times.csv",
    ]
    running = process(given, cwd=tmp_path)
    assert b"requests" in running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in err
    assert not list(tmp_path.iterdir())
