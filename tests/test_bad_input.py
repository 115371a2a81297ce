"""Bad input is refused at the door, in one line that names field, value and rule.

The same for config.json is in test_hf, for the command line in test_command_line.
"""

import math
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import examples
import numpy as np
import pytest
import sympy
from examples import label, refused

import perfmodel as pm
from perfmodel import data

# Constructors

NUMBERS = [0, -1, math.nan, math.inf, -math.inf, "8", True, None, [1, 2, math.nan], {}, 10**400]
FIELDS = [  # an instance and its fields that must be above 0
    (examples.LATENT.latent, ["kv_rank", "rope_dim", "nope_dim", "value_dim"]),
    (examples.INDEXER, ["heads", "head_dim", "selected", "key_bytes"]),
    (examples.WINDOWED.window, ["tokens", "layers"]),
    (
        data.model("llama-3.1-8b"),
        ["layers", "hidden_size", "heads", "kv_heads", "head_dim", "ffn_size", "experts", "experts_per_token"],
    ),
    (data.accelerator("h100-sxm"), ["memory_capacity", "memory_bandwidth", "bf16_flops"]),
    (data.link("nvlink4"), ["bandwidth"]),
    (data.constants(), ["bandwidth_efficiency", "flops_efficiency"]),
    (
        examples.served(),
        ["tensor_parallel", "data_parallel", "pipeline_parallel", "context_parallel", "decode_context_parallel"],
    ),
    (
        examples.served(),
        ["weight_bytes", "kv_bytes", "activation_bytes", "memory_utilization"],
    ),
    (pm.Workload(1024, 256, 64), ["prompt", "output", "batch"]),
]


@pytest.mark.parametrize("bad", NUMBERS, ids=label)
@pytest.mark.parametrize(("good", "field"), [(good, field) for good, names in FIELDS for field in names], ids=label)
def test_fields_must_be_numbers_above_zero(good, field, bad):
    refused(lambda: replace(good, **{field: bad}), type(good).__name__, f"{field}={bad!r}"[:60], "must be")


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, "0", None])
@pytest.mark.parametrize(
    ("good", "field"),
    [
        (data.link("nvlink4"), "latency"),
        (data.constants(), "step_overhead"),
        (data.model("llama-3.1-8b"), "vocab_size"),
        (data.model("llama-3.1-8b"), "shared_ffn_size"),
        (data.model("llama-3.1-8b"), "positions"),
        (examples.LATENT.latent, "query_rank"),
    ],
    ids=label,
)
def test_fields_that_may_be_zero(good, field, bad):
    assert getattr(replace(good, **{field: 0}), field) == 0
    refused(lambda: replace(good, **{field: bad}), f"{field}={bad!r}", "must be at least 0")


@pytest.mark.parametrize(
    ("good", "field"),
    [
        (data.model("llama-3.1-8b"), "layers"),
        (data.model("llama-3.1-8b"), "vocab_size"),
        (examples.served(), "tensor_parallel"),
        (examples.served(), "data_parallel"),
        (pm.Workload(1024, 256, 64), "batch"),
        (pm.Workload(1024, 256, 64), "prompt"),
    ],
    ids=label,
)
def test_counts_are_whole(good, field):
    refused(lambda: replace(good, **{field: 2.5}), f"{field}=2.5", "must be a whole number")


@pytest.mark.parametrize("field", ["bandwidth_efficiency", "flops_efficiency"])
def test_efficiencies_are_at_most_one(field):
    refused(lambda: pm.Constants(**{field: 1.01}), f"{field}=1.01", "must be at most 1")
    refused(lambda: replace(examples.served(), memory_utilization=1.5), "memory_utilization=1.5", "must be at most 1")


def test_heads_and_experts_must_fit():
    model = data.model("mixtral-8x7b")
    refused(lambda: replace(model, kv_heads=5), "mixtral-8x7b", "kv_heads=5 does not divide heads=32")
    refused(lambda: replace(model, experts_per_token=9), "experts_per_token=9 must be at most experts=8")


@pytest.mark.parametrize(
    ("tensor_parallel", "words"),
    [
        (3, "tensor_parallel=3 does not divide heads=64 of llama-2-70b"),
        (128, "tensor_parallel=128 does not divide heads=64"),
    ],
)
def test_tensor_parallelism_must_divide_the_heads(tensor_parallel, words):
    refused(lambda: examples.served(tensor_parallel=tensor_parallel), words)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pipeline_parallel": 81}, "pipeline_parallel=81 exceeds the 80 layers of llama-2-70b"),
        ({"tensor_parallel": 8, "decode_context_parallel": 2}, "decode_context_parallel=2 does not divide the 1 cop"),
        ({"tensor_parallel": 32, "decode_context_parallel": 3}, "decode_context_parallel=3 does not divide the 4 cop"),
        ({"expert_parallel": True}, "expert_parallel=True needs experts; llama-2-70b has none"),
    ],
)
def test_degrees_must_split_what_they_share(given, words):
    refused(lambda: examples.served(**given), words)


def test_experts_must_lie_evenly():
    refused(
        lambda: examples.served("mixtral-8x7b", tensor_parallel=2, data_parallel=3, expert_parallel=True),
        "expert_parallel=True puts experts=8 on 6 accelerators, which does not divide them",
    )
    assert examples.served("mixtral-8x7b", tensor_parallel=2, data_parallel=4, expert_parallel=True).expert_shards == 8


def test_latent_attention_has_as_many_copies_as_accelerators():
    assert examples.served(examples.LATENT, tensor_parallel=8, decode_context_parallel=8).decode_context_parallel == 8
    refused(
        lambda: examples.served(examples.LATENT, tensor_parallel=4, decode_context_parallel=8),
        "decode_context_parallel=8 does not divide the 4 copies",
    )


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("model", "llama-2-70b"),
        ("accelerator", None),
        ("link", 450e9),
        ("constants", {}),
        ("expert_parallel", 1),
        ("compute", 8),
        ("expert_bytes", 0),
        ("table_bytes", math.nan),
    ],
)
def test_parts_of_a_deployment_have_their_types(field, bad):
    refused(lambda: replace(examples.served(), **{field: bad}), f"{field}={bad!r}", "must be")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dense_layers": 62}, "dense_layers=62 must be at most layers=61"),
        ({"dense_layers": 0}, "dense_ffn_size=18432 goes with dense_layers=0"),
        ({"dense_ffn_size": 0}, "dense_ffn_size=0 goes with dense_layers=3"),
        ({"experts": 1, "experts_per_token": 1}, "dense_layers=3 must be 0 without experts"),
        ({"latent": examples.INDEXER}, ("latent=Indexer", "must be a Latent or None")),
        ({"indexer": 2048}, "indexer=2048 must be a Indexer or None"),
        ({"window": pm.Window(128, 12)}, "cannot be given with latent"),
        ({"latent": None, "indexer": examples.INDEXER}, ("indexer=Indexer", "needs latent")),
        ({"latent": None, "window": pm.Window(128, 62)}, "window.layers=62 must be at most layers=61"),
        ({"name": 7}, "name=7 must be a text"),
        ({"router_bias": 1}, "router_bias=1 must be True or False"),
    ],
    ids=label,
)
def test_parts_of_a_model_must_fit_together(given, words):
    refused(lambda: replace(examples.LATENT, **given), *([words] if isinstance(words, str) else words))


def test_tensor_parallelism_must_share_or_copy_whole_key_value_heads():
    model = pm.Model("six", 2, 768, heads=12, kv_heads=6, head_dim=64, ffn_size=3072, vocab_size=100)
    machine = data.accelerator("h100-sxm")
    refused(
        lambda: pm.Deployment(model, machine, tensor_parallel=4), "tensor_parallel=4 does not divide kv_heads=6 of six"
    )
    assert pm.Deployment(model, machine, tensor_parallel=12).tensor_parallel == 12  # copies each head


def test_arithmetic_that_the_accelerator_lacks():
    refused(lambda: examples.served(accelerator="a100-80gb", compute="fp8"), "compute='fp8'", "a100-80gb", "bf16, int8")
    refused(lambda: examples.served(compute="int4"), "compute='int4'", "must be one of bf16, fp8, int8")


def test_an_output_of_one_token_has_no_time_between_tokens():
    refused(lambda: pm.Workload(prompt=8, output=1, batch=1), "output=1", "must be at least 2")
    refused(lambda: pm.prefill_interference(64, 1, 0.1), "output=1", "must be at least 2")


def test_a_model_of_a_size_that_attention_alone_exceeds():
    refused(
        lambda: pm.Model.of_size("small", 1e9, layers=80, heads=64, kv_heads=8, head_dim=128),
        "small",
        "ffn_size=",
        "above 0",
    )


# Functions

LENGTHS = {
    "accelerators": lambda bad: pm.all_reduce(16384, bad, data.link("nvlink4")),
    "accelerators of copies": lambda bad: pm.copies(8, bad),
    "batches": lambda bad: pm.overlapped(1, 1, bad),
    "batch of a crossover": lambda bad: pm.kv_equals_weights(examples.SOURCE, bad),
    "output of a request": lambda bad: pm.end_to_end(0.1, 0.02, bad),
    "parameters": lambda bad: pm.Model.of_size("any", bad, layers=80, heads=64, kv_heads=8, head_dim=128),
    "layers": lambda bad: pm.Model.of_size("any", 70e9, layers=bad, heads=64, kv_heads=8, head_dim=128),
    "head_dim": lambda bad: pm.Model.of_size("any", 70e9, layers=80, heads=64, kv_heads=8, head_dim=bad),
    "batch": lambda bad: pm.decode_time(examples.served(), bad, 1280),
    "batch of flops": lambda bad: pm.decode_flops(examples.SOURCE_MODEL, bad, 1280),
    "prompt": lambda bad: pm.prefill_time(examples.served(), bad),
    "prompt of flops": lambda bad: pm.prefill_flops(examples.SOURCE_MODEL, bad),
    "prompts": lambda bad: pm.prefill_flops(examples.SOURCE_MODEL, 1024, prompts=bad),
    "output": lambda bad: pm.prefill_interference(64, bad, 0.1),
    "tokens": lambda bad: pm.max_concurrency(examples.served(), bad),
    "block_size": lambda bad: pm.kv_blocks(examples.served(), block_size=bad),
    "batch of an interference": lambda bad: pm.prefill_interference(bad, 256, 0.1),
    "batch of a steady step": lambda bad: pm.steady_step(examples.served(), bad, 1024, 256, "apart"),
    "prompt of a steady step": lambda bad: pm.steady_step(examples.served(), 8, bad, 256, "apart", context=9),
    "output of a steady step": lambda bad: pm.steady_step(examples.served(), 8, 1024, bad, "apart", context=9),
    "prompt of a rate": lambda bad: pm.request_rate(examples.served(), 8, bad, 256),
    "output of a rate": lambda bad: pm.request_rate(examples.served(), 8, 1024, bad),
    "chunk": lambda bad: pm.chunked_prefill_time(examples.served(), 1024, bad),
    "batch of the longest": lambda bad: pm.expected_longest([10, 20], bad),
    "prefill of a share": lambda bad: pm.transfer_share(0.1, bad),
    "batch of a request's time": lambda bad: pm.request_time(bad, 256, 0.1, 0.02),
    "decode_step of a request": lambda bad: pm.request_time(8, 256, 0.1, bad),
    "batch of a balance": lambda bad: pm.prefill_per_decode(bad, 256, 0.1, 0.02),
    "decode_step of a balance": lambda bad: pm.prefill_per_decode(8, 256, 0.1, bad),
    "prefill of pools": lambda bad: pm.pool_rate(1, 1, 8, 256, bad, 0.02),
    "question": lambda bad: pm.conversation_hit_rate(3, bad, 20),
    "answer": lambda bad: pm.conversation_hit_rate(3, 20, bad),
    "servers": lambda bad: pm.mmc_capacity(1, bad, 1),
    "ttft_limit": lambda bad: pm.goodput(examples.served(), 1024, 256, bad, 0.05),
}


@pytest.mark.parametrize(
    "bad", [0, -1, math.nan, math.inf, "64", True, None, np.array([1, 0]), np.array([[1], [np.nan]])], ids=label
)
@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_must_be_above_zero(name, bad):
    refused(lambda: LENGTHS[name](bad), name.split()[0] + "=", "must be")


MAY_BE_ZERO = {
    "context": lambda n: pm.decode_time(examples.served(), 64, n),
    "context of a crossover": lambda n: pm.totals_ridge_batch(examples.SOURCE, n),
    "hop": lambda n: pm.all_reduce_ring(16384, 4, data.link("nvlink4"), n),
    "messages": lambda n: pm.overlapped(1, n),
    "payload": lambda n: pm.all_to_all(n, 4, data.link("nvlink4")),
    "prefix": lambda n: pm.prefill_time(examples.served(), 64, prefix=n),
    "step_tokens": lambda n: pm.peak_activation_bytes(examples.served(), n),
    "tokens of all-reduces": lambda n: pm.tensor_parallel_time(examples.served(), n),
    "tokens of experts": lambda n: pm.touched_experts(examples.LATENT, n),
    "tokens of a request": lambda n: pm.kv_bytes_of_request(examples.served(), n),
    "tokens of a pipeline": lambda n: pm.pipeline_time(examples.served(), n),
    "tokens of exchanges": lambda n: pm.expert_parallel_time(examples.served(), n),
    "tokens that go round": lambda n: pm.pass_kv_time(examples.served(), n),
    "tokens that ask": lambda n: pm.pass_q_time(examples.served(), n),
    "tpot": lambda n: pm.end_to_end(0.1, n, 8),
    "ttft": lambda n: pm.end_to_end(n, 0.1, 8),
    "work": lambda n: pm.overlapped(n, 1),
    "prefill of an interference": lambda n: pm.prefill_interference(64, 256, n),
    "prefix of a steady step": lambda n: pm.steady_step(examples.served(), 8, 1024, 256, "apart", prefix=n),
    "prefix of chunks": lambda n: pm.chunked_prefill_time(examples.served(), 64, 16, prefix=n),
    "context of a draft": lambda n: pm.relative_draft_cost(examples.served(), examples.served(), 1, n),
    "tokens of a step": lambda n: pm.touched_parameters(examples.LATENT, n, 4),
    "prefill of a request": lambda n: pm.request_time(8, 256, n, 0.02),
    "transfer of a request": lambda n: pm.request_time(8, 256, 0.1, 0.02, n),
    "transfer of a balance": lambda n: pm.prefill_per_decode(8, 256, 0.1, 0.02, n),
    "system": lambda n: pm.conversation_hit_rate(3, 20, 20, n),
    "prompt of a bill": lambda n: pm.TokenCost(1, 2).request(n, 1),
    "output of a bill": lambda n: pm.TokenCost(1, 2).request(1, n),
    "activations": lambda n: pm.training_memory(1e9, n),
    "weight_bytes": lambda n: pm.training_memory(1e9, weight_bytes=n),
    "gradient_bytes": lambda n: pm.training_memory(1e9, gradient_bytes=n),
    "optimizer_bytes": lambda n: pm.training_memory(1e9, optimizer_bytes=n),
    "ttft of requests": lambda n: pm.attainment(n, 1, 1, 1),
    "tpot of requests": lambda n: pm.attainment(1, n, 1, 1),
    "ttft_limit of requests": lambda n: pm.attainment(1, 1, n, 1),
    "tpot_limit of requests": lambda n: pm.attainment(1, 1, 1, n),
}


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "64", None, np.array([0, -1])], ids=label)
@pytest.mark.parametrize("name", MAY_BE_ZERO)
def test_what_may_be_nothing_may_not_be_negative(name, bad):
    MAY_BE_ZERO[name](0)
    refused(lambda: MAY_BE_ZERO[name](bad), name.split()[0] + "=", "must be at least 0")


def test_shares_of_nothing():
    refused(lambda: pm.transfer_share(0, 0), "transfer_share: prefill=0 must be above 0")
    refused(lambda: pm.hit_rate([], 0), "hit_rate: requests=0 must be above 0")
    refused(lambda: pm.attainment([], [], 1, 1), "attainment: requests=0 must be above 0")
    refused(lambda: pm.md1_capacity(1, "2"), "wait='2' is not a number")
    refused(lambda: pm.mmc_capacity(1, 2, math.nan), "wait=nan must be")
    assert pm.load_imbalance([0, 0, 0, 0], 2) == 1  # where nobody goes there is no queue


@pytest.mark.parametrize(
    "bad",
    [
        np.True_,
        1j,
        Decimal(64),
        b"64",
        np.array([1 + 1j]),
        np.array([True]),
        np.array(["64"]),
        np.ma.masked_array([1.0, 2.0], [0, 1]),
        [1, None],
        sympy.I,
    ],
    ids=label,
)
@pytest.mark.parametrize("call", [LENGTHS["batch"], MAY_BE_ZERO["context"]], ids=["batch", "context"])
def test_what_only_looks_like_a_number(call, bad):
    refused(lambda: call(bad), "=")


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.float16, np.float32])
def test_narrow_numbers_do_not_overflow(kind):
    """127 is the largest of int8, and 65,504 of float16: the batch fits, its products do not."""
    wide = pm.decode_time(examples.served(), 100, 100).total
    assert pm.decode_time(examples.served(), kind(100), kind(100)).total == pytest.approx(wide)
    assert pm.decode_time(examples.served(), np.array([100], kind), np.array([100], kind)).total == pytest.approx(wide)
    assert pm.end_to_end(kind(100), kind(100), kind(101)) == pytest.approx(10_100)


def test_a_number_that_python_cannot_write():
    refused(
        lambda: pm.Workload(10**5000, 2, 1), "Workload: prompt=<int with thousands of digits> ", "must be at least 1"
    )
    refused(lambda: pm.Workload(8, np.int64(1), 1), "Workload: output=1 must be at least 2")  # not np.int64(1)


def test_fields_hold_one_number_each():
    refused(lambda: replace(examples.served(), kv_bytes=np.array([1, 2])), "kv_bytes=", "must be one number")


def test_symbols_of_unknown_arguments():
    refused(lambda: pm.argument_symbols("batch", "nope"), "'nope' is unknown", "batch, prompt")


LLAMA, H100 = data.model("llama-3.1-8b"), data.accelerator("h100-sxm")


@pytest.mark.parametrize(
    ("good", "field", "bad"),
    [
        (LLAMA, "ffn_matrices", -3),
        (LLAMA, "ffn_matrices", math.nan),
        (LLAMA, "norms", -1),
        (LLAMA, "tied_embeddings", "false"),
        (H100, "fp8_flops", -1.0),
        (H100, "int8_flops", math.nan),
        (H100, "fp8_flops", "1e15"),
    ],
    ids=label,
)
def test_fields_without_a_letter_are_checked_too(good, field, bad):
    refused(lambda: replace(good, **{field: bad}), type(good).__name__, f"{field}={bad!r}", "must be")


@pytest.mark.parametrize("bad", [sympy.Integer(-1), sympy.Integer(0), sympy.nan, sympy.oo], ids=str)
def test_sympy_numbers_are_numbers(bad):
    refused(lambda: pm.Deployment(LLAMA, H100, weight_bytes=bad), "weight_bytes", "must be above 0")


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "int64"])
def test_numpy_integers_in_fields_do_not_wrap(dtype):
    names = ("layers", "hidden_size", "ffn_size", "heads")
    narrow = replace(LLAMA, **{name: np.dtype(dtype).type(getattr(LLAMA, name)) for name in names})
    assert pm.total_parameters(narrow) == pm.total_parameters(LLAMA) == 8_030_261_248


def test_the_package_imports_without_docstrings():
    subprocess.run([sys.executable, "-OO", "-c", "import perfmodel"], check=True)
