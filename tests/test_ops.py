"""A formula is one formula: floats, elements of arrays and substituted symbols give the same value."""

import subprocess
import sys
from dataclasses import fields, is_dataclass, replace

import examples
import mpmath
import numpy as np
import pytest
import sympy as sp

import perfmodel as pm
from perfmodel import _ops, attention, counts, kvcache, roofline, served

# Every function of the core, as a function of a deployment and the four lengths.
CALLS = {
    "active_parameters": lambda d, B, S, n, s: pm.active_parameters(d.model),
    "all_gather": lambda d, B, S, n, s: pm.all_gather(B * 16384.0, d.tensor_parallel, d.link),
    "all_reduce_one_shot": lambda d, B, S, n, s: pm.all_reduce_one_shot(B * 16384.0, d.tensor_parallel, d.link, 2e-6),
    "all_reduce_ring": lambda d, B, S, n, s: pm.all_reduce_ring(B * 16384.0, d.tensor_parallel, d.link, 2e-6),
    "all_reduce_tree": lambda d, B, S, n, s: pm.all_reduce_tree(B * 16384.0, d.tensor_parallel, d.link, 2e-6),
    "all_to_all": lambda d, B, S, n, s: pm.all_to_all(B * 16384.0, d.tensor_parallel, d.link),
    "attended": lambda d, B, S, n, s: attention.attended(d.model, s),
    "attention_norms": lambda d, B, S, n, s: attention.attention_norms(d.model),
    "copies": lambda d, B, S, n, s: pm.copies(d.model.experts_per_token, B),
    "expansion_flops": lambda d, B, S, n, s: attention.expansion_flops(d.model),
    "expert_matmul_parameters": lambda d, B, S, n, s: counts.expert_matmul_parameters(d.model),
    "expert_parallel_time": lambda d, B, S, n, s: pm.expert_parallel_time(d, B),
    "index_bytes_per_layer": lambda d, B, S, n, s: kvcache.index_bytes_per_layer(d),
    "index_flops": lambda d, B, S, n, s: attention.index_flops(d.model),
    "kv_budget": lambda d, B, S, n, s: pm.kv_budget(d, S),
    "kv_bytes_of_request": lambda d, B, S, n, s: pm.kv_bytes_of_request(d, s),
    "kv_bytes_per_layer": lambda d, B, S, n, s: kvcache.kv_bytes_per_layer(d),
    "kv_bytes_read": lambda d, B, S, n, s: kvcache.kv_bytes_read(d, s),
    "kv_equals_weights": lambda d, B, S, n, s: pm.kv_equals_weights(d, B),
    "kv_share": lambda d, B, S, n, s: kvcache.kv_share(d),
    "linear_bytes": lambda d, B, S, n, s: roofline.linear_bytes(d),
    "moe_layers": lambda d, B, S, n, s: counts.moe_layers(d.model),
    "moe_layers_of_stage": lambda d, B, S, n, s: kvcache.moe_layers_of_stage(d),
    "network_biases": lambda d, B, S, n, s: counts.network_biases(d.model, S),
    "network_parameters": lambda d, B, S, n, s: counts.network_parameters(d.model, S),
    "network_weights": lambda d, B, S, n, s: counts.network_weights(d.model, S),
    "overlapped": lambda d, B, S, n, s: pm.overlapped(B, S, n),
    "pair_flops": lambda d, B, S, n, s: attention.pair_flops(d.model, absorbed=True),
    "pass_kv_time": lambda d, B, S, n, s: pm.pass_kv_time(d, S),
    "pass_q_time": lambda d, B, S, n, s: pm.pass_q_time(d, B),
    "pipeline_time": lambda d, B, S, n, s: pm.pipeline_time(d, B),
    "prefill_attended": lambda d, B, S, n, s: attention.prefill_attended(d.model, S, True, s),
    "prefill_pairs": lambda d, B, S, n, s: attention.prefill_pairs(S, True, s, 1024),
    "reduce_scatter": lambda d, B, S, n, s: pm.reduce_scatter(B * 16384.0, d.tensor_parallel, d.link),
    "routed_parameters": lambda d, B, S, n, s: counts.routed_parameters(d.model, 3),
    "send": lambda d, B, S, n, s: pm.send(B * 16384.0, d.link),
    "stage_share": lambda d, B, S, n, s: kvcache.stage_share(d),
    "all_reduce": lambda d, B, S, n, s: pm.all_reduce(B * 16384.0, d.tensor_parallel, d.link),
    "attention_equals_linear": lambda d, B, S, n, s: pm.attention_equals_linear(d.model),
    "attention_weights": lambda d, B, S, n, s: attention.attention_weights(d.model),
    "decode_flops": lambda d, B, S, n, s: pm.decode_flops(d.model, B, s, tokens=5),
    "decode_time": lambda d, B, S, n, s: pm.decode_time(d, B, s, tokens=5),
    "end_to_end": lambda d, B, S, n, s: served.end_to_end(
        pm.prefill_time(d, S).total, pm.decode_time(d, B, s).total, n
    ),
    "expert_weights": lambda d, B, S, n, s: counts.expert_weights(d.model),
    "kv_blocks": lambda d, B, S, n, s: pm.kv_blocks(d),
    "kv_bytes_per_token": lambda d, B, S, n, s: pm.kv_bytes_per_token(d),
    "kv_bytes_per_token_per_gpu": lambda d, B, S, n, s: pm.kv_bytes_per_token_per_gpu(d),
    "kv_capacity_tokens": lambda d, B, S, n, s: pm.kv_capacity_tokens(d),
    "linear_parameters": lambda d, B, S, n, s: pm.linear_parameters(d.model),
    "matmul_parameters": lambda d, B, S, n, s: pm.matmul_parameters(d.model),
    "max_concurrency": lambda d, B, S, n, s: pm.max_concurrency(d, s),
    "parameters": lambda d, B, S, n, s: pm.parameters(d.model),
    "peak_activation_bytes": lambda d, B, S, n, s: pm.peak_activation_bytes(d, S),
    "prefill_flops": lambda d, B, S, n, s: pm.prefill_flops(d.model, S, prompts=B, prefix=s),
    "prefill_interference": lambda d, B, S, n, s: pm.prefill_interference(B, n, pm.prefill_time(d, S).total),
    "prefill_time": lambda d, B, S, n, s: pm.prefill_time(d, S, prompts=B, prefix=s),
    "ridge_point": lambda d, B, S, n, s: pm.ridge_point(d),
    "ridge_tokens": lambda d, B, S, n, s: pm.ridge_tokens(d),
    "tensor_parallel_time": lambda d, B, S, n, s: pm.tensor_parallel_time(d, B),
    "total_parameters": lambda d, B, S, n, s: pm.total_parameters(d.model),
    "totals_ridge_batch": lambda d, B, S, n, s: pm.totals_ridge_batch(d, s),
    "totals_ridge_context": lambda d, B, S, n, s: pm.totals_ridge_context(d),
    "totals_ridge_prompt": lambda d, B, S, n, s: pm.totals_ridge_prompt(d),
    "touched_experts": lambda d, B, S, n, s: pm.touched_experts(d.model, B),
    "touched_parameters": lambda d, B, S, n, s: pm.touched_parameters(d.model, B),
    "weight_bytes_per_gpu": lambda d, B, S, n, s: pm.weight_bytes_per_gpu(d),
}
DEPLOYMENTS = {
    "dense": examples.served(),
    "experts": examples.served("mixtral-8x7b", "ascend-910c-die", tensor_parallel=2),
    "latent": examples.served(examples.LATENT, "h200", tensor_parallel=8, data_parallel=4, **examples.EVERY_DEGREE),
    "indexed": examples.served(replace(examples.LATENT, indexer=examples.INDEXER), "h200", tensor_parallel=8),
    "windowed": examples.served(examples.WINDOWED, tensor_parallel=2, pipeline_parallel=3, context_parallel=2),
}
DIGITS = 40
# Each length runs through both sides of the crossovers.
POINTS = [(1, 1, 2, 1), (3, 7, 5, 900), (64, 128, 256, 1152), (411, 2048, 300, 5000), (5000, 131072, 4000, 262144)]


def numbers(result):
    """All numbers of a result by name: fields and, where it has them, sums and shares."""
    if not is_dataclass(result):
        return {"": result}
    found = {}
    for item in fields(result):
        found |= {f"{item.name} {name}": value for name, value in numbers(getattr(result, item.name)).items()}
    for name in ("total", "by_totals"):
        if hasattr(result, name):
            found[name] = getattr(result, name)
    if hasattr(result, "shares"):
        found |= result.shares
    return found


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
@pytest.mark.parametrize("name", CALLS)
def test_arrays_give_what_floats_give(name, deployment):
    if not supported(name, deployment):
        return  # refused: the next test
    one_by_one = [numbers(CALLS[name](deployment, *map(float, point))) for point in POINTS]
    for kind in (np.float64, np.int32, np.int64):
        at_once = numbers(CALLS[name](deployment, *np.array(POINTS, dtype=kind).T))
        assert at_once.keys() == one_by_one[0].keys()
        for part, values in at_once.items():
            expected = [point[part] for point in one_by_one]
            values = np.broadcast_to(values, len(POINTS))
            assert values == pytest.approx(expected, rel=1e-14), (part, kind)


def traced(instance, values):
    """The same instance with a symbol for each quantity that its kind has; `values` collects what they stand for."""
    given = {}
    for item in fields(instance):
        value = getattr(instance, item.name)
        if is_dataclass(value):
            given[item.name] = traced(value, values)
        elif "symbol" in item.metadata and not (
            value == item.default and (item.metadata["absent"] or "experts" in item.name)
        ):
            given[item.name] = sp.Symbol(item.metadata["symbol"], positive=True, integer=item.metadata["whole"] or None)
            values[given[item.name]] = value
    return replace(instance, **given)


def supported(name, deployment):
    """Whether the function takes the deployment: closed crossovers need attention that reads all of the context."""
    limits = deployment.model.window or deployment.model.indexer
    return not (limits and name.startswith(("attention_equals", "kv_equals", "totals_ridge")))


@pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
@pytest.mark.parametrize("name", CALLS)
def test_symbols_give_what_floats_give(name, deployment):
    """Every quantity of the deployment is a symbol; substituting its value gives the number."""
    if not supported(name, deployment):
        examples.refused(lambda: CALLS[name](deployment, 1, 1, 2, 1), "no closed form")
        return
    values = {}
    symbolic = traced(deployment, values)
    letters = pm.argument_symbols("batch", "prompt", "output", "context")
    formulas = numbers(CALLS[name](symbolic, *letters))
    # Evaluated with many digits: what differs beyond double precision is not the formula.
    evaluate = sp.lambdify([*values, *letters], [sp.sympify(f) for f in formulas.values()], "mpmath", cse=True)
    for point in POINTS:
        expected = numbers(CALLS[name](deployment, *map(float, point)))
        assert formulas.keys() == expected.keys()
        with mpmath.workdps(DIGITS):
            found = evaluate(*(mpmath.mpf(value) for value in [*values.values(), *point]))
        for part, value in zip(formulas, found, strict=True):
            # The quotient of symbols is negative, not infinite, where there is no crossover.
            if name in ("totals_ridge_batch", "totals_ridge_context") and value < 0:
                assert expected[part] == np.inf
            else:
                assert float(value) == pytest.approx(float(expected[part]), rel=1e-11, abs=1e-25), (part, point)


def test_operations_agree_where_languages_differ():
    x, y = sp.symbols("x y", real=True)
    pairs = [(-1.5, 2.0), (2.0, -1.5), (0.0, 0.0), (7.25, 7.0)]
    operations = {
        "maximum": (_ops.maximum, 2),
        "minimum": (_ops.minimum, 2),
        "floor": (_ops.floor, 1),
        "ceil": (_ops.ceil, 1),
        "where": (lambda a, b: _ops.where(a > b, a + 1, b - 1), 2),
        "sqrt": (lambda a: _ops.sqrt(a * a), 1),
        "three": (lambda a, b: _ops.maximum(a, b, 1) - _ops.minimum(a, b, -1), 2),
    }
    for name, (operation, arity) in operations.items():
        by_float = [float(operation(*pair[:arity])) for pair in pairs]
        by_array = operation(*np.array(pairs).T[:arity])
        traced = operation(*(x, y)[:arity])
        by_symbol = [float(traced.subs({x: sp.Rational(a), y: sp.Rational(b)})) for a, b in pairs]
        assert by_float == pytest.approx(by_array), name
        assert by_float == pytest.approx(by_symbol), name


def test_lengths_may_be_lists():
    step = pm.decode_time(examples.served(), [1, 64], [1280, 1280])
    assert step.total == pytest.approx([pm.decode_time(examples.served(), batch, 1280).total for batch in (1, 64)])


def test_where_takes_array_values_on_a_plain_condition():
    assert _ops.where(np.bool_(True), np.arange(3), 0).tolist() == [0, 1, 2]
    assert _ops.where(False, 1, 2) == 2


def test_nan_is_not_swallowed():
    """A silent NaN in a sweep must stay visible."""
    assert np.isnan(_ops.maximum(1.0, np.nan))
    assert np.isnan(_ops.minimum(np.array([1.0, np.nan]), 0.0)).tolist() == [False, True]


def test_integers_do_not_wrap():
    """Batch times context times bytes passes 2**31, and for the FLOPs of a long prompt 2**63."""
    model = examples.SOURCE_MODEL
    batch, context = np.array([4096], dtype=np.int32), np.array([1_000_000], dtype=np.int32)
    assert pm.decode_flops(model, batch, context).attention == pytest.approx([4 * 4096 * 1e6 * 64 * 128 * 80])
    prompt = np.array([2_000_000_000], dtype=np.int64)
    assert pm.prefill_flops(model, prompt, causal=False).attention == pytest.approx([4 * 4e18 * 64 * 128 * 80])


def test_a_symbolic_tensor_parallelism_is_free_only_on_one_accelerator():
    t = sp.Symbol("t", positive=True)
    traced = pm.tensor_parallel_time(replace(examples.served(), tensor_parallel=t), 64)
    for value in (1, 2, 8):
        expected = pm.tensor_parallel_time(examples.served(tensor_parallel=value), 64)
        assert float(traced.subs(t, value)) == pytest.approx(expected)


def test_a_million_decode_steps_are_one_call():
    batch, context = np.arange(1, 1001)[:, None], np.arange(1000)[None, :] * 128
    step = pm.decode_time(examples.served(), batch, context)
    assert step.total.shape == step.by_totals.shape == step.bound.shape == (1000, 1000)
    assert np.all(np.isfinite(step.total))
    corner = pm.decode_time(examples.served(), 1000, 999 * 128)
    assert step.total[-1, -1] == pytest.approx(corner.total)
    assert step.bound[-1, -1] == corner.bound


def test_import_needs_numpy_alone():
    """Neither algebra nor charts are loaded with the formulas, nor is any data file parsed."""
    code = (
        "import sys, perfmodel; "
        "print(*sorted(sys.modules.keys() & {'sympy', 'altair', 'pandas', 'IPython', 'pint', 'tomllib'}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
