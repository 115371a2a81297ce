"""`perfmodel sweep`: a row is an estimate, in whatever blocks; a file is complete or absent; a bad grid is one line."""

import csv
import errno
import json
import math
import os
import pty
import re
import signal
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from examples import CONFIGS
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from test_command_line import full_disk, process, refusal

from perfmodel import options, rows, sweep, terminal
from perfmodel.__main__ import main

GRID = {
    "--model": "llama-2-70b,mixtral-8x7b",
    "--accelerator": "h100-sxm,h200",
    "--tp": "4,8",
    "--weights": "bf16,fp8",
    "--prompt": "512:1024:256",
    "--output": "64,256",
    "--batch": "1:64:x8",
}
SMALL = {
    "--model": "llama-3.1-8b",
    "--accelerator": "h100-sxm",
    "--prompt": "1:100",
    "--output": "2:11",
    "--batch": "1:20",
}


def words(grid, *flags, command="sweep"):
    return [command, *flags, *(f"{option}={value}" for option, value in grid.items())]


def read(text):
    return list(csv.DictReader(text.splitlines()))


def table(capsys, grid, *flags):
    """The rows that `sweep` prints, as texts by column."""
    assert main(words(grid, *flags)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return read(out)


def parsed(text):
    return json.loads(text) if re.fullmatch(r"true|false|[-+.e\d]+", text) else text


# A row is an estimate

EXTRAS = [
    ({}, (), []),
    ({"--tpot-limit": "20,40"}, (), ["binding", "limits_met"]),
    ({"--ttft-limit": "100"}, (), ["binding", "limits_met"]),
    ({"--price": "2.5"}, (), ["dollars_per_million_input_tokens", "dollars_per_million_output_tokens"]),
    ({"--power": "500,700"}, (), ["joules_per_input_token", "joules_per_output_token"]),
    ({"--chunk": "100,256", "--shared-prefix": "0:64:32"}, (), []),
    ({"--prefix-hit": "0,0.5", "--kv": "bf16,fp8"}, ("--ideal",), []),
    ({"--speculate": "0:2", "--acceptance": "0.6,0.8", "--draft": "llama-3.1-8b"}, (), []),
    ({"--pp": "1,2", "--dp": "1,2", "--link": "nvlink4,infiniband-ndr"}, (), []),
]


@pytest.mark.parametrize(("extra", "flags", "more"), EXTRAS, ids=lambda value: " ".join(value))
def test_every_row_is_the_estimate_of_its_inputs(capsys, extra, flags, more):
    grid = GRID | extra
    if extra:  # fewer of the rest
        grid |= {"--model": "mixtral-8x7b", "--accelerator": "h200", "--tp": "4", "--output": "256"}
    found = table(capsys, grid, *flags)
    fields = {option.field: name for group in options.OPTIONS.values() for name, option in group.items()}
    inputs = [fields[column] for column in found[0] if column in fields]
    assert set(inputs) == set(grid)
    marks = [field for flag, (field, _) in options.FLAGS.items() if flag in flags]
    assert set(found[0]) == {option_field(name) for name in grid} | {*marks, *sweep.RESULTS, *more}
    for row in found[:: max(len(found) // 12, 1)]:
        given = {name: row[option_field(name)] for name in inputs}
        given |= {name: repr(1000 * float(value)) for name, value in given.items() if name.endswith("-limit")}
        assert main(words(given, *flags, "--json", command="estimate")) == 0
        answers = json.loads(capsys.readouterr().out)
        for column in (*sweep.RESULTS, *more):
            expected, value = answers[column], parsed(row[column])
            assert type(value) is type(expected) or not isinstance(expected, (bool, str)), column
            if isinstance(expected, (bool, str)):
                assert value == expected, column
            else:
                assert value == pytest.approx(expected, rel=1e-11), column  # twelve digits are written


def option_field(name):
    return next(group[name].field for group in options.OPTIONS.values() if name in group)


def test_every_combination_once_and_in_order(capsys):
    found = table(capsys, GRID)
    lists = [["llama-2-70b", "mixtral-8x7b"], ["h100-sxm", "h200"], ["4", "8"], ["bf16", "fp8"]]
    lists += [["1", "8", "64"], ["512", "768", "1024"], ["64", "256"]]
    columns = ["model", "accelerator", "tensor_parallel", "weights", "batch", "prompt", "output"]
    assert [tuple(row[column] for column in columns) for row in found] == list(product(*lists))
    assert list(found[0])[: len(columns)] == columns


def test_flags_are_columns_where_given(capsys):
    (row,) = table(
        capsys, {"--model": "mixtral-8x7b", "--accelerator": "h200", "--prompt": "9", "--output": "9"}, "--ep"
    )
    assert row["expert_parallel"] == "true"
    assert "ideal" not in row
    assert row["batch"] == "1"


# Lists and ranges


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", (4,)),
        ("8,1,4", (8, 1, 4)),
        ("1:5", (1, 2, 3, 4, 5)),
        ("5:5", (5,)),
        ("16:64:16", (16, 32, 48, 64)),
        ("1:10:4", (1, 5, 9)),
        ("1:64:x4", (1, 4, 16, 64)),
        ("3:50:x2", (3, 6, 12, 24, 48)),
        ("1:4,4,2,8:8", (1, 2, 3, 4, 8)),  # named twice, counted once
        ("1:999999999999999:x10", tuple(10**n for n in range(15))),
        ("1:999999999999999:x2", tuple(2**n for n in range(50))),
    ],
)
def test_lists_and_ranges(text, values):
    assert sweep.listed(options.OPTIONS["workload"]["--batch"])(text) == values


def test_ranges_are_of_whole_numbers_only():
    group = options.OPTIONS["engine"]
    assert sweep.listed(group["--shared-prefix"])("0:8:4") == (0, 4, 8)
    assert sweep.listed(group["--acceptance"])("0.5,1") == (0.5, 1.0)
    assert sweep.listed(options.OPTIONS["deployment"]["--model"])("C:/here/config.json") == ("C:/here/config.json",)


WRONG = [
    ({"--batch": ""}, ["--batch", "'' must be a whole number above 0"]),
    ({"--batch": "1,"}, ["--batch", "'' must be a whole number above 0"]),
    ({"--batch": ","}, ["--batch", "'' must be"]),
    ({"--batch": ":"}, ["--batch", "'' must be"]),
    ({"--batch": "1:"}, ["--batch", "'' must be"]),
    ({"--batch": ":8"}, ["--batch", "'' must be"]),
    ({"--batch": "0:8"}, ["--batch", "'0' must be a whole number above 0"]),
    ({"--batch": "1:8:0"}, ["--batch", "'0' must be"]),
    ({"--batch": "1:8:"}, ["--batch", "'' must be"]),
    ({"--batch": "1:8:-1"}, ["--batch", "'-1' must be"]),
    ({"--batch": "1:8:x"}, ["--batch", "'' must be"]),
    ({"--batch": "1:8:x1"}, ["--batch", "'1:8:x1' never ends"]),
    ({"--shared-prefix": "0:8:x2"}, ["--shared-prefix", "'0:8:x2' never ends"]),
    ({"--batch": "1:8:2:2"}, ["--batch", "'1:8:2:2' must be FIRST:LAST, FIRST:LAST:STEP or FIRST:LAST:xFACTOR"]),
    ({"--batch": "8:1"}, ["--batch", "'8:1' ends before it starts"]),
    ({"--batch": "1 : 8"}, ["--batch", "'1 ' must be"]),
    ({"--batch": "1.5"}, ["--batch", "'1.5' must be"]),
    ({"--batch": "1:1000001"}, ["--batch", "holds 1,000,001 values, at most 1,000,000"]),
    ({"--batch": "1:999999999999999"}, ["--batch", "holds 999,999,999,999,999 values"]),
    ({"--batch": "1:600000,700001:1200000"}, ["--batch", "holds 1,100,000 values"]),
    ({"--batch": "1:1000000", "--prompt": "1:1001"}, ["the grid has 10,010,000,000 points; at most 1,000,000,000"]),
    ({"--batch": "1:100000", "--prompt": "1:1001", "--output": "2:11"}, ["the grid has 1,001,000,000 points"]),
    ({"--acceptance": "0.5:0.9"}, ["--acceptance", "'0.5:0.9' must be a number"]),
    ({"--weights": "bf16,int3"}, ["--weights", "'int3' must be one of"]),
    ({"--weights": ""}, ["--weights", "'' must be one of"]),
    ({"--model": "llama-2-70b,"}, ["--model", "must not be empty"]),
    ({"--model": "llama-2-70b,llama-2-7Ob"}, ["model 'llama-2-7Ob' is unknown"]),
    ({"--accelerator": "h100-sxm,h1000"}, ["accelerator 'h1000' is unknown"]),
    ({"--link": "nvlink4,string"}, ["link 'string' is unknown"]),
    ({"--data": "nope.toml"}, ["nope.toml: cannot be read"]),
    ({"--batch": "1:0"}, ["argument --batch: '1:0': '0' must be a whole number above 0"]),
    ({"--batch": "4,x"}, ["argument --batch: '4,x': 'x' must be a whole number above 0"]),
    ({"--shared-prefix": "64", "--prompt": "62,63"}, ["argument --shared-prefix: 64 exceeds a prompt of 62 tokens"]),
    ({"--output": "1:8"}, ["argument --output: 1 must be at least 2"]),
    ({"--tp": "3"}, ["perfmodel: argument --tp: 3 does not divide heads=32"]),
    ({"--tp": "3,5"}, ["none of 40,000 combinations can be; the first: argument --tp: 3 does not divide"]),
    ({"--model": "llama-2-70b"}, ["llama-2-70b does not fit: each h100-sxm lacks 67.4 GB"]),
    ({"--batch": "1", "--chunk": "1", "--prompt": "10001"}, ["--chunk: 1 cuts 10001 prompt tokens"]),
    ({"--out": ""}, ["--out", "must not be empty"]),
    ({"--out": "rows.txt"}, ["--out", "rows.txt must end in .csv or .parquet"]),
    ({"--out": "no/rows.csv"}, ["--out", "cannot write to", "No such file or directory"]),
    ({"--out": "folder.csv"}, ["--out", "folder.csv is not a file"]),
    ({"--json": "1"}, ["--json"]),
]


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda value: str(value)[:60])
def test_a_bad_grid(capsys, tmp_path, monkeypatch, changes, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    line = refusal(words(SMALL | {"--out": "rows.csv"} | changes), capsys)
    for word in said:
        assert word in line
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_numbers_that_overflow(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drafted = {"--speculate": "999999", "--acceptance": "0", "--draft-cost": "1e300", "--output": "1000000000"}
    assert "argument --draft-cost: '1e300' must be" in refusal(words(SMALL | drafted | {"--out": "rows.csv"}), capsys)
    infinite = {"tpot_s": np.array([1.0, np.inf]).reshape(2, 1, 1)}
    monkeypatch.setattr(sweep, "answer", lambda asked, real=sweep.answer: real(asked) | infinite)
    assert "tpot_s is not finite" in refusal(words(SMALL | {"--batch": "1,2", "--out": "rows.csv"}), capsys)
    assert not list(tmp_path.iterdir())


# Combinations that cannot be


def test_what_cannot_be_is_left_out_and_counted(capsys):
    grid = SMALL | {"--model": "llama-2-70b,llama-3.1-8b", "--tp": "3,4,5,1", "--prompt": "8", "--output": "8"}
    assert main(words(grid | {"--batch": "2"})) == 0
    out, err = capsys.readouterr()
    assert [(row["model"], row["tensor_parallel"]) for row in read(out)] == [
        ("llama-2-70b", "4"),
        ("llama-3.1-8b", "4"),
        ("llama-3.1-8b", "1"),
    ]
    assert err == (
        "perfmodel: 5 of 8 combinations are left out; "
        "the first: argument --tp: 3 does not divide heads=64 of llama-2-70b\n"
    )
    assert "--tp: 3 " in refusal(words(SMALL | {"--tp": "3,4"}, "--strict"), capsys)
    assert "does not fit" in refusal(words(grid | {"--tp": "1"}, "--strict"), capsys)


def kept(capsys, grid, *columns):
    """What two columns of the rows say, and what is told of those that are left out."""
    assert main(words(SMALL | {"--batch": "1:2", "--output": "9:11"} | grid)) == 0
    out, err = capsys.readouterr()
    found = [tuple(int(row[column]) for column in columns) for row in read(out)]
    assert all(found.count(pair) == 6 for pair in found)  # batches and outputs
    return list(dict.fromkeys(found)), err


def test_requests_that_cannot_be_are_left_out_one_by_one(capsys):
    """Prompts shorter than what they share, and those of more than 10,000 chunks; the others stay."""
    found, err = kept(capsys, {"--shared-prefix": "32,100", "--prompt": "64,128"}, "shared_prefix", "prompt")
    assert found == [(32, 64), (32, 128), (100, 128)]
    assert err == (
        "perfmodel: 6 of 24 combinations are left out; "
        "the first: argument --shared-prefix: 100 exceeds a prompt of 64 tokens\n"
    )
    found, err = kept(capsys, {"--chunk": "1,512", "--prompt": "100,20000"}, "chunk", "prompt")
    assert found == [(1, 100), (512, 100), (512, 20_000)]
    assert "6 of 24 combinations are left out; the first: argument --chunk: 1 cuts 20000 prompt tokens" in err
    both = {"--chunk": "1", "--shared-prefix": "100", "--prompt": "64,100,10000,20000", "--tp": "3,1"}
    found, err = kept(capsys, both, "prompt", "tensor_parallel")
    assert found == [(100, 1), (10_000, 1)]
    assert "36 of 48 combinations are left out; the first: argument --tp: 3 does not divide" in err


def test_strict_stops_at_one_request(capsys, tmp_path):
    grid = SMALL | {"--shared-prefix": "64", "--prompt": "63:128", "--out": tmp_path / "rows.csv"}
    assert "argument --shared-prefix: 64 exceeds a prompt of 63" in refusal(words(grid, "--strict"), capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("more", "fits"), [(0.5, True), (-0.5, False)], ids=["just fits", "just does not"])
def test_weights_fit_to_the_last_byte(capsys, tmp_path, more, fits):
    """Llama-3.1-8B and the peak of a step of 8,192 tokens, 2 x 14,336 + 4 x 4,096 numbers each, of two bytes."""
    needed = 2 * 8_030_261_248 + 8192 * 2 * (2 * 14_336 + 4 * 4096)
    path = tmp_path / "mine.toml"
    path.write_text(
        f"""[accelerator.mine]
link = "nvlink4"
source = "mine"
date = "2026"
kind = "assumed"
note = "a test"
memory_capacity = {{ value = {needed + more}, unit = "B" }}
memory_bandwidth = {{ value = 3, unit = "TB/s" }}
bf16_flops = {{ value = 900, unit = "TFLOP/s" }}
""",
        encoding="utf-8",
    )
    grid = SMALL | {"--data": path, "--accelerator": "mine", "--memory-utilization": "1", "--batch": "1"}
    if fits:
        assert len(table(capsys, grid)) == 1000
    else:
        assert "does not fit: each mine lacks" in refusal(words(grid), capsys)


def test_too_many_requests_are_rows_that_say_so(capsys):
    grid = {"--model": "llama-2-70b", "--accelerator": "h100-sxm", "--tp": "4", "--prompt": "1024", "--output": "256"}
    found = table(capsys, grid | {"--batch": "350,351"})
    assert [(row["max_concurrency"], row["fits"]) for row in found] == [("350", "true"), ("350", "false")]


# Blocks


@settings(max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=3, max_size=3), st.integers(1, 400))
def test_blocks_cut_a_grid_in_order(shape, most):
    grid = np.arange(math.prod(shape)).reshape(shape)
    blocks = [grid[block] for block in sweep.cut(tuple(shape), most)]
    assert all(1 <= block.size <= most for block in blocks)
    assert np.array_equal(np.concatenate([block.ravel() for block in blocks]), grid.ravel())
    assert all(block.ndim == 3 for block in blocks)


def test_blocks_are_large_where_they_can_be():
    """So that ten million points are a matter of a hundred calls, not of a million."""
    assert len(list(sweep.cut((1000, 100, 100), sweep.BLOCK))) == math.ceil(1000 / 13)
    assert len(list(sweep.cut((1, 1, 10**7), sweep.BLOCK))) == math.ceil(10**7 / sweep.BLOCK)
    assert sweep.BLOCK <= 10**6  # a block's arrays, some sixty of them, stay below half a gigabyte


@pytest.mark.parametrize("block", [1, 7, 10, 999, 1000, 1001, 10**6])
def test_blocks_change_nothing(capsys, monkeypatch, block):
    expected = table(capsys, SMALL | {"--batch": "1:2"})
    monkeypatch.setattr(sweep, "BLOCK", block)
    sizes = []
    monkeypatch.setattr(sweep, "answer", lambda asked, real=sweep.answer: sizes.append(size(asked)) or real(asked))
    assert table(capsys, SMALL | {"--batch": "1:2"}) == expected
    assert sum(sizes) == len(expected) == 2000
    assert max(sizes) <= block


def size(asked):
    w = asked.workload
    return math.prod(np.broadcast_shapes(w.prompt.shape, w.output.shape, w.batch.shape))


# Files


def test_a_file_has_what_stdout_has(capsys, tmp_path):
    path, before = tmp_path / "rows.csv", tmp_path / "before"
    path.write_text("older", encoding="utf-8")
    before.hardlink_to(path)
    main(words(GRID))
    printed = capsys.readouterr().out
    assert main(words(GRID | {"--out": path})) == 0
    assert capsys.readouterr() == ("", "")
    assert path.read_bytes() == printed.encode()
    assert before.read_text(encoding="utf-8") == "older"  # not written over but replaced, at once
    assert set(tmp_path.iterdir()) == {path, before}


def test_a_hang_up_that_is_ignored_stops_nothing(tmp_path):
    """As under nohup."""
    run = process(
        words(SMALL | {"--out": tmp_path / "rows.csv"}),
        program=("-c", INTERRUPTED, str(int(signal.SIGHUP))),
        shell="trap '' HUP; exec \"$@\"",
    )
    assert run.communicate(timeout=60) == (b"", b"")
    assert (tmp_path / "rows.csv").stat().st_size > 0


def test_a_read_only_file_is_not_replaced(capsys, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("older", encoding="utf-8")
    path.chmod(0o444)
    assert f"argument --out: {path} is read-only" in refusal(words(SMALL | {"--out": path}), capsys)
    assert path.read_text(encoding="utf-8") == "older"


def test_two_sweeps_of_one_process_number_do_not_meet(tmp_path):
    """As two containers that share a folder may have it; here both are of this process."""
    shape, paths = (2,), (tmp_path / "a.csv", tmp_path / "b.csv")
    with rows.rows_to(str(paths[0])) as first:
        first.add({"n": np.array([1, 2])}, shape)
        with rows.rows_to(str(paths[1])) as second:
            second.add({"n": np.array([3, 4])}, shape)
    assert [path.read_text("utf8") for path in paths] == ["n\n1\n2\n", "n\n3\n4\n"]
    assert set(tmp_path.iterdir()) == set(paths)


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_a_file_keeps_its_rights_and_a_new_one_gets_the_usual(tmp_path):
    before = os.umask(0o027)
    try:
        for rights, expected in (None, 0o640), (0o600, 0o600), (0o666, 0o666):
            path = tmp_path / f"{rights}.csv"
            if rights is not None:
                path.touch()
                path.chmod(rights)
            with rows.rows_to(str(path)) as sink:
                (part,) = tmp_path.glob(".perfmodel-*.part")
                assert part.stat().st_mode & 0o777 == expected  # while it is written, too
                sink.add({"n": np.array([1])}, (1,))
            assert path.stat().st_mode & 0o777 == expected
    finally:
        os.umask(before)


def test_links_that_lead_back_to_themselves(capsys, tmp_path):
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    (tmp_path / "there").symlink_to("back")
    (tmp_path / "back").symlink_to("there")
    for path in (loop, tmp_path / "there" / "rows.csv"):
        line = refusal(words(SMALL | {"--out": path}), capsys)
        assert f"argument --out: cannot write {path}: Too many levels of symbolic links" in line
    assert loop.is_symlink()


def test_a_link_stays_a_link(tmp_path):
    link, path = tmp_path / "link.csv", tmp_path / "elsewhere" / "rows.csv"
    path.parent.mkdir()
    path.touch()
    link.symlink_to(path)
    main(words(SMALL | {"--out": link}))
    assert link.is_symlink()
    assert path.stat().st_size > 0


def test_texts_that_csv_must_quote(capsys, tmp_path):
    path = tmp_path / 'a "b"\nc.json'
    path.write_text((CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json").read_text("utf8"))
    main(words(SMALL | {"--model": path, "--batch": "1", "--prompt": "9", "--output": "9"}))
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines(keepends=True))
    assert row["model"] == str(path)


@pytest.mark.parametrize("out", [None, "rows.csv", "rows.parquet"])
def test_a_path_that_is_not_utf_8(capsys, tmp_path, out):
    """The row has the byte written out, as the messages have it."""
    path = tmp_path / "a\udcff.json"
    path.write_text((CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json").read_text("utf8"))
    to = [] if out is None else [f"--out={tmp_path / out}"]
    main([*words(SMALL | {"--model": path, "--batch": "1", "--prompt": "9", "--output": "9"}), *to])
    if out == "rows.parquet":
        (row,) = parquet.read_table(tmp_path / out).to_pylist()
    else:
        (row,) = read(capsys.readouterr().out if out is None else (tmp_path / out).read_text("utf8"))
    assert row["model"] == str(path).replace("\udcff", r"\udcff")


def failing(error, after):
    """An `answer` that raises in the block after so many."""
    calls = []

    def answer(asked, real=sweep.answer):
        calls.append(asked)
        if len(calls) > after:
            raise error
        return real(asked)

    return answer


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "perfmodel: stopped: {path} is not written\n"),
        (MemoryError(), 1, "perfmodel: not enough memory\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "perfmodel: cannot write {path}: No space left on device\n",
        ),
        (ValueError("odd"), 2, "perfmodel: odd\n"),
    ],
    ids=repr,
)
def test_a_sweep_that_stops_leaves_no_file(capsys, tmp_path, monkeypatch, error, status, line, name):
    path = tmp_path / name
    path.write_text("older", encoding="utf-8")
    monkeypatch.setattr(sweep, "BLOCK", 1000)
    monkeypatch.setattr(rows, "GROUP", 1000)
    monkeypatch.setattr(sweep, "answer", failing(error, after=3))
    try:
        ended = main(words(SMALL | {"--out": path}))
    except SystemExit as stop:
        ended = stop.code
    assert ended == status
    assert capsys.readouterr() == ("", line.format(path=path))
    assert path.read_text(encoding="utf-8") == "older"
    assert list(tmp_path.iterdir()) == [path]


INTERRUPTED = """
import os, signal, sys
from perfmodel import rows, sweep
from perfmodel.__main__ import main

KIND = int(sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)
real, sweep.BLOCK, rows.GROUP = sweep.answer, 1000, 1000

def answer(asked):
    if int(asked.workload.batch.max()) > 9:
        os.kill(os.getpid(), KIND)
    return real(asked)

sweep.answer = answer
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_signals_in_a_process(tmp_path, name, kind):
    path = tmp_path / name
    run = process(words(SMALL | {"--out": path}), program=("-c", INTERRUPTED, str(int(kind))))
    assert run.communicate(timeout=60) == (b"", f"perfmodel: stopped: {path} is not written\n".encode())
    assert run.returncode == 128 + kind
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_disk_that_fills_up(tmp_path, name):
    """Of 8 blocks of 512 bytes: the system refuses to write on."""
    path = tmp_path / name
    run = process(words(SMALL | {"--out": path}), shell='ulimit -f 8; exec "$@"')
    assert run.communicate(timeout=60) == (b"", f"perfmodel: cannot write {path}: File too large\n".encode())
    assert run.returncode == 1
    assert not list(tmp_path.iterdir())


@full_disk
def test_a_full_disk_behind_stdout():
    with Path("/dev/full").open("wb") as full:
        run = process(words(SMALL), stdout=full)
        err = run.communicate(timeout=60)[1]
    assert (run.returncode, err) == (1, b"perfmodel: cannot write to stdout: No space left on device\n")


def test_a_reader_that_left():
    reader, writer = os.pipe()
    os.close(reader)
    run = process(words(SMALL), stdout=writer)
    os.close(writer)
    assert (run.communicate(timeout=60)[1], run.returncode) == (b"", 128 + signal.SIGPIPE)


# Parquet


def test_parquet_holds_the_same_rows(capsys, tmp_path, monkeypatch):
    grid = SMALL | {"--tp": "1,2", "--tpot-limit": "20", "--price": "2"}
    expected = table(capsys, grid, "--ideal")
    monkeypatch.setattr(sweep, "BLOCK", 3000)
    monkeypatch.setattr(rows, "GROUP", 7000)
    path = tmp_path / "rows.parquet"
    assert main(words(grid | {"--out": path}, "--ideal")) == 0
    assert list(tmp_path.iterdir()) == [path]
    found = parquet.read_table(path)
    assert found.column_names == list(expected[0])
    kinds = {name: str(kind) for name, kind in zip(found.schema.names, found.schema.types, strict=True)}
    assert {"int64", "double", "bool", "string"} == set(kinds.values())
    assert (kinds["batch"], kinds["max_concurrency"], kinds["fits"], kinds["bound"]) == (
        "int64",
        "int64",
        "bool",
        "string",
    )
    assert parquet.ParquetFile(path).metadata.num_row_groups == 5  # of three blocks each, and the rest
    for column in found.column_names:
        values = [parsed(row[column]) for row in expected]
        if kinds[column] == "double":
            assert found[column].to_numpy() == pytest.approx(values, rel=1e-11)
        else:
            assert found[column].to_pylist() == values


def test_parquet_without_pyarrow(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit) as stop:
        main(words(SMALL | {"--out": tmp_path / "rows.parquet"}))
    assert stop.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"perfmodel: argument --out: Parquet needs pyarrow[^\n]+\n", err)
    assert not list(tmp_path.iterdir())


def test_nothing_is_imported_that_csv_does_not_need():
    program = "import sys; from perfmodel.__main__ import main; main(sys.argv[1:]); print(sorted(sys.modules))"
    run = process(words(SMALL | {"--prompt": "9"}), program=("-c", program), text=True)
    assert "pyarrow" not in run.communicate(timeout=60)[0].splitlines()[-1]
    assert run.returncode == 0


# Progress


def test_progress_in_lines(capsys, monkeypatch):
    """One a second, of a clock that goes on half a second a look."""
    times = iter(range(100))
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(times) / 2))
    monkeypatch.setattr(sweep, "BLOCK", 2000)
    main(words(SMALL, "--progress"))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "perfmodel: 2,000 of 20,000 points, 4 s left"  # half a second for a tenth
    assert [line.split()[1] for line in lines] == ["2,000", "6,000", "10,000", "14,000", "18,000"]
    assert all(re.fullmatch(r"perfmodel: [\d,]+ of 20,000 points, \d s left", line) for line in lines)


def test_without_a_terminal_there_is_no_progress(capsys):
    main(words(SMALL))
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="the system has no pseudo-terminals")
def test_progress_on_a_terminal(tmp_path):
    """One line, written over and wiped at the end."""
    outer, inner = pty.openpty()
    run = process(words(SMALL | {"--out": tmp_path / "rows.csv"}), stderr=inner)
    os.close(inner)
    run.communicate(timeout=60)
    assert run.returncode == 0
    written = os.read(outer, 10_000).decode()
    os.close(outer)
    first, *_, last = re.split(r"\r\x1b\[K", written)[1:]
    assert first == "20,000 of 20,000 points, 0 s left"
    assert last == ""
    assert "\n" not in written


def test_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    for column in sweep.RESULTS:
        assert re.search(rf"\b{column}\b", out)
    assert "both ends included" in out
