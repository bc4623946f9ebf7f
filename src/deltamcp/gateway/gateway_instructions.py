"""The gateway's instructions to the model: excerpts of those of its upstreams, which are untrusted. Pure."""

from collections.abc import Mapping

from deltamcp.catalog import prose
from deltamcp.catalog.clean_text import clean

_ONE_CHARS = 2_000
"""Of the instructions of the only upstream."""
_LINE_CHARS = 120
"""Of the instructions of one of several."""
_ALL_CHARS = 600
"""Of those of all; some 150 tokens, which hosts put before every conversation."""


def gateway_instructions(texts: Mapping[str, str]) -> str | None:
    """Returns the instructions from those of upstreams by name, in the order of the configuration.

    Those of the only upstream are passed on up to a length. Of several, each has a line, until there is no room.
    """
    if len(texts) == 1:
        text = clean(next(iter(texts.values()))[: 2 * _ONE_CHARS]).strip()
        return (text if len(text) <= _ONE_CHARS else f"{text[: _ONE_CHARS - 1].rstrip()}…") or None
    lines: list[str] = []
    for name, text in texts.items():
        excerpt = prose.cut(" ".join(clean(text[:_ONE_CHARS]).split()), _LINE_CHARS)
        line = f"{name}: {excerpt}"
        if excerpt and sum(map(len, lines)) + len(line) <= _ALL_CHARS:
            lines.append(line)
    return "\n".join(["What servers say of themselves:", *lines]) if lines else None
