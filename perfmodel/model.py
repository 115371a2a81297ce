"""The shape of a decoder-only transformer: what has to be known to count its work."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from perfmodel._ops import Value, is_symbolic
from perfmodel.quantity import check_fields, check_value, quantity, shown


@dataclass(frozen=True)
class Model:
    r"""A decoder with grouped-query attention and a dense or mixture-of-experts feed-forward part.

    Each layer multiplies a token of width d by the matrices

    * query d x (H_q D), key and value d x (H_kv D) each, output (H_q D) x d;
    * router d x X (only if X > 1) and, in each of X experts, `ffn_matrices` matrices d x d_ff.

    H_kv = H_q is multi-head attention, H_kv = 1 multi-query attention; X = q = 1 is a dense model.
    Fields may be SymPy symbols (`perfmodel.symbols(Model, name="any")`).

    Raises
    ------
    ValueError
        If a size is not positive, `heads` is not a multiple of `kv_heads`, or `experts_per_token` exceeds `experts`.
    """

    name: str
    layers: int = quantity("L", "1", "decoder layers", whole=True)
    hidden_size: int = quantity("d", "1", "width of a token's hidden state", whole=True)
    heads: int = quantity("H_q", "1", "query heads a layer", whole=True)
    kv_heads: int = quantity("H_kv", "1", "key-value heads a layer", whole=True)
    head_dim: int = quantity("D", "1", "width of one attention head", whole=True)
    ffn_size: float = quantity("d_ff", "1", "inner width of a feed-forward network, or of one expert")
    vocab_size: int = quantity("V", "1", "tokens in the vocabulary", minimum=0, whole=True)
    experts: int = quantity("X", "1", "feed-forward networks a layer to choose from", default=1, whole=True)
    experts_per_token: int = quantity("q", "1", "experts that a token visits in a layer", default=1, whole=True)
    ffn_matrices: int = 3  # gate, up and down; 2 without a gate
    norms: int = 2  # normalisation weights of width d in a layer; one more follows the last layer
    tied_embeddings: bool = False  # the LM head is the embedding table

    def __post_init__(self) -> None:
        check_fields(self)
        owner = f"Model {self.name}"
        check_value(owner, "ffn_matrices", self.ffn_matrices, minimum=1, whole=True)
        check_value(owner, "norms", self.norms, minimum=0, whole=True)
        if not isinstance(self.tied_embeddings, (bool, np.bool_)):
            raise ValueError(f"{owner}: tied_embeddings={shown(self.tied_embeddings)} must be True or False")
        if is_symbolic(self.heads, self.kv_heads, self.experts, self.experts_per_token):
            return
        if self.heads % self.kv_heads:
            raise ValueError(
                f"Model {self.name}: kv_heads={self.kv_heads} does not divide heads={self.heads}; "
                "each key-value head serves a whole group of query heads"
            )
        if self.experts_per_token > self.experts:
            raise ValueError(
                f"Model {self.name}: experts_per_token={self.experts_per_token} must be at most experts={self.experts}"
            )

    @classmethod
    def of_size(
        cls, name: str, parameters: Value, *, layers: Value, heads: Value, kv_heads: Value, head_dim: Value
    ) -> "Model":
        """A dense model known by its parameter count N and the shape of its attention alone.

        All N parameters multiply every token, as the rule "2 N FLOPs a token" has it: there is no
        vocabulary and no normalisation, and what attention does not hold, the feed-forward part does.

        Parameters
        ----------
        parameters : float
            N, the number of parameters.
        layers, heads, kv_heads, head_dim
            As the fields of the same names; the hidden size is ``heads * head_dim``.
        """
        hidden_size = heads * head_dim
        attention = 2 * layers * hidden_size * (heads + kv_heads) * head_dim
        return cls(
            name=name,
            layers=layers,
            hidden_size=hidden_size,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            ffn_size=(parameters - attention) / (3 * layers * hidden_size),
            vocab_size=0,
            norms=0,
        )

    @classmethod
    def from_hf_config(cls, config: str | PathLike[str] | Mapping[str, Any]) -> "Model":
        """Read a Hugging Face `config.json` (a path or a mapping): see `perfmodel.hf.model_from_config`."""
        from perfmodel.hf import model_from_config

        return model_from_config(config)
