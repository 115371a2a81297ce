"""`perfmodel sweep`: the estimate of every combination of lists and ranges, as a table in a file."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from perfmodel import data
from perfmodel._ops import Value
from perfmodel.deployment import Workload
from perfmodel.format import fmt
from perfmodel.kvcache import kv_budget
from perfmodel.options import (
    DEFAULTS,
    OPTIONS,
    Option,
    add_options,
    as_option,
    count,
    name,
    natural,
    refuse_contradictions,
)
from perfmodel.quantity import shown
from perfmodel.question import answer, finders, prompts_of, question
from perfmodel.rows import Sink, rows_to
from perfmodel.terminal import Progress, note

SUMMARY = "the same of all combinations of lists and ranges, as CSV or Parquet"

DESCRIPTION = """\
Estimate every combination. Each option that takes a value takes a list, with commas between; whole numbers also take
ranges, both ends included: 1:8 is 1,2,3,4,5,6,7,8, 16:64:16 is 16,32,48,64, and 1:64:x4 is 1,4,16,64.
A value named twice counts once. Combinations that cannot be are left out, counted, and the first is told."""

EPILOG = """\
columns: model, accelerator, each option that was given, batch, prompt, output; then these fields of `estimate --json`:
  ttft_s, tpot_s, e2e_s, worst_gap_s, throughput_tok_s, throughput_tok_s_per_gpu, max_concurrency, fits,
  kv_bytes_per_gpu, bound; binding and limits_met with a limit; dollars_... with --price, joules_... with --power
seconds and bytes; 12 digits in CSV. A file appears when it is complete; one of its name is replaced then."""

MOST_VALUES = 1_000_000  # of an option
MOST_POINTS = 1_000_000_000
BLOCK = 2**17  # points that are estimated at once: their arrays stay in the processor's cache, more would be no faster
GRID = ("batch", "prompt", "output")  # evaluated as arrays; the rest are categories
RESULTS = (
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "worst_gap_s",
    "throughput_tok_s",
    "throughput_tok_s_per_gpu",
    "max_concurrency",
    "fits",
    "kv_bytes_per_gpu",
    "bound",
)


def listed(option: Option) -> Callable[[str], tuple[Any, ...]]:
    """A reader of the option's values with commas between, in the order given."""

    def read(text: str) -> tuple[Any, ...]:
        found: dict[Any, None] = {}
        for part in text.split(","):
            try:
                found |= dict.fromkeys(span(part, option.read))
            except argparse.ArgumentTypeError as error:
                whole = "" if str(error).startswith(shown(text)) else f"{shown(text)}: "
                raise argparse.ArgumentTypeError(f"{whole}{error}") from None
            if len(found) > MOST_VALUES:
                raise argparse.ArgumentTypeError(f"{shown(text)} holds {len(found):,} values, at most {MOST_VALUES:,}")
        return tuple(found)

    return read


def span(text: str, read: Callable[[str], Any]) -> Any:
    """The values of one part of a list: a range of whole numbers, or one value."""
    first, *rest = text.split(":")
    if not rest or read not in (count, natural):
        return (read(text),)
    if len(rest) > 2:
        raise argparse.ArgumentTypeError(f"{shown(text)} must be FIRST:LAST, FIRST:LAST:STEP or FIRST:LAST:xFACTOR")
    start, last, step = read(first), read(rest[0]), rest[1] if rest[1:] else "1"
    if last < start:
        raise argparse.ArgumentTypeError(f"{shown(text)} ends before it starts")
    if step.startswith("x"):
        factor = count(step[1:])
        if factor == 1 or not start:
            raise argparse.ArgumentTypeError(f"{shown(text)} never ends: it multiplies by 1, or 0 by {factor}")
        return [start * factor**n for n in range(51) if start * factor**n <= last]  # 2**50 has 16 digits
    values = range(start, last + 1, count(step))
    if len(values) > MOST_VALUES:
        raise argparse.ArgumentTypeError(f"{shown(text)} holds {len(values):,} values, at most {MOST_VALUES:,}")
    return values


def cut(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Cut a grid in C order: blocks of at most `most` points, one after the other, as slices of the axes."""
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= most:
        inner *= shape[axis]
        axis -= 1
    step, rest = max(most // inner, 1), (slice(None),) * (len(shape) - axis - 1)
    for outer in product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*(slice(place, place + 1) for place in outer), slice(start, start + step), *rest)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `sweep`."""
    add_options(parser, listed)
    parser.add_argument("--out", type=name, metavar="FILE", help="FILE.csv or FILE.parquet (default: CSV on stdout)")
    parser.add_argument("--strict", action="store_true", help="stop at a combination that cannot be")
    parser.add_argument("--progress", action="store_true", help="tell how far it is on stderr, terminal or not")


def run(args: argparse.Namespace) -> None:
    """Carry out `sweep`."""
    refuse_contradictions(vars(args))
    catalogue = data.Catalogue() if args.data is None else data.load(args.data)
    fields = [option.field for group in OPTIONS.values() for option in group.values()]
    lists = {field: getattr(args, field, (DEFAULTS[field],)) for field in fields}
    points = prod(map(len, lists.values()))
    if points > MOST_POINTS:
        raise ValueError(f"the grid has {points:,} points; at most {MOST_POINTS:,}")
    things = {
        field: {None: None} | {value: find(value) for value in lists[field] if value is not None}
        for field, find in finders(catalogue).items()
    }
    axes: dict[str, Any] = {field: np.array(lists.pop(field)) for field in GRID}
    Workload(**{field: int(min(axis)) for field, axis in axes.items()})  # refuses what no combination could mend
    flags = {field: vars(args).get(field, off) for field, off in DEFAULTS.items() if off is False}
    told = [field for field in [*lists, *flags] if hasattr(args, field)]

    size = prod(map(len, axes.values()))
    skipped, first = 0, ""
    with rows_to(args.out) as sink, Progress(points, args.progress) as progress:
        for values in product(*lists.values()):
            chosen = dict(zip(lists, values, strict=True))
            given = chosen | flags | {field: thing[chosen[field]] for field, thing in things.items()}
            kept, why = possible(given, axes)
            left_out = size - prod(map(len, kept.values()))
            if left_out:
                if args.strict or left_out == points:
                    raise ValueError(why)
                skipped, first = skipped + left_out, first or as_option(why)
                progress.add(left_out)
            if left_out < size:
                write(sink, {field: readable((chosen | flags)[field]) for field in told}, given, kept, progress)
        if skipped == points:
            raise ValueError(f"none of {skipped:,} combinations can be; the first: {first}")
    if skipped:
        note(f"{skipped:,} of {points:,} combinations are left out; the first: {first}")


def readable(value: Value) -> Value:
    """A value as UTF-8 can hold it: a path may have bytes that are none, which Python passes on as surrogates."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def possible(given: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The axes of the requests that can be under some options, and why the others cannot; some prompts, or all."""
    prompts = axes["prompt"]
    shortest, longest = prompts_of(given)
    can = (shortest <= prompts) & (prompts <= longest)
    one = {**given, **{field: axis[0] for field, axis in axes.items()}}
    why = refusal(one | {"prompt": prompts[can.argmax()]})
    if why:
        can[:] = False
    elif not can.all():
        why = refusal(one | {"prompt": prompts[can.argmin()]})
    return {**axes, "prompt": prompts[can]}, why


def refusal(given: Mapping[str, Any]) -> str:
    """Why a request under some options cannot be; nothing if it can."""
    try:
        budget = kv_budget(question(given).deployment)
    except ValueError as error:
        return str(error)
    if budget >= 0:
        return ""
    return f"{given['model'].name} does not fit: each {given['accelerator'].name} lacks {fmt(-budget, 'B')}"


def write(
    sink: Sink, inputs: dict[str, Value], given: dict[str, Any], axes: dict[str, Any], progress: Progress
) -> None:
    """The rows of one combination, a block at a time: so memory does not grow with their number."""
    for block in cut(tuple(map(len, axes.values())), BLOCK):
        grid = dict(
            zip(axes, np.ix_(*(axis[part] for axis, part in zip(axes.values(), block, strict=True))), strict=True)
        )
        found = answer(question(given | grid))
        results = {field: found[field] for field in columns(given)}
        for field, value in results.items():
            if np.asarray(value).dtype.kind == "f" and not np.all(np.isfinite(value)):
                raise ValueError(f"{field} is not finite: numbers are too large")
        results["max_concurrency"] = np.asarray(results["max_concurrency"]).astype("int64")
        shape = np.broadcast_shapes(*map(np.shape, grid.values()))
        sink.add({**inputs, **grid, **results}, shape)
        progress.add(prod(shape))


def columns(given: Mapping[str, Any]) -> list[str]:
    """The fields of `answer` that were asked for."""
    limited = given["ttft_limit_s"] is not None or given["tpot_limit_s"] is not None
    names = [*RESULTS, *(limited * ["binding", "limits_met"])]
    if given["dollars_per_gpu_hour"] is not None:
        names += ["dollars_per_million_input_tokens", "dollars_per_million_output_tokens"]
    if given["power_w"] is not None:
        names += ["joules_per_input_token", "joules_per_output_token"]
    return names
