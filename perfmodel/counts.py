"""Parameters, FLOPs and bytes, counted part by part from the shapes of the matrices."""

from dataclasses import dataclass

from perfmodel._ops import Value, real, where
from perfmodel.attention import (
    attended,
    attention_norms,
    attention_weights,
    expansion_flops,
    index_flops,
    pair_flops,
    prefill_attended,
    prefill_pairs,
)
from perfmodel.model import Model
from perfmodel.quantity import check_value, computed


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model by part."""

    embedding: Value  # of tokens, and of positions if they are learned
    attention: Value
    ffn: Value  # of dense layers
    experts: Value  # routed
    shared_experts: Value
    router: Value
    norms: Value
    biases: Value
    lm_head: Value

    @property
    def total(self) -> Value:
        """All parameters; a tied LM head is the embedding table and counts once."""
        feed_forward = self.ffn + self.experts + self.shared_experts + self.router
        return self.embedding + self.attention + feed_forward + self.norms + self.biases + self.lm_head


@dataclass(frozen=True)
class Parts:
    """FLOPs or bytes of one step: linear layers, attention over the cache, LM head, routed experts."""

    linear: Value
    attention: Value
    lm_head: Value
    experts: Value = 0

    @property
    def total(self) -> Value:
        """Sum over the parts."""
        return self.linear + self.attention + self.lm_head + self.experts


def parameters(model: Model) -> Parameters:
    """Count all parameters by part.

    Returns
    -------
    Parameters
        Exact integers for integer shapes.
    """
    m, mixed = model, moe_layers(model)
    table = m.vocab_size * m.hidden_size
    # A dense model has one feed-forward network in each layer, a mixture has them in its first layers only.
    ffn = where(m.experts > 1, m.dense_layers * network_weights(m, m.dense_ffn_size), m.layers * expert_weights(m))
    ffn_biases = where(
        m.experts > 1,
        m.dense_layers * network_biases(m, m.dense_ffn_size)
        + mixed * (m.experts * network_biases(m, m.ffn_size) + network_biases(m, m.shared_ffn_size)),
        m.layers * network_biases(m, m.ffn_size),
    )
    return Parameters(
        embedding=table + m.positions * m.hidden_size,
        attention=m.layers * attention_weights(m),
        ffn=ffn,
        experts=mixed * m.experts * expert_weights(m),
        shared_experts=mixed * network_weights(m, m.shared_ffn_size),
        router=mixed * m.hidden_size * m.experts,
        norms=m.norm_vectors * m.hidden_size * (m.norms * m.layers + (1 if m.norms else 0))
        + m.layers * attention_norms(m),
        biases=m.layers * m.biases + ffn_biases + (mixed * m.experts if m.router_bias else 0),
        lm_head=0 if m.tied_embeddings else table,
    )


def moe_layers(model: Model) -> Value:
    """Layers with a router and experts; none in a dense model."""
    return where(model.experts > 1, model.layers - model.dense_layers, 0)


def network_weights(model: Model, inner: Value) -> Value:
    """Weights of one feed-forward network: `ffn_matrices` matrices d x `inner`."""
    return model.ffn_matrices * model.hidden_size * real(inner)


def network_biases(model: Model, inner: Value) -> Value:
    """Biases of one feed-forward network: one for each output of a matrix, if the model has them."""
    outputs = (model.ffn_matrices - 1) * real(inner) + where(inner > 0, model.hidden_size, 0)
    return outputs if model.ffn_bias else 0


def network_parameters(model: Model, inner: Value) -> Value:
    """Weights and biases of one feed-forward network."""
    return network_weights(model, inner) + network_biases(model, inner)


def expert_weights(model: Model) -> Value:
    """Weights of one expert's matrices (of the feed-forward network, in a dense model)."""
    return network_weights(model, model.ffn_size)


def routed_parameters(model: Model, experts: Value) -> Value:
    """Parameters, biases included, of `experts` routed experts in each layer that has them."""
    return moe_layers(model) * experts * network_parameters(model, model.ffn_size)


@computed("N", "1")
def total_parameters(model: Model) -> Value:
    """parameters of the model, all experts counted."""
    return parameters(model).total


@computed("N_act", "1")
def active_parameters(model: Model) -> Value:
    """parameters of which a token meets all: q of the X experts in each layer, everything else whole."""
    return parameters(model).total - routed_parameters(model, model.experts - model.experts_per_token)


@computed("N_mm", "1")
def matmul_parameters(model: Model) -> Value:
    """weights of the linear layers that multiply one token; neither embedding nor LM head."""
    p = parameters(model)
    return p.attention + p.ffn + p.shared_experts + p.router + expert_matmul_parameters(model)


def expert_matmul_parameters(model: Model) -> Value:
    """Weights of the q experts that multiply one token, all layers."""
    return moe_layers(model) * model.experts_per_token * expert_weights(model)


def linear_parameters(model: Model) -> Value:
    """Weights that the linear layers may read in one pass: all experts, norms and biases; no embedding, no LM head."""
    p = parameters(model)
    return p.total - p.embedding - p.lm_head


@computed("E", "1")
def touched_experts(model: Model, tokens: Value) -> Value:
    """experts of a layer that at least one token of the step visits, on average, under uniform routing."""
    check_value("touched_experts", "tokens", tokens, minimum=0)
    return model.experts * where(
        model.experts > 1, 1 - (1 - model.experts_per_token / model.experts) ** real(tokens), 1
    )


def touched_parameters(model: Model, tokens: Value, expert_tokens: Value | None = None) -> Parts:
    """Parameters read from memory in one forward pass over `tokens` tokens.

    Each weight is read once for the whole step; of the experts only those that a token visits. The embedding
    is a look-up of a few rows, and is left out.

    Parameters
    ----------
    tokens : float, array or symbol
    expert_tokens : float, array or symbol
        Tokens that the experts see, if they serve more replicas than one.

    Returns
    -------
    Parts
        Attention reads no weights of its own here: its projections are linear layers.
    """
    check_value("touched_parameters", "tokens", tokens, minimum=0)
    touched = touched_experts(model, tokens if expert_tokens is None else expert_tokens)
    return Parts(
        linear=linear_parameters(model) - routed_parameters(model, model.experts),
        attention=0,
        lm_head=model.vocab_size * model.hidden_size,
        experts=routed_parameters(model, touched),
    )


def prefill_flops(model: Model, prompt: Value, causal: bool = True, prompts: Value = 1, prefix: Value = 0) -> Parts:
    """FLOPs of a prefill: equation `eq-prefill-flops`.

    A multiply-add is 2 FLOPs. With the causal mask token i attends to i tokens, without it (or in a kernel
    that computes the masked half and throws it away) to all S. Only the last token goes through the LM head.

    Parameters
    ----------
    prompt : float, array or symbol
        Prompt tokens S.
    causal : bool
        Whether the masked half of the scores is skipped.
    prompts : float, array or symbol
        Prompts of that length in one pass.
    prefix : float, array or symbol
        Tokens before the prompt that are in the KV cache already: a shared prefix, or earlier chunks.

    Returns
    -------
    Parts
    """
    _check_prefill("prefill_flops", prompt, prompts, prefix)
    prompts, prompt = real(prompts), real(prompt)
    pairs = pair_flops(model, absorbed=False) * prefill_attended(model, prompt, causal, prefix)
    indexed = model.layers * index_flops(model) * prefill_pairs(prompt, causal, prefix)
    expanded = model.layers * expansion_flops(model) * real(prefix)
    return _flops(model, prompt * prompts, prompts * (pairs + indexed + expanded), prompts)


def decode_flops(model: Model, batch: Value, context: Value, tokens: Value = 1) -> Parts:
    """FLOPs of one decode step: B requests with `tokens` new tokens each, which attend to a context of s tokens.

    One token is plain decoding; verifying a draft of gamma tokens takes gamma + 1.

    Returns
    -------
    Parts
    """
    _check_decode("decode_flops", batch, context, tokens)
    new, context = real(batch) * real(tokens), real(context)
    pairs = pair_flops(model, absorbed=True) * attended(model, context)
    return _flops(model, new, new * (pairs + model.layers * index_flops(model) * context), new)


def _flops(model: Model, tokens: Value, attention: Value, heads: Value) -> Parts:
    """FLOPs of a pass over `tokens` tokens, `heads` of which go through the LM head."""
    routed = expert_matmul_parameters(model)
    return Parts(
        linear=2 * (matmul_parameters(model) - routed) * tokens,
        attention=attention,
        lm_head=2 * model.vocab_size * model.hidden_size * heads,
        experts=2 * routed * tokens,
    )


def _check_prefill(owner: str, prompt: Value, prompts: Value, prefix: Value) -> None:
    check_value(owner, "prompt", prompt)
    check_value(owner, "prompts", prompts)
    check_value(owner, "prefix", prefix, minimum=0)


def _check_decode(owner: str, batch: Value, context: Value, tokens: Value) -> None:
    check_value(owner, "batch", batch)
    check_value(owner, "context", context, minimum=0)
    check_value(owner, "tokens", tokens)
