"""The format in which the server stores a result, and the windows that `continue` reads from it."""

import functools
import hashlib
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from deltamcp.errors import UsageError
from deltamcp.results import changes, document, truncation
from deltamcp.results.document import PackedItems, PickedItems, RawJSON, Units, find_rows, parse_path, pointer
from deltamcp.results.policy import ResolvedPolicy, ResultPolicy, override_policy
from deltamcp.results.queries.query import Query, run_query
from deltamcp.results.shown_result import PREVIEW_TOKENS, ShownResult, StoredHeader, select
from deltamcp.results.value_shape import page_sentence
from deltamcp.results.window import RAW_PREFIX, ContinuationNote, Frame, Window
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work


def read_window(
    units: Units, start: int, policy: ResolvedPolicy, path: str, work: Work, until: int | None = None, problem: str = ""
) -> Window:
    """Returns a window of the units at `path`, from `start` to at most `until`; its note begins with the problem.

    Where not even one unit fits, or the value is a scalar, the window shows the JSON as characters from the beginning.
    """
    if until is not None:
        policy = replace(policy, page_size=until - start)
    frame = _continuation_frame(policy, path, problem, work)
    if isinstance(units, str):
        return truncation.text_window(units, start, "characters", frame, until=until)
    window: Window | None = None
    if isinstance(units, Mapping):
        window = truncation.members_window(units, start, frame)
    elif not isinstance(units, bytes):
        window = truncation.rows_window(units, start, truncation.BARE_ROWS, frame)
    return window or read_raw_window(units_json(units).decode(), 0, policy, path, work, problem)


def read_raw_window(text: str, start: int, policy: ResolvedPolicy, path: str, work: Work, problem: str = "") -> Window:
    """Returns a window of the JSON at `path` as characters, from the character at `start` on."""
    return truncation.text_window(text, start, "JSON characters", _continuation_frame(policy, path, problem, work))


def _continuation_frame(policy: ResolvedPolicy, path: str, problem: str, work: Work) -> Frame:
    return Frame(policy, ContinuationNote(path, policy.max_tokens, problem), work)


def units_json(units: Units) -> bytes:
    """Encodes units as JSON."""
    if isinstance(units, bytes):
        return units
    if isinstance(units, document.PackedItems):
        return units.json
    if isinstance(units, Mapping):
        return jsonrpc.encode({key: Raw(memoryview(unit)) for key, unit in units.items()})
    return jsonrpc.encode(units if isinstance(units, str) else [Raw(memoryview(unit)) for unit in units])


class ContinueArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `continue`."""

    handle: str
    page: int | None = None
    offset: int | None = None
    path: str | None = None
    fields: list[str] | str | None = None
    grep: str | None = None
    since: str | None = None
    """The handle of another result, to be told what changed from that to this one."""


class Selection:
    """A part of a stored result that a caller reads in windows."""

    def __init__(self, units: Units, path: str, page_starts: list[int], problem: str = "") -> None:
        """
        Args:
            path: The pointer to the units in the result.
            page_starts: The offsets of the pages found so far.
            problem: A sentence that begins the note of every window.
        """
        self.units = units
        self.path = path
        self.page_starts = page_starts
        self.problem = problem

    @functools.cached_property
    def json_text(self) -> str:
        """The JSON of the units."""
        return units_json(self.units).decode()

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory the selection takes."""
        size = sys.getsizeof(self.__dict__.get("json_text", ""))
        match self.units:
            case str() | bytes():
                return size + sys.getsizeof(self.units)
            case PackedItems() | PickedItems():
                return size + self.units.nbytes
            case _:
                return size + len(self.units) * (_MEMBER_BYTES if isinstance(self.units, Mapping) else _ITEM_BYTES)


_MAX_PAGES_AHEAD = 200
"""How far a caller may skip ahead; the server makes the pages between."""
_MAX_SELECTIONS = 8
"""Selections of one result that are cached for further pages."""
_MAX_SELECTION_BYTES = 16 * 1024 * 1024
"""The memory of the selections of one result that are cached, the last one apart."""
_MEMBER_BYTES, _ITEM_BYTES = 250, 80
"""About how much memory a member and an item take besides their JSON."""
_decode_header = msgspec.json.Decoder(StoredHeader).decode


def pack_result(header: StoredHeader, data: str | bytes) -> bytes:
    """Packs a header and a result into the bytes for a store: the header's length, the header, the data."""
    head = msgspec.json.encode(header)
    return b"".join((len(head).to_bytes(4), head, data.encode() if isinstance(data, str) else data))


class StoredResult:
    """A result that a store returned, from which a caller reads windows and values."""

    def __init__(self, packed: bytes) -> None:
        whole = memoryview(packed)
        begin = 4 + int.from_bytes(whole[:4])
        self.header: StoredHeader = _decode_header(whole[4:begin])
        self._data = whole[begin:]
        self._selections: dict[bytes, Selection] = {}

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that whoever reads the result needs."""
        return frozenset(self.header.scopes)

    def root_for(self, policy: ResolvedPolicy) -> str:
        """Returns the root of what a policy selects; empty where it was not computed."""
        return self.header.root if policy.query == self.header.policy.query else ""

    def selected_value(self, policy: ResolvedPolicy, work: Work) -> JSON:
        """Returns what a policy selects of the value, to be compared with what it selects of another one.

        Raises:
            UsageError: the result has too many values, or the policy selects nothing of it.
        """
        selected = select(self._whole_data, policy, work)
        if selected.is_outlined:
            raise UsageError("Nothing is selected of it.")
        data = selected.data
        return data if isinstance(data, str) else document.decode_counted(data, work)

    @property
    def _whole_data(self) -> str | RawJSON:
        return str(self._data, "utf-8") if self.header.kind == "text" else self._data

    def _shown_data(self, work: Work) -> str | RawJSON:
        """Returns what the policy shows of the result."""
        data = self._whole_data
        return select(data, self.header.policy, work).data if self.header.policy.has_query else data

    @property
    def size(self) -> int:
        """The size of the result in bytes."""
        return self._data.nbytes

    @property
    def view_bytes(self) -> int:
        """About how many bytes of memory the parts take that are cached for further pages."""
        return sum(selection.nbytes for selection in list(self._selections.values()))

    def parts(self, work: Work) -> "ResultParts":
        """Returns the parts of the result, for several paths in a row."""
        return ResultParts(self._data, self.header.kind == "text", work)

    def read(self, arguments: ContinueArguments, requested: ResultPolicy | None, work: Work) -> tuple[Window, str]:
        """Returns the window that `continue` asks for, and the path of its units in the result.

        The window follows the policy of the first reply, overridden by the `requested` one. Several threads may read.

        Raises:
            UsageError: the arguments do not apply to this result; the text says why.
        """
        policy = self.header.policy if requested is None else override_policy(requested, self.header.policy)
        if arguments.path is not None and arguments.path.startswith(RAW_PREFIX):
            selection = self._select(replace(arguments, path=arguments.path.removeprefix(RAW_PREFIX)), work)
            work.scan(self.size)
            start = _check_offset(arguments.offset or 0, len(selection.json_text))
            window = read_raw_window(selection.json_text, start, policy, selection.path, work, selection.problem)
            return window, selection.path
        selection = self._select(arguments, work)
        if arguments.offset is not None:
            start = _check_offset(arguments.offset, len(selection.units))
            return _read(selection, start, policy, work), selection.path
        if policy.preview_above and (arguments.fields is not None or arguments.grep) and arguments.page is None:
            return _read_preview(selection, policy, work), selection.path
        # With a policy of its own, a request has pages of its own size.
        starts = list(selection.page_starts) if requested is None else [0]
        page = arguments.page or min(2, len(starts))  # the page after the first reply, where its end is known
        start, until = _page_span(selection, starts, page, policy, work)
        if requested is None:
            selection.page_starts = starts
        return _read(selection, start, policy, work, until), selection.path

    def read_changes(
        self, base: "StoredResult", arguments: ContinueArguments, requested: ResultPolicy | None, work: Work
    ) -> Window:
        """Returns the window with what changed from another result to this one, by the fields and pattern asked for.

        Raises:
            UsageError: the arguments do not apply to both results, or these are too large to be compared.
        """
        if arguments.path is not None or arguments.page is not None:
            raise UsageError("since goes with offset, fields and grep, not with path or page.")
        policy = self.header.policy if requested is None else override_policy(requested, self.header.policy)
        asked = replace(policy, fields=arguments.fields, grep=arguments.grep or None, fields_requested=True)
        text, words = _changes(base.selected_value(asked, work), self.selected_value(asked, work), asked, base, work)
        selection = Selection(text, "", [0], words)
        if arguments.offset is None and policy.preview_above:
            return _read_preview(selection, policy, work)
        return _read(selection, _check_offset(arguments.offset or 0, len(text)), policy, work)

    def _select(self, arguments: ContinueArguments, work: Work) -> Selection:
        # What the caller sends may be long, so the key is a digest.
        chosen = msgspec.json.encode((arguments.path, arguments.fields, arguments.grep))
        key = hashlib.blake2b(chosen, digest_size=16).digest()
        selection = self._selections.get(key)
        if selection is None:
            selection = self._make_selection(arguments, work)
            if len(self._selections) >= _MAX_SELECTIONS or self.view_bytes > _MAX_SELECTION_BYTES:
                self._selections.clear()
            self._selections[key] = selection
        return selection

    def _make_selection(self, arguments: ContinueArguments, work: Work) -> Selection:
        is_text = self.header.kind == "text"
        if is_text and arguments.path:
            raise UsageError("This result is a text, without paths; read on by offset, or search by grep.")
        query = Query(arguments.fields, arguments.grep or None)
        if (arguments.path is None or is_text) and not query:
            shown = self._shown_data(work)
            if isinstance(shown, str):
                work.scan(len(shown))
                return Selection(shown, "", self._page_starts())
            rows = self.header.rows or []
            return Selection(document.units(document.at(shown, rows, work), work), pointer(*rows), self._page_starts())
        path = parse_path(arguments.path or "")
        part = str(self._data, "utf-8") if is_text else document.at(self._data, path, work)
        if not isinstance(part, str) and not query:
            return Selection(document.units(part, work), pointer(*path), [0])
        policy = self.header.policy
        found = run_query(part, query, None if path else policy.rows, policy.max_tokens, work)
        if found.is_miss:
            data = part if isinstance(part, str) else bytes(memoryview(part))
            outline = ShownResult(data, policy).outline(work)
            if found.is_mistake:
                raise UsageError(f"{found.sentence} {outline}")
            return Selection(f"{found.sentence} {outline}", pointer(*path), [0])
        selected = found.data if isinstance(found.data, str) else document.units(found.data, work)
        page = "" if is_text else page_sentence(self._data, find_rows(self._data, policy.rows, work), work)
        return Selection(selected, pointer(*path), [0], " ".join(part for part in (found.sentence, page) if part))

    def _page_starts(self) -> list[int]:
        return [0, self.header.first] if self.header.first else [0]


def _changes(base: JSON, value: JSON, policy: ResolvedPolicy, stored_base: StoredResult, work: Work) -> tuple[str, str]:
    """Returns the text of the changes from one value to another, and the words that explain its forms."""
    result = changes.comparable(value if isinstance(value, str) else jsonrpc.encode(value), value, policy, work)
    roots = (result.root_of_base(base, work), result.root)
    if roots[0] == roots[1]:
        return "Nothing changed.", ""
    unbounded = replace(policy, max_tokens=sys.maxsize >> 8)
    delta = result.changes_since(base, roots, unbounded, None, stored_base.header.is_part, work)
    if delta is None:
        return "Nearly all of it changed; read it whole.", ""
    return delta.text, f"{changes.words_sentence(changes.delta_words(delta.text))}"


class ResultParts:
    """The parts of a stored result."""

    def __init__(self, data: memoryview, is_text: bool, work: Work) -> None:
        self._data = data
        self._is_text = is_text
        self._parts = document.Parts(data, work)

    def at(self, path: str) -> RawJSON | str:
        """Returns the JSON at a path; of a result that is a text, the text.

        Raises:
            UsageError: the result has nothing at the path.
        """
        if not self._is_text:
            return self._parts.at(parse_path(path))
        if path:
            raise UsageError("This result is a text, which has no parts.")
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return str(self._data, "utf-8")


def _read(selection: Selection, start: int, policy: ResolvedPolicy, work: Work, until: int | None = None) -> Window:
    return read_window(selection.units, start, policy, selection.path, work, until, selection.problem)


def _read_preview(selection: Selection, policy: ResolvedPolicy, work: Work) -> Window:
    """Returns a window with all that a query selects, or a small one if that is large: its caller may not expect it."""
    large = min(policy.max_tokens, policy.preview_above)
    window = _read(selection, 0, replace(policy, max_tokens=large), work)
    if window.next is None or large <= PREVIEW_TOKENS:
        return window
    return _read(selection, 0, replace(policy, max_tokens=PREVIEW_TOKENS), work)


def _check_offset(offset: int, total: int) -> int:
    if offset and offset >= total:
        raise UsageError(f"offset must be below {total}.")
    return offset


def _page_span(
    selection: Selection, starts: list[int], page: int, policy: ResolvedPolicy, work: Work
) -> tuple[int, int | None]:
    """Returns the start of a page, and its end where known; adds the missing pages before it to `starts`."""
    if page > len(starts) + _MAX_PAGES_AHEAD:
        raise UsageError(f"page {page} is too far ahead to be found; read on by offset.")
    while len(starts) < page:
        window = _read(selection, starts[-1], policy, work)
        if window.next is None or window.unit == "JSON characters":
            raise UsageError(f"page must be a number from 1 to {len(starts)}.")
        starts.append(window.next)
    return starts[page - 1], starts[page] if page < len(starts) else None


def _is_left_out(name: str, value: JSON) -> bool:
    """Whether an argument of `continue` counts as absent; an empty path is the whole result."""
    known = name == "session_id" or name in ContinueArguments.__struct_fields__
    return known and (value is None or (value == "" and name != "path"))


def parse_continue_arguments(arguments: Mapping[str, JSON]) -> ContinueArguments:
    """Parses the arguments of `continue`, with the spellings that models commonly use.

    Raises:
        UsageError: the arguments are invalid; the text says why.
    """
    given: dict[str, Any] = {key: value for key, value in arguments.items() if not _is_left_out(key, value)}
    if "session_id" in given:  # the published pattern's name for the handle
        given.setdefault("handle", given.pop("session_id"))
    if "handle" not in given:
        raise UsageError("handle is required; the note of a cut result has it.")
    handle, slash, inside = str(given["handle"]).partition("/")
    if slash and "path" not in given:  # `handle/path`, as in references to rows
        given |= {"handle": handle, "path": slash + inside}
    for name in ("page", "offset"):
        text = given.get(name)
        if isinstance(text, str) and text.strip().isdecimal():
            given[name] = int(text.strip()[:18])
    try:
        parsed = msgspec.convert(given, ContinueArguments)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{error}. Pass handle, and what you need of page, offset, path, fields, grep and since."
        ) from None
    if (parsed.page is not None and parsed.page < 1) or (parsed.offset is not None and parsed.offset < 0):
        raise UsageError("page counts from 1, offset from 0.")
    return parsed
