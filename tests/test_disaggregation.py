"""Prefill and decode apart: transfers, pools in balance, and when the split pays. Simulated, measured, or by hand."""

import heapq
from dataclasses import replace

import numpy as np
import pytest
from examples import SOURCE, deployments, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dimensions import ONE, second

import perfmodel as pm
from perfmodel.disaggregation import (
    exposed_transfer_time,
    kv_transfer_time,
    pool_rate,
    prefill_per_decode,
    request_time,
    split_goodput,
    transfer_share,
)
from perfmodel.queueing import md1_within
from perfmodel.slo import goodput

OPS_CALLS = {
    "exposed_transfer_time": lambda d, B, S, n, s: exposed_transfer_time(S * 1e-3, s * 1e-3, n),
    "kv_transfer_time": lambda d, B, S, n, s: kv_transfer_time(d, S, d.link, d.tensor_parallel, n),
    "pool_rate": lambda d, B, S, n, s: pool_rate(n, S, B, n, 0.05, 0.02 + B * 1e-4, 0.03),
    "prefill_per_decode": lambda d, B, S, n, s: prefill_per_decode(B, n, 1e-4 * S, 0.01 + 1e-6 * B * s, 1e-5 * S),
    "request_time": lambda d, B, S, n, s: request_time(B, n, 1e-4 * S, 0.01 + 1e-6 * B * s, 1e-5 * S),
    "transfer_share": lambda d, B, S, n, s: transfer_share(S * 1e-3, s * 1e-3, n),
}
NUMERIC_CALLS = {  # by bisection, as `goodput`
    "split_goodput": lambda d, B, S, n, s: split_goodput(d, S, n, 0.5, 0.05, 1e-5 * S),
}
DIMENSION_CALLS = {
    "exposed_transfer_time": (second, lambda d, u: exposed_transfer_time(0.2 * u(second), 0.1 * u(second), 80)),
    "kv_transfer_time": (second, lambda d, u: kv_transfer_time(d, 1024, d.link, 4, 80)),
    "pool_rate": (
        1 / second,
        lambda d, u: pool_rate(1, 3, 64, 256, 0.05 * u(second), 0.01 * u(second), 0.02 * u(second)),
    ),
    "prefill_per_decode": (ONE, lambda d, u: prefill_per_decode(64, 256, 0.05 * u(second), 0.01 * u(second))),
    "request_time": (
        second,
        lambda d, u: request_time(64, 256, 0.05 * u(second), 0.01 * u(second), 0.02 * u(second)),
    ),
    "split_goodput": (
        1 / second,
        lambda d, u: split_goodput(d, 1024, 256, 0.5 * u(second), 0.05 * u(second), 0.01 * u(second)),
    ),
    "transfer_share": (ONE, lambda d, u: transfer_share(0.2 * u(second), 0.1 * u(second), 80)),
}


def line(bandwidth, latency=0):
    return pm.Link("any", bandwidth=bandwidth, latency=latency)


TP4 = replace(SOURCE, tensor_parallel=4)
# A model by its cache alone: 94 layers of 4 key-value heads of 128, as Qwen3-235B-A22B.
WIDE = pm.Model("cache", layers=94, hidden_size=4096, heads=64, kv_heads=4, head_dim=128, ffn_size=1, vocab_size=0)
OPT_66B = pm.Model("OPT", layers=64, hidden_size=9216, heads=72, kv_heads=72, head_dim=128, ffn_size=1, vocab_size=0)


# The transfer


def test_pd_01_the_rate_that_a_connector_logs():
    """167 MB in 38.7 ms on average over some 2,000 transfers is 4,319 MB/s (vllm-project/vllm issue 50913)."""
    prompt = 167e6 / (2 * 80 * 8 * 128 * 2)  # tokens of the source's model that make up 167 MB
    time = kv_transfer_time(SOURCE, prompt, line(4319e6))
    assert time == pytest.approx(38.7e-3, rel=10 / 4319)  # the tolerance of the case
    assert 167e6 / time == pytest.approx(4319e6)


@pytest.mark.parametrize(
    ("claim", "prompt", "share_of_prefill"),
    [("c04.3-05", 32768, 0.086105096), ("c04.3-06", 128, 0.080266915), ("c04.4-02", 512, 0.13761699)],
)
def test_transfer_over_prefill_on_four_devices_and_one_link(claim, prompt, share_of_prefill):
    """By the article's formulas in full precision; 10.737 GB and 214.7 ms for 32,768 tokens (c04.3-02, -03)."""
    transfer = kv_transfer_time(SOURCE, prompt, line(50e9))
    if prompt == 32768:
        assert transfer == pytest.approx(0.21474836, rel=1e-7)
    prefill = pm.prefill_time(TP4, prompt, causal=False).by_totals
    assert transfer / prefill == pytest.approx(share_of_prefill, rel=1e-6), claim
    assert transfer_share(transfer, prefill) == pytest.approx(share_of_prefill / (1 + share_of_prefill), rel=1e-6)


def test_the_cache_of_a_request_to_opt_66b():
    """DistServe (OSDI 2024, section 3.3): 1.13 GB for 512 tokens; it counts 2**30 bytes."""
    opt = replace(SOURCE, model=OPT_66B)
    assert kv_transfer_time(opt, 512, line(2**30)) == pytest.approx(1.13, abs=0.005)


def test_latency_and_bandwidth_explain_measured_transfers():
    """Mooncake's engine over 4 x 400 GbE, Qwen3-235B: the share of 200 GB/s by tokens sent (kvcache-ai/Mooncake,
    sglang-benchmark-results-v1). Two rows give the latency, 0.8 ms, and the bandwidth; the other six follow."""
    reached = {128: 0.119, 512: 0.331, 1024: 0.497, 2048: 0.613, 4096: 0.720, 8192: 0.776, 16384: 0.806, 32768: 0.822}
    token = 2 * 94 * 4 * 128 * 2
    times = {tokens: tokens * token / (share * 200e9) for tokens, share in reached.items()}
    bandwidth = (32768 - 1024) * token / (times[32768] - times[1024])
    link = line(bandwidth, times[1024] - 1024 * token / bandwidth)
    assert link.latency == pytest.approx(0.8e-3, rel=0.05)
    for tokens, measured in times.items():
        predicted = kv_transfer_time(replace(SOURCE, model=WIDE), tokens, link)
        assert predicted == pytest.approx(measured, rel=0.1), tokens  # a first-order model of a real network


def test_links_share_the_bytes_and_every_message_waits():
    once = kv_transfer_time(SOURCE, 1000, line(50e9, 1e-3))
    assert once == pytest.approx(1e-3 + 327_680_000 / 50e9)
    assert kv_transfer_time(SOURCE, 1000, line(50e9, 1e-3), links=4) == pytest.approx(1e-3 + 327_680_000 / 200e9)
    assert kv_transfer_time(SOURCE, 0, line(50e9, 1e-3)) == pytest.approx(1e-3)
    assert kv_transfer_time(SOURCE, 1000, line(50e9, 1e-3), messages=80) - once == pytest.approx(79e-3)


def exposed_by_simulation(message, layer, count):
    """A link that sends layer after layer, each once it is computed; seconds left after the last is computed."""
    free = 0.0
    for index in range(1, count + 1):
        free = max(free, index * layer) + message
    return free - count * layer


@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.integers(1, 130))
def test_what_layers_do_not_hide(transfer, prefill, layers):
    exposed = exposed_transfer_time(transfer, prefill, layers)
    assert exposed == pytest.approx(exposed_by_simulation(transfer / layers, prefill / layers, layers), rel=1e-6)
    assert max(transfer - prefill, 0) <= exposed * (1 + 1e-9)
    assert exposed <= transfer * (1 + 1e-9)
    assert exposed_transfer_time(transfer, prefill) == pytest.approx(transfer, rel=1e-9)
    assert exposed_transfer_time(transfer, prefill, 10**9) == pytest.approx(max(transfer - prefill, 0), abs=1e-6)
    share = transfer_share(transfer, prefill, layers)
    assert share == pytest.approx(exposed / (prefill + exposed), rel=1e-12)


# Pools


def simulated_rate(prefill_instances, places, prefill, stay, requests):
    """Requests a second of a closed loop: each takes a prefill instance, then a place in a batch, first come first."""
    prefilled = [(k // prefill_instances + 1) * prefill for k in range(requests)]
    free = [0.0] * places
    for ready in prefilled:
        heapq.heappush(free, max(heapq.heappop(free), ready) + stay)
    return requests / max(free)


@pytest.mark.parametrize(("prefills", "decodes", "slower"), [(1, 2, "prefill"), (3, 2, "decode"), (2, 3, "prefill")])
def test_the_slower_pool_decides(prefills, decodes, slower):
    batch, output, prefill, step, transfer = 20, 101, 0.1, 0.02, 0.5
    stay = transfer + 100 * step
    rate = pool_rate(prefills, decodes, batch, output, prefill, step, transfer)
    # By hand: 10 requests a second of each prefill instance, 20 places / 2.5 s = 8 of each decode instance.
    assert rate == pytest.approx({"prefill": prefills * 10, "decode": decodes * 8}[slower])
    found = simulated_rate(prefills, decodes * batch, prefill, stay, 4000)
    assert rate == pytest.approx(found, rel=0.02)  # the start and the end of the run


def test_balance_by_hand():
    assert prefill_per_decode(20, 101, 0.1, 0.02) == pytest.approx(1)  # 10 requests a second from each
    assert pool_rate(1, 1, 20, 101, 0.1, 0.02) == pytest.approx(10)
    assert pool_rate(2, 1, 20, 101, 0.1, 0.02) == pytest.approx(10)
    assert prefill_per_decode(20, 101, 0.1, 0.02, transfer=0.5) == pytest.approx(0.8)
    assert request_time(20, 101, 0.1, 0.02, transfer=0.5) == pytest.approx(0.225)


seconds = st.floats(1e-3, 1)


@given(st.integers(1, 1000), st.integers(2, 1000), seconds, seconds, st.floats(0, 1))
def test_pools_in_balance_cost_what_an_instance_with_both_costs(batch, output, prefill, step, transfer):
    ratio = prefill_per_decode(batch, output, prefill, step, transfer)
    rate = pool_rate(ratio, 1, batch, output, prefill, step, transfer) / (ratio + 1)
    assert rate == pytest.approx(1 / request_time(batch, output, prefill, step, transfer), rel=1e-9)
    # A colocated closed loop, by Little's law: B requests, each there for its prefill and N_out - 1 held-up steps.
    tpot = step + pm.prefill_interference(batch, output, prefill)
    colocated = batch / pm.end_to_end(prefill, tpot, output)
    assert colocated == pytest.approx(1 / request_time(batch, output, prefill, step), rel=1e-9)
    # Any other division of the same instances serves less.
    for part in (0.9, 1.1):
        prefills = ratio / (ratio + 1) * part
        if prefills < 1:
            assert pool_rate(prefills, 1 - prefills, batch, output, prefill, step, transfer) < rate


# The limits

H100S = replace(TP4, accelerator=replace(TP4.accelerator, memory_capacity=80e9))
QWEN = pm.Model("mixture", 48, 2048, 32, 4, 128, ffn_size=768, vocab_size=151936, experts=128, experts_per_token=8)


def pool_by_hand(deployment, prompt, output, ttft, tpot, transfer):
    """Requests a second that start on one prefill instance and end on one decode instance, by trying all batches."""
    first = pm.prefill_time(deployment, prompt).total
    batch = np.arange(1, pm.max_concurrency(deployment, prompt + output) + 1)
    step = pm.decode_time(deployment, batch, prompt + output / 2).total
    ended = np.where(step <= tpot, batch / ((output - 1) * step + transfer), 0).max(initial=0)
    stage = first / deployment.pipeline_parallel  # until the next prefill may follow
    rates = np.linspace(0.001, 0.999, 999) / stage
    kept = md1_within(rates, stage, ttft - first - transfer) >= 0.9
    return np.where(kept, rates, 0).max(), ended


@pytest.mark.parametrize(
    "deployment",
    [H100S, replace(H100S, model=QWEN), replace(H100S, pipeline_parallel=2)],
    ids=["dense", "mixture", "pipeline"],
)
@pytest.mark.parametrize("tpot", [0.015, 0.03, 0.2])
@pytest.mark.parametrize(("ttft", "transfer"), [(0.3, 0), (0.3, 0.1), (3, 2)])
def test_pools_serve_what_their_best_division_serves(deployment, tpot, ttft, transfer):
    started, ended = pool_by_hand(deployment, 1024, 256, ttft, tpot, transfer)
    prefills = np.linspace(0, 1, 10_001)
    best = np.minimum(prefills * started, (1 - prefills) * ended).max()
    found = split_goodput(deployment, 1024, 256, ttft, tpot, transfer)
    assert found == pytest.approx(best, rel=0.005)  # of the loads tried
    assert split_goodput(replace(deployment, data_parallel=3), 1024, 256, ttft, tpot, transfer) == pytest.approx(
        3 * found
    )


def test_a_limit_that_leaves_no_time_to_wait():
    """Nine of ten find an M/D/1 server idle if it works a tenth of the time; decoding takes its batch of 338."""
    prefill = pm.prefill_time(H100S, 1024).total
    batch = pm.max_concurrency(H100S, 1280)
    step = pm.decode_time(H100S, batch, 1152).total
    for transfer in np.arange(1, 30) / 100:  # for some of them the limit less its parts is a last digit below 0
        found = split_goodput(H100S, 1024, 256, prefill + transfer, 0.05, transfer)
        assert found == pytest.approx(1 / (prefill / 0.1 + (255 * step + transfer) / batch), rel=1e-6)


def test_a_memory_that_holds_one_request():
    prompt, output = 250_000, 256
    assert pm.max_concurrency(H100S, prompt + output) == 1
    prefill, step = pm.prefill_time(H100S, prompt).total, pm.decode_time(H100S, 1, prompt + 128).total
    found = split_goodput(H100S, prompt, output, prefill, 1)
    assert found == pytest.approx(1 / (prefill / 0.1 + 255 * step), rel=1e-6)


def test_the_split_pays_where_tpot_binds_and_not_where_memory_does():
    """The source's 70B on four devices of 80 GB: prefills leave room for few requests within 20 ms a token, and
    for all that fit within 200 ms."""
    limits = {"prompt": 1024, "output": 256, "ttft_limit": 1}
    assert split_goodput(H100S, **limits, tpot_limit=0.02) > 1.5 * goodput(H100S, **limits, tpot_limit=0.02)
    few = {"prompt": 1024, "output": 4096, "ttft_limit": 30, "tpot_limit": 0.2}
    assert split_goodput(H100S, **few) == pytest.approx(goodput(H100S, **few), rel=0.05)
    assert split_goodput(H100S, **few, transfer=10) < 0.95 * goodput(H100S, **few)


times = st.floats(1e-3, 10)


@given(deployments(), st.integers(1, 10_000), st.integers(2, 5_000), times, times, st.floats(0, 1), st.floats(1, 3))
@settings(max_examples=30)
def test_more_time_never_serves_less_and_a_transfer_never_more(deployment, prompt, output, ttft, tpot, transfer, more):
    def rate(ttft, tpot, transfer):
        return split_goodput(deployment, prompt, output, ttft, tpot, transfer)

    slack = 1 - 1e-9
    base = rate(ttft, tpot, transfer)
    assert base >= 0
    assert rate(more * ttft, tpot, transfer) >= base * slack
    assert rate(ttft, more * tpot, transfer) >= base * slack
    assert rate(ttft, tpot, transfer / more) >= base * slack


def test_a_limit_that_cannot_be_kept_serves_none():
    first = pm.prefill_time(H100S, 1024).total
    assert split_goodput(H100S, 1024, 256, 0.9 * first, 0.05) == 0
    assert split_goodput(H100S, 1024, 256, 1, 0.005) == 0
    assert split_goodput(H100S, 1024, 256, 0.9 * first, 0.005) == 0
    served = split_goodput(H100S, np.array([1024, 200_000]), 256, 1, 0.05)
    assert served[1] == 0 < served[0] == split_goodput(H100S, 1024, 256, 1, 0.05)


# Bad input


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kv_transfer_time(SOURCE, "long", line(1e9)), ["kv_transfer_time", "prompt='long'"]),
        (lambda: kv_transfer_time(SOURCE, 1, line(1e9), links=0), ["links=0", "at least 1"]),
        (lambda: kv_transfer_time(SOURCE, 1, line(1e9), messages=0), ["messages=0", "at least 1"]),
        (lambda: exposed_transfer_time(-1, 1), ["transfer=-1"]),
        (lambda: exposed_transfer_time(1, float("inf")), ["prefill=inf"]),
        (lambda: exposed_transfer_time(1, 1, 0), ["messages=0"]),
        (lambda: request_time(0, 2, 1, 1), ["request_time", "batch=0"]),
        (lambda: request_time(1, 1, 1, 1), ["output=1", "at least 2"]),
        (lambda: prefill_per_decode(1, 1, 1, 1), ["prefill_per_decode", "output=1"]),
        (lambda: pool_rate(0, 1, 1, 2, 1, 1), ["pool_rate", "prefill_instances=0"]),
        (lambda: pool_rate(1, 0, 1, 2, 1, 1), ["decode_instances=0"]),
        (lambda: split_goodput(SOURCE, 1024, 256, -1, 1), ["split_goodput", "ttft_limit=-1"]),
        (lambda: split_goodput(SOURCE, 1024, 256, 1, 0), ["limit=0"]),
        (lambda: split_goodput(SOURCE, 1024, 1, 1, 1), ["split_goodput", "output=1", "at least 2"]),
        (lambda: split_goodput(SOURCE, 1024, 256, 1, 1, -1), ["split_goodput", "transfer=-1", "at least 0"]),
    ],
    ids=range(15),
)
def test_bad_input(call, words):
    refused(call, *words)
