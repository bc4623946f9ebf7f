"""JSON with comments and trailing commas, as editors have it."""

import re

_NOT_JSON = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?'
    rb"|//[^\n]*+|/\*.*?(?:\*/|\Z)"
    rb"|,(?=(?>\s++|//[^\n]*+|/\*.*?(?:\*/|\Z))*+[}\]])",
    re.DOTALL,
)
"""Strings, which stay, then comments and commas before an end. What never ends ends with the file, so it is linear."""


def strip_comments(body: bytes) -> bytes:
    """JSON of JSON with comments and trailing commas: blanks in their places, so that lines and columns hold."""

    def blank_out(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\n]", b" ", text)

    return _NOT_JSON.sub(blank_out, body)
