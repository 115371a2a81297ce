"""What a shared prefix saves: whole blocks that are in the KV cache already are not prefilled again."""

import numpy as np

from perfmodel._ops import Value, floor, minimum, real
from perfmodel.batching import request_rate
from perfmodel.deployment import Deployment
from perfmodel.kvcache import BLOCK_SIZE
from perfmodel.quantity import check_value, check_values
from perfmodel.roofline import prefill_time


def hit_tokens(prompt: Value, shared: Value, block_size: int = BLOCK_SIZE) -> Value:
    """Tokens of a prompt that a prefix cache supplies: equation `eq-prefix-hit`.

    Whole blocks only. The last token of the prompt is always computed, since the next one is sampled from it: a
    prompt that is cached to its end still recomputes up to a block. As vLLM does it.

    Parameters
    ----------
    prompt : float, array or symbol
        Prompt tokens S.
    shared : float, array or symbol
        Leading tokens that equal those of an earlier request whose blocks are still there.
    block_size : int
        Tokens b of a block.
    """
    check_value("hit_tokens", "prompt", prompt, minimum=1)
    check_value("hit_tokens", "shared", shared, minimum=0)
    check_value("hit_tokens", "block_size", block_size, minimum=1, whole=True)
    block = real(block_size)
    return floor(minimum(real(shared), real(prompt) - 1) / block) * block


def hit_rate(prompts: Value, shared: Value, block_size: int = BLOCK_SIZE) -> Value:
    """Share of a workload's prompt tokens that the cache supplies, as engines report it: all hits over all prompts.

    Parameters
    ----------
    prompts, shared : array
        Prompt tokens of each request, and its leading tokens that are cached; numbers.
    """
    prompts, hits = np.broadcast_arrays(real(prompts), hit_tokens(prompts, shared, block_size))
    check_value("hit_rate", "requests", hits.size)
    return np.sum(hits) / np.sum(prompts)


def group_hit_rate(requests: Value, prompt: Value, shared: Value, block_size: int = BLOCK_SIZE) -> Value:
    """Hit rate of requests that share a system prompt or a document: the first computes it, the others find it."""
    check_value("group_hit_rate", "requests", requests, minimum=1)
    return (1 - 1 / real(requests)) * hit_tokens(prompt, shared, block_size) / real(prompt)


def conversation_hit_rate(
    turns: int, question: Value, answer: Value, system: Value = 0, block_size: int = BLOCK_SIZE
) -> Value:
    """Hit rate of a conversation whose every turn sends the whole history again, nothing evicted in between.

    Generated tokens are cached like prompt tokens, except the last of an answer, which no step has read: it
    is computed with the next question.

    Parameters
    ----------
    turns : int
        Questions of the conversation.
    question, answer : float, array or symbol
        Tokens of each question and each answer.
    system : float, array or symbol
        Tokens of a system prompt in front, which the first turn computes.
    """
    check_value("conversation_hit_rate", "turns", turns, minimum=1, whole=True)
    check_values("conversation_hit_rate", 1, question=question, answer=answer)
    check_values("conversation_hit_rate", 0, system=system)
    hits: Value = 0
    sent: Value = 0
    for turn in range(int(turns)):
        history = real(system) + turn * (real(question) + real(answer))
        prompt = history + real(question)
        if turn:
            hits = hits + hit_tokens(prompt, history - 1, block_size)
        sent = sent + prompt
    return hits / sent


def saved_prefill_time(deployment: Deployment, prompt: Value, hit: Value) -> Value:
    """Seconds by which `hit` cached tokens shorten a prefill; what is left still attends to them and reads them."""
    check_value("saved_prefill_time", "hit", hit, minimum=0)
    whole = prefill_time(deployment, prompt)
    return whole.total - prefill_time(deployment, real(prompt) - real(hit), prefix=hit).total


def prefix_speedup(deployment: Deployment, batch: Value, prompt: Value, output: Value, hit: Value) -> Value:
    """Throughput with `hit` cached tokens of every prompt over throughput without: equation `eq-prefix-speedup`.

    A closed loop of B requests with exclusive prefill, so that a cycle is B prefills and N_out - 1 decode steps. A hit
    shortens the prefills only: the gain runs from nothing, where decode steps are the cycle, to the prefill's own
    gain, where prefills are. That the shared blocks are held once, so that more requests fit, comes on top.

    Parameters
    ----------
    batch, prompt, output : float, array or symbol
        Requests B in flight; S and N_out tokens of each.
    hit : float, array or symbol
        Tokens of each prompt that are cached (`hit_tokens`), fewer than S.
    """
    check_value("prefix_speedup", "hit", hit, minimum=0)
    without = request_rate(deployment, batch, prompt, output)
    return request_rate(deployment, batch, prompt, output, prefix=hit) / without
