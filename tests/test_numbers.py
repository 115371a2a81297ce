"""Narrow NumPy numbers and long Python ones give what floats give: nothing wraps, overflows or loses digits."""

import warnings
from dataclasses import fields, replace

import examples
import numpy as np
import pytest

import perfmodel as pm
from perfmodel import _ops, data

# Fast enough that seconds are limits to it.
FAST = replace(examples.SOURCE_DEVICE, bf16_flops=742e15, memory_bandwidth=1e18)
D = replace(examples.SOURCE, accelerator=FAST)
LINK = data.link("nvlink4")


def dollars(seconds, other, price):
    return pm.dollars_per_token(pm.TokenCost(seconds, other), price)


def joules(seconds, other, power, pue, idle):
    return pm.joules_per_token(pm.TokenCost(seconds, other), power, pue, 0.5, idle)


# Functions, and arguments that uint16 and float16 hold to the last digit, unlike their sums and products.
RAW = {
    "all_reduce_one_shot": (lambda x, n, hop: pm.all_reduce_one_shot(x, n, LINK, hop), (1001, 8, 3)),
    "all_reduce_ring": (lambda x, n, hop: pm.all_reduce_ring(x, n, LINK, hop), (1001, 8, 2043)),
    "all_reduce_tree": (lambda x, n, hop: pm.all_reduce_tree(x, n, LINK, hop), (1001, 2000, 2043)),
    "dollars_per_token": (dollars, (1001, 3, 1003)),
    "exposed_transfer_time": (pm.exposed_transfer_time, (1001, 999, 7)),
    "goodput": (lambda *n: pm.goodput(D, *n), (1000, 200, 3, 1)),
    "joules_per_token": (joules, (1001, 3, 1003, 2, 1001)),
    "kv_blocks": (lambda n: pm.kv_blocks(examples.served(), n), (16,)),
    "largest_batch": (lambda *n: pm.largest_batch(D, *n), (1000, 200, 2)),
    "largest_chunk": (lambda *n: pm.largest_chunk(D, *n), (64, 1000, 2)),
    "overlapped": (pm.overlapped, (2001, 2003, 3)),
    "pool_rate": (pm.pool_rate, (3, 5, 7, 200, 1001, 1003, 7)),
    "prefill_interference": (pm.prefill_interference, (1001, 8, 1003)),
    "prefill_per_decode": (pm.prefill_per_decode, (3, 200, 1001, 1003, 7)),
    "request": (lambda a, b, *n: pm.TokenCost(a, b).request(*n), (1001, 3, 1003, 200)),
    "request_time": (pm.request_time, (3, 200, 1001, 1003, 7)),
    "safe_chunk": (lambda *n: pm.safe_chunk(D, *n), (64, 1000, 2, 1000)),
    "split_goodput": (lambda *n: pm.split_goodput(D, *n), (1000, 200, 3, 1, 1)),
    "static_idle_share": (lambda *n: pm.static_idle_share([10, 20, 30], 3, np.array(n)), (2047, 2046, 2045)),
    "token_copies": (lambda *n: pm.token_copies(examples.LATENT, *n), (32, 8, 4)),
    "training_memory": (lambda a, b, *n: pm.training_memory(a, b, 1, *n), (2001, 3, 7, 200, 400, 2000)),
    "transfer_share": (pm.transfer_share, (1001, 999, 7)),
    "workload": (lambda *n: (pm.Workload(*n).total, pm.Workload(*n).context), (2001, 1003, 1)),
    "zipf_popularity": (pm.zipf_popularity, (2047, 1)),
}


def flat(result):
    if hasattr(result, "__dataclass_fields__"):
        result = [getattr(result, field.name) for field in fields(result)]
    return np.ravel(np.asarray(result, dtype=float))


@pytest.mark.parametrize("kind", [np.uint16, np.float16])
@pytest.mark.parametrize("name", RAW)
def test_narrow_arguments(name, kind):
    """All of them, and each alone: Python's numbers take the kind of the NumPy number that they meet."""
    call, arguments = RAW[name]
    narrow = [kind(value) for value in arguments]
    cases = [narrow] + [[*arguments[:i], narrow[i], *arguments[i + 1 :]] for i in range(len(arguments))]
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = flat(call(*case))
        assert found == pytest.approx(flat(call(*arguments)), rel=1e-12), case


@pytest.mark.parametrize(
    ("kind", "prompt", "output"), [(np.uint16, 65_000, 1000), (np.uint8, 200, 100), (np.float16, 65_504, 1001)]
)
def test_a_workload_of_narrow_numbers(kind, prompt, output):
    """As one number and as an array; 65,504 is the largest of float16."""
    for shape in (kind, lambda value: np.array([value], kind)):
        work = pm.Workload(shape(prompt), shape(output), 1)
        assert work.total == prompt + kind(output).item()
        assert work.context == prompt + kind(output).item() / 2


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.longdouble, lambda value: np.array(value, np.float16)])
def test_fields_become_doubles(kind):
    """Two bytes, a half, 64: exact in each of them, where a cache of 131,072 bytes a token is none of float16."""
    settings = {"weight_bytes": 0.5, "kv_bytes": 2, "activation_bytes": 2, "expert_bytes": 0.25, "table_bytes": 2}
    settings |= {"memory_utilization": 0.5, "tensor_parallel": 2}
    sizes = {"layers": 32, "hidden_size": 4096, "ffn_size": 14336, "heads": 32}
    plain = examples.served("mixtral-8x7b", **settings)
    narrow = examples.served(
        replace(plain.model, **{name: kind(size) for name, size in sizes.items()}),
        **{name: kind(value) for name, value in settings.items()},
    )
    for instance in (narrow, narrow.model):
        for field in fields(instance):
            assert not isinstance(getattr(instance, field.name), np.generic | np.ndarray), field.name
    assert pm.kv_bytes_per_token(narrow) == 2 * 32 * 8 * 128 * 2
    assert vars(pm.estimate(narrow, pm.Workload(1000, 100, 10))) == vars(pm.estimate(plain, pm.Workload(1000, 100, 10)))
    for machine, name, value in (
        (plain.accelerator, "power", 700),
        (plain.accelerator, "fp8_flops", 2048),
        (LINK, "bandwidth", 2048),
        (pm.IDEAL, "step_overhead", 0.5),
        (examples.INDEXER, "key_bytes", 132),
    ):
        field = getattr(replace(machine, **{name: kind(value)}), name)
        assert type(field) is float
        assert field == value


@pytest.mark.parametrize("name", ["expert_bytes", "table_bytes"])
def test_optional_fields_hold_one_number_too(name):
    examples.refused(lambda: examples.served(**{name: np.array([1, 2])}), f"{name}=array([1, 2])", "must be one number")
    examples.refused(lambda: replace(FAST, fp8_flops=[1, 2]), "fp8_flops=[1, 2]", "must be one number")


@pytest.mark.parametrize("kind", [np.uint8, np.float16])
def test_a_model_of_a_size_in_narrow_numbers(kind):
    """64 heads of 128 are a width of 8,192, which no uint8 holds."""
    model = pm.Model.of_size("any", 70e9, layers=kind(80), heads=kind(64), kv_heads=kind(8), head_dim=kind(128))
    assert (model.hidden_size, model.layers) == (8192, 80)
    assert model == replace(examples.SOURCE_MODEL, name="any")


@pytest.mark.parametrize("prompt", [4 * 10**9, 4 * 10**12, 10**15 - 1])
@pytest.mark.parametrize("m", [data.model("gpt-oss-120b"), examples.WINDOWED], ids=lambda model: model.name)
def test_long_integers_do_not_wrap(m, prompt):
    """FLOPs of a window beside a whole attention, counted in Python's integers."""
    seen = 128 * prompt - 128 * 127 // 2
    pairs = m.window.layers * seen + (m.layers - m.window.layers) * (prompt * (prompt + 1) // 2)
    expected = 4 * m.heads * m.head_dim * pairs
    assert m.window.tokens == 128
    assert pm.prefill_flops(m, prompt).attention == pytest.approx(expected, rel=1e-12)
    assert pm.prefill_flops(m, float(prompt)).attention == pytest.approx(expected, rel=1e-12)


def test_extremes_of_python_s_integers_are_its_own():
    assert _ops.maximum(10**30, 5, 7) == 10**30
    assert _ops.minimum(-(10**30), 5) == -(10**30)
    assert type(_ops.maximum(1, 2)) is type(_ops.minimum(1, 2)) is int
    assert _ops.maximum(10**19, 1.5) == pytest.approx(1e19)
