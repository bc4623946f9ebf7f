"""Edits the members of one object in a JSON text, with or without comments, and leaves every other character alone.

A text is what a file contains, decoded, with its line ends and its byte order mark. Comments and trailing commas are
those that `strip_comments` reads.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

_BLANK = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_SPACES = re.compile(r"[ \t]*+")
_LINE_END = re.compile(r"\r?\n")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"/]++")
_NESTING = re.compile(r'"(?:[^"\\]++|\\.)*+"|//[^\n]*+|/\*.*?\*/|[\[\]{}]', re.DOTALL)
_INDENT = re.compile(r"^(\t+|[ ]+)\S", re.MULTILINE)
_NOT_JSON = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?'
    rb"|//[^\n]*+|/\*.*?(?:\*/|\Z)"
    rb"|,(?=(?>\s++|//[^\n]*+|/\*.*?(?:\*/|\Z))*+[}\]])",
    re.DOTALL,
)
"""Matches strings, which stay, then comments and trailing commas. Unclosed strings and comments run to the end of the
file, so that matching takes linear time."""


class Member(NamedTuple):
    """Where a member of an object is in a text."""

    name: str
    start: int
    """The index of the quote that opens its name."""
    value_start: int
    end: int
    """The index after its value."""
    comma: int | None
    """The index of the comma after it."""


class ObjectPlace(NamedTuple):
    """Where an object is in a text."""

    start: int
    end: int
    """The index of the brace that closes it."""
    members: tuple[Member, ...]


class _Cut(NamedTuple):
    start: int
    end: int
    text: str = ""


def parse(text: str) -> JSON:
    """Returns the value of a text; an empty one is an empty object, as it is to the hosts.

    Raises:
        ConfigurationError: the text is not JSON.
    """
    try:
        stripped = strip_comments(text.encode()).decode("utf-8-sig")
        return json.loads(stripped) if stripped.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"it is not JSON: {str(error)[:200]}") from None


def find_object(text: str, path: Sequence[str]) -> ObjectPlace | None:
    """Returns the place of the object that the names of a path lead to; None if there is none.

    Raises:
        ConfigurationError: the text is not JSON.
    """
    place = _object_at(text, _skip_blank(text, 0))
    for name in path:
        if place is None:
            return None
        member = next((member for member in reversed(place.members) if member.name == name), None)
        place = member and _object_at(text, member.value_start)
    return place


def member_texts(text: str, path: Sequence[str]) -> dict[str, str]:
    """Returns the texts of an object's members, each with its name, as they are written.

    Raises:
        ConfigurationError: the text is not JSON.
    """
    place = find_object(text, path)
    return {member.name: text[member.start : member.end] for member in place.members} if place else {}


def repeated_names(text: str, path: Sequence[str]) -> set[str]:
    """Returns the names that an object has more than once, of which programs see the last."""
    place = find_object(text, path)
    names = [member.name for member in place.members] if place else []
    return {name for name in names if names.count(name) > 1}


def make_member(name: str, value: JSON, text: str, path: Sequence[str]) -> str:
    """Returns the text of a new member, laid out as the members of the object at the path are."""
    place = find_object(text, path)
    written = f"{json.dumps(name, ensure_ascii=False)}: "
    if place and place.members and not _starts_line(text, place.members[0].start):
        return written + json.dumps(value, ensure_ascii=False)
    unit = _indent_unit(text)
    if place and place.members:
        indent = _line_indent(text, place.members[0].start)
    elif place:
        indent = _line_indent(text, place.start) + unit
    else:
        indent = unit * (len(path) + 1)
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return written + f"{line_end(text)}{indent}".join(lines)


def edit_members(
    text: str, path: Sequence[str], replaced: Mapping[str, Sequence[str]], added: Sequence[str] = ()
) -> str:
    """Returns the text with some members of the object at the path replaced, and others added at its end.

    Args:
        replaced: by the name of a member, the texts of those that come in its place; none to remove it.
        added: texts of members. Objects on the path that are missing are made for them.

    Raises:
        ConfigurationError: the text is not JSON, or something else than an object is on the path.
    """
    place = find_object(text, path)
    if place is None:
        return _add_object(text, path, added) if added else text
    cuts: list[_Cut] = []
    kept: list[Member] = []
    for member in place.members:
        if member.name not in replaced:
            kept.append(member)
        elif texts := replaced[member.name]:
            cuts.append(_Cut(member.start, member.end, ("," + _separator(text, member.start)).join(texts)))
            kept.append(member)
        else:
            cuts += _removal(text, member)
    has_last_comma = bool(place.members) and place.members[-1].comma is not None
    last_comma = kept[-1].comma if kept else None
    if added:
        cuts += _addition(text, place, kept, has_last_comma, added)
    elif last_comma is not None and not has_last_comma:
        cuts.append(_Cut(last_comma, last_comma + 1))
    pieces, at = [], 0
    for cut in sorted(cuts, key=lambda cut: cut[:2]):
        pieces += [text[at : cut.start], cut.text]
        at = cut.end
    return "".join([*pieces, text[at:]])


def _removal(text: str, member: Member) -> list[_Cut]:
    """Returns what is cut to remove a member: its line or lines where it has them to itself, and its comma."""
    starts_line = _starts_line(text, member.start)
    start = _line_start(text, member.start) if starts_line else member.start
    end = member.end if member.comma is None else member.comma + 1
    cuts = []
    if member.comma is not None and text[member.end : member.comma].strip():  # a comment is between value and comma
        cuts.append(_Cut(member.comma, member.comma + 1))
        end = member.end
    after = _skip(_SPACES, text, end)
    found = _LINE_END.match(text, after)
    if starts_line and found:
        return [*cuts, _Cut(start, found.end())]
    return [*cuts, _Cut(member.start, end if found else after)]


def _addition(
    text: str, place: ObjectPlace, kept: Sequence[Member], has_last_comma: bool, added: Sequence[str]
) -> list[_Cut]:
    """Returns what is inserted to add members behind all that the object contains, also behind comments."""
    before = len(text[: place.end].rstrip())
    closes_line = _LINE_END.search(text, before, place.end) is not None
    closing = ""
    if place.members:
        anchor = place.members[-1].start
        separator = line_end(text) + _line_indent(text, anchor) if closes_line else _separator(text, anchor)
    elif place.start and not _LINE_END.search(text):
        separator = ""  # a text of one line stays one
    else:
        outer = _line_indent(text, place.start)
        separator = line_end(text) + outer + _indent_unit(text)
        closing = "" if closes_line else line_end(text) + outer
    written = separator + ("," + separator).join(added) + ("," if has_last_comma else "") + closing
    needs_comma = bool(kept) and kept[-1].comma is None
    return [*([_Cut(kept[-1].end, kept[-1].end, ",")] if needs_comma else []), _Cut(before, before, written)]


def _add_object(text: str, path: Sequence[str], added: Sequence[str]) -> str:
    """Adds the members in new objects below the deepest object on the path that exists."""
    depth = len(path)
    while depth and find_object(text, path[:depth]) is None:
        depth -= 1
    outer = find_object(text, path[:depth])
    if outer is None:
        if text.strip("\ufeff \t\r\n"):
            raise ConfigurationError("it is not an object")
        text += "{}" + line_end(text)
        return _add_object(text, path, added)
    if path[depth] in (member.name for member in outer.members):
        raise ConfigurationError(f"its {path[depth]} is not an object")
    text = edit_members(text, path[:depth], {}, [f"{json.dumps(path[depth], ensure_ascii=False)}: {{}}"])
    return edit_members(text, path, {}, added)


def _object_at(text: str, start: int) -> ObjectPlace | None:
    """
    Raises:
        ConfigurationError: the text of the object is not JSON.
    """
    if text[start : start + 1] != "{":
        return None
    members: list[Member] = []
    at = _skip_blank(text, start + 1)
    while text[at : at + 1] != "}":
        name = _STRING.match(text, at)
        if not name:
            raise _fault(text, at)
        colon = _skip_blank(text, name.end())
        if text[colon : colon + 1] != ":":
            raise _fault(text, colon)
        value_start = _skip_blank(text, colon + 1)
        end = _skip_value(text, value_start)
        at = _skip_blank(text, end)
        comma = at if text[at : at + 1] == "," else None
        members.append(Member(json.loads(name[0], strict=False), name.start(), value_start, end, comma))
        if comma is not None:
            at = _skip_blank(text, comma + 1)
        elif text[at : at + 1] != "}":
            raise _fault(text, at)
    return ObjectPlace(start, at, tuple(members))


def _skip_value(text: str, start: int) -> int:
    if text[start : start + 1] not in ("{", "["):
        scalar = _STRING.match(text, start) or _SCALAR.match(text, start)
        if not scalar:
            raise _fault(text, start)
        return scalar.end()
    depth = 0
    for token in _NESTING.finditer(text, start):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if not depth:
            return token.end()
    raise _fault(text, len(text))


def _fault(text: str, at: int) -> ConfigurationError:
    return ConfigurationError(f"it is not JSON: line {text.count(chr(10), 0, at) + 1} is not as it should be")


def _skip(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _skip_blank(text: str, start: int) -> int:
    return _skip(_BLANK, text, start)


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _starts_line(text: str, at: int) -> bool:
    return not text[_line_start(text, at) : at].strip(" \t\ufeff")


def _line_indent(text: str, at: int) -> str:
    start = _line_start(text, at)
    return text[start : _skip(_SPACES, text, start)]


def _separator(text: str, member_start: int) -> str:
    """Returns what stands before a member that follows another: the indentation on a line of its own, or a blank."""
    return line_end(text) + _line_indent(text, member_start) if _starts_line(text, member_start) else " "


def line_end(text: str) -> str:
    """Returns how lines of a text end."""
    first = _LINE_END.search(text)
    return first[0] if first else "\n"


def _indent_unit(text: str) -> str:
    first = _INDENT.search(text)
    return first[1] if first else "  "


def strip_comments(body: bytes) -> bytes:
    """Replaces comments and trailing commas by blanks, so that lines and columns stay the same."""

    def blank_out(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\n]", b" ", text)

    return _NOT_JSON.sub(blank_out, body)
