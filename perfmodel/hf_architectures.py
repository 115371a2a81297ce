"""What each entry of `architectures` in a Hugging Face config.json means for the sizes of a model.

One table an architecture: its keys, what a missing or null one means in `transformers`, which field of `Model` each
makes, and what must hold. The shapes are those that `transformers` builds (read in 4.57 and 5.23).
"""

from dataclasses import replace

from perfmodel.hf_schema import (
    HEADS_DIVIDE,
    LAYER_TYPES_FIT,
    Architecture,
    Key,
    Rule,
    as_built,
    at_most,
    attention_biases,
    dense_then_sparse,
    every_layer,
    every_second_windowed,
    index_key_bytes,
    latent_biases,
    listed,
    only,
    qkv_biases,
    required,
    same_as,
    width_per_head,
    window_by_layer,
    window_of_all,
    windowed_above,
)
from perfmodel.model import Indexer, Latent

_HEADS, _WIDTH = same_as("num_attention_heads"), same_as("hidden_size")
_ROUTED = {"num_local_experts": "n_routed_experts"}
_BASE = required("hidden_size num_attention_heads vocab_size") | {
    "num_hidden_layers": Key(most=10_000),
    "max_position_embeddings": Key(missing=None, null=None),
    "tie_word_embeddings": Key(missing=False, type=bool),
}
_GROUPED = _BASE | {
    "num_key_value_heads": Key(missing=_HEADS, null=_HEADS),
    "head_dim": Key(missing=width_per_head, null=width_per_head),
    "intermediate_size": Key(),
}
_BIAS = {"attention_bias": Key(missing=False, type=bool)}
_MISTRAL = _GROUPED | {
    "num_key_value_heads": Key(missing=8, null=_HEADS),
    "sliding_window": Key(missing=4096, null=None),
}
_QWEN = _GROUPED | {
    "num_key_value_heads": Key(missing=32, null=_HEADS),
    "use_sliding_window": Key(missing=False, type=bool),
    "sliding_window": Key(missing=4096, null=None),
    "max_window_layers": Key(missing=28, null=28, least=0),
    "layer_types": listed(windowed_above),
}
_LATENT_SIZES = "intermediate_size moe_intermediate_size kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim"
_LATENT = (
    _BASE
    | _BIAS
    | required(f"{_LATENT_SIZES} num_experts_per_tok")
    | {
        "num_key_value_heads": Key(missing=_HEADS, null=_HEADS),
        "head_dim": Key(missing=None, null=None),  # transformers puts qk_rope_head_dim in its place
        "q_lora_rank": Key(null=0),
        "n_routed_experts": Key(least=2),
        "n_shared_experts": Key(null=0, least=0),
        "first_k_dense_replace": Key(least=0),
        "moe_layer_freq": Key(missing=1),
        "topk_method": Key(missing="noaux_tc", type=str),
        "mlp_layer_types": listed(dense_then_sparse),
    }
)
_INDEXED = (
    _LATENT
    | required("q_lora_rank index_n_heads index_head_dim index_topk")
    | {"layer_types": listed(every_layer("indexed_attention"))}
)

_BASE_FIELDS = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "vocab_size": "vocab_size",
    "tied_embeddings": "tie_word_embeddings",
}
_GROUPED_FIELDS = _BASE_FIELDS | {
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn_size": "intermediate_size",
}
_EXPERTS = {"experts": "num_local_experts", "experts_per_token": "num_experts_per_tok"}
_LATENT_FIELDS = _BASE_FIELDS | {
    "kv_heads": "num_key_value_heads",
    "head_dim": lambda c: c["qk_nope_head_dim"] + c["qk_rope_head_dim"],
    "ffn_size": "moe_intermediate_size",
    "experts": "n_routed_experts",
    "experts_per_token": "num_experts_per_tok",
    "shared_ffn_size": lambda c: c["n_shared_experts"] * c["moe_intermediate_size"],
    "dense_layers": "first_k_dense_replace",
    "dense_ffn_size": lambda c: c["intermediate_size"] if c["first_k_dense_replace"] else 0,
    "latent": lambda c: Latent(
        c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
    ),
    "router_bias": True,  # the e_score_correction_bias of the method noaux_tc
    "biases": latent_biases,
}
_INDEXED_FIELDS = _LATENT_FIELDS | {
    "indexer": lambda c: Indexer(c["index_n_heads"], c["index_head_dim"], c["index_topk"], index_key_bytes(c))
}

# Architectures

_LATENT_RULES = (
    Rule("num_key_value_heads", lambda c: c["num_key_value_heads"] == _HEADS(c), "has no meaning in latent attention"),
    at_most("num_experts_per_tok", "n_routed_experts"),
    at_most("first_k_dense_replace", "num_hidden_layers"),
    only("moe_layer_freq", 1),
    only("topk_method", "noaux_tc"),
    as_built("mlp_layer_types", dense_then_sparse),
)
_INDEXED_RULES = (*_LATENT_RULES, as_built("layer_types", every_layer("indexed_attention")))
_QWEN2 = Architecture(
    ("qwen2",),
    _QWEN | {"head_dim": Key(missing=width_per_head), "attention_bias": Key(missing=True, type=bool)},
    _GROUPED_FIELDS | {"biases": qkv_biases, "window": window_by_layer},
    (HEADS_DIVIDE, *LAYER_TYPES_FIT, only("attention_bias", True)),
)

ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(
        ("llama",),
        _GROUPED | _BIAS | {"mlp_bias": Key(missing=False, type=bool)},
        _GROUPED_FIELDS | {"biases": attention_biases, "ffn_bias": "mlp_bias"},
        (HEADS_DIVIDE,),
    ),
    "MistralForCausalLM": Architecture(
        ("mistral",), _MISTRAL, _GROUPED_FIELDS | {"window": window_of_all}, (HEADS_DIVIDE,)
    ),
    "MixtralForCausalLM": Architecture(
        ("mixtral",),
        _MISTRAL
        | {"sliding_window": Key(missing=None, null=None)}
        | {"num_local_experts": Key(missing=8, least=2), "num_experts_per_tok": Key(missing=2)},
        _GROUPED_FIELDS | _EXPERTS | {"window": window_of_all},
        (HEADS_DIVIDE, at_most("num_experts_per_tok", "num_local_experts")),
        {"num_experts": "num_local_experts"},
    ),
    "Qwen2ForCausalLM": _QWEN2,
    "MiMoForCausalLM": replace(_QWEN2, model_types=("mimo",)),  # without its multi-token prediction
    "Qwen3ForCausalLM": Architecture(
        ("qwen3",),
        _QWEN | _BIAS | {"head_dim": Key(missing=128)},
        _GROUPED_FIELDS | {"qk_norm": True, "biases": attention_biases, "window": window_by_layer},
        (HEADS_DIVIDE, *LAYER_TYPES_FIT),
    ),
    "Qwen3MoeForCausalLM": Architecture(
        ("qwen3_moe",),
        _GROUPED
        | _BIAS
        | required("moe_intermediate_size num_experts_per_tok")
        | {
            "num_key_value_heads": Key(missing=4),
            "head_dim": Key(missing=width_per_head),
            "num_experts": Key(least=2),
            "decoder_sparse_step": Key(missing=1),
            "mlp_only_layers": listed(lambda c: []),
            "use_qk_norm": Key(missing=True, type=bool),
            "use_sliding_window": Key(missing=False, type=bool),
            "sliding_window": Key(missing=None, null=None),  # without use_sliding_window it is not in use
        },
        _GROUPED_FIELDS
        | {"ffn_size": "moe_intermediate_size", "experts": "num_experts", "experts_per_token": "num_experts_per_tok"}
        | {"qk_norm": True, "biases": attention_biases},
        (
            HEADS_DIVIDE,
            at_most("num_experts_per_tok", "num_experts"),
            only("decoder_sparse_step", 1),
            only("mlp_only_layers", []),
            only("use_qk_norm", True),
            only("use_sliding_window", False),
        ),
        {"num_local_experts": "num_experts"},
    ),
    "DeepseekV3ForCausalLM": Architecture(("deepseek_v3", "kimi_k2"), _LATENT, _LATENT_FIELDS, _LATENT_RULES, _ROUTED),
    "DeepseekV32ForCausalLM": Architecture(("deepseek_v32",), _INDEXED, _INDEXED_FIELDS, _INDEXED_RULES, _ROUTED),
    "GlmMoeDsaForCausalLM": Architecture(
        ("glm_moe_dsa",),
        _INDEXED | {"index_topk_freq": Key(missing=1), "indexer_types": listed(every_layer("full"))},
        _INDEXED_FIELDS,
        (*_INDEXED_RULES, only("index_topk_freq", 1), as_built("indexer_types", every_layer("full"))),
        _ROUTED,
    ),
    "GptOssForCausalLM": Architecture(
        ("gpt_oss",),
        _GROUPED
        | {
            "num_key_value_heads": Key(missing=8, null=_HEADS),
            "head_dim": Key(missing=64, null=width_per_head),
            "num_local_experts": Key(least=2),
            "num_experts_per_tok": Key(),
            "attention_bias": Key(missing=True, type=bool),
            "sliding_window": Key(missing=128, null=None),
            "layer_types": listed(every_second_windowed),
        },
        _GROUPED_FIELDS
        | _EXPERTS
        | {
            "biases": lambda c: attention_biases(c) + _HEADS(c),  # each head has a sink
            "ffn_bias": True,
            "router_bias": True,
            "window": window_by_layer,
        },
        (HEADS_DIVIDE, *LAYER_TYPES_FIT, at_most("num_experts_per_tok", "num_local_experts")),
        {"num_experts": "num_local_experts"},
    ),
    "OPTForCausalLM": Architecture(
        ("opt",),
        _BASE
        | {
            "ffn_dim": Key(),
            "max_position_embeddings": Key(),
            "word_embed_proj_dim": Key(missing=_WIDTH, null=_WIDTH),
            "tie_word_embeddings": Key(missing=True, type=bool),
            "enable_bias": Key(missing=True, type=bool),
            "do_layer_norm_before": Key(missing=True, type=bool),
            "_remove_final_layer_norm": Key(missing=False, type=bool),
            "layer_norm_elementwise_affine": Key(missing=True, type=bool),
        },
        _BASE_FIELDS
        | {
            "kv_heads": "num_attention_heads",
            "head_dim": width_per_head,
            "ffn_size": "ffn_dim",
            "ffn_matrices": 2,
            "norm_vectors": 2,
            "biases": lambda c: 4 * c["enable_bias"] * c["hidden_size"],
            "ffn_bias": "enable_bias",
            "positions": lambda c: c["max_position_embeddings"] + 2,  # the table begins with two rows of padding
        },
        (
            Rule("word_embed_proj_dim", lambda c: c["word_embed_proj_dim"] == c["hidden_size"]),
            only("do_layer_norm_before", True),
            only("_remove_final_layer_norm", False),
            only("layer_norm_elementwise_affine", True),
        ),
    ),
}
