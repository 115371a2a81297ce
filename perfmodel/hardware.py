"""What a machine can do: an accelerator and the link between accelerators."""

from dataclasses import dataclass

from perfmodel._ops import Value
from perfmodel.quantity import check_fields, check_value, quantity


@dataclass(frozen=True)
class Link:
    """A link between the accelerators of one server, as one of them sees it, in one direction."""

    name: str
    bandwidth: float = quantity("beta_link", "byte/s", "bandwidth of a link, one direction, each accelerator")
    latency: float = quantity("ell", "s", "time of a collective operation that carries nothing", minimum=0)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Accelerator:
    """One device as the serving engine sees it (an Ascend 910C package is two of them).

    Rates are dense: twice as much is printed on data sheets that assume structured sparsity.
    A rate of 0 means that the device has no such arithmetic.
    """

    name: str
    memory_capacity: float = quantity("M", "byte", "memory of an accelerator")
    memory_bandwidth: float = quantity("beta", "byte/s", "memory bandwidth of an accelerator")
    bf16_flops: float = quantity("F", "FLOP/s", "arithmetic rate of an accelerator, dense, at the precision in use")
    fp8_flops: float = 0
    int8_flops: float = 0
    link: Link | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("fp8_flops", "int8_flops"):
            check_value(f"Accelerator {self.name}", name, getattr(self, name), minimum=0)

    def flops(self, compute: str) -> Value:
        """Dense arithmetic rate in FLOP/s at the precision `compute`: "bf16", "fp8" or "int8".

        Raises
        ------
        ValueError
            If the accelerator has no arithmetic of that precision.
        """
        rates = {"bf16": self.bf16_flops, "fp8": self.fp8_flops, "int8": self.int8_flops}
        if compute not in rates:
            raise ValueError(f"compute={compute!r} must be one of {', '.join(rates)}")
        if isinstance(rates[compute], (int, float)) and not rates[compute]:
            have = ", ".join(name for name, rate in rates.items() if not isinstance(rate, (int, float)) or rate)
            raise ValueError(f"compute={compute!r}: {self.name} has no such arithmetic; it has {have}")
        return rates[compute]
