"""Explains the forms that a table uses, in a line for a model that reads it."""

import re

LEGEND_MARK = "Table: "
"""Begins a legend. No line of a table begins with it behind a bracket, because a cell with a bracket is JSON."""
_FORMS = (
    (re.compile(r"\?[.,\t=\n]|\?\Z"), "a?: absent where empty"),
    (re.compile(r"[^,\t\n=*&]\[\](?:[.,\t=?\n]|\Z)"), "a[]: item of list a, empty: []; #rows:items"),
    (re.compile(r"[,\t]\."), ".b: prefix as before"),
    (re.compile(r"=(?:[^*,\t\n]+\*|\*[^,\t\n])"), "a=x*y: x, cell, y"),
    (re.compile(r"=\*(?:[,\t\n]|\Z)"), "a=*: text"),
    (re.compile(r"\{[^{}\n]+\}"), "{b}: column b"),
    (re.compile(r"(?:^|[,\t])&|\n&"), "&: lookup"),
)
"""The forms of a head, with the words that explain them."""
_EMPTY_CELL = re.compile(r"[,\t](?=[,\t]|$)|^(?=[,\t])", re.MULTILINE)
_MAX_HEAD_CHARS = 20_000
_MAX_ROW_CHARS = 20_000
"""An empty cell is looked for in so many characters of the rows."""


def table_legend(text: str) -> str:
    """Return a line that explains the forms in the tables of a text; empty if they need no words."""
    heads: list[str] = []
    rows: list[str] = []
    shown = heads
    for block in text.split("\n\n"):
        # A table begins after the rows of the one before it, and its head ends with an empty line.
        before, mark, head = f"\n{block}".rpartition("\n#") if shown is rows else ("", "", block)
        if shown is rows:
            rows.append(before if mark else block)
        if mark or shown is heads:
            heads.append(head)
        shown = rows
    lines = "\n".join(heads)[:_MAX_HEAD_CHARS].split("\n")
    found = "\n".join(line for line in lines if not line.startswith(("#{", "#[")))
    words = [word for form, word in _FORMS if form.search(found)]
    if _EMPTY_CELL.search("\n".join(rows)[:_MAX_ROW_CHARS]):
        words.insert(0, "empty cell: null")
    return f"{LEGEND_MARK}{'; '.join(words)}" if words else ""
