"""How long a step takes: `mixed_time`, for the mix that a scheduler put together, fast enough for a million steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfmodel.attention import expansion_flops, index_flops, pair_flops, prefill_attended, prefill_pairs
from perfmodel.deployment import Deployment
from perfmodel.kvcache import index_bytes_per_layer, kv_bytes_per_layer, kv_bytes_per_token, kv_share
from perfmodel.roofline import decode_time


class StepClock:
    """Seconds of a step from its tokens, its sampled requests, and the contexts that its attention reads.

    All but attention depends on the number of tokens alone: weights are read, and messages sent, once for all. The
    arithmetic and the traffic of attention are sums over the requests.

    Parameters
    ----------
    deployment : Deployment
        One replica of it, not cut into stages or groups.
    by_totals : bool
        Take the larger of all arithmetic and all traffic (`StepTime.by_totals`) instead of the sum over parts.
    """

    def __init__(self, deployment: Deployment, by_totals: bool = False) -> None:
        for name in ("pipeline_parallel", "context_parallel", "decode_context_parallel"):
            if (degree := getattr(deployment, name)) != 1:
                raise ValueError(f"StepClock: {name}={degree} must be 1: such steps are not simulated")
        self.deployment, self.by_totals = deployment, by_totals
        d, m = deployment, deployment.model
        self._rate = d.tensor_parallel * d.flops
        self._pair = pair_flops(m, absorbed=False) / self._rate
        self._expand = m.layers * expansion_flops(m) / self._rate
        self._prefill_traffic = kv_bytes_per_token(d) * kv_share(d) / d.bandwidth
        # Decoding attends to all of a context in some layers, and to at most `reach` tokens in others.
        self.reach: int | None = m.indexer.selected if m.indexer else m.window.tokens if m.window else None
        near = m.layers if m.indexer else m.window.layers if m.window else 0
        flops, traffic = pair_flops(m, absorbed=True) / self._rate, kv_bytes_per_layer(d) * kv_share(d) / d.bandwidth
        self._index = m.layers * index_flops(m) / self._rate
        index_traffic = m.layers * index_bytes_per_layer(d) * kv_share(d) / d.bandwidth
        self._far = ((m.layers - near) * flops + self._index, (m.layers - near) * traffic + index_traffic)
        self._near = (near * flops, near * traffic)
        one = decode_time(d, 1, 0)
        self._head = (float(one.compute.lm_head), float(one.memory.lm_head))
        self._table(1024)

    def _table(self, tokens: int) -> None:
        """Linear layers, experts, messages and host of steps of 0 to `tokens` tokens."""
        step = decode_time(self.deployment, np.arange(1, tokens + 1), 0)
        c, m = step.compute, step.memory
        columns = (c.linear, c.experts, m.linear, m.experts, step.communication + step.overhead)
        rows = np.broadcast_arrays(*columns, np.empty(tokens))[:5]
        linear, experts, linear_m, experts_m, rest = (np.concatenate([[0.0], row]) for row in rows)
        self._arithmetic, self._traffic = (linear + experts).tolist(), (linear_m + experts_m).tolist()
        self._rest = rest.tolist()
        self._parts = (np.maximum(linear, linear_m) + np.maximum(experts, experts_m)).tolist()

    def seconds(self, tokens: int, heads: int, arithmetic: Any, traffic: Any) -> Any:
        """Seconds of a step over so many tokens, `heads` of them sampled, given the two roofs of its attention."""
        if tokens >= len(self._rest):
            self._table(2 * tokens)
        head, head_traffic = heads * self._head[0], self._head[1]
        if self.by_totals:
            arithmetic = arithmetic + (self._arithmetic[tokens] + head)
            traffic = traffic + (self._traffic[tokens] + head_traffic)
            return _larger(arithmetic, traffic) + self._rest[tokens]
        return _larger(arithmetic, traffic) + (self._parts[tokens] + max(head, head_traffic) + self._rest[tokens])

    def decode_roofs(self, context: Any, near: Any) -> tuple[Any, Any]:
        """Attention's two roofs in decoding: contexts summed, and summed up to `reach` tokens of each."""
        arithmetic, traffic = self._far[0] * context, self._far[1] * context
        if self.reach is None:
            return arithmetic, traffic
        return arithmetic + self._near[0] * near, traffic + self._near[1] * near

    def step(
        self,
        contexts: Sequence[int],
        chunks: Sequence[tuple[int, int]],
        new: Sequence[int] | None = None,
        drafts: float = 0,
    ) -> float:
        """Seconds of a step.

        Parameters
        ----------
        contexts : sequence of int
            Tokens in the KV cache of each decoding request, the first new one among them.
        chunks : sequence of (tokens, prefix)
            Of each prompt: the tokens of it that the step works on, and those in the KV cache already.
        new : sequence of int, optional
            New tokens of each decoding request, more than one while a draft is verified; None is one each.
        drafts : float
            Draft steps of the decoding requests, counted in plain decode steps.
        """
        reached = contexts if self.reach is None else [min(context, self.reach) for context in contexts]
        tokens = requests = len(contexts)
        arithmetic, traffic = plain = self.decode_roofs(sum(contexts), sum(reached))
        if new is not None:
            tokens = sum(new)
            arithmetic, _ = self.decode_roofs(_sum_of_products(new, contexts), _sum_of_products(new, reached))
        heads = tokens + len(chunks)  # the engine samples after each chunk, and throws most of these tokens away
        for part, prefix in chunks:
            tokens += part
            arithmetic += self._chunk(part, prefix)
            traffic += (part + prefix) * self._prefill_traffic
        time = self.seconds(tokens, heads, arithmetic, traffic)
        if drafts and requests:
            time += drafts * self.seconds(requests, requests, *plain)
        return float(time)

    def _chunk(self, tokens: int, prefix: int) -> float:
        """Seconds of a chunk's attention at the rate of arithmetic: `prefill_flops`."""
        pairs = self._pair * prefill_attended(self.deployment.model, tokens, True, prefix)
        indexed = self._index * prefill_pairs(tokens, True, prefix)
        return float(pairs + indexed + self._expand * prefix)

    def decode(self, contexts: Any, steps: int) -> Any:
        """Seconds of each of the next steps of requests that only decode, none of which begins or ends.

        Parameters
        ----------
        contexts : array
            Tokens in each one's KV cache in the first of the steps, its new one among them.
        steps : int
        """
        batch, ahead = len(contexts), np.arange(steps)
        context = contexts.sum() + batch * ahead
        near: Any = context
        if self.reach is not None:
            # Contexts grow by one a step; each counts up to the reach.
            order = np.sort(contexts)
            inside = np.searchsorted(order, self.reach - ahead)  # of the sorted contexts, in each step
            sums = np.concatenate([[0], np.cumsum(order)])[inside]
            near = sums + inside * ahead + (batch - inside) * self.reach
        return self.seconds(batch, batch, *self.decode_roofs(context, near))


def _larger(one: Any, other: Any) -> Any:
    """The larger of two floats, or of two arrays element by element."""
    return np.maximum(one, other) if isinstance(one, np.ndarray) else max(one, other)


def _sum_of_products(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
