"""`perfmodel estimate`: good input gives the estimate; bad input one line on stderr, status 2, no traceback."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import examples
import pytest
from examples import ABSENT, CONFIGS, LLAMA, config, label

import perfmodel as pm
from perfmodel import __main__ as command_line
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
    elsewhere = {"--model", "--accelerator"}
    assert set(changed) == elsewhere | set(command_line.DEPLOYMENT) | set(command_line.WORKLOAD)
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
    ({"--model": ""}, ["--model", "must not be empty"]),
    ({"--model": "a\nb\x1b[31m"}, ["model 'a\\nb\\x1b[31m' is unknown"]),
    ({"--model": "a\nb\x1b[31m.json"}, ["b\\x1b[31m.json: cannot be read"]),
    ({"--model": "\udcff"}, ["model '\\udcff' is unknown"]),  # how Python passes on a byte that is not UTF-8
    ({"--accelerator": ""}, ["accelerator '' is unknown"]),
    ({"--model": "nope.json"}, ["nope.json: cannot be read"]),
    ({"--accelerator": "h100"}, ["accelerator 'h100' is unknown", "nearest: h100-sxm"]),
    ({"--tp": "3"}, ["tensor_parallel=3 does not divide heads=64"]),
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
    ({"--output": "1"}, ["output=1", "must be at least 2"]),
    ({"--batch": "many"}, ["--batch", "'many' must be a whole number above 0"]),
    ({"--batch": "nan"}, ["--batch", "'nan' must be a whole number above 0"]),
    ({"--batch": "1" + 15 * "0"}, ["--batch", "'1000000000000000' must be", "of at most 15 digits"]),
    ({"--batch": "1" + 400 * "0"}, ["--batch", "'1000", "... must be", "of at most 15 digits"]),
    ({"--batch": "1" + 5000 * "0"}, ["--batch", "'1000", "... must be", "of at most 15 digits"]),  # too long for `int`
    ({"--memory-utilization": "1.1"}, ["memory_utilization=1.1", "must be at most 1"]),
    ({"--memory-utilization": "1e400"}, ["memory_utilization=inf", "must be above 0 and finite"]),
    ({"--memory-utilization": "0.0"}, ["memory_utilization=0.0", "must be above 0 and finite"]),
    ({"--memory-utilization": "nan"}, ["--memory-utilization", "'nan' must be a number"]),
    ({"--memory-utilization": "all"}, ["--memory-utilization", "'all' must be a number"]),
    ({"--memory-utilization": "0_1"}, ["--memory-utilization", "'0_1' must be a number"]),
    ({"--memory-utilization": "+.9"}, ["--memory-utilization", "'+.9' must be a number"]),
    ({"--memory-utilization": "."}, ["--memory-utilization", "'.' must be a number"]),
    ({"--memory-utilization": "٠.٩"}, ["--memory-utilization", "'٠.٩' must be a number"]),
    ({"--weights": "int4"}, ["--weights", "'int4'", "bf16", "fp8", "int8"]),
    ({"--weights": ""}, ["--weights", "''", "bf16", "fp8", "int8"]),
    ({"--kv": "int8"}, ["--kv", "'int8'", "bf16", "fp8"]),
    ({"--accelerator": "a100-80gb", "--weights": "fp8"}, ["compute='fp8'", "a100-80gb has no such arithmetic"]),
    ({"--prompt": ABSENT}, ["required", "--prompt"]),
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
@pytest.mark.parametrize("option", ["--other", *GOOD, "--dp", "--weights", "--kv", "--memory-utilization"])
def test_a_long_value_is_not_repeated_whole(capsys, option, text):
    line = refusal(arguments({option: text}), capsys)
    assert len(line) <= 1020
    assert option in line or option.strip("-") in line or "File name too long" in line


def test_counts_and_numbers_that_are_plain():
    assert command_line.count("999999999999999") == 10**15 - 1
    assert command_line.count("0004") == 4
    assert command_line.count(5000 * "0" + "4") == 4  # more digits than `int` reads
    for text in ("0.5", ".5", "5e-1", "05E-01", "0.5e+0"):
        assert command_line.number(text) == pytest.approx(0.5)
    assert command_line.number("1.") == pytest.approx(1)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=str)
def test_the_largest_counts_do_not_overflow(capsys, flags):
    largest = "9" * 15
    changes = dict.fromkeys(("--dp", "--prompt", "--output", "--batch"), largest)
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
    monkeypatch.setattr(command_line, "estimate", lambda *given, **named: broken)
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
    assert command_line.EPILOG in out  # laid out as it is written
    for promise in ("no queue", "first left out", "whole deployment", "replicas not counted"):
        assert promise in out


def test_a_command_is_a_module(capsys, monkeypatch):
    """With a name, its help, its options, and what it prints."""

    def add_arguments(parser):
        parser.add_argument("--twice", **command_line.value("number", command_line.count, "a number"))

    sweep = SimpleNamespace(
        SUMMARY="more than one", DESCRIPTION="Sweep.", EPILOG="the end", add_arguments=add_arguments
    )
    sweep.run = lambda args: f"{2 * args.number}"
    monkeypatch.setitem(sys.modules, "perfmodel.any_sweep", sweep)
    monkeypatch.setitem(command_line.COMMANDS, "sweep", "perfmodel.any_sweep")
    assert main(["sweep", "--twice", "21"]) == 0
    assert capsys.readouterr().out == "42\n"
    assert "--twice" in refusal(["sweep"], capsys)
    for given, words in (["--help"], ["more than one", "estimate"]), (["sweep", "--help"], ["Sweep.", "the end"]):
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
    assert command_line.plain(text) == expected


def test_a_stream_without_an_encoding():
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        main(arguments({}))
    assert "\u202f" in stream.getvalue()


PRINTING = [arguments({}), arguments({}, "--json"), ["--help"], ["estimate", "--help"]]


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


def test_stdout_that_is_closed():
    run = process(arguments({}), shell='exec "$@" >&-')
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
from perfmodel import __main__ as command_line

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background hands down that it is ignored
command_line.estimate = lambda *given, **named: os.kill(os.getpid(), signal.SIGINT)
sys.exit(command_line.main(sys.argv[1:]))
"""


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

    monkeypatch.setattr(command_line, "estimate", fails)
    with pytest.raises(SystemExit) as stop:
        main(arguments({}))
    assert stop.value.code == status
    assert capsys.readouterr() == ("", line)
