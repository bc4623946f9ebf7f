"""Docstrings of authors' functions: what they say of each parameter, in the styles of Google, NumPy and Sphinx."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

_HEADERS = r"(?:(?:Other |Keyword )?(?:Args|Arguments|Parameters|Params))"
_GOOGLE_HEADER = re.compile(rf"{_HEADERS}:\s*", re.IGNORECASE)
_NUMPY_HEADER = re.compile(_HEADERS, re.IGNORECASE)
_DASHES = re.compile(r"-{3,}\s*")
_GOOGLE_ENTRY = re.compile(r"(?:[-*•] )?[`*]{0,3}(\w+)[`*]{0,3}\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*(?::|–|—)\s*(.*)")
_NUMPY_ENTRY = re.compile(r"([*\w]+(?:\s*,\s*[*\w]+)*)\s*(?::.*)?")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?[*\\]*(\w+)\s*:\s*(.*)")
_SPHINX_TYPE = re.compile(r":type\s+[*\\]*(\w+)\s*:.*")
_MAY_HAVE_ENTRIES = re.compile(rf"^\s*(?:{_HEADERS}:?\s*$|:(?:param|arg|key))", re.IGNORECASE | re.MULTILINE)
_LIST_ITEM = re.compile(r"(?:[-*•+]|\d{1,2}[.)])\s")


class Documentation(NamedTuple):
    """A docstring in parts."""

    description: str
    """The docstring without what it says of parameters."""
    parameters: dict[str, str]
    """What it says of each parameter."""


class _ParameterEntry(NamedTuple):
    """What a docstring says of some parameters, and the lines that it takes."""

    names: list[str]
    text: str
    lines: range


def parse_docstring(text: str, shown: Collection[str], hidden: Collection[str] = ()) -> Documentation:
    """Returns the parts of a docstring without indentation, as `inspect.getdoc` returns it.

    Entries of names that are neither parameters nor hidden stay in the description, so that nothing is lost; those of
    hidden parameters, which no caller has, are dropped.
    """
    if not _MAY_HAVE_ENTRIES.search(text):
        return Documentation(text, {})
    lines = text.splitlines()
    known = {*shown, *hidden}
    taken: set[int] = set()
    parameters: dict[str, str] = {}
    for head, entries in _sections(lines):
        found = [entry for entry in entries if known.issuperset(entry.names)]
        for entry in found:
            taken.update(entry.lines)
            parameters |= {name: entry.text for name in entry.names if name in shown and entry.text}
        if found and len(found) == len(entries):
            taken.update(head)
    kept = "\n".join(line for number, line in enumerate(lines) if number not in taken)
    return Documentation(re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", kept).strip(), parameters)


def _sections(lines: list[str]) -> Iterator[tuple[range, list[_ParameterEntry]]]:
    """Yields the lines of each section's header, and its entries; Sphinx's fields are a section without one."""
    yield range(0), [*_sphinx_entries(lines)]
    for number, line in enumerate(lines):
        if _GOOGLE_HEADER.fullmatch(line.strip()):
            yield range(number, number + 1), [*_google_entries(lines, number)]
        elif _NUMPY_HEADER.fullmatch(line.strip()) and _DASHES.fullmatch(_line(lines, number + 1)):
            yield range(number, number + 2), [*_numpy_entries(lines, number + 2)]


def _google_entries(lines: list[str], header: int) -> Iterator[_ParameterEntry]:
    block = _block(lines, header + 1, _indent(lines[header]))
    indents = [_indent(lines[number]) for number in block if lines[number].strip()]
    starts = [number for number in block if lines[number].strip() and _indent(lines[number]) == indents[0]]
    for start, end in _spans(starts, block.stop):
        found = _GOOGLE_ENTRY.fullmatch(lines[start].strip())
        if found is not None:
            yield _ParameterEntry([found[1]], _join([found[2], *lines[start + 1 : end]]), range(start, end))
        else:
            yield _ParameterEntry([""], "", range(start, end))


def _numpy_entries(lines: list[str], first: int) -> Iterator[_ParameterEntry]:
    starts: list[int] = []
    last = first
    for last in range(first, len(lines) + 1):
        if last == len(lines) or _DASHES.fullmatch(_line(lines, last + 1)):
            break  # another section, or the end
        if lines[last].strip() and _indent(lines[last]) <= _indent(lines[first - 1]):
            if _NUMPY_ENTRY.fullmatch(lines[last].strip()) is None:
                break
            starts.append(last)
    for start, end in _spans(starts, last):
        names = re.findall(r"\w+", lines[start].partition(":")[0])
        yield _ParameterEntry(names, _join(lines[start + 1 : end]), range(start, end))


def _sphinx_entries(lines: list[str]) -> Iterator[_ParameterEntry]:
    for number, line in enumerate(lines):
        found = _SPHINX_ENTRY.fullmatch(line.strip()) or _SPHINX_TYPE.fullmatch(line.strip())
        if found is not None:
            end = _block(lines, number + 1, _indent(line)).stop
            while not lines[end - 1].strip():
                end -= 1
            is_type = found.re is _SPHINX_TYPE
            text = "" if is_type else _join([found[2], *lines[number + 1 : end]])
            yield _ParameterEntry([found[1]], text, range(number, end))


def _block(lines: list[str], first: int, indent: int) -> range:
    """Returns the lines from `first` on that are indented more, or empty."""
    last = first
    while last < len(lines) and (not lines[last].strip() or _indent(lines[last]) > indent):
        last += 1
    return range(first, last)


def _spans(starts: list[int], last: int) -> Iterable[tuple[int, int]]:
    return zip(starts, [*starts[1:], last], strict=True) if starts else ()


def _join(lines: list[str]) -> str:
    """Returns lines as one, except that paragraphs and items of lists begin on a new one."""
    text, starts_line = "", False
    for line in map(str.strip, lines):
        if not line:
            starts_line = bool(text)
            continue
        separator = "\n" if text and (starts_line or _LIST_ITEM.match(line)) else " " if text else ""
        text, starts_line = f"{text}{separator}{line}", False
    return text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _line(lines: list[str], number: int) -> str:
    return lines[number].strip() if number < len(lines) else ""
