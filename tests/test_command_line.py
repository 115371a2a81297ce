"""`perfmodel estimate`: good input gives the estimate; bad input one line on stderr, status 2, no traceback."""

import json
import re
import subprocess
import sys

import examples
import pytest
from examples import ABSENT, CONFIGS, LLAMA, config, label

import perfmodel as pm
from perfmodel import data
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


def test_good_input_prints_one_json_object(capsys):
    assert main(arguments({}, "--json")) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    deployment = examples.served()
    estimate = pm.estimate(deployment, pm.Workload(1024, 256, 64))
    assert found == vars(estimate)
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


def test_every_option_reaches_the_estimate(capsys):
    """An option that is read and then forgotten would change nothing."""

    def found(changes):
        main(arguments(changes, "--json"))
        return json.loads(capsys.readouterr().out)

    base = found({})
    changed = {
        "--model": ("llama-3.1-8b", "parameters"),
        "--accelerator": ("h200", "tpot_s"),
        "--tp": ("8", "weight_bytes_per_gpu"),
        "--dp": ("2", "throughput_tok_s"),
        "--prompt": ("2048", "ttft_s"),
        "--output": ("512", "e2e_s"),
        "--batch": ("32", "tpot_s"),
        "--weights": ("fp8", "weight_bytes_per_gpu"),
        "--kv": ("fp8", "kv_bytes_per_token"),
        "--memory-utilization": ("0.8", "kv_capacity_tokens"),
    }
    for option, (value, field) in changed.items():
        assert found({option: value})[field] != base[field], option


@pytest.mark.parametrize(
    ("changes", "flags", "words"),
    [
        (
            {},
            (),
            ["llama-2-70b, 69.0\u202fbillion parameters", "4 x h100-sxm, TP 4", "TTFT", "waiting for other"],
        ),
        ({}, ("--ideal",), ["ideal: the roofline alone"]),
        ({"--model": "mixtral-8x7b"}, (), ["12.9\u202fbillion of them active in a token"]),
        ({"--tp": "1"}, (), ["none: the model does not fit", "do not fit; the times assume that they do"]),
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
    ({"--model": ""}, ["config.json", "cannot be read"]),
    ({"--model": "nope.json"}, ["nope.json: cannot be read"]),
    ({"--accelerator": "h100"}, ["accelerator 'h100' is unknown", "nearest: h100-sxm"]),
    ({"--tp": "3"}, ["tensor_parallel=3 does not divide heads=64"]),
    ({"--tp": "0"}, ["--tp", "0 must be a whole number above 0"]),
    ({"--tp": "4.0"}, ["--tp", "4.0 must be a whole number above 0"]),
    ({"--dp": "-1"}, ["--dp", "-1 must be a whole number above 0"]),
    ({"--prompt": "0"}, ["--prompt", "0 must be a whole number above 0"]),
    ({"--prompt": "-5"}, ["--prompt", "-5 must be a whole number above 0"]),
    ({"--output": "1"}, ["output=1", "must be at least 2"]),
    ({"--batch": "many"}, ["--batch", "many must be a whole number above 0"]),
    ({"--batch": "nan"}, ["--batch", "nan must be a whole number above 0"]),
    ({"--batch": "1" + 400 * "0"}, ["batch=1000"]),
    ({"--memory-utilization": "1.1"}, ["memory_utilization=1.1", "must be at most 1"]),
    ({"--memory-utilization": "nan"}, ["memory_utilization=nan", "must be above 0 and finite"]),
    ({"--memory-utilization": "all"}, ["--memory-utilization", "'all'"]),
    ({"--weights": "int4"}, ["--weights", "'int4'", "'bf16', 'fp8', 'int8'"]),
    ({"--kv": "int8"}, ["--kv", "'int8'", "'bf16', 'fp8'"]),
    ({"--accelerator": "a100-80gb", "--weights": "fp8"}, ["compute='fp8'", "a100-80gb has no such arithmetic"]),
    ({"--prompt": ABSENT}, ["required", "--prompt"]),
    ({"--mod": "llama-2-70b"}, ["unrecognized", "--mod"]),
]


@pytest.mark.parametrize(("changes", "words"), REFUSALS, ids=label)
def test_bad_options(capsys, changes, words):
    with pytest.raises(SystemExit) as stop:
        main(arguments(changes))
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps(config(hidden_size=ABSENT)), ["hidden_size is missing"]),
        (json.dumps(config(num_hidden_layers="32")), ["num_hidden_layers='32' must be a whole number"]),
        (json.dumps(config(architectures=["GPT9ForCausalLM"])), ["GPT9ForCausalLM", "is not known; known: Llama"]),
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
    command = [sys.executable, "-m", "perfmodel", *arguments({"--model": path})]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stdout == ""
    assert re.fullmatch(r"perfmodel: [^\n]+\n", run.stderr)
    assert "Traceback" not in run.stderr
    for word in [str(path), *words]:
        assert word in run.stderr


@pytest.mark.parametrize("given", [[], ["estimat"], ["estimate"], ["--version"]], ids=str)
def test_bad_commands(capsys, given):
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_says_what_the_fields_mean(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["estimate", "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    for field in vars(pm.estimate(examples.served(), pm.Workload(1024, 256, 64))):
        assert field in out
    for promise in ("no queue", "first left out", "whole deployment", "replicas not counted"):
        assert promise in out
