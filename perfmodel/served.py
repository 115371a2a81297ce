"""From the roofline to a served request: first token, later tokens, end to end, throughput, what fits."""

from dataclasses import dataclass

from perfmodel._ops import Value, real
from perfmodel.batching import prefill_interference
from perfmodel.counts import active_parameters, total_parameters
from perfmodel.deployment import Deployment, Workload
from perfmodel.kvcache import kv_bytes_per_token, kv_capacity_tokens, max_concurrency, weight_bytes_per_gpu
from perfmodel.quantity import check_value
from perfmodel.roofline import decode_time, prefill_time


@dataclass(frozen=True)
class Estimate:
    """What a deployment does with a workload, in SI base units; one replica unless the field says otherwise."""

    parameters: float
    active_parameters: float
    weight_bytes_per_gpu: float
    kv_bytes_per_token: float  # one copy over all accelerators of a replica
    kv_capacity_tokens: int
    max_concurrency: int  # whole requests of prompt + output tokens
    fits: bool  # the weights fit, and `batch` requests beside them
    ttft_s: float  # one prefill, no queue in front of it
    decode_step_s: float
    interference_s: float
    tpot_s: float  # mean time of each token after the first
    e2e_s: float
    throughput_tok_s: float  # output tokens, all replicas
    bound: str  # largest share of the decode step: memory, compute, communication or overhead


def end_to_end(ttft: Value, tpot: Value, output: Value) -> Value:
    """Seconds of a request: its first token, then N_out - 1 more: equation `eq-e2e`."""
    check_value("end_to_end", "ttft", ttft, minimum=0)
    check_value("end_to_end", "tpot", tpot, minimum=0)
    check_value("end_to_end", "output", output, minimum=1)
    return real(ttft) + real(tpot) * (real(output) - 1)


def estimate(deployment: Deployment, workload: Workload, interference: bool = True) -> Estimate:
    """Estimate one deployment under one workload of identical requests in a closed loop.

    Parameters
    ----------
    deployment : Deployment
    workload : Workload
    interference : bool
        Whether prefills run on the accelerators that decode, and hold up their steps. False is a pool
        that only decodes.

    Returns
    -------
    Estimate
    """
    prefill = prefill_time(deployment, workload.prompt).total
    step = decode_time(deployment, workload.batch, workload.context)
    # A prefill holds up each stage of a pipeline for its own layers' share only.
    held = prefill / deployment.pipeline_parallel
    wait = prefill_interference(workload.batch, workload.output, held) if interference else 0.0
    tpot = step.total + wait
    e2e = end_to_end(prefill, tpot, workload.output)
    concurrency = int(max_concurrency(deployment, workload.total))
    return Estimate(
        parameters=total_parameters(deployment.model),
        active_parameters=active_parameters(deployment.model),
        weight_bytes_per_gpu=weight_bytes_per_gpu(deployment),
        kv_bytes_per_token=kv_bytes_per_token(deployment),
        kv_capacity_tokens=int(kv_capacity_tokens(deployment)),
        max_concurrency=concurrency,
        fits=workload.batch <= concurrency,
        ttft_s=float(prefill),
        decode_step_s=float(step.total),
        interference_s=float(wait),
        tpot_s=float(tpot),
        e2e_s=float(e2e),
        throughput_tok_s=float(deployment.data_parallel * workload.batch * workload.output / e2e),
        bound=str(step.bound),
    )
