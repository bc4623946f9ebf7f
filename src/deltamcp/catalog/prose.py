"""Descriptions: removes hidden characters, and shortens texts at the end of a sentence or a word."""

import re

SUMMARY_CHARS = 60
"""Delta-MCP's limit for a summary, in UTF-16 units as JavaScript counts them."""

_SUMMARY_SOURCE_CHARS = 2000
"""The characters of a description that a summary is taken from."""

# Upstreams write descriptions: control characters, and bidirectional ones, by which a text shows other than it reads.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)[)\"'”]?(?=\s+[^a-z\s])|(?<=[。！？])|(?=\n\s*\n)|(?=\n\s*[-*#•]))"
)


def clean(text: str) -> str:
    """Removes control and bidirectional characters, which can hide or reorder text."""
    return _HIDDEN.sub("", text)


def drop_blank_lines(text: str) -> str:
    """Removes indentation and empty lines, which mean nothing to a model, and hidden characters."""
    return "\n".join(filter(None, map(str.strip, clean(text).splitlines())))


def utf16_length(text: str) -> int:
    """Returns the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def has_sentence_within(text: str, limit: int) -> bool:
    """Returns whether the first sentence ends within `limit` characters."""
    found = _SENTENCE_END.search(text.lstrip(), 0, limit + 2)
    return found is not None and found.end() <= limit + 1


def cut(text: str, limit: int) -> str:
    """Shortens a text to one line of at most `limit` characters: to whole sentences, or else to words and `…`."""
    text = _collapse_spaces(clean(text))
    if len(text) <= limit:
        return _SPACE.sub(" ", text)
    text = text[: 2 * limit + 2]  # bounds the search, as the rest cannot fit
    sentences = ""
    for found in _SENTENCE_END.finditer(text):
        part = _SPACE.sub(" ", text[: found.end()].strip())
        if len(part) > limit:
            break
        sentences = part
    if sentences:
        return sentences
    line = _SPACE.sub(" ", text)
    if len(line) <= limit:
        return line
    shortened = line[: limit - 1]
    words = shortened.rpartition(" ")[0]
    return (words if len(words) > limit // 2 else shortened).rstrip(" ,;:-—(") + "…"


def _collapse_spaces(text: str) -> str:
    """Collapses spaces and empty lines, but keeps line breaks, which can end a sentence."""
    stripped = (" ".join(line.split()) for line in text.splitlines())
    lines: list[str] = []
    for line in stripped:
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines).strip()


def summary(description: str) -> str:
    """Returns the summary of a description: its first sentence, cut to `SUMMARY_CHARS`, without the full stop."""
    text = _collapse_spaces(clean(description[:_SUMMARY_SOURCE_CHARS]))
    end = _SENTENCE_END.search(text)
    line = cut(text if end is None else text[: end.end()], SUMMARY_CHARS)
    while utf16_length(line) > SUMMARY_CHARS:  # characters outside the basic plane count twice
        line = cut(line, len(line) - 1)
    return line.removesuffix(".")
