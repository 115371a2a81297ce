"""What the tests share: deployments, Hypothesis strategies for any, configs, and how a refusal looks."""

import json
import os
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data

# The same examples every time, so that a build does not fail by luck; HYPOTHESIS_PROFILE=search looks further.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=3000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# The source's inputs: 70e9 parameters, 742 TFLOP/s and 3.35 TB/s on one hypothetical device that holds everything.
SOURCE_MODEL = pm.Model.of_size("70B", 70e9, layers=80, heads=64, kv_heads=8, head_dim=128)
SOURCE_DEVICE = pm.Accelerator("hypothetical", memory_capacity=1e12, memory_bandwidth=3.35e12, bf16_flops=742e12)
SOURCE = pm.Deployment(SOURCE_MODEL, SOURCE_DEVICE)

MODELS = data.names("model")
ACCELERATORS = data.names("accelerator")


# A small model of each kind of attention; the latent one has the shapes of DeepSeek-V3.
LATENT = pm.Model(
    name="latent",
    layers=61,
    hidden_size=7168,
    heads=128,
    kv_heads=128,
    head_dim=192,
    ffn_size=2048,
    vocab_size=129280,
    experts=256,
    experts_per_token=8,
    shared_ffn_size=2048,
    dense_layers=3,
    dense_ffn_size=18432,
    latent=pm.Latent(kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128, query_rank=1536),
    router_bias=True,
)
INDEXER = pm.Indexer(heads=64, head_dim=128, selected=2048, key_bytes=132)
WINDOWED = pm.Model(
    name="windowed",
    layers=24,
    hidden_size=2880,
    heads=64,
    kv_heads=8,
    head_dim=64,
    ffn_size=2880,
    vocab_size=201088,
    experts=32,
    experts_per_token=4,
    window=pm.Window(tokens=128, layers=12),
    biases=8192,
    ffn_bias=True,
    router_bias=True,
    qk_norm=True,
)
EVERY_DEGREE = {
    "pipeline_parallel": 2,
    "context_parallel": 2,
    "decode_context_parallel": 4,
    "expert_parallel": True,
    "constants": pm.Constants(0.9, 0.6, 1e-3, expert_imbalance=1.25),
}


def served(model="llama-2-70b", accelerator="h100-sxm", tensor_parallel=4, **given):
    """A shipped model on a shipped accelerator, with its link and the fitted constants."""
    machine = data.accelerator(accelerator)
    settings = {"link": machine.link, "constants": data.constants(), "tensor_parallel": tensor_parallel} | given
    return pm.Deployment(data.model(model) if isinstance(model, str) else model, machine, **settings)


def cache_of(budget, tensor_parallel=1, block_size=16, kv_bytes=2, **shape):
    """A deployment whose accelerators have `budget` bytes each left for the KV cache, and that block size as keyword.

    Engines log what is left after weights and activations. Here the capacity is made to leave as much: only the shape
    of the attention matters, and a step of no tokens has no activations.
    """
    shape = {"heads": shape["kv_heads"] * 8} | shape
    model = pm.Model(name="log", hidden_size=shape["heads"] * shape["head_dim"], ffn_size=1, vocab_size=0, **shape)
    weights = 2 * pm.total_parameters(model) / tensor_parallel
    machine = pm.Accelerator("log", memory_capacity=budget + weights, memory_bandwidth=1e12, bf16_flops=1e12)
    deployment = pm.Deployment(model, machine, tensor_parallel=tensor_parallel, kv_bytes=kv_bytes, memory_utilization=1)
    return deployment, {"block_size": block_size, "step_tokens": 0}


@st.composite
def models(draw, experts=True, bare=False):
    """Any model; `bare` has neither vocabulary nor norms."""
    kv_heads = draw(st.integers(1, 16))
    count = draw(st.integers(2, 64)) if experts and draw(st.booleans()) else 1
    return pm.Model(
        name="any",
        layers=draw(st.integers(1, 130)),
        hidden_size=draw(st.integers(64, 20_000)),
        heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([64, 80, 128, 256])),
        ffn_size=draw(st.integers(64, 60_000)),
        vocab_size=0 if bare else draw(st.integers(1, 300_000)),
        experts=count,
        experts_per_token=draw(st.integers(1, count)),
        norms=0 if bare else 2,
        tied_embeddings=draw(st.booleans()),
    )


@st.composite
def accelerators(draw):
    """Any accelerator between an old and a future one."""
    return pm.Accelerator(
        name="any",
        memory_capacity=draw(st.floats(1e10, 1e12)),
        memory_bandwidth=draw(st.floats(1e11, 1e13)),
        bf16_flops=draw(st.floats(1e13, 1e16)),
    )


links = st.builds(pm.Link, name=st.just("any"), bandwidth=st.floats(1e9, 1e12), latency=st.floats(0, 1e-3))
constants = st.builds(
    pm.Constants,
    bandwidth_efficiency=st.floats(0.1, 1),
    flops_efficiency=st.floats(0.1, 1),
    step_overhead=st.floats(0, 0.01),
)


@st.composite
def deployments(draw, ideal=False, **which):
    """Any deployment whose tensor parallelism its heads allow; `ideal` has no link and perfect constants."""
    model = draw(models(**which))
    fits = [t for t in range(1, 65) if not model.heads % t and (not model.kv_heads % t or not t % model.kv_heads)]
    return pm.Deployment(
        model,
        draw(accelerators()),
        link=None if ideal else draw(st.none() | links),
        tensor_parallel=draw(st.sampled_from(fits)),
        data_parallel=draw(st.integers(1, 8)),
        weight_bytes=draw(st.sampled_from([0.5, 1, 2, 4])),
        kv_bytes=draw(st.sampled_from([1, 2])),
        memory_utilization=draw(st.floats(0.1, 1)),
        constants=pm.IDEAL if ideal else draw(constants),
    )


batches = st.integers(1, 4096)
tokens = st.integers(1, 1_000_000)


# Published configs, and their keys changed

CONFIGS = Path(__file__).parent / "data" / "configs"
LLAMA = json.loads((CONFIGS / "meta-llama--Meta-Llama-3.1-8B.json").read_text(encoding="utf-8"))
ABSENT = Enum("Setting", "ABSENT").ABSENT  # says its name in the title of a test


def config(base=LLAMA, **changes):
    """A config with keys changed or, if ABSENT, taken out."""
    return {key: value for key, value in (base | changes).items() if value is not ABSENT}


def refused(call, *words):
    """`call` raises ValueError in one line that holds all the words."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are checked below
        call()
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 300
    for word in words:
        assert word in message, message


def label(value):
    """A test's name: a field as it is, an instance by its class, a value by the start of its text."""
    if isinstance(value, str):
        return value[:40]
    return type(value).__name__ if hasattr(value, "__dataclass_fields__") else " ".join(repr(value).split())[:40]
