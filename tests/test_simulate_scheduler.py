"""The schedulers, step by step: what each step computes, worked out by hand from the rules of the engines.

Every step takes a second here. `plans` holds, for each step, the tokens that each request computes.
"""

from math import inf

import numpy as np
import pytest
from examples import refused

import perfmodel as pm
from perfmodel import data
from perfmodel.simulate.engine import Engine
from perfmodel.simulate.job import Job
from perfmodel.simulate.requests import Requests
from perfmodel.simulate.settings import Settings

DEPLOYMENT = pm.Deployment(data.model("llama-3.1-8b"), data.accelerator("h100-sxm"))


class Seconds:
    """A clock that takes a second for each step."""

    reach = None

    def step(self, contexts, chunks, new=None, drafts=0):
        return 1.0

    def decode(self, contexts, steps):
        return np.ones(steps)


class Lab:
    """An engine with requests (prompt, output) that all wait, or come one after the other."""

    def __init__(self, requests, ids=None, unit=None, **settings):
        prompts, outputs = zip(*requests, strict=True)
        named = {}
        if ids is not None:
            offsets = np.cumsum([0, *map(len, ids)])
            named = {"ids": [one for row in ids for one in row], "offsets": offsets, "unit": unit}
        self.requests = Requests([0.0] * len(requests), prompts, outputs, **named)
        settings = {"block_size": 4, "num_blocks": inf, "max_num_batched_tokens": 10} | settings
        self.engine = Engine(DEPLOYMENT, Settings(**settings), self.requests, fast=False, keep=True)
        self.engine.clock = Seconds()
        self.jobs = [Job(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(requests)]
        self.plans, self.preempted = [], []

    def submit(self, *indices):
        for index in indices:
            assert self.engine.submit(self.jobs[index], self.engine.now) is None
        return self

    def run(self, steps=None):
        """So many steps, or all."""
        plan = self.engine.scheduler.plan

        def spy():
            found = plan()
            self.plans.append({job.index: tokens for job, tokens in found})
            self.preempted.append([job.index for job in self.engine.scheduler.preempted])
            return found

        self.engine.scheduler.plan = spy
        while self.engine.busy and steps != 0:
            self.engine.advance()
            steps = steps and steps - 1
        self.engine.scheduler.plan = plan
        return self


def plans(requests, **settings):
    lab = Lab(requests, **settings).submit(*range(len(requests))).run()
    assert all(job.done == job.output for job in lab.jobs)
    assert lab.engine.pool.used == 0
    return lab.plans


# The budget


def test_a_prompt_is_cut_to_the_budget_and_the_next_takes_what_is_left():
    """10 tokens a step: 10 of the first; its last 3 and 7 of the second; a token of the first and the rest."""
    assert plans([(13, 3), (12, 2)]) == [{0: 10}, {0: 3, 1: 7}, {0: 1, 1: 5}, {0: 1, 1: 1}]


def test_decoding_comes_first_because_half_a_prompt_is_last():
    """Once admitted, the long prompt gets what the two that decode leave."""
    found = plans([(2, 5), (3, 5), (20, 1)])
    assert found == [{0: 2, 1: 3, 2: 5}, {0: 1, 1: 1, 2: 8}, {0: 1, 1: 1, 2: 7}, {0: 1, 1: 1}, {0: 1, 1: 1}]


def test_a_threshold_lets_half_done_prompts_stand_before_decodes():
    """At most 4 tokens of a request in a step: two prompts are under way at once, before one that decodes."""
    found = plans([(8, 2), (8, 2), (1, 4)], long_prefill_token_threshold=4)
    assert found == [{0: 4, 1: 4, 2: 1}, {0: 4, 1: 4, 2: 1}, {0: 1, 1: 1, 2: 1}, {2: 1}]
    # With a budget of 8 they take all of it, and the third has to wait behind them.
    found = plans([(8, 2), (8, 2), (1, 2)], long_prefill_token_threshold=4, max_num_batched_tokens=8)
    assert found == [{0: 4, 1: 4}, {0: 4, 1: 4}, {0: 1, 1: 1, 2: 1}, {2: 1}]


def test_decode_first_goes_before_older_prompts():
    """The same tokens in another order, which says who is preempted: the last of it."""
    requests = [(16, 1), (1, 3), (16, 1)]
    settings = {"long_prefill_token_threshold": 4, "max_num_batched_tokens": 8}

    def found(policy):
        return Lab(requests, policy=policy, **settings).submit(0, 1, 2).run(3).plans

    assert found("v1") == [{0: 4, 1: 1, 2: 3}, {0: 4, 1: 1, 2: 3}, {0: 4, 1: 1, 2: 3}]
    assert [list(plan) for plan in found("decode-first")] == [[0, 1, 2], [1, 0, 2], [1, 0, 2]]


def test_without_chunks_a_prompt_waits_until_it_fits_and_others_pass_it():
    found = plans([(6, 2), (8, 2), (3, 2)], enable_chunked_prefill=False)
    assert found == [{0: 6, 2: 3}, {0: 1, 2: 1, 1: 8}, {1: 1}]


def test_no_more_run_than_may():
    found = plans([(2, 2), (2, 3), (2, 2), (2, 1)], max_num_seqs=2)
    assert found == [{0: 2, 1: 2}, {0: 1, 1: 1}, {1: 1, 2: 2}, {2: 1, 3: 2}]


# Blocks


def test_who_does_not_fit_holds_up_all_behind_it():
    """3 usable blocks of 4: the first takes two; the second wants two, and the third, who would fit, waits as well."""
    found = plans([(5, 3), (5, 1), (1, 1)], num_blocks=4)
    assert found == [{0: 5}, {0: 1}, {0: 1}, {1: 5, 2: 1}]


def test_the_last_admitted_is_preempted_and_computes_all_again():
    """4 usable blocks. Both prompts fill two. The first wants a third in step 2: the second goes, with its token.

    The first ends with 11 tokens in 3 blocks. Meanwhile the second does not fit with 9 tokens (3 blocks), and
    returns at the head of the queue, before one that came first but was never admitted.
    """
    lab = Lab([(8, 4), (8, 4), (1, 1)], num_blocks=5, max_num_batched_tokens=16).submit(0, 1, 2).run()
    assert lab.plans == [{0: 8, 1: 8}, {0: 1}, {0: 1}, {0: 1}, {1: 9, 2: 1}, {1: 1}, {1: 1}]
    assert lab.preempted == [[], [1], [], [], [], [], []]
    assert [job.preemptions for job in lab.jobs] == [0, 1, 0]
    assert lab.jobs[1].first == 1  # its first token was out before
    assert lab.engine.records.preemptions == [(1, 1.0)]


def test_a_request_may_preempt_itself():
    """The second is the last and finds no block: it goes, and nothing is admitted in that step."""
    lab = Lab([(6, 4), (8, 2), (1, 1)], num_blocks=5, max_num_batched_tokens=16).submit(0, 1, 2).run()
    # The first holds 2 blocks with room for 8 tokens; the second 2 full ones.
    assert lab.plans[:2] == [{0: 6, 1: 8}, {0: 1}]
    assert lab.preempted[1] == [1]


def test_nothing_is_admitted_in_a_step_that_preempts():
    lab = Lab([(8, 4), (8, 4), (1, 1)], num_blocks=6, max_num_batched_tokens=16, watermark=0).submit(0, 1).run(1)
    lab.submit(2).run(1)  # 5 blocks: the first takes the fifth, the second goes; the third fits now but must wait
    assert (lab.plans[-1], lab.preempted[-1]) == ({0: 1}, [1])


def test_reserving_for_the_whole_prompt():
    """3 usable blocks, budget 8: a prompt of 12 starts in chunks, or is admitted only when all of it fits."""
    settings = {"num_blocks": 4, "max_num_batched_tokens": 8}
    lab = Lab([(3, 3), (12, 1)], **settings).submit(0, 1).run(1)
    assert lab.plans == [{0: 3, 1: 5}]
    lab = Lab([(3, 3), (12, 1)], scheduler_reserve_full_isl=True, **settings).submit(0, 1).run()
    assert lab.plans == [{0: 3}, {0: 1}, {0: 1}, {1: 8}, {1: 4}]


def test_a_watermark_keeps_blocks_for_those_that_run():
    """3 usable blocks: with one to be spared both fit, with two only one at a time."""
    requests, settings = [(4, 1), (4, 1)], {"num_blocks": 4}
    assert plans(requests, watermark=1, **settings) == [{0: 4, 1: 4}]
    assert plans(requests, watermark=2, **settings) == [{0: 4}, {1: 4}]


@pytest.mark.parametrize(
    ("request_", "settings", "words"),
    [
        ((13, 1), {"num_blocks": 4}, ["13 cached tokens need 4 blocks", "the 3 there are"]),
        ((12, 2), {"num_blocks": 4}, ["13 cached tokens need 4 blocks"]),
        ((12, 1), {"num_blocks": 4, "watermark": 1}, ["3 blocks and a watermark of 1"]),
        ((5, 6), {"max_model_len": 10}, ["prompt + output = 11 tokens exceed max_model_len = 10"]),
        ((11, 1), {"enable_chunked_prefill": False}, ["11 tokens exceed max_num_batched_tokens = 10"]),
        ((11, 1), {"policy": "v0"}, ["11 tokens exceed max_num_batched_tokens = 10"]),
        ((5, 5), {"policy": "contiguous", "reserve": 8}, ["9 cached tokens exceed the 8 that are reserved"]),
        ((2, 1), {"policy": "contiguous", "reserve": 16, "num_blocks": 4}, ["need 4 blocks"]),
        ((10, 2), {"num_blocks": 4, "num_speculative_tokens": 2, "acceptance": 0.5}, ["need 4 blocks"]),
    ],
)
def test_what_can_never_run_is_refused_with_a_reason(request_, settings, words):
    lab = Lab([request_], **settings)
    reason = lab.engine.submit(lab.jobs[0], 0.0)
    assert all(word in reason for word in words), reason
    assert not lab.engine.busy


def test_what_just_fits_runs():
    assert plans([(12, 1)], num_blocks=4)[-1] == {0: 2}
    assert plans([(9, 4)], num_blocks=4)[-1] == {0: 1}  # the last token needs no place
    assert plans([(5, 5)], max_model_len=10)[-1] == {0: 1}


# Other policies


def test_v0_prefills_whole_prompts_before_it_decodes():
    requests = [(4, 3), (5, 2), (6, 2)]
    assert plans(requests, policy="v0") == [{0: 4, 1: 5}, {2: 6}, {0: 1, 1: 1, 2: 1}, {0: 1}]


def test_v0_stops_decoding_for_every_prompt():
    lab = Lab([(4, 4), (4, 2)], policy="v0").submit(0).run(2).submit(1).run()
    assert lab.plans == [{0: 4}, {0: 1}, {1: 4}, {0: 1, 1: 1}, {0: 1}]


def test_v0_swaps_out_and_in_before_it_admits():
    """4 usable blocks. The second is swapped out with its 8 tokens and comes back with them, before the third.

    A link of 8 tokens a second: a second out, a second in, on top of the steps.
    """
    each = float(pm.kv_bytes_per_token(DEPLOYMENT))
    link = pm.Link("host", bandwidth=8 * each, latency=0)
    lab = Lab([(8, 4), (8, 4), (1, 1)], policy="v0", num_blocks=5, max_num_batched_tokens=16, swap_link=link)
    lab.submit(0, 1, 2).run()
    assert lab.plans == [{0: 8, 1: 8}, {0: 1}, {0: 1}, {0: 1}, {1: 1}, {2: 1}, {1: 1}, {1: 1}]
    assert [job.preemptions for job in lab.jobs] == [0, 1, 0]
    assert [job.finish for job in lab.jobs] == [5, 10, 8]  # a second more for going, and for coming back


def test_v0_without_a_link_computes_again():
    lab = Lab([(8, 4), (8, 4)], policy="v0", num_blocks=5, max_num_batched_tokens=16).submit(0, 1).run()
    assert lab.plans == [{0: 8, 1: 8}, {0: 1}, {0: 1}, {0: 1}, {1: 9}, {1: 1}, {1: 1}]


def test_a_static_batch_keeps_its_slots_until_the_last_ends():
    found = plans([(2, 1), (3, 4), (2, 2)], policy="static", max_num_seqs=2)
    assert found == [{0: 2, 1: 3}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1, 1: 1}, {2: 2}, {2: 1}]


def test_a_static_batch_decodes_when_all_prompts_are_done():
    assert plans([(2, 2), (12, 2)], policy="static") == [{0: 2, 1: 8}, {1: 4}, {0: 1, 1: 1}]


def test_a_static_batch_reserves_its_longest_for_each():
    """6 usable blocks of 4: prompts of 4 that output 9 at most cache 12 tokens: 3 blocks each, two in a batch."""
    found = plans([(4, 2), (4, 9), (4, 2)], policy="static", num_blocks=7, max_num_batched_tokens=20)
    assert (found[0], found[9]) == ({0: 4, 1: 4}, {2: 4})


def test_contiguous_reservations_limit_the_batch():
    """6 usable blocks, 12 tokens reserved each: two run at once, though three would fit in pages."""
    requests, settings = [(4, 2)] * 3, {"num_blocks": 7, "max_num_batched_tokens": 20}
    assert plans(requests, **settings)[0] == {0: 4, 1: 4, 2: 4}
    assert plans(requests, policy="contiguous", reserve=12, **settings) == [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}, {2: 1}]


def test_shortest_first():
    lab = Lab([(9, 1), (7, 1), (2, 1), (7, 1)], policy="shortest-first").submit(0, 1, 2, 3).run()
    assert lab.plans == [{2: 2, 1: 7, 3: 1}, {3: 6, 0: 4}, {0: 5}]


# Drafts


def test_accepted_drafts_come_out_together():
    """3 drafts, all accepted: 4 tokens a step after the first; the last step has tokens to spare."""
    drafts = {"num_speculative_tokens": 3, "acceptance": 1}
    assert plans([(5, 10)], **drafts) == [{0: 5}, {0: 4}, {0: 4}, {0: 4}]
    assert plans([(5, 9)], **drafts) == [{0: 5}, {0: 4}, {0: 4}]


def test_rejected_drafts_are_computed_for_nothing():
    lab = Lab([(5, 4)], num_speculative_tokens=3, acceptance=0).submit(0).run()
    assert lab.plans == [{0: 5}, {0: 4}, {0: 4}, {0: 4}]
    assert lab.jobs[0].finish == 4


def test_drafts_fit_the_budget_and_the_longest_context():
    found = plans([(2, 9), (2, 9)], num_speculative_tokens=6, acceptance=0, max_num_batched_tokens=10)
    assert found[1] == {0: 7, 1: 3}
    found = plans([(2, 6)], num_speculative_tokens=4, acceptance=0, max_model_len=8)
    assert [plan[0] for plan in found] == [2, 5, 4, 3, 2, 1]


# What settings refuse


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"policy": "v2"}, ["policy='v2'", "v1, decode-first"]),
        ({"block_size": 0}, ["block_size=0", "at least 1"]),
        ({"block_size": 2.5}, ["block_size=2.5", "whole"]),
        ({"num_blocks": 1}, ["num_blocks=1", "at least 2"]),
        ({"num_blocks": float("nan")}, ["num_blocks=nan"]),
        ({"max_num_seqs": [1, 2]}, ["max_num_seqs=[1, 2]", "one number"]),
        ({"acceptance": 1.1}, ["acceptance=1.1", "at most 1"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"policy": "contiguous"}, ["reserve=None", "max_model_len"]),
        ({"reserve": 5}, ["reserve=5", "policy='v1'"]),
        ({"swap_link": data.link("pcie5")}, ["swap_link='", "policy='v1'"]),
        ({"policy": "static", "enable_prefix_caching": True}, ["enable_prefix_caching=True", "policy='static'"]),
        ({"policy": "v0", "num_speculative_tokens": 2}, ["num_speculative_tokens=2", "policy='v0'"]),
    ],
)
def test_bad_settings(settings, words):
    refused(lambda: Settings(**settings), "Settings", *words)
