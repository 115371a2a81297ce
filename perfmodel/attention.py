"""What attention multiplies and reads in a layer: grouped-query, latent, windowed and indexed."""

from perfmodel._ops import Value, maximum, minimum, real, where
from perfmodel.model import Model


def attention_weights(model: Model) -> Value:
    """Weights of one layer's attention: query and output d x H_q D each, key and value d x H_kv D each.

    Latent attention: query d x r_q and r_q x H_q (d_nope + d_rope), or one matrix if r_q = 0; key and value down
    d x (r_kv + d_rope) and up r_kv x H_q (d_nope + d_v); output H_q d_v x d. An indexer adds its query
    r_q x H_I D_I, its key d x D_I and the weights of its heads d x H_I.
    """
    m, latent = model, model.latent
    if latent is None:
        return 2 * m.hidden_size * m.head_dim * (m.heads + m.kv_heads)
    query = m.heads * (latent.nope_dim + latent.rope_dim)
    compressed = latent.query_rank * (m.hidden_size + query)
    weights = (
        where(latent.query_rank > 0, compressed, m.hidden_size * query)
        + m.hidden_size * (latent.kv_rank + latent.rope_dim)
        + latent.kv_rank * m.heads * (latent.nope_dim + latent.value_dim)
        + m.heads * latent.value_dim * m.hidden_size
    )
    if m.indexer:
        i = m.indexer
        weights += latent.query_rank * i.heads * i.head_dim + m.hidden_size * (i.head_dim + i.heads)
    return weights


def attention_norms(model: Model) -> Value:
    """Normalisation weights inside one layer's attention: of heads, of latent vectors, of the indexer's key."""
    weights = 2 * model.head_dim if model.qk_norm else 0
    if model.latent:
        weights += model.latent.query_rank + model.latent.kv_rank
    if model.indexer:
        weights += 2 * model.indexer.head_dim  # a scale and an offset
    return weights


def pair_flops(model: Model, absorbed: bool) -> Value:
    """FLOPs of one query token and one cached token in a layer: their score, and the value's share of the output.

    Grouped-query attention: 2 D for each in every query head. Latent attention either expands the cache to keys
    and values of every head (prefill), or attends to the cached vectors themselves (`absorbed`: decode).
    """
    latent = model.latent
    if latent is None:
        return 4 * model.heads * model.head_dim
    if absorbed:
        return 2 * model.heads * (2 * latent.kv_rank + latent.rope_dim)
    return 2 * model.heads * (latent.nope_dim + latent.rope_dim + latent.value_dim)


def index_flops(model: Model) -> Value:
    """FLOPs of the indexer for one query token and one cached token in a layer; 0 without an indexer."""
    return 2 * model.indexer.heads * model.indexer.head_dim if model.indexer else 0


def expansion_flops(model: Model) -> Value:
    """FLOPs to expand one cached latent vector to all heads' keys and values; 0 without latent attention."""
    latent = model.latent
    return 2 * latent.kv_rank * model.heads * (latent.nope_dim + latent.value_dim) if latent else 0


def attended(model: Model, context: Value) -> Value:
    """Cached tokens that one query token attends to, summed over the layers."""
    context = real(context)
    if model.indexer:
        return model.layers * minimum(context, model.indexer.selected)
    if model.window:
        windowed = model.window.layers
        return windowed * minimum(context, model.window.tokens) + (model.layers - windowed) * context
    return model.layers * context


def prefill_pairs(prompt: Value, causal: bool, prefix: Value = 0, at_most: Value | None = None) -> Value:
    """Pairs of a query and a cached token in one layer of a prefill, its prompt behind `prefix` cached tokens.

    With the causal mask token i attends to prefix + i tokens, but to no more than `at_most` (a window, or what an
    indexer selects). Without the mask every token attends to all.
    """
    prompt, end = real(prompt), real(prefix) + real(prompt)
    if not causal:
        return prompt * (end if at_most is None else minimum(end, at_most))
    pairs = prompt * (prompt + 1) / 2 + prompt * real(prefix)
    if at_most is None:
        return pairs
    # The last `cut` tokens see too much: by end - at_most at the end, by one less for each token before.
    cut = minimum(maximum(end - at_most, 0), prompt)
    return pairs - cut * (end - at_most) + cut * (cut - 1) / 2


def prefill_attended(model: Model, prompt: Value, causal: bool, prefix: Value = 0) -> Value:
    """Pairs of a query and a cached token in a prefill, summed over the layers."""
    m = model
    if m.indexer:
        return m.layers * prefill_pairs(prompt, causal, prefix, m.indexer.selected)
    pairs = prefill_pairs(prompt, causal, prefix)
    if m.window:
        seen = prefill_pairs(prompt, causal, prefix, m.window.tokens)
        return m.window.layers * seen + (m.layers - m.window.layers) * pairs
    return m.layers * pairs
