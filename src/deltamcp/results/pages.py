"""A text in pages of so many tokens, cut at line ends where there are any; joined they are the text again."""

from deltamcp import tokens


def pages(text: str, allowed: int) -> list[str]:
    """At least one page, none empty unless the text is."""
    made: list[str] = []
    start = 0
    while start < len(text):
        end = _end(text, start, allowed)
        made.append(text[start:end])
        start = end
    return made or [text]


def _end(text: str, start: int, allowed: int) -> int:
    """Where a page ends: shrunk by what it is too long, until it fits."""
    end = min(len(text), start + allowed * 16)
    while (spent := tokens.count(text[start:end])) > allowed and end > start + 1:
        end = start + max(1, int((end - start) * allowed / spent * 0.98))
    if end == len(text):
        return end
    line = text.rfind("\n", start, end)
    return line + 1 if line > start + (end - start) // 2 else end
