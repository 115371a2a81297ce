"""How an engine schedules: the switches of vLLM's V1 scheduler, and of what it is compared with."""

from dataclasses import dataclass
from math import inf

from perfmodel.deployment import Deployment
from perfmodel.hardware import Link
from perfmodel.kvcache import BLOCK_SIZE, STEP_TOKENS, kv_blocks
from perfmodel.quantity import shown
from perfmodel.simulate.requests import MOST_TOKENS, scalar

POLICIES = ("v1", "decode-first", "shortest-first", "contiguous", "v0", "static")


@dataclass(frozen=True)
class Settings:
    """The rules of one engine, under vLLM's names where vLLM has them.

    Parameters
    ----------
    policy : str
        * "v1": vLLM's V1 scheduler. One budget of tokens a step; running requests first, in order of admission, then
          waiting ones; the last admitted is preempted, and computed again, when blocks run out.
        * "decode-first": the same, but requests that decode come before half-done prompts.
        * "shortest-first": the same, but the waiting request with the shortest prompt is admitted first.
        * "contiguous": the same, but each request reserves `reserve` tokens when it is admitted, as before paging.
        * "v0": whole prompts first, and no decoding in a step that prefills; a preempted request is swapped out over
          `swap_link`, or computed again without one.
        * "static": a batch is admitted when the one before has ended, starts to decode when all its prompts are done,
          reserves its longest request for each, and keeps its slots until the last request ends.
    block_size : int
        Tokens b of a block.
    num_blocks : int, optional
        Blocks of the KV cache, of which one is the null block and holds nothing; None takes what fits on the
        deployment, infinity as many as are asked for.
    max_num_batched_tokens : int
        Token budget T of a step.
    max_num_seqs : int
        Requests S that run at once.
    max_model_len : int, optional
        Tokens that a request may have, prompt and output.
    long_prefill_token_threshold : int
        Most tokens of one request in a step; 0 sets no limit beside the budget.
    enable_chunked_prefill : bool
        Whether a prompt may be cut to fit the budget.
    enable_prefix_caching : bool, optional
        Whether blocks of ended requests are found again; None does so if the requests name their prefixes.
    scheduler_reserve_full_isl : bool
        Admit a request only if all its tokens fit, not just the first chunk (newer vLLM does).
    watermark : int
        Blocks that stay free when a request is admitted.
    reserve : int, optional
        Tokens that "contiguous" reserves; None takes `max_model_len`.
    num_speculative_tokens : int
        Tokens gamma drafted for each decoding request in a step.
    acceptance : float
        Chance alpha that a drafted token is accepted, if those before it were.
    draft_cost : float
        Time c of one draft step over that of a plain decode step of the same batch.
    swap_link : Link, optional
        Between an accelerator and its host.
    seed : int
        Of the draws that accept drafts.
    """

    policy: str = "v1"
    block_size: int = BLOCK_SIZE
    num_blocks: float | None = None
    max_num_batched_tokens: int = STEP_TOKENS
    max_num_seqs: int = 1024
    max_model_len: int | None = None
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool | None = None
    scheduler_reserve_full_isl: bool = False
    watermark: int = 0
    reserve: int | None = None
    num_speculative_tokens: int = 0
    acceptance: float = 0
    draft_cost: float = 0
    swap_link: Link | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ValueError(f"Settings: policy={shown(self.policy)} must be one of {', '.join(POLICIES)}")
        least = {"block_size": 1, "max_num_batched_tokens": 1, "max_num_seqs": 1, "num_blocks": 2, "max_model_len": 1}
        least |= {
            "long_prefill_token_threshold": 0,
            "watermark": 0,
            "reserve": 1,
            "num_speculative_tokens": 0,
            "seed": 0,
        }
        for name, minimum in least.items():
            value = getattr(self, name)
            if value is not None and not (name == "num_blocks" and value == inf):
                most = 2**63 if name == "seed" else MOST_TOKENS
                scalar("Settings", name, value, minimum=minimum, maximum=most, whole=True)
                object.__setattr__(self, name, int(value))
        scalar("Settings", "acceptance", self.acceptance, minimum=0, maximum=1)
        scalar("Settings", "draft_cost", self.draft_cost, minimum=0)
        self._check_policy()

    def _check_policy(self) -> None:
        """What a policy needs, and what would be ignored."""
        said = f"with policy={self.policy!r}"
        if self.policy == "contiguous" and self.reserve is None and self.max_model_len is None:
            raise ValueError(f"Settings: reserve=None must be given, or max_model_len, {said}")
        if self.reserve is not None and self.policy != "contiguous":
            raise ValueError(f"Settings: reserve={self.reserve} must be left out {said}: it does not reserve")
        if self.swap_link is not None and self.policy != "v0":
            raise ValueError(
                f"Settings: swap_link={shown(self.swap_link.name)} must be left out {said}: it swaps nothing"
            )
        if self.policy in ("v0", "static", "contiguous"):
            if self.enable_prefix_caching:
                raise ValueError(
                    f"Settings: enable_prefix_caching=True must be left out {said}, which shares no blocks"
                )
            if self.num_speculative_tokens:
                tokens = self.num_speculative_tokens
                raise ValueError(f"Settings: num_speculative_tokens={tokens} must be 0 {said}, which drafts nothing")

    def usable_blocks(self, deployment: Deployment) -> float:
        """Blocks that requests can hold: all but the null block.

        Raises
        ------
        ValueError
            If what fits on the deployment is asked for, and nothing does.
        """
        if self.num_blocks is not None:
            return self.num_blocks - 1
        fit = int(kv_blocks(deployment, self.block_size, self.max_num_batched_tokens))
        if fit < 2:
            names = f"{deployment.model.name} on {deployment.accelerator.name}"
            raise ValueError(f"{names} leaves room for {fit} blocks of KV cache; at least 2 are needed")
        return fit - 1


V1 = Settings()  # as vLLM serves on large GPUs
