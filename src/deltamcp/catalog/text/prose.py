"""Descriptions: shortens texts at the end of a sentence or a word, and derives summaries."""

import enum
import re
from collections.abc import Iterator

from deltamcp.catalog.text.clean_text import clean

SUMMARY_CHARS = 60
"""Delta-MCP's limit for a summary, in UTF-16 units as JavaScript counts them."""

_SUMMARY_SOURCE_CHARS = 2000
"""The characters of a description that a summary is taken from."""

_SPACE = re.compile(r"\s+")
_SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)[)\"'”]?(?=\s+[^a-z\s])|(?<=[。！？])|(?=\n\s*\n)|(?=\n\s*[-*#•]))"
)


def drop_blank_lines(text: str) -> str:
    """Removes indentation and empty lines, which mean nothing to a model, and hidden characters."""
    return "\n".join(filter(None, map(str.strip, clean(text).splitlines())))


def utf16_length(text: str) -> int:
    """Returns the length of a text in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def cut(text: str, limit: int) -> str:
    """Shortens a text to one line of at most `limit` characters: to whole sentences, or else to words and `…`.

    A sentence that introduces a list, such as "Options are:", is no place to end, because the list says what to pass.
    """
    text = _collapse_spaces(clean(text[: _SUMMARY_SOURCE_CHARS + 8 * limit]))
    if len(text) <= limit:
        return _SPACE.sub(" ", text)
    text = text[: 2 * limit + 2]  # bounds the search, as the rest cannot fit
    sentences = ""
    for found in _SENTENCE_END.finditer(text):
        part = _SPACE.sub(" ", text[: found.end()].strip())
        if len(part) > limit:
            break
        sentences = part
    if sentences and not sentences.endswith(":"):
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


# Summaries

_PURPOSE_LABELS = frozenset({"purpose", "description", "summary", "overview", "what it does", "tip"})
"""Labels before what a tool does."""
_OTHER_LABELS = frozenset(
    {
        *("args", "arguments", "parameters", "params", "input", "inputs", "returns", "return", "output", "outputs"),
        *("example", "examples", "usage", "usage guidance", "use cases", "when to use", "best for"),
        *("warning", "warnings", "caution", "guardrails", "security", "important", "note", "notes", "limitations"),
        *("prerequisites", "requirements", "error responses", "errors", "raises", "see also", "related"),
    }
)
"""Labels before anything else."""
_LABELS = _PURPOSE_LABELS | _OTHER_LABELS
_MAX_LABEL_CHARS = 40
"""The characters of the longest label with its decoration."""
_LABEL = re.compile(r"([^\W\d][\w /-]{1,30}?)\s*:\s*")
_LEADING_DECORATION = re.compile(r"(?:[^\w\"'(`<\[/${%@.]|__)+")
_TRAILING_DECORATION = " \t*=─━═"
_NUMBER = re.compile(r"\d{1,2}[.)](?:\s+|$)")
_LIST_ITEM = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)])\s")
_UNDERLINE = re.compile(r"[=\-~─━═]{3,}")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|={2,}|-{3,}|\*\*[^*]+\*\*:?\s*$)")
_OPENING = re.compile(
    r"(?:use this (?:tool|function|operation) to"
    r"|this (?:tool|function|operation)(?: (?:is used to|can be used to|allows you to|lets you|will))?) (?=[a-z])",
    re.IGNORECASE,
)
_FOLLOWING = re.compile(r"\b(?:one or more|one|any|some|each|all) of the following\b:?\s*", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{2,}")
_MIN_WORDS_AFTER_FOLLOWING = 2
"""With fewer words, "the following tools" names nothing without what follows."""


class _Rank(enum.IntEnum):
    """How useful a sentence is as a summary."""

    USEFUL = 0
    LEAD_IN = 1
    """A heading, or a sentence that announces a list."""
    LIST_ITEM = 2
    OTHER = 3
    """It is about something else than what the tool does: its arguments, its results, warnings."""


def summary(description: str) -> str:
    """Returns the summary of a description: its most useful sentence, at most `SUMMARY_CHARS`, without full stop."""
    return next(summaries(description), "")


def summaries(description: str) -> Iterator[str]:
    """Yields the sentences of a description as summaries, the most useful first; text without words as it is."""
    text = clean(description[:_SUMMARY_SOURCE_CHARS])
    less_useful: list[tuple[_Rank, str]] = []
    is_empty = True
    for rank, sentence in _ranked_sentences(text):
        is_empty = False
        if rank is _Rank.USEFUL:
            yield fit_summary(sentence)
        else:
            less_useful.append((rank, sentence))
    for _, sentence in sorted(less_useful, key=lambda pair: pair[0]):
        yield fit_summary(sentence)
    if is_empty and text.strip():
        yield fit_summary(text)


def fit_summary(text: str, limit: int = SUMMARY_CHARS) -> str:
    """Shortens a text to a summary of at most `limit` UTF-16 units, without full stop."""
    line = cut(text, limit)
    while utf16_length(line) > limit:  # characters outside the basic plane count twice
        line = cut(line, len(line) - 1)
    return line.removesuffix(".")


def _ranked_sentences(text: str) -> Iterator[tuple[_Rank, str]]:
    """Yields the sentences of a description without labels and decoration, and how useful each is."""
    section = _Rank.USEFUL
    labelled = False
    for paragraph in _paragraphs(text):
        is_heading, is_item = bool(_HEADING.match(paragraph)), bool(_LIST_ITEM.match(paragraph))
        for sentence in _sentences(paragraph):
            label, rest = _split_label(sentence)
            rest = _drop_opening(rest)
            own = section
            if label in _PURPOSE_LABELS:
                own = _Rank.USEFUL
            elif label in _OTHER_LABELS:
                own = _Rank.OTHER
            if not _WORD.search(rest):
                if label:
                    section, labelled = own, True
                continue
            if is_heading:
                section, labelled = _Rank.USEFUL, False
                yield _Rank.LEAD_IN, rest
                continue
            if is_item and not labelled:
                own = max(own, _Rank.LIST_ITEM)
            named = _drop_following(rest)
            yield (own, named) if named else (max(own, _Rank.LEAD_IN), rest.rstrip(": "))


def _paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs, headings and items of lists; joins the lines of a paragraph."""
    lines: list[str] = []
    for line in (*map(str.strip, text.splitlines()), ""):
        if _UNDERLINE.fullmatch(line):
            yield from (f"# {heading}" for heading in lines)
            lines = []
            continue
        stands_alone = bool(_HEADING.match(line)) or _is_label(line.removesuffix(":"))
        if lines and (not line or stands_alone or _LIST_ITEM.match(line)):
            yield " ".join(lines)
            lines = []
        if stands_alone:
            yield line
        elif line:
            lines.append(line)


def _is_label(line: str) -> bool:
    return len(line) <= _MAX_LABEL_CHARS and _strip_decoration(line).casefold() in _LABELS


def _sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for found in _SENTENCE_END.finditer(paragraph):
        yield paragraph[start : found.end()]
        start = found.end()
    yield paragraph[start:]


def _split_label(sentence: str) -> tuple[str, str]:
    """Splits a sentence into its label, where it is a known one or all there is, and the rest without decoration."""
    text = _strip_decoration(_strip_number(_strip_decoration(sentence)))
    if _is_label(text):
        return text.casefold(), ""
    found = _LABEL.match(text)
    label = _strip_decoration(found[1]).casefold() if found else ""
    if found and label in _LABELS:
        return label, _strip_number(_strip_decoration(text[found.end() :]))
    return "", text


def _strip_decoration(text: str) -> str:
    """Returns a text without the symbols around it: emoji, marks of headings, lists and bold type, banners."""
    found = _LEADING_DECORATION.match(text)
    return (text[found.end() :] if found else text).rstrip(_TRAILING_DECORATION)


def _strip_number(text: str) -> str:
    found = _NUMBER.match(text)
    return text[found.end() :] if found else text


def _drop_opening(sentence: str) -> str:
    """Returns a sentence without "This tool", "Use this tool to" and the like, which every tool could begin with."""
    found = _OPENING.match(sentence)
    return sentence if found is None else sentence[found.end()].upper() + sentence[found.end() + 1 :]


def _drop_following(sentence: str) -> str:
    """Returns a sentence without "one of the following"; empty where it only announces what follows."""
    found = _FOLLOWING.search(sentence)
    if found is None:
        return "" if sentence.rstrip().endswith(":") else sentence
    after = sentence[found.end() :]
    if len(_WORD.findall(after.partition(":")[0])) < _MIN_WORDS_AFTER_FOLLOWING:
        return ""
    return f"{sentence[: found.start()]}{after.partition(': ')[0].rstrip(':')}"
