"""`perfmodel simulate`: serve the requests of a trace, or drawn ones, one by one."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from perfmodel import data
from perfmodel.deployment import Deployment
from perfmodel.format import fmt
from perfmodel.options import DEFAULTS, OPTIONS, add_options, as_option, name, refuse_contradictions
from perfmodel.question import finders, read_deployment
from perfmodel.rows import rows_to
from perfmodel.simulate.cluster import simulate
from perfmodel.simulate.options import FLAGS, GROUPS, OWN, read_pool, read_requests, read_settings
from perfmodel.simulate.results import Results
from perfmodel.terminal import Progress, note, one_line

SUMMARY = "requests of a trace, or drawn ones, served one by one"

DESCRIPTION = """\
Serve requests with the scheduler of an engine, step by step: from a trace, from the published statistics of one, or
drawn around --prompt and --output. Times of the steps are those of `estimate`."""

EPILOG = """\
fields of --json (seconds, tokens; null where no request has such a time):
  requests, finished, refused     refused: can never run, as one that is larger than the cache
  preemptions, steps              of all replicas
  duration_s                      from the first arrival to the last token
  ttft_s, tpot_s, e2e_s, itl_s    mean, p50, p90, p99 of: time to first token, from the arrival on, with its queue; mean
                                  time of a token after the first, of a request; arrival to last token; gaps between
                                  tokens
  throughput_tok_s, request_rate  output tokens, and requests finished, a second of the duration
  goodput_req_s, compliant_share  requests that kept both limits, a second; and as a share of all
  prefix_hit_blocks               share of the full blocks of the prompts that the prefix cache supplied
  prefix_hit_tokens               the same of the prompt tokens
  kv_occupancy_mean               mean share of the cache that requests hold; null if it is unlimited
  most_running, wall_s            requests at once on a replica; seconds that the simulation took
columns of --out: a row a request, in the order of the arrivals; a time is empty (nan) where there is none"""


COLUMNS = ("arrival", "prompt", "output", "scheduled", "first_token", "finish", "preemptions", "cached", "replica")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `simulate`."""
    add_options(parser, groups={title: OPTIONS[title] for title in ("deployment", "precision")} | GROUPS)
    for flag, (field, meaning) in FLAGS.items():
        parser.add_argument(flag, dest=field, action="store_true", default=argparse.SUPPRESS, help=meaning)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=name, metavar="FILE", help="the requests' times, as FILE.csv or FILE.parquet")
    parser.add_argument("--progress", action="store_true", help="tell how far it is on stderr, terminal or not")


def run(args: argparse.Namespace) -> str:
    """Carry out `simulate`; returns the text to print."""
    try:
        return _run(args)
    except ValueError as error:
        raise ValueError(as_option(str(error), GROUPS)) from None


def _run(args: argparse.Namespace) -> str:
    refuse_contradictions(vars(args))
    told, given = vars(args), DEFAULTS | OWN | vars(args)
    catalogue = data.Catalogue() if args.data is None else data.load(args.data)
    found = {field: find(given[field]) for field, find in finders(catalogue).items() if given[field] is not None}
    deployment = read_deployment(given | found)
    settings = read_settings(given, told, catalogue)
    pool = read_pool(given, deployment, settings, catalogue)
    requests, skipped = read_requests(given, told)
    if skipped:
        note(f"{skipped:,} bad rows of {args.trace} are left out")
    with Progress(len(requests), args.progress, "requests") as progress:
        results = simulate(
            requests, deployment, settings, router=given["router"], decode_pool=pool, progress=progress.add
        )
    if args.out is not None:
        with rows_to(args.out) as sink:
            sink.add({column: getattr(results, column) for column in COLUMNS}, (len(requests),))
    summary = results.summary(given["ttft"], given["tpot"])
    return json.dumps(summary, allow_nan=False) if args.json else table(deployment, given, results, summary)


def table(deployment: Deployment, given: Mapping[str, Any], results: Results, summary: Mapping[str, Any]) -> str:
    """The results for a person."""
    d, unlimited = deployment, summary["kv_occupancy_mean"] is None
    machine = f"{d.accelerators} x {one_line(d.accelerator.name)}, TP {d.tensor_parallel}, DP {d.data_parallel}"
    if given["decode_replicas"]:
        machine += f", and {given['decode_replicas']} replicas that decode"
    served = f"{summary['finished']:,} finished in {fmt(summary['duration_s'], 's')}"
    if results.refused:
        served += f", {summary['refused']:,} refused; the first: {next(iter(results.refused.values()))}"
    cache = (
        "unlimited"
        if unlimited
        else f"{results.kv_blocks:,.0f} blocks, {summary['kv_occupancy_mean']:.1%} held on average"
    )
    hits = f"{summary['prefix_hit_tokens']:.1%} of prompt tokens"
    rows = [
        ("model", one_line(d.model.name)),
        ("machine", machine),
        ("policy", f"{given['policy']}, at most {summary['most_running']:,} requests at once on a replica"),
        ("requests", served),
        ("", ""),
        ("", "".join(f"{title:>11}" for title in ("mean", "p50", "p90", "p99"))),
    ]
    for field, title in ("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("itl_s", "token gap"), ("e2e_s", "end to end"):
        times = summary[field].values()
        rows.append((title, "".join(f"{'-' if time is None else fmt(time, 's'):>11}" for time in times)))
    rows += [
        ("", ""),
        ("throughput", f"{fmt(summary['throughput_tok_s'], 'tok/s')}, {fmt(summary['request_rate'], 'req/s')}"),
        ("KV cache", cache),
        ("prefix hits", hits),
        ("preemptions", f"{summary['preemptions']:,}"),
    ]
    if given["ttft"] is not None or given["tpot"] is not None:
        goodput = fmt(summary["goodput_req_s"], "req/s")
        rows.append(("goodput", f"{goodput}: {summary['compliant_share']:.1%} of the requests kept the limits"))
    rows.append(("simulated in", f"{fmt(summary['wall_s'], 's')}, {summary['steps']:,} steps"))
    return "\n".join(f"{title:<14}{text}".rstrip() for title, text in rows)
