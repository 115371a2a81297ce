"""What `perfmodel simulate` is asked: its own options, and the requests, rules and pools that they describe."""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import inf
from typing import Any

from perfmodel.data import Catalogue
from perfmodel.deployment import Deployment
from perfmodel.options import Option, choice, count, name, natural, number, seconds
from perfmodel.simulate import generate, traces
from perfmodel.simulate.cluster import DecodePool
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.routers import ROUTERS
from perfmodel.simulate.settings import POLICIES, Settings


def blocks(text: str) -> float:
    """A whole number, or none that matters."""
    return inf if text == "unlimited" else count(text)


GROUPS = {
    "requests": {
        "--trace": Option("trace", name, "file of requests, in the format that --format names", "FILE"),
        "--format": choice("format", ("azure", "mooncake", "csv"), "what the trace is written in"),
        "--preset": choice("preset", tuple(generate.PRESETS), "drawn from published statistics, instead of a trace"),
        "--prompt": Option("prompt", count, "prompt tokens of each drawn request"),
        "--output": Option("output", natural, "output tokens of each drawn request"),
        "--requests": Option("requests", count, "how many are drawn (default: 1000), or the first so many of a trace"),
        "--rate": Option("rate", number, "requests that arrive a second; stretches or squeezes a trace", "X"),
        "--cv": Option("cv", number, "variation of the times between arrivals (default: 1, Poisson)", "X"),
        "--users": Option("users", count, "instead of --rate, a closed loop: each sends the next at the end of one"),
        "--think": Option("think", number, "seconds between the end of a user's request and the next", "SECONDS"),
        "--stagger": Option("stagger", number, "seconds between the first requests of two users", "SECONDS"),
        "--seed": Option("seed", natural, "of all that is drawn", default=0),
    },
    "engine": {
        "--policy": choice("policy", POLICIES, "how requests are scheduled", "v1"),
        "--kv-blocks": Option("num_blocks", blocks, "blocks of the KV cache, or unlimited (default: what fits)"),
        "--block-size": Option("block_size", count, "tokens of a block", default=16),
        "--max-num-batched-tokens": Option("max_num_batched_tokens", count, "token budget of a step", default=8192),
        "--max-num-seqs": Option("max_num_seqs", count, "requests that run at once", default=1024),
        "--max-model-len": Option("max_model_len", count, "tokens that a request may have"),
        "--long-prefill-token-threshold": Option(
            "long_prefill_token_threshold", natural, "most tokens of one request in a step; 0 for no limit", default=0
        ),
        "--watermark": Option("watermark", natural, "blocks that stay free when a request is admitted", default=0),
        "--reserve": Option("reserve", count, "tokens that --policy contiguous reserves for each request"),
        "--prefix-caching": choice("prefix_caching", ("on", "off"), "default: on if the requests name prefixes"),
        "--speculate": Option("num_speculative_tokens", natural, "tokens that a draft proposes in a step", default=0),
        "--acceptance": Option("acceptance", number, "chance that a proposed token is accepted", "SHARE"),
        "--draft-cost": Option("draft_cost", number, "time of a draft step over that of a decode step", "X"),
        "--swap-link": Option("swap_link", name, "link to the host, over which --policy v0 swaps", "NAME"),
    },
    "replicas": {
        "--router": choice("router", tuple(ROUTERS), "which of --dp replicas a request goes to", "round-robin"),
        "--decode-replicas": Option("decode_replicas", count, "as many more, which decode what the others prefill"),
        "--transfer-link": Option("transfer_link", name, "link between them: needed with --decode-replicas", "NAME"),
    },
    "limits": {
        "--slo-ttft": Option("ttft", seconds, "longest time to first token, in milliseconds", "MS"),
        "--slo-tpot": Option("tpot", seconds, "longest time of an output token, in milliseconds", "MS"),
    },
}
FLAGS = {
    "--no-chunked-prefill": ("no_chunked_prefill", "prompts are not cut to fit the budget"),
    "--reserve-full": ("scheduler_reserve_full_isl", "admit a request only if all its tokens fit, not the first chunk"),
    "--skip-bad": ("skip_bad", "leave bad rows of the trace out, and count them"),
}
OWN = {option.field: option.default for group in GROUPS.values() for option in group.values()}
OWN |= {field: False for field, _ in FLAGS.values()}
NEEDS = {"format": "trace", "skip_bad": "trace", "output": "prompt", "cv": "rate", "users": "prompt"}
NEEDS |= {"think": "users", "stagger": "users"}


def read_settings(given: Mapping[str, Any], told: Mapping[str, Any], catalogue: Catalogue) -> Settings:
    """The rules of the engine that the options describe."""
    for field in ("acceptance", "draft_cost"):
        if field in told and not given["num_speculative_tokens"]:
            raise ValueError(f"argument --{field.replace('_', '-')}: needs --speculate")
        if given["num_speculative_tokens"] and field not in told:
            raise ValueError("argument --speculate: needs --acceptance and --draft-cost")
    link, caching = given["swap_link"], given["prefix_caching"]
    named: dict[str, Any] = {
        item.name: given[item.name] for item in fields(Settings) if given.get(item.name) is not None
    }
    named |= {
        "enable_chunked_prefill": not given["no_chunked_prefill"],
        "enable_prefix_caching": None if caching is None else caching == "on",
        "swap_link": None if link is None else catalogue.link(link),
    }
    return Settings(**named)


def read_pool(
    given: Mapping[str, Any], deployment: Deployment, settings: Settings, catalogue: Catalogue
) -> DecodePool | None:
    """The replicas that only decode, if any."""
    replicas, link = given["decode_replicas"], given["transfer_link"]
    if (replicas is None) != (link is None):
        one, other = ("--decode-replicas", "--transfer-link")[:: 1 if link is None else -1]
        raise ValueError(f"argument {one}: needs {other}")
    if replicas is None:
        return None
    return DecodePool(replace(deployment, data_parallel=replicas), catalogue.link(link), settings)


def read_requests(given: Mapping[str, Any], told: Mapping[str, Any]) -> tuple[Requests, int]:
    """The workload, and how many bad rows were left out."""
    kinds = [f"--{kind}" for kind in ("trace", "preset", "prompt") if kind in told]
    if len(kinds) != 1:
        said = f"not both of {' and '.join(kinds[:2])}" if kinds else "none is given"
        raise ValueError(f"requests come from one of --trace, --preset and --prompt: {said}")
    for field, kind in NEEDS.items():
        if field in told and kind not in told:
            raise ValueError(f"argument --{field.replace('_', '-')}: needs --{kind}")
    n, rate = given["requests"], given["rate"]
    if "prompt" in told:
        return _drawn(given, n or 1000), 0
    if "preset" in told:
        return generate.preset(given["preset"], n or 1000, rate, given["seed"]), 0
    if given["format"] is None:
        raise ValueError("argument --trace: needs --format")
    requests, skipped = traces.read(given["trace"], given["format"], given["skip_bad"])
    requests = requests[: n or len(requests)]
    return requests if rate is None else requests.scaled(rate), skipped


def _drawn(given: Mapping[str, Any], n: int) -> Requests:
    """Requests of equal lengths, at a rate or of users in a closed loop."""
    prompt, output, rate, users, seed = (given[field] for field in ("prompt", "output", "rate", "users", "seed"))
    if output is None:
        raise ValueError("argument --prompt: needs --output")
    if (rate is None) == (users is None):
        raise ValueError("argument --prompt: needs one of --rate and --users")
    if users is None:
        return generate.gamma(rate, n, 1 if given["cv"] is None else given["cv"], prompt, output, seed)
    return generate.closed_loop(users, n, prompt, output, given["think"] or 0, given["stagger"] or 0, seed)
