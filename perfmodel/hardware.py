"""What a machine can do: an accelerator and the link between accelerators."""

from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from perfmodel._ops import Value
from perfmodel.quantity import check_fields, check_value, quantity, shown


def _rate() -> Any:
    """A field for the arithmetic rate at one precision; the letter F means the rate at the precision in use."""
    return field(default=0, metadata={"unit": "FLOP/s"})


def _check_name(instance: Any) -> None:
    if not isinstance(instance.name, str):
        raise ValueError(f"{type(instance).__name__}: name={shown(instance.name)} must be a text")


@dataclass(frozen=True)
class Link:
    """A link between accelerators, inside a server or between servers, as one of them sees it, in one direction."""

    name: str
    bandwidth: float = quantity("beta_link", "byte/s", "bandwidth of a link, one direction, each accelerator")
    latency: float = quantity("ell", "s", "time of a collective operation that carries nothing", minimum=0)

    def __post_init__(self) -> None:
        _check_name(self)
        check_fields(self)


@dataclass(frozen=True)
class Accelerator:
    """One device as the serving engine sees it (an Ascend 910C package is two of them).

    Rates are dense: twice as much is printed on data sheets that assume structured sparsity.
    A rate of 0 means that the device has no such arithmetic, a power of 0 that it is not known.

    Raises
    ------
    ValueError
        If a field is out of range, or `link` is neither a `Link` nor None.
    """

    name: str
    memory_capacity: float = quantity("M", "byte", "memory of an accelerator")
    memory_bandwidth: float = quantity("beta", "byte/s", "memory bandwidth of an accelerator")
    bf16_flops: float = quantity("F", "FLOP/s", "arithmetic rate of an accelerator, dense, at the precision in use")
    fp8_flops: float = _rate()
    int8_flops: float = _rate()
    fp4_flops: float = _rate()
    power: float = quantity("P", "W", "electric power that an accelerator draws at most", default=0, minimum=0)
    link: Link | None = None

    def __post_init__(self) -> None:
        _check_name(self)
        check_fields(self)
        owner = f"Accelerator {self.name}"
        for name in ("fp8_flops", "int8_flops", "fp4_flops"):
            check_value(owner, name, getattr(self, name), minimum=0)
        if not isinstance(self.link, (Link, NoneType)):
            raise ValueError(f"{owner}: link={shown(self.link)} must be a Link or None")

    def flops(self, compute: str) -> Value:
        """Dense arithmetic rate in FLOP/s at the precision `compute`: "bf16", "fp8", "int8" or "fp4".

        Raises
        ------
        ValueError
            If the accelerator has no arithmetic of that precision.
        """
        rates = {"bf16": self.bf16_flops, "fp8": self.fp8_flops, "int8": self.int8_flops, "fp4": self.fp4_flops}
        if not isinstance(compute, str) or compute not in rates:
            raise ValueError(f"compute={shown(compute)} must be one of {', '.join(rates)}")
        if isinstance(rates[compute], (int, float)) and not rates[compute]:
            have = ", ".join(name for name, rate in rates.items() if not isinstance(rate, (int, float)) or rate)
            raise ValueError(f"compute={compute!r}: {self.name} has no such arithmetic; it has {have}")
        return rates[compute]
