"""The options of the command line that describe a deployment, its workload and its engine: a line each."""

import argparse
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel import data
from perfmodel.quantity import REACH, shown, within_reach
from perfmodel.quantization import FORMATS
from perfmodel.served import PREFILLS

# Bytes of a weight, its part of the scales counted, and the arithmetic that such weights are multiplied in.
WEIGHTS = {
    "bf16": (FORMATS["bf16"], "bf16"),
    "fp8": (FORMATS["fp8"], "fp8"),
    "int8": (FORMATS["int8"], "int8"),
    "int4": (FORMATS["int4-g128"], "bf16"),
    "fp4": (FORMATS["nvfp4"], "fp4"),
    "mxfp4": (FORMATS["mxfp4"], "fp4"),
}
ELEMENTS = ("bf16", "fp8", "int8")  # of the KV cache and of activations
ARITHMETIC = ("bf16", "fp8", "int8", "fp4")


def count(text: str) -> int:
    """A whole number above 0. `int` reads far more, as "0_1" and "+4"; floats hold 15 digits."""
    if not re.fullmatch("0*[1-9][0-9]{0,14}", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} must be a whole number above 0, of at most 15 digits")
    return int(text.lstrip("0"))


def natural(text: str) -> int:
    """The same, or 0."""
    return 0 if re.fullmatch("0+", text) else count(text)


def number(text: str) -> float:
    """A number with or without point and exponent; its range is checked where it is used."""
    if not re.fullmatch(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} must be a number such as 0.9, and not negative")
    if not within_reach(float(text)):
        raise argparse.ArgumentTypeError(f"{shown(text)} {REACH}")
    return float(text)


def seconds(text: str) -> float:
    """Milliseconds, as people type them, in seconds."""
    return number(text) / 1000


def name(text: str) -> str:
    """A name or a path; whether there is such a thing is checked where it is looked for."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def one_of(*known: str) -> Callable[[str], str]:
    """A reader of one of some words."""

    def read(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"{shown(text)} must be one of {', '.join(known)}")
        return text

    return read


@dataclass(frozen=True)
class Option:
    """A field that an option sets, how its text is read, and what `--help` says."""

    field: str
    read: Callable[[str], Any]
    meaning: str
    shape: str = "N"
    default: Any = None
    required: bool = False

    def settings(self, read: Callable[[str], Any]) -> dict[str, Any]:
        """What `add_argument` is told. What was not given is not set: `DEFAULTS` stands in."""
        default = "" if self.default is None else f" (default {self.default})"
        said = {"dest": self.field, "metavar": self.shape, "help": self.meaning + default}
        return said | {"type": read, "required": self.required, "default": argparse.SUPPRESS}


def choice(field: str, known: tuple[str, ...], meaning: str, default: str | None = None) -> Option:
    """An option that takes one of some words."""
    return Option(field, one_of(*known), f"{meaning}; one of {', '.join(known)}", "KIND", default)


Groups = Mapping[str, Mapping[str, Option]]  # options by title of their group, and by name
PRECISIONS = tuple(WEIGHTS)
OPTIONS: Groups = {
    "deployment": {
        "--model": Option(
            "model", name, f"path of a config.json, or one of {', '.join(data.names('model'))}", "NAME", required=True
        ),
        "--accelerator": Option(
            "accelerator", name, f"one of {', '.join(data.names('accelerator'))}", "NAME", required=True
        ),
        "--link": Option("link", name, "link between the accelerators (default: the accelerator's own)", "NAME"),
        "--constants": Option("constants", name, "efficiencies and overheads of a served token", "NAME", "default"),
        "--tp": Option("tensor_parallel", count, "accelerators that share each layer", default=1),
        "--pp": Option("pipeline_parallel", count, "stages that share the layers", default=1),
        "--dp": Option("data_parallel", count, "replicas", default=1),
        "--cp": Option("context_parallel", count, "groups that share each sequence", default=1),
        "--dcp": Option("decode_context_parallel", count, "parts of the KV cache inside a TP group", default=1),
        "--memory-utilization": Option("memory_utilization", number, "share of memory to use", "SHARE", 0.9),
    },
    "precision": {
        "--weights": choice(
            "weights",
            PRECISIONS,
            "weights that no option below names, and the arithmetic; int4 is weight-only, in groups of 128 and with "
            "arithmetic in bf16, fp4 is NVFP4",
            "bf16",
        ),
        "--experts": choice("experts", PRECISIONS, "routed experts (default: as --weights)"),
        "--tables": choice(
            "tables", PRECISIONS, "embedding and LM head, which published checkpoints leave in bf16", "bf16"
        ),
        "--kv": choice("kv", ELEMENTS, "KV cache", "bf16"),
        "--activations": choice("activations", ELEMENTS, "activations, and with them messages", "bf16"),
        "--compute": choice("compute", ARITHMETIC, "arithmetic, where it is not that of --weights"),
    },
    "workload": {
        "--prompt": Option("prompt", count, "prompt tokens of a request", required=True),
        "--output": Option("output", count, "output tokens of a request, at least 2", required=True),
        "--batch": Option("batch", count, "requests in flight on each replica", default=1),
    },
    "engine": {
        "--prefill": choice(
            "prefill",
            PREFILLS,
            "whole prompts between decode steps, within them, or on other accelerators "
            "(default: exclusive; fused with --chunk, apart with --ideal)",
        ),
        "--chunk": Option("chunk", count, "prompt tokens in a step: chunked prefill"),
        "--shared-prefix": Option("shared_prefix", natural, "leading tokens of each prompt that the cache holds", "N"),
        "--prefix-hit": Option("prefix_hit", number, "the same as a share of the prompt", "SHARE"),
        "--speculate": Option("speculate", natural, "tokens that a draft proposes in a round"),
        "--acceptance": Option("acceptance", number, "chance that a proposed token is accepted", "SHARE"),
        "--draft-cost": Option("draft_cost", number, "time of a draft step over that of a decode step", "X"),
        "--draft": Option(
            "draft",
            name,
            "draft model, deployed as --model is, instead of --draft-cost; its memory is not counted",
            "NAME",
        ),
    },
    "limits and cost": {
        "--ttft-limit": Option("ttft_limit_s", seconds, "longest time to first token, in milliseconds", "MS"),
        "--tpot-limit": Option("tpot_limit_s", seconds, "longest time of an output token, in milliseconds", "MS"),
        "--price": Option("dollars_per_gpu_hour", number, "dollars for an accelerator and an hour", "DOLLARS"),
        "--power": Option("power_w", number, "power of an accelerator (default: what its maker allows)", "WATTS"),
    },
}
# What the package calls an option's field in its messages, where that is not the field's name.
CALLED = {"ttft": "ttft_limit_s", "tpot": "tpot_limit_s", "power": "power_w", "price": "dollars_per_gpu_hour"}
CALLED |= {"n": "requests", "enable_prefix_caching": "prefix_caching"}
FLAGS = {
    "--ep": ("expert_parallel", "whole experts on each accelerator of all replicas (expert parallelism)"),
    "--ideal": ("ideal", "instead of --constants: efficiencies 1, no overhead; no communication without --link"),
}
DEFAULTS = {option.field: option.default for group in OPTIONS.values() for option in group.values()}
DEFAULTS |= {field: False for field, _ in FLAGS.values()}


def as_option(message: str, groups: Groups = OPTIONS) -> str:
    """A message of the package, in the words of the command line: `Engine: acceptance=2 ...` is about --acceptance."""
    told = re.match(r"(?:\w+: )?(\w+)=", message)
    options = {settings.field: option for group in groups.values() for option, settings in group.items()}
    options |= {field: flag for flag, (field, _) in FLAGS.items()}
    options.pop("compute", None)  # which --weights sets, too
    option = told and (options.get(told[1]) or options.get(CALLED.get(told[1], "")))
    return f"argument {option}: {message[told.end() :]}" if told and option else message


def refuse_contradictions(told: Container[str]) -> None:
    """Refuse options of which one would be ignored; `told` are the fields that were given."""
    for one, other in ("constants", "ideal"), ("draft", "draft_cost"), ("prefix_hit", "shared_prefix"):
        if one in told and other in told:
            names = {settings.field: option for group in OPTIONS.values() for option, settings in group.items()}
            raise ValueError(f"argument {names[one]}: not allowed with {names.get(other, '--ideal')}")


def add_options(
    parser: argparse.ArgumentParser,
    reader: Callable[[Option], Callable[[str], Any]] = lambda option: option.read,
    groups: Groups = OPTIONS,
) -> None:
    """Add these groups to a command, read by what `reader` makes of each option."""
    for title, options in groups.items():
        group = parser.add_argument_group(title)
        for option, settings in options.items():
            group.add_argument(option, **settings.settings(reader(settings)))
        if title == "deployment":
            for flag, (field, meaning) in FLAGS.items():
                group.add_argument(flag, dest=field, action="store_true", default=argparse.SUPPRESS, help=meaning)
    own = "TOML file of your own models, accelerators, links and constants: tables [model.NAME], [accelerator.NAME] ..."
    parser.add_argument("--data", type=name, metavar="FILE", help=own)
