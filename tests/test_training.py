"""Memory and FLOPs of training: against counts by hand and published figures."""

import numpy as np
import pytest
from examples import models, refused
from hypothesis import given
from hypothesis import strategies as st
from test_dimensions import ONE, byte

import perfmodel as pm
from perfmodel.training import RECOMPUTE, activation_memory, training_flops, training_memory

OPS_CALLS = {
    "activation_memory": lambda d, B, S, n, s: activation_memory(s, B, d.model.layers, S, n, d.tensor_parallel),
    "training_flops": lambda d, B, S, n, s: training_flops(d.model, S, B, recompute="full"),
    "training_memory": lambda d, B, S, n, s: training_memory(S * 1e6, s, 2, B),
}
DIMENSION_CALLS = {
    # Its coefficients are bytes of an element; what it multiplies are counts.
    "activation_memory": (ONE, lambda d, u: activation_memory(2048, 1, 96, 12288, 96, 8)),
    "training_flops": (ONE, lambda d, u: training_flops(d.model, 2048, 8)),
    "training_memory": (
        byte,
        lambda d, u: training_memory(7.5e9, 1e9 * u(byte), 1, 64, 2 * u(byte), 2 * u(byte), 12 * u(byte)),
    ),
}


# States


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_shares_out_7_5_billion_parameters_over_64(stage, gigabytes):
    """Figure 1 of Rajbhandari et al. 2020 (arXiv:1910.02054)."""
    assert training_memory(7.5e9, stage=stage, replicas=64).total / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_a_trillion_parameters_by_hand():
    """The same paper: 16 TB for 10**12 parameters, 16 GB on each of 1,024 ranks; 24 GB for the 1.5e9 of GPT-2."""
    assert training_memory(1e12).total == pytest.approx(16e12)
    assert training_memory(1e12, stage=3, replicas=1024).total == pytest.approx(16e9, rel=0.03)  # 1,024 for 1,000
    assert training_memory(1.5e9).total == pytest.approx(24e9)
    assert training_memory(1.5e9).weights == pytest.approx(3e9)


def test_by_default_nothing_is_shared_and_no_activation_counted():
    assert training_memory(1e9, replicas=8).total == training_memory(1e9).total
    assert training_memory(1e9, stage=3).total == training_memory(1e9).total
    assert training_memory(1e9).activations == 0


@given(st.floats(1e6, 1e12), st.integers(1, 1024), st.floats(0, 1e12))
def test_a_stage_shares_out_one_part_more(count, replicas, activations):
    memory = [training_memory(count, activations, stage, replicas, 2, 4, 8) for stage in range(4)]
    held = [(m.weights, m.gradients, m.optimizer) for m in memory]
    whole, part = np.array([2, 4, 8]) * count, np.array([2, 4, 8]) * count / replicas
    expected = [[*whole[: 3 - stage], *part[3 - stage :]] for stage in range(4)]
    assert np.array(held) == pytest.approx(np.array(expected), rel=1e-12)
    assert all(m.activations == activations for m in memory)
    assert all(m.total == pytest.approx(sum(states) + activations) for m, states in zip(memory, held, strict=True))


def test_stages_may_be_an_array():
    memory = training_memory(7.5e9, stage=np.arange(4), replicas=64)
    assert memory.total / 1e9 == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


# Activations. GPT models of Korthikanti et al. 2022 (arXiv:2205.05198), table 3: h, a, L; 2,048 tokens, t = 8
SHAPES = {"22B": (6144, 64, 48), "175B": (12288, 96, 96), "530B": (20480, 128, 105), "1T": (25600, 160, 128)}

# What one layer keeps, in bytes for each of s b h elements; True if tensor parallelism shares it out.
KEPT = [
    (2, False),  # input of the first norm
    (2, False),  # input of query, key and value
    (4, True),  # query and key
    (2, True),  # value
    (2, True),  # input of the output projection
    (1, False),  # dropout's mask
    (2, False),  # input of the second norm
    (2, False),  # input of the first matrix of the feed-forward network
    (8, True),  # its output, before GELU
    (8, True),  # after GELU
    (1, False),  # dropout's mask
]
SCORES = [2, 1, 2]  # softmax, dropout's mask, dropout's output: bytes for each of a s s b elements


@given(st.sampled_from([1, 2, 4, 8]), st.booleans(), st.sampled_from(RECOMPUTE))
def test_activations_counted_tensor_by_tensor(t, sequence_parallel, recompute):
    s, b, layers, h, a = 2048, 3, 96, 12288, 96
    kept = s * b * h * sum(size / (t if shared or sequence_parallel else 1) for size, shared in KEPT)
    scores = a * s * s * b * sum(SCORES) / t
    expected = {"none": kept + scores, "selective": kept, "full": 2 * s * b * h}[recompute]
    found = activation_memory(s, b, layers, h, a, t, sequence_parallel, recompute)
    assert found == pytest.approx(layers * expected, rel=1e-12)


@pytest.mark.parametrize(("name", "saved"), [("175B", 0.70), ("530B", 0.65)])
def test_scores_that_are_computed_again_save_as_much_as_published(name, saved):
    """Section 5: 70 % of the activations of GPT-3 and 65 % of those of MT-NLG."""
    h, a, layers = SHAPES[name]
    shape = (2048, 1, layers, h, a, 8, True)
    left = activation_memory(*shape, recompute="selective") / activation_memory(*shape)
    assert 1 - left == pytest.approx(saved, abs=0.005)


def test_both_methods_together_need_a_fifth():
    """The abstract: five times less than tensor parallelism alone, of the largest models."""
    for name in ("530B", "1T"):
        h, a, layers = SHAPES[name]
        shape = (2048, 1, layers, h, a, 8)
        ratio = activation_memory(*shape) / activation_memory(*shape, True, "selective")
        assert ratio == pytest.approx(5, abs=0.5)


@given(st.floats(1, 1e5), st.floats(1, 64), st.integers(1, 128), st.integers(64, 30_000), st.integers(1, 200))
def test_activations_grow_and_shrink_as_they_must(s, b, layers, h, a):
    shape = (s, b, layers, h, a)
    plain = activation_memory(*shape)
    assert activation_memory(s, 2 * b, layers, h, a) == pytest.approx(2 * plain)
    assert activation_memory(*shape, 8, True) == pytest.approx(plain / 8)
    assert plain / 8 <= activation_memory(*shape, 8) <= plain
    assert activation_memory(*shape, recompute="full") < activation_memory(*shape, recompute="selective") < plain
    assert activation_memory(2 * s, b, layers, h, a) > 2 * plain  # the scores grow with the square


# FLOPs


def gpt(name):
    h, a, layers = SHAPES[name]
    return pm.Model(
        name, layers, h, a, a, h // a, ffn_size=4 * h, vocab_size=51200, ffn_matrices=2, tied_embeddings=True
    )


# Model and hardware FLOPs utilisation (NVIDIA/Megatron-LM, README; table 5 of the paper), seconds of an iteration
# (table 5), sequences of it, and A100s of 312 TFLOP/s.
RUNS = {
    "22B": (0.415, 0.437, 1.10, 4, 8),
    "175B": (0.514, 0.528, 13.75, 64, 64),
    "530B": (0.560, 0.570, 37.83, 280, 280),
    "1T": (0.563, 0.570, 71.49, 512, 512),
}


@pytest.mark.parametrize("name", RUNS)
def test_utilisation_of_published_runs(name):
    mfu, hfu, seconds, sequences, accelerators = RUNS[name]
    rate = seconds * accelerators * 312e12
    plain, again = (training_flops(gpt(name), 2048, sequences, False, kind) / rate for kind in ("none", "selective"))
    # Half of the last digit printed of the time, and of the share.
    assert plain == pytest.approx(mfu, rel=0.005 / seconds, abs=0.0005)
    # The paper counts scores that are computed again like scores that are trained: three forward passes (its
    # hardware FLOPs have s / 3h where its model FLOPs have s / 6h). One is computed, and one we count.
    assert plain + 3 * (again - plain) == pytest.approx(hfu, rel=0.005 / seconds, abs=0.0005)


@pytest.mark.parametrize(("name", "published"), [("175B", 0.027), ("530B", 0.016)])
def test_computing_scores_again_costs_little(name, published):
    """Section 5 of the paper: 2.7 % and 1.6 % more FLOPs, three forward passes of the scores; we count one."""
    plain, again = (training_flops(gpt(name), 2048, 1, False, kind) for kind in ("none", "selective"))
    assert 3 * (again / plain - 1) == pytest.approx(published, abs=0.0005)


def test_gpt_3_took_3e23_flops():
    """Table D.1 of Brown et al. 2020 (arXiv:2005.14165): 300e9 tokens, 3.14e23 FLOPs, attention not counted."""
    model = pm.Model(
        "GPT-3", 96, 12288, 96, 96, 128, ffn_size=4 * 12288, vocab_size=50257, ffn_matrices=2, tied_embeddings=True
    )
    assert 300e9 * training_flops(model, 1) == pytest.approx(3.14e23, rel=0.002)  # three digits


@given(models(bare=True, experts=False), st.integers(1, 100_000), st.integers(1, 64))
def test_six_or_eight_times_the_parameters_and_attention(model, sequence, sequences):
    """Training takes 6 N FLOPs a token, serving 2 N; each also attends."""
    tokens = sequence * sequences
    attention = 4 * model.heads * model.head_dim * model.layers * tokens * (sequence + 1) / 2
    n = pm.total_parameters(model)
    found = {kind: training_flops(model, sequence, sequences, recompute=kind) for kind in RECOMPUTE}
    assert found["none"] == pytest.approx(6 * n * tokens + 3 * attention, rel=1e-9)
    assert found["selective"] == pytest.approx(6 * n * tokens + 4 * attention, rel=1e-9)
    assert found["full"] == pytest.approx(8 * n * tokens + 4 * attention, rel=1e-9)
    served = pm.prefill_flops(model, sequence, prompts=sequences).total
    assert found["none"] == pytest.approx(3 * served, rel=1e-12)


@given(models())
def test_all_tokens_go_through_the_lm_head_and_experts_count(model):
    tokens = 100
    one_by_one = sum(pm.prefill_flops(model, 1, prefix=before).total for before in range(tokens))
    assert training_flops(model, tokens) == pytest.approx(3 * one_by_one, rel=1e-9)


# Bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: training_memory(0), ["training_memory", "parameters=0"]),
        (lambda: training_memory(1e9, stage=4), ["stage=4", "at most 3"]),
        (lambda: training_memory(1e9, stage=1.5), ["stage=1.5", "whole"]),
        (lambda: training_memory(1e9, replicas=0), ["replicas=0", "at least 1"]),
        (lambda: activation_memory(0, 1, 1, 1, 1), ["activation_memory", "sequence=0"]),
        (lambda: activation_memory(1, -1, 1, 1, 1), ["sequences=-1"]),
        (lambda: activation_memory(1, 1, 0, 1, 1), ["layers=0"]),
        (lambda: activation_memory(1, 1, 1, "wide", 1), ["hidden_size='wide'", "not a number"]),
        (lambda: activation_memory(1, 1, 1, 1, None), ["heads=None"]),
        (lambda: activation_memory(1, 1, 1, 1, 1, 0), ["tensor_parallel=0"]),
        (lambda: activation_memory(1, 1, 1, 1, 1, recompute="some"), ["activation_memory", "'some'", "selective"]),
        (lambda: training_flops(gpt("22B"), 1, recompute=None), ["training_flops", "recompute=None", "full"]),
        (lambda: training_flops(gpt("22B"), 0), ["prompt=0"]),
    ],
    ids=range(13),
)
def test_bad_input(call, words):
    refused(call, *words)
