"""Hugging Face `config.json` -> Model: sized as `transformers` would build it, or refused in words.

`hf_architectures` says for each architecture which key holds which field and what a missing or null key means.
Nothing outside the table is guessed: the config of an unknown architecture, read as if it were a Llama, gives a
plausible number that is wrong.
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

from perfmodel.hf_architectures import ARCHITECTURES
from perfmodel.hf_schema import REFUSED, Key, Settings
from perfmodel.model import Model
from perfmodel.quantity import shown

LARGEST_FILE = 10_000_000  # bytes; a config.json has some thousand
DIGITS = 400  # of a whole number: no float has more

# Spellings of one size: if two are given they must agree.
SPELLINGS = (
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("hidden_size", "n_embd", "d_model"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"),
    ("head_dim", "attention_head_dim", "kv_channels"),
    ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    ("vocab_size", "n_vocab", "padded_vocab_size"),
    ("num_local_experts", "num_experts", "n_routed_experts"),
    ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk"),
)
# Settings that change what is counted: an architecture without such a key may not be given it, unless it is off.
STRUCTURE = """
kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim index_topk index_n_heads index_head_dim
index_topk_freq index_topk_pattern indexer_types n_shared_experts shared_expert_intermediate_size
moe_intermediate_size first_k_dense_replace mlp_only_layers decoder_sparse_step moe_layer_freq mlp_layer_types
sliding_window use_sliding_window layer_types attention_chunk_size attention_bias mlp_bias qkv_bias bias
use_qk_norm qk_layernorm multi_query word_embed_proj_dim block_configs hybrid_override_pattern compress_ratios
pruned_heads text_config llm_config thinker_config vision_config audio_config
"""


def model_from_config(config: str | PathLike[str] | Mapping[str, Any]) -> Model:
    """Size a model from its `config.json`.

    A `Model` counts elements, not bytes, and quantisation changes only the bytes: the config of a quantised model
    states the shapes of the original, and `quantization_config` is not read. Its precision is the deployment's
    choice (`weight_bytes`, `expert_bytes`); the scales of a quantised checkpoint are not counted. Nor are the layers
    for multi-token prediction (`num_nextn_predict_layers`): plain decoding does not run them.

    Parameters
    ----------
    config : str, path or mapping
        The file, a folder that holds `config.json`, or the content of the file.

    Returns
    -------
    Model

    Raises
    ------
    ValueError
        In one line that names the file, the key, the value and the rule: if the file cannot be read, the architecture
        is not in `ARCHITECTURES`, a key is missing or has a wrong type or value, two keys contradict each other, or a
        setting is not counted.
    """
    where = "config"
    try:
        if not isinstance(config, (str, PathLike)):
            return _model(config, "")
        path = Path(config)
        where = _one_line(str(path))
        if path.is_dir():
            path /= "config.json"
            where = _one_line(str(path))
        return _model(_load(path), path.resolve().parent.name if path.stem == "config" else path.stem)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"{where}: {reason}")


def _one_line(text: str) -> str:
    """A path or a name as a message can quote it."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 160 else f"...{text[-157:]}"


def _load(path: Path) -> Any:
    if path.exists() and not path.is_file():
        raise ValueError("is not a file")
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"has more than {LARGEST_FILE} bytes: it is not a config.json")
    try:
        return json.loads(content, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)
    except RecursionError:
        raise ValueError("is nested too deeply: it is not a config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file. The last of two equal keys would win in silence."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"holds the key {shown(key)} twice")
        if isinstance(value, Decimal):
            raise ValueError(f"{key}={str(value)[:20]}... must have at most {DIGITS} digits")
        found[key] = value
    return found


def _integer(digits: str) -> int | Decimal:
    """A whole number; one that Python would not read is marked for `_object`, which knows its key."""
    return int(digits) if len(digits) <= DIGITS else Decimal(digits)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"is not JSON: {name} is not a number there")


def _model(config: Any, name: str) -> Model:
    if not isinstance(config, Mapping):
        raise ValueError(f"must hold a JSON object, not {'null' if config is None else shown(config)}")
    given = config.get("architectures")
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str):
        raise ValueError(f"architectures={shown(given)} must be a list of one name")
    if given[0] not in ARCHITECTURES:
        known = ", ".join(name.removesuffix("ForCausalLM") for name in ARCHITECTURES)
        raise ValueError(f"architectures={shown(given)} is not known; known, with ForCausalLM after each: {known}")
    architecture = ARCHITECTURES[given[0]]
    config = {key: config[spelling] for spelling, key in architecture.aliases.items() if spelling in config} | dict(
        config
    )
    settings: Settings = {}
    for key, meaning in architecture.keys.items():
        settings[key] = _value(key, meaning, config, settings)
    _check_rest(given[0], config, settings)
    for rule in architecture.rules:
        if not rule.holds(settings):
            absent = "" if rule.key in config else " (what a missing key means)"
            raise ValueError(f"{rule.key}={shown(settings[rule.key])}{absent} {rule.text.format_map(settings)}")
    fields = {item: _field(source, settings) for item, source in architecture.fields.items()}
    label = config.get("_name_or_path")
    return Model(name=_one_line(label) if label and isinstance(label, str) else name or given[0], **fields)


def _value(name: str, key: Key, config: Mapping[str, Any], settings: Settings) -> Any:
    """A key's value: as the config has it, or what its absence means."""
    value = config.get(name)
    if value is None:
        state, stand_in = ("null", key.null) if name in config else ("missing", key.missing)
        if stand_in is REFUSED:
            raise ValueError(f"{name} is {state}, and nothing stands in for it")
        return stand_in(settings) if callable(stand_in) else stand_in
    kind = type(value)  # itself: a boolean is no number here, and 4096.0 no size
    if kind is not key.type:
        kinds = {int: "a whole number", bool: "true or false", list: "a list", str: "a text"}
        raise ValueError(f"{name}={shown(value)} must be {kinds[key.type]}")
    if key.type is int and not key.least <= value <= key.most:
        raise ValueError(f"{name}={shown(value)} must be at least {key.least} and at most {key.most}")
    return value


def _check_rest(name: str, config: Mapping[str, Any], settings: Settings) -> None:
    """Refuse what is at odds with the architecture: its type, another spelling of a size, a part it does not have."""
    types, given = ARCHITECTURES[name].model_types, config.get("model_type")
    if given is not None and given not in types:
        raise ValueError(f"model_type={shown(given)} is at odds with {name}: it must be {' or '.join(types)}")
    parts = STRUCTURE.split()
    for spellings in SPELLINGS:
        own = next((one for one in spellings if one in settings), None)
        parts += [] if own else spellings
        for other in spellings:
            if own and config.get(other) is not None and config[other] != settings[own]:
                raise ValueError(f"{other}={shown(config[other])} contradicts {own}={shown(settings[own])}")
    for part in parts:
        if part not in settings and config.get(part):
            raise ValueError(f"{part}={shown(config[part])} is not a setting of {name}, so its meaning is unknown")


def _field(source: Any, settings: Settings) -> Any:
    if isinstance(source, str):
        return settings[source]
    return source(settings) if callable(source) else source
