"""The prefix cache, block by block: what is found, what is evicted, who holds what.

Blocks of 4 tokens. A request's prompt is named by ids, one for each block; "a" to "z" stand for ids.
"""

from math import inf

from examples import refused
from hypothesis import given
from hypothesis import strategies as st
from test_simulate_scheduler import DEPLOYMENT, Lab

from perfmodel.simulate.cached_blocks import CachedBlocks, keys_of
from perfmodel.simulate.cluster import simulate
from perfmodel.simulate.generate import poisson, shared_prefix
from perfmodel.simulate.job import Job
from perfmodel.simulate.requests import Requests, prefix_bound
from perfmodel.simulate.settings import Settings

FAMILIES = shared_prefix(poisson(20, 400, 300, 4), families=20, prefix=256, zipf=1)


def lab(prompts, output=1, sizes=None, **settings):
    """A lab whose prompts are words: a letter is a full block."""
    sizes = sizes or [4 * len(word) for word in prompts]
    ids = [[ord(letter) - ord("a") for letter in word] for word in prompts]
    settings = {"max_num_batched_tokens": 100} | settings
    return Lab([(size, output) for size in sizes], ids=ids, unit=4, **settings)


def cached(found):
    return [job.cached for job in found.jobs]


def test_a_prompt_finds_the_blocks_of_an_earlier_one():
    """`abc` shares two blocks with `abd`; a prompt that is there to its end computes its last block again."""
    found = lab(["abc", "abd", "abc", "xbc"]).submit(0).run().submit(1).run().submit(2).run().submit(3).run()
    assert cached(found) == [0, 8, 8, 0]  # `xbc` begins otherwise: its keys are others, whatever its letters
    assert found.plans == [{0: 12}, {1: 4}, {2: 4}, {3: 12}]


def test_only_full_blocks_count():
    """A prompt of 11 tokens shares 2 full blocks and 3 tokens of a third, which nobody finds."""
    found = lab(["abc", "abc", "abc"], sizes=[11, 11, 12]).submit(0).run().submit(1).run().submit(2).run()
    assert cached(found) == [0, 8, 8]


def test_the_last_token_is_computed():
    """13 tokens of which 12 are cached; and 12, of which only 8 may be."""
    found = lab(["abc", "abc"], sizes=[13, 13]).submit(0).run().submit(1).run()
    assert cached(found) == [0, 12]
    assert found.plans[-1] == {1: 1}


def test_a_block_is_found_as_soon_as_the_step_that_fills_it_is_planned():
    found = lab(["abc", "abc"]).submit(0, 1).run()
    assert found.plans == [{0: 12, 1: 4}]


def test_blocks_in_use_are_shared():
    """Two requests of 3 blocks that share 2 hold 4 together; one that ends leaves the shared ones to the other."""
    found = lab(["abc", "abd"], output=3).submit(0, 1).run(1)
    pool = found.engine.pool
    assert pool.used == 4
    pool.release(found.jobs[0])
    assert pool.used == 3
    assert found.jobs[1].blocks[:2] == [0, 1]


def test_blocks_computed_at_the_same_time_are_held_twice():
    """Without a lookup between them: what came first is found, and the other when the first is gone."""
    requests = Requests([0, 0], [8, 8], [1, 1], [0, 1, 0, 1], [0, 2, 4], 4)
    pool = CachedBlocks(4, 4, keys_of(requests, 4))
    one, other = (Job(i, 0.0, 8, 1) for i in (0, 1))
    for job in (one, other):
        assert pool.admit(job, 3) == 0  # a part of the first block: nothing is full
        job.computed = 3
    for job in (one, other):
        assert pool.grow(job, 5)
        job.computed = 8
    assert pool.used == 4
    third = Job(0, 0.0, 8, 1)
    assert pool.found(third) == 4
    pool.release(one)
    assert pool.found(third) == 4
    pool.release(other)
    pool._take(2)  # evicts the blocks of `one`
    assert pool.found(third) == 4


def test_the_longest_released_is_evicted_first_and_of_one_request_the_last_block():
    """4 blocks. `ab` ends, then `cd`. A new block takes b's, so `ab` finds only a; then another takes a's."""
    found = lab(["ab", "cd", "e", "ab", "cd"], num_blocks=5)
    found.submit(0).run().submit(1).run().submit(2).run()
    pool, jobs = found.engine.pool, found.jobs
    assert [pool.found(Job(i, 0.0, size, 1)) for i, size in ((3, 9), (4, 9))] == [4, 8]
    assert jobs[2].cached == 0
    found.submit(3).run()
    assert jobs[3].cached == 4


def test_a_hit_block_leaves_the_queue_and_returns_to_its_end():
    """4 blocks: a, b, c, d each of a request; a is used again, so that a new block takes b's."""
    found = lab(["a", "b", "c", "d", "a", "e"], sizes=[4, 4, 4, 4, 5, 4], num_blocks=6)
    for index in range(4):
        found.submit(index).run()
    found.submit(4).run()  # a's block, and the fifth, never used
    found.submit(5).run()
    there = [found.engine.pool.found(Job(i, 0.0, 5, 1)) for i in range(4)]
    assert there == [4, 0, 4, 4]


def test_what_was_preempted_finds_its_own_blocks_again():
    """As in the scheduler's example, 9 tokens are to be computed again, of which 8 are in 2 blocks that are left.

    5 usable blocks: the first takes one more in step 2, which was free; in step 6 another, the second's last.
    """
    found = Lab([(8, 8), (8, 8)], num_blocks=6, max_num_batched_tokens=16, enable_prefix_caching=True)
    found.submit(0, 1).run()
    assert found.preempted[1] == [1]
    again = next(plan[1] for plan in found.plans[1:] if 1 in plan)
    assert found.jobs[1].preemptions >= 1
    assert again < 9
    assert [job.done for job in found.jobs] == [8, 8]


def test_the_answer_is_cached_too_but_is_nobody_elses():
    found = lab(["a", "a"], output=6, sizes=[4, 9]).submit(0).run()
    assert len(found.engine.pool._blocks) == 2  # 9 tokens are cached of prompt and answer: two full blocks
    found.submit(1).run(1)
    assert found.jobs[1].cached == 4


def test_drafts_fill_blocks_only_when_they_are_accepted():
    found = Lab([(4, 5)], enable_prefix_caching=True, num_speculative_tokens=3, acceptance=1).submit(0).run(2)
    assert len(found.engine.pool._blocks) == 1  # 8 tokens are computed; the second block is named by the next step
    found.run()
    assert found.engine.pool.used == 0


def test_keys_of_pieces_larger_and_smaller_than_a_block():
    """Two pieces of 8 tokens, ids 7 and 9, and a prompt of 14: its full blocks of 4 are 2 of each; of 16 none."""
    requests = Requests([0, 0], [14, 16], [1, 1], [7, 9, 7, 2**62], [0, 2, 4], 8)
    small = keys_of(requests, 4)
    assert len(small(0)) == 3
    assert len(set(small(0))) == 3
    assert small(1)[:2] == small(0)[:2]
    assert small(1)[2] != small(0)[2]
    large = keys_of(requests, 16)
    assert (len(large(0)), len(large(1))) == (0, 1)
    refused(lambda: keys_of(requests, 12), "block_size=12", "unit=8")


def test_what_is_not_named_is_nobody_elses():
    requests = Requests([0, 0], [12, 12], [1, 1], [5, 5], [0, 1, 2], 4)
    assert keys_of(requests, 4)(0) == keys_of(requests, 4)(1) == [0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=25), st.data())
def test_the_cache_agrees_with_a_list_of_all_that_is_held(rows, data):
    """Against a cache that is written down plainly: a list of blocks in order of release, looked through each time."""
    words = [[(family, depth) for depth in range(length)] for family, length, _ in rows]
    names = {word: place for place, word in enumerate(sorted({one for word in words for one in word}))}
    blocks = data.draw(st.integers(16, 40))
    found = Lab(
        [(4 * length, output) for _, length, output in rows],
        ids=[[names[one] for one in word] for word in words],
        unit=4,
        num_blocks=blocks + 1,
        max_num_batched_tokens=1000,
    )
    queue = [None] * blocks  # what each released block holds, the next to be taken first
    for index, (_, length, output) in enumerate(rows):
        hits = 0
        while hits < (4 * length - 1) // 4 and words[index][hits] in queue:
            hits += 1
        found.submit(index).run()
        assert found.jobs[index].cached == 4 * hits
        held = [words[index][place] for place in range(length)]
        held += [(index, "answer", place) for place in range(length, (4 * length + output - 1) // 4)]
        held += [None] * (-(-(4 * length + output - 1) // 4) - len(held))
        for one in held[:hits]:
            queue.remove(one)
        del queue[: len(held) - hits]
        queue += reversed(held)
    assert found.engine.pool.used == 0


def test_the_hits_are_those_that_the_workload_allows():
    """`prefix_bound` counts hits of a cache that forgets nothing, in other code."""
    bound = prefix_bound(FAMILIES)["V1"]
    found = simulate(FAMILIES, DEPLOYMENT, Settings(num_blocks=inf))
    assert found.hit_blocks == bound.hit_pieces > 0
    assert found.cached.sum() == bound.hit_tokens


def test_more_memory_hits_more():
    rates = [simulate(FAMILIES, DEPLOYMENT, Settings(num_blocks=n)).hit_blocks for n in (40, 80, 160, 320, 640, inf)]
    assert rates == sorted(rates)
    assert rates[0] < rates[2] < rates[-1]
