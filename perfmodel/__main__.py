"""The command line: `perfmodel estimate`, also `python -m perfmodel estimate`."""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from perfmodel import data
from perfmodel.deployment import IDEAL, Deployment, Workload
from perfmodel.format import fmt
from perfmodel.model import Model
from perfmodel.served import Estimate, estimate

PRECISIONS = {"bf16": 2, "fp8": 1, "int8": 1}

DESCRIPTION = """\
Estimate one deployment under one workload: identical requests, --batch of them in flight on each replica,
a new one for each that ends."""

EPILOG = """\
fields of --json (seconds, bytes, tokens; of one replica unless it says otherwise):
  parameters, active_parameters   of the model; active: those that one token meets
  weight_bytes_per_gpu            weights on each accelerator
  kv_bytes_per_token              KV cache of a token, one copy over all accelerators; replicas not counted
  kv_capacity_tokens              KV cache beside weights and activations, in whole blocks of 16 tokens
  max_concurrency                 whole requests of prompt + output tokens that the cache holds at once
  fits                            whether --batch requests fit; the times below assume that they do
  ttft_s                          time to first token: one prefill with no queue in front of it
  decode_step_s, interference_s   the two parts of tpot_s: my decode step, and other requests' prefills
  tpot_s                          mean time of an output token, the first left out
  e2e_s                           ttft_s + (output - 1) x tpot_s
  throughput_tok_s                output tokens a second of the whole deployment, all replicas
  bound                           largest share of the decode step: memory, compute, communication, overhead"""


class Parser(argparse.ArgumentParser):
    """Errors in one line, exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"perfmodel: {message}\n")


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number above 0")
    return value


def parser() -> Parser:
    """The argument parser."""
    top = Parser(prog="perfmodel", description="How fast a large language model can be served.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    add = commands.add_parser(
        "estimate",
        help="time, throughput and memory of one deployment",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    models, accelerators = ", ".join(data.names("model")), ", ".join(data.names("accelerator"))
    add.add_argument("--model", required=True, help=f"path of a config.json, or one of {models}")
    add.add_argument("--accelerator", required=True, help=f"one of {accelerators}")
    add.add_argument("--tp", type=count, default=1, help="accelerators that share each layer (default 1)")
    add.add_argument("--dp", type=count, default=1, help="replicas (default 1)")
    add.add_argument("--prompt", type=count, required=True, help="prompt tokens of a request")
    add.add_argument("--output", type=count, required=True, help="output tokens of a request, at least 2")
    add.add_argument("--batch", type=count, default=1, help="requests in flight on each replica (default 1)")
    add.add_argument("--weights", choices=PRECISIONS, default="bf16", help="all weights, and the arithmetic")
    add.add_argument("--kv", choices=("bf16", "fp8"), default="bf16", help="KV cache (default bf16)")
    add.add_argument("--memory-utilization", type=float, default=0.9, help="share of memory to use (default 0.9)")
    add.add_argument(
        "--ideal", action="store_true", help="efficiencies 1; no overhead, no communication, no interference"
    )
    add.add_argument("--json", action="store_true", help="print one JSON object")
    return top


def read_model(name: str) -> Model:
    """A shipped model by name, or a config.json by path."""
    if name not in data.names("model") and (Path(name).exists() or Path(name).name != name or name.endswith(".json")):
        return Model.from_hf_config(name)
    return data.model(name)


def run(args: argparse.Namespace) -> str:
    """Carry out `estimate`; returns the text to print."""
    accelerator = data.accelerator(args.accelerator)
    deployment = Deployment(
        model=read_model(args.model),
        accelerator=accelerator,
        link=accelerator.link,
        tensor_parallel=args.tp,
        data_parallel=args.dp,
        weight_bytes=PRECISIONS[args.weights],
        kv_bytes=PRECISIONS[args.kv],
        memory_utilization=args.memory_utilization,
        compute=args.weights,
        constants=data.constants(),
    )
    if args.ideal:
        deployment = replace(deployment, link=None, constants=IDEAL)
    workload = Workload(prompt=args.prompt, output=args.output, batch=args.batch)
    result = estimate(deployment, workload, interference=not args.ideal)
    if args.json:
        return json.dumps(asdict(result), allow_nan=False)
    return table(deployment, workload, result, args.ideal)


def table(deployment: Deployment, workload: Workload, result: Estimate, ideal: bool) -> str:
    """The estimate for a person."""
    gpus = deployment.tensor_parallel * deployment.data_parallel
    usable = deployment.accelerator.memory_capacity * deployment.memory_utilization
    weights = f"{fmt(result.weight_bytes_per_gpu, 'B')} of {fmt(usable, 'B')} usable"
    if not result.kv_capacity_tokens:
        room = "none: the model does not fit"
    else:
        room = f"{result.kv_capacity_tokens:,} tokens, or {result.max_concurrency:,} requests of {workload.total:,}"
    verdict = "" if result.fits else f"  ! {workload.batch:,} in flight do not fit; the times assume that they do"
    waiting = result.interference_s
    interference = f"; {fmt(waiting, 's')} of it waiting for other prefills" if waiting else ""
    size = f"{fmt(result.parameters, digits=3, prefix='billion')} parameters"
    if result.active_parameters != result.parameters:
        size += f", {fmt(result.active_parameters, digits=3, prefix='billion')} of them active in a token"
    rows = [
        ("model", f"{deployment.model.name}, {size}"),
        ("machine", f"{gpus} x {deployment.accelerator.name}, TP {deployment.tensor_parallel}"),
        ("mode", "ideal: the roofline alone" if ideal else "served: with efficiencies, messages, interference"),
        ("requests", f"{workload.batch:,} in flight, {workload.prompt:,} tokens in, {workload.output:,} out"),
        ("", ""),
        ("weights a GPU", weights),
        ("KV of a token", fmt(result.kv_bytes_per_token, "B")),
        ("KV cache", room + verdict),
        ("", ""),
        ("TTFT", f"{fmt(result.ttft_s, 's')}  one prefill, no queue"),
        ("TPOT", f"{fmt(result.tpot_s, 's')}{interference}"),
        ("end to end", fmt(result.e2e_s, "s")),
        ("throughput", f"{fmt(result.throughput_tok_s, 'tok/s')}, all replicas"),
        ("decode bound by", result.bound),
    ]
    return "\n".join(f"{name:<16}{text}".rstrip() for name, text in rows)


def main(argv: list[str] | None = None) -> int:
    """Entry point. Bad input is one line on stderr and exit status 2."""
    top = parser()
    try:
        print(run(top.parse_args(argv)))
    except (ValueError, OSError, OverflowError) as error:
        top.error(" ".join(str(error).split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
