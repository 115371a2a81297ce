"""Parameters, FLOPs and bytes, counted part by part from the shapes of the matrices."""

from dataclasses import dataclass

from perfmodel._ops import Value, real
from perfmodel.model import Model
from perfmodel.quantity import check_value, computed


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model by part."""

    embedding: Value
    attention: Value
    ffn: Value
    router: Value
    norms: Value
    lm_head: Value

    @property
    def total(self) -> Value:
        """All parameters; a tied LM head is the embedding table and counts once."""
        return self.embedding + self.attention + self.ffn + self.router + self.norms + self.lm_head


@dataclass(frozen=True)
class Parts:
    """FLOPs or bytes of one step: linear layers, attention over the cache, LM head."""

    linear: Value
    attention: Value
    lm_head: Value

    @property
    def total(self) -> Value:
        """Sum over the parts."""
        return self.linear + self.attention + self.lm_head


def parameters(model: Model) -> Parameters:
    """Count all parameters by part.

    Returns
    -------
    Parameters
        Exact integers for integer shapes.
    """
    m = model
    table = m.vocab_size * m.hidden_size
    return Parameters(
        embedding=table,
        attention=m.layers * attention_weights(m),
        ffn=m.layers * m.experts * expert_weights(m),
        router=m.layers * router_weights(m),
        norms=m.hidden_size * (m.norms * m.layers + (1 if m.norms else 0)),
        lm_head=0 if m.tied_embeddings else table,
    )


def attention_weights(model: Model) -> Value:
    """Weights of one layer's attention: query and output d x H_q D each, key and value d x H_kv D each."""
    return 2 * model.hidden_size * model.head_dim * (model.heads + model.kv_heads)


def expert_weights(model: Model) -> Value:
    """Weights of one feed-forward network, or of one expert: `ffn_matrices` matrices d x d_ff."""
    return model.ffn_matrices * model.hidden_size * model.ffn_size


def router_weights(model: Model) -> Value:
    """Weights of one layer's router, d x X; a dense layer has none."""
    return 0 if model.experts == 1 else model.hidden_size * model.experts


@computed("N", "1")
def total_parameters(model: Model) -> Value:
    """parameters of the model, all experts counted."""
    return parameters(model).total


@computed("N_act", "1")
def active_parameters(model: Model) -> Value:
    """parameters of which a token meets all: q of the X experts in each layer, everything else whole."""
    idle = model.layers * (model.experts - model.experts_per_token) * expert_weights(model)
    return parameters(model).total - idle


@computed("N_mm", "1")
def matmul_parameters(model: Model) -> Value:
    """weights of the linear layers that multiply one token; neither embedding nor LM head."""
    ffn = model.experts_per_token * expert_weights(model)
    return model.layers * (attention_weights(model) + ffn + router_weights(model))


def linear_parameters(model: Model) -> Value:
    """Weights that the linear layers of all tokens together may read: all experts, norms; no embedding, no LM head."""
    p = parameters(model)
    return p.attention + p.ffn + p.router + p.norms


@computed("E", "1")
def touched_experts(model: Model, tokens: Value) -> Value:
    """experts of a layer that at least one token of the step visits, on average, under uniform routing."""
    idle = (1 - model.experts_per_token / model.experts) ** real(tokens) if model.experts != 1 else 0
    return model.experts * (1 - idle)


def touched_parameters(model: Model, tokens: Value) -> Parts:
    """Parameters read from memory in one forward pass over `tokens` tokens.

    Each weight is read once for the whole step; of the experts only those that a token visits. The embedding
    is a look-up of a few rows, and is left out.

    Returns
    -------
    Parts
        Attention reads no weights of its own here: its projections are linear layers.
    """
    sleeping = model.layers * (model.experts - touched_experts(model, tokens)) * expert_weights(model)
    lm_head = model.vocab_size * model.hidden_size
    return Parts(linear=linear_parameters(model) - sleeping, attention=0, lm_head=lm_head)


def prefill_flops(model: Model, prompt: Value, causal: bool = True, prompts: Value = 1) -> Parts:
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

    Returns
    -------
    Parts
    """
    check_value("prefill_flops", "prompt", prompt)
    check_value("prefill_flops", "prompts", prompts)
    prompt, prompts = real(prompt), real(prompts)
    pairs = prompt * (prompt + 1) / 2 if causal else prompt**2
    return Parts(
        linear=2 * matmul_parameters(model) * prompt * prompts,
        attention=4 * pairs * prompts * model.heads * model.head_dim * model.layers,
        lm_head=2 * model.vocab_size * model.hidden_size * prompts,
    )


def decode_flops(model: Model, batch: Value, context: Value, tokens: Value = 1) -> Parts:
    """FLOPs of one decode step: B requests with `tokens` new tokens each, which attend to a context of s tokens.

    One token is plain decoding; verifying a draft of gamma tokens takes gamma + 1.

    Returns
    -------
    Parts
    """
    check_value("decode_flops", "batch", batch)
    check_value("decode_flops", "context", context, minimum=0)
    check_value("decode_flops", "tokens", tokens)
    new, context = real(batch) * real(tokens), real(context)
    return Parts(
        linear=2 * matmul_parameters(model) * new,
        attention=4 * new * context * model.heads * model.head_dim * model.layers,
        lm_head=2 * model.vocab_size * model.hidden_size * new,
    )
