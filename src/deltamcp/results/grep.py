"""What of a view holds one of some words: lines of a text, items of a list, members of an object.

Words are plain, letter case aside, and `|` stands between alternatives. Regular expressions could run for ever.
"""

from collections.abc import Mapping, Sequence

from deltamcp.results import document
from deltamcp.results.document import Encoded
from deltamcp.wire import jsonrpc

_LINE_CHARS = 300
"""Of a line that matches; one may be megabytes long."""


def lines(text: str, words: str) -> str:
    """The lines that match, each after the offset at which it begins, to read on there."""
    wanted = _alternatives(words)
    found: list[str] = []
    begin = 0
    for line in text.splitlines(keepends=True):
        if _holds(line.casefold(), wanted):
            found.append(f"{begin}: {_around(line.rstrip(), wanted)}")
        begin += len(line)
    return "\n".join(found)


def _around(line: str, wanted: list[str]) -> str:
    """A line, or of a long one what stands around the first match."""
    if len(line) <= _LINE_CHARS:
        return line
    lower = line.casefold()
    first = min(place for word in wanted if (place := lower.find(word)) >= 0)
    start = max(0, min(first - _LINE_CHARS // 3, len(line) - _LINE_CHARS))
    return f"{'…' * (start > 0)}{line[start : start + _LINE_CHARS]}{'…' * (start + _LINE_CHARS < len(line))}"


def items(units: Sequence[Encoded], words: str) -> dict[str, Encoded]:
    """The items that match, by their place in the list."""
    return members({str(place): unit for place, unit in enumerate(units)}, words, keys=False)


def members(units: Mapping[str, Encoded], words: str, keys: bool = True) -> dict[str, Encoded]:
    """The members that match, in key or value."""
    wanted = _alternatives(words)
    # As they stand in JSON, without the quotes around them.
    written = [jsonrpc.encode(word).decode()[1:-1] for word in wanted]
    return {
        key: unit
        for key, unit in units.items()
        if _holds(bytes(memoryview(unit)).decode().casefold(), written) or (keys and _holds(key.casefold(), wanted))
    }


def matching(view: document.Units, words: str) -> document.Units:
    """A view of what matches in another."""
    if isinstance(view, str):
        return lines(view, words)
    if isinstance(view, bytes):
        return view
    return members(view, words) if isinstance(view, Mapping) else items(view, words)


def _alternatives(words: str) -> list[str]:
    return [word for word in words.casefold().split("|") if word] or [words.casefold()]


def _holds(text: str, wanted: list[str]) -> bool:
    return any(word in text for word in wanted)
