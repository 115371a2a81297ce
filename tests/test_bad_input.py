"""Bad input is refused at the door, in one line that names field, value and rule; the command line exits with 2."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import examples
import numpy as np
import pytest

import perfmodel as pm
from perfmodel import data
from perfmodel.__main__ import main
from perfmodel.hf import ARCHITECTURES

CONFIGS = Path(__file__).parent / "data" / "configs"
LLAMA = json.loads((CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json").read_text(encoding="utf-8"))
MIXTRAL = json.loads((CONFIGS / "mistralai--Mixtral-8x7B-v0.1.json").read_text(encoding="utf-8"))
ABSENT = object()


def refused(call, *words):
    """`call` raises ValueError in one line that holds all the words."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are checked below
        call()
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 300
    for word in words:
        assert word in message, message


# Constructors

NUMBERS = [0, -1, math.nan, math.inf, -math.inf, "8", True, None, [1, 2, math.nan], {}, 10**400]
FIELDS = [  # an instance and its fields that must be above 0
    (
        data.model("llama-3.1-8b"),
        ["layers", "hidden_size", "heads", "kv_heads", "head_dim", "ffn_size", "experts", "experts_per_token"],
    ),
    (data.accelerator("h100-sxm"), ["memory_capacity", "memory_bandwidth", "bf16_flops"]),
    (data.link("nvlink4"), ["bandwidth"]),
    (data.constants(), ["bandwidth_efficiency", "flops_efficiency"]),
    (
        examples.served(),
        ["tensor_parallel", "data_parallel", "weight_bytes", "kv_bytes", "activation_bytes", "memory_utilization"],
    ),
    (pm.Workload(1024, 256, 64), ["prompt", "output", "batch"]),
]


def label(value):
    """A test's name: a field as it is, an instance by its class, a value by the start of its text."""
    if isinstance(value, str):
        return value[:40]
    return type(value).__name__ if hasattr(value, "__dataclass_fields__") else " ".join(repr(value).split())[:40]


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


def test_a_model_of_a_size_that_attention_alone_exceeds():
    refused(
        lambda: pm.Model.of_size("small", 1e9, layers=80, heads=64, kv_heads=8, head_dim=128),
        "small",
        "ffn_size=",
        "above 0",
    )


# Functions

LENGTHS = {
    "batch": lambda bad: pm.decode_time(examples.served(), bad, 1280),
    "batch of flops": lambda bad: pm.decode_flops(examples.SOURCE_MODEL, bad, 1280),
    "prompt": lambda bad: pm.prefill_time(examples.served(), bad),
    "prompt of flops": lambda bad: pm.prefill_flops(examples.SOURCE_MODEL, bad),
    "prompts": lambda bad: pm.prefill_flops(examples.SOURCE_MODEL, 1024, prompts=bad),
    "output": lambda bad: pm.prefill_interference(64, bad, 0.1),
    "tokens": lambda bad: pm.max_concurrency(examples.served(), bad),
    "block_size": lambda bad: pm.kv_blocks(examples.served(), block_size=bad),
}


@pytest.mark.parametrize(
    "bad", [0, -1, math.nan, math.inf, "64", True, None, np.array([1, 0]), np.array([[1], [np.nan]])], ids=label
)
@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_must_be_above_zero(name, bad):
    refused(lambda: LENGTHS[name](bad), name.split()[0] + "=", "must be")


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, "64", None, np.array([0, -1])], ids=label)
def test_a_context_may_be_empty_and_not_negative(bad):
    assert pm.decode_time(examples.served(), 64, 0).total > 0
    refused(lambda: pm.decode_time(examples.served(), 64, bad), "context=", "must be at least 0")


# config.json


def config(base=LLAMA, **changes):
    """A config with keys changed or, if ABSENT, taken out."""
    return {key: value for key, value in (base | changes).items() if value is not ABSENT}


@pytest.mark.parametrize(
    ("file", "parameters"),
    [
        ("meta-llama--Meta-Llama-3.1-8B.json", 8_030_261_248),
        ("meta-llama--Meta-Llama-3.1-70B.json", 70_553_706_496),
        ("meta-llama--Meta-Llama-3.1-405B.json", 405_853_388_800),
        ("mistralai--Mixtral-8x7B-v0.1.json", 46_702_792_704),
    ],
)
def test_published_configs_are_sized_exactly(file, parameters):
    for path in (CONFIGS / file, str(CONFIGS / file)):
        model = pm.Model.from_hf_config(path)
        assert pm.total_parameters(model) == parameters
        assert model.name == Path(file).stem


def test_a_config_of_llama_2():
    """An older config: no head_dim, no bias keys, no tie_word_embeddings."""
    keys = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
    }
    model = pm.Model.from_hf_config(keys)
    assert pm.total_parameters(model) == 68_976_648_192
    assert model == replace(data.model("llama-2-70b"), name="LlamaForCausalLM")


def test_missing_and_null_keys_mean_what_they_mean_in_transformers():
    def read(**changes):
        return pm.Model.from_hf_config(config(**changes))

    assert read(num_key_value_heads=ABSENT).kv_heads == read(num_key_value_heads=None).kv_heads == 32
    assert read(head_dim=None).head_dim == read(head_dim=ABSENT).head_dim == 128
    assert read(head_dim=64).head_dim == 64  # not hidden_size / heads
    assert not read(tie_word_embeddings=ABSENT).tied_embeddings
    assert read(tie_word_embeddings=True).tied_embeddings
    mistral = {"architectures": ["MistralForCausalLM"], "sliding_window": None}
    assert read(**mistral, num_key_value_heads=ABSENT).kv_heads == 8
    assert read(**mistral, num_key_value_heads=None).kv_heads == 32
    assert read(**mistral | {"sliding_window": 131072}).kv_heads == 8  # a window that never closes
    experts = {"num_local_experts": ABSENT, "num_experts_per_tok": ABSENT, "sliding_window": ABSENT}
    model = pm.Model.from_hf_config(config(MIXTRAL, **experts))
    assert (model.experts, model.experts_per_token) == (8, 2)
    renamed = pm.Model.from_hf_config(config(MIXTRAL, num_local_experts=ABSENT, num_experts=16))
    assert renamed.experts == 16


def test_names_of_models(tmp_path):
    folder = tmp_path / "Some-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (folder, str(folder), folder / "config.json"):
        assert pm.Model.from_hf_config(path).name == "Some-Model"
    assert pm.Model.from_hf_config(LLAMA).name == "LlamaForCausalLM"
    assert pm.Model.from_hf_config(config(_name_or_path="org/name")).name == "org/name"
    assert pm.Model.from_hf_config(config(_name_or_path="")).name == "LlamaForCausalLM"


def test_the_table_builds_every_architecture_from_its_required_keys():
    """No required key may be missing, for any architecture in the table."""
    full = config(MIXTRAL, sliding_window=None)
    for name, architecture in ARCHITECTURES.items():
        given = full | {"architectures": [name]}
        assert pm.total_parameters(pm.Model.from_hf_config(given)) > 0
        for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"):
            assert key in {one.name for one in architecture.keys.values()}
            for absent in (ABSENT, None):
                changed, state = config(given, **{key: absent}), "missing" if absent is ABSENT else "null"
                refused(partial(pm.Model.from_hf_config, changed), f"{key} is {state}")


@pytest.mark.parametrize("bad", ["4096", 4096.0, True, [4096], {}, 0, -1, math.nan])
@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_key_value_heads", "head_dim", "vocab_size"])
def test_sizes_in_a_config_must_be_whole_and_positive(key, bad):
    refused(lambda: pm.Model.from_hf_config(config(**{key: bad})), f"{key}={bad!r}", "must be")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 3}, ["kv_heads=3 does not divide heads=32"]),
        ({"num_attention_heads": 31}, ["head_dim is missing", "num_attention_heads=31", "hidden_size=4096"]),
        ({"attention_bias": True}, ["attention_bias=True must be false", "not counted"]),
        ({"mlp_bias": True}, ["mlp_bias=True must be false", "not counted"]),
        ({"mlp_bias": "no"}, ["mlp_bias='no' must be false"]),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            ["quantization_config={'quant_method': 'fp8'} must be absent"],
        ),
        ({"tie_word_embeddings": 1}, ["tie_word_embeddings=1 must be true or false"]),
        ({"tie_word_embeddings": None}, ["tie_word_embeddings is null"]),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 4096}, ["sliding_window=4096", "not counted yet"]),
        ({"architectures": ["MistralForCausalLM"]}, ["sliding_window=4096 (what a missing key means)"]),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": "4096"}, ["sliding_window='4096'"]),
        (
            {"architectures": ["MistralForCausalLM"], "sliding_window": 4096, "max_position_embeddings": ABSENT},
            ["sliding_window=4096"],
        ),
        ({"architectures": ABSENT}, ["architectures=None must be a list of one name"]),
        ({"architectures": []}, ["architectures=[] must be a list of one name"]),
        ({"architectures": "LlamaForCausalLM"}, ["architectures='LlamaForCausalLM' must be a list"]),
        ({"architectures": ["LlamaForCausalLM"] * 2}, ["must be a list of one name"]),
        ({"architectures": [7]}, ["architectures=[7] must be a list"]),
        ({"vocab_size": "x" * 500}, ["vocab_size='xxx", "... must be a whole number"]),
        ({"hidden_size": 10**400, "head_dim": 128}, ["hidden_size=1000"]),
    ],
)
def test_settings_of_a_config_that_are_refused(changes, words):
    refused(lambda: pm.Model.from_hf_config(config(**changes)), "config: ", *words)


def test_a_mixture_with_more_experts_a_token_than_experts():
    refused(
        lambda: pm.Model.from_hf_config(config(MIXTRAL, num_experts_per_tok=9)),
        "experts_per_token=9 must be at most experts=8",
    )


# Architectures of public models, 2023 to 2026, that need counts of their own: latent attention, windows, linear
# attention, shared experts, biases, norms of queries and keys, nested configs.
OTHERS = """
DeciLMForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV4ForCausalLM Gemma4ForConditionalGeneration
GlmMoeDsaForCausalLM GptOssForCausalLM KimiK25ForConditionalGeneration Llama4ForConditionalGeneration MiMoForCausalLM
MiniMaxM2ForCausalLM NemotronHForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM
Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
Qwen3_5MoeForConditionalGeneration llamaforcausallm
"""


@pytest.mark.parametrize("architecture", OTHERS.split())
def test_an_unknown_architecture_is_never_sized_as_a_llama(architecture):
    """Although every key of a Llama is there."""
    given = config(architectures=[architecture])
    refused(lambda: pm.Model.from_hf_config(given), architecture, "is not known; known: ", *ARCHITECTURES)


@pytest.mark.parametrize("given", [None, 3, [LLAMA], [], (1, 2)], ids=label)
def test_a_config_is_an_object(given):
    refused(lambda: pm.Model.from_hf_config(given), "config: must hold a JSON object")


BROKEN = {
    "cut.json": (json.dumps(LLAMA)[:-1].encode(), "is not JSON"),
    "empty.json": (b"", "is not JSON"),
    "list.json": (b"[1]", "must hold a JSON object, not [1]"),
    "deep.json": (b"[" * 100_000, "is not JSON"),
    "binary.json": (bytes(range(256)), "is not JSON"),
    "python.json": (repr(LLAMA).encode(), "is not JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_not_a_config(tmp_path, name):
    content, words = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    refused(lambda: pm.Model.from_hf_config(path), str(path), words)


def test_a_file_that_is_not_there(tmp_path):
    refused(lambda: pm.Model.from_hf_config(tmp_path / "x.json"), "x.json: cannot be read: No such file")
    refused(lambda: pm.Model.from_hf_config(tmp_path), "config.json: cannot be read: No such file")


# The command line

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
