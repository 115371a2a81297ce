"""What training holds and computes, for contrast with serving."""

from dataclasses import dataclass

from perfmodel._ops import Value, real, where
from perfmodel.counts import prefill_flops
from perfmodel.model import Model
from perfmodel.quantity import check_value, check_values, shown

RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that one accelerator holds of a model in training."""

    weights: Value
    gradients: Value
    optimizer: Value
    activations: Value

    @property
    def total(self) -> Value:
        """Sum over the parts."""
        return self.weights + self.gradients + self.optimizer + self.activations


def training_memory(
    parameters: Value,
    activations: Value = 0,
    stage: int = 0,
    replicas: Value = 1,
    weight_bytes: Value = 2,
    gradient_bytes: Value = 2,
    optimizer_bytes: Value = 12,
) -> TrainingMemory:
    """Bytes of weights, gradients, optimiser states and activations on each of N_d data-parallel ranks.

    The default is Adam in mixed precision: 2 bytes of weight and 2 of gradient; in FP32 a master copy, momentum and
    variance of 4 bytes each. A model that serves holds the weights alone. Source: Rajbhandari et al. 2020, ZeRO,
    arXiv:1910.02054.

    Parameters
    ----------
    parameters : float, array or symbol
        Parameters on one rank: N over the degrees of tensor and pipeline parallelism.
    activations : float, array or symbol
        Bytes, see `activation_memory`; data parallelism does not share them out.
    stage : int
        Of ZeRO: 0 copies everything to each rank; 1 shares out the optimiser states, 2 the gradients too, 3 the
        weights too.
    replicas : float, array or symbol
        Data-parallel ranks N_d.
    weight_bytes, gradient_bytes, optimizer_bytes : float, array or symbol
        Bytes a parameter.
    """
    check_value("training_memory", "parameters", parameters)
    check_value("training_memory", "stage", stage, minimum=0, maximum=3, whole=True)
    check_value("training_memory", "replicas", replicas, minimum=1)
    check_values("training_memory", 0, activations=activations, weight_bytes=weight_bytes)
    check_values("training_memory", 0, gradient_bytes=gradient_bytes, optimizer_bytes=optimizer_bytes)
    own = real(parameters) / real(replicas)
    return TrainingMemory(
        weights=real(weight_bytes) * where(stage >= 3, own, real(parameters)),
        gradients=real(gradient_bytes) * where(stage >= 2, own, real(parameters)),
        optimizer=real(optimizer_bytes) * where(stage >= 1, own, real(parameters)),
        activations=real(activations),
    )


def activation_memory(
    sequence: Value,
    sequences: Value,
    layers: Value,
    hidden_size: Value,
    heads: Value,
    tensor_parallel: Value = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
) -> Value:
    """Bytes of activations that one accelerator keeps for the backward pass: L layers of s b h (34 + 5 a s / h).

    For a layer of GPT: as many key-value as query heads, an inner width of 4 h with GELU, dropout, 2 bytes an
    activation and 1 a dropout mask, scores kept (FlashAttention keeps none: "selective"). Of the 34, attention
    keeps 11, the feed-forward network 19, the two norms 4; of the 5 scores' bytes, softmax 2, its mask 1, its dropout's
    output 2. Under 1F1B the first pipeline stage keeps as much as L layers, however many stages there are. Embedding
    and loss are left out. Source: Korthikanti et al. 2022, arXiv:2205.05198, table 2.

    Parameters
    ----------
    sequence, sequences : float, array or symbol
        Tokens s of a sequence, and sequences b of a micro-batch.
    layers, hidden_size, heads : float, array or symbol
        L, h and a.
    tensor_parallel : float, array or symbol
        Accelerators t that share the matrices.
    sequence_parallel : bool
        Whether they also share what lies between the matrices (10 of the 34), by tokens.
    recompute : str
        "none"; "selective", which computes the scores again; "full", which keeps the input of each layer alone, on
        every accelerator.
    """
    _check_recompute("activation_memory", recompute)
    for name, value in (("sequence", sequence), ("sequences", sequences), ("layers", layers)):
        check_value("activation_memory", name, value)
    for name, value in (("hidden_size", hidden_size), ("heads", heads), ("tensor_parallel", tensor_parallel)):
        check_value("activation_memory", name, value)
    tokens = real(sequence) * real(sequences) * real(layers) * real(hidden_size)
    if recompute == "full":
        return 2 * tokens
    scores = 5 * real(heads) * real(sequence) / real(hidden_size) if recompute == "none" else 0
    between = 10 / real(tensor_parallel) if sequence_parallel else 10
    return tokens * (between + (24 + scores) / real(tensor_parallel))


def training_flops(
    model: Model, sequence: Value, sequences: Value = 1, causal: bool = True, recompute: str = "none"
) -> Value:
    """FLOPs of one training step: three forward passes' worth, about 6 N a token where serving takes 2 N.

    The backward pass multiplies twice for each matrix: by the weights and by the inputs. Recomputing adds a forward
    pass of the layers ("full", about 8 N a token) or of attention's scores ("selective"). In training every token goes
    through the LM head.

    Parameters
    ----------
    sequence, sequences : float, array or symbol
        Tokens of a sequence, and sequences of the step.
    causal : bool
        Whether attention skips the masked half.
    recompute : str
        "none", "selective" or "full".
    """
    _check_recompute("training_flops", recompute)
    forward = prefill_flops(model, sequence, causal, sequences)
    layers = forward.linear + forward.experts + forward.attention
    again = {"none": 0, "selective": forward.attention, "full": layers}[recompute]
    return 3 * (layers + forward.lm_head * real(sequence)) + again


def _check_recompute(owner: str, recompute: str) -> None:
    if recompute not in RECOMPUTE:
        raise ValueError(f"{owner}: recompute={shown(recompute)} must be one of {', '.join(RECOMPUTE)}")
