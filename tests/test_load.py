"""A TOML file of one's own: the same form and the same checks as the shipped ones, refused in one line."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data

FILE = """
[model.tiny]
layers = 4
hidden_size = 512
heads = 8
kv_heads = 2
head_dim = 64
ffn_size = 2048
vocab_size = 1000
tied_embeddings = true
source = "made up for a test"
date = "2026"
kind = "assumed"

[model.sparse]
layers = 4
hidden_size = 512
heads = 8
kv_heads = 8
head_dim = 96
ffn_size = 256
vocab_size = 1000
experts = 16
experts_per_token = 2
latent = { kv_rank = 128, rope_dim = 32, nope_dim = 64, value_dim = 64, query_rank = 0 }
indexer = { heads = 4, head_dim = 32, selected = 256, key_bytes = 36 }
source = "made up for a test"
date = "2026-11"
kind = "assumed"

[model.windowed]
layers = 4
hidden_size = 512
heads = 8
kv_heads = 2
head_dim = 64
ffn_size = 2048
vocab_size = 1000
window = { tokens = 128, layers = 2 }
source = "made up for a test"
date = "2026-11-30"
kind = "assumed"

[accelerator.box]
link = "wire"
source = "its label"
url = "https://example.org/box"
date = "2026-11"
kind = "spec"
memory_capacity = { value = 24, unit = "GB" }
memory_bandwidth = { value = 6e-1, unit = "TB/s", note = "with an exponent" }
bf16_flops = { value = 125, unit = "TFLOP/s" }
int8_flops = { value = 250, unit = "TOP/s" }

[accelerator.box.power]
value = 0.15
unit = "kW"
source = "a meter"
date = "2026-11-30"
kind = "measured"

[accelerator.borrowed]
link = "nvlink4"
source = "its label"
date = "2026-11"
kind = "spec"
memory_capacity = { value = 24, unit = "GB" }
memory_bandwidth = { value = 600, unit = "GB/s" }
bf16_flops = { value = 125, unit = "TFLOP/s" }

[link.wire]
source = "two runs of nccl-tests"
date = "2026-11-30"
kind = "measured"
bandwidth = { value = 12.5, unit = "GB/s" }
latency = { value = 25, unit = "us" }

[constants.mine]
source = "a fit"
date = "2026-11-30"
kind = "fitted"
bandwidth_efficiency = { value = 0.8, unit = "1" }
flops_efficiency = 0.5
step_overhead = { value = 2, unit = "ms" }
"""


@pytest.fixture
def write(tmp_path):
    """Write a file, with one text in place of another, and return its path."""

    def written(text=FILE, old="", new=""):
        assert old in text
        path = tmp_path / "mine.toml"
        path.write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")
        return path

    return written


def refused(path, *words):
    """The file is refused in one line that begins with its name and holds the words; the shipped data stay."""
    before = {kind: data.names(kind) for kind in data.KINDS}
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are checked below
        data.load(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message.replace(str(path), "")) < 500
    for word in words:
        assert word in message, message
    assert {kind: data.names(kind) for kind in data.KINDS} == before


def test_a_file_adds_to_what_is_shipped(write):
    mine = data.load(write())
    box = mine.accelerator("box")
    assert box == pm.Accelerator(
        name="box",
        memory_capacity=24e9,
        memory_bandwidth=600e9,
        bf16_flops=125e12,
        int8_flops=250e12,
        power=150,
        link=pm.Link("wire", bandwidth=12.5e9, latency=25e-6),
    )
    assert mine.accelerator("borrowed").link == data.link("nvlink4")
    assert mine.constants("mine") == pm.Constants(bandwidth_efficiency=0.8, flops_efficiency=0.5, step_overhead=2e-3)
    for kind, added in {"model": 3, "accelerator": 2, "link": 1, "constants": 1}.items():
        assert len(mine.names(kind)) == len(data.names(kind)) + added
        assert mine.names(kind)[: -added or None] == data.names(kind)
    assert mine.model("llama-2-70b") == data.model("llama-2-70b")
    assert mine.accelerator("h100-sxm") == data.accelerator("h100-sxm")
    assert mine.constants() == data.constants()


def test_nested_tables_become_the_parts_of_a_model(write):
    mine = data.load(write())
    tiny = pm.Model("tiny", 4, 512, heads=8, kv_heads=2, head_dim=64, ffn_size=2048, vocab_size=1000)
    assert mine.model("tiny") == replace(tiny, tied_embeddings=True)
    sparse = mine.model("sparse")
    parts = sparse.latent.kv_rank, sparse.latent.query_rank, sparse.indexer.selected, sparse.indexer.key_bytes
    assert parts == (128, 0, 256, 36)
    windowed = mine.model("windowed")
    assert (windowed.window.tokens, windowed.window.layers, windowed.latent) == (128, 2, None)


def test_what_is_loaded_serves(write):
    mine = data.load(write())
    machine = mine.accelerator("box")
    deployment = pm.Deployment(
        mine.model("tiny"), machine, link=machine.link, tensor_parallel=2, constants=mine.constants("mine")
    )
    assert pm.estimate(deployment, pm.Workload(prompt=64, output=8, batch=2)).fits


def test_every_own_value_keeps_its_source(write):
    rows = {(row["name"], row["field"]): row for row in data.load(write()).provenance("accelerator")}
    assert rows["box", "power"] == {
        "name": "box",
        "field": "power",
        "printed": 0.15,
        "unit": "kW",
        "value": 150.0,
        "source": "a meter",
        "url": "",
        "date": "2026-11-30",
        "kind": "measured",
        "note": "",
    }
    bandwidth = rows["box", "memory_bandwidth"]
    assert (bandwidth["source"], bandwidth["url"], bandwidth["note"]) == (
        "its label",
        "https://example.org/box",
        "with an exponent",
    )
    assert ("h100-sxm", "power") in rows
    nested = [row for row in data.load(write()).provenance("model") if row["field"] == "latent.kv_rank"]
    assert {row["name"]: row["value"] for row in nested}["sparse"] == 128


def test_nothing_leaks_into_the_shipped_data(write):
    before = {kind: data.names(kind) for kind in data.KINDS}
    data.load(write()).accelerator("box")
    assert {kind: data.names(kind) for kind in data.KINDS} == before
    with pytest.raises(ValueError, match=r"^accelerator 'box' is unknown; nearest: "):
        data.accelerator("box")
    assert "wire" not in {row["name"] for row in data.provenance("link")}
    path = write(FILE, "[accelerator.borrowed]", "[accelerator.lent]")
    assert data.load(path).names("accelerator")[-1] == "lent"
    with pytest.raises(ValueError, match=r"^accelerator 'borrowed' is unknown; nearest: "):
        data.load(path).accelerator("borrowed")


def test_an_unknown_name_says_the_nearest_of_both(write):
    mine = data.load(write())
    with pytest.raises(ValueError, match=r"^accelerator 'boxx' is unknown; nearest: box; known: a100-80gb, .*, box, "):
        mine.accelerator("boxx")


MODEL = "[model.tiny]"
BANDWIDTH = '{ value = 6e-1, unit = "TB/s", note = "with an exponent" }'
REFUSED = {
    "malformed": ("[model.tiny]", "[model.tiny", ["is not TOML", "line 2"]),
    "twice": ("[model.sparse]", "[model.tiny]", ["is not TOML", "line"]),
    "key twice": ("layers = 4\n", "layers = 4\nlayers = 5\n", ["is not TOML", "Cannot overwrite"]),
    "unknown section": (
        "[link.wire]",
        "[links.wire]",
        ["'links' must be a table, [KIND.NAME]", "link, constants", "without an s"],
    ),
    "measurements": ("[link.wire]", "[measurements.wire]", ["'measurements' must be a table"]),
    "section is a value": (MODEL, "link = 3\n[model.tiny]", ["is not TOML"]),
    "entry is a value": (MODEL, "[model]\nlayers = 4\n[model.tiny]", ["model 'layers'=4", "[model.NAME]"]),
    "blank name": (MODEL, '[model." "]', ["model ' ' must have a printable name"]),
    "newline in name": (MODEL, '[model."a\\nb"]', ["model 'a\\nb' must have a printable name"]),
    "shipped name": (MODEL, '[model."llama-2-70b"]', ["model 'llama-2-70b' is shipped already", "another name"]),
    "unknown field": ("layers = 4", "layer = 4", ["model 'tiny': 'layer' is not a field; nearest: layers"]),
    "another's field": (
        "layers = 4",
        'link = "wire"',
        ["'tiny': 'link' is not a field; known: layers, "],
    ),
    "name as a field": ("layers = 4", 'name = "x"\nlayers = 4', ["model 'tiny': 'name' is not a field"]),
    "missing field": ("layers = 4\n", "", ["model 'tiny': layers is missing"]),
    "missing machine field": (f"memory_bandwidth = {BANDWIDTH}\n", "", ["'box': memory_bandwidth is missing"]),
    "text for a number": ("layers = 4", 'layers = "4"', ["model 'tiny': layers='4' is not a number"]),
    "truth for a number": ("layers = 4", "layers = true", ["model 'tiny': layers=True is not a number"]),
    "fraction": ("layers = 4", "layers = 4.5", ["model 'tiny': layers=4.5 must be a whole number"]),
    "negative": ("layers = 4", "layers = -4", ["model 'tiny': layers=-4 must be above 0"]),
    "nan": ("layers = 4", "layers = nan", ["model 'tiny': layers=nan must be above 0 and finite"]),
    "huge": ("layers = 4", f"layers = 1{400 * '0'}", ["model 'tiny': layers=1000"]),
    "of 5,000 digits": (
        "layers = 4",
        f"layers = {5000 * '4'}",
        ["line 3: 'layers = 444", "holds a number of more than 4,300 digits"],
    ),
    "a value of 5,000 digits": ("value = 24,", f"value = {5000 * '2'},", ["'memory_capacity = { value = 222"]),
    "of 20,000 bits": (
        "layers = 4",
        f"layers = 0x{5000 * 'f'}",
        ["model 'tiny': layers=<int with thousands of digits> must be 0, or from 1e-30 to 1e30"],
    ),
    "out of reach": ("value = 24,", "value = 1e40,", ["accelerator 'box': memory_capacity=1e+49 must be 0, or from"]),
    "out of reach below": ("flops_efficiency = 0.5", "flops_efficiency = 1e-300", ["'mine': flops_efficiency=1e-300 "]),
    "nested out of reach": ("kv_rank = 128", f"kv_rank = 1{99 * '0'}", ["model 'sparse': latent.kv_rank=1000"]),
    "list": ("layers = 4", "layers = [4, 4]", ["model 'tiny': layers=[4, 4] must be"]),
    "table for a number": (
        "layers = 4",
        "layers = { a = 4 }",
        ["'tiny': layers: 'a' is not known beside a value"],
    ),
    "number for a truth": ("tied_embeddings = true", "tied_embeddings = 1", ["tied_embeddings=1", "True or False"]),
    "number for a table": ("window = { tokens = 128, layers = 2 }", "window = 128", ["model 'windowed': window=128"]),
    "empty table": ("window = { tokens = 128, layers = 2 }", "window = {}", ["'windowed': window: tokens is missing"]),
    "nested missing": ("kv_rank = 128, ", "", ["model 'sparse': latent: kv_rank is missing"]),
    "nested unknown": (
        "kv_rank = 128",
        "kv_rank = 128, rank = 1",
        ["latent: 'rank' is not a field; nearest: kv_rank"],
    ),
    "nested wrong": ("kv_rank = 128", "kv_rank = 0", ["model 'sparse': latent: kv_rank=0 must be above 0"]),
    "nested text": ("kv_rank = 128", 'kv_rank = "x"', ["model 'sparse': latent: kv_rank='x' is not a number"]),
    "heads": ("kv_heads = 2", "kv_heads = 3", ["model 'tiny': kv_heads=3 does not divide heads=8"]),
    "no source": ('source = "made up for a test"\n', "", ["model 'tiny': layers: source is missing"]),
    "no date": ('date = "2026"\n', "", ["model 'tiny': layers: date is missing", "beside it or all above"]),
    "no kind": ('kind = "assumed"\n', "", ["model 'tiny': layers: kind is missing"]),
    "empty source": ('"made up for a test"', '" "', ["model 'tiny': layers: source=' ' must be a text"]),
    "source a number": ('"made up for a test"', "7", ["source=7 must be a text"]),
    "date a date": ('date = "2026"', "date = 2026-11-30", ["date=datetime.date(2026, 11, 30) must be a text"]),
    "date a number": ('date = "2026"', "date = 2026", ["date=2026 must be a text"]),
    "date in words": ('date = "2026"', 'date = "May 2026"', ["date='May 2026' must be a date such as"]),
    "date a week": ('date = "2026-11-30"', 'date = "2026-W05-1"', ["date='2026-W05-1' must be a date such as"]),
    "no such day": ('date = "2026-11-30"', 'date = "2026-02-30"', ["date='2026-02-30' must be a date such as"]),
    "unknown kind": ('kind = "assumed"', 'kind = "guess"', ["kind='guess' must be one of spec, keynote, paper"]),
    "kind a list": ('kind = "assumed"', 'kind = ["spec"]', ["kind=['spec'] must be a text"]),
    "own source without date": (
        'source = "a meter"\ndate = "2026-11-30"',
        'source = "a meter"',
        ["accelerator 'box': power: date is missing"],
    ),
    "unit missing": (BANDWIDTH, "{ value = 0.6 }", ["accelerator 'box': memory_bandwidth: unit None must be B/s"]),
    "no table": (BANDWIDTH, "600e9", ["memory_bandwidth: unit '1' must be B/s with a decimal prefix", "value = 6"]),
    "wrong unit": ('"TB/s", note', '"TB", note', ["accelerator 'box': memory_bandwidth: unit 'TB' must be B/s"]),
    "bits": ('"TB/s", note', '"Tb/s", note', ["accelerator 'box': memory_bandwidth: unit 'Tb/s' must be B/s"]),
    "binary": ('unit = "GB" }', 'unit = "GiB" }', ["accelerator 'box': memory_capacity: unit 'GiB' must be B "]),
    "unit a number": ('unit = "GB" }', "unit = 9 }", ["accelerator 'box': memory_capacity: unit 9 must be B "]),
    "rate": ('"TFLOP/s" }', '"TB/s" }', ["bf16_flops: unit 'TB/s' must be FLOP/s or OP/s"]),
    "watts": ('unit = "kW"', 'unit = "kWh"', ["accelerator 'box': power: unit 'kWh' must be W"]),
    "plain number": ('unit = "1"', 'unit = "s"', ["constants 'mine': bandwidth_efficiency: unit 's' must be '1'"]),
    "value missing": ("value = 24, ", "", ["accelerator 'box': memory_capacity: value is missing"]),
    "value a text": ("value = 24,", 'value = "24",', ["memory_capacity: value '24' must be a number, in GB"]),
    "value a truth": ("value = 24,", "value = true,", ["memory_capacity: value True must be a number, in GB"]),
    "value negative": (
        "value = 24,",
        "value = -24,",
        ["'box': memory_capacity=-24000000000.0 must be above 0"],
    ),
    "value infinite": ("value = 24,", "value = inf,", ["accelerator 'box': memory_capacity=inf", "finite"]),
    "power negative": ("value = 0.15", "value = -1", ["accelerator 'box': power=-1000.0 must be at least 0"]),
    "key beside a value": ("value = 24,", "value = 24, sauce = 1,", ["'sauce' is not known beside a value"]),
    "unknown link": ('link = "wire"', 'link = "wir"', ["accelerator 'box': link 'wir' is unknown; nearest: wire"]),
    "link a number": ('link = "wire"', "link = 5", ["accelerator 'box': link 5 is unknown"]),
    "link a table": ('link = "wire"', "link = { a = 1 }", ["accelerator 'box': link {'a': 1} is unknown"]),
    "efficiency": (
        "flops_efficiency = 0.5",
        "flops_efficiency = 1.5",
        ["'mine': flops_efficiency=1.5 must be at most 1"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused(write, case):
    old, new, words = REFUSED[case]
    refused(write(FILE, old, new), *words)


def test_a_bad_last_entry_keeps_the_good_first_out(write):
    """All or nothing: there is no catalogue that holds the entries before the mistake."""
    path = write(FILE, "step_overhead = { value = 2,", "step_overhead = { value = -2,")
    refused(path, "constants 'mine': step_overhead=-0.002 must be at least 0")


def test_files_that_hold_no_data(write, tmp_path):
    refused(write(""), "holds no entry; write [KIND.NAME]")
    refused(write("[model]\n"), "holds no entry")
    refused(write("link = 3\n"), "'link' must be a table, [KIND.NAME]")
    refused(tmp_path / "absent.toml", "cannot be read: No such file or directory")
    refused(tmp_path, "cannot be read: Is a directory")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe[model]")
    refused(binary, "is not TOML", "utf-8")
    large = tmp_path / "large.toml"
    with large.open("wb") as file:
        file.truncate(10_000_001)
    refused(large, "is larger than 10,000,000 bytes")
    deep = tmp_path / "deep.toml"
    deep.write_text("a = " + "[" * 100_000, encoding="utf-8")
    refused(deep, "is not TOML")


def test_a_file_that_may_not_be_read(write, monkeypatch):
    """As its owner finds it; root, whom some builds run as, may read everything."""
    path = write()

    def forbidden(self, mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", forbidden)
    refused(path, "cannot be read: Permission denied")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + FILE.encode())
    assert data.load(str(path)).accelerator("box").power == 150


LINES = FILE.strip().splitlines()


@given(st.sampled_from(range(len(LINES))), st.text(st.characters(codec="utf-8"), max_size=12), st.booleans())
def test_a_damaged_file_is_refused_in_one_line_or_means_something(tmp_path_factory, line, text, whole):
    """Any line lost, replaced or lengthened: a line of refusal, and never a traceback of another kind."""
    lines = LINES.copy()
    lines[line] = text if whole else lines[line] + text
    path = tmp_path_factory.mktemp("damaged") / "mine.toml"
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    message = ""
    try:
        data.load(path)
    except ValueError as error:
        message = str(error)
    assert not message or (message.startswith(f"{path}: ") and "\n" not in message)
