"""Numbers as the reader sees them, the names they get, and the sentences that are asserted."""

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from perfmodel.course.prose import Said, claim, say
from perfmodel.format import PREFIXES, THIN, fmt


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0.0104, "s"), "10.4_ms"),
        ((3.35e12, "B/s"), "3.35_TB/s"),
        ((742e12, "FLOP/s"), "742_TFLOP/s"),
        ((327680, "B/token"), "328_kB/token"),
        ((0.01, "s"), "10.0_ms"),
        ((0.9996, "s"), "1.00_s"),  # rounding comes before the choice of the prefix
        ((999.6e6, "B"), "1.00_GB"),
        ((1234.5, "s"), "1,230_s"),  # nobody writes kiloseconds
        ((0.25, "B"), "0.250_B"),  # nor millibytes
        ((42.0,), "42.0"),
        ((4096, "tokens"), "4,096_tokens"),  # a whole number is exact
        ((53405.76, "tokens", 5), "53,406_tokens"),
        ((1285.4, "tok/s", 4), "1,285_tok/s"),
        ((1070.4, "FLOP/B"), "1,070_FLOP/B"),
        ((0.0041154, "%"), "0.41_%"),
        ((0.0374, "%"), "3.74_%"),
        ((0.75, "%", 2), "75_%"),
        ((1.0469, "×"), "1.05×"),
        ((0.52, "$", 2), "$0.52"),
        ((2.5, "$/h"), "$2.50/h"),
        ((-0.5, "s"), "−500_ms"),
        ((0, "B"), "0_B"),
        ((np.float32(2.5), "s"), "2.50_s"),
        ((np.int64(80), "layers"), "80_layers"),
        ((sp.Rational(1, 3), "s"), "333_ms"),
        ((sp.sqrt(2),), "1.41"),
        ((Fraction(1, 8), "", 2), "0.12"),  # half to even
        ((Fraction(3, 8), "", 2), "0.38"),
        ((1.8e13,), "18,000,000,000,000"),
        ((1.8e16, "", 2), "1.8_×_10¹⁶"),
        ((9.9e-5,), "9.90_×_10⁻⁵"),
        ((1e-30, "s"), "1.00_×_10⁻³⁰_s"),
    ],
)
def test_numbers_are_written_as_promised(arguments, text):
    assert fmt(*arguments) == text.replace("_", THIN)


@pytest.mark.parametrize(
    ("value", "unit", "prefix", "text"),
    [
        (0.0418, "s", "", "0.0418_s"),
        (80e9, "B", "M", "80,000_MB"),
        (80 * 2**30, "B", "Gi", "80_GiB"),
        (81 * 2**29, "B", "Gi", "40.5_GiB"),
        (70553706496, "parameters", "billion", "70.6_billion_parameters"),
        (1.79e13, "FLOP", "10^", "1.79_×_10¹³_FLOP"),
        (70e9, "$", "billion", "$70.0_billion"),
        (0, "B", "G", "0_GB"),
        (0.0, "B/s", "T", "0_TB/s"),
        (0, "B", "Gi", "0_GiB"),
        (0, "parameters", "billion", "0_billion_parameters"),
        (0, "FLOP", "10^", "0_FLOP"),
        (math.inf, "s", "m", "∞_ms"),
        (-math.inf, "B", "Gi", "−∞_GiB"),
    ],
)
def test_a_prefix_can_be_forced(value, unit, prefix, text):
    assert fmt(value, unit, prefix=prefix, allow_inf=True) == text.replace("_", THIN)


@given(st.floats(min_value=1e-12, max_value=1e21), st.integers(1, 6))
def test_digits_are_those_of_the_decimal_module(value, digits):
    """Another rounding, of the same binary number, by another program."""
    rounded = Context(prec=digits, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(value))
    number, _, unit = fmt(value, "B", digits).partition(THIN)
    if "×" in unit:
        number, power = (
            Decimal(number),
            int(unit[4:].partition(THIN)[0].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))),
        )
    else:
        power = next(power for power, letter in PREFIXES.items() if letter + "B" == unit)
        number = Decimal(number.replace(",", ""))
    assert number.scaleb(power) == rounded
    assert number != 0


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "NaN"),
        (math.inf, "infinite"),
        (True, "truth value"),
        (np.True_, "truth value"),
        (1 + 0j, "complex"),
        (np.array([1.0]), "ndarray"),
        (np.array(1.0), "ndarray"),
        ("42", "str"),
        (None, "NoneType"),
        (sp.Symbol("B"), "Symbol"),
        (sp.I, "ImaginaryUnit"),
    ],
)
def test_what_is_not_one_number_is_refused(value, said):
    with pytest.raises(ValueError, match=rf"^fmt: .*{said}"):
        fmt(value, "s")


def test_infinity_only_when_asked():
    assert fmt(math.inf, "requests", allow_inf=True) == f"∞{THIN}requests"
    assert fmt(-math.inf, allow_inf=True) == "−∞"


WRONG = [{"prefix": "giga"}, *({"digits": wrong} for wrong in (0, -1, True, 2.0, 18, 10**9))]


@pytest.mark.parametrize("value", [1.0, 0, math.inf])
@pytest.mark.parametrize("options", WRONG)
def test_options_are_checked(value, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"^fmt: {name}="):
        fmt(value, "s", allow_inf=True, **options)


@pytest.mark.parametrize("value", [42, 0])
@pytest.mark.parametrize("unit", ["ms", "µs", "us", "ns", "GB", "kB/token", "TB/s", "GiB", "KB", "TFLOP/s", "kW", "mJ"])
def test_a_unit_with_a_prefix_of_its_own_is_refused(value, unit):
    """42 in "ms" would read as 42 ms, as 42 mms with a prefix, and as 0.042 s nowhere."""
    with pytest.raises(ValueError, match=f"^fmt: unit='{unit}' has a prefix of its own; give the value in "):
        fmt(value, unit)


@pytest.mark.parametrize("unit", ["cards", "GPUs", "min", "tok/s", "tokens", "per token", "users", "MoE layers"])
def test_words_are_no_prefixed_units(unit):
    assert fmt(42, unit) == f"42{THIN}{unit}"


@pytest.mark.parametrize("value", [10**5000, Fraction(1, 10**5000)], ids=["huge", "tiny"])
def test_a_number_that_nobody_could_read_is_refused_in_one_line(value):
    with pytest.raises(ValueError, match=r"^fmt: value has thousands of digits$"):
        fmt(value)


@pytest.fixture
def shell():
    """A notebook without a page: what a cell displays is captured."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def outputs(action):
    with capture_output() as captured:
        action()
    return [(output.data, output.metadata) for output in captured.outputs]


def test_say_gives_the_page_its_text_and_the_notebook_its_variable(shell):
    ((data, metadata),) = outputs(lambda: say("tpot", 0.0418, unit="s", how="2 N / β"))
    assert data == {"application/papermill.record/text/plain": f"41.8{THIN}ms"}
    assert metadata == {"scrapbook": {"name": "tpot", "mime_prefix": "application/papermill.record/"}, "how": "2 N / β"}
    assert repr(shell.user_ns["tpot"]) == f"41.8{THIN}ms"  # no quotes: this is what a live sentence shows


def test_a_cell_may_run_again(shell):
    outputs(lambda: say("again", 1.0, unit="s"))
    outputs(lambda: say("again", 2.0, unit="s"))
    assert shell.user_ns["again"] == f"2.00{THIN}s"


def test_say_takes_ready_text(shell):
    ((data, _),) = outputs(lambda: say("quoted", f"80{THIN}ms"))
    assert list(data.values()) == [f"80{THIN}ms"]
    assert type(shell.user_ns["quoted"]) is Said


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("two words", 1.0), {}, "'two words' is not a Python name"),
        (("taken", 1.0), {}, "'taken' is already a variable"),
        (("class", 1.0), {}, "'class' is a word of Python's own"),
        (("lambda", "80 ms"), {}, "'lambda' is a word"),
        (("print", 1.0), {}, "'print' is a word"),
        (("sum", 1.0), {}, "'sum' is a word"),
        (("_", 1.0), {}, "'_' starts with _"),
        (("_1", 1.0), {}, "'_1' starts with _"),
        (("τ", 1.0), {}, "'τ' is not a Python name of ASCII"),
        ((3, 1.0), {}, "name=3 is not a Python name"),
        (("nothing", None), {"unit": "s"}, "NoneType"),
        (("nothing", 42), {"unit": "ms"}, "unit='ms' has a prefix"),
        (("nothing", "  "), {}, "nothing has nothing to say"),
        (("text", "80 ms"), {"unit": "s"}, "text already"),
        (("text", "80 ms"), {"digits": 3}, "text already"),
        (("text", "80 ms"), {"prefix": "m"}, "text already"),
    ],
)
def test_say_refuses(shell, arguments, options, said):
    shell.user_ns["taken"] = shell.user_ns["nothing_said"] = None
    with pytest.raises(ValueError, match=said):
        say(*arguments, **options)
    assert shell.user_ns["taken"] is None


@pytest.mark.parametrize("truth", [True, np.True_, np.float64(1) > 0, sp.true, sp.Integer(2) > 1])
def test_a_true_claim_is_recorded_and_unseen(shell, truth):
    ((data, metadata),) = outputs(lambda: claim(truth, "Memory binds"))
    assert data == {"application/papermill.record/text/plain": "Memory binds"}
    assert metadata["how"] == "claim"
    assert not metadata["scrapbook"]["name"].isidentifier()  # so it is no name that prose could ask for


@pytest.mark.parametrize("falsehood", [False, np.False_, sp.false])
def test_a_false_claim_stops_the_build(falsehood):
    with pytest.raises(AssertionError, match="not true: Memory binds"):
        claim(falsehood, "Memory binds")


@pytest.mark.parametrize("condition", [1, None, "yes", np.array([True]), sp.Symbol("B") > 1, []])
def test_a_claim_needs_a_truth_value(condition):
    with pytest.raises(TypeError, match=r"neither true nor false: Memory binds"):
        claim(condition, "Memory binds")


def test_a_claim_needs_a_sentence():
    with pytest.raises(ValueError, match="sentence is empty"):
        claim(True, " ")
