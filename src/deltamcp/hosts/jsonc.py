"""Reads JSON with comments and trailing commas, as editors write it."""

import re

_NOT_JSON = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?'
    rb"|//[^\n]*+|/\*.*?(?:\*/|\Z)"
    rb"|,(?=(?>\s++|//[^\n]*+|/\*.*?(?:\*/|\Z))*+[}\]])",
    re.DOTALL,
)
"""Matches strings, which stay, then comments and trailing commas. Unclosed strings and comments run to the end of the
file, so that matching takes linear time."""


def strip_comments(body: bytes) -> bytes:
    """Replaces comments and trailing commas by blanks, so that lines and columns stay the same."""

    def blank_out(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\n]", b" ", text)

    return _NOT_JSON.sub(blank_out, body)
