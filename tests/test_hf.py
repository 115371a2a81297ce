"""A config.json is sized exactly as its architecture says, or refused in one line that names key, value and rule."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from examples import ABSENT, CONFIGS, LLAMA, config, label, refused

import perfmodel as pm
from perfmodel import data
from perfmodel.hf import ARCHITECTURES

MIXTRAL = json.loads((CONFIGS / "mistralai--Mixtral-8x7B-v0.1.json").read_text(encoding="utf-8"))


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
