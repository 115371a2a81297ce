"""Workloads at the edge: far too many, far too long, nothing to say, no room at all."""

import json
from math import inf

import numpy as np
import pytest

import perfmodel as pm
from perfmodel import data
from perfmodel.batching import chunked_prefill_time
from perfmodel.simulate.cluster import simulate
from perfmodel.simulate.generate import closed_loop, poisson
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import POLICIES, Settings

SERVER = pm.Deployment(data.model("llama-3.1-8b"), data.accelerator("h100-sxm"))


def rules(policy, **more):
    return Settings(policy=policy, **({"reserve": 4096} if policy == "contiguous" else {}), **more)


@pytest.mark.parametrize("policy", POLICIES)
def test_far_past_saturation(policy):
    """Ten thousand a second where some forty can be served: the queue grows, all are served, at the highest rate."""
    found = simulate(poisson(10_000, 2000, 800, 40), SERVER, rules(policy, max_num_seqs=200))
    assert found.finished.all()
    last = simulate(poisson(10_000, 1000, 800, 40), SERVER, rules(policy, max_num_seqs=200))
    assert found.summary()["request_rate"] == pytest.approx(last.summary()["request_rate"], rel=0.1)
    assert found.wait.max() == pytest.approx(2 * last.wait.max(), rel=0.15)


def test_a_prompt_of_a_hundred_thousand_tokens():
    """Thirteen chunks, each behind a longer prefix."""
    found = simulate(Requests([0.0], [100_000], [2]), SERVER, keep=True)
    assert found.ttft[0] == pytest.approx(float(chunked_prefill_time(SERVER, 100_000, 8192)), rel=1e-9)
    assert found.chunks["tokens"].tolist() == [8192] * 12 + [100_000 - 12 * 8192]


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_to_say(policy):
    """Requests without output end with their prefill: no first token, no time per token."""
    found = simulate(Requests([0.0] * 5, [100] * 5, [0] * 5), SERVER, rules(policy))
    assert found.finished.all()
    summary = found.summary(ttft=0.1, tpot=0.1)
    assert summary["ttft_s"]["mean"] is summary["tpot_s"]["p99"] is summary["itl_s"]["mean"] is None
    assert summary["compliant_share"] == 1
    assert summary["e2e_s"]["mean"] > 0
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_at_once(policy):
    """A thousand at the same moment come in the order of the table."""
    found = simulate(
        Requests(np.zeros(1000), np.full(1000, 50), np.full(1000, 3)), SERVER, rules(policy, max_num_seqs=64)
    )
    assert (np.diff(found.scheduled) >= 0).all()
    assert found.finished.all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_too_small_for_one(policy):
    found = simulate(poisson(5, 20, 100, 10), SERVER, rules(policy, num_blocks=3))
    assert len(found.refused) == 20
    assert all(found.refused.values())
    summary = found.summary(ttft=1)
    assert (summary["finished"], summary["duration_s"], summary["throughput_tok_s"]) == (0, 0, 0)
    assert summary["compliant_share"] == 0
    json.dumps(summary, allow_nan=False)


def test_refused_users_send_their_next():
    """A closed loop does not stop at a request that can never run: the second and fourth are too long."""
    lengths = np.array([100, 5000, 100, 5000, 100])
    found = simulate(closed_loop(1, 5, lengths, 10), SERVER, Settings(num_blocks=100))
    assert sorted(found.refused) == [1, 3]
    assert found.finished.tolist() == [True, False, True, False, True]
    assert (found.arrival[2], found.arrival[4]) == (found.finish[0], found.finish[2])


def test_memory_grows_with_steps_and_not_with_tokens():
    """What a run keeps is some bytes for each request and step, not for each token."""
    short, long = (
        simulate(Requests([0.0] * 50, [10] * 50, [n] * 50), SERVER, Settings(num_blocks=inf)) for n in (1000, 4000)
    )
    assert len(long.gap_s) == long.steps - 1 == 3999
    assert long.gap_count.sum() == 50 * 3999
    assert len(short.gap_s) == 999
    assert long.runs == {}
