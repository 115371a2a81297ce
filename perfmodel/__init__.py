"""perfmodel: how fast a large language model can be served, in formulas.

Functions take floats, NumPy arrays or SymPy symbols, in SI base units (byte, second, FLOP/s).
A multiply-add is 2 FLOPs; rates are dense. Importing this package imports NumPy alone.
"""

from perfmodel import _interrupt as _interrupt  # before NumPy
from perfmodel.batching import (
    chunked_prefill_time,
    mixed_time,
    multi_step_time,
    prefill_interference,
    request_rate,
    steady_step,
)
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
from perfmodel.disaggregation import (
    exposed_transfer_time,
    kv_transfer_time,
    pool_rate,
    prefill_per_decode,
    request_time,
    split_goodput,
    transfer_share,
)
from perfmodel.economics import (
    TokenCost,
    accelerator_seconds,
    dollars_per_token,
    joules_per_token,
)
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
from perfmodel.moe import (
    RankMemory,
    expected_imbalance,
    expert_bytes_read,
    load_imbalance,
    rank_memory,
    replicate,
    token_copies,
    visit_chances,
    visited_experts,
    zipf_popularity,
)
from perfmodel.paging import (
    blocks_of,
    contiguous_concurrency,
    contiguous_utilization,
    expected_waste,
    paged_utilization,
    wasted_tokens,
)
from perfmodel.prefix_cache import (
    conversation_hit_rate,
    group_hit_rate,
    hit_rate,
    hit_tokens,
    prefix_speedup,
    saved_prefill_time,
)
from perfmodel.quantity import argument_symbols, symbols
from perfmodel.quantization import (
    FORMATS,
    element_bytes,
    kv_capacity_gain,
    overtaking_tokens,
    weight_only_decode_time,
)
from perfmodel.queueing import (
    erlang_c,
    md1_capacity,
    md1_rate,
    md1_wait,
    md1_within,
    mmc_capacity,
    mmc_wait,
    mmc_within,
    utilization,
)
from perfmodel.roofline import (
    StepTime,
    decode_time,
    prefill_time,
    ridge_point,
    ridge_tokens,
)
from perfmodel.served import Engine, Estimate, Limits, end_to_end, estimate
from perfmodel.slo import (
    BatchLimits,
    attainment,
    batch_limits,
    full_memory_time,
    goodput,
    largest_batch,
    largest_chunk,
    largest_prompt,
    safe_chunk,
)
from perfmodel.speculative import (
    best_draft_length,
    break_even_batch,
    expected_tokens,
    free_batch,
    paying_context,
    relative_draft_cost,
    relative_verify_cost,
    speculative_speedup,
)
from perfmodel.static_batching import expected_longest, static_idle_share
from perfmodel.training import (
    TrainingMemory,
    activation_memory,
    training_flops,
    training_memory,
)
