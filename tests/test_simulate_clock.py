"""The clock of the simulator gives the times of the formulas, for any mix of a step."""

from dataclasses import replace

import numpy as np
import pytest
from examples import INDEXER, LATENT, WINDOWED, refused
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data
from perfmodel.simulate.clock import StepClock

SERVED = data.constants("default")
H100 = data.accelerator("h100-sxm")
MODELS = {
    "dense": data.model("llama-3.1-8b"),
    "mixture": data.model("mixtral-8x7b"),
    "latent": LATENT,
    "indexed": replace(LATENT, indexer=INDEXER),
    "windowed": WINDOWED,
}
DEPLOYMENTS = {
    name: pm.Deployment(model, H100, link=H100.link, tensor_parallel=4, constants=SERVED)
    for name, model in MODELS.items()
}
DEPLOYMENTS["expert-parallel"] = replace(DEPLOYMENTS["latent"], expert_parallel=True, data_parallel=4)

each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
each_roof = pytest.mark.parametrize("by_totals", [False, True], ids=["parts", "totals"])
batches, contexts = st.integers(1, 300), st.integers(1, 5000)
chunks = st.tuples(st.integers(2, 3000), st.integers(0, 5000))


def time_of(step, by_totals):
    return pytest.approx(float(step.by_totals if by_totals else step.total), rel=1e-12)


@each_deployment
@each_roof
@settings(max_examples=25)
@given(batches, contexts)
def test_decoding(deployment, by_totals, batch, context):
    clock = StepClock(deployment, by_totals)
    assert clock.step([context] * batch, []) == time_of(pm.decode_time(deployment, batch, context), by_totals)


@each_deployment
@each_roof
@settings(max_examples=25)
@given(chunks)
def test_a_prompt_alone(deployment, by_totals, chunk):
    tokens, prefix = chunk
    clock = StepClock(deployment, by_totals)
    assert clock.step([], [chunk]) == time_of(pm.prefill_time(deployment, tokens, prefix=prefix), by_totals)


@each_deployment
@each_roof
@settings(max_examples=25)
@given(batches, contexts, chunks)
def test_a_chunk_among_decoders(deployment, by_totals, batch, context, chunk):
    tokens, prefix = chunk
    clock = StepClock(deployment, by_totals)
    expected = pm.mixed_time(deployment, batch, context, tokens, prefix)
    assert clock.step([context] * batch, [chunk]) == time_of(expected, by_totals)


@each_deployment
@settings(max_examples=25)
@given(batches, contexts, st.integers(1, 7))
def test_verifying_drafts(deployment, batch, context, drafts):
    """gamma + 1 tokens of each request, and gamma draft steps that each cost a tenth of a plain one."""
    found = StepClock(deployment).step([context] * batch, [], [drafts + 1] * batch, drafts / 10)
    verify = pm.decode_time(deployment, batch, context, drafts + 1).total
    assert found == pytest.approx(float(verify + drafts / 10 * pm.decode_time(deployment, batch, context).total))


@each_deployment
def test_contexts_may_differ(deployment):
    """Attention is a sum over the requests; all else is one."""
    contexts = [5, 100, 127, 128, 129, 2047, 2048, 2049, 30_000]
    together, one = StepClock(deployment).step(contexts, []), pm.decode_time(deployment, len(contexts), 0).total
    alone = [pm.decode_time(deployment, 1, context) for context in contexts]
    compute, memory = (sum(float(getattr(step, roof).attention) for step in alone) for roof in ("compute", "memory"))
    assert together == pytest.approx(float(one) + max(compute, memory), rel=1e-12)


@each_deployment
@each_roof
@settings(max_examples=25)
@given(st.lists(contexts, min_size=1, max_size=40), st.integers(1, 200))
def test_steps_at_once_are_the_steps_one_by_one(deployment, by_totals, contexts, steps):
    clock = StepClock(deployment, by_totals)
    one_by_one = [clock.step([context + ahead for context in contexts], []) for ahead in range(steps)]
    assert clock.decode(np.array(contexts), steps).tolist() == one_by_one


def test_many_tokens():
    deployment = DEPLOYMENTS["dense"]
    expected = float(pm.prefill_time(deployment, 500_000).total)
    assert StepClock(deployment).step([], [(500_000, 0)]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("degree", ["pipeline_parallel", "context_parallel"])
def test_what_is_not_simulated_is_refused(degree):
    refused(lambda: StepClock(replace(DEPLOYMENTS["dense"], **{degree: 2})), "StepClock", f"{degree}=2", "must be 1")
