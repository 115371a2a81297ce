"""A config.json is sized exactly as its architecture says, or refused in one line that names key, value and rule."""

import itertools
import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from examples import ABSENT, CONFIGS, LLAMA, config, label, refused

import perfmodel as pm
from perfmodel import data
from perfmodel.hf import ARCHITECTURES, SPELLINGS, STRUCTURE
from perfmodel.hf_schema import REFUSED


def published(stem):
    return json.loads((CONFIGS / f"{stem}.json").read_text(encoding="utf-8"))


MIXTRAL, QWEN_MOE = published("mistralai--Mixtral-8x7B-v0.1"), published("Qwen--Qwen3-30B-A3B")
QWEN, QUANTISED = published("Qwen--Qwen3-32B"), published("Qwen--Qwen3-32B-FP8")
DEEPSEEK, INDEXED = published("deepseek-ai--DeepSeek-V3"), published("deepseek-ai--DeepSeek-V3.2")
GLM, GPT_OSS, OPT = published("zai-org--GLM-5"), published("openai--gpt-oss-20b"), published("facebook--opt-66b")
MISTRAL = config(MIXTRAL, architectures=["MistralForCausalLM"], model_type="mistral") | {
    "num_local_experts": ABSENT,
    "num_experts_per_tok": ABSENT,
}
MISTRAL = config(MISTRAL)
QWEN2 = config(QWEN, architectures=["Qwen2ForCausalLM"], model_type="qwen2", attention_bias=ABSENT)
FULL = {  # a config for every architecture in the table
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "MixtralForCausalLM": MIXTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "MiMoForCausalLM": published("XiaomiMiMo--MiMo-7B-Base"),
    "Qwen3ForCausalLM": QWEN,
    "Qwen3MoeForCausalLM": QWEN_MOE,
    "DeepseekV3ForCausalLM": DEEPSEEK,
    "DeepseekV32ForCausalLM": INDEXED,
    "GlmMoeDsaForCausalLM": GLM,
    "GptOssForCausalLM": GPT_OSS,
    "OPTForCausalLM": OPT,
}


def read(base=LLAMA, **changes):
    return pm.Model.from_hf_config(config(base, **changes))


def test_a_path_may_be_a_text():
    path = CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json"
    assert pm.Model.from_hf_config(path) == pm.Model.from_hf_config(str(path))
    assert pm.Model.from_hf_config(path).name == path.stem


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
    assert read(num_key_value_heads=ABSENT).kv_heads == read(num_key_value_heads=None).kv_heads == 32
    assert read(head_dim=None).head_dim == read(head_dim=ABSENT).head_dim == 128
    assert read(head_dim=64).head_dim == 64  # not hidden_size / heads
    assert not read(tie_word_embeddings=ABSENT).tied_embeddings
    assert read(tie_word_embeddings=True).tied_embeddings
    assert read(MISTRAL, num_key_value_heads=ABSENT).kv_heads == 8
    assert read(MISTRAL, num_key_value_heads=None).kv_heads == 32
    model = read(MIXTRAL, num_local_experts=ABSENT, num_experts_per_tok=ABSENT, sliding_window=ABSENT)
    assert (model.experts, model.experts_per_token, model.window) == (8, 2, None)
    assert read(MIXTRAL, num_local_experts=ABSENT, num_experts=16).experts == 16
    assert read(QWEN, num_key_value_heads=ABSENT).kv_heads == 32  # of 64: not one for each query head
    assert read(QWEN, num_key_value_heads=None).kv_heads == 64
    assert read(QWEN, head_dim=ABSENT).head_dim == 128  # not 5120 / 64
    assert read(QWEN2, head_dim=ABSENT).head_dim == 80
    assert read(QWEN_MOE, num_key_value_heads=ABSENT).kv_heads == 4
    assert read(QWEN_MOE, head_dim=ABSENT).head_dim == 2048 // 32
    assert read(QWEN_MOE, num_experts=ABSENT, num_local_experts=64).experts == 64
    assert read(DEEPSEEK, n_routed_experts=ABSENT, num_local_experts=64).experts == 64
    assert read(DEEPSEEK, n_shared_experts=None).shared_ffn_size == 0
    assert read(DEEPSEEK, n_shared_experts=2).shared_ffn_size == 4096
    assert read(DEEPSEEK, q_lora_rank=None).latent.query_rank == 0
    assert read(DEEPSEEK, first_k_dense_replace=0).dense_ffn_size == 0
    assert read(GPT_OSS, num_key_value_heads=ABSENT).kv_heads == 8
    assert read(GPT_OSS, head_dim=ABSENT).head_dim == 64
    assert read(GPT_OSS, head_dim=None).head_dim == 45  # 2880 / 64
    assert not read(OPT, tie_word_embeddings=False).tied_embeddings
    assert read(OPT, max_position_embeddings=4096).positions == 4098
    assert (read(OPT, enable_bias=False).biases, read(OPT, enable_bias=False).ffn_bias) == (0, False)
    assert read(GPT_OSS, attention_bias=False).biases == 64  # the sinks
    assert read(QWEN, attention_bias=True).biases == (64 + 2 * 8) * 128 + 5120
    assert read(INDEXED, index_head_dim=64).indexer.key_bytes == 64 + 4
    assert read(INDEXED, index_head_dim=192).indexer.key_bytes == 192 + 2 * 4


@pytest.mark.parametrize(
    ("base", "changes", "window"),
    [
        (MISTRAL, {}, None),  # null
        (MISTRAL, {"sliding_window": 4096}, (4096, 32)),
        (MISTRAL, {"sliding_window": ABSENT}, (4096, 32)),
        (MISTRAL, {"sliding_window": 32768}, (32768, 32)),  # all positions: fewer than YaRN's four times as many
        (MIXTRAL, {"sliding_window": 4096}, (4096, 32)),
        (QWEN, {"sliding_window": 4096}, None),  # not in use
        (QWEN, {"use_sliding_window": True}, None),
        (QWEN, {"use_sliding_window": True, "sliding_window": 4096}, None),  # from layer 64 of 64 on
        (QWEN, {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}, (4096, 64)),
        (QWEN2, {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": ABSENT}, (4096, 64 - 28)),
        (QWEN2, {"use_sliding_window": True, "sliding_window": ABSENT, "max_window_layers": 63}, (4096, 1)),
        (
            QWEN,
            {
                "use_sliding_window": True,
                "sliding_window": 512,
                "layer_types": ["sliding_attention"] + 63 * ["full_attention"],
            },
            (512, 1),
        ),
        (GPT_OSS, {}, (128, 12)),
        (GPT_OSS, {"sliding_window": ABSENT}, (128, 12)),  # what GptOssConfig has without it
        (GPT_OSS, {"layer_types": ABSENT, "num_hidden_layers": 7}, (128, 4)),  # the first, and every second
        (GPT_OSS, {"layer_types": ["full_attention"] * 24}, None),
        (LLAMA, {}, None),
        (QWEN_MOE, {"sliding_window": 4096}, None),  # not in use
    ],
)
def test_windows(base, changes, window):
    found = read(base, **changes).window
    assert (found and (found.tokens, found.layers)) == window


def test_names_of_models(tmp_path, monkeypatch):
    folder = tmp_path / "Some-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (folder, str(folder), folder / "config.json"):
        assert pm.Model.from_hf_config(path).name == "Some-Model"
    monkeypatch.chdir(folder)  # "." and ".." name no model
    for path in ("config.json", ".", "./config.json", "../Some-Model/config.json"):
        assert pm.Model.from_hf_config(path).name == "Some-Model"
    assert pm.Model.from_hf_config(LLAMA).name == "LlamaForCausalLM"
    assert pm.Model.from_hf_config(config(_name_or_path="org/name")).name == "org/name"
    assert pm.Model.from_hf_config(config(_name_or_path="")).name == "LlamaForCausalLM"
    assert pm.Model.from_hf_config(config(_name_or_path="a\nb\ud800")).name == "a\\nb\\ud800"
    assert pm.Model.from_hf_config(config(_name_or_path=7)).name == "LlamaForCausalLM"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_table_builds_every_architecture_and_misses_no_required_key(name):
    given, architecture = FULL[name], ARCHITECTURES[name]
    assert given["architectures"] == [name]
    assert pm.total_parameters(pm.Model.from_hf_config(given)) > 0
    inner = "ffn_dim" if name == "OPTForCausalLM" else "intermediate_size"
    for key in ("num_hidden_layers", "hidden_size", "num_attention_heads", inner, "vocab_size"):
        assert architecture.keys[key].missing is REFUSED
    for key, meaning in architecture.keys.items():
        for absent, stand_in in ((ABSENT, meaning.missing), (None, meaning.null)):
            if stand_in is REFUSED:
                state = "missing" if absent is ABSENT else "null"
                refused(partial(read, given, **{key: absent}), f"{key} is {state}")


@pytest.mark.parametrize("bad", ["4096", 4096.0, True, [4096], {}, 0, -1, math.nan, math.inf])
@pytest.mark.parametrize(
    "key",
    ["num_hidden_layers", "hidden_size", "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"],
)
def test_sizes_in_a_config_must_be_whole_and_positive(key, bad):
    refused(lambda: read(**{key: bad}), f"config: {key}={bad!r}", "must be")


@pytest.mark.parametrize(
    ("base", "changes", "words"),
    [
        (LLAMA, {"num_key_value_heads": 3}, ["num_key_value_heads=3 does not divide num_attention_heads=32"]),
        (LLAMA, {"num_attention_heads": 31}, ["head_dim is missing", "num_attention_heads=31", "hidden_size=4096"]),
        (LLAMA, {"attention_bias": 1}, ["attention_bias=1 must be true or false"]),
        (LLAMA, {"mlp_bias": "no"}, ["mlp_bias='no' must be true or false"]),
        (LLAMA, {"tie_word_embeddings": 1}, ["tie_word_embeddings=1 must be true or false"]),
        (LLAMA, {"tie_word_embeddings": None}, ["tie_word_embeddings is null"]),
        (LLAMA, {"architectures": ABSENT}, ["architectures=None must be a list of one name"]),
        (LLAMA, {"architectures": []}, ["architectures=[] must be a list of one name"]),
        (LLAMA, {"architectures": "LlamaForCausalLM"}, ["architectures='LlamaForCausalLM' must be a list"]),
        (LLAMA, {"architectures": ["LlamaForCausalLM"] * 2}, ["must be a list of one name"]),
        (LLAMA, {"architectures": [7]}, ["architectures=[7] must be a list"]),
        (LLAMA, {"vocab_size": "x" * 500}, ["vocab_size='xxx", "... must be a whole number"]),
        (LLAMA, {"hidden_size": 10**400}, ["hidden_size=1000", "at most 1000000000"]),
        (LLAMA, {"num_hidden_layers": 10**6}, ["num_hidden_layers=1000000 must be at least 1 and at most 10000"]),
        # Another spelling that contradicts.
        (LLAMA, {"n_layer": 3}, ["n_layer=3 contradicts num_hidden_layers=32"]),
        (LLAMA, {"d_model": 1}, ["d_model=1 contradicts hidden_size=4096"]),
        (LLAMA, {"n_head": 8}, ["n_head=8 contradicts num_attention_heads=32"]),
        (LLAMA, {"num_kv_heads": 4}, ["num_kv_heads=4 contradicts num_key_value_heads=8"]),
        (LLAMA, {"n_head_kv": 4}, ["n_head_kv=4 contradicts num_key_value_heads=8"]),
        (MISTRAL, {"n_head_kv": 4, "num_key_value_heads": ABSENT}, ["n_head_kv=4 contradicts num_key_value_heads=8"]),
        (LLAMA, {"ffn_dim": "x"}, ["ffn_dim='x' contradicts intermediate_size=14336"]),
        (MIXTRAL, {"num_experts": 4}, ["num_experts=4 contradicts num_local_experts=8"]),
        (GPT_OSS, {"experts_per_token": 8}, ["experts_per_token=8 contradicts num_experts_per_tok=4"]),
        (LLAMA, {"n_layer": 32, "num_hidden_layers": ABSENT}, ["num_hidden_layers is missing"]),
        # What the architecture does not have.
        (LLAMA, {"model_type": "qwen2"}, ["model_type='qwen2'", "LlamaForCausalLM", "must be llama"]),
        (LLAMA, {"model_type": 3}, ["model_type=3"]),
        (DEEPSEEK, {"model_type": "llama"}, ["must be deepseek_v3 or kimi_k2"]),
        (LLAMA, {"kv_lora_rank": 512}, ["kv_lora_rank=512 is not a setting of LlamaForCausalLM"]),
        (LLAMA, {"num_local_experts": 8}, ["num_local_experts=8 is not a setting of LlamaForCausalLM"]),
        (LLAMA, {"layer_types": ["sliding_attention"] * 32}, ["layer_types=['sliding", "is not a setting"]),
        (LLAMA, {"sliding_window": 4096}, ["sliding_window=4096 is not a setting of LlamaForCausalLM"]),
        (LLAMA, {"multi_query": True}, ["multi_query=True is not a setting"]),
        (LLAMA, {"qkv_bias": True}, ["qkv_bias=True is not a setting"]),
        (LLAMA, {"text_config": {"hidden_size": 1}}, ["text_config={'hidden_size': 1} is not a setting"]),
        (LLAMA, {"thinker_config": {"hidden_size": 1}}, ["thinker_config={'hidden_size': 1} is not a setting"]),
        (LLAMA, {"pruned_heads": {"0": [1]}}, ["pruned_heads={'0': [1]} is not a setting"]),
        (MISTRAL, {"attention_bias": True}, ["attention_bias=True is not a setting of MistralForCausalLM"]),
        (QWEN, {"num_experts": 8}, ["num_experts=8 is not a setting of Qwen3ForCausalLM"]),
        (DEEPSEEK, {"index_topk": 2048}, ["index_topk=2048 is not a setting of DeepseekV3ForCausalLM"]),
        (OPT, {"num_key_value_heads": 8}, ["num_key_value_heads=8 is not a setting of OPTForCausalLM"]),
        # Windows.
        (MISTRAL, {"sliding_window": "4096"}, ["sliding_window='4096' must be a whole number"]),
        (MISTRAL, {"sliding_window": 0}, ["sliding_window=0 must be at least 1"]),
        (MISTRAL, {"sliding_window": -4096}, ["sliding_window=-4096 must be at least 1"]),
        (GPT_OSS, {"layer_types": "full_attention"}, ["layer_types='full_attention' must be a list"]),
        (GPT_OSS, {"layer_types": ["full_attention"]}, ["layer_types=['full_attention']", "num_hidden_layers=24"]),
        (GPT_OSS, {"layer_types": ["linear_attention"] * 24}, ["layer_types=['linear", "must be full_attention or"]),
        (GPT_OSS, {"sliding_window": None}, ["has windowed layers, but sliding_window=None is null"]),
        (
            QWEN,
            {"layer_types": ["sliding_attention"] * 64, "sliding_window": 4096},
            ["has windowed layers, but sliding_window=4096 is null or not in use"],
        ),
        # Mixtures of experts.
        (MIXTRAL, {"num_experts_per_tok": 9}, ["num_experts_per_tok=9 must be at most num_local_experts=8"]),
        (MIXTRAL, {"num_local_experts": 1}, ["num_local_experts=1 must be at least 2"]),
        (QWEN_MOE, {"num_experts_per_tok": 129}, ["num_experts_per_tok=129 must be at most num_experts=128"]),
        (QWEN_MOE, {"decoder_sparse_step": 2}, ["decoder_sparse_step=2 must be 1"]),
        (QWEN_MOE, {"mlp_only_layers": [0]}, ["mlp_only_layers=[0] must be []"]),
        (QWEN_MOE, {"use_qk_norm": False}, ["use_qk_norm=False must be true"]),
        (QWEN_MOE, {"use_sliding_window": True}, ["use_sliding_window=True must be false"]),
        (QWEN_MOE, {"shared_expert_intermediate_size": 512}, ["shared_expert_intermediate_size=512 is not a setting"]),
        (GPT_OSS, {"num_experts_per_tok": 33, "experts_per_token": 33}, ["must be at most num_local_experts=32"]),
        # Latent attention.
        (DEEPSEEK, {"num_key_value_heads": 8}, ["num_key_value_heads=8", "latent attention"]),
        (DEEPSEEK, {"first_k_dense_replace": 62}, ["first_k_dense_replace=62 must be at most num_hidden_layers=61"]),
        (DEEPSEEK, {"first_k_dense_replace": -1}, ["first_k_dense_replace=-1 must be at least 0"]),
        (DEEPSEEK, {"num_experts_per_tok": 257}, ["num_experts_per_tok=257 must be at most n_routed_experts=256"]),
        (DEEPSEEK, {"moe_layer_freq": 2}, ["moe_layer_freq=2 must be 1"]),
        (DEEPSEEK, {"topk_method": "greedy"}, ["topk_method='greedy' must be noaux_tc"]),
        (DEEPSEEK, {"mlp_layer_types": ["sparse"] * 61}, ["mlp_layer_types=['sparse'", "at odds"]),
        (INDEXED, {"q_lora_rank": None}, ["q_lora_rank is null"]),
        (INDEXED, {"layer_types": ["full_attention"] * 61}, ["layer_types=['full", "at odds"]),
        (GLM, {"index_topk_freq": 4}, ["index_topk_freq=4 must be 1"]),
        (GLM, {"indexer_types": ["full", "shared"] * 39}, ["indexer_types=['full', 'shared'", "at odds"]),
        # Qwen2 and OPT.
        (QWEN2, {"attention_bias": False}, ["attention_bias=False must be true"]),
        (OPT, {"word_embed_proj_dim": 512}, ["word_embed_proj_dim=512 is not counted"]),
        (OPT, {"do_layer_norm_before": False}, ["do_layer_norm_before=False must be true"]),
        (OPT, {"_remove_final_layer_norm": True}, ["_remove_final_layer_norm=True must be false"]),
        (OPT, {"layer_norm_elementwise_affine": False}, ["layer_norm_elementwise_affine=False must be true"]),
        (OPT, {"num_attention_heads": 70}, ["num_attention_heads=70 does not divide hidden_size=9216"]),
        (QWEN, {"num_key_value_heads": ABSENT, "num_attention_heads": 40}, ["=32 (what a missing key means) does not"]),
    ],
    ids=label,
)
def test_settings_of_a_config_that_are_refused(base, changes, words):
    refused(lambda: read(base, **changes), "config: ", *words)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_layer": 32},
        {"num_kv_heads": None},
        {"num_local_experts": None},
        {"sliding_window": None, "use_sliding_window": False},
        {"kv_lora_rank": None, "multi_query": False, "pruned_heads": {}},
        {"model_type": ABSENT},
        {"model_type": None},
        {"max_position_embeddings": ABSENT},
        {"quantization_config": {"quant_method": "fp8"}},
        {"num_nextn_predict_layers": 1},
    ],
    ids=label,
)
def test_settings_that_agree_or_change_no_count(changes):
    assert read(**changes) == read()


def test_lists_by_layer_may_repeat_what_other_keys_say():
    """As newer versions of transformers write them out."""
    lists = {"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 58, "layer_types": ["indexed_attention"] * 61}
    assert read(INDEXED, **lists) == read(INDEXED)
    assert read(GLM, indexer_types=["full"] * 78, index_topk_freq=1) == read(GLM)
    assert read(QWEN, layer_types=["full_attention"] * 64) == read(QWEN)
    assert read(QWEN_MOE, mlp_only_layers=None) == read(QWEN_MOE)


ODD = [None, True, False, 0, 1, -1, 2**31, 10**5000, 1.5, math.nan, "", "x\n", [], [1], {}, {"a": 1}, object()]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_any_value_under_any_key_is_counted_or_refused_in_one_line(name):
    keys = {*FULL[name], *STRUCTURE.split(), *sum(SPELLINGS, ()), *ARCHITECTURES[name].keys, "_name_or_path"}
    for key, odd in itertools.product(sorted(keys), ODD):
        message = ""
        try:
            count = pm.total_parameters(read(FULL[name], **{key: odd}))
            assert count > 0, key
            assert isinstance(count, int), key
        except ValueError as error:
            message = str(error)
        assert len(message) < 300, (key, message)
        assert message.isprintable(), (key, message)


# Architectures of public models, 2023 to 2026, that need counts of their own: linear attention, norms of all heads
# together, windows of several kinds, compressed caches, nested configs.
OTHERS = """
DeciLMForCausalLM DeepseekV2ForCausalLM DeepseekV4ForCausalLM Gemma4ForConditionalGeneration
KimiK25ForConditionalGeneration Llama4ForConditionalGeneration MiniMaxM2ForCausalLM NemotronHForCausalLM
Qwen2MoeForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration GPT2LMHeadModel llamaforcausallm Llama
"""


@pytest.mark.parametrize("architecture", OTHERS.split())
def test_an_unknown_architecture_is_never_sized_as_a_llama(architecture):
    """Although every key of a Llama is there."""
    known = [name.removesuffix("ForCausalLM") for name in ARCHITECTURES]
    refused(lambda: read(architectures=[architecture]), f"['{architecture}'] is not known; known, with", *known)


@pytest.mark.parametrize("given", [None, 3, [LLAMA], [], (1, 2)], ids=label)
def test_a_config_is_an_object(given):
    refused(lambda: pm.Model.from_hf_config(given), "config: must hold a JSON object")


BROKEN = {
    "cut.json": (json.dumps(LLAMA)[:-1].encode(), "is not JSON"),
    "empty.json": (b"", "is not JSON"),
    "list.json": (b"[1]", "must hold a JSON object, not [1]"),
    "deep.json": (b"[" * 100_000, "is nested too deeply"),
    "null.json": (b"null", "must hold a JSON object, not null"),
    "binary.json": (bytes(range(256)), "is not JSON"),
    "python.json": (repr(LLAMA).encode(), "is not JSON"),
    "nan.json": (json.dumps(LLAMA | {"rope_theta": math.nan}).encode(), "is not JSON: NaN is not a number there"),
    "infinite.json": (json.dumps(LLAMA | {"hidden_size": -math.inf}).encode(), "is not JSON: -Infinity is not a"),
    "twice.json": (json.dumps(LLAMA)[:-1].encode() + b', "hidden_size": 64}', "holds the key 'hidden_size' twice"),
    "within.json": (b'{"rope_scaling": {"factor": 1, "factor": 8}}', "holds the key 'factor' twice"),
    "long.json": (json.dumps(LLAMA).encode() + b" " * 10_000_000, "has more than 10000000 bytes"),
    "digits.json": (
        b'{"rope": {"theta": ' + b"-" + b"9" * 5000 + b"}}",
        "theta=-9999999999999999999... must have at most 400 digits",
    ),
    "fewer.json": (json.dumps(LLAMA | {"hidden_size": 10**399}).encode(), "hidden_size=1000"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_not_a_config(tmp_path, name):
    content, words = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(content)
    refused(lambda: pm.Model.from_hf_config(path), f"{path}: ", words)


def test_a_file_may_have_a_byte_order_mark_or_two_bytes_a_letter(tmp_path):
    """As some editors save it."""
    path = tmp_path / "config.json"
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_text(json.dumps(LLAMA), encoding=encoding)
        assert pm.Model.from_hf_config(path) == replace(read(), name=tmp_path.name)


def test_a_path_that_is_no_file(tmp_path):
    refused(lambda: pm.Model.from_hf_config(tmp_path / "x.json"), "x.json: cannot be read: No such file")
    refused(lambda: pm.Model.from_hf_config(tmp_path), "config.json: cannot be read: No such file")
    refused(lambda: pm.Model.from_hf_config(tmp_path / ("x" * 300)), "...xxx", "cannot be read: File name too long")
    refused(lambda: pm.Model.from_hf_config("a\0b"), "a\\x00b: embedded null byte")
    refused(lambda: pm.Model.from_hf_config("a\nb"), "a\\nb: cannot be read: No such file")
    refused(lambda: pm.Model.from_hf_config("/dev/zero"), "/dev/zero: is not a file")
    (tmp_path / "config.json").mkdir()
    refused(lambda: pm.Model.from_hf_config(tmp_path), "config.json: is not a file")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    """Whoever runs the tests may be allowed to read everything."""

    def forbidden(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(Path, "open", forbidden)
    refused(lambda: pm.Model.from_hf_config(tmp_path), "config.json: cannot be read: Permission denied")
