"""The shape of a decoder-only transformer: what has to be known to count its work."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from types import NoneType
from typing import Any

import numpy as np

from perfmodel._ops import Value, is_symbolic
from perfmodel.quantity import check_fields, check_value, own, part, quantity, shown


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA): a token caches one vector of rank r_kv and one rotary key for all heads.

    Queries and keys have a part without and a part with position, d_nope + d_rope wide in each head. Keys (d_nope)
    and values (d_v) of every head are linear in the cached vector, so decode can absorb those matrices into the
    query and the output and attend to the r_kv + d_rope cached numbers themselves.
    """

    kv_rank: int = quantity("r_kv", "1", "width of the cached latent vector (MLA)", whole=True)
    rope_dim: int = quantity("d_rope", "1", "width of the rotary part of a head's query and key (MLA)", whole=True)
    nope_dim: int = quantity("d_nope", "1", "width of the part without position (MLA)", whole=True)
    value_dim: int = quantity("d_v", "1", "width of a head's value (MLA)", whole=True)
    query_rank: int = quantity("r_q", "1", "width of the compressed query; 0 if it is not (MLA)", minimum=0, whole=True)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Indexer:
    """Sparse attention by an index (DeepSeek-V3.2): small heads score all of the context, attention reads the best."""

    heads: int = quantity("H_I", "1", "heads of the indexer", whole=True)
    head_dim: int = quantity("D_I", "1", "width of a head of the indexer", whole=True)
    selected: int = quantity("k_I", "token", "cached tokens that attention reads at most", whole=True)
    key_bytes: float = quantity("b_I", "byte", "bytes of the indexer's key of a token in a layer")

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Window:
    """Sliding-window attention: some layers see only the last tokens."""

    tokens: int = quantity("w", "token", "tokens that a windowed layer sees", whole=True)
    layers: int = quantity("L_w", "1", "layers with a window", whole=True)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Model:
    r"""A decoder with grouped-query or latent attention and a dense or mixture-of-experts feed-forward part.

    Each layer multiplies a token of width d by the matrices

    * query d x (H_q D), key and value d x (H_kv D) each, output (H_q D) x d (other shapes under `latent`);
    * router d x X (only if X > 1) and, in each of X experts, `ffn_matrices` matrices d x d_ff;
    * a shared expert of inner width d_sh, which every token visits; in the first L_dense layers one
      feed-forward network of inner width d_dense takes the place of router and experts.

    H_kv = H_q is multi-head attention, H_kv = 1 multi-query attention; X = q = 1 is a dense model.
    Fields may be SymPy symbols (`perfmodel.symbols(Model, name="any")`).

    Raises
    ------
    ValueError
        If a size is not positive, `heads` is not a multiple of `kv_heads`, `experts_per_token` exceeds `experts`, or
        `dense_layers` or the window's layers exceed `layers`.
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
    shared_ffn_size: float = part("d_sh", "1", "inner width of the shared experts of a layer together")
    dense_layers: int = part("L_dense", "1", "layers without experts in a mixture of experts", whole=True)
    dense_ffn_size: float = part("d_dense", "1", "inner width of the feed-forward network of such a layer")
    latent: Latent | None = None
    indexer: Indexer | None = None
    window: Window | None = None
    ffn_matrices: int = 3  # gate, up and down; 2 without a gate
    norms: int = 2  # normalisations of width d in a layer; one more follows the last layer
    norm_vectors: int = 1  # vectors that one holds: a scale; 2 with an offset (LayerNorm)
    qk_norm: bool = False  # a normalisation each of a head's query and key: 2 D weights a layer
    biases: int = 0  # bias elements a layer outside the feed-forward networks; attention sinks count here
    ffn_bias: bool = False  # each matrix of a feed-forward network has a bias vector
    router_bias: bool = False  # X more numbers a router
    positions: int = 0  # rows of a learned position table
    tied_embeddings: bool = False  # the LM head is the embedding table

    def __post_init__(self) -> None:
        check_fields(self)
        owner = f"Model {self.name}"
        if not isinstance(self.name, str):
            raise ValueError(f"Model: name={shown(self.name)} must be a text")
        for name, least in (("ffn_matrices", 1), ("norms", 0), ("norm_vectors", 1), ("biases", 0), ("positions", 0)):
            check_value(owner, name, getattr(self, name), minimum=least, whole=True)
        for name in ("qk_norm", "ffn_bias", "router_bias", "tied_embeddings"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{owner}: {name}={shown(getattr(self, name))} must be True or False")
        for name, kind in (("latent", Latent), ("indexer", Indexer), ("window", Window)):
            if not isinstance(getattr(self, name), (kind, NoneType)):
                raise ValueError(f"{owner}: {name}={shown(getattr(self, name))} must be a {kind.__name__} or None")
        self._check_together(owner)

    def _check_together(self, owner: str) -> None:
        """Rules between fields; symbols pass."""

        def refuse(name: str, rule: str) -> None:
            raise ValueError(f"{owner}: {name}={getattr(self, name)} {rule}")

        if not is_symbolic(self.heads, self.kv_heads) and self.heads % self.kv_heads:
            refuse(
                "kv_heads",
                f"does not divide heads={self.heads}; each key-value head serves a whole group of query heads",
            )
        if not is_symbolic(self.experts, self.experts_per_token) and self.experts_per_token > self.experts:
            refuse("experts_per_token", f"must be at most experts={self.experts}")
        if not is_symbolic(self.experts, self.dense_layers, self.shared_ffn_size, self.dense_ffn_size):
            if self.experts == 1 and (self.dense_layers or self.shared_ffn_size):
                name = "dense_layers" if self.dense_layers else "shared_ffn_size"
                refuse(name, "must be 0 without experts: all of a dense model's layers are dense")
            if bool(self.dense_layers) != bool(self.dense_ffn_size):
                refuse("dense_ffn_size", f"goes with dense_layers={self.dense_layers}: give both or neither")
        if not is_symbolic(self.layers, self.dense_layers) and self.dense_layers > self.layers:
            refuse("dense_layers", f"must be at most layers={self.layers}")
        if self.window and not is_symbolic(self.layers, self.window.layers) and self.window.layers > self.layers:
            raise ValueError(f"{owner}: window.layers={self.window.layers} must be at most layers={self.layers}")
        if self.latent and self.window:
            raise ValueError(f"{owner}: window cannot be given with latent: no such model is counted")
        if self.indexer and not self.latent:
            raise ValueError(f"{owner}: indexer={shown(self.indexer)} needs latent: it reads the compressed query")

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

        Raises
        ------
        ValueError
            If a number is out of its range, or the parameters do not fill the attention.
        """
        shape = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
        for field, value in ({"parameters": parameters} | shape).items():
            check_value(f"Model {name}", field, value, whole=field in shape)
        parameters, layers, heads, kv_heads, head_dim = map(own, (parameters, layers, heads, kv_heads, head_dim))
        hidden_size = heads * head_dim
        attention = 2 * layers * hidden_size * (heads + kv_heads) * head_dim
        return cls(
            name=name,
            **shape,
            hidden_size=hidden_size,
            ffn_size=(parameters - attention) / (3 * layers * hidden_size),
            vocab_size=0,
            norms=0,
        )

    @classmethod
    def from_hf_config(cls, config: str | PathLike[str] | Mapping[str, Any]) -> "Model":
        """Read a Hugging Face `config.json` (a path or a mapping): see `perfmodel.hf.model_from_config`."""
        from perfmodel.hf import model_from_config

        return model_from_config(config)
