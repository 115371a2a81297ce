"""Every function of the package is in the tables: one formula for floats, arrays and symbols, with its unit.

The core's rows are in test_ops and test_dimensions; each module beyond it has its own in the file of its tests, under
`OPS_CALLS` (floats, arrays and symbols), `NUMERIC_CALLS` (no symbols: there is no closed form) and `DIMENSION_CALLS`.
"""

import inspect
from importlib import import_module

import pytest
import test_dimensions
import test_ops
from examples import refused
from test_size import CORE

import perfmodel as pm

SUBJECTS = {"_ops", "deployment", "hardware", "model", "quantity"}
MODULES = [import_module(f"perfmodel.{name}") for name in CORE if name not in SUBJECTS]
BEYOND = "batching disaggregation economics moe paging prefix_cache quantization queueing slo speculative training"
TABLES = [import_module(f"test_{name}") for name in BEYOND.split()]
SYMBOLIC = {name: call for table in TABLES for name, call in table.OPS_CALLS.items()}
NUMERIC = {name: call for table in TABLES for name, call in getattr(table, "NUMERIC_CALLS", {}).items()}
UNITS = {name: call for table in TABLES for name, call in table.DIMENSION_CALLS.items()}
# These take or give lists, functions or names, and have tests of their own.
OTHERS = {"attainment", "hit_rate", "largest_whole", "load_imbalance", "replicate", "visit_chances", "visited_experts"}
OTHERS |= {"zipf_popularity", "estimate", "slopes"}
DENSE = {"batch_limits", "largest_batch"}  # experts bend their straight lines: no closed form
NO_FORMULAS = {"argument_symbols", "notation", "symbols"}


def written():
    """Names of the functions that the modules of formulas hold."""
    return {
        name
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def public():
    """Names of the functions that `import perfmodel` gives."""
    return {name for name, value in vars(pm).items() if inspect.isfunction(value)} - NO_FORMULAS


def test_every_function_is_in_the_tables():
    assert written() | public() <= set(test_ops.CALLS | SYMBOLIC | NUMERIC) | OTHERS
    assert public() <= set(test_dimensions.CALLS | UNITS) | OTHERS
    assert not set(test_ops.CALLS | SYMBOLIC | NUMERIC) & (OTHERS - set(UNITS))


def crossover(name, kind):
    """Whether it is a crossover in closed form, for a model whose attention does not read all of the context."""
    model = test_ops.DEPLOYMENTS[kind].model
    return name in ("break_even_batch", "paying_context") and (model.window or model.indexer)


@pytest.mark.parametrize("kind", test_ops.DEPLOYMENTS)
@pytest.mark.parametrize("name", SYMBOLIC | NUMERIC)
def test_arrays_give_what_floats_give(name, kind, monkeypatch):
    call = (SYMBOLIC | NUMERIC)[name]
    if crossover(name, kind):
        refused(lambda: call(test_ops.DEPLOYMENTS[kind], 1, 1, 2, 1), "no closed form")
        return
    monkeypatch.setitem(test_ops.CALLS, name, call)
    test_ops.test_arrays_give_what_floats_give(name, test_ops.DEPLOYMENTS[kind])


@pytest.mark.parametrize("kind", test_ops.DEPLOYMENTS)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbols_give_what_floats_give(name, kind, monkeypatch):
    if crossover(name, kind) or (name in DENSE and kind != "dense"):
        return
    monkeypatch.setitem(test_ops.CALLS, name, SYMBOLIC[name])
    test_ops.test_symbols_give_what_floats_give(name, test_ops.DEPLOYMENTS[kind])


@pytest.mark.parametrize("name", NUMERIC)
def test_what_has_no_closed_form_refuses_symbols(name):
    symbolic = test_ops.traced(test_ops.DEPLOYMENTS["dense"], {})
    letters = pm.argument_symbols("batch", "prompt", "output", "context")
    refused(lambda: NUMERIC[name](symbolic, *letters), "no closed form", "numbers")


@pytest.mark.parametrize("kind", test_dimensions.PLAIN)
@pytest.mark.parametrize("name", UNITS)
def test_dimension_and_value(name, kind, monkeypatch):
    monkeypatch.setitem(test_dimensions.CALLS, name, UNITS[name])
    test_dimensions.test_dimension_and_value(name, kind)
