"""The simulator meets theory where there is one: queues, closed loops, Little's law, batches, drafts, transfers."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
from examples import SOURCE_MODEL

import perfmodel as pm
from perfmodel import data
from perfmodel.queueing import md1_wait, md1_within
from perfmodel.simulate import engine
from perfmodel.simulate.cluster import DecodePool, simulate
from perfmodel.simulate.generate import Lengths, closed_loop, poisson, shared_prefix
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import Settings
from perfmodel.speculative import expected_tokens

H100 = data.accelerator("h100-sxm")
DEPLOYMENT = pm.Deployment(data.model("llama-3.1-8b"), H100, constants=data.constants("default"))
# The source's four accelerators: 70e9 parameters, 742 TFLOP/s and 3.35 TB/s each, messages free.
SOURCE = pm.Deployment(
    SOURCE_MODEL,
    pm.Accelerator("source", memory_capacity=80e9, memory_bandwidth=3.35e12, bf16_flops=742e12),
    tensor_parallel=4,
)
UNLIMITED = Settings(num_blocks=inf)


# One prompt a step is a queue with a server: Poisson arrivals, equal services


def prefills(load, n, seed=1):
    """Prompts that fill a step each, so that they are served one after the other; no more output than that."""
    service = float(pm.prefill_time(DEPLOYMENT, 2000).total)
    requests = poisson(load / service, n, 2000, 1, seed=seed)
    return service, requests, simulate(requests, DEPLOYMENT, Settings(num_blocks=inf, max_num_batched_tokens=2000))


@pytest.mark.parametrize(("load", "n"), [(0.3, 50_000), (0.5, 100_000), (0.7, 200_000)])
def test_mean_wait_of_a_queue(load, n):
    service, _, found = prefills(load, n)
    assert found.wait.mean() == pytest.approx(md1_wait(load / service, service), rel=0.02)


def test_each_wait_of_a_queue():
    """Lindley's recursion, request by request: who comes before the last one's end waits for it."""
    service, requests, found = prefills(0.9, 5000)
    end, expected = 0.0, []
    for arrival in requests.arrival:
        expected.append(max(end - arrival, 0.0))
        end = max(end, arrival) + service
    assert found.wait == pytest.approx(expected, abs=1e-9)
    assert found.ttft == pytest.approx(np.array(expected) + service, rel=1e-9)


@pytest.mark.parametrize("services", [0.5, 1, 2, 4])
def test_how_many_wait_longer(services):
    """Waits that follow each other are alike: an error of 0.01 is four times that of independent ones."""
    service, _, found = prefills(0.6, 40_000)
    expected = md1_within(0.6 / service, service, services * service)
    assert np.mean(found.wait <= services * service) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("load", [0.4, 0.8])
def test_littles_law(load):
    """Requests in the system, summed over the steps, are their times in it; those that come within a step are late."""
    service = float(pm.prefill_time(DEPLOYMENT, 1000).total)
    requests = poisson(load / service / 2, 3000, 1000, Lengths.geometric(80), seed=3)
    found = simulate(requests, DEPLOYMENT, UNLIMITED, keep=True)
    runs = found.runs
    inside = ((runs["running"] + runs["waiting"]) * (runs["end"] - runs["start"])).sum()
    # A request counts from the first step that starts after it came.
    starts = np.sort(runs["start"])
    seen = np.maximum(found.arrival, starts[np.searchsorted(starts, found.arrival)])
    longest = (runs["end"] - runs["start"])[runs["steps"] == 1].max()
    assert inside == pytest.approx((found.finish - found.arrival).sum(), rel=0.03)
    assert inside <= (found.finish - found.arrival).sum() + 1e-6
    assert (seen - found.arrival).max() <= 500 * longest


# Closed loops


def loop(users, settings, stagger, by_totals=True, deployment=SOURCE, cycles=8):
    """TPOT of the steady part of a closed loop of prompts of 1,024 tokens and outputs of 256."""
    requests = closed_loop(users, users * cycles, 1024, 256, stagger=stagger)
    found = simulate(requests, deployment, settings, by_totals=by_totals)
    return found.tpot[2 * users : -users].mean()


EXCLUSIVE = Settings(policy="v0", num_blocks=inf, max_num_batched_tokens=1280)


class SourceClock:
    """The steps of the audit of the source: prefill without the mask, decoding at the last context, maxima of totals.

    2 N S and 4 L d S^2 FLOPs of a prefill; 2 N B FLOPs, or all weights and B times 1,280 tokens, of a decode step.
    """

    reach = None

    def __init__(self, deployment, by_totals):
        pass

    def seconds(self, tokens, chunk, batch):
        arithmetic = 2 * 70e9 * tokens + 4 * 80 * 8192 * 1024 * chunk
        return max(arithmetic / (4 * 742e12), (140e9 + batch * 1280 * 327_680) / (4 * 3.35e12))

    def step(self, contexts, chunks, new=None, drafts=0):
        chunk = sum(part for part, _ in chunks)
        return self.seconds(len(contexts) + chunk, chunk, len(contexts))

    def decode(self, contexts, steps):
        return np.full(steps, self.seconds(len(contexts), 0, len(contexts)))


def test_the_audited_closed_loop(monkeypatch):
    """Users out of step wait for each other's prefills; those who start together stay in lockstep, at 33 ms.

    The audit has 49.9 ms at 176 users: it counts 176 / 255 prefills to a token. Nobody waits for his own, so that the
    loop of 176 is at 49.7 ms, that of 177 at 49.9 ms, and the limit of 50 ms is passed with the next.
    """
    monkeypatch.setattr(engine, "StepClock", SourceClock)
    found = [loop(users, EXCLUSIVE, 12.8 / users) * 1e3 for users in (176, 177, 178)]
    step, prefill = (SourceClock(None, None).seconds(*mix) * 1e3 for mix in ((176, 0, 176), (1024, 1024, 0)))
    assert step + 176 / 255 * prefill == pytest.approx(49.9, abs=0.05)
    assert found[0] == pytest.approx(step + 175 / 255 * prefill, rel=0.002)
    assert found[1] == pytest.approx(49.9, abs=0.05)
    assert found[1] < 50 < found[2]
    assert loop(176, EXCLUSIVE, 0) * 1e3 == pytest.approx(33, abs=0.5)


def test_the_audited_fused_chunks(monkeypatch):
    """Spread evenly, the prefills of 208 users keep a token under 50 ms by the audit's count, B / 255 to a step.

    That is arithmetic alone: of B tokens, of B / 255 prompts, and of their attention without the mask. The loop, in
    which nobody waits for his own, is at 49.8 ms with 209, and passes the limit with 210.
    """
    monkeypatch.setattr(engine, "StepClock", SourceClock)
    each = (2 * 70e9 * (1 + 1024 / 255) + 4 * 80 * 8192 * 1024 * 1024 / 255) / (4 * 742e12)
    assert 208 * each < 0.0500 < 209 * each
    found = [loop(users, Settings(num_blocks=inf, max_num_batched_tokens=1100), 12.8 / users) for users in (209, 210)]
    assert found[0] < 0.050 < found[1]


@pytest.mark.parametrize("users", [50, 100, 176])
@pytest.mark.parametrize("by_totals", [False, True])
def test_exclusive_prefill_in_a_closed_loop(users, by_totals):
    """The formula counts (B - 1) / (N_out - 1) prefills to a token. With causal attention and its real contexts the
    loop of 176 is at 48.8 ms."""
    formula = pm.steady_step(SOURCE, users, 1024, 256, "exclusive")
    expected = formula.by_totals if by_totals else formula.total
    found = loop(users, EXCLUSIVE, 255 * expected / users, by_totals)
    assert found == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("users", [150, 180, 200])
@pytest.mark.parametrize("by_totals", [False, True])
def test_fused_chunks_in_a_closed_loop(users, by_totals):
    """The formula spreads prefills evenly: so does a budget that hardly exceeds what a step needs of it."""
    formula = pm.steady_step(SOURCE, users, 1024, 256, "fused")
    expected = formula.by_totals if by_totals else formula.total
    budget = round(1.04 * users * (1 + 1024 / 255))
    found = loop(users, Settings(num_blocks=inf, max_num_batched_tokens=budget), 255 * expected / users, by_totals)
    assert found == pytest.approx(expected, rel=0.01)


def test_a_sum_over_parts_allows_fewer_users():
    """50 ms allow 209 users if a step takes the larger of its totals, 189 if it takes the sum over its parts.

    The audit has 208, without the causal mask and without the arithmetic of decoding's attention.
    """
    users = np.arange(150, 250)
    formula = pm.steady_step(SOURCE, users, 1024, 256, "fused")
    assert users[formula.by_totals <= 0.050].max() == 209
    assert users[formula.total <= 0.050].max() == 189
    spread = Settings(num_blocks=inf, max_num_batched_tokens=1100)
    assert loop(186, spread, 12.8 / 186, by_totals=False) < 0.050 < loop(192, spread, 12.8 / 192, by_totals=False)


def test_estimate_is_the_steady_state():
    """`estimate` and a closed loop of requests out of step, with efficiencies, messages and host time."""
    deployment = pm.Deployment(
        data.model("llama-3.1-70b"), H100, link=H100.link, tensor_parallel=4, constants=data.constants("default")
    )
    expected = pm.estimate(deployment, pm.Workload(1024, 256, 64))
    settings = replace(EXCLUSIVE, num_blocks=None, max_num_batched_tokens=2048)
    found = loop(64, settings, float(expected.e2e_s) / 64, by_totals=False, deployment=deployment)
    assert found == pytest.approx(float(expected.tpot_s), rel=0.01)


# Batches and blocks


def test_idle_slots_of_a_static_batch():
    outputs = np.random.default_rng(5).integers(2, 200, 32)
    requests = Requests(np.zeros(32), np.full(32, 50), outputs)
    found = simulate(requests, DEPLOYMENT, Settings(policy="static", num_blocks=inf, max_num_seqs=32))
    slots = found.computed_tokens - 32 * 50 + 32  # the prefill gives each slot its first token
    assert 1 - outputs.sum() / slots == pytest.approx(pm.static_idle_share(outputs), rel=1e-12)
    assert found.steps == outputs.max()


def test_idle_slots_of_many_static_batches():
    """600 batches of 16: tokens over slots within 4 standard errors of the tokens."""
    lengths, n = np.arange(2, 100), 9_600
    outputs = np.random.default_rng(6).choice(lengths, n)
    settings = Settings(policy="static", num_blocks=inf, max_num_seqs=16)
    found = simulate(Requests(np.zeros(n), np.full(n, 10), outputs), DEPLOYMENT, settings)
    slots = found.computed_tokens - n * 10 + n
    error = 4 * lengths.std() / sqrt(n) / lengths.mean()
    assert outputs.sum() / slots == pytest.approx(1 - pm.static_idle_share(lengths, 16), rel=error)


def test_continuous_batching_fills_the_slots():
    """The same tokens in fewer steps by the share that was idle, but for the last requests, who run alone."""
    n, outputs = 3200, np.random.default_rng(7).integers(2, 200, 3200)
    requests = Requests(np.zeros(n), np.full(n, 10), outputs)
    steps = [
        simulate(requests, DEPLOYMENT, Settings(policy=policy, num_blocks=inf, max_num_seqs=32)).steps
        for policy in ("static", "v1")
    ]
    assert steps[1] / steps[0] == pytest.approx(1 - pm.static_idle_share(np.arange(2, 200), 32), rel=0.03)


def test_maximum_concurrency():
    """vLLM divides the blocks by those of a request. Each of these caches 1,024 tokens in the end: 64 blocks."""
    blocks = int(pm.kv_blocks(DEPLOYMENT))
    requests = Requests(np.zeros(600), np.full(600, 24), np.full(600, 1001))
    whole = replace(UNLIMITED, num_blocks=None, max_num_seqs=2000)
    found = simulate(requests, DEPLOYMENT, replace(whole, policy="contiguous", reserve=1024))
    assert found.most_running == (blocks - 1) // 64
    assert found.most_running == pytest.approx(pm.max_concurrency(DEPLOYMENT, 1024), abs=1)
    assert found.kv_blocks == blocks - 1
    paged = simulate(requests, DEPLOYMENT, whole)  # pages let in a few more, and preempt some of them
    assert paged.most_running >= found.most_running
    assert not found.preemptions.any()


def test_occupancy():
    """A request alone: its prompt of 20 tokens in 2 blocks, then 3 from 33 tokens on; of 10 that there are."""
    found = simulate(Requests([0.0], [20], [20]), DEPLOYMENT, Settings(num_blocks=11), keep=True)
    first = float(pm.prefill_time(DEPLOYMENT, 20).total)
    steps = [float(pm.decode_time(DEPLOYMENT, 1, context).total) for context in range(21, 40)]
    held = 2 * (first + sum(steps[:12])) + 3 * sum(steps[12:])
    assert found.occupancy == pytest.approx(held / (first + sum(steps)) / 10, rel=1e-9)


# Drafts


@pytest.mark.parametrize(("alpha", "gamma"), [(0.3, 3), (0.7, 5), (0.9, 4)])
def test_tokens_of_a_round(alpha, gamma):
    """Rounds yield `expected_tokens`; the standard error of so many is below (gamma + 1) / 2 / sqrt(rounds)."""
    settings = Settings(num_blocks=inf, num_speculative_tokens=gamma, acceptance=alpha)
    found = simulate(Requests([0.0], [10], [20_000]), DEPLOYMENT, settings)
    rounds = found.steps - 1
    error = 4 * (gamma + 1) / 2 / sqrt(rounds)
    assert 19_999 / rounds == pytest.approx(expected_tokens(alpha, gamma), abs=error)


def test_time_of_rounds():
    """All accepted: rounds of 4 tokens, each a pass over 4 and 3 drafts of a tenth of a plain step."""
    settings = Settings(num_blocks=inf, num_speculative_tokens=3, acceptance=1, draft_cost=0.1)
    found = simulate(Requests([0.0], [100], [13]), DEPLOYMENT, settings)
    rounds = [
        float(pm.decode_time(DEPLOYMENT, 1, context, 4).total + 0.3 * pm.decode_time(DEPLOYMENT, 1, context).total)
        for context in (101, 105, 109)
    ]
    assert (found.finish - found.first_token)[0] == pytest.approx(sum(rounds), rel=1e-9)


# Replicas and pools


def test_round_robin_and_least_loaded():
    """A long request and a short one; when the third comes, only the long one is still there."""
    requests = Requests([0.0, 0.0, 1.0, 1.0], [100] * 4, [1000, 2, 1000, 2])
    deployment = replace(DEPLOYMENT, data_parallel=2)
    replicas = {name: simulate(requests, deployment, router=name).replica for name in ("round-robin", "least-loaded")}
    assert replicas["round-robin"].tolist() == [0, 1, 0, 1]
    assert replicas["least-loaded"].tolist() == [0, 1, 1, 0]


def test_replicas_are_independent():
    """Every fourth request on a replica of its own is what each of four replicas does."""
    requests = poisson(30, 400, 800, 40, seed=4)
    found = simulate(requests, replace(DEPLOYMENT, data_parallel=4))
    for place in range(4):
        mine = slice(place, None, 4)
        own = Requests(requests.arrival[mine], requests.prompt[mine], requests.output[mine])
        assert found.finish[mine].tobytes() == simulate(own, DEPLOYMENT).finish.tobytes()


def test_prefixes_find_their_replica():
    """Round robin computes each family's prefix on every replica; by prefix it is computed once."""
    families = shared_prefix(poisson(20, 600, 600, 8, seed=5), families=40, prefix=512, zipf=0)
    deployment = replace(DEPLOYMENT, data_parallel=4)
    turns, aware = (simulate(families, deployment, router=name) for name in ("round-robin", "prefix-aware"))
    blocks = 512 // 16
    drawn = {tuple(families.ids[families.offsets[i] : families.offsets[i + 1]]) for i in range(600)}
    assert aware.hit_blocks == pytest.approx((600 - len(drawn)) * blocks, rel=0.02)
    assert aware.hit_blocks > turns.hit_blocks
    assert np.bincount(aware.replica, minlength=4).min() > 0  # unknown prefixes go where there is least to do


LINK = pm.Link("between", bandwidth=25e9, latency=1e-3)


def test_a_request_through_two_pools():
    """First token from the prefill; then the cache is sent; then it decodes."""
    decode = replace(DEPLOYMENT, tensor_parallel=2, link=H100.link)
    found = simulate(Requests([1.0], [3000], [3]), DEPLOYMENT, decode_pool=DecodePool(decode, LINK, links=2))
    first = float(pm.prefill_time(DEPLOYMENT, 3000).total)
    sent = 1e-3 + 3000 * 131_072 / 2 / 25e9
    steps = [float(pm.decode_time(decode, 1, context).total) for context in (3001, 3002)]
    assert found.ttft[0] == pytest.approx(first, rel=1e-9)
    assert found.e2e[0] == pytest.approx(first + sent + sum(steps), rel=1e-9)
    assert np.sort(np.repeat(found.gap_s, found.gap_count)) == pytest.approx(sorted([sent + steps[0], steps[1]]))


def test_caches_are_sent_one_after_the_other():
    """Two prompts in one step: the second cache waits until the first has been sent."""
    decode = replace(DEPLOYMENT, tensor_parallel=2, link=H100.link)
    found = simulate(Requests([0.0, 0.0], [2000, 2000], [2, 2]), DEPLOYMENT, decode_pool=DecodePool(decode, LINK))
    sent = 1e-3 + 2000 * 131_072 / 25e9
    assert found.first_token[0] == found.first_token[1]
    assert found.finish[1] - found.finish[0] == pytest.approx(sent, rel=0.02)


def test_prefills_do_not_disturb_decoding_in_pools():
    """Gaps between tokens are decode steps alone, where a colocated server has prefills between them."""
    requests = poisson(4, 300, 4000, Lengths.geometric(100), seed=6)
    decode = DecodePool(DEPLOYMENT, replace(LINK, bandwidth=400e9))
    apart, together = simulate(requests, DEPLOYMENT, decode_pool=decode), simulate(requests, DEPLOYMENT)
    longest = float(pm.decode_time(DEPLOYMENT, 100, 4500).total)
    late = apart.gap_s > longest
    assert apart.gap_count[late].sum() <= 300  # the transfers
    assert apart.statistics()["itl_s"]["p99"] < together.statistics()["itl_s"]["p99"] / 2
