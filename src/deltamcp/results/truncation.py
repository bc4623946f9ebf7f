"""Cuts a text to its budget at a natural boundary: before a heading, between paragraphs, lines, sentences, words."""

import re

from msgspec.structs import replace

from deltamcp.results.budget import find_largest
from deltamcp.results.window import Frame, Unit, Window

_CUT_SEARCH_SHARE = 0.25
"""The share of a part that may be given up for a better place to cut."""
_CUT_PATTERNS = (
    re.compile(r"\n(?=#{1,6} )"),
    re.compile(r"\n[ \t]*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…。！？][\"')\]]*\s"),
    re.compile(r"\s"),
)
"""Patterns after whose match a text may be cut, the best first. A heading must not end a part: the cut is before it."""
_LINE_END = re.compile(r"\n")
_COMBINING_MARK = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")
"""Marks that belong to the character before them: accents, joiners, variants, skin tones."""


def find_end(text: str, begin: int, length: int) -> int:
    """Return the end of a part that starts at `begin`: at most `length` characters on, at the best boundary."""
    last = begin + length
    if last >= len(text):
        return len(text)
    reach = max(begin + 1, last - int(length * _CUT_SEARCH_SHARE))
    for pattern in _CUT_PATTERNS:
        end = 0
        for match in pattern.finditer(text, reach, last):
            end = match.end()
        if end:
            return end
    while last > reach and _COMBINING_MARK.match(text, last):
        last -= 1
    return last


def find_tail_start(text: str, first: int) -> int:
    """Return the start of the part that shows the end of a text: `first`, or the first line that starts soon after."""
    if first >= len(text):
        return len(text)
    line = text.find("\n", max(0, first - 1), first + int((len(text) - first) * _CUT_SEARCH_SHARE))
    return line + 1 if line >= 0 else first


def text_window(text: str, begin: int, unit: Unit, frame: Frame, tail: float = 0.0, until: int | None = None) -> Window:
    """Return a window with as much of a text as fits from `begin` on, at least one character.

    With a `tail`, that share of the window shows the end of the text. The window ends at `until` if not before.
    """
    rest = (until or len(text)) - begin
    windows: dict[int, Window] = {}

    def cost(chars: int) -> int:
        tail_chars = int(chars * tail)
        end = find_end(text, begin, chars - tail_chars) if chars < rest else begin + rest
        tail_start = (
            max(end, find_tail_start(text, len(text) - tail_chars)) if tail_chars and chars < rest else len(text)
        )
        window = Window(unit, begin, end, len(text), text[begin:end], tail=text[tail_start:], form="text")
        windows[chars] = frame.add_note(window)
        return frame.cost(windows[chars])

    budget = frame.budget.tokens
    if until is not None and cost(rest) <= budget:
        return windows[rest]
    grain = max(1, budget // 25)
    chars = find_largest(min(rest, frame.budget.max_chars), budget * 3, cost, budget, grain, lower=min(1, rest))
    # A note with a very long name may leave no space for a single character.
    return _extend_by_lines(text, windows[min(1, rest) if chars is None else chars], frame)


def _extend_by_lines(text: str, window: Window, frame: Frame) -> Window:
    """Add the further lines that fit, because the search stops a little early; but not past a better boundary."""
    better = text.startswith("#", window.end) or window.text.endswith(("\n\n", "\n\r\n"))
    if better or not window.text.endswith("\n"):
        return window
    budget = frame.budget.tokens
    last = min(len(text) - len(window.tail), window.end + (budget - frame.cost(window)) * 8)
    ends = [window.end, *(line.end() for line in _LINE_END.finditer(text, window.end, last))]
    windows = {0: window}

    def cost(lines: int) -> int:
        shown = text[window.start : ends[lines]]
        windows[lines] = frame.add_note(replace(window, end=ends[lines], text=shown))
        return frame.cost(windows[lines])

    return windows[find_largest(len(ends) - 1, 1, cost, budget) or 0]
