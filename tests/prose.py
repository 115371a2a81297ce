"""What counts as a typed quantity in the prose of a page, and where it stands.

The rule, for authors: **a sentence holds no number that could be computed.** A quantity comes from ``{eval}``, or it is
a fact that somebody else established, and then a ``{cite}`` stands in the same sentence. What may be typed:

- whole numbers up to twelve, without a unit: "the 2 halves" (words read better: "two halves");
- years; references: "Section 7.2", "Step 3", "Python 3.11", "CC BY 4.0"; names: "Llama-2-70B", "H100", "910C";
- the names of number formats: "8-bit weights", "16 bits".

So neither "42 ms", "3 tokens", "4K" and "70 %" may be typed, nor "64" or "2.5" alone. In maths a letter or a small
integer may stand (``$2 N S$``), a decimal, a number of three digits or a unit may not. Code and the options of
directives are not prose; titles, captions, table rows, exercises and solutions are.
"""

import re
from typing import NamedTuple

LITERAL = {"code-cell", "code", "code-block", "raw", "bibliography", "toctree", "literalinclude", "mermaid", "eval-rst"}
LARGEST = 12
YEARS = range(1990, 2036)
UNITS = (
    "[kMGTPE]?(?:FLOPs?|FLOPS|B|W|J)(?:/\\w+)?|[KMGT]iB(?:/\\w+)?|[kKMG]|[mnµu]?s|min|h|Hz|[MG]Hz|tok(?:ens?)?(?:/s)?|%|‰|×|x"
    "|percent|per cent|times|seconds?|milliseconds?|microseconds?|minutes?|hours?|days?|[kmg]?bytes?|bits?"
    "|requests?|users?|layers?|heads?|experts?|parameters?|weights?|accelerators?|devices?|GPUs?|cards?|dies|cents?|dollars?|€"
    "|thousand|million|billion|trillion"
)
NUMBER = re.compile(
    rf"(?<![\w.,])([$€]?)(\d+(?:[.,\u2009\u202f]\d+)*)(?:[\s\u00a0\u2009\u202f-]?({UNITS}))?(?!\w|[.,]\d)"
)
NAMES = re.compile(r"\b[A-Za-z]\w*(?:[.-]\w+)*-\w[\w.]*\b")  # Llama-3.1-70B
FORMATS = re.compile(r"\b(?:4|8|16|32)[- ]bits?\b")
REFERENCES = re.compile(
    r"\b(?:[Ss]ections?|[Cc]hapters?|[Pp]arts?|[Ss]teps?|[Ff]igures?|[Tt]ables?|[Ee]quations?|[Ee]xercises?|[Vv]ersions?|Python|BY"
    r"|Llama|GPT|CUDA)\s+\d[\d.]*(?:(?:\s+(?:and|to|or)\s+|–)\d[\d.]*)?"
)
MATHS_NUMBER = re.compile(
    r"\d+(?:\{,\}|\\,)?\d*\.\d|\d(?:\{,\}|\\,)?\d(?:\{,\}|\\,)?\d|\d\s*(?:\\[,;: ]|~)?\s*\\(?:text|mathrm)\{"
)


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
    text = re.sub(r"\{[\w:-]+\}`(?:([^`<]*?)\s*<[^`]*>|[^`]*)`", lambda role: role[1] or "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^>]*>|https?://\S+", "", text)
    found = [match[0] for match in re.finditer(r"(\${1,2})(.+?)\1", text) if MATHS_NUMBER.search(match[2])]
    text = re.sub(r"(\${1,2})(.+?)\1", " ‹maths› ", text)
    code = [
        match for match in re.findall(r"`([^`]*)`", text) if re.search(rf"\d[\s\u00a0\u202f]({UNITS})(?!\w)", match)
    ]
    text = re.sub(r"`[^`]*`", "‹code›", text)
    for known in (FORMATS, REFERENCES, NAMES):
        text = known.sub("‹name›", text)
    return found + code + [match[0] for match in NUMBER.finditer(text) if not _small(*match.groups())]


def _small(currency, number, unit):
    plain = number.isdigit() and not currency and not unit
    return plain and (int(number) <= LARGEST or int(number) in YEARS)
