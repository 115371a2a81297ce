"""Accelerator-seconds, dollars and joules of a token: conservation, and published bills."""

import numpy as np
import pytest
from examples import SOURCE, deployments, refused
from hypothesis import given
from hypothesis import strategies as st
from test_dimensions import ONE, second

import perfmodel as pm
from perfmodel.economics import TokenCost, accelerator_seconds, dollars_per_token, joules_per_token

OPS_CALLS = {
    "accelerator_seconds": lambda d, B, S, n, s: accelerator_seconds(d, B, S, n),
    "dollars_per_token": lambda d, B, S, n, s: dollars_per_token(TokenCost(B * 1e-6, n * 1e-6), S * 1e-3, 0.5),
    "joules_per_token": lambda d, B, S, n, s: joules_per_token(TokenCost(B * 1e-6, n * 1e-6), S, 1.2, 0.5, s),
}
DIMENSION_CALLS = {  # dollars and joules are counted
    "accelerator_seconds": (second, lambda d, u: accelerator_seconds(d, 64, 1024, 256)),
    "dollars_per_token": (
        ONE,
        lambda d, u: dollars_per_token(TokenCost(1e-6 * u(second), 1e-4 * u(second)), 2 / 3600 / u(second), 0.5),
    ),
    "joules_per_token": (
        ONE,
        lambda d, u: joules_per_token(
            TokenCost(1e-6 * u(second), 1e-4 * u(second)), 700 / u(second), 1.2, 0.5, 100 / u(second)
        ),
    ),
}

HOUR, DAY = 3600, 86400


def test_the_bill_of_a_day_of_deepseek():
    """27 and 28 February 2025 (deepseek-ai/open-infra-index, day 6): 608e9 input and 168e9 output tokens, 73.7e3 and
    14.8e3 a second of a node of 8 in each pool; 226.75 nodes on average, $87,072 at $2 an hour of an accelerator.

    So the two pools account for the nodes. The throughputs have three digits.
    """
    seconds = TokenCost(input=8 / 73.7e3, output=8 / 14.8e3)
    nodes = seconds.request(608e9, 168e9) / 8 / DAY
    assert nodes == pytest.approx(226.75, rel=0.005)
    bill = dollars_per_token(seconds, price=2 / HOUR)
    assert bill.request(608e9, 168e9) == pytest.approx(87072, rel=0.005)
    # By hand: a node costs $16 an hour, in which it takes 265.3e6 input tokens or gives 53.28e6 output tokens.
    assert (1e6 * bill.input, 1e6 * bill.output) == pytest.approx((16 / 265.32, 16 / 53.28))


def test_the_energy_of_a_query():
    """Epoch AI (epoch.ai/gradient-updates/how-much-energy-does-chatgpt-use and its spreadsheet): 500 tokens of 100e9
    active parameters at a tenth of 989 TFLOP/s; a server of 1,275 W an accelerator, 70 % of it in use, PUE 1.2."""
    seconds = TokenCost(input=0, output=2 * 100e9 / (0.1 * 989e12))
    query = joules_per_token(seconds, power=0.7 * 1275, pue=1.2).request(0, 500)
    assert query / 3600 == pytest.approx(0.301, abs=0.0005)  # watt-hours


def test_a_request_by_hand():
    """Four devices: a prefill of 49.2 ms is theirs alone, a step of 12.45 ms is shared by 64."""
    deployment = pm.Deployment(SOURCE.model, SOURCE.accelerator, tensor_parallel=4)
    prefill = (2 * 70e9 * 1024 + 2 * 1024 * 1025 * 64 * 128 * 80) / (4 * 742e12)
    step = (35e9 + 64 * (1024 + 128) * 2 * 80 * 8 * 128 * 2 / 4) / 3.35e12
    cost = accelerator_seconds(deployment, 64, 1024, 256)
    assert cost.input == pytest.approx(4 * prefill / 1024, rel=1e-9)
    assert cost.output == pytest.approx(4 * step * 255 / (64 * 256), rel=1e-9)


@given(deployments(), st.integers(1, 4096), st.integers(1, 100_000), st.integers(2, 10_000))
def test_tokens_pay_for_all_the_time_there_is(deployment, batch, prompt, output):
    """What a request costs times requests a second is the number of accelerators: the closed loop of `estimate`."""
    result = pm.estimate(deployment, pm.Workload(prompt, output, batch))
    requests = result.throughput_tok_s / output
    accelerators = deployment.tensor_parallel * deployment.data_parallel
    cost = accelerator_seconds(deployment, batch, prompt, output)
    assert cost.request(prompt, output) * requests == pytest.approx(accelerators, rel=1e-9)


def test_one_output_token_is_the_prefill_s():
    assert accelerator_seconds(SOURCE, 1, 100, 1).output == 0


def test_stages_of_a_pipeline_share_a_prefill():
    """Two stages of half the layers: the whole model's prefill takes as long, on two devices, with another between."""
    ideal = pm.Deployment(SOURCE.model, SOURCE.accelerator, pipeline_parallel=2)
    assert accelerator_seconds(ideal, 64, 4096, 256).input == pytest.approx(
        accelerator_seconds(SOURCE, 64, 4096, 256).input, rel=1e-9
    )
    half = accelerator_seconds(SOURCE, 32, 4096, 256).output
    assert accelerator_seconds(ideal, 64, 4096, 256).output == pytest.approx(half, rel=1e-9)


costs = st.builds(TokenCost, input=st.floats(1e-9, 1), output=st.floats(1e-9, 1))


@given(costs, st.floats(0, 1), st.floats(0.01, 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_idle_time_is_paid_by_the_tokens(cost, price, busy, prompt, output):
    found = dollars_per_token(cost, price, busy)
    assert (found.input, found.output) == pytest.approx((cost.input * price / busy, cost.output * price / busy))
    assert found.request(prompt, output) == pytest.approx(found.input * prompt + found.output * output)
    assert dollars_per_token(cost, price) == TokenCost(cost.input * price, cost.output * price)


@given(costs, st.floats(1, 1000), st.floats(1, 2), st.floats(0.01, 1), st.floats(0, 300))
def test_a_day_s_energy_is_that_of_work_and_idleness(cost, power, pue, busy, idle_power):
    """An accelerator that works `busy` of a day makes so many tokens; they share what it takes all day."""
    tokens = busy * DAY / cost.output
    day = pue * (power * busy * DAY + idle_power * (1 - busy) * DAY)
    found = joules_per_token(cost, power, pue, busy, idle_power)
    assert found.output * tokens == pytest.approx(day, rel=1e-9)
    assert found.input * cost.output == pytest.approx(found.output * cost.input, rel=1e-9)
    assert joules_per_token(cost, power).output == pytest.approx(power * cost.output)
    assert joules_per_token(cost, power, busy=busy) == joules_per_token(cost, power)  # idle without power


def test_a_larger_batch_makes_output_cheaper_and_input_no_dearer():
    cost = accelerator_seconds(SOURCE, np.array([1, 8, 64, 512]), 1024, 256)
    assert np.all(np.diff(cost.output) < 0)
    assert cost.input == pytest.approx(accelerator_seconds(SOURCE, 1, 1024, 256).input)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: accelerator_seconds(SOURCE, 0, 1, 2), ["batch=0"]),
        (lambda: accelerator_seconds(SOURCE, 1, 0, 2), ["prompt=0"]),
        (lambda: accelerator_seconds(SOURCE, 1, 1, 0), ["accelerator_seconds", "output=0", "at least 1"]),
        (lambda: dollars_per_token(TokenCost(1, 1), -1), ["dollars_per_token", "price=-1"]),
        (lambda: dollars_per_token(TokenCost(1, 1), 1, 0), ["dollars_per_token", "busy=0", "above 0"]),
        (lambda: dollars_per_token(TokenCost(1, 1), 1, 1.1), ["busy=1.1", "at most 1"]),
        (lambda: joules_per_token(TokenCost(1, 1), 0), ["joules_per_token", "power=0"]),
        (lambda: joules_per_token(TokenCost(1, 1), 1, 0.9), ["pue=0.9", "at least 1"]),
        (lambda: joules_per_token(TokenCost(1, 1), 1, 1, 0), ["joules_per_token", "busy=0"]),
        (lambda: joules_per_token(TokenCost(1, 1), 1, 1, 2), ["busy=2", "at most 1"]),
        (lambda: joules_per_token(TokenCost(1, 1), 1, 1, 1, -1), ["idle_power=-1"]),
    ],
    ids=range(11),
)
def test_bad_input(call, words):
    refused(call, *words)
