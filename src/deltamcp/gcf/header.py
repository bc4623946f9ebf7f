"""The first line of a GCF text, and what it announces (SPEC 3)."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Literal, TypeAlias

from deltamcp.gcf.errors import GcfError

Dialect: TypeAlias = Literal["v1", "v3"]
"""`v1` is the form of GCF's first guide, without a profile; `v3` is today's."""

Kind: TypeAlias = Literal[
    "graph", "graph-delta", "graph-unchanged", "generic", "generic-full", "generic-delta", "generic-unchanged"
]

V1_UNCHANGED_PREFIX = "unchanged pack_root="
"""How the v1 dialect says that nothing has changed: without a header."""

_KINDS: dict[tuple[str, str], Kind] = {
    ("graph", ""): "graph",
    ("graph", "delta"): "graph-delta",
    ("graph", "unchanged"): "graph-unchanged",
    ("generic", ""): "generic",
    ("generic", "key"): "generic-full",
    ("generic", "delta"): "generic-delta",
    ("generic", "unchanged"): "generic-unchanged",
}

_PROFILES = ("graph", "generic")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_TOKEN = re.compile(r"[\x21-\x7e]+").fullmatch
_COUNT = re.compile(r"0|[1-9][0-9]{0,17}").fullmatch


def check_token(what: str, text: str) -> str:
    """`text`, if it can stand between two spaces: nothing in this profile can be escaped (SPEC 4)."""
    if not _TOKEN(text):
        raise GcfError("invalid_token", f"{what} must be printable ASCII without spaces, and not empty: {text!a:.80}")
    return text


def check_count(what: str, number: int) -> int:
    """`number`, if it is a count."""
    if type(number) is not int or not 0 <= number < 10**18:
        raise GcfError("invalid_count", f"{what} must be a whole number from 0: {number!a:.80}")
    return number


def parse_count(what: str, text: str) -> int:
    """The count that `text` says."""
    if not _COUNT(text):
        raise GcfError("invalid_count", f"{what} is not a count: {text!a:.80}")
    return int(text)


def write_header(pairs: Iterable[tuple[str, object]]) -> str:
    """The header line of these fields, without its line end."""
    return " ".join(["GCF", *(f"{name}={check_token(name, str(value))}" for name, value in pairs)])


def savings(delta_tokens: int, full_tokens: int) -> str:
    """How much cheaper a delta is, in whole percent, rounded half to even on the exact quotient; negative if dearer."""
    if full_tokens <= 0:
        return "0%"
    return f"{round(Fraction(100 * (full_tokens - delta_tokens), full_tokens))}%"


def parse_header(line: str) -> dict[str, str]:
    """The fields of a header line. Without a profile it is of the v1 dialect, which always names its tool."""
    word, *pairs = line.split(" ")
    if word != "GCF":
        raise GcfError("missing_header", "the text does not begin with GCF", line=1)
    fields: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME(name) or not _TOKEN(value):
            raise GcfError("malformed_header_field", f"{pair!a:.80} is not key=value", line=1)
        if name in fields:
            raise GcfError("duplicate_header_field", name, line=1)
        fields[name] = value
    if next(iter(fields), "") != "profile" and ("profile" in fields or "tool" not in fields):
        raise GcfError("missing_profile", "the header does not begin with a profile", line=1)
    if fields.get("profile", "graph") not in _PROFILES:
        raise GcfError("unknown_profile", fields["profile"], line=1)
    return fields


def open_text(text: str, *kinds: Kind) -> tuple[dict[str, str], Iterator[tuple[int, str]]]:
    """The header's fields, and the numbered lines that follow it, if the text is one of these kinds."""
    lines = _numbered_lines(text)
    header = parse_header(next(lines)[1])
    if (kind := _header_kind(header)) not in kinds:
        raise GcfError("unknown_profile", f"a {kind} text where a {' or '.join(kinds)} text is read", line=1)
    return header, (
        (number, line) for number, line in lines if line.strip(" \t") and not line.lstrip(" ").startswith("# ")
    )


@contextmanager
def errors_at_line(number: int) -> Iterator[None]:
    """A fault found within is a fault of this line."""
    try:
        yield
    except GcfError as fault:
        message = str(fault).removeprefix(f"{fault.category}: ")
        raise GcfError(fault.category, message, line=number) from None


def kind_of(text: str) -> Kind:
    """What a text is, by its header alone; a GcfError if it has none."""
    if text.startswith(V1_UNCHANGED_PREFIX):
        return "graph-unchanged"
    return _header_kind(parse_header(next(_numbered_lines(text))[1]))


def _header_kind(header: dict[str, str]) -> Kind:
    profile = header.get("profile", "graph")
    if header.get("unchanged") == "true":
        return _KINDS[profile, "unchanged"]
    if header.get("delta") == "true":
        return _KINDS[profile, "delta"]
    return _KINDS[profile, "key" if profile == "generic" and "key" in header else ""]


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    # One line at a time: `text.split` would hold a second copy of a large text.
    start, number = 0, 1
    while True:
        end = text.find("\n", start)
        yield number, text[start : end if end >= 0 else len(text)].removesuffix("\r")
        if end < 0:
            return
        start, number = end + 1, number + 1
