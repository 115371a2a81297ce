"""Which requests share a step, and what they cost each other."""

from dataclasses import fields, replace

import numpy as np

from perfmodel._ops import Value, ceil, is_symbolic, maximum, minimum, real, where
from perfmodel.communication import expert_parallel_time, pipeline_time, tensor_parallel_time
from perfmodel.counts import Parts
from perfmodel.deployment import Deployment
from perfmodel.quantity import argument, check_value, check_values, computed
from perfmodel.roofline import StepTime, decode_time, prefill_time

argument("chunk", "C", "token", "prompt tokens that one step works on")


@computed("Delta", "s")
def prefill_interference(batch: Value, output: Value, prefill: Value) -> Value:
    """time that the prefills of other requests add to each token of mine.

    A closed loop of B requests, out of step with one another: while I decode N_out - 1 times, each of the
    B - 1 others ends once and its successor prefills once, with the decode steps waiting.

    Parameters
    ----------
    batch : float, array or symbol
        Requests in flight B.
    output : float, array or symbol
        Output tokens N_out of a request, at least 2.
    prefill : float, array or symbol
        Seconds of one prefill; of one stage's part of it under pipeline parallelism, T_prefill / p.
    """
    check_value("prefill_interference", "batch", batch, minimum=1)
    check_value("prefill_interference", "output", output, minimum=2)
    check_value("prefill_interference", "prefill", prefill, minimum=0)
    return (real(batch) - 1) / (real(output) - 1) * real(prefill)


def mixed_time(
    deployment: Deployment, batch: Value, context: Value, chunk: Value, prefix: Value = 0, tokens: Value = 1
) -> StepTime:
    """Time of a step that decodes B requests and works on a chunk of another's prompt: equation `eq-mixed-time`.

    Weights are read once for all tokens, and messages carry them together. The attention of both is one kernel. The
    engine samples after each chunk, as after a whole prompt, and throws the token away. Under pipeline parallelism
    every micro-batch has a chunk of its own.

    Parameters
    ----------
    batch : float, array or symbol
        Requests B that decode.
    context : float, array or symbol
        Tokens s that each of them has in the KV cache.
    chunk : float, array or symbol
        Prompt tokens C of the step.
    prefix : float, array or symbol
        Tokens of the same prompt that are in the KV cache already, from earlier chunks.
    tokens : float, array or symbol
        New tokens of each decoding request: gamma + 1 while a draft is verified.

    Returns
    -------
    StepTime
        Seconds.
    """
    return _together(deployment, batch, context, chunk, prefix, 1, tokens)


def _together(
    deployment: Deployment,
    batch: Value,
    context: Value,
    prompt: Value,
    prefix: Value,
    prompts: Value,
    tokens: Value,
) -> StepTime:
    """A decode step in which each micro-batch of a pipeline works on `prompts` prefills (or chunks) as well."""
    d, p = deployment, deployment.pipeline_parallel
    decode, prefill = decode_time(d, batch, context, tokens), prefill_time(d, prompt, prefix=prefix)
    new = (real(batch) if p == 1 else maximum(real(batch) / p, 1)) * real(tokens)
    each = real(prompt) / d.context_parallel
    total = new + prompts * each
    shared = decode_time(d, p * total, 0).memory  # the weights, read once for all tokens
    both = [(getattr(decode.compute, part.name), getattr(prefill.compute, part.name)) for part in fields(Parts)]
    # Of messages, each has some of its own under context parallelism: queries here, keys and values there.
    own = decode.communication - _messages(d, new) + prompts * (prefill.communication - _messages(d, each))
    return StepTime(
        compute=Parts(*(one + prompts * other for one, other in both)),
        memory=replace(shared, attention=decode.memory.attention + prompts * prefill.memory.attention),
        communication=_messages(d, total) + own,
        overhead=decode.overhead,
    )


def _messages(deployment: Deployment, tokens: Value) -> Value:
    """Seconds of the messages that all tokens of a pass share."""
    times = (tensor_parallel_time, expert_parallel_time, pipeline_time)
    return sum(time(deployment, tokens) for time in times)


def steady_step(
    deployment: Deployment,
    batch: Value,
    prompt: Value,
    output: Value,
    prefill: str = "exclusive",
    prefix: Value = 0,
    context: Value | None = None,
    tokens: Value = 1,
) -> StepTime:
    """Mean time of a token after the first, in a closed loop of B equal requests: its `total` is TPOT.

    Where prompts are prefilled decides:

    * "apart": on other accelerators. Decode steps follow each other without a break.
    * "exclusive": on these, while decoding waits: `prefill_interference` for each step, under `overhead`.
    * "fused": on these, in the decode steps, (B - 1) / (N_out - 1) prompts in each, evenly spread, as chunked prefill
      would have it at best. Weights are read once; what a chunk reads again of its own prompt is left out.

    All three assume requests out of step with one another, a new one for each that ends, none waiting for memory.

    Parameters
    ----------
    batch, prompt, output : float, array or symbol
        Requests B in flight; S and N_out tokens of each.
    prefill : str
        "apart", "exclusive" or "fused".
    prefix : float, array or symbol
        Tokens of the prompt, fewer than S, that a prefix cache holds already.
    context : float, array or symbol, optional
        Tokens s that each request has in the KV cache: the mean over its steps, S + N_out / 2, by default.
    tokens : float, array or symbol
        New tokens of each request in a step: gamma + 1 in a round of speculation; then `output` - 1 counts the rounds.

    Returns
    -------
    StepTime
        Seconds.
    """
    if prefill not in ("apart", "exclusive", "fused"):
        raise ValueError(f"steady_step: prefill={prefill!r} must be one of apart, exclusive, fused")
    check_values("steady_step", 1, batch=batch, prompt=prompt)
    check_values("steady_step", 2, output=output)
    check_values("steady_step", 0, prefix=prefix)
    context = real(prompt) + real(output) / 2 if context is None else context
    decode = decode_time(deployment, batch, context, tokens)
    if prefill == "apart":
        return decode
    if prefill == "exclusive":
        one = prefill_time(deployment, real(prompt) - real(prefix), prefix=prefix).total
        held = prefill_interference(batch, output, one / deployment.pipeline_parallel)
        return replace(decode, overhead=decode.overhead + held)
    prompts = prefill_interference(batch, output, 1 / deployment.pipeline_parallel)
    return _together(deployment, batch, context, real(prompt) - real(prefix), prefix, prompts, tokens)


def request_rate(deployment: Deployment, batch: Value, prompt: Value, output: Value, prefix: Value = 0) -> Value:
    """Requests a second that one replica finishes in a closed loop of B, prefilling exclusively: B / (TTFT + ...).

    Each takes one prefill, which starts at once, and N_out - 1 steps of TPOT (Little's law). Of a whole cycle,
    B prefills and N_out - 1 decode steps, B requests come out.
    """
    step = steady_step(deployment, batch, prompt, output, prefix=prefix).total
    first = prefill_time(deployment, real(prompt) - real(prefix), prefix=prefix).total
    return real(batch) / (first + (real(output) - 1) * step)


def chunked_prefill_time(
    deployment: Deployment,
    prompt: Value,
    chunk: Value,
    batch: Value | None = None,
    context: Value = 0,
    prefix: Value = 0,
    tokens: Value = 1,
) -> Value:
    """Seconds until a prompt is prefilled, C tokens a step: the sum over its chunks, each with a longer prefix.

    Parameters
    ----------
    prompt, chunk : float or array
        S and C, numbers.
    batch, context : float, array or symbol
        Requests that decode in each of the steps, and tokens that each has in the KV cache; None on an idle server.
    prefix : float, array or symbol
        Tokens before the prompt that a prefix cache holds.
    tokens : float, array or symbol
        New tokens of each decoding request in a step.
    """
    check_value("chunked_prefill_time", "prompt", prompt)
    check_values("chunked_prefill_time", 1, chunk=chunk)
    check_values("chunked_prefill_time", 0, prefix=prefix)
    if is_symbolic(prompt, chunk):
        raise ValueError("chunked_prefill_time has no closed form: pass numbers, not symbols")
    prompt, chunk = real(prompt), real(chunk)
    seconds: Value = 0
    for index in range(int(np.max(ceil(prompt / chunk)))):
        done = minimum(index * chunk, prompt)
        part = minimum(chunk, prompt - done)
        some = where(part > 0, part, 1)  # a shorter prompt than the longest is done already
        if batch is None:
            step = prefill_time(deployment, some, prefix=real(prefix) + done)
        else:
            step = mixed_time(deployment, batch, context, some, real(prefix) + done, tokens)
        seconds = seconds + where(part > 0, step.total, 0 * step.total)
    return seconds


def multi_step_time(deployment: Deployment, batch: Value, context: Value, steps: Value) -> StepTime:
    """Time of a decode step when the host plans `steps` steps at once: its time theta counts once in `steps`.

    What it costs is not in here: a request that ends or arrives within the steps waits for their end, and
    (steps - 1) / 2 tokens on average are computed for nothing.
    """
    check_value("multi_step_time", "steps", steps, minimum=1)
    step, host = decode_time(deployment, batch, context), deployment.constants.step_overhead
    return replace(step, overhead=step.overhead - host + host / real(steps))
