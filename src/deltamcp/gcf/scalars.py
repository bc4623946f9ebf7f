"""Scalars, keys and quoted strings, the lexical layer that both GCF profiles share (SPEC 2); and their error."""

import re
from decimal import Decimal
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any


class GcfError(ValueError):
    """A text is not GCF, or GCF cannot carry a value. `category` is the specification's name of the error."""

    def __init__(self, category: str, message: str, *, line: int = 0) -> None:
        where = f"line {line}: " if line else ""
        super().__init__(f"{where}{category}: {message}")
        self.category = category
        self.message = message
        self.line = line


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_PLAIN_MAX = 2.0**53
_PLAIN_MIN = 1e-6

_SPECIAL = (
    r'"\\|,\x00-\x1f\x80-\x9f\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff'
    r"\ud800-\udfff"  # halves of surrogate pairs, which `quote` refuses
)
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"

_QUICK_BARE = re.compile(
    rf"(?!(?:true|false|{_NUMBER})\Z|0[0-9])[^\[ #@.+\-~^{_SPECIAL}][^\[{_SPECIAL}]*(?<! )"
).fullmatch
_QUICK_QUOTED = re.compile(rf"[{_SPECIAL}]").search

_NEEDS_QUOTES = re.compile(
    rf"\A(?:|[-~^]|true|false|\^\{{.*\}}|{_NUMBER})\Z"
    rf"|\A[ #@.]|\A[+-]\.?[0-9]|\A0[0-9]| \Z|\[[^\[\]]*\]\s*+:|[{_SPECIAL}]",
    re.DOTALL,
).search
"""The quoting obligation (SPEC 2.4), with `|` and `,` quoted in every context as the reference does."""

IS_NUMBER = re.compile(_NUMBER).fullmatch

BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SURROGATE = re.compile(r"[\ud800-\udfff]").search

_WORDS: dict[str, Any] = {"-": None, "true": True, "false": False}
_MARKERS = {"~": "invalid_missing", "^": "invalid_attachment_marker"}

_QUOTE_FAULTS = {
    "Unterminated": "unterminated_quote",
    "Invalid \\": "invalid_escape",
    "Invalid control": "invalid_character",
}


def quote(text: str) -> str:
    """Returns `text` as a quoted string."""
    if not text.isascii() and _SURROGATE(text):
        raise GcfError("invalid_surrogate", "half of a surrogate pair is not Unicode text")
    return encode_basestring(text)


def quote_if_needed(text: str) -> str:
    """Returns `text` as it is where a reader takes it for the same string, quoted otherwise."""
    # Measured: the full rule takes ten times as long as the two patterns that decide nearly every string.
    if _QUICK_BARE(text):
        return text
    return quote(text) if _QUICK_QUOTED(text) or _NEEDS_QUOTES(text) else text


def format_number(value: int | float) -> str:
    """Returns the canonical form of a number: all its digits, without an exponent from 1e-6 to 2^53 (SPEC 2.3.1)."""
    if isinstance(value, int):
        if not INT64_MIN <= value <= INT64_MAX:
            raise GcfError("out_of_range", "an integer has more than 64 bits")
        return int.__repr__(value)
    digits = float.__repr__(value)
    if "n" in digits:
        raise GcfError("out_of_range", f"{digits} is not a JSON number")
    if not value:
        return "0"
    size = abs(value)
    if size >= _PLAIN_MAX or size < _PLAIN_MIN:
        return _exponent_form(digits)
    if digits.endswith(".0"):
        return digits[:-2]
    return format(Decimal(digits), "f") if "e" in digits else digits


def _exponent_form(digits: str) -> str:
    sign, figures, exponent = Decimal(digits).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, figures)
    point = "." if rest else ""
    return f"{'-' if sign else ''}{first}{point}{''.join(rest)}e{exponent + len(rest):+d}"


def format_scalar(value: Any) -> str:
    """Returns the canonical form of a null, boolean, number or string.

    Raises:
        GcfError: the value is none of these.
    """
    if isinstance(value, str):
        return quote_if_needed(str.__str__(value))
    return _format_non_string(value)


def canonical_cell(value: Any) -> str:
    """Returns a scalar in the form that roots and sort orders use: strings are always quoted (SPEC 10a)."""
    if isinstance(value, str):
        return quote(str.__str__(value))
    return _format_non_string(value)


def _format_non_string(value: Any) -> str:
    if value is None:
        return "-"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return format_number(value)
    raise GcfError("unsupported_value", f"{type(value).__name__} is not a JSON scalar")


def format_key(name: Any) -> str:
    """Returns the name of a member or column, quoted unless it is a single word (SPEC 2a.1)."""
    if not isinstance(name, str):
        raise GcfError("unsupported_value", f"a member's name is a string, not {type(name).__name__}")
    return name if BARE_KEY.fullmatch(name) else quote(name)


def parse_scalar(token: str) -> Any:
    """Parses a scalar. `~` and `^` have a meaning in table cells only, and are errors here."""
    token = token.strip(" \t")
    if token in _WORDS:
        return _WORDS[token]
    if token[:1] == '"':
        text, end = parse_quoted(token, 0)
        if end != len(token):
            raise GcfError("trailing_characters", "text goes on after the closing quote")
        return text
    if token in _MARKERS:
        raise GcfError(_MARKERS[token], f"{token} is valid in table cells only")
    return parse_number(token) if IS_NUMBER(token) else token


def parse_number(token: str) -> int | float:
    """Parses a token of JSON's number grammar."""
    if "." in token or "e" in token or "E" in token:
        value = float(token)
        if value in (float("inf"), float("-inf")):
            raise GcfError("out_of_range", "a number is too large for a double")
        return value
    # Python refuses to parse integers of more than 4,300 digits; every 64-bit integer fits into 20 characters.
    if len(token) > 20 or not INT64_MIN <= (whole := int(token)) <= INT64_MAX:
        raise GcfError("out_of_range", "an integer has more than 64 bits")
    return whole


def parse_quoted(text: str, start: int) -> tuple[str, int]:
    """Parses the string whose opening quote is at `start`; return it and the index after its closing quote."""
    try:
        value, end = scanstring(text, start + 1, True)
    except JSONDecodeError as fault:
        category = next(name for words, name in _QUOTE_FAULTS.items() if fault.msg.startswith(words))
        raise GcfError(category, "a quoted string is malformed") from None
    if not value.isascii() and _SURROGATE(value):
        raise GcfError("invalid_surrogate", "half of a surrogate pair is not Unicode text")
    return value, end


def parse_key(text: str, start: int = 0) -> tuple[str, int]:
    """Parses the bare or quoted name that begins at `start`; return it and the index after it."""
    if text[start : start + 1] == '"':
        return parse_quoted(text, start)
    if not (bare := BARE_KEY.match(text, start)):
        raise GcfError("malformed_key", "a name is a word or a quoted string")
    return bare.group(), bare.end()
