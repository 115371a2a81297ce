"""perfmodel: how fast a large language model can be served, in formulas.

Functions take floats, NumPy arrays or SymPy symbols, in SI base units (byte, second, FLOP/s).
A multiply-add is 2 FLOPs; rates are dense. Importing this package imports NumPy alone.
"""

from perfmodel.batching import prefill_interference
from perfmodel.communication import (
    all_gather,
    all_reduce,
    all_reduce_one_shot,
    all_reduce_ring,
    all_reduce_tree,
    all_to_all,
    copies,
    expert_parallel_time,
    overlapped,
    pass_kv_time,
    pass_q_time,
    pipeline_time,
    reduce_scatter,
    send,
    tensor_parallel_time,
)
from perfmodel.counts import (
    Parameters,
    Parts,
    active_parameters,
    decode_flops,
    linear_parameters,
    matmul_parameters,
    parameters,
    prefill_flops,
    total_parameters,
    touched_experts,
    touched_parameters,
)
from perfmodel.crossovers import (
    attention_equals_linear,
    kv_equals_weights,
    totals_ridge_batch,
    totals_ridge_context,
    totals_ridge_prompt,
)
from perfmodel.deployment import IDEAL, Constants, Deployment, Workload
from perfmodel.hardware import Accelerator, Link
from perfmodel.kvcache import (
    kv_blocks,
    kv_budget,
    kv_bytes_of_request,
    kv_bytes_per_token,
    kv_bytes_per_token_per_gpu,
    kv_capacity_tokens,
    max_concurrency,
    peak_activation_bytes,
    weight_bytes_per_gpu,
)
from perfmodel.letters import notation
from perfmodel.model import Indexer, Latent, Model, Window
from perfmodel.quantity import argument_symbols, symbols
from perfmodel.roofline import (
    StepTime,
    decode_time,
    prefill_time,
    ridge_point,
    ridge_tokens,
)
from perfmodel.served import Estimate, end_to_end, estimate
