"""What the options ask, as the package's objects, and all that is answered: by `estimate` once, by `sweep` often."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel._ops import Value, real
from perfmodel.data import Catalogue
from perfmodel.deployment import IDEAL, Deployment, Workload
from perfmodel.economics import TokenCost, dollars_per_token, joules_per_token
from perfmodel.model import Model
from perfmodel.options import WEIGHTS
from perfmodel.quantity import check_value
from perfmodel.quantization import FORMATS
from perfmodel.served import Engine, Estimate, Limits, estimate
from perfmodel.speculative import relative_draft_cost

MOST_CHUNKS = 10_000  # of a prompt: each is a step to sum up
FIELDS = (  # of `Deployment`, which options set as they are
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "context_parallel",
    "decode_context_parallel",
    "expert_parallel",
    "memory_utilization",
)


@dataclass(frozen=True)
class Question:
    """A deployment, requests that broadcast, and how they are served; `price` and `power` of an accelerator."""

    deployment: Deployment
    workload: Workload
    engine: Engine
    limits: Limits | None
    price: float | None  # dollars a second
    power: float | None  # watts


def is_config(name: str, catalogue: Catalogue) -> bool:
    """Whether a model is named by the path of a config.json."""
    path = Path(name)
    return name not in catalogue.names("model") and (path.exists() or path.name != name or name.endswith(".json"))


def is_quantized(name: str) -> bool:
    """Whether a config.json is of a quantised model, whose precision `Model` leaves out."""
    path = Path(name)
    return bool(json.loads((path / "config.json" if path.is_dir() else path).read_bytes()).get("quantization_config"))


def finders(catalogue: Catalogue) -> dict[str, Callable[[str], Any]]:
    """For each option that names something: what finds it, or raises ValueError."""

    def model(name: str) -> Model:
        return Model.from_hf_config(name) if is_config(name, catalogue) else catalogue.model(name)

    return {
        "model": model,
        "draft": model,
        "accelerator": catalogue.accelerator,
        "link": catalogue.link,
        "constants": catalogue.constants,
    }


def read_deployment(given: Mapping[str, Any]) -> Deployment:
    """The deployment that the options describe."""
    model, accelerator, ideal = given["model"], given["accelerator"], given["ideal"]
    if given["experts"] and model.experts == 1:
        raise ValueError(f"argument --experts: {model.name} has none")
    weight_bytes, arithmetic = WEIGHTS[given["weights"]]
    deployment = Deployment(
        model,
        accelerator,
        link=given["link"] or (None if ideal else accelerator.link),
        weight_bytes=weight_bytes,
        expert_bytes=WEIGHTS[given["experts"]][0] if given["experts"] else None,
        table_bytes=WEIGHTS[given["tables"]][0],
        kv_bytes=FORMATS[given["kv"]],
        activation_bytes=FORMATS[given["activations"]],
        compute=given["compute"] or arithmetic,
        constants=IDEAL if ideal else given["constants"],
        **{field: given[field] for field in FIELDS},
    )
    if deployment.link is None and deployment.accelerators > 1 and not ideal:  # messages would be free, unseen
        machine = f"{deployment.accelerators} x {accelerator.name}"
        raise ValueError(f"argument --link: needed for {machine}, which names none")
    return deployment


def prompts_of(given: Mapping[str, Any]) -> tuple[float, float]:
    """Tokens of the shortest and of the longest prompt that the options allow."""
    return given["shared_prefix"] or 0, MOST_CHUNKS * (given["chunk"] or math.inf)


def read_engine(given: Mapping[str, Any], deployment: Deployment, workload: Workload) -> Engine:
    """The engine that the options describe."""
    chunk, shared, share = given["chunk"], given["shared_prefix"], given["prefix_hit"]
    shortest, longest = prompts_of(given)
    if np.min(workload.prompt) < shortest:
        raise ValueError(f"argument --shared-prefix: {shared} exceeds a prompt of {np.min(workload.prompt)} tokens")
    if share is not None:
        check_value("argument --prefix-hit", "share", share, minimum=0, maximum=1)
        shared = share * real(workload.prompt)
    if np.max(workload.prompt) > longest:
        cut = f"{chunk} cuts {np.max(workload.prompt)} prompt tokens"
        raise ValueError(f"argument --chunk: {cut} into more than {MOST_CHUNKS:,} chunks")
    return Engine(
        prefill=given["prefill"] or ("fused" if chunk else "apart" if given["ideal"] else "exclusive"),
        chunk=chunk,
        shared_prefix=0 if shared is None else shared,
        **_speculation(given, deployment, workload),
    )


def _speculation(given: Mapping[str, Any], deployment: Deployment, workload: Workload) -> dict[str, Value]:
    """The fields of `Engine` that say how tokens are drafted."""
    gamma, acceptance, cost, draft = (given[name] for name in ("speculate", "acceptance", "draft_cost", "draft"))
    if gamma is None:
        for option, value in ("--acceptance", acceptance), ("--draft-cost", cost), ("--draft", draft):
            if value is not None:
                raise ValueError(f"argument {option}: needs --speculate")
        return {}
    if acceptance is None or (cost is None) == (draft is None):
        raise ValueError("argument --speculate: needs --acceptance, and one of --draft-cost and --draft")
    if draft is not None:
        experts = deployment.expert_parallel and draft.experts > 1
        try:
            drafting = replace(deployment, model=draft, expert_parallel=experts)
        except ValueError as error:
            raise ValueError(f"argument --draft: {error}") from None
        cost = relative_draft_cost(drafting, deployment, workload.batch, workload.context, max(gamma, 1))
    return {"draft_tokens": gamma, "acceptance": acceptance, "draft_cost": cost}


def question(given: Mapping[str, Any]) -> Question:
    """What the options ask; names are found already (`finders`), a default stands in for each that was not given."""
    deployment = read_deployment(given)
    workload = Workload(given["prompt"], given["output"], given["batch"])
    ttft, tpot, price, power = (
        given[name] for name in ("ttft_limit_s", "tpot_limit_s", "dollars_per_gpu_hour", "power_w")
    )
    limits = None if ttft is None and tpot is None else Limits(ttft, tpot)
    return Question(
        deployment,
        workload,
        read_engine(given, deployment, workload),
        limits,
        price=None if price is None else price / 3600,
        power=deployment.accelerator.power or None if power is None else power,
    )


def token_seconds(asked: Question, result: Estimate) -> TokenCost:
    """Accelerator-seconds of a token, in the closed loop that `estimate` describes.

    A replica's time is all paid for: output tokens pay for their share of the decode steps, input tokens for what is
    left, which their prefills took. Prefilled apart, they pay for a prefill on accelerators of the same number.
    """
    d, w, apart = asked.deployment, asked.workload, asked.engine.prefill == "apart"
    decode = (w.output - 1) * result.decode_step_s / w.batch
    prefill = result.ttft_s if apart else result.e2e_s / w.batch - decode
    return TokenCost(input=d.replica * prefill / w.prompt, output=d.replica * decode / w.output)


def answer(asked: Question) -> dict[str, Value]:
    """Every field that is printed or written, by name; None where it was not asked for."""
    price, power = asked.price, asked.power
    result = estimate(asked.deployment, asked.workload, asked.engine, asked.limits)
    seconds = token_seconds(asked, result)
    dollars = TokenCost(None, None) if price is None else dollars_per_token(seconds, 1e6 * price)
    joules = TokenCost(None, None) if power is None else joules_per_token(seconds, power)
    return vars(result) | {
        "accelerators": asked.deployment.accelerators,
        "throughput_tok_s_per_gpu": result.throughput_tok_s / asked.deployment.accelerators,
        "dollars_per_million_input_tokens": dollars.input,
        "dollars_per_million_output_tokens": dollars.output,
        "joules_per_input_token": joules.input,
        "joules_per_output_token": joules.output,
    }
