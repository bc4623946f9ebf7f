"""The header line of a GCF text, the lines that follow it (SPEC 3, 4), and the `unchanged` answer (SPEC 10.3).

Headers name contents by their roots: digests by `gcf-pack-root-v1` (SPEC 10.2, 10a.3).
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import Literal, TypeAlias

from deltamcp.gcf.scalars import GcfError

Dialect: TypeAlias = Literal["v1", "v3"]
"""`v1` is the first wire format, whose header has no profile; `v3` is the current one."""
Kind: TypeAlias = Literal[
    "graph", "graph-delta", "graph-unchanged", "generic", "generic-full", "generic-delta", "generic-unchanged"
]
V1_UNCHANGED_PREFIX = "unchanged pack_root="
"""The beginning of an `unchanged` answer in the v1 dialect, which has no header."""
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
GENERIC_HEADER = "GCF profile=generic"
MAX_DEPTH = 1_000
"""Levels to which sections may be nested. A section is an object, an array or a table with all its rows."""
_OTHER_DECODERS = {
    "delta": "the text is a generic delta: use decode_generic_delta",
    "unchanged": "the text is an unchanged answer: use decode_unchanged",
    "pack_root": "the text is a set that takes part in deltas: use decode_generic_full",
    "key": "the text is a set that takes part in deltas: use decode_generic_full",
}
_SKIPPABLE_SIGNS = ("\t", "\r", " \n", "\n# ", "  # ")
"""A text without these has no blank lines, comments or tab indentation. Measured: checking each line takes longer."""
_COUNT_FIELDS = {"graph": "symbols", "generic": "count"}
ALGORITHM = "sha256:"
MIN_DIGITS = 8
SHORT_DIGITS = 12
_HEX = re.compile(rf"(?:{ALGORITHM})?([0-9a-f]{{{MIN_DIGITS},64}})").fullmatch


def check_token(name: str, text: str) -> str:
    """Returns `text` if it can stand between two spaces; headers and graph lines have no escapes (SPEC 4)."""
    if not _TOKEN(text):
        raise GcfError("invalid_token", f"{name} must be printable ASCII without spaces, and not empty: {text!a:.80}")
    return text


def check_count(name: str, number: int) -> int:
    """Returns `number` if it is a valid count."""
    if type(number) is not int or not 0 <= number < 10**18:
        raise GcfError("invalid_count", f"{name} must be a whole number from 0: {number!a:.80}")
    return number


def parse_count(name: str, text: str) -> int:
    """Parses a count."""
    if not _COUNT(text):
        raise GcfError("invalid_count", f"{name} is not a count: {text!a:.80}")
    return int(text)


def savings(delta_tokens: int, full_tokens: int) -> str:
    """Returns the tokens that a delta saves, in percent of the full text; negative if it costs more.

    The exact quotient is rounded half to even.
    """
    if full_tokens <= 0:
        return "0%"
    return f"{round(Fraction(100 * (full_tokens - delta_tokens), full_tokens))}%"


def write_header(pairs: Iterable[tuple[str, object]]) -> str:
    """Returns the header line with these fields, without a line end."""
    return " ".join(["GCF", *(f"{name}={check_token(name, str(value))}" for name, value in pairs)])


def parse_header(line: str) -> dict[str, str]:
    """Parses the fields of a header line. A header without a profile is in the v1 dialect, and always has a tool."""
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
    """Returns the header's fields, and the numbered lines that follow it, without blank lines and comments.

    Raises:
        GcfError: the text is none of these kinds.
    """
    lines = _numbered_lines(text)
    header = parse_header(next(lines)[1])
    if (kind := _header_kind(header)) not in kinds:
        raise GcfError("unknown_profile", f"the text is {kind}, but {' or '.join(kinds)} is expected", line=1)
    return header, (
        (number, line) for number, line in lines if line.strip(" \t") and not line.lstrip(" ").startswith("# ")
    )


@contextmanager
def errors_at_line(number: int) -> Iterator[None]:
    """Adds this line's number to a `GcfError` that the body raises."""
    try:
        yield
    except GcfError as fault:
        message = str(fault).removeprefix(f"{fault.category}: ")
        raise GcfError(fault.category, message, line=number) from None


def kind_of(text: str) -> Kind:
    """Returns the kind of a text, which its header tells.

    Raises:
        GcfError: the text has no header.
    """
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
    # `text.split` would hold a second copy of a large text.
    start, number = 0, 1
    while True:
        end = text.find("\n", start)
        yield number, text[start : end if end >= 0 else len(text)].removesuffix("\r")
        if end < 0:
            return
        start, number = end + 1, number + 1


class ContentLines:
    """The lines after the header of a text in the generic profile, without blank lines and comments.

    An empty line marks the end.
    """

    def __init__(self, text: str | bytes, *, headed: bool = True) -> None:
        text = _decode_text(text)
        self.lines: list[str] = text.split("\n")
        if "\r" in text:
            self.lines = [line.removesuffix("\r") for line in self.lines]
        if headed:
            _check_header(self.lines[0])
        self._first = 2 if headed else 1
        self.lines = self.lines[self._first - 1 :]
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self._numbers: list[int] | None = None
        if not all(self.lines) or text[-1:] == " " or text[:1] == "#" or any(sign in text for sign in _SKIPPABLE_SIGNS):
            content = [
                (number, line) for number, line in enumerate(self.lines, self._first) if _is_content(number, line)
            ]
            self._numbers = [number for number, _ in content]
            self.lines = [line for _, line in content]
        self.lines.append("")

    def line_number(self, place: int) -> int:
        """Returns the number, from 1, that `lines[place]` has in the text; past the end, that of the last line."""
        place = min(place, len(self.lines) - 2)
        return place + self._first if self._numbers is None else self._numbers[place]


def _decode_text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise GcfError("invalid_utf8", f"byte {fault.start} is not valid UTF-8") from None
    try:
        text.isascii() or text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise GcfError("invalid_surrogate", f"character {fault.start} is half of a surrogate pair") from None
    return text


def _check_header(line: str) -> None:
    header = parse_header(line)
    if "profile" not in header:
        raise GcfError("missing_profile", "the header does not begin with a profile", line=1)
    if header["profile"] == "graph":
        raise GcfError("graph_profile", "the text is a graph: use decode or decode_delta", line=1)
    for name, reason in _OTHER_DECODERS.items():
        if name in header:
            raise GcfError("participating_payload", reason, line=1)


def _is_content(number: int, line: str) -> bool:
    content = line.lstrip(" ")
    if content[:1] == "\t" and content.strip(" \t"):
        raise GcfError("tab_indentation", "lines are indented by spaces", line=number)
    return bool(content.strip(" \t")) and not content.startswith("# ")


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The contents with this root have not changed. `count` is the number of their symbols or rows."""

    pack_root: str
    count: int
    tool: str = ""
    profile: Literal["graph", "generic"] = "graph"


def encode_unchanged(answer: Unchanged, *, dialect: Dialect = "v3") -> str:
    """Encodes the answer. The v1 dialect writes it without a header, and has none for keyed sets."""
    count = check_count("count", answer.count)
    if dialect == "v1":
        if answer.profile != "graph":
            raise GcfError("unknown_profile", "the v1 dialect has no generic deltas")
        return f"{V1_UNCHANGED_PREFIX}{check_token('pack_root', answer.pack_root)} symbols={count}\n"
    pairs: list[tuple[str, object]] = [("profile", answer.profile)]
    if answer.tool:
        pairs.append(("tool", answer.tool))
    pairs += [("unchanged", "true"), ("pack_root", answer.pack_root), (_COUNT_FIELDS[answer.profile], count)]
    return write_header(pairs) + "\n"


def decode_unchanged(text: str) -> Unchanged:
    """Decodes an `unchanged` answer of either dialect."""
    if text.startswith(V1_UNCHANGED_PREFIX):
        words = text.rstrip("\r\n").split(" ")
        if len(words) != 3 or not words[2].startswith("symbols="):
            raise GcfError("malformed_header_field", f"{text!a:.80}", line=1)
        root = check_token("pack_root", words[1].removeprefix("pack_root="))
        return Unchanged(root, parse_count("symbols", words[2].removeprefix("symbols=")))
    header, lines = open_text(text, "graph-unchanged", "generic-unchanged")
    for number, _ in lines:
        raise GcfError("trailing_characters", "an unchanged answer has no lines after its header", line=number)
    profile: Literal["graph", "generic"] = "generic" if header.get("profile") == "generic" else "graph"
    if not header.keys() >= {"pack_root", count_field := _COUNT_FIELDS[profile]}:
        raise GcfError("malformed_header_field", f"pack_root or {count_field} is missing", line=1)
    return Unchanged(
        header["pack_root"], parse_count(count_field, header[count_field]), header.get("tool", ""), profile
    )


def short_root(root: str, digits: int = SHORT_DIGITS) -> str:
    """Returns the first digits of a root: 12 digits cost 7 tokens, the full root 39 (measured, o200k)."""
    if digits < MIN_DIGITS:
        raise ValueError(f"a root has at least {MIN_DIGITS} digits")
    return root.removeprefix(ALGORITHM)[:digits]


def root_matches(root: str, written: str) -> bool:
    """Returns whether `written`, a full root or its first digits (at least 8), is this root."""
    found = _HEX(written)
    return written == root or (found is not None and root.removeprefix(ALGORITHM).startswith(found[1]))


def record(*parts: str) -> bytes:
    """Returns the line that stands for a symbol, an edge or a row in a root."""
    line = "\t".join(parts)
    if "\n" in line or line.count("\t") >= len(parts):
        raise GcfError("invalid_token", f"a root cannot include a name with a tab or a line end: {line!a:.80}")
    return utf8(line + "\n")


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise GcfError("invalid_surrogate", "half of a surrogate pair is not Unicode text") from None


def digest(records: bytes) -> str:
    return ALGORITHM + sha256(records).hexdigest()
