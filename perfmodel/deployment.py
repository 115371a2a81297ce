"""A model on accelerators, and the requests it serves."""

from dataclasses import dataclass

from perfmodel._ops import Value, is_symbolic
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Model
from perfmodel.quantity import check_fields, quantity


@dataclass(frozen=True)
class Constants:
    """What lies between the roofline and a served token. The defaults are the ideal machine."""

    bandwidth_efficiency: float = quantity(
        "eta_beta", "1", "share of the memory bandwidth that kernels reach", default=1, maximum=1
    )
    flops_efficiency: float = quantity(
        "eta_F", "1", "share of the arithmetic rate that kernels reach", default=1, maximum=1
    )
    step_overhead: float = quantity(
        "theta", "s", "time of a step outside the kernels: scheduler, launches, sampling", default=0, minimum=0
    )

    def __post_init__(self) -> None:
        check_fields(self)


IDEAL = Constants()


@dataclass(frozen=True)
class Deployment:
    """One model on identical accelerators: `data_parallel` replicas of `tensor_parallel` each.

    Without a `link`, messages between the accelerators cost nothing: that is the ideal machine which
    the course starts from. `compute` names the precision of the arithmetic ("bf16", "fp8", "int8").

    Raises
    ------
    ValueError
        If `tensor_parallel` does not split the heads evenly, a field is out of range, or the
        accelerator lacks the arithmetic asked for.
    """

    model: Model
    accelerator: Accelerator
    link: Link | None = None
    tensor_parallel: int = quantity(
        "t", "1", "accelerators that share each layer (tensor parallelism)", default=1, whole=True
    )
    data_parallel: int = quantity("r", "1", "replicas, each with all weights", default=1, whole=True)
    weight_bytes: float = quantity("b_w", "byte", "bytes of a weight", default=2)
    kv_bytes: float = quantity("b_kv", "byte", "bytes of an element of the KV cache", default=2)
    activation_bytes: float = quantity("b_a", "byte", "bytes of an activation", default=2)
    memory_utilization: float = quantity(
        "u", "1", "share of the memory that the engine may use", default=0.9, maximum=1
    )
    compute: str = "bf16"
    constants: Constants = IDEAL

    def __post_init__(self) -> None:
        check_fields(self)
        self.accelerator.flops(self.compute)
        model, t = self.model, self.tensor_parallel
        if is_symbolic(t, model.heads, model.kv_heads):
            return
        if model.heads % t:
            raise ValueError(
                f"tensor_parallel={t} does not divide heads={model.heads} of {model.name}; use a divisor of it"
            )
        if model.kv_heads % t and t % model.kv_heads:
            raise ValueError(
                f"tensor_parallel={t} does not divide kv_heads={model.kv_heads} of {model.name}, nor the reverse; "
                "key-value heads are shared out or copied whole"
            )

    @property
    def flops(self) -> Value:
        """Arithmetic rate that kernels reach on one accelerator, in FLOP/s."""
        return self.constants.flops_efficiency * self.accelerator.flops(self.compute)

    @property
    def bandwidth(self) -> Value:
        """Memory bandwidth that kernels reach on one accelerator, in byte/s."""
        return self.constants.bandwidth_efficiency * self.accelerator.memory_bandwidth


@dataclass(frozen=True)
class Workload:
    """Identical requests, `batch` of them in flight on each replica, a new one for each that ends."""

    prompt: int
    output: int
    batch: int

    def __post_init__(self) -> None:
        from perfmodel.quantity import check_value

        check_value("Workload", "prompt", self.prompt, minimum=1, whole=True)
        check_value("Workload", "output", self.output, minimum=2, whole=True)  # with one token there is no TPOT
        check_value("Workload", "batch", self.batch, minimum=1, whole=True)

    @property
    def context(self) -> float:
        """Mean context of a decode step in tokens: step j of N_out - 1 reads S + j tokens, so S + N_out / 2."""
        return self.prompt + self.output / 2

    @property
    def total(self) -> int:
        """Tokens that a finished request holds in the KV cache: what has to be reserved."""
        return self.prompt + self.output
