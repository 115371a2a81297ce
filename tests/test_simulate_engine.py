"""Engines under any workload: the fast way is the plain way, and what may never happen does not."""

import os
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from examples import INDEXER, LATENT, WINDOWED
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import data
from perfmodel.simulate import cluster, engine, traces
from perfmodel.simulate.cluster import DecodePool, simulate
from perfmodel.simulate.engine import Engine
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import POLICIES, Settings

H100 = data.accelerator("h100-sxm")
MODELS = [data.model("llama-3.1-8b"), data.model("mixtral-8x7b"), LATENT, replace(LATENT, indexer=INDEXER), WINDOWED]
DEPLOYMENTS = [pm.Deployment(model, H100, link=H100.link, tensor_parallel=4) for model in MODELS]
COLUMNS = ("scheduled", "first_token", "finish", "preemptions", "cached", "replica")


@st.composite
def workloads(draw):
    """Requests that come together, in a row or in a closed loop; some without output, some with prefixes."""
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from([0.0, 0.0, 1e-4, 0.01, 0.3]),
                st.one_of(st.integers(1, 12), st.integers(13, 300)),
                st.one_of(st.integers(0, 3), st.integers(4, 120)),
                st.lists(st.integers(0, 2), max_size=4),
            ),
            min_size=1,
            max_size=30,
        )
    )
    gaps, prompts, outputs, words = zip(*rows, strict=True)
    named = {}
    if draw(st.booleans()):
        unit = 32
        words = [word[: -(-prompt // unit)] for word, prompt in zip(words, prompts, strict=True)]
        # A piece's id stands for all before it, too.
        ids = [
            sum((letter + 1) * 4**place for place, letter in enumerate(word[: k + 1]))
            for word in words
            for k in range(len(word))
        ]
        named = {"ids": ids, "offsets": np.cumsum([0, *map(len, words)]), "unit": unit}
    if draw(st.booleans()):
        named |= {"users": draw(st.integers(1, len(rows))), "think": draw(st.sampled_from([0.0, 0.02]))}
    return Requests(np.cumsum(gaps), prompts, outputs, **named)


@st.composite
def rules(draw, policy):
    """Settings of a policy, tight as a rule: few blocks, a small budget, few at once."""
    named = {
        "policy": policy,
        "block_size": draw(st.sampled_from([1, 4, 16, 32])),
        "num_blocks": draw(st.one_of(st.just(inf), st.integers(5, 400))),
        "max_num_batched_tokens": draw(st.sampled_from([7, 64, 512, 4096])),
        "max_num_seqs": draw(st.sampled_from([1, 3, 8, 1000])),
        "watermark": draw(st.sampled_from([0, 0, 3])),
    }
    if policy == "contiguous":
        named["reserve"] = draw(st.sampled_from([150, 420]))
    if policy == "v0" and draw(st.booleans()):
        named["swap_link"] = data.link("pcie5")
    if policy in ("v1", "decode-first", "shortest-first"):
        named |= {
            "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 5, 100])),
            "enable_chunked_prefill": draw(st.sampled_from([True, True, False])),
            "scheduler_reserve_full_isl": draw(st.booleans()),
            "enable_prefix_caching": draw(st.sampled_from([None, True, False])),
            "max_model_len": draw(st.sampled_from([None, 200])),
        }
        if draw(st.sampled_from([False, False, True])):
            gamma, alpha = draw(st.integers(1, 4)), draw(st.sampled_from([0, 0.7, 1]))
            named |= {"num_speculative_tokens": gamma, "acceptance": alpha, "draft_cost": 0.05}
    return Settings(**named)


each_policy = pytest.mark.parametrize("policy", POLICIES)


@each_policy
@settings(max_examples=60)
@given(st.data())
def test_the_fast_way_is_the_plain_way(policy, data):
    """Bit for bit: times, gaps between tokens and sums. Also with several replicas, and with pools apart."""
    requests, deployment = data.draw(workloads()), data.draw(st.sampled_from(DEPLOYMENTS))
    chosen, how = data.draw(rules(policy)), data.draw(st.sampled_from(["one", "three", "apart"]))
    more = {"by_totals": data.draw(st.booleans())}
    if how != "one":
        deployment = replace(deployment, data_parallel=3)
        more["router"] = data.draw(st.sampled_from(list(cluster.ROUTERS)))
    if how == "apart":
        more["decode_pool"] = DecodePool(replace(deployment, data_parallel=2), H100.link, chosen)
    fast, plain = (simulate(requests, deployment, chosen, fast=fast, **more) for fast in (True, False))
    for name in COLUMNS:
        assert getattr(fast, name).tobytes() == getattr(plain, name).tobytes(), name
    assert fast.refused == plain.refused
    assert (fast.steps, fast.computed_tokens, fast.hit_blocks) == (plain.steps, plain.computed_tokens, plain.hit_blocks)
    for one, other in zip(*(histogram(found) for found in (fast, plain)), strict=True):
        assert one.tobytes() == other.tobytes()
    assert fast.block_seconds == pytest.approx(plain.block_seconds, rel=1e-9)
    assert fast.busy_s == pytest.approx(plain.busy_s, rel=1e-9)


def histogram(found):
    """Gaps between tokens and how often each occurs, zeros left out."""
    values, place = np.unique(found.gap_s, return_inverse=True)
    counts = np.bincount(place, found.gap_count, minlength=len(values))
    return values, counts


class Watched(Engine):
    """An engine that checks itself at every step."""

    def _step(self, plan):
        s, running = self.settings, self.scheduler.running
        assert sum(tokens for _, tokens in plan) <= s.max_num_batched_tokens
        assert len(running) <= s.max_num_seqs
        assert len({id(job) for job, _ in plan}) == len(plan)
        assert all(tokens >= 1 and job in running for job, tokens in plan)
        assert all(job.arrival <= self.now for job, _ in plan)
        assert 0 <= self.pool.used <= self.pool.usable
        for job in running:
            assert job.room >= job.computed
        ids = [job.blocks if isinstance(job.blocks, list) else [None] * job.blocks for job in running]
        distinct = {block for own in ids for block in own}
        if None in distinct or not distinct:
            assert self.pool.used == sum(map(len, ids))
        else:
            assert self.pool.used == len(distinct)
            counts = np.bincount([block for own in ids for block in own], minlength=len(self.pool._holders))
            assert self.pool._holders == counts.tolist()
            assert set(self.pool._queue).isdisjoint(distinct)
        before = {id(job): (job.computed, job.done) for job, _ in plan}
        found = super()._step(plan)
        for job, _ in plan:
            assert job.computed > before[id(job)][0] or job.done > before[id(job)][1]
        return found


@each_policy
@settings(max_examples=60)
@given(st.data())
def test_what_always_holds(policy, data):
    """Budget, blocks, order of events, and exactly the tokens that were asked for."""
    requests, deployment = data.draw(workloads()), data.draw(st.sampled_from(DEPLOYMENTS))
    chosen, seen, made = data.draw(rules(policy)), [], Watched.__init__
    apart = DecodePool(deployment, H100.link, chosen) if data.draw(st.sampled_from([False, False, True])) else None

    def remember(self, *given, **named):
        made(self, *given, **named)
        seen.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watched, "__init__", remember)
        patch.setattr(cluster, "Engine", Watched)
        found = simulate(requests, deployment, chosen, decode_pool=apart, fast=data.draw(st.booleans()), keep=True)
    assert len(seen) == (2 if apart else 1)
    for served in seen:
        assert served.pool.used == 0
        assert not any(getattr(served.pool, "_holders", []))
    done = found.finished
    assert (done != np.isin(np.arange(len(requests)), list(found.refused))).all()  # each ends or is refused
    assert all(reason for reason in found.refused.values())
    some = done & (requests.output > 0)
    assert (found.scheduled >= found.arrival)[done].all()
    assert (found.first_token > found.scheduled)[some].all()
    assert (found.finish >= found.first_token)[some].all()
    assert np.isnan(found.first_token[~some]).all()
    assert found.gap_count.sum() == np.maximum(requests.output[done] - 1, 0).sum()
    gaps = (found.finish - found.first_token)[some].sum()
    assert found.gap_s @ found.gap_count == pytest.approx(gaps, rel=1e-9, abs=1e-9)
    if not found.preemptions.any() and not chosen.num_speculative_tokens and policy != "static":
        total = (requests.prompt + np.maximum(requests.output - 1, 0))[done].sum()
        assert found.computed_tokens == total - found.cached.sum()
    # It is never idle while a request waits: each step starts when the one before ends, or when a request comes.
    if not apart:
        start, end = found.runs["start"], found.runs["end"]
        assert all(begin == before or begin in found.arrival for begin, before in zip(start[1:], end[:-1], strict=True))


@each_policy
@settings(max_examples=15)
@given(st.data())
def test_the_same_seed_gives_the_same_bytes(policy, data):
    requests, chosen = data.draw(workloads()), data.draw(rules(policy))
    one, other = (simulate(requests, DEPLOYMENTS[0], chosen) for _ in range(2))
    assert all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in COLUMNS)
    assert (one.gap_s.tobytes(), one.gap_count.tobytes()) == (other.gap_s.tobytes(), other.gap_count.tobytes())


def test_the_fast_way_jumps(monkeypatch):
    """It would be the plain way if it never did: 1 request of 2,000 tokens is a prefill and one jump."""
    calls = []
    step = engine.Engine._step
    monkeypatch.setattr(engine.Engine, "_step", lambda self, plan: calls.append(1) or step(self, plan))
    found = simulate(Requests([0.0], [100], [2000]), DEPLOYMENTS[0])
    assert (len(calls), found.steps) == (1, 2000)


@pytest.mark.skipif("PERFMODEL_TRACES" not in os.environ, reason="PERFMODEL_TRACES names no folder with the traces")
def test_the_azure_code_trace_both_ways():
    path = Path(os.environ["PERFMODEL_TRACES"]) / "AzureLLMInferenceTrace_code_2023.csv"
    requests, _ = traces.read(path, "azure")
    deployment = pm.Deployment(data.model("llama-3.1-70b"), H100, link=H100.link, tensor_parallel=4)
    fast, plain = (simulate(requests, deployment, fast=fast) for fast in (True, False))
    assert fast.finished.sum() == 8819
    for name in COLUMNS:
        assert getattr(fast, name).tobytes() == getattr(plain, name).tobytes()


@pytest.mark.skipif("PERFMODEL_TRACES" not in os.environ, reason="PERFMODEL_TRACES names no folder with the traces")
def test_the_mooncake_trace_hits_what_is_published():
    """37.3 % of prompt tokens and 38.2 % of full blocks under V1's rule; a finite cache finds less, the more it is."""
    requests, _ = traces.read(Path(os.environ["PERFMODEL_TRACES"]) / "mooncake_conversation_trace.jsonl", "mooncake")
    deployment = pm.Deployment(data.model("llama-3.1-70b"), H100, link=H100.link, tensor_parallel=4)
    found = [
        simulate(requests, deployment, Settings(block_size=512, num_blocks=blocks)).summary()
        for blocks in (2000, 8000, 32_000, inf)
    ]
    assert found[-1]["prefix_hit_tokens"] == pytest.approx(0.373, abs=0.0005)
    assert found[-1]["prefix_hit_blocks"] == pytest.approx(0.382, abs=0.0005)
    shares = [one["prefix_hit_tokens"] for one in found]
    assert shares == sorted(shares)
