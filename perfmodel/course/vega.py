"""Print a SymPy expression as a Vega expression, so that the traced formula itself moves with a slider.

https://vega.github.io/vega/docs/expressions/ lists what a Vega expression knows. Whatever this printer does not
know is refused: a chart must not show another formula than the chapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from sympy.printing.printer import Printer

FUNCTIONS = {
    "Max": "max",
    "Min": "min",
    "ceiling": "ceil",
    "floor": "floor",
    "Abs": "abs",
    "exp": "exp",
    "log": "log",
}


class _VegaPrinter(Printer):
    """Each sub-expression comes out in parentheses of its own or as a call: no rule of precedence to get wrong."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names

    def _joined(self, operator: str, args: Any) -> str:
        text = operator.join(self._print(arg) for arg in args)
        return f"({text})" if len(args) > 1 else text

    def _print_Symbol(self, expr: Any) -> str:
        if expr.name not in self.names:
            raise ValueError(
                f"vega: symbol {expr} has no value in the chart; known are {', '.join(self.names) or 'none'}"
            )
        return self.names[expr.name]

    def _print_Integer(self, expr: Any) -> str:
        return str(expr) if expr >= 0 else f"({expr})"

    def _print_Rational(self, expr: Any) -> str:
        return f"({expr.p}/{expr.q})"

    def _print_Float(self, expr: Any) -> str:
        return repr(float(expr)) if expr >= 0 else f"({float(expr)!r})"

    def _print_Pi(self, expr: Any) -> str:
        return "PI"

    def _print_Exp1(self, expr: Any) -> str:
        return "E"

    def _print_Infinity(self, expr: Any) -> str:
        return "Infinity"

    def _print_NegativeInfinity(self, expr: Any) -> str:
        return "(-Infinity)"

    def _print_BooleanTrue(self, expr: Any) -> str:
        return "true"

    def _print_BooleanFalse(self, expr: Any) -> str:
        return "false"

    def _print_Add(self, expr: Any) -> str:
        return self._joined(" + ", expr.args)

    def _print_Mul(self, expr: Any) -> str:
        below = [a for a in expr.args if a.is_Pow and a.exp.is_Rational and a.exp < 0]
        above = [a for a in expr.args if a not in below]
        number = sp.Mul(
            *(a for a in above if a.is_Rational)
        )  # one division at the end keeps the error at an ulp or two
        above = [a for a in above if not a.is_Rational]
        above = ([sp.Integer(number.p)] if number.p != 1 or not above else []) + above
        below = ([sp.Integer(number.q)] if number.q != 1 else []) + [1 / a for a in below]
        text = self._joined(" * ", above)
        return f"({text} / {self._joined(' * ', below)})" if below else text

    def _print_Pow(self, expr: Any) -> str:
        base, exponent = expr.as_base_exp() if not isinstance(expr, sp.exp) else (sp.E, expr.args[0])
        if exponent.is_Rational and exponent < 0:
            return f"(1 / {self._print(base**-exponent)})"
        if exponent == sp.Rational(1, 2):
            return f"sqrt({self._print(base)})"
        return f"pow({self._print(base)}, {self._print(exponent)})"

    def _print_Mod(self, expr: Any) -> str:
        a, b = (self._print(arg) for arg in expr.args)
        return f"((({a} % {b}) + {b}) % {b})"  # the sign of the divisor, as in SymPy; JavaScript's is the dividend's

    def _print_Piecewise(self, expr: Any) -> str:
        *cases, (text, condition) = [(self._print(value), condition) for value, condition in expr.args]
        if condition != sp.true:
            raise ValueError(f"vega: {expr} has no branch for all other cases")
        for value, case in reversed(cases):
            text = f"({self._print(case)} ? {value} : {text})"
        return str(text)

    def _print_And(self, expr: Any) -> str:
        return self._joined(" && ", expr.args)

    def _print_Or(self, expr: Any) -> str:
        return self._joined(" || ", expr.args)

    def _print_Not(self, expr: Any) -> str:
        return f"(!{self._print(expr.args[0])})"

    def _print_Relational(self, expr: Any) -> str:
        return self._joined(f" {expr.rel_op} ", expr.args)

    def _print_Function(self, expr: Any) -> str:
        name = type(expr).__name__
        if name not in FUNCTIONS:
            return self.emptyPrinter(expr)
        return f"{FUNCTIONS[name]}({', '.join(self._print(arg) for arg in expr.args)})"

    _print_Max = _print_Min = _print_Function

    def emptyPrinter(self, expr: Any) -> str:
        raise ValueError(f"vega: cannot print {type(expr).__name__} ({expr})")


def vega(expression: Any, names: Mapping[Any, str]) -> str:
    """Print an expression for Vega.

    Parameters
    ----------
    expression : SymPy expression or condition
    names : dict
        Symbol or its name -> what stands for it in the chart, such as ``{"B": "datum.B", S: "p_S"}``.

    Returns
    -------
    str
        Evaluates to what SymPy gives, to the last digits of a double.

    Raises
    ------
    ValueError
        Names the first thing that it cannot print: an unknown function, a symbol without a value, a Piecewise
        without a last branch for all other cases.
    """
    printer = _VegaPrinter({str(symbol): name for symbol, name in names.items()})
    return str(printer.doprint(sp.sympify(expression)))
