"""The command line: `perfmodel estimate` and its kin, also `python -m perfmodel`."""

import argparse
import json
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import numpy as np

from perfmodel import data
from perfmodel._interrupt import hand_over
from perfmodel._ops import Value
from perfmodel.format import fmt
from perfmodel.options import DEFAULTS, add_options, as_option, refuse_contradictions
from perfmodel.prefix_cache import hit_tokens
from perfmodel.question import Question, answer, finders, is_config, is_quantized, question
from perfmodel.terminal import fail, one_line, show, stoppable

# A command is a module with SUMMARY, DESCRIPTION, EPILOG, `add_arguments(parser)` and `run(args)`, which returns text
# or, if it has shown all itself, None.
COMMANDS = {"estimate": "perfmodel.__main__", "sweep": "perfmodel.sweep", "simulate": "perfmodel.simulate.command"}
STATUSES = """\
exit status: 0 done; 1 the machine cannot (a full disk, too little memory, a library that is not installed);
2 bad input, told in one line; 130 stopped by Ctrl-C, 129 and 143 by a signal to hang up or end; 141 the reader left"""
SUMMARY = "time, throughput and memory of one deployment"

DESCRIPTION = """\
Estimate one deployment under one workload: identical requests, --batch of them in flight on each replica,
a new one for each that ends."""

EPILOG = """\
fields of --json (seconds, bytes, tokens; of one replica unless it says otherwise; null where it was not asked for):
  parameters, active_parameters   of the model; active: those that one token meets
  weight_bytes_per_gpu            weights on each accelerator
  kv_bytes_per_token              KV cache of a token, one copy over all accelerators; replicas not counted
  kv_bytes_per_gpu                KV cache of --batch finished requests on each accelerator
  kv_budget_bytes                 room for it beside weights and activations; below 0 so many bytes are lacking
  kv_capacity_tokens              KV cache of a replica, in whole blocks of 16 tokens
  max_concurrency                 whole requests of prompt + output tokens that the cache holds at once
  fits                            whether --batch requests fit; the times below assume that they do
  ttft_s                          time to first token: one prefill with no queue in front of it
  decode_step_s, interference_s   the two parts of tpot_s: my decode step, and other requests' prefills
  tpot_s                          mean time of an output token, the first left out
  worst_gap_s                     longest wait between two outputs, while another prompt is prefilled
  e2e_s                           ttft_s + (output - 1) x tpot_s
  throughput_tok_s                output tokens a second of the whole deployment, all replicas
  throughput_tok_s_per_gpu        the same over accelerators
  accelerators                    of the whole deployment
  bound                           largest share of the decode step: memory, compute, communication, overhead
  binding                         the limit that is used up most: ttft, tpot or memory
  limits_met                      whether ttft_s and tpot_s keep their limits and the requests fit
  dollars_per_million_input_tokens, dollars_per_million_output_tokens
  joules_per_input_token, joules_per_output_token
                                  input tokens pay for prefills, output tokens for decode steps; no idle time"""

WHOLE = ("kv_capacity_tokens", "max_concurrency")
DEGREES = {
    "TP": "tensor_parallel",
    "PP": "pipeline_parallel",
    "DP": "data_parallel",
    "CP": "context_parallel",
    "DCP": "decode_context_parallel",
}
PRECISION = ("weights", "experts", "tables", "kv", "activations")


class Parser(argparse.ArgumentParser):
    """Errors in one line; help on any stream; no option abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        fail(message)

    def print_help(self, file: Any = None) -> None:
        show(self.format_help().rstrip())


class Version(argparse.Action):
    """As argparse's own, which does not see that nothing could be printed."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        show(_version())
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `estimate`."""
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> str:
    """Carry out `estimate`; returns the text to print."""
    refuse_contradictions(vars(args))
    given = DEFAULTS | vars(args)
    catalogue = data.Catalogue() if args.data is None else data.load(args.data)
    found = {field: find(given[field]) for field, find in finders(catalogue).items() if given[field] is not None}
    asked = question(given | found)
    answers = numbers(answer(asked))
    if args.json:
        return json.dumps(answers, allow_nan=False)
    quantized = is_config(args.model, catalogue) and is_quantized(args.model)
    remark = "\nnote: the config is of quantised weights; bytes follow --weights" if quantized else ""
    return table(given, asked, answers) + remark


def numbers(answers: Mapping[str, Value]) -> dict[str, Any]:
    """Answers of one point as Python's own numbers and words, counts as whole ones."""

    def own(name: str, value: Value) -> Any:
        value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
        return int(value) if name in WHOLE else value

    return {name: own(name, value) for name, value in answers.items()}


def table(given: Mapping[str, Any], asked: Question, answers: Mapping[str, Any]) -> str:
    """The answers for a person."""
    rows = [*_question_rows(given, asked, answers), ("", ""), *_memory_rows(asked, answers), ("", "")]
    rows += _time_rows(asked, answers)
    return "\n".join(f"{name:<16}{text}".rstrip() for name, text in rows)


def _question_rows(given: Mapping[str, Any], asked: Question, answers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked."""
    d, w, engine = asked.deployment, asked.workload, asked.engine
    size = f"{fmt(answers['parameters'], digits=3, prefix='billion')} parameters"
    if answers["active_parameters"] != answers["parameters"]:
        size += f", {fmt(answers['active_parameters'], digits=3, prefix='billion')} of them active in a token"
    degrees = [f"{short} {getattr(d, field)}" for short, field in DEGREES.items() if getattr(d, field) != 1]
    machine = ", ".join([f"{d.accelerators} x {one_line(d.accelerator.name)}", *degrees, *d.expert_parallel * ["EP"]])
    if d.accelerators > 1:
        machine += f", {one_line(d.link.name)}" if d.link else ", messages free"
    serving = f"prefill {engine.prefill}"
    if engine.chunk:
        serving += f" in chunks of {engine.chunk:,}"
    if engine.shared_prefix:
        serving += f", {hit_tokens(w.prompt, engine.shared_prefix):,.0f} tokens of a prompt cached, in whole blocks"
    if engine.draft_tokens:
        serving += f", {engine.draft_tokens} tokens drafted at {fmt(float(engine.draft_cost), digits=2)} of a step each"
    losses = f"with the efficiencies and overheads called {given['constants']}"
    mode = "ideal: no losses" if given["ideal"] else f"served: {losses}"
    precision = [f"{part} {given[part]}" for part in PRECISION if given[part]]
    return [
        ("model", f"{one_line(d.model.name)}, {size}"),
        ("machine", machine),
        ("precision", ", ".join([*precision, f"arithmetic {d.compute}"])),
        ("mode", mode),
        ("engine", serving),
        ("requests", f"{w.batch:,} in flight, {w.prompt:,} tokens in, {w.output:,} out"),
    ]


def _memory_rows(asked: Question, answers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What fits."""
    d, w, lacking = asked.deployment, asked.workload, -answers["kv_budget_bytes"]
    usable = d.accelerator.memory_capacity * d.memory_utilization
    room = f"{answers['kv_capacity_tokens']:,} tokens, or {answers['max_concurrency']:,} requests of {w.total:,}"
    if not answers["kv_capacity_tokens"]:
        room = "none: the model does not fit"
        room += f", each accelerator lacks {fmt(lacking, 'B')}" if lacking > 0 else " with one block of cache"
    verdict = "" if answers["fits"] else f"  ! {w.batch:,} in flight do not fit; the times assume that they do"
    return [
        ("weights a GPU", f"{fmt(answers['weight_bytes_per_gpu'], 'B')} of {fmt(usable, 'B')} usable"),
        ("KV of a token", fmt(answers["kv_bytes_per_token"], "B")),
        ("KV cache", room + verdict),
    ]


def _time_rows(asked: Question, answers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How long it takes, and what it costs."""
    d, waiting, limits = asked.deployment, answers["interference_s"], asked.limits
    interference = f"; {fmt(waiting, 's')} of it waiting for other prefills" if waiting else ""
    each = f"; {fmt(answers['throughput_tok_s_per_gpu'], 'tok/s')} an accelerator" if d.accelerators > 1 else ""
    rows = [
        ("TTFT", f"{fmt(answers['ttft_s'], 's')}  one prefill, no queue"),
        ("TPOT", f"{fmt(answers['tpot_s'], 's')}{interference}"),
        ("longest gap", fmt(answers["worst_gap_s"], "s")),
        ("end to end", fmt(answers["e2e_s"], "s")),
        ("throughput", f"{fmt(answers['throughput_tok_s'], 'tok/s')}{', all replicas' * (d.data_parallel > 1)}{each}"),
        ("decode bound by", answers["bound"]),
    ]
    if limits:
        rows += [("limits", f"{'met' if answers['limits_met'] else 'not met'}; {answers['binding']} is used up most")]
    if asked.price is not None:
        paid = [fmt(answers[f"dollars_per_million_{end}_tokens"], "$", digits=3) for end in ("input", "output")]
        rows += [("cost", f"{paid[0]} a million tokens in, {paid[1]} a million out")]
    if asked.power is not None:
        used = [fmt(answers[f"joules_per_{end}_token"], "J") for end in ("input", "output")]
        rows += [("energy", f"{used[0]} a token in, {used[1]} a token out, at {fmt(asked.power, 'W')} an accelerator")]
    return rows


def _version() -> str:
    try:
        return version("perfmodel")
    except PackageNotFoundError:  # it runs from its source all the same
        return "not installed"


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(prog="perfmodel", description="How fast a large language model can be served.", epilog=STATUSES)
    top.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
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
        hand_over()
        for option, times in Counter(word.partition("=")[0] for word in words if word.startswith("--")).items():
            if times > 1:
                fail(f"argument {option}: given {times} times")
        args = parser().parse_args(words)
        # An ArithmeticError, instead of a warning.
        with stoppable(), np.errstate(over="raise", divide="raise", invalid="raise"):
            text = args.run(args)
        if text is not None:
            show(text)
    except KeyboardInterrupt as stopped:
        return 128 + (stopped.args[0] if stopped.args else signal.SIGINT)  # what a shell expects
    except MemoryError:
        fail("not enough memory", status=1)
    except (ValueError, OSError, ArithmeticError) as error:
        fail(as_option(str(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
