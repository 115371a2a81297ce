"""What counts as a typed quantity in the prose of a page, and where it stands.

The rule, for authors: **a sentence holds no number that could be computed.** A quantity comes from ``{eval}``, or it is
a fact that somebody else established, and then a ``{cite}`` stands in the same sentence. What may be typed:

- whole numbers up to twelve, without a unit: "the 2 halves" (words read better: "two halves");
- years; references: "Section 7.2", "Step 3", "Python 3.11", "CC BY 4.0"; names: "Llama-2-70B", "H100", "910C";
- the names of number formats: "8-bit weights", "16 bits".

So neither "42 ms", "3 tokens", "4K" and "70 %" may be typed, nor "64" or "2.5" alone, nor "twelve milliseconds" or
"seventy billion": a number in words with a unit of measurement is one. In maths a letter or a small integer may stand
(``$2 N S$``), a decimal, a number of three digits, a unit, or what something equals may not. Code and the options of
directives are not prose; titles, captions, table rows, alternative texts, exercises and solutions are.

Not caught, so the author's care: "twice", "a third", "a hundred users"; they judge, and want a ``claim``.
"""

import itertools
import re
from typing import NamedTuple

LITERAL = {"code-cell", "code", "code-block", "raw", "bibliography", "toctree", "literalinclude", "mermaid", "eval-rst"}
LARGEST = 12
YEARS = range(1990, 2036)
UNITS = (
    "[kMGTPE]?(?:FLOPs?|FLOPS|B|W|J)(?:/\\w+)?|[KMGT]iB(?:/\\w+)?|[kKMG]|[mnµu]?s|min|h|Hz|[MG]Hz|tok(?:ens?)?(?:/s)?|%|‰|×|x"
    "|percent|per cent|times|seconds?|milliseconds?|microseconds?|minutes?|hours?|days?|[kmg]?bytes?|bits?"
    "|(?:kilo|mega|giga|tera)bytes?"
    "|weeks?|months?|years?|nodes?|chips?|racks?|servers?|replicas?|pages?|blocks?|[kMG]tok(?:ens?)?|watts?|kW|kWh|joules?"
    "|requests?|users?|layers?|heads?|experts?|parameters?|weights?|accelerators?|devices?|GPUs?|cards?|dies|cents?|dollars?|€"
    "|thousand|million|billion|trillion"
)
NUMBER = re.compile(
    rf"(?<![^\W_])(?<![.,])((?:(?:US)?[$€£]\s?)?)"
    rf"(\d{{1,3}}(?:[ ’']\d{{3}})+|\d+/\d+|\d+(?:[.,\u2009\u202f]\d+)*(?:[eE][+-]?\d+|[⁰¹²³⁴-⁹⁻]+)?|\d*[½⅓¼¾⅔])"
    rf"(?:[\s\u00a0\u2009\u202f-]?({UNITS}))?(?![^\W_]|[.,]\d)"
)
TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
SMALL = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w+teen"
WORDS = re.compile(
    rf"\b(?:(?:{SMALL}|(?:{TENS})(?:-\w+)?|hundred|thousand)[\s-](?:(?:nano|micro|milli)?seconds?|minutes?|hours?|days?"
    r"|(?:kilo|mega|giga|tera)bytes?|dollars?|cents?|watts?|joules?|thousand|million|billion|trillion"
    r"|times(?= (?:as|more|less|faster|slower|longer|larger|smaller|the)\b))|half an? (?:milli)?second)\b",
    re.IGNORECASE,
)
NAMES = re.compile(r"\b[A-Za-z]\w*(?:[.-]\w+)*-\w[\w.]*\b")  # Llama-3.1-70B
FORMATS = re.compile(r"\b(?:4|8|16|32)[- ]bits?\b")
REFERENCES = re.compile(
    r"\b(?:[Ss]ections?|[Cc]hapters?|[Pp]arts?|[Ss]teps?|[Ff]igures?|[Tt]ables?|[Ee]quations?|[Ee]xercises?|[Vv]ersions?|Python|BY"
    r"|Llama|GPT|CUDA)\s+\d[\d.]*(?:(?:\s+(?:and|to|or)\s+|–)\d[\d.]*)?"
)
MATHS_NUMBER = re.compile(
    r"\d+(?:\{,\}|\\,)?\d*\.\d|\d(?:\{,\}|\\,)?\d(?:\{,\}|\\,)?\d|\d\s*(?:\\[,;: ]|~)?\s*(?:\\(?:text|mathrm)\{|\\%)"
    r"|(?:=|≈|\\approx|\\sim|\\simeq|[<>]|\\[lg]eq?)\s*\d\d\s*(?=$|[,.;)])"
)

ATTRIBUTE = r"""\b(?:alt|title|aria-label)=["']([^"']*)["']"""


class Finding(NamedTuple):
    """A typed quantity: the line that its sentence starts near, what was typed, and the sentence."""

    line: int
    typed: str
    sentence: str


def findings(page):
    """All typed quantities of a page's source."""
    return [
        Finding(line, typed, sentence)
        for line, block in blocks(page)
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[^a-z])", block)
        for typed in quantities(sentence)
    ]


def blocks(page):
    """Yield (line, text) for each paragraph, heading, list item, table row, title, or line of displayed maths."""
    lines = page.splitlines()
    first = lines.index("---", 1) + 1 if lines and lines[0] == "---" else 0
    fences, options, text, start = [], False, [], 0
    for number, line in enumerate(lines[first:], first + 1):
        opened = fences[-1] if fences else ("", "prose")
        fence = re.match(r"\s*(`{3,}|:{3,}|~{3,})\s*(?:\{([\w:-]+)\})?\s*(.*)$", line)
        closes = fence and fences and fence[1].startswith(opened[0]) and not (fence[2] or fence[3])
        literal = opened[1] == "literal" and not closes
        ends = literal or fence or not line.strip() or re.match(r"\s*(#|\||[-*+] |\d+\. |\([\w-]+\)=$)", line)
        if ends and text:
            yield start, " ".join(text)
            text = []
        option = options and re.match(r"\s*:([\w-]+):\s*(.*)$", line)
        options = bool(option) or bool(fence and fence[2])
        if closes:
            fences.pop()
        elif literal:
            continue
        elif fence:
            kind = "literal" if fence[2] in LITERAL or (not fence[2] and fence[1][0] != ":") else "prose"
            fences.append((fence[1], "maths" if fence[2] == "math" else kind))
            if kind == "prose" and fence[2] != "math" and fence[3]:
                yield number, fence[3]
        elif option:
            if option[1] in ("alt", "caption"):
                yield number, option[2]
        elif opened[1] == "maths":
            yield number, f"${line}$"
        elif line.strip() and not re.match(r"\([\w-]+\)=$|%|<!--", line):
            start = start if text else number
            text.append(re.sub(r"^\s*(?:#+|[-*+]|\d+\.)\s+", "", line).strip())
    if text:
        yield start, " ".join(text)


def quantities(sentence):
    """What is typed in one sentence and should be computed or cited."""
    if re.search(r"\{cite(:\w+)?\}`", sentence):
        return []
    text = re.sub(r"\{eval\}`[^`]*`", "‹said›", sentence)
    text = re.sub(r"\{math\}`([^`]*)`", r"$\1$", text)
    text = re.sub(r"\{(?:abbr|sup|sub)\}`([^`]*)`", r" \1 ", text)
    text = re.sub(r"\{[\w:-]+\}`(?:([^`<]*?)\s*<[^`]*>|[^`]*)`", lambda role: role[1] or "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\"]*(?:\"([^\"]*)\")?\)", lambda link: f"{link[1]} {link[2] or ''}", text)
    text = re.sub(r"<[^>]*>", lambda tag: " ".join(re.findall(ATTRIBUTE, tag[0])), text)
    text = re.sub(r"https?://\S+", "", text)
    found = [match[0] for match in re.finditer(r"(\${1,2})(.+?)\1", text) if MATHS_NUMBER.search(match[2])]
    found += [match[0] for match in re.finditer(rf"\$[^$]*\d\$[\s\u00a0\u202f-]?(?:{UNITS})(?!\w)", text)]
    text = re.sub(r"(\${1,2})(.+?)\1", " ‹maths› ", text)
    quantity = re.compile(rf"(?<![\w.-])\d[\d.,]*[\s\u00a0\u202f]?({UNITS})(?!\w)")
    code = [match for match in re.findall(r"`([^`]*)`", text) if quantity.search(match)]
    text = re.sub(r"`[^`]*`", "‹code›", text)
    found += [match[0] for match in WORDS.finditer(text)]
    for known in (FORMATS, REFERENCES, NAMES):
        text = known.sub("‹name›", text)
    return found + code + [match[0] for match in NUMBER.finditer(text) if not _small(*match.groups())]


def _small(currency, number, unit):
    plain = number.isdecimal() and not currency and not unit
    return plain and (int(number) <= LARGEST or int(number) in YEARS)


def undescribed(page):
    """(line, what is wrong) of each picture without alternative text, or with ``{eval}`` in it, which stays."""
    lines, wrong = page.splitlines(), []
    for number, line in enumerate(lines, 1):
        for picture in re.finditer(r"!\[((?:[^\]`]|`[^`]*`)*)\](?=[(\[])|<img\b([^>]*)>", line):
            alt = picture[1] if picture[2] is None else " ".join(re.findall(r"""\balt=["']([^"']*)["']""", picture[2]))
            wrong.append((number, alt))
        if re.match(r"\s*[`:~]{3,}\{(?:figure|image)\}", line):
            options = itertools.takewhile(lambda option: re.match(r"\s*:[\w-]+:", option), lines[number:])
            alts = [option.partition("alt:")[2] for option in options if re.match(r"\s*:alt:", option)]
            wrong.append((number, " ".join(alts)))
    return [
        (number, "{eval} is not evaluated in an alternative text" if "{eval}" in alt else "no alternative text")
        for number, alt in wrong
        if "{eval}" in alt or not re.search(r"\w", alt)
    ]
