"""Parameters of published models, to the last one: ours, a count written out here, and what the publisher states.

A hub counts the elements of the checkpoint's tensors, and an index of safetensors its bytes; both count more than
the model where the file holds more: multi-token prediction, the scales of quantised weights, a tied head stored twice.
The config.json files in `data/configs` are those of the model hub; OPT-66B's and Llama 2's are taken from public
copies.
"""

import json
from dataclasses import replace

import examples
import pytest

import perfmodel as pm
from perfmodel import data

LLAMA_2_7B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
FILES = {
    "llama-3.1-8b": "meta-llama--Meta-Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama--Meta-Llama-3.1-70B",
    "llama-3.1-405b": "meta-llama--Meta-Llama-3.1-405B",
    "mixtral-8x7b": "mistralai--Mixtral-8x7B-v0.1",
    "qwen3-8b": "Qwen--Qwen3-8B",
    "qwen3-32b": "Qwen--Qwen3-32B",
    "qwen3-30b-a3b": "Qwen--Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen--Qwen3-235B-A22B",
    "deepseek-v3": "deepseek-ai--DeepSeek-V3",
    "opt-66b": "facebook--opt-66b",
    "gpt-oss-120b": "openai--gpt-oss-120b",
}


def of_file(stem):
    return pm.Model.from_hf_config(examples.CONFIGS / f"{stem}.json")


# Attention of DeepSeek-V3, one layer: query down, its norm, query up; key and value down, norm, up; output.
DEEPSEEK_QUERY = 7168 * 1536 + 1536 + 1536 * 128 * (128 + 64)
DEEPSEEK_CACHE = 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128)
DEEPSEEK_ATTENTION = DEEPSEEK_QUERY + DEEPSEEK_CACHE + 128 * 128 * 7168 + 2 * 7168
DEEPSEEK_EXPERT = 3 * 7168 * 2048
DEEPSEEK_MOE = (256 + 1) * DEEPSEEK_EXPERT + 7168 * 256  # a shared expert, and the router
DEEPSEEK_TABLES = 2 * 129280 * 7168

# One layer is: query and output, key and value, feed-forward network, two norms (and what else the name says).
BY_HAND = {
    "llama-2-7b": 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096) + 4096 + 2 * 32000 * 4096,
    "llama-2-70b": 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192) + 8192 + 2 * 32000 * 8192,
    "llama-3.1-8b": 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096 + 2 * 128256 * 4096,
    "llama-3.1-70b": 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192) + 8192 + 2 * 128256 * 8192,
    "llama-3.1-405b": 126 * (2 * 16384 * 16384 + 2 * 16384 * 1024 + 3 * 16384 * 53248 + 2 * 16384)
    + 16384
    + 2 * 128256 * 16384,
    "mixtral-8x7b": 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 3 * 4096 * 14336 + 4096 * 8 + 2 * 4096)
    + 4096
    + 2 * 32000 * 4096,
    # Qwen3: a norm of 128 for the heads' queries and one for their keys.
    "qwen3-8b": 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 128 + 3 * 4096 * 12288 + 2 * 4096)
    + 4096
    + 2 * 151936 * 4096,
    "qwen3-32b": 64 * (2 * 5120 * 8192 + 2 * 5120 * 1024 + 2 * 128 + 3 * 5120 * 25600 + 2 * 5120)
    + 5120
    + 2 * 151936 * 5120,
    "qwen3-30b-a3b": 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 2 * 128 + 128 * 3 * 2048 * 768 + 2048 * 128 + 2 * 2048)
    + 2048
    + 2 * 151936 * 2048,
    "qwen3-235b-a22b": 94 * (2 * 4096 * 8192 + 2 * 4096 * 512 + 2 * 128 + 128 * 3 * 4096 * 1536 + 4096 * 128 + 2 * 4096)
    + 4096
    + 2 * 151936 * 4096,
    # Three dense layers; each of the other routers holds one correction an expert.
    "deepseek-v3": 61 * DEEPSEEK_ATTENTION + 3 * 3 * 7168 * 18432 + 58 * (DEEPSEEK_MOE + 256) + 7168 + DEEPSEEK_TABLES,
    # OPT: biases of four matrices of attention and two of the network, norms with scale and offset, a tied head.
    "opt-66b": 64 * (4 * (9216 * 9216 + 9216) + 2 * 9216 * 36864 + 36864 + 9216 + 2 * 2 * 9216)
    + 2 * 9216
    + (50272 + 2048 + 2) * 9216,
    # gpt-oss: attention with biases, 64 sinks, 128 experts with biases, a router with one, norms.
    "gpt-oss-120b": 36
    * (
        (2880 * 4096 + 4096)
        + 2 * (2880 * 512 + 512)
        + (4096 * 2880 + 2880)
        + 64
        + 128 * (2 * (2880 * 2880 + 2880) + 2880 * 2880 + 2880)
        + (2880 * 128 + 128)
        + 2 * 2880
    )
    + 2880
    + 2 * 201088 * 2880,
}
# Of the checkpoint on the model hub: its count of parameters or half of the bytes of its index, which is in BF16.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-8b": 16_381_470_720 // 2,
    "qwen3-32b": 65_524_246_528 // 2,
    "qwen3-30b-a3b": 61_064_245_248 // 2,
    "qwen3-235b-a22b": 470_187_269_120 // 2,
    "gpt-oss-120b": 116_829_156_672,  # general.parameter_count of its GGUF files
}


@pytest.mark.parametrize("name", data.names("model"))
def test_a_shipped_model_has_the_parameters_counted_by_hand(name):
    assert pm.total_parameters(data.model(name)) == BY_HAND[name]
    if name in PUBLISHED:
        assert BY_HAND[name] == PUBLISHED[name]


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_model_is_that_of_its_config(name):
    assert data.model(name) == replace(of_file(FILES[name]), name=name)


def test_llama_2_7b_is_that_of_its_config():
    assert data.model("llama-2-7b") == replace(pm.Model.from_hf_config(LLAMA_2_7B), name="llama-2-7b")


def test_every_shipped_model_meets_its_config():
    """Llama-2-70B's in test_hf.py."""
    assert {*FILES, "llama-2-7b", "llama-2-70b"} == set(data.names("model"))


def test_deepseek_v3_against_the_headers_of_its_checkpoint():
    """The hub counts 680,571,043,840 elements in FP8 and 3,918,786,560 in BF16.

    Beside the model they hold one module for multi-token prediction: a layer with experts, a projection of twice the
    width, three norms, and an embedding and a head of its own. Scales and the routers' corrections are in FP32.
    """
    model = of_file("deepseek-ai--DeepSeek-V3")
    prediction = DEEPSEEK_ATTENTION + DEEPSEEK_MOE + 2 * 7168 * 7168 + 3 * 7168 + DEEPSEEK_TABLES
    corrections = 58 * 256
    assert pm.total_parameters(model) - corrections + prediction == 680_571_043_840 + 3_918_786_560
    assert pm.total_parameters(model) == 671_026_419_200
    # README_WEIGHTS.md of the repository: 36.6B active, the head included and the embedding not.
    assert (pm.active_parameters(model) - 129280 * 7168) / 1e9 == pytest.approx(36.6, abs=0.05)
    assert pm.active_parameters(model) == BY_HAND["deepseek-v3"] - 58 * (256 - 8) * DEEPSEEK_EXPERT


def test_deepseek_v3_2_adds_an_indexer_to_every_layer():
    """The hub counts 685,355,329,792 parameters, one module for multi-token prediction with an indexer among them."""
    model = of_file("deepseek-ai--DeepSeek-V3.2")
    indexer = 1536 * 64 * 128 + 7168 * 128 + 2 * 128 + 7168 * 64  # query, key and its norm with an offset, head weights
    assert pm.total_parameters(model) == BY_HAND["deepseek-v3"] + 61 * indexer
    prediction = DEEPSEEK_ATTENTION + DEEPSEEK_MOE + 256 + 2 * 7168 * 7168 + 3 * 7168 + DEEPSEEK_TABLES
    assert pm.total_parameters(model) + prediction + indexer == 685_355_329_792
    assert (model.indexer.heads, model.indexer.head_dim, model.indexer.selected) == (64, 128, 2048)
    assert model.indexer.key_bytes == 128 + 4  # FP8 and one FP32 scale: index_k_cache of DeepSeek's inference code


def test_kimi_k2():
    """As DeepSeek-V3 with half the heads, 384 experts and one dense layer: 1,026,408,232,448 in its files' headers."""
    query = 7168 * 1536 + 1536 + 1536 * 64 * (128 + 64)
    cache = 7168 * (512 + 64) + 512 + 512 * 64 * (128 + 128)
    attention = query + cache + 64 * 128 * 7168 + 2 * 7168
    moe = (384 + 1) * 3 * 7168 * 2048 + 7168 * 384 + 384
    by_hand = 61 * attention + 3 * 7168 * 18432 + 60 * moe + 7168 + 2 * 163840 * 7168
    assert pm.total_parameters(of_file("moonshotai--Kimi-K2-Instruct")) == by_hand == 1_026_408_232_448


def test_glm_5():
    """The hub counts 753,864,139,008, which holds a layer with experts, a projection and three norms for prediction."""
    query = 6144 * 2048 + 2048 + 2048 * 64 * (192 + 64)
    cache = 6144 * (512 + 64) + 512 + 512 * 64 * (192 + 256)
    indexer = 2048 * 32 * 128 + 6144 * 128 + 2 * 128 + 6144 * 32
    attention = query + cache + 64 * 256 * 6144 + indexer + 2 * 6144
    moe = (256 + 1) * 3 * 6144 * 2048 + 6144 * 256 + 256
    by_hand = 78 * attention + 3 * 3 * 6144 * 12288 + 75 * moe + 6144 + 2 * 154880 * 6144
    assert pm.total_parameters(of_file("zai-org--GLM-5")) == by_hand
    assert by_hand + attention + moe + 2 * 6144 * 6144 + 3 * 6144 == 753_864_139_008


@pytest.mark.parametrize(
    ("size", "total", "feed_forward", "attention", "tables", "active"),
    [("120b", 116.83, 114.71, 0.96, 1.16, 5.13), ("20b", 20.91, 19.12, 0.64, 1.16, 3.61)],
)
def test_gpt_oss_against_its_model_card(size, total, feed_forward, attention, tables, active):
    """Table 1 of arXiv:2508.10925, in billions, to half its last digit. Active counts the head, not the embedding."""
    model = of_file(f"openai--gpt-oss-{size}")
    count = pm.parameters(model)
    expert_biases = model.layers * model.experts * (2 * 2880 + 2880)
    stated = {
        "total": (pm.total_parameters(model), total),
        "feed-forward": (count.experts + count.router + expert_biases, feed_forward),
        "attention": (count.attention, attention),
        "tables": (count.embedding + count.lm_head, tables),
        "active": (pm.active_parameters(model) - count.embedding, active),
    }
    for part, (ours, theirs) in stated.items():
        assert ours / 1e9 == pytest.approx(theirs, rel=0, abs=0.00501), part
    assert pm.total_parameters(of_file("openai--gpt-oss-20b")) == 20_914_757_184  # of its GGUF files
    assert (model.window.tokens, model.window.layers) == (128, model.layers // 2)


@pytest.mark.parametrize(
    ("name", "active"), [("mixtral-8x7b", 12.9), ("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22.0)]
)
def test_active_parameters_as_published(name, active):
    """Mixtral's announcement: 12.9B. Qwen3's model cards: 3.3B and 22B; theirs is rounded down and up."""
    assert pm.active_parameters(data.model(name)) / 1e9 == pytest.approx(active, rel=0.02)


def test_a_tied_head_is_stored_twice_in_the_checkpoint_of_qwen3_0_6b():
    """The hub counts 751,632,384, with the head; the model's name counts it once."""
    model = of_file("Qwen--Qwen3-0.6B")
    layer = 2 * 1024 * 2048 + 2 * 1024 * 1024 + 2 * 128 + 3 * 1024 * 3072 + 2 * 1024
    assert pm.total_parameters(model) == 28 * layer + 1024 + 151936 * 1024
    assert pm.total_parameters(model) + 151936 * 1024 == 751_632_384


def test_a_config_of_quantised_weights_counts_those_of_the_original():
    assert replace(of_file("Qwen--Qwen3-32B-FP8"), name="x") == replace(of_file("Qwen--Qwen3-32B"), name="x")


def test_mimo_7b_is_a_qwen2():
    """Query, key and value have biases. The file's layer for multi-token prediction is left out."""
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + (4096 + 2 * 1024) + 3 * 4096 * 11008 + 2 * 4096
    by_hand = 36 * layer + 4096 + 2 * 151680 * 4096
    assert pm.total_parameters(of_file("XiaomiMiMo--MiMo-7B-Base")) == by_hand


QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "sliding_window": 131072,
    "max_window_layers": 28,
}
OPT_125M = {
    "architectures": ["OPTForCausalLM"],
    "ffn_dim": 3072,
    "hidden_size": 768,
    "max_position_embeddings": 2048,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
}


def config(base, layers, width, heads, kv_heads, inner, vocabulary, **more):
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads}
    sizes |= {"num_key_value_heads": kv_heads, "intermediate_size": inner, "vocab_size": vocabulary}
    return base | sizes | more


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        # Counts of the model hub; two more are in test_cases.
        (config(QWEN2, 28, 3584, 28, 4, 18944, 152064, use_sliding_window=False), 7_615_616_512),  # Qwen2.5-7B
        (
            config(
                {"architectures": ["MistralForCausalLM"], "max_position_embeddings": 32768, "sliding_window": 4096},
                *(32, 4096, 32, 8, 14336, 32000),
            ),
            7_241_732_096,  # Mistral-7B-v0.1
        ),
        (OPT_125M, 125_239_296),
    ],
    ids=lambda value: value if isinstance(value, int) else value["architectures"][0],
)
def test_other_published_counts(given, parameters):
    assert pm.total_parameters(pm.Model.from_hf_config(given)) == parameters


def test_biases_of_a_llama():
    """attention_bias: one vector for each of query, key, value, output; mlp_bias: for gate, up and down."""
    plain = pm.total_parameters(pm.Model.from_hf_config(LLAMA_2_7B))
    attention = pm.Model.from_hf_config(LLAMA_2_7B | {"attention_bias": True})
    assert pm.total_parameters(attention) - plain == 32 * 4 * 4096
    network = pm.Model.from_hf_config(LLAMA_2_7B | {"mlp_bias": True})
    assert pm.total_parameters(network) - plain == 32 * (2 * 11008 + 4096)


def test_biases_of_latent_attention():
    """attention_bias: one vector for each of both down projections and the output."""
    given = json.loads((examples.CONFIGS / "deepseek-ai--DeepSeek-V3.json").read_text(encoding="utf-8"))
    biased = pm.Model.from_hf_config(given | {"attention_bias": True})
    assert pm.total_parameters(biased) - BY_HAND["deepseek-v3"] == 61 * (1536 + 512 + 64 + 7168)
    plain_query = pm.Model.from_hf_config(given | {"q_lora_rank": None, "attention_bias": True})
    without = DEEPSEEK_QUERY - 7168 * 128 * (128 + 64)
    assert pm.total_parameters(plain_query) == BY_HAND["deepseek-v3"] + 61 * (512 + 64 + 7168 - without)


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("Qwen--Qwen3-0.6B", 2 * 28 * 8 * 128 * 2),  # 114,688
        ("Qwen--Qwen3-8B", 2 * 36 * 8 * 128 * 2),  # 147,456
        ("Qwen--Qwen3-32B", 2 * 64 * 8 * 128 * 2),  # 262,144: not 163,840, what hidden_size / heads would give
        ("Qwen--Qwen3-30B-A3B", 2 * 48 * 4 * 128 * 2),  # 98,304
        ("deepseek-ai--DeepSeek-V3", 61 * (512 + 64) * 2),  # 70,272, where expanded keys and values take 3,997,696
        ("openai--gpt-oss-120b", 2 * 36 * 8 * 64 * 2),  # 73,728, before the windows close
        ("facebook--opt-66b", 2 * 64 * 9216 * 2),  # 2,359,296
    ],
)
def test_kv_bytes_of_a_token(stem, expected):
    deployment = pm.Deployment(of_file(stem), data.accelerator("h100-sxm"))
    assert pm.kv_bytes_per_token(deployment) == expected
