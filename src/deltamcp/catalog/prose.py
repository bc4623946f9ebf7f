"""Descriptions: cleaned of what must not reach a model, and cut where a reader would stop."""

import re

SUMMARY_CHARS = 60
"""Delta-MCP's cap for a line of the index, in UTF-16 units as JavaScript counts them."""

_SUMMARY_SOURCE_CHARS = 2000
"""Characters in which a description says what it is about."""

# Upstreams write descriptions: control characters, and bidirectional ones, by which a text shows other than it reads.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)[)\"'”]?(?=\s+[^a-z\s])|(?<=[。！？])|(?=\n\s*\n)|(?=\n\s*[-*#•]))"
)


def clean(text: str) -> str:
    """A description without characters that hide or turn what it says."""
    return _HIDDEN.sub("", text)


def drop_blank_lines(text: str) -> str:
    """Every word of a description; indentation and empty lines, which say nothing to a model, are left out."""
    return "\n".join(filter(None, map(str.strip, clean(text).splitlines())))


def utf16_length(text: str) -> int:
    """In UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def has_sentence_within(text: str, limit: int) -> bool:
    """Whether a sentence ends so early."""
    found = _SENTENCE_END.search(text.lstrip(), 0, limit + 2)
    return found is not None and found.end() <= limit + 1


def cut(text: str, limit: int) -> str:
    """On one line, at most `limit` characters: as many whole sentences as fit, or else words; `…` where cut."""
    text = _collapse_spaces(clean(text))
    if len(text) <= limit:
        return _SPACE.sub(" ", text)
    text = text[: 2 * limit + 2]  # an end is at most a line break wider than what is kept
    kept = ""
    for found in _SENTENCE_END.finditer(text):
        part = _SPACE.sub(" ", text[: found.end()].strip())
        if len(part) > limit:
            break
        kept = part
    if kept:
        return kept
    line = _SPACE.sub(" ", text)
    if len(line) <= limit:
        return line
    shortened = line[: limit - 1]
    words = shortened.rpartition(" ")[0]
    return (words if len(words) > limit // 2 else shortened).rstrip(" ,;:-—(") + "…"


def _collapse_spaces(text: str) -> str:
    """With one space for several, and no more than one empty line: what tells where sentences end."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    made: list[str] = []
    for line in lines:
        if line or (made and made[-1]):
            made.append(line)
    return "\n".join(made).strip()


def summary(description: str) -> str:
    """The line that stands for a description in the index."""
    text = _collapse_spaces(clean(description[:_SUMMARY_SOURCE_CHARS]))
    end = _SENTENCE_END.search(text)
    made = cut(text if end is None else text[: end.end()], SUMMARY_CHARS)
    while utf16_length(made) > SUMMARY_CHARS:  # characters outside the basic plane count twice
        made = cut(made, len(made) - 1)
    return made.removesuffix(".")
