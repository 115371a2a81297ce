"""How the tables of `hf_architectures` are written: keys, rules, and what several architectures share."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.model import Window

REFUSED: Any = object()
Settings = dict[str, Any]  # every key of an architecture, with its value


@dataclass(frozen=True)
class Key:
    """What it means for a key to be missing or null (a value, or a function of the keys before it), and its range."""

    missing: Any = REFUSED
    null: Any = REFUSED
    type: type = int
    least: int = 1
    most: int = 10**9


@dataclass(frozen=True)
class Rule:
    """What must hold for a key: anything else is impossible, or not counted. The text may quote keys in braces."""

    key: str
    holds: Callable[[Settings], Any]
    text: str = "is not counted"


@dataclass(frozen=True)
class Architecture:
    """How to read one entry of `architectures`."""

    model_types: tuple[str, ...]
    keys: dict[str, Key]
    fields: dict[str, Any]  # a field of `Model`: its key, a function of all keys, or a constant
    rules: tuple[Rule, ...]
    aliases: dict[str, str] = field(default_factory=dict)  # spellings that transformers takes for a key as well


def required(names: str) -> dict[str, Key]:
    """Sizes that no file leaves out."""
    return {name: Key() for name in names.split()}


def listed(default: Callable[[Settings], list[str]]) -> Key:
    """A list with an entry for each layer, which older files leave out."""
    return Key(missing=default, null=default, type=list)


def as_built(key: str, default: Callable[[Settings], list[str]]) -> Rule:
    """A list that must say what the other keys say."""
    return Rule(key, lambda c: c[key] == default(c), "is at odds with the other keys, or not counted")


def same_as(key: str) -> Callable[[Settings], Any]:
    return lambda c: c[key]


def width_per_head(c: Settings) -> int:
    width, heads = c["hidden_size"], c["num_attention_heads"]
    if width % heads:
        raise ValueError(f"head_dim is missing, and num_attention_heads={heads} does not divide hidden_size={width}")
    return int(width // heads)


def only(key: str, value: Any) -> Rule:
    return Rule(key, lambda c: c[key] == value, f"must be {str(value).lower()}: nothing else is counted")


def at_most(key: str, other: str) -> Rule:
    return Rule(key, lambda c: c[key] <= c[other], f"must be at most {other}={{{other}}}")


def qkv_biases(c: Settings) -> int:
    return int((c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * c["head_dim"])


def attention_biases(c: Settings) -> int:
    return qkv_biases(c) + int(c["hidden_size"]) if c["attention_bias"] else 0


def latent_biases(c: Settings) -> int:
    """Of both down projections and of the output."""
    outputs = c["q_lora_rank"] + c["kv_lora_rank"] + c["qk_rope_head_dim"] + c["hidden_size"]
    return int(outputs) if c["attention_bias"] else 0


def index_key_bytes(c: Settings) -> int:
    """As DeepSeek's and vLLM's code keep a key: in FP8, with one FP32 scale for each 128 elements."""
    scales = -(-c["index_head_dim"] // 128)
    return int(c["index_head_dim"] + 4 * scales)


HEADS_DIVIDE = Rule(
    "num_key_value_heads",
    lambda c: c["num_attention_heads"] % c["num_key_value_heads"] == 0,
    "does not divide num_attention_heads={num_attention_heads}",
)


# Lists by layer, and windows


def window_of_all(c: Settings) -> Window | None:
    """All layers have the window, if there is one; even one as long as all positions, for a rope factor makes more."""
    tokens = c["sliding_window"]
    return Window(tokens, c["num_hidden_layers"]) if tokens else None


def window_by_layer(c: Settings) -> Window | None:
    """`layer_types` says which layers have it."""
    window, layers = window_of_all(c), c["layer_types"].count("sliding_attention")
    return replace(window, layers=layers) if window and layers else None


def windowed_above(c: Settings) -> list[str]:
    """The layers from max_window_layers on, where older files leave `layer_types` out."""
    first = c["max_window_layers"] if c["use_sliding_window"] and c["sliding_window"] else c["num_hidden_layers"]
    return ["full_attention" if layer < first else "sliding_attention" for layer in range(c["num_hidden_layers"])]


def every_layer(kind: str) -> Callable[[Settings], list[str]]:
    return lambda c: [kind] * c["num_hidden_layers"]


def dense_then_sparse(c: Settings) -> list[str]:
    dense = c["first_k_dense_replace"]
    return ["dense" if layer < dense else "sparse" for layer in range(c["num_hidden_layers"])]


def every_second_windowed(c: Settings) -> list[str]:
    return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(c["num_hidden_layers"])]


LAYER_TYPES_FIT = (
    Rule(
        "layer_types",
        lambda c: (
            len(c["layer_types"]) == c["num_hidden_layers"]
            and all(kind in ("full_attention", "sliding_attention") for kind in c["layer_types"])
        ),
        "must be full_attention or sliding_attention for each of num_hidden_layers={num_hidden_layers} layers",
    ),
    Rule(
        "layer_types",
        lambda c: (
            "sliding_attention" not in c["layer_types"] or (c["sliding_window"] and c.get("use_sliding_window", True))
        ),
        "has windowed layers, but sliding_window={sliding_window} is null or not in use",
    ),
)
