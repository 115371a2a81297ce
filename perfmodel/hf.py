"""Hugging Face `config.json` -> Model: sized as `transformers` would build it, or refused in words.

One table an architecture says which key holds which field, what a missing or null key means in `transformers`, and
which settings change the counts in a way that is not modelled here. Nothing outside the table is guessed: the config
of an unknown architecture, read as if it were a Llama, gives a plausible number that is wrong.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

from perfmodel.model import Model
from perfmodel.quantity import shown

REFUSED: Any = object()


@dataclass(frozen=True)
class Key:
    """Where a field of `Model` stands: its key, and what it means there to be missing or null.

    What it means is a value, or a function of the fields read before.
    """

    name: str
    missing: Any = REFUSED
    null: Any = REFUSED
    type: type = int


@dataclass(frozen=True)
class Rule:
    """A setting that must pass a test, since anything else is not counted."""

    missing: Any
    allowed: Callable[[Any, dict[str, Any]], bool]  # of the value and the whole config
    text: str


@dataclass(frozen=True)
class Architecture:
    """How to read one entry of `architectures`."""

    keys: dict[str, Key]
    rules: dict[str, Rule] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # other spellings that transformers takes: spelling -> key


def _window(missing: int | None) -> Rule:
    return Rule(
        missing,
        lambda value, config: value is None or value >= config.get("max_position_embeddings", inf),
        "must be null or reach max_position_embeddings: windowed attention is not counted yet",
    )


def _heads(values: dict[str, Any]) -> int:
    heads: int = values["heads"]
    return heads


def _width_per_head(values: dict[str, Any]) -> int:
    width: int = values["hidden_size"]
    heads: int = values["heads"]
    if width % heads:
        raise ValueError(f"head_dim is missing, and num_attention_heads={heads} does not divide hidden_size={width}")
    return width // heads


_DENSE = {
    "layers": Key("num_hidden_layers"),
    "hidden_size": Key("hidden_size"),
    "heads": Key("num_attention_heads"),
    "kv_heads": Key("num_key_value_heads", missing=_heads, null=_heads),
    "head_dim": Key("head_dim", missing=_width_per_head, null=_width_per_head),
    "ffn_size": Key("intermediate_size"),
    "vocab_size": Key("vocab_size"),
    "tied_embeddings": Key("tie_word_embeddings", missing=False, type=bool),
}
_MISTRAL = _DENSE | {"kv_heads": Key("num_key_value_heads", missing=8, null=_heads)}
_EXPERTS = {
    "experts": Key("num_local_experts", missing=8),
    "experts_per_token": Key("num_experts_per_tok", missing=2),
}
_NO_BIAS = Rule(False, lambda value, config: value is False, "must be false: bias vectors are not counted yet")
_PLAIN = {
    "quantization_config": Rule(
        None,
        lambda value, config: value is None,
        "must be absent: the precision is the deployment's choice, so give the config of the unquantised model",
    )
}

ARCHITECTURES = {
    "LlamaForCausalLM": Architecture(_DENSE, _PLAIN | {"attention_bias": _NO_BIAS, "mlp_bias": _NO_BIAS}),
    "MistralForCausalLM": Architecture(_MISTRAL, _PLAIN | {"sliding_window": _window(missing=4096)}),
    "MixtralForCausalLM": Architecture(
        _MISTRAL | _EXPERTS, _PLAIN | {"sliding_window": _window(missing=None)}, {"num_experts": "num_local_experts"}
    ),
}


def model_from_config(config: str | PathLike[str] | Mapping[str, Any]) -> Model:
    """Size a model from its `config.json`.

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
        is not in `ARCHITECTURES`, a key is missing or has a wrong type or value, or a setting is not counted.
    """
    path = Path(config) if isinstance(config, (str, PathLike)) else None
    if path and path.is_dir():
        path = path / "config.json"
    try:
        if path is None:
            return _model(config, "")
        return _model(_load(path), path.parent.name if path.stem == "config" else path.stem)
    except ValueError as error:
        raise ValueError(f"{path or 'config'}: {error}") from None


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _model(config: Any, name: str) -> Model:
    if not hasattr(config, "keys"):
        raise ValueError(f"must hold a JSON object, not {shown(config)}")
    given = config.get("architectures")
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str):
        raise ValueError(f"architectures={shown(given)} must be a list of one name")
    if given[0] not in ARCHITECTURES:
        raise ValueError(f"architectures={shown(given)} is not known; known: {', '.join(ARCHITECTURES)}")
    architecture = ARCHITECTURES[given[0]]
    config = {architecture.aliases.get(key, key): value for key, value in config.items()}
    for setting, rule in architecture.rules.items():
        _check(setting, rule, config)
    values: dict[str, Any] = {}
    for item, key in architecture.keys.items():
        values[item] = _value(key, config, values)
    label = config.get("_name_or_path")
    return Model(name=label if label and isinstance(label, str) else name or given[0], **values)


def _check(key: str, rule: Rule, config: dict[str, Any]) -> None:
    """Refuse a setting that is not counted."""
    value = config.get(key, rule.missing)
    try:
        allowed = rule.allowed(value, config)
    except TypeError:  # a text where a number belongs
        allowed = False
    if not allowed:
        absent = "" if key in config else " (what a missing key means)"
        raise ValueError(f"{key}={shown(value)}{absent} {rule.text}")


def _value(key: Key, config: dict[str, Any], values: dict[str, Any]) -> Any:
    """One field: as the config has it, or what its absence means."""
    value: Any = config.get(key.name, key.missing)
    if value is None:
        value = key.null
    if value is REFUSED:
        raise ValueError(f"{key.name} is {'null' if key.name in config else 'missing'}, and nothing stands in for it")
    if callable(value):
        return value(values)
    if type(value) is not key.type:
        expected = {int: "a whole number", bool: "true or false"}[key.type]
        raise ValueError(f"{key.name}={shown(value)} must be {expected}")
    if type(value) is int and value <= 0:
        raise ValueError(f"{key.name}={value} must be above 0")
    return value
