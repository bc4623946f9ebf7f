"""A kept result: how it is stored, and what of it may be asked for."""

import functools
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import UnfitError
from deltamcp.results import document, grep
from deltamcp.results.document import RawJSON, Units
from deltamcp.results.notes import RAW_PREFIX
from deltamcp.results.pagination import find_rows
from deltamcp.results.pointer import parse_path, pointer
from deltamcp.results.policy import ResolvedPolicy, ResultPolicy, override_policy
from deltamcp.results.projection import are_row_fields, project, project_rows
from deltamcp.results.result_windows import read_raw_window, read_window, units_json
from deltamcp.results.window import Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc


class StoredHeader(Struct, frozen=True, omit_defaults=True):
    """What is said of a result, before its bytes."""

    kind: Literal["text", "json"]
    rows: list[str] | None
    """Where its rows are, once the wanted fields are taken."""
    policy: ResolvedPolicy
    root: str = ""
    """What it is known by, where it may be the base of a delta."""
    deltas: int = 0
    """How many its caller was told it by, since it was sent whole."""
    is_part: bool = False
    """Only a part of it was shown."""
    first: int = 0
    """Where the first reply left off in what is read without a path; 0 where that is not where reading goes on."""


class ContinueArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What `continue` is called with."""

    handle: str
    page: int | None = None
    offset: int | None = None
    path: str | None = None
    fields: list[str] | str | None = None
    grep: str | None = None


class Selection:
    """A part of a result that is read in windows."""

    def __init__(self, units: Units, path: str, page_starts: list[int]) -> None:
        """`path` is where in the result it is, `starts` where its pages begin, as far as they were turned."""
        self.units = units
        self.path = path
        self.page_starts = page_starts

    @functools.cached_property
    def json_text(self) -> str:
        """Its JSON as a text."""
        return units_json(self.units).decode()


_MAX_PAGES_AHEAD = 200
"""Pages turned at once on the way to one; each takes some milliseconds."""
_MAX_SELECTIONS = 8
"""Of one result at a time, for the pages that follow."""
_decode_header = msgspec.json.Decoder(StoredHeader).decode


def pack_result(header: StoredHeader, data: str | bytes) -> bytes:
    """For a store, which keeps bytes."""
    said = msgspec.json.encode(header)
    return b"".join((len(said).to_bytes(4), said, data.encode() if isinstance(data, str) else data))


class StoredResult:
    """A result out of a store."""

    def __init__(self, packed: bytes) -> None:
        whole = memoryview(packed)
        begin = 4 + int.from_bytes(whole[:4])
        self._header = _decode_header(whole[4:begin])
        self._data = whole[begin:]
        self._selections: dict[tuple[str | None, str, str | None], Selection] = {}

    @property
    def root(self) -> str:
        """Empty where it has none."""
        return self._header.root

    @property
    def deltas(self) -> int:
        """Since it was sent whole."""
        return self._header.deltas

    @property
    def is_part(self) -> bool:
        """Whether only a part of it was shown."""
        return self._header.is_part

    @property
    def shown_value(self) -> JSON:
        """What its caller was given of it: the fields that were wanted."""
        if self._header.kind == "text":
            return str(self._data, "utf-8")
        return document.decode(
            self._data if self._header.policy.fields is None else project_fields(self._data, self._header.policy)
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
        return len(document.at(self._data, parse_path(path))) if self._header.kind == "json" else self.size

    def value_at(self, path: str) -> JSON:
        """The value at a path.

        Raises:
            UnfitError: there is none.
        """
        if self._header.kind == "json":
            return document.decode(document.at(self._data, parse_path(path)))
        if path:
            raise UnfitError("This result is a text, which has no parts.")
        return str(self._data, "utf-8")

    def read(self, arguments: ContinueArguments, requested: ResultPolicy | None = None) -> tuple[Window, str]:
        """A window, made to fit as the first reply was unless one wishes otherwise, and the path of what it is of.

        Raises:
            UnfitError: it cannot be read so; the text says why.
        """
        policy = self._header.policy if requested is None else override_policy(requested, self._header.policy)
        if arguments.path is not None and arguments.path.startswith(RAW_PREFIX):
            selection = self._select(replace(arguments, path=arguments.path.removeprefix(RAW_PREFIX)))
            start = _check_offset(arguments.offset or 0, len(selection.json_text))
            return read_raw_window(selection.json_text, start, policy, selection.path), selection.path
        selection = self._select(arguments)
        if arguments.offset is not None:
            start = _check_offset(arguments.offset, len(selection.units))
            return read_window(selection.units, start, policy, selection.path), selection.path
        # Pages are as long as they were made to be: who wishes for others turns others.
        starts = selection.page_starts if requested is None else [0]
        page = arguments.page or min(2, len(starts))  # on from the first reply, where that is known
        start, until = _page_span(selection, starts, page, policy)
        return read_window(selection.units, start, policy, selection.path, until), selection.path

    def _select(self, arguments: ContinueArguments) -> Selection:
        key = (arguments.path, repr(arguments.fields), arguments.grep)
        if key not in self._selections:
            made = self._make_selection(arguments)
            if len(self._selections) >= _MAX_SELECTIONS:
                self._selections.clear()
            self._selections[key] = made
        return self._selections[key]

    def _make_selection(self, arguments: ContinueArguments) -> Selection:
        policy = self._header.policy
        if self._header.kind == "text":
            if arguments.path or arguments.fields:
                raise UnfitError("This result is a text, without paths; read on by offset, or search by grep.")
            text = str(self._data, "utf-8")
            return (
                self._grep_selection(text, "", arguments)
                if arguments.grep
                else Selection(text, "", self._page_starts())
            )
        if arguments.path is None and arguments.fields is None and not arguments.grep:
            data = self._data if policy.fields is None else project_fields(self._data, policy)
            rows = self._header.rows or []
            return Selection(_split_units(document.at(data, rows)), pointer(*rows), self._page_starts())
        place = self._rows_path(arguments.fields) if arguments.path is None else parse_path(arguments.path)
        part = document.at(self._data, place)
        if arguments.grep:
            return self._grep_selection(_split_units(part), pointer(*place), arguments)
        if arguments.fields is not None:
            part = jsonrpc.encode(project_rows(document.decode(part), arguments.fields, find_rows(part, None)))
        return Selection(_split_units(part), pointer(*place), [0])

    def _rows_path(self, fields: list[str] | str | None) -> list[str]:
        """Where something is asked for without a path: of the rows, but fields may be the whole's own."""
        rows = find_rows(self._data, self._header.policy.rows) or []
        if rows and fields is not None and document.kind(self._data) == "object":
            return rows if are_row_fields(fields, document.members(self._data)) else []
        return rows

    def _page_starts(self) -> list[int]:
        return [0, self._header.first] if self._header.first else [0]

    def _grep_selection(self, units: Units, path: str, arguments: ContinueArguments) -> Selection:
        """What holds some words, and of that the fields that are wanted."""
        found = grep.matching_units(units, arguments.grep or "")
        if not found:
            everywhere = '; path="" searches all of it' if path and arguments.path is None else ""
            return Selection(f"Nothing {f'in {path} ' if path else ''}holds that{everywhere}.", path, [0])
        if arguments.fields is not None and isinstance(found, Mapping):
            fewer = project([document.decode(unit) for unit in found.values()], arguments.fields)
            found = _split_units(jsonrpc.encode(fewer))
        return Selection(found, path, [0])


def project_fields(data: RawJSON, policy: ResolvedPolicy) -> bytes:
    """Only the fields that are wanted of a result.

    Raises:
        UnfitError: they are given by an expression that is wrong.
    """
    assert policy.fields is not None, "asked for only where fields are wanted"
    return jsonrpc.encode(project_rows(document.decode(data), policy.fields, find_rows(data, policy.rows)))


def select_fields(data: str | bytes, policy: ResolvedPolicy) -> tuple[str | bytes, str]:
    """What is wanted of a result; all of it, and why, where an expression does not apply: the call is done by now."""
    if isinstance(data, str) or policy.fields is None:
        return data, ""
    try:
        return project_fields(data, policy), ""
    except UnfitError:
        return data, "The expression in fields does not apply. "


def _check_offset(offset: int, total: int) -> int:
    if offset and offset >= total:
        raise UnfitError(f"offset must be below {total}.")
    return offset


def _page_span(selection: Selection, starts: list[int], page: int, policy: ResolvedPolicy) -> tuple[int, int | None]:
    """Where a page begins, and where it ends if it was turned before. Those before it are turned first."""
    if page > len(starts) + _MAX_PAGES_AHEAD:
        raise UnfitError(f"page {page} is too far ahead to be found; read on by offset.")
    while len(starts) < page:
        window = read_window(selection.units, starts[-1], policy, selection.path)
        if window.next is None or window.unit == "JSON characters":
            raise UnfitError(f"page must be a number from 1 to {len(starts)}.")
        starts.append(window.next)
    return starts[page - 1], starts[page] if page < len(starts) else None


def _split_units(data: RawJSON) -> Units:
    match document.kind(data):
        case "list":
            return document.items(data)
        case "object":
            return document.members(data)
        case "text":
            return str(document.decode(data))
        case _:
            return bytes(memoryview(data))


def parse_continue_arguments(arguments: Mapping[str, JSON]) -> ContinueArguments:
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
        parsed = msgspec.convert(given, ContinueArguments)
    except msgspec.ValidationError as error:
        raise UnfitError(f"{error}. Pass handle, and what you need of page, offset, path, fields and grep.") from None
    if (parsed.page is not None and parsed.page < 1) or (parsed.offset is not None and parsed.offset < 0):
        raise UnfitError("page counts from 1, offset from 0.")
    return parsed
