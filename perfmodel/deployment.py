"""A model on accelerators, and the requests it serves."""

from dataclasses import dataclass

from perfmodel._ops import Value, is_symbolic, real
from perfmodel.hardware import Accelerator, Link
from perfmodel.model import Model
from perfmodel.quantity import check_fields, check_value, quantity, shown


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
    expert_imbalance: float = quantity(
        "phi", "1", "load of the busiest expert rank over the mean", default=1, minimum=1, absent=True
    )

    def __post_init__(self) -> None:
        check_fields(self)


IDEAL = Constants()


@dataclass(frozen=True)
class Deployment:
    """One model on identical accelerators: `data_parallel` replicas of t x p x t_cp accelerators each.

    Tensor parallelism shares each layer among t accelerators; pipeline parallelism gives each of p stages its layers;
    context parallelism gives each of t_cp groups a part of every sequence, and decode context parallelism
    does so with the KV cache inside the t accelerators. With `expert_parallel` whole experts lie on the
    t x r accelerators of all replicas, instead of a slice of every expert on each.

    Without a `link`, messages between the accelerators cost nothing: that is the ideal machine which
    the course starts from. `compute` names the precision of the arithmetic ("bf16", "fp8", "int8", "fp4").
    `expert_bytes` and `table_bytes` are the bytes of a weight of the routed experts, and of the embedding and LM head,
    where they differ from `weight_bytes`.

    Raises
    ------
    ValueError
        If a degree does not split what it shares, a field is out of range, or the accelerator lacks the arithmetic.
    """

    model: Model
    accelerator: Accelerator
    link: Link | None = None
    tensor_parallel: int = quantity(
        "t", "1", "accelerators that share each layer (tensor parallelism)", default=1, whole=True
    )
    data_parallel: int = quantity("r", "1", "replicas, each with all weights", default=1, whole=True)
    pipeline_parallel: int = quantity(
        "p", "1", "stages that share the layers (pipeline parallelism)", default=1, whole=True, absent=True
    )
    context_parallel: int = quantity(
        "t_cp", "1", "groups that share each sequence (context parallelism)", default=1, whole=True, absent=True
    )
    decode_context_parallel: int = quantity(
        "t_dcp", "1", "parts of the KV cache inside a tensor-parallel group", default=1, whole=True, absent=True
    )
    expert_parallel: bool = False
    weight_bytes: float = quantity("b_w", "byte", "bytes of a weight", default=2)
    kv_bytes: float = quantity("b_kv", "byte", "bytes of an element of the KV cache", default=2)
    activation_bytes: float = quantity("b_a", "byte", "bytes of an activation", default=2)
    expert_bytes: Value | None = None
    table_bytes: Value | None = None
    memory_utilization: float = quantity(
        "u", "1", "share of the memory that the engine may use", default=0.9, maximum=1
    )
    compute: str = "bf16"
    constants: Constants = IDEAL

    def __post_init__(self) -> None:
        kinds: dict[str, type] = {"model": Model, "accelerator": Accelerator, "constants": Constants}
        for name, kind in (kinds | {"link": Link, "expert_parallel": bool}).items():
            value = getattr(self, name)
            if not isinstance(value, kind) and not (name == "link" and value is None):
                raise ValueError(f"Deployment: {name}={shown(value)} must be a {kind.__name__}")
        check_fields(self)
        for name in ("expert_bytes", "table_bytes"):
            if getattr(self, name) is not None:
                check_value("Deployment", name, getattr(self, name))
        self.accelerator.flops(self.compute)
        self._check_degrees()

    def _check_degrees(self) -> None:
        """Each degree must split what it shares; symbols pass."""
        model, t, dcp = self.model, self.tensor_parallel, self.decode_context_parallel
        if is_symbolic(t, model.heads, model.kv_heads, model.layers, model.experts, dcp):
            return
        copies = 1 if model.latent is None else t  # of a key-value head
        if model.latent is None and t > model.kv_heads:
            copies = t // model.kv_heads
        rules = [
            ("tensor_parallel", t, model.heads % t, f"does not divide heads={model.heads} of {model.name}"),
            (
                "tensor_parallel",
                t,
                model.latent is None and model.kv_heads % t and t % model.kv_heads,
                f"does not divide kv_heads={model.kv_heads} of {model.name}, nor the reverse; "
                "key-value heads are shared out or copied whole",
            ),
            (
                "pipeline_parallel",
                self.pipeline_parallel,
                self.pipeline_parallel > model.layers,
                f"exceeds the {model.layers} layers of {model.name}",
            ),
            (
                "expert_parallel",
                self.expert_parallel,
                self.expert_parallel and model.experts == 1,
                f"needs experts; {model.name} has none",
            ),
            (
                "decode_context_parallel",
                dcp,
                copies % dcp,
                f"does not divide the {copies} copies of each key-value head that tensor_parallel={t} makes",
            ),
            (
                "expert_parallel",
                self.expert_parallel,
                self.expert_parallel and model.experts % self.expert_shards,
                f"puts experts={model.experts} on {self.expert_shards} accelerators, which does not divide them",
            ),
        ]
        for name, value, broken, why in rules:
            if broken:
                raise ValueError(f"{name}={value} {why}")

    @property
    def flops(self) -> Value:
        """Arithmetic rate that kernels reach on one accelerator, in FLOP/s."""
        return self.constants.flops_efficiency * self.accelerator.flops(self.compute)

    @property
    def bandwidth(self) -> Value:
        """Memory bandwidth that kernels reach on one accelerator, in byte/s."""
        return self.constants.bandwidth_efficiency * self.accelerator.memory_bandwidth

    @property
    def replica(self) -> Value:
        """Accelerators of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.context_parallel

    @property
    def accelerators(self) -> Value:
        """Accelerators of the whole deployment."""
        return self.replica * self.data_parallel

    @property
    def expert_shards(self) -> Value:
        """Accelerators that share the experts of one layer."""
        return self.tensor_parallel * (self.data_parallel if self.expert_parallel else 1)

    @property
    def bytes_of_experts(self) -> Value:
        """Bytes of a weight of the routed experts."""
        return self.weight_bytes if self.expert_bytes is None else self.expert_bytes

    @property
    def bytes_of_tables(self) -> Value:
        """Bytes of a weight of the embedding and the LM head."""
        return self.weight_bytes if self.table_bytes is None else self.table_bytes


@dataclass(frozen=True)
class Workload:
    """Identical requests, `batch` of them in flight on each replica, a new one for each that ends."""

    prompt: int
    output: int
    batch: int

    def __post_init__(self) -> None:
        check_value("Workload", "prompt", self.prompt, minimum=1, whole=True)
        check_value("Workload", "output", self.output, minimum=2, whole=True)  # with one token there is no TPOT
        check_value("Workload", "batch", self.batch, minimum=1, whole=True)

    @property
    def context(self) -> Value:
        """Mean context of a decode step in tokens: step j of N_out - 1 reads S + j tokens, so S + N_out / 2."""
        return real(self.prompt) + real(self.output) / 2

    @property
    def total(self) -> Value:
        """Tokens that a finished request holds in the KV cache: what has to be reserved."""
        return real(self.prompt) + real(self.output)
