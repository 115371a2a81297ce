"""Blocks of the paged cache: what they waste, and what contiguous reservations wasted."""

import numpy as np
import pytest
from examples import deployments, refused, served
from hypothesis import given
from hypothesis import strategies as st
from test_dimensions import ONE

import perfmodel as pm
from perfmodel import paging

block_sizes = st.integers(1, 512)

OPS_CALLS = {
    "blocks_of": lambda d, B, S, n, s: paging.blocks_of(s),
    "contiguous_concurrency": lambda d, B, S, n, s: paging.contiguous_concurrency(d, s),
    "contiguous_utilization": lambda d, B, S, n, s: paging.contiguous_utilization(S, s),
    "expected_waste": lambda d, B, S, n, s: paging.expected_waste(n),
    "paged_utilization": lambda d, B, S, n, s: paging.paged_utilization(s, n),
    "wasted_tokens": lambda d, B, S, n, s: paging.wasted_tokens(s),
}
DIMENSION_CALLS = {
    "blocks_of": (ONE, lambda d, u: paging.blocks_of(1281)),
    "contiguous_concurrency": (ONE, lambda d, u: paging.contiguous_concurrency(d, 4096)),
    "contiguous_utilization": (ONE, lambda d, u: paging.contiguous_utilization(20, 4096)),
    "expected_waste": (ONE, lambda d, u: paging.expected_waste(16)),
    "paged_utilization": (ONE, lambda d, u: paging.paged_utilization(1280)),
    "wasted_tokens": (ONE, lambda d, u: paging.wasted_tokens(1281)),
}


@pytest.mark.parametrize(("tokens", "blocks", "empty"), [(30, 2, 2), (8, 1, 8), (16, 1, 0), (17, 2, 15), (1280, 80, 0)])
def test_blocks_of_a_request(tokens, blocks, empty):
    """The first two are the source article's, claims c03.2-02 and c03.2-04: 30 and 8 tokens in blocks of 16."""
    assert paging.blocks_of(tokens) == blocks
    assert paging.wasted_tokens(tokens) == empty


@given(block_sizes, st.integers(0, 1000))
def test_the_expected_waste_is_the_mean_over_all_fillings_of_the_last_block(block_size, full):
    fillings = [full * block_size + last for last in range(1, block_size + 1)]
    mean = sum(-tokens % block_size for tokens in fillings) / block_size
    assert paging.expected_waste(block_size) == pytest.approx(mean)
    assert np.mean(paging.wasted_tokens(fillings, block_size)) == pytest.approx(mean)


def test_the_waste_of_common_block_sizes():
    """By hand, (b - 1) / 2: claims c03.4-01 (1.5 tokens at b = 4) and, at b = 32, 15.5 where the source has 16."""
    assert paging.expected_waste(np.array([1, 4, 16, 32, 256])) == pytest.approx([0, 1.5, 7.5, 15.5, 127.5])


def test_utilization_of_the_worked_example():
    """Claim c09.3-07 recomputed: 99.417476 % at 1,280 tokens; the source's 96 % belongs to requests of 180."""
    assert paging.paged_utilization(1280) == pytest.approx(0.99417476, rel=1e-7)
    assert paging.paged_utilization(180) == pytest.approx(0.96)


def test_a_reservation_for_the_longest_request():
    """Claim c03.1-03 recomputed: 20 tokens in 4,096 places are 0.48828125 %, where the source has 20 %."""
    assert paging.contiguous_utilization(20, 4096) == pytest.approx(0.0048828125)
    assert paging.contiguous_utilization(4096, 4096) == 1
    assert paging.contiguous_utilization(5000, 4096) == 1  # cut off, not more than full


@given(st.integers(1, 100_000), block_sizes)
def test_a_request_fits_its_blocks_with_less_than_a_block_to_spare(tokens, block_size):
    assert 0 <= paging.wasted_tokens(tokens, block_size) < block_size
    assert paging.blocks_of(tokens, block_size) == -(-tokens // block_size)
    assert paging.paged_utilization(tokens, block_size) <= 1
    assert paging.paged_utilization(tokens, 1) == 1


@given(st.integers(1, 100_000), block_sizes)
def test_larger_blocks_waste_more_and_longer_requests_a_smaller_share(tokens, block_size):
    here = paging.paged_utilization(tokens, block_size)
    assert paging.paged_utilization(tokens, block_size + 1) < here
    assert paging.paged_utilization(2 * tokens, block_size) >= here


@given(deployments(), st.integers(1, 10_000), st.integers(1, 100))
def test_paging_never_holds_fewer_requests_than_reservations_of_the_longest(deployment, tokens, factor):
    """The reservation is `factor` times the request, in whole blocks so that both lose nothing else."""
    reserved = 16 * -(-tokens // 16) * factor
    held = paging.contiguous_concurrency(deployment, reserved)
    assert held == pm.kv_capacity_tokens(deployment) // reserved
    assert paging.contiguous_concurrency(deployment, 1) == pm.kv_capacity_tokens(deployment)
    assert pm.max_concurrency(deployment, tokens) >= factor * held


def test_bad_input():
    refused(lambda: paging.blocks_of(0), "blocks_of", "tokens=0", "above 0")
    refused(lambda: paging.blocks_of(10, 2.5), "block_size=2.5", "whole")
    refused(lambda: paging.wasted_tokens(float("nan")), "tokens=nan")
    refused(lambda: paging.expected_waste(0), "expected_waste", "block_size=0")
    refused(lambda: paging.paged_utilization("many"), "paged_utilization", "tokens='many'")
    refused(lambda: paging.contiguous_utilization(10, 0), "reserved=0", "at least 1")
    refused(lambda: paging.contiguous_utilization(-1, 10), "tokens=-1")
    refused(lambda: paging.contiguous_concurrency(served(), 0), "contiguous_concurrency", "reserved=0")
