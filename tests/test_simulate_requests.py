"""Workloads of the simulator: columns that are checked, files that are read, and what a prefix cache can find."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from examples import refused
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.simulate.requests import Requests, prefix_bound
from perfmodel.simulate.traces import read, read_csv

THREE = {"arrival": [0, 1.5, 1.5], "prompt": [40, 16, 1], "output": [5, 0, 7]}
IDS = {"ids": [7, 8, 9, 7], "offsets": [0, 3, 4, 4], "unit": 16}  # 40 tokens are pieces of 16, 16 and 8; 1 has no name


def three(**changes):
    return Requests(**THREE | changes)


# Columns


def test_columns_are_64_bits_wide_and_cannot_be_written():
    requests = three(prompt=np.array([40, 16, 1], dtype=np.int32), output=[5.0, 0.0, 7.0], **IDS)
    names = ["arrival", "prompt", "output", "ids", "offsets"]
    assert [getattr(requests, name).dtype.str for name in names] == ["<f8", "<i8", "<i8", "<i8", "<i8"]
    for name in names:
        with pytest.raises(ValueError, match="read-only"):
            getattr(requests, name)[0] = 1


def test_what_the_caller_writes_later_does_not_reach_the_requests():
    prompt = np.array([40, 16, 1])
    requests = three(prompt=prompt)
    prompt[0] = 0
    assert requests.prompt.tolist() == [40, 16, 1]


def test_a_column_that_cannot_be_written_is_not_copied():
    requests = three()
    assert three(prompt=requests.prompt).prompt is requests.prompt


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arrival": [0, 2, 1.5]}, ["arrival[2]=1.5", "at least arrival[1]=2.0"]),
        ({"arrival": [-1, 0, 1]}, ["arrival[0]=-1", "number from 0"]),
        ({"arrival": [0, 1, np.nan]}, ["arrival[2]=nan"]),
        ({"arrival": [0, 1, np.inf]}, ["arrival[2]=inf"]),
        ({"arrival": [[0, 1, 2]]}, ["arrival=[[0, 1, 2]]", "row of numbers"]),
        ({"arrival": [0, [1], 2]}, ["arrival=[0, [1], 2]", "row of numbers"]),
        ({"arrival": "012"}, ["arrival='012'"]),
        ({"prompt": [40, 0, 0]}, ["prompt[1]=0", "whole number from 1"]),
        ({"prompt": [40, 16, 0.5]}, ["prompt[2]=0.5"]),
        ({"prompt": [40, 2.5, 1]}, ["prompt[1]=2.5", "whole number"]),
        ({"prompt": [40, 2**31, 1]}, ["prompt[1]=2147483648", "to 2147483647"]),
        ({"prompt": [True, True, True]}, ["prompt=[True, True, True]"]),
        ({"prompt": np.ma.array([40, 16, 1], mask=[0, 1, 0])}, ["prompt=", "row of numbers"]),
        ({"output": [5, -1, 7]}, ["output[1]=-1", "whole number from 0"]),
        ({"output": [5, 7]}, ["output has 2 values, arrival 3"]),
        ({"arrival": [], "prompt": [], "output": []}, ["arrival=[] must hold a request"]),
        ({"users": 0}, ["users=0", "at least 1"]),
        ({"users": 4}, ["users=4", "at most 3"]),
        ({"users": 1.5}, ["users=1.5", "whole"]),
        ({"users": [1, 2, 3]}, ["users=[1, 2, 3]", "one number"]),
        ({"users": 2, "think": -1}, ["think=-1"]),
        ({"think": 3}, ["think=3 must be 0 without users"]),
        ({"ids": [1]}, ["ids must be given with all of ids, offsets and unit"]),
        (IDS | {"unit": 0}, ["unit=0"]),
        (IDS | {"ids": [7, 8, -9, 7]}, ["ids[2]=-9"]),
        (IDS | {"offsets": [0, 3, 4]}, ["offsets has 3 values for 3 requests"]),
        (IDS | {"offsets": [1, 3, 4, 4]}, ["offsets[0]=1 must be 0"]),
        (IDS | {"offsets": [0, 3, 3, 3]}, ["offsets[3]=3 must be 4"]),
        (IDS | {"offsets": [0, 3, 2, 4]}, ["offsets[2]=2 must be at least offsets[1]=3"]),
        (IDS | {"offsets": [0, 2, 4, 4]}, ["offsets[2]=4 must give request 1 at most 1 ids"]),
    ],
)
def test_a_bad_column_is_refused_by_name_and_first_index(changes, words):
    refused(lambda: three(**changes), "Requests: ", *words)


def test_a_slice_keeps_ids_with_their_requests():
    requests = Requests([0, 1, 2, 3], [16, 32, 16, 32], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [0, 1, 3, 4, 6], 16, users=3)
    part = requests[1:3]
    assert part.arrival.tolist() == [1, 2]
    assert part.prompt.tolist() == [32, 16]
    assert part.output.tolist() == [2, 3]
    assert part.ids.tolist() == [2, 3, 4]
    assert part.offsets.tolist() == [0, 2, 3]
    assert (part.unit, part.users, len(part)) == (16, 2, 2)
    assert three()[-2:].output.tolist() == [0, 7]
    refused(lambda: requests[::2], "index=slice(None, None, 2)")
    refused(lambda: requests[1], "index=1 must be a slice")
    refused(lambda: requests[3:1], "must hold a request")


def test_another_rate_stretches_the_times():
    """Three gaps in six seconds are a rate of 1/2; at 2 they take a quarter of the time."""
    requests = Requests([1, 2, 2, 7], [1] * 4, [1] * 4)
    assert requests.rate == 0.5
    assert requests.scaled(rate=2).arrival.tolist() == [0.25, 0.5, 0.5, 1.75]
    assert requests.scaled(rate=2).rate == 2


def test_a_rate_that_cannot_be_set():
    refused(lambda: three().scaled(0), "rate=0")
    refused(lambda: three(users=1).scaled(2), "rate=2", "closed loop")
    refused(lambda: three(arrival=[4, 4, 4]).scaled(2), "rate=2", "all arrive at once")
    assert three(arrival=[4, 4, 4]).rate == np.inf


# What a prefix cache can find


def hits(requests):
    return {rule: (h.hit_pieces, h.pieces, h.hit_tokens, h.prompt_tokens) for rule, h in prefix_bound(requests).items()}


def test_a_bound_counted_by_hand():
    """Pieces of 10. Prompts of 25, 25, 30, 30, 20 and 7 tokens: 3 + 3 + 3 + 3 + 2 + 1 pieces, 2 + 2 + 3 + 3 + 2 whole.

    The second repeats the first: 3 pieces, 25 tokens; for vLLM the 2 whole ones. The third shares 2. The fourth repeats
    the third: 3 pieces, for vLLM 2, since the last token is computed. The fifth begins like the others and leaves them.
    The sixth is new.
    """
    ids = [[1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 5], [6]]
    offsets = np.cumsum([0, *map(len, ids)])
    requests = Requests(range(6), [25, 25, 30, 30, 20, 7], [1] * 6, np.concatenate(ids), offsets, 10)
    assert hits(requests) == {"bound": (9, 15, 25 + 20 + 30 + 10, 137), "V1": (7, 12, 70, 137)}
    bound = prefix_bound(requests)["bound"]
    assert bound.piece_rate == pytest.approx(9 / 15)
    assert bound.token_rate == pytest.approx(85 / 137)


def test_after_a_miss_nothing_hits():
    """The second prompt's last piece was seen, the one before it was not; nor does a request hit its own pieces."""
    requests = Requests([0, 1], [30, 30], [1, 1], [1, 2, 3, 1, 9, 3], [0, 3, 6], 10)
    assert hits(requests)["bound"] == (1, 6, 10, 60)


def test_a_short_last_piece_is_not_cached_by_vllm():
    """The first prompt's second piece is short. Where its id comes back as a whole one, vLLM has to compute it."""
    requests = Requests([0, 1], [15, 30], [1, 1], [1, 2, 1, 2, 3], [0, 2, 5], 10)
    assert hits(requests) == {"bound": (2, 5, 20, 45), "V1": (1, 4, 10, 45)}


def test_what_has_no_id_is_like_no_other():
    requests = Requests([0, 1], [35, 35], [1, 1], [4, 4], [0, 1, 2], 10)
    assert hits(requests) == {"bound": (1, 8, 10, 70), "V1": (1, 6, 10, 70)}
    none = Requests([0, 1], [5, 5], [1, 1], [], [0, 0, 0], 10)
    assert hits(none) == {"bound": (0, 2, 0, 10), "V1": (0, 0, 0, 10)}
    assert prefix_bound(none)["V1"].piece_rate == 0
    refused(lambda: prefix_bound(three()), "prefix_bound: ids=None")


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=12), st.integers(1, 4))
def test_the_bound_compares_the_tokens_themselves(prompts, unit):
    """Prompts of two kinds of token, cut by hand; a piece hits if an earlier prompt had the same one after the same."""
    names, ids, seen, whole = {}, [], set(), set()
    counts = {"bound": 0, "V1": 0}
    for prompt in prompts:
        heads = [tuple(prompt[:end]) for end in range(unit, len(prompt) + unit, unit)]
        ids.append([names.setdefault((head, len(head) % unit), len(names)) for head in heads])
        found = [head in seen for head in heads]
        counts["bound"] += [*found, False].index(False)
        found = [head in whole and len(head) < len(prompt) for head in heads]
        counts["V1"] += [*found, False].index(False)
        seen |= set(heads)
        whole |= {head for head in heads if len(head) % unit == 0}
    lengths = [len(prompt) for prompt in prompts]
    requests = Requests([0] * len(prompts), lengths, lengths, np.concatenate(ids), np.cumsum([0, *map(len, ids)]), unit)
    assert {rule: found.hit_pieces for rule, found in prefix_bound(requests).items()} == counts


# Files

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9799600,4808,10
2023-11-17 00:00:00.0319601,3180,8
2023-11-17 00:00:01,110,0
2023-11-17 00:00:01.979960,7,27
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1000, "output_length": 500, "hash_ids": [0, 1]}
{"timestamp": 27, "input_length": 512, "output_length": 1, "hash_ids": [0]}
{"timestamp": 3000, "input_length": 1025, "output_length": 0, "hash_ids": [0, 2]}
"""
CSV = """arrival,prompt,output
0.5,12,3
0.75,1,0
"""
FORMATS = {"azure": AZURE, "mooncake": MOONCAKE, "csv": CSV}


@pytest.fixture
def file(tmp_path):
    """What writes a file and returns its path."""

    def write(content):
        path = tmp_path / "trace"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def columns(requests):
    return requests.arrival.tolist(), requests.prompt.tolist(), requests.output.tolist()


def test_azure(file):
    """52.0001, 1020.04 and 2000 ms after the first, over midnight; seven decimals, six and none."""
    requests, skipped = read(file(AZURE), "azure")
    arrival, prompt, output = columns(requests)
    assert arrival == pytest.approx([0, 0.0520001, 1.02004, 2], abs=1e-12)
    assert (prompt, output, skipped) == ([4808, 3180, 110, 7], [10, 8, 0, 27], 0)
    utc = AZURE.replace(",4808", "+00:00,4808")  # as in the traces of 2024
    assert columns(read(file(utc), "azure")[0]) == (arrival, prompt, output)


def test_mooncake(file):
    requests, skipped = read(file(MOONCAKE), "mooncake")
    assert columns(requests) == ([0, 0.027, 3], [1000, 512, 1025], [500, 1, 0])
    assert (requests.ids.tolist(), requests.offsets.tolist()) == ([0, 1, 0, 0, 2], [0, 2, 3, 5])
    assert (requests.unit, skipped) == (512, 0)


def test_csv(file):
    assert columns(read(file(CSV), "csv")[0]) == ([0.5, 0.75], [12, 1], [3, 0])
    turned = 'output, "prompt" ,arrival_s\n3,12, 5e-1\n\n 0 ,1,0.75'
    assert columns(read(file(turned), "csv")[0]) == ([0.5, 0.75], [12, 1], [3, 0])


def test_a_column_is_left_aside_only_if_asked(file):
    path = file("arrival,user,prompt,output\n0,ann,5,6\n")
    refused(lambda: read_csv(path), "line 1: column='user' must be one of arrival, prompt, output")
    assert columns(read_csv(path, ignore=["user"])[0]) == ([0], [5], [6])


@pytest.mark.parametrize("format", FORMATS)
def test_windows_files_are_read_alike(file, format):
    plain = read(file(FORMATS[format]), format)[0]
    other = read(file(b"\xef\xbb\xbf" + FORMATS[format].replace("\n", "\r\n").encode()), format)[0]
    assert columns(other) == columns(plain)


def test_rows_out_of_order_are_sorted_and_equal_ones_stay(file):
    requests, _ = read(file("arrival,prompt,output\n2,3,1\n1,5,1\n2,1,1\n0,4,1\n1,2,1\n"), "csv")
    assert columns(requests)[:2] == ([0, 1, 1, 2, 2], [4, 5, 2, 3, 1])
    lines = MOONCAKE.splitlines()
    requests, _ = read(file("\n".join(lines[1:] + lines[:1])), "mooncake")
    assert requests.ids.tolist() == [0, 1, 0, 0, 2]
    lines = AZURE.splitlines()
    requests, _ = read(file("\n".join([lines[0], lines[3], lines[1]])), "azure")
    assert requests.prompt.tolist() == [4808, 110]
    assert requests.arrival[0] == 0


BAD = [
    ("csv", "0.5,12", "cells=2 must be 3"),
    ("csv", "0.5,12,3,4", "cells=4 must be 3"),
    ("csv", "x,12,3", "arrival='x' must be seconds"),
    ("csv", "-1,12,3", "arrival='-1'"),
    ("csv", "nan,12,3", "arrival='nan'"),
    ("csv", "inf,12,3", "arrival='inf'"),
    ("csv", "1_0,12,3", "arrival='1_0'"),
    ("csv", "٣,12,3", "arrival='٣'"),
    ("csv", ",12,3", "arrival=''"),
    ("csv", "0.5,0,3", "prompt='0' must be a whole number from 1"),
    ("csv", "0.5,1e3,3", "prompt='1e3'"),
    ("csv", "0.5,12.0,3", "prompt='12.0'"),
    ("csv", "0.5,²,3", "prompt='²'"),
    ("csv", "0.5,1_0,3", "prompt='1_0'"),
    ("csv", "0.5,12,-3", "output='-3' must be a whole number from 0"),
    ("csv", "0.5,12,2147483648", "output='2147483648'"),
    ("csv", "0.5,12," + "9" * 5000, "output='999"),
    ("azure", "2023-02-30 00:00:00,12,3", "TIMESTAMP='2023-02-30 00:00:00' must be a stamp"),
    ("azure", "2023-11-16T18:17:03,12,3", "TIMESTAMP="),
    ("azure", "2023-11-16 18:17:03.,12,3", "TIMESTAMP="),
    ("azure", "17.5,12,3", "TIMESTAMP='17.5'"),
    ("azure", "2023-11-16 18:17:03,0,3", "ContextTokens='0'"),
    ("azure", "2023-11-16 18:17:03,1,", "GeneratedTokens=''"),
    ("mooncake", '{"timestamp": 1', "request='{\"timestamp\": 1' must be a JSON object"),
    ("mooncake", "[1, 2]", "request='[1, 2]' must be a JSON object"),
    ("mooncake", "[" * 100_000, "must be a JSON object"),
    ("mooncake", {"timestamp": -1}, "timestamp=-1 must be milliseconds"),
    ("mooncake", {"timestamp": float("nan")}, "timestamp=nan"),
    ("mooncake", {"timestamp": 10**400}, "timestamp=1000"),
    ("mooncake", {"timestamp": True}, "timestamp=True"),
    ("mooncake", {"timestamp": "0"}, "timestamp='0'"),
    ("mooncake", {"input_length": 0}, "input_length=0 must be a whole number from 1"),
    ("mooncake", {"input_length": 5.0}, "input_length=5.0"),
    ("mooncake", {"output_length": -1}, "output_length=-1"),
    ("mooncake", {"output_length": None}, "output_length=None"),
    ("mooncake", {"hash_ids": None}, "hash_ids=None"),
    ("mooncake", {"hash_ids": [1, "2"]}, "hash_ids=[1, '2']"),
    ("mooncake", {"hash_ids": [1, -2]}, "hash_ids=[1, -2]"),
    ("mooncake", {"hash_ids": [1, 2, 3]}, "hash_ids=[1, 2, 3] must be at most 2"),
]


@pytest.mark.parametrize(("format", "row", "words"), BAD, ids=range(len(BAD)))
def test_a_bad_row_is_refused_by_its_line_or_counted(file, format, row, words):
    """The bad row goes between the first and the second good one."""
    good = FORMATS[format].splitlines()
    if isinstance(row, dict):
        row = json.dumps({"timestamp": 5, "input_length": 1000, "output_length": 5, "hash_ids": [1]} | row)
    place = 1 if format == "mooncake" else 2
    path = file("\n".join([*good[:place], row, *good[place:]]))
    refused(lambda: read(path, format), f"{path} line {place + 1}: ", words, "must be")
    requests, skipped = read(path, format, skip_bad=True)
    assert skipped == 1
    assert columns(requests) == columns(read(file(FORMATS[format]), format)[0])


@pytest.mark.parametrize(
    ("format", "content", "words"),
    [
        ("csv", "", ["line 1: header='' must name arrival, prompt, output; arrival is missing"]),
        ("csv", "0.5,12,3\n", ["line 1: header='0.5,12,3'", "arrival is missing"]),
        ("csv", "arrival,prompt\n1,2\n", ["line 1: header='arrival,prompt'", "output is missing"]),
        ("csv", "arrival,arrival_s,prompt,output\n1,1,2,3\n", ["arrival stands twice"]),
        ("csv", "arrival,prompt,output\n", [": must hold a request"]),
        ("csv", "arrival,prompt,output\n1,'" + "x" * 200_000, [": is not CSV: field larger"]),
        ("csv", CSV.encode("utf-16"), [": is not UTF-8"]),
        ("azure", CSV, ["TIMESTAMP is missing"]),
        ("azure", "", ["line 1: header=''"]),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens,User\n", ["column='User'"]),
        ("mooncake", "\n", [": must hold a request"]),
        ("mooncake", b'{"timestamp": "\xff"}', [": is not UTF-8"]),
    ],
)
def test_a_file_that_is_none(file, format, content, words):
    path = file(content)
    refused(lambda: read(path, format), str(path), *words)


def test_a_file_without_a_good_row(file):
    path = file("arrival,prompt,output\n1,0,3\n1,0,4\n")
    why = "the first bad row is on line 2: prompt='0'"
    refused(lambda: read(path, "csv", skip_bad=True), f"{path}: must hold a request; {why}")


def test_a_path_that_is_no_file(tmp_path):
    refused(lambda: read(tmp_path, "csv"), f"{tmp_path}: is not a file")
    missing = tmp_path / "none\n.csv"
    refused(lambda: read(missing, "azure"), "none", ": cannot be read: No such file or directory")
    refused(lambda: read(missing, "parquet"), "format='parquet' must be one of azure, mooncake, csv")


# The published traces, where they are at hand

TRACES = os.environ.get("PERFMODEL_TRACES")
published = pytest.mark.skipif(TRACES is None, reason="PERFMODEL_TRACES does not name the folder of the traces")


@published
def test_the_mooncake_trace_has_its_published_bound():
    """36.6 % of blocks, as its repository counts; vLLM's rule, by a count of our own apart from this code: 38.2 % of
    whole blocks, 37.3 % of tokens."""
    requests, skipped = read(Path(TRACES) / "mooncake_conversation_trace.jsonl", "mooncake")
    found = prefix_bound(requests)
    assert (len(requests), skipped) == (12031, 0)
    assert found["bound"].piece_rate == pytest.approx(0.366, abs=5e-4)
    assert found["V1"].piece_rate == pytest.approx(0.382, abs=5e-4)
    assert found["V1"].token_rate == pytest.approx(0.373, abs=5e-4)


@published
@pytest.mark.parametrize(
    ("name", "count", "rate", "prompt", "output", "cv"),
    [("code", 8819, 2.57, 2048, 27.9, 13.2), ("conv", 19366, 5.53, 1155, 211, 1.09)],
)
def test_the_azure_traces_have_their_published_statistics(name, count, rate, prompt, output, cv):
    """To the digits that the summary prints."""
    requests, _ = read(Path(TRACES) / f"AzureLLMInferenceTrace_{name}_2023.csv", "azure")
    assert len(requests) == count
    assert requests.rate == pytest.approx(rate, abs=5e-3)
    assert requests.prompt.mean() == pytest.approx(prompt, abs=0.5)
    assert requests.output.mean() == pytest.approx(output, abs=0.5 if output > 100 else 0.05)
    gaps = np.diff(requests.arrival)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05)
