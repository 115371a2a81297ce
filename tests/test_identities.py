"""What must hold for any model, accelerator and workload: limits, scaling laws, monotonicity, sums over parts."""

from dataclasses import fields, replace

import examples
import numpy as np
import pytest
from examples import LATENT, WINDOWED, batches, deployments, models, tokens
from hypothesis import assume, given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel import attention, data, kvcache

CLOSE = 1e-9  # relative: sums of a few terms of one sign in double precision
factors = st.sampled_from([2, 3, 10])


def approx(value, rel=CLOSE):
    return pytest.approx(value, rel=rel, abs=0)


# Sums


@given(models())
def test_parameters_are_the_sum_of_their_parts(model):
    count = pm.parameters(model)
    assert count.total == sum(getattr(count, item.name) for item in fields(count))
    assert pm.total_parameters(model) == count.total
    assert pm.linear_parameters(model) == count.total - count.embedding - count.lm_head


@given(deployments(), batches, tokens)
def test_parts_of_a_step_sum_to_the_whole(deployment, batch, context):
    for step in (pm.decode_time(deployment, batch, context), pm.prefill_time(deployment, context)):
        parts = [
            max(getattr(step.compute, name), getattr(step.memory, name))
            for name in ("linear", "attention", "lm_head", "experts")
        ]
        assert step.parts.total == approx(sum(parts))
        assert step.total == approx(sum(parts) + step.communication + step.overhead)
        assert sum(step.shares.values()) == approx(step.total)
        assert step.shares[str(step.bound)] == max(step.shares.values())


@given(deployments(), batches, tokens)
def test_totals_bound_the_sum_over_parts(deployment, batch, context):
    """max(sum, sum) <= sum of max <= sum of both <= 2 max(sum, sum)."""
    for step in (pm.decode_time(deployment, batch, context), pm.prefill_time(deployment, context)):
        assert step.by_totals <= step.total * (1 + CLOSE)
        aside = step.communication + step.overhead
        assert step.total - aside <= 2 * (step.by_totals - aside) * (1 + CLOSE)


def test_a_part_whose_roofs_are_equal_counts_once_as_memory():
    compute, memory = pm.Parts(1, 2, 3, 4), pm.Parts(1, 2, 5, 3)
    step = pm.StepTime(compute, memory, communication=3, overhead=1)
    assert step.parts == pm.Parts(1, 2, 5, 4)
    assert step.shares == {"memory": 8, "compute": 4, "communication": 3, "overhead": 1}
    assert (step.total, step.by_totals, step.bound) == (16, 15, "memory")
    assert replace(step, communication=8).bound == "memory"  # the first of equals


# Limits


@given(deployments())
def test_prefilling_one_token_is_decoding_it_with_itself_as_context(deployment):
    prefill, decode = pm.prefill_time(deployment, 1), pm.decode_time(deployment, 1, 1)
    assert prefill.total == approx(decode.total)
    assert prefill.compute.total == approx(decode.compute.total)


@given(deployments(), batches)
def test_without_context_attention_takes_no_time(deployment, batch):
    step = pm.decode_time(deployment, batch, 0)
    assert step.parts.attention == 0
    assert step.parts.linear > 0


@given(deployments(ideal=True, experts=False, bare=True))
def test_the_smallest_step_reads_every_weight_once(deployment):
    one = pm.decode_time(deployment, 1, 0)
    assume(one.compute.linear <= one.memory.linear)
    expected = pm.weight_bytes_per_gpu(deployment) / deployment.accelerator.memory_bandwidth
    assert one.total == approx(expected)


@given(models(experts=False), tokens)
def test_a_dense_model_touches_its_one_network(model, count):
    assert pm.touched_experts(model, count) == 1
    assert pm.active_parameters(model) == pm.total_parameters(model)
    touched = pm.touched_parameters(model, count)
    assert touched.linear == pm.linear_parameters(model)
    assert touched.lm_head == model.vocab_size * model.hidden_size


@given(models(), batches)
def test_touched_experts_lie_between_those_of_one_token_and_all(model, count):
    touched = pm.touched_experts(model, count)
    assert (
        model.experts_per_token * (1 - CLOSE) <= touched <= min(model.experts, count * model.experts_per_token) + CLOSE
    )
    assert pm.touched_experts(model, 1) == approx(model.experts_per_token)
    assert pm.touched_experts(model, 1e9) == approx(model.experts)
    assert pm.touched_parameters(model, count).linear <= pm.linear_parameters(model)


@given(models())
def test_one_token_touches_its_active_parameters(model):
    """All but the embedding, of which it reads one row."""
    active = pm.active_parameters(model) - pm.parameters(model).embedding
    tied = model.vocab_size * model.hidden_size if model.tied_embeddings else 0
    assert pm.touched_parameters(model, 1).total == approx(active + tied)


@given(st.integers(2, 500), st.floats(1, 1e12), examples.links)
def test_all_reduce_lies_between_one_and_two_payloads(accelerators, payload, link):
    time = pm.all_reduce(payload, accelerators, link) - link.latency
    at_least, at_most = payload / link.bandwidth, 2 * payload / link.bandwidth
    slack = link.latency * 1e-9
    assert at_least * (1 - CLOSE) - slack <= time <= at_most * (1 + CLOSE) + slack
    assert pm.all_reduce(payload, 1, link) == 0
    assert pm.all_reduce(payload, accelerators, None) == 0
    assert pm.all_reduce(0, accelerators, link) == link.latency


@given(batches, st.integers(2, 10_000), st.floats(1e-6, 100))
def test_prefill_interference(batch, output, prefill):
    assert pm.prefill_interference(1, output, prefill) == 0
    assert pm.prefill_interference(output, output, prefill) == approx(prefill)
    one = pm.prefill_interference(batch, output, prefill)
    assert pm.prefill_interference(batch, output, 2 * prefill) == approx(2 * one)
    assert pm.prefill_interference(batch + 1, output, prefill) - one == approx(prefill / (output - 1), rel=1e-6)


# Scaling laws


@given(deployments(ideal=True), batches, tokens, factors)
def test_a_machine_twice_as_fast_takes_half_the_time(deployment, batch, context, factor):
    machine = deployment.accelerator
    faster = replace(
        machine,
        memory_bandwidth=factor * machine.memory_bandwidth,
        bf16_flops=factor * machine.bf16_flops,
    )
    for step in (pm.decode_time, lambda d, b, s: pm.prefill_time(d, s, prompts=b)):
        slow, fast = step(deployment, batch, context), step(replace(deployment, accelerator=faster), batch, context)
        assert factor * fast.total == approx(slow.total)


@given(deployments(ideal=True), batches, tokens)
def test_efficiencies_scale_their_own_roof_alone(deployment, batch, context):
    full = pm.decode_time(deployment, batch, context)
    less = replace(deployment, constants=pm.Constants(bandwidth_efficiency=0.5, flops_efficiency=0.25))
    half = pm.decode_time(less, batch, context)
    assert half.memory.total == approx(2 * full.memory.total)
    assert half.compute.total == approx(4 * full.compute.total)


@given(deployments(ideal=True), batches, tokens)
def test_tensor_parallelism_without_a_link_divides_the_work(deployment, batch, context):
    """All but the KV cache, of which a GPU holds no less than one head."""
    alone, t = replace(deployment, tensor_parallel=1), deployment.tensor_parallel
    one, many = pm.decode_time(alone, batch, context), pm.decode_time(deployment, batch, context)
    assert t * many.compute.total == approx(one.compute.total)
    assert t * many.memory.linear == approx(one.memory.linear)
    assert t * many.memory.experts == approx(one.memory.experts)
    assert t * many.memory.lm_head == approx(one.memory.lm_head, rel=CLOSE) or not one.memory.lm_head
    share = max(1 / t, 1 / deployment.model.kv_heads)
    assert many.memory.attention == approx(share * one.memory.attention)
    assert many.total <= one.total * (1 + CLOSE)


@given(deployments())
def test_an_accelerator_holds_whole_key_value_heads(deployment):
    t, kv_heads = deployment.tensor_parallel, deployment.model.kv_heads
    heads = pm.kv_bytes_per_token_per_gpu(deployment) / pm.kv_bytes_per_token(deployment) * kv_heads
    assert heads == approx(max(kv_heads / t, 1))
    assert heads == approx(round(heads))
    assert t * heads >= kv_heads * (1 - CLOSE)


@given(deployments(), factors)
def test_kv_bytes_are_linear_in_layers_heads_and_element(deployment, factor):
    deployment = replace(deployment, tensor_parallel=1)
    base, model = pm.kv_bytes_per_token(deployment), deployment.model
    deeper = replace(deployment, model=replace(model, layers=factor * model.layers))
    wider = replace(deployment, model=replace(model, heads=factor * model.heads, kv_heads=factor * model.kv_heads))
    for changed in (deeper, wider, replace(deployment, kv_bytes=factor * deployment.kv_bytes)):
        assert pm.kv_bytes_per_token(changed) == factor * base


@given(models(), batches, tokens, factors)
def test_flops_are_linear_in_batch_and_attention_in_context(model, batch, context, factor):
    one = pm.decode_flops(model, batch, context)
    assert pm.decode_flops(model, factor * batch, context).total == approx(factor * one.total)
    longer = pm.decode_flops(model, batch, factor * context)
    assert longer.attention == approx(factor * one.attention)
    assert (longer.linear, longer.lm_head, longer.experts) == (one.linear, one.lm_head, one.experts)


@given(models(), batches, tokens)
def test_prefills_together_do_the_work_of_each(model, prompts, prompt):
    each, together = pm.prefill_flops(model, prompt), pm.prefill_flops(model, prompt, prompts=prompts)
    assert together.total == approx(prompts * each.total)


@given(deployments(experts=False), batches, tokens)
def test_prefills_together_read_the_weights_once(deployment, prompts, prompt):
    """And each writes its own cache."""
    each, together = (
        pm.prefill_time(deployment, prompt).memory,
        pm.prefill_time(deployment, prompt, prompts=prompts).memory,
    )
    assert (together.linear, together.lm_head) == (each.linear, each.lm_head)
    assert together.attention == approx(prompts * each.attention)


@given(deployments(), batches, tokens)
def test_messages_carry_every_token_of_the_step(deployment, batch, prompt):
    decode, prefill = pm.decode_time(deployment, batch, prompt), pm.prefill_time(deployment, prompt, prompts=batch)
    assert decode.communication == pm.tensor_parallel_time(deployment, batch)
    assert prefill.communication == approx(pm.tensor_parallel_time(deployment, batch * prompt))
    one = pm.tensor_parallel_time(deployment, 1)
    assert pm.tensor_parallel_time(deployment, 2) - one <= one * (1 + CLOSE)


@given(models(), st.integers(1, 60))
def test_decoding_token_by_token_does_the_attention_of_a_causal_prefill(model, prompt):
    one_by_one = sum(pm.decode_flops(model, 1, context).attention for context in range(1, prompt + 1))
    assert pm.prefill_flops(model, prompt).attention == approx(one_by_one)
    assert pm.prefill_flops(model, prompt).linear == approx(pm.decode_flops(model, prompt, 0).linear)
    assert pm.prefill_flops(model, prompt).experts == approx(pm.decode_flops(model, prompt, 0).experts)


@given(models(), tokens)
def test_the_causal_mask_halves_attention(model, prompt):
    masked, full = pm.prefill_flops(model, prompt), pm.prefill_flops(model, prompt, causal=False)
    assert masked.attention / full.attention == approx((prompt + 1) / (2 * prompt))
    assert (masked.linear, masked.lm_head) == (full.linear, full.lm_head)


def test_a_cached_prefix_is_read_for_each_prompt():
    """Four prompts of 512 behind 1,024 tokens each write 512 and read 1,024: 327,680 byte a token over 4 devices."""
    deployment = examples.served(constants=pm.IDEAL)
    step = pm.prefill_time(deployment, 512, prompts=4, prefix=1024)
    assert step.memory.attention == approx(4 * (512 + 1024) * 327_680 / 4 / 3.35e12)


def test_a_batch_of_less_than_one_request_is_less_work():
    """A mean over steps some of which are empty."""
    deployment = examples.served()
    half, one = pm.decode_time(deployment, 0.5, 1000), pm.decode_time(deployment, 1, 1000)
    assert half.compute.total == approx(one.compute.total / 2)
    assert half.memory.attention == approx(one.memory.attention / 2)
    assert half.memory.linear == one.memory.linear


DENSE = examples.served()
RING = examples.served(tensor_parallel=16, pipeline_parallel=2, context_parallel=2, decode_context_parallel=2)
MIXED = examples.served(LATENT, tensor_parallel=8, data_parallel=4, expert_parallel=True)
INDEXED, LINK = replace(LATENT, indexer=examples.INDEXER), data.link("nvlink4")
OF_A_LENGTH = {
    "attended, index": lambda n: attention.attended(INDEXED, n),
    "attended, window": lambda n: attention.attended(WINDOWED, n),
    "pairs, prompt": lambda n: attention.prefill_pairs(n, True, 100, 1000),
    "pairs, prefix": lambda n: attention.prefill_pairs(100, True, n, 1000),
    "pairs, no limit": lambda n: attention.prefill_pairs(100, True, n),
    "pairs, no mask": lambda n: attention.prefill_pairs(n, False, n, 1000),
    "experts, tokens": lambda n: pm.touched_experts(LATENT, n),
    "prefill flops, prompt": lambda n: pm.prefill_flops(INDEXED, n, prefix=n).total,
    "prefill flops, prompts": lambda n: pm.prefill_flops(LATENT, 100, prompts=n).total,
    "prefill flops, prefix": lambda n: pm.prefill_flops(LATENT, 100, prefix=n).total,
    "decode flops, batch": lambda n: pm.decode_flops(INDEXED, n, 100).total,
    "decode flops, context": lambda n: pm.decode_flops(INDEXED, 8, n).total,
    "decode flops, tokens": lambda n: pm.decode_flops(LATENT, 8, 100, n).total,
    "cache of a request": lambda n: pm.kv_bytes_of_request(examples.served(WINDOWED), n),
    "cache that is read": lambda n: kvcache.kv_bytes_read(examples.served(INDEXED), n),
    "activations": lambda n: pm.peak_activation_bytes(RING, n),
    "concurrency": lambda n: pm.max_concurrency(examples.served(WINDOWED), n),
    "all-reduce, payload": lambda n: pm.all_reduce(n, 8, LINK),
    "all-reduce, accelerators": lambda n: pm.all_reduce(1e6, n, LINK),
    "ring, accelerators": lambda n: pm.all_reduce_ring(1e6, n, LINK, 2e-6),
    "tree, accelerators": lambda n: pm.all_reduce_tree(1e6, n, LINK, 2e-6),
    "one shot, accelerators": lambda n: pm.all_reduce_one_shot(1e6, n, LINK, 2e-6),
    "send": lambda n: pm.send(n, LINK),
    "all-reduces of a pass": lambda n: pm.tensor_parallel_time(DENSE, n),
    "copies, experts": lambda n: pm.copies(n, 8),
    "copies, accelerators": lambda n: pm.copies(8, n),
    "exchange of experts": lambda n: pm.expert_parallel_time(MIXED, n),
    "stages": lambda n: pm.pipeline_time(RING, n),
    "ring of the cache": lambda n: pm.pass_kv_time(RING, n),
    "queries": lambda n: pm.pass_q_time(RING, n),
    "prefill, prompt": lambda n: pm.prefill_time(RING, n).total,
    "prefill, prompts": lambda n: pm.prefill_time(RING, 100, prompts=n).total,
    "prefill, prefix": lambda n: pm.prefill_time(RING, 100, prefix=n).total,
    "decode, batch": lambda n: pm.decode_time(RING, n, 100).total,
    "decode, context": lambda n: pm.decode_time(RING, 8, n).total,
    "decode, tokens": lambda n: pm.decode_time(RING, 8, 100, n).total,
    "context of a crossover": lambda n: pm.kv_equals_weights(DENSE, n),
    "batch of a crossover": lambda n: pm.totals_ridge_batch(DENSE, n),
    "end to end, first token": lambda n: pm.end_to_end(n, 0.1, 8),
    "end to end, later tokens": lambda n: pm.end_to_end(0.1, n, 8),
    "end to end, output": lambda n: pm.end_to_end(0.1, 0.1, n),
}


@pytest.mark.parametrize("name", OF_A_LENGTH)
def test_lists_are_taken_element_by_element(name):
    """And 32-bit integers do not wrap, whatever the argument."""
    lengths = [1, 64, 5000, 200_000]
    expected = approx([OF_A_LENGTH[name](n) for n in lengths])
    assert OF_A_LENGTH[name](lengths) == expected
    assert OF_A_LENGTH[name](np.array(lengths, dtype=np.int32)) == expected


# Monotonicity


@given(deployments(), batches, tokens)
def test_more_work_takes_more_time(deployment, batch, context):
    base = pm.decode_time(deployment, batch, context).total
    assert pm.decode_time(deployment, 2 * batch, context).total >= base
    assert pm.decode_time(deployment, batch, 2 * context).total >= base
    assert pm.decode_time(replace(deployment, kv_bytes=2 * deployment.kv_bytes), batch, context).total >= base
    prefill = pm.prefill_time(deployment, context).total
    assert pm.prefill_time(deployment, 2 * context).total >= prefill
    assert pm.prefill_time(deployment, context, causal=False).total >= prefill * (1 - CLOSE)
    assert pm.prefill_time(deployment, context, prompts=2).total >= prefill


@given(deployments(), st.lists(st.integers(0, 2_000_000), min_size=2, max_size=20))
def test_a_step_never_gets_shorter_with_context(deployment, contexts):
    steps = pm.decode_time(deployment, 8, np.array(sorted(contexts))).total
    assert np.all(np.diff(steps) >= -CLOSE * steps[1:])


@given(deployments(ideal=True), batches, tokens)
def test_a_bigger_batch_never_costs_a_token_more(deployment, batch, context):
    """Without host and messages: weights are shared and the rest is linear."""
    one, two = (pm.decode_time(deployment, b, context).total / b for b in (batch, 2 * batch))
    assert two <= one * (1 + CLOSE)


# Crossovers


@given(deployments(experts=False), st.booleans())
def test_at_the_prompt_crossover_arithmetic_and_traffic_of_a_prefill_take_as_long(deployment, causal):
    prompt = pm.totals_ridge_prompt(deployment, causal)
    assume(prompt > 1)  # below one token, the LM head alone outweighs the traffic
    step = pm.prefill_time(deployment, prompt, causal)
    # The difference of two nearly equal numbers loses digits where attention is a small part of the slope.
    assert step.compute.total == approx(step.memory.total, rel=1e-6)
    after = pm.prefill_time(deployment, 1.01 * prompt, causal)
    assert after.compute.total > after.memory.total


@given(deployments(experts=False), st.integers(0, 3000))
def test_at_the_batch_crossover_arithmetic_and_traffic_of_a_step_take_as_long(deployment, context):
    batch = pm.totals_ridge_batch(deployment, context)
    if np.isinf(batch):
        step = pm.decode_time(deployment, 1e12, context)
        assert step.compute.total <= step.memory.total
        return
    step = pm.decode_time(deployment, batch, context)
    assert step.compute.total == approx(step.memory.total, rel=1e-6)


@given(deployments(experts=False))
def test_beyond_the_context_crossover_no_batch_is_enough(deployment):
    context = pm.totals_ridge_context(deployment)
    if np.isinf(context):  # attention itself is compute-bound: more context only helps
        assert np.isfinite(pm.totals_ridge_batch(deployment, 1e6))
        return
    assert np.isfinite(pm.totals_ridge_batch(deployment, 0.99 * context))
    assert np.isinf(pm.totals_ridge_batch(deployment, 1.01 * context))


@given(deployments())
def test_linear_layers_leave_the_memory_roof_at_the_ridge(deployment):
    """Where all experts are read, which is at a large batch anyway."""
    batch = pm.ridge_tokens(deployment)
    step = pm.decode_time(deployment, batch, 0)
    compute, memory = (part.linear + part.experts for part in (step.compute, step.memory))
    if deployment.model.experts == 1:
        assert compute == approx(memory)
    else:
        assert compute >= memory * (1 - CLOSE)


@given(deployments(bare=True, experts=False))
def test_the_ridge_of_a_dense_model_depends_on_the_machine_alone(deployment):
    assert pm.ridge_tokens(deployment) == approx(deployment.weight_bytes * pm.ridge_point(deployment) / 2)
    assert pm.ridge_point(deployment) == approx(deployment.flops / deployment.bandwidth)


@given(models(), st.booleans())
def test_attention_equals_the_linear_layers(model, causal):
    prompt = pm.attention_equals_linear(model, causal)
    flops = pm.prefill_flops(model, max(prompt, 1e-9), causal)
    assume(prompt > 0.5)  # 2x - 1 loses its digits below
    assert flops.attention == approx(flops.linear + flops.experts, rel=1e-6)


# What fits


@given(deployments(), st.sampled_from([1, 16, 128]), st.integers(0, 16384))
def test_the_cache_fits_and_one_more_block_does_not(deployment, block_size, step_tokens):
    blocks = pm.kv_blocks(deployment, block_size, step_tokens)
    assert blocks == np.floor(blocks) >= 0
    assert pm.kv_capacity_tokens(deployment, block_size, step_tokens) == blocks * block_size
    usable = deployment.accelerator.memory_capacity * deployment.memory_utilization
    taken = pm.weight_bytes_per_gpu(deployment) + pm.peak_activation_bytes(deployment, step_tokens)
    block = block_size * pm.kv_bytes_per_token_per_gpu(deployment)
    slack = CLOSE * usable
    assert taken + blocks * block <= usable + slack or blocks == 0
    assert taken + (blocks + 1) * block > usable - slack


@given(deployments(), st.integers(1, 100_000))
def test_requests_take_whole_blocks(deployment, length):
    blocks, requests = pm.kv_blocks(deployment), pm.max_concurrency(deployment, length)
    each = -(-length // 16)
    assert requests * each <= blocks < (requests + 1) * each
    assert pm.max_concurrency(deployment, 16 * each) == requests


@given(deployments(), factors)
def test_more_memory_holds_more(deployment, factor):
    machine = deployment.accelerator
    larger = replace(deployment, accelerator=replace(machine, memory_capacity=factor * machine.memory_capacity))
    before, after = pm.kv_blocks(deployment), pm.kv_blocks(larger)
    extra = (factor - 1) * machine.memory_capacity * deployment.memory_utilization
    # All of the addition goes to the cache, if something of the memory went there before.
    assert after - before >= (extra // (16 * pm.kv_bytes_per_token_per_gpu(deployment)) - 1 if before else 0)
    assert pm.kv_blocks(deployment, step_tokens=0) >= before


# A served request

workloads = st.builds(pm.Workload, prompt=st.integers(1, 100_000), output=st.integers(2, 5_000), batch=batches)


@given(deployments(), workloads)
def test_an_estimate_is_consistent(deployment, workload):
    result = pm.estimate(deployment, workload)
    assert result.ttft_s == approx(pm.prefill_time(deployment, workload.prompt).total)
    assert result.tpot_s == approx(result.decode_step_s + result.interference_s)
    assert result.e2e_s == approx(result.ttft_s + result.tpot_s * (workload.output - 1))
    in_flight = deployment.data_parallel * workload.batch
    assert result.throughput_tok_s * result.e2e_s == approx(in_flight * workload.output)  # Little's law
    assert result.fits == (result.max_concurrency >= workload.batch)
    assert result.max_concurrency * (workload.prompt + workload.output) <= result.kv_capacity_tokens
    assert result.max_concurrency == pm.max_concurrency(deployment, workload.prompt + workload.output)


@given(deployments(), workloads)
def test_a_pool_that_only_decodes_has_no_interference(deployment, workload):
    alone, shared = pm.estimate(deployment, workload, pm.Engine(prefill="apart")), pm.estimate(deployment, workload)
    assert alone.interference_s == 0
    assert alone.tpot_s == alone.decode_step_s == shared.decode_step_s
    assert alone.throughput_tok_s >= shared.throughput_tok_s * (1 - CLOSE)


@given(deployments(), workloads, factors)
def test_replicas_multiply_throughput_and_nothing_else(deployment, workload, factor):
    one = pm.estimate(deployment, workload)
    many = pm.estimate(replace(deployment, data_parallel=factor * deployment.data_parallel), workload)
    assert many.throughput_tok_s == approx(factor * one.throughput_tok_s)
    assert replace(many, throughput_tok_s=0) == replace(one, throughput_tok_s=0)


@given(st.integers(1, 1000), st.integers(2, 1000))
def test_the_mean_context_is_the_mean_over_the_decode_steps(prompt, output):
    steps = [prompt + done for done in range(1, output)]
    assert pm.Workload(prompt, output, batch=1).context == approx(sum(steps) / len(steps))
