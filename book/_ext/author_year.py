"""A bibliography labelled as the text cites it: "Williams et al., 2009" instead of a code that no one reads."""

from collections import Counter

from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle


def label(entry):
    """First author, "et al." or the second, and the year."""
    people = entry.persons["author"]
    names = [" ".join(person.prelast_names + person.last_names).strip("{}") for person in people]
    more = [" et al."] if len(names) > 2 or "others" in names else [f" and {name}" for name in names[1:]]
    return f"{names[0]}{''.join(more)}, {entry.fields['year']}"


class AuthorYearLabels(BaseLabelStyle):
    """Labels of a whole list; a letter after the year tells those apart that would read alike."""

    def format_labels(self, sorted_entries):
        labels = [label(entry) for entry in sorted_entries]
        times, seen = Counter(labels), Counter()
        for text in labels:
            seen[text] += 1
            yield text + (chr(ord("a") - 1 + seen[text]) if times[text] > 1 else "")


class AuthorYear(PlainStyle):
    """Entries as in the style `plain`, with these labels."""

    default_label_style = AuthorYearLabels


def setup(app):
    register_plugin("pybtex.style.formatting", "author_year_list", AuthorYear)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
