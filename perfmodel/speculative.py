"""Speculative decoding: a draft proposes gamma tokens, one pass of the target verifies them all.

Times are counted in plain decode steps of the target, T(B, 1). A round drafts for gamma c of them, verifies for
v = T(B, gamma + 1) / T(B, 1), and yields tau tokens; without speculation it would have taken tau plain steps.
"""

import numpy as np

from perfmodel._ops import Value, is_symbolic, maximum, minimum, real, where
from perfmodel.crossovers import slopes
from perfmodel.deployment import Deployment
from perfmodel.quantity import argument, check_value, computed
from perfmodel.roofline import decode_time, ridge_tokens

argument(
    "acceptance", "alpha", "1", "chance that the target accepts a drafted token, given that it accepted those before"
)
argument("draft_tokens", "gamma", "token", "tokens drafted in a round")
argument("draft_cost", "c", "1", "time of one draft step over that of a plain step of the target")


@computed("tau", "token")
def expected_tokens(acceptance: Value, draft_tokens: Value) -> Value:
    """tokens that a round of speculation yields on average.

    Equation `eq-expected-tokens`: token i is kept if the first i drafts are accepted, with chance alpha^i, and the
    target's own pass adds one more: the sum of alpha^i from 0 to gamma.

    Parameters
    ----------
    acceptance : float, array or symbol
        alpha, from 0 to 1, the same for every position.
    draft_tokens : float, array or symbol
        gamma, a whole number; 0 is plain decoding.

    Source: Leviathan et al. 2023, equation 1.
    """
    check_value("expected_tokens", "acceptance", acceptance, minimum=0, maximum=1)
    check_value("expected_tokens", "draft_tokens", draft_tokens, minimum=0, whole=True)
    alpha, gamma = real(acceptance), real(draft_tokens)
    rejected = 1 - alpha if is_symbolic(alpha) else where(alpha < 1, 1 - alpha, 1)  # numbers must not divide by 0
    return where(alpha < 1, (1 - alpha ** (gamma + 1)) / rejected, gamma + 1)


def speculative_speedup(tokens: Value, draft_tokens: Value, draft_cost: Value, verify_cost: Value = 1) -> Value:
    """Plain time over speculative time of the same tokens, tau / (gamma c + v): equation `eq-speculative-speedup`.

    With v = 1, verifying for free, it is Leviathan's theorem. A tree of drafts fits too: `tokens` is then its measured
    acceptance length (the target's own token counted), `draft_tokens` its depth, one draft step a level, and
    `verify_cost` that of all its nodes and the root.

    Parameters
    ----------
    tokens : float, array or symbol
        tau, tokens that a round yields: `expected_tokens`, or measured.
    draft_tokens : float, array or symbol
        gamma, draft steps of a round.
    draft_cost : float, array or symbol
        c, one draft step over a plain step: given, or `relative_draft_cost`.
    verify_cost : float, array or symbol
        v, the verifying pass over a plain step: 1, or `relative_verify_cost`.

    Source: Leviathan et al. 2023, theorem 3.8.
    """
    check_value("speculative_speedup", "tokens", tokens, minimum=1)
    check_value("speculative_speedup", "draft_tokens", draft_tokens, minimum=0)
    check_value("speculative_speedup", "draft_cost", draft_cost, minimum=0)
    check_value("speculative_speedup", "verify_cost", verify_cost)
    return real(tokens) / (real(draft_tokens) * real(draft_cost) + real(verify_cost))


def best_draft_length(acceptance: Value, draft_cost: Value, longest: int = 32) -> Value:
    """Drafted tokens at which Leviathan's speed-up (v = 1) is largest, up to `longest`; 0 if speculation never pays.

    One more token pays while its gain, alpha^(gamma+1) tokens for c plain steps, beats the round so far, tau tokens
    for gamma c + 1. The gain falls and the rest does not, so the optimum is the number of lengths at which it pays;
    the first of them says that speculation pays at all if and only if alpha > c. With a v that grows, compare
    `speculative_speedup` over a range of lengths instead.

    Parameters
    ----------
    acceptance, draft_cost : float, array or symbol
        alpha and c.
    longest : int
        Lengths tried. A draft that costs nothing, or is never refused, pays at any length.
    """
    check_value("best_draft_length", "acceptance", acceptance, minimum=0, maximum=1)
    check_value("best_draft_length", "draft_cost", draft_cost, minimum=0)
    check_value("best_draft_length", "longest", longest, minimum=1, whole=True)
    alpha, c = real(acceptance), real(draft_cost)
    return sum(
        where(alpha ** (gamma + 1) * (gamma * c + 1) > c * expected_tokens(alpha, gamma), 1, 0)
        for gamma in range(longest)
    )


@computed("v", "1")
def relative_verify_cost(target: Deployment, batch: Value, context: Value, tokens: Value) -> Value:
    """time of a pass that verifies drafts over that of a plain step.

    Equation `eq-verify-cost`.

    Parameters
    ----------
    target : Deployment
    batch, context : float, array or symbol
        Requests B, and tokens s that each has in the KV cache; a context of 0 leaves the KV reads out.
    tokens : float, array or symbol
        Tokens verified for each request: gamma + 1, or the nodes of a tree of drafts and its root.
    """
    return decode_time(target, batch, context, tokens).total / decode_time(target, batch, context).total


def relative_draft_cost(
    draft: Deployment, target: Deployment, batch: Value, context: Value, draft_tokens: Value = 1
) -> Value:
    """Time of a draft step, on average over a round, over that of a plain step of the target: c from the roofline.

    The draft reads its own weights and its own KV cache, which grows by a token a step: draft step i of gamma finds
    s + i - 1 tokens, (gamma - 1)/2 more than the first on average. Without a window a step's time is linear in the
    context, so the step at the mean context takes the mean time.

    Parameters
    ----------
    draft, target : Deployment
        A draft may run on fewer accelerators than its target, and on none of its own. Heads that draft from the
        target's hidden state (EAGLE, MTP) are a `Model` of one layer.
    batch, context : float, array or symbol
        Requests B, and tokens s that each has in either KV cache.
    draft_tokens : float, array or symbol
        gamma, at least 1.
    """
    check_value("relative_draft_cost", "context", context, minimum=0)
    check_value("relative_draft_cost", "draft_tokens", draft_tokens, minimum=1)
    mean_context = real(context) + (real(draft_tokens) - 1) / 2
    return decode_time(draft, batch, mean_context).total / decode_time(target, batch, context).total


def free_batch(target: Deployment, draft_tokens: Value, context: Value = 0) -> Value:
    """Batch up to which verifying takes no longer than a plain step, v = 1: `ridge_tokens` / (gamma + 1).

    So it is for a dense model, while attention too stays under its memory roof with gamma + 1 new tokens to each read
    of the cache; latent attention does not, and the answer is then 0. In a mixture of experts more tokens touch more
    experts: there verifying is free only between the batch that touches them all and this one.

    Parameters
    ----------
    target : Deployment
    draft_tokens : float, array or symbol
        gamma.
    context : float, array or symbol
        Tokens s that each request has in the KV cache; 0 looks at the weights alone.
    """
    check_value("free_batch", "draft_tokens", draft_tokens, minimum=0)
    verified = real(draft_tokens) + 1
    one = decode_time(target, 1, context, verified)  # both sides of attention grow alike with the batch
    bound = one.compute.attention > one.memory.attention
    return where(bound, 0, target.pipeline_parallel * ridge_tokens(target) / verified)


def break_even_batch(
    target: Deployment, tokens: Value, draft_tokens: Value, draft_cost: Value, context: Value = 0
) -> Value:
    """Batch above which speculation is slower than plain decoding; 0 if it never pays, infinite if it always does.

    Speed-up is 1 where v = tau - gamma c. Up to the ridge a plain step reads its weights in W seconds and a request
    takes k s in attention; a verifying pass takes the longer of W and (gamma + 1) a B for arithmetic, and k' s, which
    is k s while attention stays under its memory roof. As reading the cache then costs both the same, a longer
    context raises this batch, and beyond `paying_context` there is none. Assumes the ideal machine without messages,
    a dense model (of experts: all touched), attention over the whole context and a constant c.

    Parameters
    ----------
    target : Deployment
    tokens, draft_tokens, draft_cost : float, array or symbol
        tau, gamma and c, as in `speculative_speedup`.
    context : float, array or symbol
        Tokens s that each request has in the KV cache; 0 looks at the weights alone.
    """
    check_value("break_even_batch", "context", context, minimum=0)
    gain, verified, weights, one, plain, verify = _costs("break_even_batch", target, tokens, draft_tokens, draft_cost)
    dearer = (verify - gain * plain) * real(context)  # what a request's attention adds to the round, less to tau plain
    slack = verified * one + dearer
    more = where(gain > 1, gain - 1, 1)
    batch = minimum(
        gain * weights / maximum(slack, gain * one),  # arithmetic breaks even
        more * weights / maximum(dearer, more * one),  # attention breaks even, with weights still read for free
    )
    # Past the ridge a plain step is at the arithmetic roof as well, and the speed-up falls no further.
    return where(gain > 1, where(slack >= gain * one, target.pipeline_parallel * batch, np.inf), 0)


def paying_context(target: Deployment, tokens: Value, draft_tokens: Value, draft_cost: Value) -> Value:
    """Context from which speculation pays at any batch, because reading the cache outweighs the arithmetic.

    Where `break_even_batch`, with the same assumptions, reaches the ridge: (tau - gamma c)(a + k s) = (gamma + 1) a +
    k' s. Infinite if there is none.

    Source: the effect is MagicDec's (Sadhukhan et al. 2024).
    """
    gain, verified, _, one, plain, verify = _costs("paying_context", target, tokens, draft_tokens, draft_cost)
    saved = gain * plain - verify
    pays = saved > 0 * saved
    return where(pays, (verified - gain) * one / where(pays, saved, plain), np.inf)


def _costs(owner: str, target: Deployment, tokens: Value, draft_tokens: Value, draft_cost: Value) -> tuple[Value, ...]:
    """What v may cost at most, tau - gamma c, and the tokens verified; then in seconds: reading the weights, a token's
    arithmetic, and a cached token's attention in a plain and in a verifying step."""
    check_value(owner, "tokens", tokens, minimum=1)
    check_value(owner, "draft_tokens", draft_tokens, minimum=0)
    check_value(owner, "draft_cost", draft_cost, minimum=0)
    weights, (linear, lm_head), (pair, kv) = slopes(target, absorbed=True)
    gamma, verified = real(draft_tokens), real(draft_tokens) + 1
    gain = real(tokens) - gamma * real(draft_cost)
    return gain, verified, weights, linear + lm_head, maximum(kv, pair), maximum(kv, verified * pair)
