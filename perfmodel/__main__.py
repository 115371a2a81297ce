"""The command line: `perfmodel estimate`, also `python -m perfmodel estimate`, and what other commands share."""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TextIO

from perfmodel import data
from perfmodel.deployment import Deployment, Workload
from perfmodel.format import THIN, fmt
from perfmodel.model import Model
from perfmodel.quantity import shown
from perfmodel.served import Estimate, estimate

# A command is a module with SUMMARY, DESCRIPTION, EPILOG, `add_arguments(parser)` and `run(args)`, which returns text.
COMMANDS = {"estimate": "perfmodel.__main__"}
PRECISIONS = {"bf16": 2, "fp8": 1, "int8": 1}  # bytes of an element
SUMMARY = "time, throughput and memory of one deployment"

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


def one_line(text: str) -> str:
    """The text without newlines and terminal escapes, and without the middle of a very long one."""
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in " ".join(text.split()))
    return line if len(line) <= 1000 else f"{line[:600]} ... {line[-300:]}"


def plain(text: str) -> str:
    """The text in ASCII, for a stream that knows no more: 10¹² becomes 10^12."""
    powers = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
    text = re.sub(f"10(?=[{powers}])", "10^", text)
    text = text.translate(str.maketrans(f"{powers}{THIN}µ×", "-0123456789 ux"))
    return text.encode("ascii", "backslashreplace").decode()


def put(stream: TextIO | None, text: str) -> None:
    """Print now, while a failure can still be told: OSError."""
    if stream is None:
        raise OSError("it is closed")
    if not (stream.encoding or "utf-8").lower().startswith("utf"):
        text = plain(text)
    try:
        print(text, file=stream, flush=True)
    except OSError:  # what is left over must go somewhere, or Python complains of it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def fail(message: str, status: int = 2) -> NoReturn:
    """End with one line on stderr. Status 2 is bad input; 1 a machine that cannot."""
    with suppress(OSError):
        put(sys.stderr, f"perfmodel: {one_line(message)}")
    sys.exit(status)


def show(text: str) -> None:
    """Print a result. A reader that left early is told nothing, and the shell what it expects: 128 + SIGPIPE."""
    try:
        put(sys.stdout, text)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(f"cannot write to stdout: {error.strerror or error}", status=1)


class Parser(argparse.ArgumentParser):
    """Errors in one line; help on any stream; no option abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        fail(message)

    def print_help(self, file: Any = None) -> None:
        show(self.format_help().rstrip())


def count(text: str) -> int:
    """A whole number above 0. `int` reads far more, as "0_1" and "+4"; floats hold 15 digits."""
    if not re.fullmatch("0*[1-9][0-9]{0,14}", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} must be a whole number above 0, of at most 15 digits")
    return int(text.lstrip("0"))


def number(text: str) -> float:
    """A number with or without point and exponent; its range is checked where it is used."""
    if not re.fullmatch(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} must be a number such as 0.9")
    return float(text)


def value(field: str, read: Callable[[str], Any], meaning: str, shape: str = "N", **default: Any) -> dict[str, Any]:
    """What `add_argument` is told of an option that takes a value; one without a default must be given."""
    meaning += " (default %(default)s)" if default else ""
    return {"dest": field, "type": read, "metavar": shape, "help": meaning, "required": not default} | default


def precision(field: str, meaning: str, *known: str) -> dict[str, Any]:
    """What `add_argument` is told of an option that names a precision."""
    return {"dest": field, "choices": known, "help": f"{meaning} (default %(default)s)", "default": "bf16"}


# An option is a line: it sets the field of `Deployment` or `Workload` that it names.
DEPLOYMENT = {
    "--tp": value("tensor_parallel", count, "accelerators that share each layer", default=1),
    "--dp": value("data_parallel", count, "replicas", default=1),
    "--weights": precision("weight_bytes", "all weights, and the arithmetic", "bf16", "fp8", "int8"),
    "--kv": precision("kv_bytes", "KV cache", "bf16", "fp8"),
    "--memory-utilization": value("memory_utilization", number, "share of memory to use", "SHARE", default=0.9),
}
WORKLOAD = {
    "--prompt": value("prompt", count, "prompt tokens of a request"),
    "--output": value("output", count, "output tokens of a request, at least 2"),
    "--batch": value("batch", count, "requests in flight on each replica", default=1),
}


def fields(args: argparse.Namespace, options: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a table's options were given, by field; a precision in bytes."""
    given = {option["dest"]: getattr(args, option["dest"]) for option in options.values()}
    return {field: PRECISIONS.get(value, value) for field, value in given.items()}


def read_model(name: str) -> Model:
    """A shipped model by name, or a config.json by path."""
    if not name:
        raise ValueError("argument --model: must not be empty")
    if name not in data.names("model") and (Path(name).exists() or Path(name).name != name or name.endswith(".json")):
        return Model.from_hf_config(name)
    return data.model(name)


def read_deployment(args: argparse.Namespace) -> Deployment:
    """The deployment that the options describe."""
    model, accelerator = read_model(args.model), data.accelerator(args.accelerator)
    deployment = Deployment(model, accelerator, compute=args.weight_bytes, **fields(args, DEPLOYMENT))
    return deployment if args.ideal else replace(deployment, link=accelerator.link, constants=data.constants())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `estimate`."""
    models, accelerators = ", ".join(data.names("model")), ", ".join(data.names("accelerator"))
    parser.add_argument("--model", required=True, help=f"path of a config.json, or one of {models}")
    parser.add_argument("--accelerator", required=True, help=f"one of {accelerators}")
    for option, settings in (DEPLOYMENT | WORKLOAD).items():
        parser.add_argument(option, **settings)
    parser.add_argument("--ideal", action="store_true", help="efficiencies 1; no overhead, communication, interference")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> str:
    """Carry out `estimate`; returns the text to print."""
    deployment, workload = read_deployment(args), Workload(**fields(args, WORKLOAD))
    result = estimate(deployment, workload, interference=not args.ideal)
    return json.dumps(asdict(result), allow_nan=False) if args.json else table(deployment, workload, result, args.ideal)


def table(deployment: Deployment, workload: Workload, result: Estimate, ideal: bool) -> str:
    """The estimate for a person."""
    gpus = deployment.tensor_parallel * deployment.data_parallel
    usable = deployment.accelerator.memory_capacity * deployment.memory_utilization
    weights = f"{fmt(result.weight_bytes_per_gpu, 'B')} of {fmt(usable, 'B')} usable"
    room = f"{result.kv_capacity_tokens:,} tokens, or {result.max_concurrency:,} requests of {workload.total:,}"
    if not result.kv_capacity_tokens:
        room = "none: the model does not fit"
    verdict = "" if result.fits else f"  ! {workload.batch:,} in flight do not fit; the times assume that they do"
    waiting = result.interference_s
    interference = f"; {fmt(waiting, 's')} of it waiting for other prefills" if waiting else ""
    size = f"{fmt(result.parameters, digits=3, prefix='billion')} parameters"
    if result.active_parameters != result.parameters:
        size += f", {fmt(result.active_parameters, digits=3, prefix='billion')} of them active in a token"
    rows = [
        ("model", f"{one_line(deployment.model.name)}, {size}"),
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


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(prog="perfmodel", description="How fast a large language model can be served.")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for name, module in COMMANDS.items():
        here = import_module(module)
        command = commands.add_parser(name, help=here.SUMMARY, description=here.DESCRIPTION, epilog=here.EPILOG)
        here.add_arguments(command)
        command.set_defaults(run=here.run)
    return top


def main(argv: list[str] | None = None) -> int:
    """Entry point. Bad input is one line on stderr and exit status 2."""
    words = sys.argv[1:] if argv is None else argv
    try:
        for option, times in Counter(word.partition("=")[0] for word in words if word.startswith("--")).items():
            if times > 1:
                fail(f"argument {option}: given {times} times")
        args = parser().parse_args(words)
        show(args.run(args))
    except KeyboardInterrupt:
        return 130  # what a shell expects: 128 + SIGINT
    except MemoryError:
        fail("not enough memory", status=1)
    except (ValueError, OSError, ArithmeticError) as error:
        fail(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
