"""What a caller asks of a result: fields or an expression, and the lines or rows that match a pattern.

Fields are dotted paths that go through lists; an expression is one of JMESPath.

A query never loses a result, and is never ignored without a word: what it cannot select is told in a sentence, and the
reply then has the shape of the result in place of the result.
"""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.structs import replace

from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.results.document import RawJSON, find_rows, pointer
from deltamcp.results.queries import grep
from deltamcp.results.queries.grep import MatchingLines
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

if TYPE_CHECKING:
    from deltamcp.results.queries.pattern import Pattern
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_MIN_TEXT_LINES = 10
"""A text inside a value is searched line by line if it has as many, and is most of the value."""
_MAX_TEXT_DEPTH = 3
_MAX_OTHERS = 5
"""Members beside a text that are named because they match, too."""
_FEW_MATCHES = 3
"""Of so few matches a model often wants to see what is around them."""
_CONTEXT_HINT = 'grep="-C2 ..." shows lines around.'
_NO_CONTEXT = " Only lines of a text are shown with those around them."
_TEXT_SENTENCE = "The result is text, which has no fields; read on by offset, or search by grep."


class Query(Struct, frozen=True):
    """A selection of a result."""

    fields: list[str] | str | None = None
    """Dotted paths, or an expression."""
    grep: str | None = None
    """A regular expression; the fields are then those of what matches."""

    def __bool__(self) -> bool:
        return self.fields is not None or self.grep is not None


class QueryResult(Struct, frozen=True):
    """What a query selects."""

    data: str | bytes
    """The selected text or JSON; of a query that selects nothing, what is searched."""
    sentence: str = ""
    """Says how much was selected, or why nothing."""
    is_miss: bool = False
    """Whether the query fails, does not apply or selects nothing."""
    is_mistake: bool = False
    """Whether it can select nothing of any value of this shape."""


def parse_query(fields: JSON, grep: JSON) -> Query:
    """Returns the query that a caller sent as two arguments; one that is empty is as if it had not been sent.

    Raises:
        UsageError: an argument has the wrong type, or is not valid.
    """
    fields, grep = fields or None, grep or None
    is_list = isinstance(fields, list) and all(isinstance(path, str) for path in fields)
    if not (fields is None or isinstance(fields, str) or is_list):
        raise UsageError("fields must be a JMESPath expression, or a list of paths into the result.")
    if not (grep is None or isinstance(grep, str)):
        raise UsageError("grep must be a regular expression, as a text.")
    query = Query(fields, grep)
    check_query(query)
    return query


def check_query(query: Query) -> None:
    """Checks that an expression or a pattern is valid.

    Raises:
        UsageError: it is not; the text says why.
    """
    check_fields(query.fields)
    if query.grep is not None:
        _parse(query.grep)


def _parse(pattern: str) -> "Pattern":
    from deltamcp.results.queries.pattern import parse_pattern  # with its library 12 ms, seldom needed

    return parse_pattern(pattern)


def run_query(data: str | RawJSON, query: Query, rows: str | None, max_tokens: int, work: Work) -> QueryResult:
    """Returns what a query selects of a result, or of a part of one.

    Args:
        rows: The declared path to the rows, if any.
        max_tokens: The budget of the reply, by which names of fields in a sentence are cut.

    Raises:
        WorkLimitError: the query would take more steps than there are.
    """
    try:
        if query.grep is not None:
            return _answer_grep(data, _parse(query.grep), query.fields, rows, max_tokens, work)
        assert query.fields is not None, "callers have a query"
        if isinstance(data, str):
            return _answer_lines(data, query.fields, work)
        return _answer_fields(data, query.fields, rows, max_tokens, work)
    except WorkLimitError:
        raise
    except UsageError as error:
        return QueryResult(_own(data), str(error), is_miss=True, is_mistake=True)


def _own(data: str | RawJSON) -> str | bytes:
    return data if isinstance(data, str | bytes) else bytes(memoryview(data))


# Fields


def _answer_fields(
    data: RawJSON, fields: Sequence[str] | str, declared: str | None, max_tokens: int, work: Work
) -> QueryResult:
    value, rows = document.decode_counted(data, work), find_rows(data, declared, work)
    if is_expression(fields):
        return _answer_expression(_own(data), value, fields, rows, work)
    if not isinstance(value, list | dict):
        return QueryResult(_own(data), "The result is a single value, which has no fields.")
    missing = find_missing(value, fields, rows, work)
    if missing.are_all:
        return QueryResult(_own(data), missing.sentence(max_tokens), is_miss=True, is_mistake=True)
    selected = project_rows(value, fields, rows, work)
    return QueryResult(jsonrpc.encode(selected), missing.sentence(max_tokens))


def _answer_expression(
    data: str | bytes, value: JSON, expression: Sequence[str] | str, rows: list[str] | None, work: Work
) -> QueryResult:
    """Evaluates an expression on a value; on its rows, if it selects nothing of the value itself."""
    is_mistake = False
    try:
        selected = project(value, expression, work)
        if not _is_nothing(selected):
            return QueryResult(jsonrpc.encode(selected))
        problem = f"fields selects nothing: {jsonrpc.encode(selected).decode()}."
    except WorkLimitError:
        raise
    except UsageError as error:
        problem, is_mistake = str(error), True
    for name in rows or ():
        value = value[name] if isinstance(value, dict) else value
    with contextlib.suppress(UsageError):
        selected = project(value, expression, work) if rows else None
        if not _is_nothing(selected):
            return QueryResult(jsonrpc.encode(selected), f"fields is evaluated on {pointer(*(rows or ()))}.")
    return QueryResult(data, problem, is_miss=True, is_mistake=is_mistake)


def _is_nothing(value: JSON) -> bool:
    return value is None or value == [] or value == {}


def _answer_lines(text: str, fields: Sequence[str] | str, work: Work) -> QueryResult:
    """Applies an expression to the lines of a text; other fields it does not have."""
    if not is_expression(fields):
        return QueryResult(text, _TEXT_SENTENCE, is_miss=True, is_mistake=True)
    work.scan(len(text))
    lines: list[JSON] = list(text.splitlines())
    work.spend(len(lines) // 4)
    selected = project(lines, fields, work)
    if _is_nothing(selected):
        return QueryResult(
            text, "The result is text, and fields selects none of its lines; search by grep.", is_miss=True
        )
    return QueryResult(jsonrpc.encode(selected), f"Of {len(lines)} lines of text.")


# Patterns


def _answer_grep(
    data: str | RawJSON,
    pattern: "Pattern",
    fields: Sequence[str] | str | None,
    declared: str | None,
    max_tokens: int,
    work: Work,
) -> QueryResult:
    whole = _own(data)
    if isinstance(data, str):
        return _answer_text(data, "", whole, pattern, fields, work)
    path = find_rows(data, declared, work)
    inside = None if path is not None else _find_text(data, work)
    if inside is not None:
        text, names = inside
        answer = _answer_text(text, pointer(*names), whole, pattern, fields, work)
        others = list(islice(_matching_others(data, names, pattern, work), _MAX_OTHERS))
        also = f"{', '.join(others)} match{'es' * (len(others) == 1)}, too." if others else ""
        return replace(answer, sentence=" ".join(part for part in (answer.sentence, also) if part))
    units = document.units(document.at(data, path or [], work), work)
    if isinstance(units, str):
        return _answer_text(units, "", whole, pattern, fields, work)
    found = grep.matching_rows(units, pattern, work)
    place = f"{'members' if path is None else 'rows'}{f' of {pointer(*path)}' if path else ''}"
    if not found.members:
        more = len(grep.matching_rows(units, pattern.ignoring_case, work).members)
        return QueryResult(whole, _nothing_sentence(pattern, f"{found.total} {place}", more), is_miss=True)
    sentence = f"{len(found.members)} of {found.total} {place} match.{_NO_CONTEXT * bool(pattern.context)}"
    if pattern.only_counts:
        return QueryResult(sentence)
    if fields is None:
        members = {name: Raw(memoryview(unit)) for name, unit in found.members.items()}
        return QueryResult(jsonrpc.encode(members), sentence)
    rows: list[JSON] = [document.decode_counted(unit, work) for unit in found.members.values()]
    missing = find_missing(rows, fields, None, work)
    if missing.are_all:
        return QueryResult(whole, missing.sentence(max_tokens), is_miss=True, is_mistake=True)
    return QueryResult(jsonrpc.encode(project(rows, fields, work)), sentence)


def _answer_text(
    text: str, path: str, whole: str | bytes, pattern: "Pattern", fields: Sequence[str] | str | None, work: Work
) -> QueryResult:
    found = grep.matching_lines(text, pattern, work)
    place = f"lines{f' of {path}' if path else ''}"
    if not found.matches:
        more = grep.matching_lines(text, pattern.ignoring_case, work).matches
        return QueryResult(whole, _nothing_sentence(pattern, f"{found.total} {place}", more), is_miss=True)
    head = f"{found.matches} of {found.total} {place} match"
    if pattern.only_counts:
        return QueryResult(f"{head}.")
    if fields is None:
        return QueryResult(f"{head}:\n{found.text}", _left_out(found, pattern))
    lines: list[JSON] = list(found.text.splitlines())
    return QueryResult(jsonrpc.encode(project(lines, fields, work)), f"{head}.")


def _left_out(found: MatchingLines, pattern: "Pattern") -> str:
    if found.matches > grep.MAX_LINES:
        return f"These are the first {grep.MAX_LINES} of them."
    return _CONTEXT_HINT if found.matches <= _FEW_MATCHES and not pattern.context else ""


def _nothing_sentence(pattern: "Pattern", searched: str, ignoring_case: int) -> str:
    sentence = f"Nothing matches in {searched}; grep is read as a regular expression (RE2)."
    if ignoring_case:
        return f"{sentence} With (?i) before it, {ignoring_case} match."
    return f"{sentence} | without a backslash separates alternatives." if "\\|" in pattern.expression else sentence


def _matching_others(data: RawJSON, names: Sequence[str], pattern: "Pattern", work: Work) -> Iterator[str]:
    """Yields pointers to the members that match, of the objects around the value at a path."""
    for depth, name in enumerate(names):
        members = document.members(data, work)
        beside = {other: value for other, value in members.items() if other != name}
        yield from (pointer(*names[:depth], other) for other in grep.matching_rows(beside, pattern, work).members)
        data = members[name]


def _find_text(data: RawJSON, work: Work) -> tuple[str, list[str]] | None:
    """Returns the text that is most of an object, and the path to it; None if there is none.

    Such are files and logs that servers send with what they know of them.
    """
    path: list[str] = []
    while document.kind(data) == "object" and len(path) < _MAX_TEXT_DEPTH:
        try:
            members = document.members(data, work)
        except document.TooManyMembersError:
            return None
        largest = max(members, key=lambda name: len(members[name]), default=None)
        if largest is None or 2 * len(members[largest]) < len(data):
            return None
        path.append(largest)
        data = members[largest]
    text = document.decode_counted(data, work) if path and document.kind(data) == "text" else None
    return (text, path) if isinstance(text, str) and text.count("\n") >= _MIN_TEXT_LINES else None


_DOTTED_PATHS = re.compile(r"[\w.-]+(?:\s*,\s*[\w.-]+)*")
_MAX_FIELDS_CHARS = 10_000
_MAX_PATHS = 500
"""No result has so many fields that a caller lists so many of them."""
_MAX_NAME_CHARS = 40
_MAX_SENTENCE_BYTES = 400
_MAX_KNOWN_NAMES = 200
"""More names than a sentence has space for."""
_NAMES_PER_STEP = 16
"""Members of an object that are looked up in the time of a step."""


def check_fields(fields: Sequence[str] | str | None) -> None:
    """Checks that a field selection is valid.

    Raises:
        UsageError: the selection is an expression that does not parse or would copy the value too often, or it is
            longer than any that is needed.
    """
    if fields is not None and isinstance(_split_paths(fields), str):
        from deltamcp.results.queries import expression  # with its library 15 ms, seldom needed

        expression.check(str(fields))


def project(value: JSON, fields: Sequence[str] | str, work: Work) -> JSON:
    """Returns the selected fields of an object, or of each object in a list; missing fields are left out.

    `fields` is a list of dotted paths, `["id", "user.login"]`; the same as one string with commas; or a JMESPath
    expression, `"items[?state=='open'].{id: id, who: user.login}"`.

    Raises:
        UsageError: the expression is invalid or does not apply to the value, or there are too many fields.
    """
    paths = _split_paths(fields)
    if isinstance(paths, str):
        from deltamcp.results.queries import expression

        return expression.search(paths, value, work)
    return _select(value, _tree(paths), work)


def _split_paths(fields: Sequence[str] | str) -> Sequence[str] | str:
    chars = len(fields) if isinstance(fields, str) else sum(map(len, fields))
    if chars > _MAX_FIELDS_CHARS or (not isinstance(fields, str) and len(fields) > _MAX_PATHS):
        raise UsageError(
            f"fields may have at most {_MAX_PATHS} paths and {_MAX_FIELDS_CHARS} characters; ask for whole objects."
        )
    if isinstance(fields, str) and _DOTTED_PATHS.fullmatch(fields):
        return [path.strip() for path in fields.split(",")]
    return fields


def is_expression(fields: Sequence[str] | str) -> bool:
    """Whether the fields are a JMESPath expression, not paths."""
    return isinstance(_split_paths(fields), str)


def are_row_fields(fields: Sequence[str] | str, members: Iterable[str]) -> bool:
    """Whether the fields are fields of the rows: none is a member of the object. An expression never counts as such."""
    fields = _split_paths(fields)
    names = set() if isinstance(fields, str) else {field.partition(".")[0] for field in fields}
    return bool(names) and names.isdisjoint(members)


def project_rows(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None, work: Work) -> JSON:
    """Returns the selected fields as `project` does; fields that the value itself lacks are selected from its rows.

    The members beside the rows then stay whole.
    """
    if not rows or not isinstance(value, dict) or not are_row_fields(fields, value):
        return project(value, fields, work)
    inner = value.get(rows[0])
    return {**value, rows[0]: project_rows(inner, fields, rows[1:], work) if rows[1:] else project(inner, fields, work)}


# Fields that do not exist


class MissingFields(NamedTuple):
    """The requested fields that a value does not have."""

    paths: list[str]
    known: list[str]
    """The paths of the fields that the value has beside them, in its order."""
    are_all: bool
    """Whether the value has none of the requested fields."""

    def sentence(self, max_tokens: int) -> str:
        """Returns a sentence for the caller, for a reply of `max_tokens`; empty where no field is missing."""
        if not self.paths:
            return ""
        room = min(_MAX_SENTENCE_BYTES, max_tokens // 2)  # each byte may be a token
        longest = min(_MAX_NAME_CHARS, room // 2)
        missing = _join_within([repr(path[:longest]) for path in self.paths], " or ", room // 2)
        known = _join_within([path[:longest] for path in self.known], ", ", room - len(missing.encode()))
        return f"No field {missing}; there are {known}."


def find_missing(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None, work: Work) -> MissingFields:
    """Returns the dotted paths that no object of the value, or no row, has; those of an expression are not known.

    A path into what is null, or into an empty list, may exist. A value without objects misses no field.
    """
    paths = _split_paths(fields)
    if isinstance(paths, str):
        return MissingFields([], [], False)
    if rows and isinstance(value, dict) and are_row_fields(paths, value):
        for name in rows:
            value = value[name] if isinstance(value, dict) and name in value else None
    levels = _Levels(value, work)
    found = {path: levels.known_beside(tuple(path.split("."))) for path in paths}
    missing = [path for path, known in found.items() if known]
    return MissingFields(
        missing, list(dict.fromkeys(name for path in missing for name in found[path])), len(missing) == len(found)
    )


class _Level(NamedTuple):
    """What a value has at one path."""

    objects: list[dict[str, JSON]]
    """The object, or the objects of a list, at any depth of lists."""
    has_value: bool
    """Whether there is anything but null and lists."""
    names: dict[str, None]
    """The members of the objects, in their order."""


class _Levels:
    """What a value has at several paths; what paths have in common is looked at once."""

    def __init__(self, value: JSON, work: Work) -> None:
        self._work = work
        self._levels: dict[tuple[str, ...], _Level] = {(): self._look_at([value])}

    def known_beside(self, path: tuple[str, ...]) -> list[str]:
        """Returns the fields at the level where a path leads no further; none if the path exists, or may exist."""
        for depth, name in enumerate(path):
            above = self._levels[path[:depth]]
            if above.objects and name not in above.names:
                return self._paths_at(path[:depth])
            level = self._level_at(path[: depth + 1])
            if not level.objects:
                return self._paths_at(path[:depth]) if level.has_value and depth + 1 < len(path) else []
        return []

    def _paths_at(self, path: tuple[str, ...]) -> list[str]:
        return [".".join((*path, name)) for name in islice(self._levels[path].names, _MAX_KNOWN_NAMES)]

    def _level_at(self, path: tuple[str, ...]) -> _Level:
        if path not in self._levels:
            objects = self._levels[path[:-1]].objects
            self._work.spend(len(objects))
            self._levels[path] = self._look_at([item[path[-1]] for item in objects if path[-1] in item])
        return self._levels[path]

    def _look_at(self, values: list[JSON]) -> _Level:
        objects: list[dict[str, JSON]] = []
        names: dict[str, None] = {}
        has_value = False
        values.reverse()
        while values:
            self._work.spend()
            value = values.pop()
            if isinstance(value, list):
                values += reversed(value)
            elif isinstance(value, dict):
                self._work.spend(len(value) // _NAMES_PER_STEP)
                objects.append(value)
                names.update(dict.fromkeys(value))
            has_value = has_value or (value is not None and not isinstance(value, list))
        return _Level(objects, has_value, names)


def _join_within(names: Sequence[str], separator: str, room: int) -> str:
    """Joins the first names, at least one, that fit into a number of bytes."""
    shown = [names[0]]
    for name in names[1:]:
        if len(separator.join((*shown, name)).encode()) > room:
            return separator.join((*shown, "…"))
        shown.append(name)
    return separator.join(shown)


# Paths


def _tree(paths: Iterable[str]) -> dict[str, Any]:
    """Returns the selected fields by name: None where a field stays whole, else the fields selected inside it."""
    tree: dict[str, Any] = {}
    for path in paths:
        names = path.removesuffix(".").split(".")
        node: dict[str, Any] | None = tree
        for name in names[:-1]:
            node = None if node is None else node.setdefault(name, {})
        if node is not None:
            node[names[-1]] = None  # stays whole, even if fields inside it are selected too
    return tree


def _select(value: JSON, tree: dict[str, Any], work: Work) -> JSON:
    work.spend()
    if isinstance(value, list):
        return [_select(item, tree, work) for item in value]
    if not isinstance(value, dict):
        return value
    work.spend(len(value) // _NAMES_PER_STEP)
    return {
        name: inner if tree[name] is None else _select(inner, tree[name], work)
        for name, inner in value.items()
        if name in tree
    }
