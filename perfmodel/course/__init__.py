"""What the chapters need and a deployment does not.

Each name is loaded when it is first asked for, so that formatting one number does not import SymPy or Altair.
"""

from importlib import import_module

_MODULE_OF = {
    "Column": "tables",
    "assert_same": "algebra",
    "check_formula": "exercise",
    "check_value": "exercise",
    "claim": "prose",
    "fmt": "prose",
    "reference": "exercise",
    "say": "prose",
    "solved": "exercise",
    "source": "ledger",
    "table": "tables",
}
__all__ = [
    "Column",
    "assert_same",
    "charts",
    "check_formula",
    "check_value",
    "claim",
    "fmt",
    "ledger",
    "reference",
    "say",
    "simulation",
    "solved",
    "source",
    "table",
]


def __getattr__(name: str) -> object:
    if name in ("charts", "ledger", "simulation"):
        return import_module(f"perfmodel.course.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"perfmodel.course.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'perfmodel.course' has no attribute {name!r}")
