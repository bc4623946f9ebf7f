"""A kept result: how it is stored, and what of it may be asked for."""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import UnfitError
from deltamcp.results import document, grep
from deltamcp.results.document import Encoded, Units
from deltamcp.results.notes import RAW
from deltamcp.results.paginate import find_rows
from deltamcp.results.pointer import pointer, steps
from deltamcp.results.policy import ResultPolicy, Shaping, nearer
from deltamcp.results.project import are_of_rows, of_rows, project
from deltamcp.results.shape import raw, read, read_raw
from deltamcp.results.window import Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc


class Head(Struct, frozen=True, omit_defaults=True):
    """What is said of a result, before its bytes."""

    kind: Literal["text", "json"]
    rows: list[str] | None
    """Where its rows are, once the wanted fields are taken."""
    shaping: Shaping
    root: str = ""
    """What it is known by, where it may be the base of a delta."""
    deltas: int = 0
    """How many its caller was told it by, since it was sent whole."""
    is_part: bool = False
    """Only a part of it was shown."""
    first: int = 0
    """Where the first reply left off in what is read without a path; 0 where that is not where reading goes on."""


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """What `continue` is called with."""

    handle: str
    page: int | None = None
    offset: int | None = None
    path: str | None = None
    fields: list[str] | str | None = None
    grep: str | None = None


class Selection:
    """A part of a result that is read in windows."""

    def __init__(self, units: Units, path: str, starts: list[int]) -> None:
        """`path` is where in the result it is, `starts` where its pages begin, as far as they were turned."""
        self.units = units
        self.path = path
        self.starts = starts

    @functools.cached_property
    def raw(self) -> str:
        """Its JSON as a text."""
        return raw(self.units).decode()


_TURNED = 200
"""Pages turned at once on the way to one; each takes some milliseconds."""
_SELECTIONS = 8
"""Of one result at a time, for the pages that follow."""
_read_head = msgspec.json.Decoder(Head).decode


def pack(head: Head, data: str | bytes) -> bytes:
    """For a store, which keeps bytes."""
    said = msgspec.json.encode(head)
    return b"".join((len(said).to_bytes(4), said, data.encode() if isinstance(data, str) else data))


class Kept:
    """A result out of a store."""

    def __init__(self, packed: bytes) -> None:
        whole = memoryview(packed)
        begin = 4 + int.from_bytes(whole[:4])
        self._head = _read_head(whole[4:begin])
        self._data = whole[begin:]
        self._selections: dict[tuple[str | None, str, str | None], Selection] = {}

    @property
    def root(self) -> str:
        """Empty where it has none."""
        return self._head.root

    @property
    def deltas(self) -> int:
        """Since it was sent whole."""
        return self._head.deltas

    @property
    def is_part(self) -> bool:
        """Whether only a part of it was shown."""
        return self._head.is_part

    @property
    def shown(self) -> JSON:
        """What its caller was given of it: the fields that were wanted."""
        if self._head.kind == "text":
            return str(self._data, "utf-8")
        return document.decode(
            self._data if self._head.shaping.fields is None else projected(self._data, self._head.shaping)
        )

    @property
    def size(self) -> int:
        """In bytes."""
        return self._data.nbytes

    def bytes_at(self, path: str) -> int:
        """How much is at a path.

        Raises:
            UnfitError: there is nothing.
        """
        return len(document.at(self._data, steps(path))) if self._head.kind == "json" else self.size

    def part(self, path: str) -> JSON:
        """The value at a path.

        Raises:
            UnfitError: there is none.
        """
        if self._head.kind == "json":
            return document.decode(document.at(self._data, steps(path)))
        if path:
            raise UnfitError("This result is a text, which has no parts.")
        return str(self._data, "utf-8")

    def read(self, asked: Asked, wish: ResultPolicy | None = None) -> tuple[Window, str]:
        """A window, made to fit as the first reply was unless one wishes otherwise, and the path of what it is of.

        Raises:
            UnfitError: it cannot be read so; the text says why.
        """
        shaping = self._head.shaping if wish is None else nearer(wish, self._head.shaping)
        if asked.path is not None and asked.path.startswith(RAW):
            selection = self._select(replace(asked, path=asked.path.removeprefix(RAW)))
            start = _within(asked.offset or 0, len(selection.raw))
            return read_raw(selection.raw, start, shaping, selection.path), selection.path
        selection = self._select(asked)
        if asked.offset is not None:
            start = _within(asked.offset, len(selection.units))
            return read(selection.units, start, shaping, selection.path), selection.path
        # Pages are as long as they were made to be: who wishes for others turns others.
        starts = selection.starts if wish is None else [0]
        page = asked.page or min(2, len(starts))  # on from the first reply, where that is known
        start, until = _page(selection, starts, page, shaping)
        return read(selection.units, start, shaping, selection.path, until), selection.path

    def _select(self, asked: Asked) -> Selection:
        key = (asked.path, repr(asked.fields), asked.grep)
        if key not in self._selections:
            made = self._selected(asked)
            if len(self._selections) >= _SELECTIONS:
                self._selections.clear()
            self._selections[key] = made
        return self._selections[key]

    def _selected(self, asked: Asked) -> Selection:
        shaping = self._head.shaping
        if self._head.kind == "text":
            if asked.path or asked.fields:
                raise UnfitError("This result is a text, without paths; read on by offset, or search by grep.")
            text = str(self._data, "utf-8")
            return self._found(text, "", asked) if asked.grep else Selection(text, "", self._starts())
        if asked.path is None and asked.fields is None and not asked.grep:
            data = self._data if shaping.fields is None else projected(self._data, shaping)
            rows = self._head.rows or []
            return Selection(_units(document.at(data, rows)), pointer(*rows), self._starts())
        place = self._rows(asked.fields) if asked.path is None else steps(asked.path)
        part = document.at(self._data, place)
        if asked.grep:
            return self._found(_units(part), pointer(*place), asked)
        if asked.fields is not None:
            part = jsonrpc.encode(of_rows(document.decode(part), asked.fields, find_rows(part, None)))
        return Selection(_units(part), pointer(*place), [0])

    def _rows(self, fields: list[str] | str | None) -> list[str]:
        """Where something is asked for without a path: of the rows, but fields may be the whole's own."""
        rows = find_rows(self._data, self._head.shaping.rows) or []
        if rows and fields is not None and document.kind(self._data) == "object":
            return rows if are_of_rows(fields, document.members(self._data)) else []
        return rows

    def _starts(self) -> list[int]:
        return [0, self._head.first] if self._head.first else [0]

    def _found(self, units: Units, path: str, asked: Asked) -> Selection:
        """What holds some words, and of that the fields that are wanted."""
        found = grep.matching(units, asked.grep or "")
        if not found:
            everywhere = '; path="" searches all of it' if path and asked.path is None else ""
            return Selection(f"Nothing {f'in {path} ' if path else ''}holds that{everywhere}.", path, [0])
        if asked.fields is not None and isinstance(found, Mapping):
            fewer = project([document.decode(unit) for unit in found.values()], asked.fields)
            found = _units(jsonrpc.encode(fewer))
        return Selection(found, path, [0])


def projected(data: Encoded, shaping: Shaping) -> bytes:
    """Only the fields that are wanted of a result.

    Raises:
        UnfitError: they are given by an expression that is wrong.
    """
    assert shaping.fields is not None, "asked for only where fields are wanted"
    return jsonrpc.encode(of_rows(document.decode(data), shaping.fields, find_rows(data, shaping.rows)))


def wanted(data: str | bytes, shaping: Shaping) -> tuple[str | bytes, str]:
    """What is wanted of a result; all of it, and why, where an expression does not apply: the call is done by now."""
    if isinstance(data, str) or shaping.fields is None:
        return data, ""
    try:
        return projected(data, shaping), ""
    except UnfitError:
        return data, "The expression in fields does not apply. "


def _within(offset: int, total: int) -> int:
    if offset and offset >= total:
        raise UnfitError(f"offset must be below {total}.")
    return offset


def _page(selection: Selection, starts: list[int], page: int, shaping: Shaping) -> tuple[int, int | None]:
    """Where a page begins, and where it ends if it was turned before. Those before it are turned first."""
    if page > len(starts) + _TURNED:
        raise UnfitError(f"page {page} is too far ahead to be found; read on by offset.")
    while len(starts) < page:
        window = read(selection.units, starts[-1], shaping, selection.path)
        if window.next is None or window.unit == "JSON characters":
            raise UnfitError(f"page must be a number from 1 to {len(starts)}.")
        starts.append(window.next)
    return starts[page - 1], starts[page] if page < len(starts) else None


def _units(data: Encoded) -> Units:
    match document.kind(data):
        case "list":
            return document.items(data)
        case "object":
            return document.members(data)
        case "text":
            return str(document.decode(data))
        case _:
            return bytes(memoryview(data))


def read_asked(arguments: Mapping[str, JSON]) -> Asked:
    """
    Raises:
        UnfitError: they are not what `continue` takes.
    """
    given: dict[str, Any] = {key: value for key, value in arguments.items() if value is not None}
    if "session_id" in given:  # what the pattern's authors call it
        given.setdefault("handle", given.pop("session_id"))
    handle, slash, inside = str(given.get("handle", "")).partition("/")
    if slash and "path" not in given:  # as a reference has it
        given |= {"handle": handle, "path": slash + inside}
    for name in ("page", "offset"):
        text = given.get(name)
        if isinstance(text, str) and text.strip().isdecimal():
            given[name] = int(text.strip()[:18])
    try:
        asked = msgspec.convert(given, Asked)
    except msgspec.ValidationError as error:
        raise UnfitError(f"{error}. Pass handle, and what you need of page, offset, path, fields and grep.") from None
    if (asked.page is not None and asked.page < 1) or (asked.offset is not None and asked.offset < 0):
        raise UnfitError("page counts from 1, offset from 0.")
    return asked
