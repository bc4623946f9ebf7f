"""A text cut where a reader would cut it: before a heading, between paragraphs, lines, sentences, words."""

import re

from msgspec.structs import replace

from deltamcp.results.budget import find_largest
from deltamcp.results.window import Frame, Unit, Window

_CUT_SEARCH_SHARE = 0.25
"""How much of a part may be given up for a better place to cut."""
_CUT_PATTERNS = (
    re.compile(r"\n(?=#{1,6} )"),
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…。！？][\"')\]]*\s"),
    re.compile(r"\s"),
)
"""What may stand before a cut, the best first. A heading must not close a part, so the cut is before it."""
_LINE_END = re.compile(r"\n")
_COMBINING_MARK = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
"""Marks that belong to the character before them: accents, joiners, variants, skin tones."""


def find_end(text: str, begin: int, length: int) -> int:
    """Where a part that begins here ends, `length` characters on or a little before."""
    last = begin + length
    if last >= len(text):
        return len(text)
    reach = max(begin + 1, last - int(length * _CUT_SEARCH_SHARE))
    for edge in _CUT_PATTERNS:
        found = 0
        for match in edge.finditer(text, reach, last):
            found = match.end()
        if found:
            return found
    while last > reach and _COMBINING_MARK.match(text, last):
        last -= 1
    return last


def find_tail_start(text: str, first: int) -> int:
    """Where the part that shows the end begins: at a line, here or a little further on."""
    if first >= len(text):
        return len(text)
    line = text.find("\n", max(0, first - 1), first + int((len(text) - first) * _CUT_SEARCH_SHARE))
    return line + 1 if line >= 0 else first


def text_window(text: str, begin: int, unit: Unit, frame: Frame, tail: float = 0.0, until: int | None = None) -> Window:
    """As much of a text as fits, from `begin` on, and with a `tail` its end too; one character at least."""
    rest = (until or len(text)) - begin
    made: dict[int, Window] = {}

    def cost(keep: int) -> int:
        behind = int(keep * tail)
        ends = find_end(text, begin, keep - behind) if keep < rest else begin + rest
        tail_start = max(ends, find_tail_start(text, len(text) - behind)) if behind and keep < rest else len(text)
        shown = Window(unit, begin, ends, len(text), text[begin:ends], tail=text[tail_start:], form="text")
        made[keep] = frame.add_note(shown)
        return frame.cost(made[keep])

    budget = frame.budget.tokens
    if until is not None and cost(rest) <= budget:
        return made[rest]
    grain = max(1, budget // 25)
    kept = find_largest(min(rest, frame.budget.max_chars), budget * 3, cost, budget, grain, least=min(1, rest))
    # Where not one character fits, as under a very long name, the least there can be goes out.
    return _extend_by_lines(text, made[min(1, rest) if kept is None else kept], frame)


def _extend_by_lines(text: str, window: Window, frame: Frame) -> Window:
    """With every further line that still fits, for the search leaves some room; but not past a better place to cut."""
    better = text.startswith("#", window.end) or window.text.endswith(("\n\n", "\n\r\n"))
    if better or not window.text.endswith("\n"):
        return window
    budget = frame.budget.tokens
    last = min(len(text) - len(window.tail), window.end + (budget - frame.cost(window)) * 8)
    ends = [window.end, *(line.end() for line in _LINE_END.finditer(text, window.end, last))]
    made = {0: window}

    def cost(lines: int) -> int:
        shown = text[window.start : ends[lines]]
        made[lines] = frame.add_note(replace(window, end=ends[lines], text=shown))
        return frame.cost(made[lines])

    return made[find_largest(len(ends) - 1, 1, cost, budget) or 0]
