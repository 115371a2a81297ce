"""Every public function takes quantities with units and returns the unit that its docstring promises.

A FLOP and a token are counts; a byte and a second are dimensions of their own, so that bytes over FLOP/s, or a latency
added to a number of bytes, raises.
"""

from dataclasses import fields, replace

import examples
import pint
import pytest

import perfmodel as pm

registry = pint.UnitRegistry(None)
registry.define("second = [time] = s")
registry.define("byte = [memory] = B")
second, byte = registry.second, registry.byte


def with_units(deployment):
    """The same deployment with a unit on every quantity that has one."""
    accelerator, link, constants = deployment.accelerator, deployment.link, deployment.constants
    return replace(
        deployment,
        accelerator=replace(
            accelerator,
            memory_capacity=accelerator.memory_capacity * byte,
            memory_bandwidth=accelerator.memory_bandwidth * byte / second,
            bf16_flops=accelerator.bf16_flops / second,
        ),
        link=replace(link, bandwidth=link.bandwidth * byte / second, latency=link.latency * second),
        constants=replace(constants, step_overhead=constants.step_overhead * second),
        weight_bytes=deployment.weight_bytes * byte,
        kv_bytes=deployment.kv_bytes * byte,
        activation_bytes=deployment.activation_bytes * byte,
    )


PLAIN = {
    "dense": examples.served(),
    "experts": examples.served("mixtral-8x7b", "h200", tensor_parallel=2),
    "latent": examples.served(examples.LATENT, "h200", tensor_parallel=8, data_parallel=4, **examples.EVERY_DEGREE),
}

ONE = registry.dimensionless
CALLS = {
    "active_parameters": (ONE, lambda d, u: pm.active_parameters(d.model)),
    "all_reduce": (second, lambda d, u: pm.all_reduce(16384 * u(byte), 4, d.link)),
    "all_gather": (second, lambda d, u: pm.all_gather(16384 * u(byte), 4, d.link)),
    "all_reduce_one_shot": (
        second,
        lambda d, u: pm.all_reduce_one_shot(16384 * u(byte), 4, d.link, 2e-6 * u(second)),
    ),
    "all_reduce_ring": (second, lambda d, u: pm.all_reduce_ring(16384 * u(byte), 4, d.link, 2e-6 * u(second))),
    "all_reduce_tree": (second, lambda d, u: pm.all_reduce_tree(16384 * u(byte), 4, d.link, 2e-6 * u(second))),
    "all_to_all": (second, lambda d, u: pm.all_to_all(16384 * u(byte), 4, d.link)),
    "copies": (ONE, lambda d, u: pm.copies(d.model.experts_per_token, 8)),
    "expert_parallel_time": (second, lambda d, u: pm.expert_parallel_time(d, 64)),
    "kv_budget": (byte, lambda d, u: pm.kv_budget(d)),
    "kv_bytes_of_request": (byte, lambda d, u: pm.kv_bytes_of_request(d, 1280)),
    "kv_equals_weights": (ONE, lambda d, u: pm.kv_equals_weights(d, 64)),
    "overlapped": (second, lambda d, u: pm.overlapped(0.2 * u(second), 0.1 * u(second))),
    "pass_kv_time": (second, lambda d, u: pm.pass_kv_time(d, 1024)),
    "pass_q_time": (second, lambda d, u: pm.pass_q_time(d, 64)),
    "pipeline_time": (second, lambda d, u: pm.pipeline_time(d, 64)),
    "reduce_scatter": (second, lambda d, u: pm.reduce_scatter(16384 * u(byte), 4, d.link)),
    "send": (second, lambda d, u: pm.send(16384 * u(byte), d.link)),
    "attention_equals_linear": (ONE, lambda d, u: pm.attention_equals_linear(d.model)),
    "decode_flops": (ONE, lambda d, u: pm.decode_flops(d.model, 64, 1280)),
    "decode_time": (second, lambda d, u: pm.decode_time(d, 64, 1280)),
    "end_to_end": (second, lambda d, u: pm.end_to_end(0.1 * u(second), 0.02 * u(second), 256)),
    "kv_blocks": (ONE, lambda d, u: pm.kv_blocks(d)),
    "kv_bytes_per_token": (byte, lambda d, u: pm.kv_bytes_per_token(d)),
    "kv_bytes_per_token_per_gpu": (byte, lambda d, u: pm.kv_bytes_per_token_per_gpu(d)),
    "kv_capacity_tokens": (ONE, lambda d, u: pm.kv_capacity_tokens(d)),
    "linear_parameters": (ONE, lambda d, u: pm.linear_parameters(d.model)),
    "matmul_parameters": (ONE, lambda d, u: pm.matmul_parameters(d.model)),
    "max_concurrency": (ONE, lambda d, u: pm.max_concurrency(d, 1280)),
    "parameters": (ONE, lambda d, u: pm.parameters(d.model)),
    "peak_activation_bytes": (byte, lambda d, u: pm.peak_activation_bytes(d)),
    "prefill_flops": (ONE, lambda d, u: pm.prefill_flops(d.model, 1024)),
    "prefill_interference": (second, lambda d, u: pm.prefill_interference(64, 256, pm.prefill_time(d, 1024).total)),
    "prefill_time": (second, lambda d, u: pm.prefill_time(d, 1024, prompts=8)),
    "ridge_point": (1 / byte, lambda d, u: pm.ridge_point(d)),
    "ridge_tokens": (ONE, lambda d, u: pm.ridge_tokens(d)),
    "tensor_parallel_time": (second, lambda d, u: pm.tensor_parallel_time(d, 64)),
    "total_parameters": (ONE, lambda d, u: pm.total_parameters(d.model)),
    "totals_ridge_batch": (ONE, lambda d, u: pm.totals_ridge_batch(d, 1280)),
    "totals_ridge_context": (ONE, lambda d, u: pm.totals_ridge_context(d)),
    "totals_ridge_prompt": (ONE, lambda d, u: pm.totals_ridge_prompt(d)),
    "touched_experts": (ONE, lambda d, u: pm.touched_experts(d.model, 64)),
    "touched_parameters": (ONE, lambda d, u: pm.touched_parameters(d.model, 64)),
    "weight_bytes_per_gpu": (byte, lambda d, u: pm.weight_bytes_per_gpu(d)),
}


def numbers(result):
    """A result, or all parts, sums and shares of it, by name."""
    if not hasattr(result, "__dataclass_fields__"):
        return {"": result}
    found = {item.name: getattr(result, item.name) for item in fields(result)}
    found |= {name: getattr(result, name) for name in ("total", "by_totals") if hasattr(result, name)}
    found |= getattr(result, "shares", {})
    return {f"{name} {part}": value for name, whole in found.items() for part, value in numbers(whole).items()}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("name", CALLS)
def test_dimension_and_value(name, kind):
    unit, call = CALLS[name]
    expected = numbers(call(PLAIN[kind], lambda unit: 1))
    found = numbers(call(with_units(PLAIN[kind]), lambda unit: 1 * unit))
    assert found.keys() == expected.keys()
    for part, value in found.items():
        quantity = value * ONE if not hasattr(value, "to") else value
        if unit != ONE and not quantity.magnitude and quantity.unitless:
            continue  # a share of nothing is a plain 0
        # `to` raises if the dimension is another one.
        assert quantity.to(unit).magnitude == pytest.approx(expected[part], rel=1e-12), part


def test_prefixes_do_not_matter():
    """The same link in other units gives the same time."""
    registry.define("milli- = 1e-3 = m-")
    registry.define("giga- = 1e9 = G-")
    link = pm.Link("any", bandwidth=registry.Quantity(370, "GB/s"), latency=registry.Quantity(0.01, "ms"))
    same = pm.Link("any", bandwidth=370e9, latency=1e-5)
    time = pm.all_reduce(registry.Quantity(1, "GB"), 8, link)
    assert time.to("s").magnitude == pytest.approx(pm.all_reduce(1e9, 8, same), rel=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda d: replace(d, accelerator=replace(d.accelerator, memory_bandwidth=3.35e12 * byte)),
        lambda d: replace(d, accelerator=replace(d.accelerator, bf16_flops=1e15 * byte / second)),
        lambda d: replace(d, link=replace(d.link, latency=1e-5 * byte)),
        lambda d: replace(d, link=replace(d.link, bandwidth=370e9 / second)),
        lambda d: replace(d, constants=replace(d.constants, step_overhead=1e-3 / second)),
        lambda d: replace(d, weight_bytes=2 * second),
        lambda d: replace(d, kv_bytes=2),
        lambda d: replace(d, activation_bytes=2),
    ],
    ids=["bandwidth", "rate", "latency", "link", "overhead", "weights", "cache", "activations"],
)
def test_a_wrong_unit_raises(wrong):
    """So the check above can fail: one wrong unit anywhere does not reach the total."""
    deployment = wrong(with_units(PLAIN["dense"]))
    with pytest.raises(pint.DimensionalityError):
        _ = pm.decode_time(deployment, 64, 1280).total


def test_every_letter_has_one_unit_and_one_meaning():
    """The table of notation: a letter twice would be a formula misread."""
    rows = pm.notation()
    letters = [row.symbol for row in rows]
    assert len(set(letters)) == len(letters)
    assert {row.unit for row in rows} <= {"1", "token", "s", "byte", "byte/s", "FLOP/s", "FLOP/byte", "W", "1/s"}
    assert all(row.meaning for row in rows)
    places = {row.where.rsplit(".", 1)[-1] for row in rows}
    assert {
        "kv_heads",
        "memory_bandwidth",
        "latency",
        "tensor_parallel",
        "step_overhead",
        "batch",
        "ridge_point",
    } <= places
