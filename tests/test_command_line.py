"""`perfmodel estimate`: good input gives the estimate; bad input one line on stderr, status 2, no traceback."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import examples
import pytest
import test_load
from examples import ABSENT, CONFIGS, LLAMA, config, label

import perfmodel as pm
from perfmodel import __main__ as command_line
from perfmodel import data, options, question, terminal
from perfmodel.__main__ import main

GOOD = {
    "--model": "llama-2-70b",
    "--accelerator": "h100-sxm",
    "--tp": "4",
    "--prompt": "1024",
    "--output": "256",
    "--batch": "64",
}


def arguments(changes, *flags):
    options = {key: value for key, value in (GOOD | changes).items() if value is not ABSENT}
    return ["estimate", *flags, *(f"{key}={value}" for key, value in options.items())]


def process(given, *, program=("-m", "perfmodel"), shell='exec "$@"', environment=None, **settings):
    """A process of its own, as a user has it: encodings, broken streams and signals are those of a process."""
    command = ["sh", "-c", shell, "sh", sys.executable, *program, *map(str, given)]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    buffered = {"PYTHONUNBUFFERED": ""}  # as users have it: what is buffered fails late
    return subprocess.Popen(command, env=os.environ | buffered | (environment or {}), **settings)


def refusal(given, capsys):
    """The one line that bad input gets: no escapes, nothing beside it."""
    with pytest.raises(SystemExit) as stop:
        main(given)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == ""
    assert re.fullmatch(r"perfmodel: [^\n]+\n", err)
    assert err[:-1].isprintable()
    return err


def answers(capsys, changes, *flags):
    """What `--json` says."""
    assert main(arguments(changes, *flags, "--json")) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_good_input_prints_one_json_object(capsys):
    found = answers(capsys, {})
    deployment = examples.served()
    estimate = pm.estimate(deployment, pm.Workload(1024, 256, 64))
    assert {name: found[name] for name in vars(estimate)} == vars(estimate)
    assert (found["accelerators"], found["throughput_tok_s_per_gpu"]) == (4, estimate.throughput_tok_s / 4)
    assert found["parameters"] == 68_976_648_192
    assert found["kv_bytes_per_token"] == 327_680
    # What the command line promises, whatever the estimate holds besides.
    promised = {"parameters", "active_parameters", "ttft_s", "tpot_s", "e2e_s", "throughput_tok_s", "bound"}
    promised |= {"weight_bytes_per_gpu", "kv_bytes_per_token", "kv_capacity_tokens", "max_concurrency"}
    assert promised <= set(found)


def test_ideal_leaves_the_roofline_alone(capsys):
    main(arguments({}, "--json", "--ideal"))
    found = json.loads(capsys.readouterr().out)
    ideal = pm.Deployment(data.model("llama-2-70b"), data.accelerator("h100-sxm"), tensor_parallel=4)
    assert found["ttft_s"] == pytest.approx(pm.prefill_time(ideal, 1024).total)
    assert found["tpot_s"] == pytest.approx(pm.decode_time(ideal, 64, 1152).total)
    assert found["interference_s"] == 0


MOE = {"--model": "mixtral-8x7b", "--tp": "2", "--dp": "2"}
DRAFTED = {"--speculate": "4", "--acceptance": "0.7", "--draft-cost": "0.1"}
CHANGED = {  # what changes, in which case, and an answer that must follow
    "--model": ("llama-3.1-8b", {}, "parameters"),
    "--accelerator": ("h200", {}, "tpot_s"),
    "--link": ("pcie4", {}, "ttft_s"),
    "--constants": ("mine", {"--data": "mine.toml"}, "decode_step_s"),
    "--tp": ("8", {}, "weight_bytes_per_gpu"),
    "--pp": ("2", {}, "weight_bytes_per_gpu"),
    "--dp": ("2", {}, "throughput_tok_s"),
    "--cp": ("2", {}, "kv_bytes_per_gpu"),
    "--dcp": ("2", {"--tp": "16"}, "kv_bytes_per_gpu"),
    "--ep": (None, MOE, "weight_bytes_per_gpu"),
    "--ideal": (None, {}, "ttft_s"),
    "--memory-utilization": ("0.8", {}, "kv_capacity_tokens"),
    "--weights": ("fp8", {}, "weight_bytes_per_gpu"),
    "--experts": ("int4", MOE, "weight_bytes_per_gpu"),
    "--tables": ("fp8", {}, "weight_bytes_per_gpu"),
    "--kv": ("fp8", {}, "kv_bytes_per_token"),
    "--activations": ("fp8", {}, "kv_budget_bytes"),
    "--compute": ("fp8", {}, "ttft_s"),
    "--prompt": ("2048", {}, "ttft_s"),
    "--output": ("512", {}, "e2e_s"),
    "--batch": ("32", {}, "tpot_s"),
    "--prefill": ("fused", {}, "interference_s"),
    "--chunk": ("256", {"--prefill": "fused"}, "worst_gap_s"),
    "--shared-prefix": ("512", {}, "ttft_s"),
    "--prefix-hit": ("0.5", {}, "ttft_s"),
    "--speculate": ("3", DRAFTED, "tpot_s"),
    "--acceptance": ("0.6", DRAFTED, "tpot_s"),
    "--draft-cost": ("0.2", DRAFTED, "tpot_s"),
    "--draft": ("llama-2-7b", DRAFTED | {"--draft-cost": ABSENT, "--draft": "llama-3.1-8b"}, "tpot_s"),
    "--ttft-limit": ("70", {}, "binding"),
    "--tpot-limit": ("30", {}, "limits_met"),
    "--price": ("2.5", {}, "dollars_per_million_output_tokens"),
    "--power": ("500", {}, "joules_per_output_token"),
}


def test_every_option_has_a_test_below():
    assert set(CHANGED) == {option for group in options.OPTIONS.values() for option in group} | set(options.FLAGS)


@pytest.mark.parametrize("option", CHANGED)
def test_every_option_reaches_the_estimate(capsys, tmp_path, monkeypatch, option):
    """An option that is read and then forgotten would change nothing."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(test_load.FILE, encoding="utf-8")
    value, case, field = CHANGED[option]
    found = answers(capsys, case, option) if value is None else answers(capsys, case | {option: value})
    assert found[field] != answers(capsys, case)[field]


def test_precisions_in_bytes(capsys):
    """Llama-2-70B on four accelerators: 2 x 32,000 x 8,192 of its parameters are in the two tables."""
    tables = 2 * 32_000 * 8_192
    rest = 68_976_648_192 - tables
    for weights, bits in ("fp8", 8), ("int8", 8), ("int4", 4 + 16 / 128), ("fp4", 4 + 8 / 16), ("mxfp4", 4 + 8 / 32):
        found = answers(capsys, {"--weights": weights, "--accelerator": "b200"})
        assert found["weight_bytes_per_gpu"] == pytest.approx((rest * bits / 8 + tables * 2) / 4, rel=1e-12)
    found = answers(capsys, {"--weights": "int4", "--tables": "int8"})
    assert found["weight_bytes_per_gpu"] == pytest.approx((rest * 4.125 / 8 + tables) / 4, rel=1e-12)
    assert answers(capsys, {"--kv": "int8"})["kv_bytes_per_token"] == 2 * 80 * 8 * 128
    # Experts of their own precision: 8 x 3 x 4,096 x 14,336 in 32 layers of Mixtral, two of them on each accelerator.
    routed = 8 * 3 * 4_096 * 14_336 * 32
    both = [answers(capsys, MOE | {"--experts": kind})["weight_bytes_per_gpu"] for kind in ("bf16", "mxfp4")]
    assert both[0] - both[1] == pytest.approx(routed * (16 - 4.25) / 8 / 2, rel=1e-9)


def test_int4_is_weight_only(capsys):
    """It reads a quarter and multiplies in BF16; a rival that multiplies in FP8 prefills about twice as fast."""
    ideal = [
        answers(capsys, {"--weights": weights, "--prompt": "8192"} | more, "--ideal")["ttft_s"]
        for weights, more in [("bf16", {}), ("int4", {}), ("int4", {"--compute": "fp8"}), ("fp8", {})]
    ]
    assert ideal[1] == pytest.approx(ideal[0], rel=1e-3)  # the head of one token is bound by memory
    assert ideal[2] == pytest.approx(ideal[3], rel=1e-3)
    assert ideal[0] / ideal[3] == pytest.approx(1979 / 989.4, rel=1e-2)  # the data sheet's rates


def test_chunks_mean_fused_prefill_and_an_ideal_machine_prefills_apart(capsys):
    assert answers(capsys, {"--chunk": "256"}) == answers(capsys, {"--chunk": "256", "--prefill": "fused"})
    assert answers(capsys, {}) == answers(capsys, {"--prefill": "exclusive"})
    assert answers(capsys, {}, "--ideal") == answers(capsys, {"--prefill": "apart"}, "--ideal")
    assert answers(capsys, {"--prefill": "exclusive"}, "--ideal")["interference_s"] > 0
    assert answers(capsys, {"--link": "nvlink4"}, "--ideal")["ttft_s"] > answers(capsys, {}, "--ideal")["ttft_s"]


def test_chunks_are_summed_up_to_a_limit(capsys, monkeypatch):
    monkeypatch.setattr(question, "MOST_CHUNKS", 4)
    assert answers(capsys, {"--chunk": "256", "--prompt": "1024"})["ttft_s"] > 0
    assert "into more than 4 chunks" in refusal(arguments({"--chunk": "256", "--prompt": "1025"}), capsys)


def test_a_prefix_in_tokens_or_as_a_share(capsys):
    found = answers(capsys, {"--prefix-hit": "0.5"})
    assert found == answers(capsys, {"--shared-prefix": "512"})
    deployment = examples.served()
    assert found["ttft_s"] == pytest.approx(pm.prefill_time(deployment, 512, prefix=512).total)
    assert answers(capsys, {"--shared-prefix": "0"}) == answers(capsys, {})


def test_a_draft_model_costs_what_its_steps_take(capsys):
    """One drafted token at the mean context of 1,152: the draft's step over the target's."""
    drafted = {"--speculate": "1", "--acceptance": "0.7"}
    draft, target = examples.served("llama-3.1-8b"), examples.served()
    cost = pm.decode_time(draft, 64, 1152).total / pm.decode_time(target, 64, 1152).total
    given = answers(capsys, drafted | {"--draft-cost": repr(float(cost))})
    found = answers(capsys, drafted | {"--draft": "llama-3.1-8b"})
    assert found["tpot_s"] == pytest.approx(given["tpot_s"], rel=1e-12)
    # A round of 1 token drafted and 2 verified gives 1.7 tokens.
    round_ = (cost * pm.decode_time(target, 64, 1152).total + pm.decode_time(target, 64, 1152, tokens=2).total) / 1.7
    assert given["decode_step_s"] == pytest.approx(round_, rel=1e-12)
    # Three drafted tokens find 0, 1 and 2 more in the cache than the first.
    cost = pm.decode_time(draft, 64, 1153).total / pm.decode_time(target, 64, 1152).total
    longer = answers(capsys, drafted | {"--speculate": "3", "--draft-cost": repr(float(cost))})
    found = answers(capsys, drafted | {"--speculate": "3", "--draft": "llama-3.1-8b"})
    assert found["tpot_s"] == pytest.approx(longer["tpot_s"], rel=1e-12)
    nothing = answers(capsys, {"--speculate": "0", "--acceptance": "0.7", "--draft": "llama-3.1-8b"})
    assert nothing == answers(capsys, {})


def test_a_dense_draft_of_experts_that_are_shared_out(capsys):
    given = MOE | {"--speculate": "2", "--acceptance": "0.7", "--draft": "llama-3.1-8b"}
    assert answers(capsys, given, "--ep")["tpot_s"] > 0


@pytest.mark.parametrize(
    ("ttft", "tpot", "batch", "binding", "met"),
    [  # around what this deployment does with 64 requests, and with as many as its cache holds or one more
        (0.99, None, 64, "ttft", False),
        (1.01, None, 64, "ttft", True),
        (None, 0.99, 64, "tpot", False),
        (None, 1.01, 64, "tpot", True),
        (1.02, 1.01, 64, "tpot", True),
        (1.01, 0.99, 64, "tpot", False),
        (9, 9, 350, "memory", True),
        (9, 9, 351, "memory", False),
    ],
)
def test_limits(capsys, ttft, tpot, batch, binding, met):
    base = answers(capsys, {"--batch": batch})
    assert (base["limits_met"], base["binding"]) == (None, None)
    limits = {"--ttft-limit": (ttft, base["ttft_s"]), "--tpot-limit": (tpot, base["tpot_s"])}
    given = {option: f"{1000 * share * time!r}" for option, (share, time) in limits.items() if share}
    found = answers(capsys, {"--batch": batch} | given)
    assert (found["binding"], found["limits_met"]) == (binding, met)


def test_a_limit_alone_leaves_the_other_open(capsys):
    long = {"--prompt": "100000", "--batch": "2"}
    base = answers(capsys, long)
    assert min(base["ttft_s"], base["tpot_s"]) > 0.01
    for option in ("--ttft-limit", "--tpot-limit"):
        assert answers(capsys, long | {option: "1e6"})["limits_met"]


@pytest.mark.parametrize("engine", [{}, {"--chunk": "256"}, DRAFTED, {"--prefix-hit": "0.5"}, {"--pp": "2"}], ids=str)
def test_the_bill_is_for_all_accelerators_all_the_time(capsys, engine):
    """So many tokens an hour, in and out, pay for so many accelerators, in dollars and in joules."""
    found = answers(capsys, engine | {"--dp": "3", "--price": "2.5"})
    out = found["throughput_tok_s"]
    assert found["throughput_tok_s_per_gpu"] * found["accelerators"] == pytest.approx(out)
    into = out * 1024 / 256
    hour = 3600 * (into * found["dollars_per_million_input_tokens"] + out * found["dollars_per_million_output_tokens"])
    assert hour / 1e6 == pytest.approx(found["accelerators"] * 2.5, rel=1e-9)
    watts = into * found["joules_per_input_token"] + out * found["joules_per_output_token"]
    assert watts == pytest.approx(found["accelerators"] * 700, rel=1e-9)  # the data sheet's
    assert found["joules_per_input_token"] > 0


def test_the_bill_by_hand(capsys):
    """Input pays for prefills of its own, output for its share of the steps: as `accelerator_seconds` has it."""
    deployment = examples.served()
    found = answers(capsys, {"--price": "3.6"})  # 0.001 dollars a second
    prefill, step = pm.prefill_time(deployment, 1024).total, pm.decode_time(deployment, 64, 1152).total
    assert found["dollars_per_million_input_tokens"] == pytest.approx(1000 * 4 * prefill / 1024, rel=1e-9)
    output = 1000 * 4 * step * 255 / (64 * 256)
    assert found["dollars_per_million_output_tokens"] == pytest.approx(output, rel=1e-9)
    apart = answers(capsys, {"--price": "3.6", "--prefill": "apart"})
    for field in ("dollars_per_million_input_tokens", "dollars_per_million_output_tokens"):
        assert apart[field] == pytest.approx(found[field], rel=1e-9)
    assert answers(capsys, {})["dollars_per_million_output_tokens"] is None
    unknown = answers(capsys, {"--accelerator": "tpu-v5p", "--tp": "8"})
    assert (data.accelerator("tpu-v5p").power, unknown["joules_per_output_token"]) == (0, None)


def test_one_s_own_data(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(test_load.FILE, encoding="utf-8")
    given = {"--data": path, "--model": "tiny", "--accelerator": "box", "--tp": "2", "--batch": "1"}
    found = answers(capsys, given)
    mine = data.load(path)
    machine = mine.accelerator("box")
    own = pm.Deployment(mine.model("tiny"), machine, link=mine.link("wire"), tensor_parallel=2)
    own = replace(own, constants=data.constants())
    assert found["ttft_s"] == pytest.approx(pm.prefill_time(own, 1024).total)
    assert found["joules_per_output_token"] > 0
    assert answers(capsys, given | {"--link": "pcie5"})["ttft_s"] < found["ttft_s"]
    assert "nearest: tiny" in refusal(arguments(given | {"--model": "tinny"}), capsys)
    path.write_text("[model.tiny", encoding="utf-8")
    assert "mine.toml: is not TOML" in refusal(arguments(given), capsys)


def test_messages_are_free_on_the_ideal_machine_alone(capsys, tmp_path):
    """An accelerator that names no link serves alone, or over one that is named beside it."""
    path = tmp_path / "mine.toml"
    path.write_text(test_load.FILE.replace('link = "wire"\n', ""), encoding="utf-8")
    given = {"--data": path, "--model": "llama-3.1-8b", "--accelerator": "box", "--tp": "1", "--batch": "1"}
    assert data.load(path).accelerator("box").link is None
    assert answers(capsys, given)["ttft_s"] > 0
    for degree in ("--tp", "--pp", "--dp"):
        line = refusal(arguments(given | {degree: "2"}), capsys)
        assert "argument --link: needed for 2 x box, which names none" in line
        assert answers(capsys, given | {degree: "2", "--link": "wire"})["ttft_s"] > 0
        assert answers(capsys, given | {degree: "2"}, "--ideal")["ttft_s"] > 0


def test_what_does_not_fit_lacks_so_many_bytes(capsys):
    """BF16 weights on one H100: 137.95 GB and the peak of a step's activations, of 72 GB usable."""
    found = answers(capsys, {"--tp": "1"})
    activations = 8192 * (2 * 28672 + 4 * 8192) * 2
    lacking = 2 * 68_976_648_192 + activations - 72e9
    assert found["kv_budget_bytes"] == pytest.approx(-lacking, rel=1e-9)
    main(arguments({"--tp": "1"}))
    assert f"each accelerator lacks {lacking / 1e9:.1f}\u202fGB" in capsys.readouterr().out


def test_a_quantised_config_gets_a_note(capsys):
    for name, noted in ("Qwen--Qwen3-32B-FP8", True), ("meta-llama--Meta-Llama-3.1-8B", False):
        path = CONFIGS / f"{name}.json"
        main(arguments({"--model": path}))
        out = capsys.readouterr().out
        assert ("note: the config is of quantised weights; bytes follow --weights" in out) == noted
        answers(capsys, {"--model": path})


@pytest.mark.parametrize(
    ("changes", "flags", "words"),
    [
        (
            {},
            (),
            ["llama-2-70b, 69.0\u202fbillion parameters", "4 x h100-sxm, TP 4", "TTFT", "waiting for other"],
        ),
        ({}, ("--ideal",), ["mode            ideal: no losses\n"]),
        ({"--model": "mixtral-8x7b"}, (), ["12.9\u202fbillion of them active in a token"]),
        ({"--tp": "1"}, (), ["none: the model does not fit", "do not fit; the times assume that they do"]),
        (
            MOE | {"--pp": "2", "--link": "pcie5", "--weights": "fp8", "--experts": "int4", "--kv": "fp8"},
            ("--ep",),
            [
                "8 x h100-sxm, TP 2, PP 2, DP 2, EP, pcie5",
                "weights fp8, experts int4, tables bf16, kv fp8, activations",
            ],
        ),
        ({"--tp": "16", "--cp": "2", "--dcp": "2"}, (), ["32 x h100-sxm, TP 16, CP 2, DCP 2, nvlink4"]),
        ({"--tp": "4"}, ("--ideal",), ["4 x h100-sxm, TP 4, messages free", "prefill apart"]),
        ({"--chunk": "256", "--shared-prefix": "100"}, (), ["prefill fused in chunks of 256, 96 tokens of a prompt"]),
        ({"--shared-prefix": "15"}, (), ["exclusive, 0 tokens of a prompt cached, in whole blocks"]),
        ({"--shared-prefix": "1024"}, (), ["exclusive, 1,008 tokens of a prompt cached"]),  # the last one is computed
        (DRAFTED, (), ["4 tokens drafted at 0.10 of a step each"]),
        ({"--ttft-limit": "70"}, (), ["limits          not met; ttft is used up most"]),
        ({"--tpot-limit": "40"}, (), ["limits          met; tpot is used up most"]),
        (
            {"--price": "2.5", "--power": "500"},
            (),
            ["cost            $0.198 a million tokens in, $0.720", "at 500\u202fW"],
        ),
    ],
)
def test_the_table_for_a_person(capsys, changes, flags, words):
    assert main(arguments(changes, *flags)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in words:
        assert word in out


def test_a_config_by_its_path(capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json", CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json"):
        main(arguments({"--model": path}, "--json"))
        assert json.loads(capsys.readouterr().out)["parameters"] == 8_030_261_248


REFUSALS = [
    ({"--model": "llama-2-7Ob"}, ["model 'llama-2-7Ob' is unknown", "nearest: llama-2-70b"]),
    ({"--model": ""}, ["--model", "must not be empty"]),
    ({"--model": "a\nb\x1b[31m"}, ["model 'a\\nb\\x1b[31m' is unknown"]),
    ({"--model": "a\nb\x1b[31m.json"}, ["b\\x1b[31m.json: cannot be read"]),
    ({"--model": "\udcff"}, ["model '\\udcff' is unknown"]),  # how Python passes on a byte that is not UTF-8
    ({"--accelerator": ""}, ["--accelerator", "must not be empty"]),
    ({"--model": "nope.json"}, ["nope.json: cannot be read"]),
    ({"--accelerator": "h100"}, ["accelerator 'h100' is unknown", "nearest: h100-sxm"]),
    ({"--tp": "3"}, ["argument --tp: 3 does not divide heads=64"]),
    ({"--tp": "0"}, ["--tp", "'0' must be a whole number above 0"]),
    ({"--tp": "4.0"}, ["--tp", "'4.0' must be a whole number above 0"]),
    ({"--tp": ""}, ["--tp", "'' must be a whole number above 0"]),
    ({"--dp": "-1"}, ["--dp", "'-1' must be a whole number above 0"]),
    ({"--prompt": "0"}, ["--prompt", "'0' must be a whole number above 0"]),
    ({"--prompt": "-5"}, ["--prompt", "'-5' must be a whole number above 0"]),
    ({"--prompt": "1_024"}, ["--prompt", "'1_024' must be a whole number above 0"]),
    ({"--output": "+4"}, ["--output", "'+4' must be a whole number above 0"]),
    ({"--batch": " 4"}, ["--batch", "' 4' must be a whole number above 0"]),
    ({"--batch": "4\n"}, ["--batch", r"'4\n' must be a whole number above 0"]),
    ({"--batch": "٤"}, ["--batch", "'٤' must be a whole number above 0"]),  # which `int` takes for a 4
    ({"--batch": "1٤"}, ["--batch", "'1٤' must be a whole number above 0"]),
    ({"--batch": "４"}, ["--batch", "'４' must be a whole number above 0"]),
    ({"--batch": "²"}, ["--batch", "'²' must be a whole number above 0"]),
    ({"--batch": "\x1b[31m4"}, ["--batch", r"'\x1b[31m4' must be a whole number above 0"]),
    ({"--output": "1"}, ["argument --output: 1 ", "must be at least 2"]),
    ({"--batch": "many"}, ["--batch", "'many' must be a whole number above 0"]),
    ({"--batch": "nan"}, ["--batch", "'nan' must be a whole number above 0"]),
    ({"--batch": "1" + 15 * "0"}, ["--batch", "'1000000000000000' must be", "of at most 15 digits"]),
    ({"--batch": "1" + 400 * "0"}, ["--batch", "'1000", "... must be", "of at most 15 digits"]),
    ({"--batch": "1" + 5000 * "0"}, ["--batch", "'1000", "... must be", "of at most 15 digits"]),  # too long for `int`
    ({"--memory-utilization": "1.1"}, ["argument --memory-utilization: 1.1 ", "must be at most 1"]),
    ({"--memory-utilization": "1e400"}, ["argument --memory-utilization: inf ", "must be above 0 and finite"]),
    ({"--memory-utilization": "0.0"}, ["argument --memory-utilization: 0.0 ", "must be above 0 and finite"]),
    ({"--memory-utilization": "nan"}, ["--memory-utilization", "'nan' must be a number"]),
    ({"--memory-utilization": "all"}, ["--memory-utilization", "'all' must be a number"]),
    ({"--memory-utilization": "0_1"}, ["--memory-utilization", "'0_1' must be a number"]),
    ({"--memory-utilization": "+.9"}, ["--memory-utilization", "'+.9' must be a number"]),
    ({"--memory-utilization": "."}, ["--memory-utilization", "'.' must be a number"]),
    ({"--memory-utilization": "٠.٩"}, ["--memory-utilization", "'٠.٩' must be a number"]),
    ({"--weights": "int3"}, ["--weights", "'int3'", "bf16", "fp8", "int8", "int4"]),
    ({"--weights": ""}, ["--weights", "''", "bf16", "fp8", "int8"]),
    ({"--kv": "int4"}, ["--kv", "'int4'", "bf16", "fp8"]),
    ({"--weights": "fp4"}, ["compute='fp4'", "h100-sxm has no such arithmetic; it has bf16, fp8, int8"]),
    ({"--compute": "fp64"}, ["--compute", "'fp64' must be one of bf16, fp8, int8, fp4"]),
    ({"--experts": "fp8"}, ["--experts", "llama-2-70b has none"]),
    ({"--link": "nvlink"}, ["link 'nvlink' is unknown", "nearest: nvlink"]),
    ({"--constants": "mine"}, ["constants 'mine' is unknown"]),
    ({"--data": "nope.toml"}, ["nope.toml: cannot be read"]),
    ({"--data": ""}, ["--data", "must not be empty"]),
    ({"--pp": "81"}, ["argument --pp: 81 exceeds the 80 layers"]),
    ({"--dcp": "2"}, ["argument --dcp: 2 does not divide"]),
    ({"--prefill": "eager"}, ["--prefill", "'eager' must be one of exclusive, fused, apart"]),
    ({"--chunk": "256", "--prefill": "apart"}, ["argument --chunk: 256 needs prefill='fused', not 'apart'"]),
    ({"--chunk": "1", "--prompt": "10001"}, ["--chunk", "1 cuts 10001 prompt tokens into more than 10,000 chunks"]),
    ({"--shared-prefix": "1025"}, ["argument --shared-prefix: 1025 exceeds a prompt of 1024 tokens"]),
    ({"--price": "-1"}, ["argument --price: '-1' must be a number such as 0.9, and not negative"]),
    ({"--shared-prefix": "9", "--prefix-hit": "0.5"}, ["--prefix-hit", "not allowed with --shared-prefix"]),
    ({"--prefix-hit": "1.5"}, ["--prefix-hit", "share=1.5 must be at most 1"]),
    ({"--speculate": "4"}, ["--speculate", "needs --acceptance, and one of --draft-cost and --draft"]),
    (DRAFTED | {"--draft": "llama-2-7b"}, ["argument --draft: not allowed with --draft-cost"]),
    (DRAFTED | {"--acceptance": "1.5"}, ["argument --acceptance: 1.5 ", "must be at most 1"]),
    (DRAFTED | {"--draft-cost": ABSENT, "--draft": "opt-66b", "--tp": "16"}, ["--draft", "heads=72 of opt-66b"]),
    ({"--acceptance": "0.5"}, ["--acceptance: needs --speculate"]),
    ({"--draft-cost": "0.1"}, ["--draft-cost: needs --speculate"]),
    ({"--draft": "llama-2-7b"}, ["--draft: needs --speculate"]),
    ({"--ttft-limit": "0"}, ["argument --ttft-limit: 0.0 must be above 0"]),
    ({"--tpot-limit": "-1"}, ["--tpot-limit", "'-1' must be a number"]),
    ({"--price": "free"}, ["--price", "'free' must be a number"]),
    ({"--power": "0"}, ["argument --power: 0.0 must be above 0"]),
    ({"--accelerator": "a100-80gb", "--weights": "fp8"}, ["compute='fp8'", "a100-80gb has no such arithmetic"]),
    ({"--prompt": ABSENT}, ["required", "--prompt"]),
    (DRAFTED | {"--draft-cost": "1e308"}, ["argument --draft-cost: '1e308' must be 0, or from 1e-30 to 1e30"]),
    (DRAFTED | {"--draft-cost": "1e400"}, ["argument --draft-cost: inf must be at least 0 and finite"]),
    ({"--tpot-limit": "1e-310"}, ["argument --tpot-limit: '1e-310' must be 0, or from 1e-30 to 1e30"]),
    ({"--ttft-limit": "1" + 5000 * "0"}, ["argument --ttft-limit: inf must be above 0 and finite"]),
    ({"--price": "1e308"}, ["argument --price: '1e308' must be 0, or from 1e-30 to 1e30"]),
    ({"--power": "1e-40"}, ["argument --power: '1e-40' must be 0, or from 1e-30 to 1e30"]),
    ({"--memory-utilization": "." + 400 * "0" + "1"}, ["--memory-utilization: 0.0 must be above 0"]),
    ({"--mod": "llama-2-70b"}, ["unrecognized", "--mod"]),
    ({"--a\nb\x1b[31m": "1"}, ["unrecognized", "--a b\\x1b[31m"]),
]


@pytest.mark.parametrize(("changes", "words"), REFUSALS, ids=label)
def test_bad_options(capsys, changes, words):
    line = refusal(arguments(changes), capsys)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "given",
    [
        ["--tp", "2", "--tp", "4"],
        ["--tp=2", "--tp=2"],
        ["--tp", "2", "--tp=4"],
        ["--model=llama-2-70b", "--model=llama-3.1-8b"],
        ["--json", "--json"],
    ],
    ids=" ".join,
)
def test_an_option_given_twice(capsys, given):
    """The last one would win, unseen."""
    option = given[0].partition("=")[0]
    line = refusal([*arguments({option: ABSENT}), *given], capsys)
    assert f"argument {option}: given 2 times" in line


@pytest.mark.parametrize("text", ["x" * 5000, "7 " * 5000, "é" * 5000, "\x1b" * 5000], ids=label)
@pytest.mark.parametrize("option", ["--other", *sorted(set(CHANGED) - set(options.FLAGS))])
def test_a_long_value_is_not_repeated_whole(capsys, option, text):
    line = refusal(arguments({option: text}), capsys)
    assert len(line) <= 1020
    assert option in line or option.strip("-") in line or "File name too long" in line


def test_counts_and_numbers_that_are_plain():
    assert options.count("999999999999999") == 10**15 - 1
    assert options.count("0004") == 4
    assert options.count(5000 * "0" + "4") == 4  # more digits than `int` reads
    for text in ("0.5", ".5", "5e-1", "05E-01", "0.5e+0"):
        assert options.number(text) == pytest.approx(0.5)
    assert options.number("1.") == pytest.approx(1)


EXTREMES = {"--draft-cost": "1e30", "--ttft-limit": "1e-30", "--tpot-limit": "1e-30", "--price": "1e30"}
EXTREMES |= {"--power": "1e30", "--speculate": "9" * 15, "--acceptance": "1"}


@pytest.mark.parametrize("more", [{}, EXTREMES, EXTREMES | {"--price": "1e-30", "--power": "1e-30"}], ids=str)
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=str)
def test_the_largest_counts_do_not_overflow(capsys, flags, more):
    largest = "9" * 15
    changes = dict.fromkeys(("--dp", "--prompt", "--output", "--batch"), largest) | more
    assert main(arguments(changes, *flags)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert not re.search(r"\b(inf|nan)\b|∞|Infinity|NaN", out)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps(config(hidden_size=ABSENT)), ["hidden_size is missing"]),
        (json.dumps(config(num_hidden_layers="32")), ["num_hidden_layers='32' must be a whole number"]),
        (json.dumps(config(architectures=["GPT9ForCausalLM"])), ["GPT9ForCausalL", "known", "Llama"]),
        ("{", ["is not JSON"]),
        (None, ["cannot be read: No such file"]),
    ],
    ids=["missing field", "text for a number", "architecture", "not JSON", "no file"],
)
def test_bad_configs(tmp_path, content, words):
    """In a process of its own, as a user has it: status, streams, no traceback."""
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    run = process(arguments({"--model": path}), text=True)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 2
    assert out == ""
    assert re.fullmatch(r"perfmodel: [^\n]+\n", err)
    for word in [str(path), *words]:
        assert word in err


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=str)
def test_a_config_whose_sizes_overflow(capsys, tmp_path, flags):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(num_hidden_layers=10**299)), encoding="utf-8")
    refusal(arguments({"--model": path}, *flags), capsys)


@pytest.mark.parametrize("value", [float("inf"), float("nan")], ids=str)
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=str)
def test_what_json_cannot_say_is_not_printed(capsys, monkeypatch, flags, value):
    broken = replace(pm.estimate(examples.served(), pm.Workload(1024, 256, 64)), ttft_s=value)
    monkeypatch.setattr(question, "estimate", lambda *given, **named: broken)
    refusal(arguments({}, *flags), capsys)


def test_a_name_from_a_config_cannot_steer_the_terminal(capsys, tmp_path):
    """Nor can the message about it: a config comes from elsewhere."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(_name_or_path="a\nb\x1b[31m\u202e\x9b")), encoding="utf-8")
    main(arguments({"--model": path}))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.replace("\u202f", " ").isprintable()
    assert r"b\x1b[31m\u202e\x9b, 8.03" in first
    assert r"b\x1b[31m\u202e\x9b" in refusal(arguments({"--model": path, "--tp": "7"}), capsys)


@pytest.mark.parametrize("given", [[], ["estimat"], ["estimate"]], ids=str)
def test_bad_commands(capsys, given):
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf8"))
    assert (stop.value.code, capsys.readouterr().out) == (0, project["project"]["version"] + "\n")


def test_it_runs_without_being_installed(capsys, monkeypatch):
    """As `make bench` runs it: from the source, in an environment that does not know the package."""

    def unknown(name):
        raise command_line.PackageNotFoundError(name)

    monkeypatch.setattr(command_line, "version", unknown)
    assert answers(capsys, {})["parameters"] > 0
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == "not installed\n"


def test_help_names_the_exit_statuses(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for status in ("0 done", "1 the machine cannot", "2 bad input", "130 stopped by Ctrl-C"):
        assert status in out


def test_constants_beside_ideal_are_refused(capsys):
    """They would have been ignored."""
    assert "argument --constants: not allowed with --ideal" in refusal(
        arguments({"--constants": "default"}, "--ideal"), capsys
    )


def test_the_table_speaks_of_replicas_only_where_there_are_several(capsys):
    for dp, several in ("1", False), ("2", True):
        main(arguments({"--dp": dp}))
        assert ("all replicas" in capsys.readouterr().out) == several


def test_help_says_what_the_fields_mean(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["estimate", "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    main(arguments({}, "--json"))
    for field in json.loads(capsys.readouterr().out):
        assert re.search(rf"\b{field}\b", out)
    assert command_line.EPILOG in out  # laid out as it is written
    for promise in ("no queue", "first left out", "whole deployment", "replicas not counted"):
        assert promise in out


def test_a_command_is_a_module(capsys, monkeypatch):
    """With a name, its help, its options, and what it prints."""

    def add_arguments(parser):
        parser.add_argument("--twice", type=options.count, required=True)

    doubled = SimpleNamespace(
        SUMMARY="more than one", DESCRIPTION="Double.", EPILOG="the end", add_arguments=add_arguments
    )
    doubled.run = lambda args: f"{2 * args.twice}"
    monkeypatch.setitem(sys.modules, "perfmodel.any_command", doubled)
    monkeypatch.setitem(command_line.COMMANDS, "double", "perfmodel.any_command")
    assert main(["double", "--twice", "21"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert "--twice" in refusal(["double"], capsys)
    for given, words in (["--help"], ["more than one", "estimate"]), (["double", "--help"], ["Double.", "the end"]):
        with pytest.raises(SystemExit):
            main(given)
        out = capsys.readouterr().out
        assert all(word in out for word in words)
    assert main(arguments({})) == 0


# Streams that cannot take what is printed

ENCODINGS = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "latin-1"},
]


@pytest.mark.parametrize("environment", ENCODINGS, ids=lambda given: next(iter(given.values())))
def test_stdout_that_cannot_print_unicode(capsys, environment):
    """Every line comes out, with the same numbers."""
    given = arguments({"--batch": "2", "--output": "999999999999999"})
    main(given)
    printed = capsys.readouterr().out
    run = process(given, environment=environment)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 0
    assert err == b""
    text = out.decode("ascii")
    assert len(text.splitlines()) == len(printed.splitlines())
    # What this workload prints beyond ASCII: spaces before units, and powers of ten.
    assert set(printed) - set(text) <= set("\u202f×⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    assert "\\" not in text
    assert re.search(r"^end to end +\d\.\d\d x 10\^\d\d s$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.50\u202f×\u202f10⁻¹²\u202fs", "1.50 x 10^-12 s"),
        ("860\u202fµs", "860 us"),
        ("10³⁸ and 10⁰", "10^38 and 10^0"),
        ("Modèle", r"Mod\xe8le"),
        ("plain", "plain"),
    ],
)
def test_plain_text(text, expected):
    assert terminal.plain(text) == expected


def test_a_stream_without_an_encoding():
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        main(arguments({}))
    assert "\u202f" in stream.getvalue()


PRINTING = [arguments({}), arguments({}, "--json"), ["--help"], ["estimate", "--help"], ["--version"]]


@pytest.mark.parametrize("given", PRINTING, ids=lambda given: " ".join(given[:2]))
def test_a_reader_that_left(given):
    """`perfmodel … | head -0`: silence, and the status of a program that SIGPIPE ended."""
    reader, writer = os.pipe()
    os.close(reader)
    run = process(given, stdout=writer)
    os.close(writer)
    assert run.communicate(timeout=60)[1] == b""
    assert run.returncode == 128 + signal.SIGPIPE


full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")


@full_disk
@pytest.mark.parametrize("given", PRINTING, ids=lambda given: " ".join(given[:2]))
def test_a_full_disk(given):
    with Path("/dev/full").open("wb") as full:
        run = process(given, stdout=full)
        err = run.communicate(timeout=60)[1]
    assert run.returncode == 1
    assert err == b"perfmodel: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("given", PRINTING, ids=lambda given: " ".join(given[:2]))
def test_stdout_that_is_closed(given):
    run = process(given, shell='exec "$@" >&-')
    assert run.communicate(timeout=60) == (b"", b"perfmodel: cannot write to stdout: it is closed\n")
    assert run.returncode == 1


def test_stderr_that_is_closed():
    run = process(arguments({"--tp": "0"}), shell='exec "$@" 2>&-')
    assert run.communicate(timeout=60) == (b"", b"")
    assert run.returncode == 2


@full_disk
def test_stderr_that_is_full():
    with Path("/dev/full").open("wb") as full:
        run = process(arguments({"--tp": "0"}), stderr=full)
        assert run.communicate(timeout=60)[0] == b""
    assert run.returncode == 2


# Interruptions and limits of the machine


INTERRUPTED = """
import os, signal, sys
from perfmodel import __main__ as command_line, question

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background hands down that it is ignored
question.estimate = lambda *given, **named: os.kill(os.getpid(), signal.SIGINT)
sys.exit(command_line.main(sys.argv[1:]))
"""


SLOW = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""
COMMAND = Path(sys.executable).with_name("perfmodel")


def interruptible():
    """A suite in the background hands down that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("program", [("-m", "perfmodel"), ("-mperfmodel",), (COMMAND,)], ids=str)
def test_an_interrupt_while_numpy_is_imported(tmp_path, program):
    (tmp_path / "numpy.py").write_text(SLOW, encoding="utf-8")
    program = tuple(map(str, program))
    run = process(arguments({}), program=program, environment={"PYTHONPATH": tmp_path}, preexec_fn=interruptible)
    assert run.communicate(timeout=30) == (b"", b"")
    assert run.returncode == 128 + signal.SIGINT


def test_an_interrupt_of_a_program_that_uses_the_package(tmp_path):
    """It is none of ours, nor is one that is ignored, as under nohup or in the background."""
    code = "import signal, perfmodel; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    run = process(["perfmodel"], program=("-c", code), preexec_fn=interruptible)
    assert run.communicate(timeout=30) == (b"True\n", b"")
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT); exit(7)", "utf8")
    ignored = process(
        arguments({}),
        environment={"PYTHONPATH": tmp_path},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert ignored.communicate(timeout=30) == (b"", b"")
    assert ignored.returncode == 7


def test_an_interrupt_ends_it_quietly():
    """Ctrl-C in the middle of the work."""
    run = process(arguments({}), program=("-c", INTERRUPTED))
    assert run.communicate(timeout=60) == (b"", b"")
    assert run.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (MemoryError(), 1, "perfmodel: not enough memory\n"),
        (MemoryError("Unable to allocate\n8 EiB"), 1, "perfmodel: not enough memory\n"),
        (OverflowError("int too large\nto convert"), 2, "perfmodel: int too large to convert\n"),
        (ZeroDivisionError("division by zero"), 2, "perfmodel: division by zero\n"),
    ],
    ids=label,
)
def test_what_the_machine_cannot(capsys, monkeypatch, error, status, line):
    def fails(*given, **named):
        raise error

    monkeypatch.setattr(question, "estimate", fails)
    with pytest.raises(SystemExit) as stop:
        main(arguments({}))
    assert stop.value.code == status
    assert capsys.readouterr() == ("", line)
