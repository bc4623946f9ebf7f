"""What a caller asks of a result: fields or an expression, and the lines or rows that match a pattern.

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
from deltamcp.results.queries import grep, projection
from deltamcp.results.queries.grep import MatchingLines
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

if TYPE_CHECKING:
    from deltamcp.results.queries.pattern import Pattern


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
    projection.check_fields(query.fields)
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
    if projection.is_expression(fields):
        return _answer_expression(_own(data), value, fields, rows, work)
    if not isinstance(value, list | dict):
        return QueryResult(_own(data), "The result is a single value, which has no fields.")
    missing = projection.find_missing(value, fields, rows, work)
    if missing.are_all:
        return QueryResult(_own(data), missing.sentence(max_tokens), is_miss=True, is_mistake=True)
    selected = projection.project_rows(value, fields, rows, work)
    return QueryResult(jsonrpc.encode(selected), missing.sentence(max_tokens))


def _answer_expression(
    data: str | bytes, value: JSON, expression: Sequence[str] | str, rows: list[str] | None, work: Work
) -> QueryResult:
    """Evaluates an expression on a value; on its rows, if it selects nothing of the value itself."""
    is_mistake = False
    try:
        selected = projection.project(value, expression, work)
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
        selected = projection.project(value, expression, work) if rows else None
        if not _is_nothing(selected):
            return QueryResult(jsonrpc.encode(selected), f"fields is evaluated on {pointer(*(rows or ()))}.")
    return QueryResult(data, problem, is_miss=True, is_mistake=is_mistake)


def _is_nothing(value: JSON) -> bool:
    return value is None or value == [] or value == {}


def _answer_lines(text: str, fields: Sequence[str] | str, work: Work) -> QueryResult:
    """Applies an expression to the lines of a text; other fields it does not have."""
    if not projection.is_expression(fields):
        return QueryResult(text, _TEXT_SENTENCE, is_miss=True, is_mistake=True)
    work.scan(len(text))
    lines: list[JSON] = list(text.splitlines())
    work.spend(len(lines) // 4)
    selected = projection.project(lines, fields, work)
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
    missing = projection.find_missing(rows, fields, None, work)
    if missing.are_all:
        return QueryResult(whole, missing.sentence(max_tokens), is_miss=True, is_mistake=True)
    return QueryResult(jsonrpc.encode(projection.project(rows, fields, work)), sentence)


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
    return QueryResult(jsonrpc.encode(projection.project(lines, fields, work)), f"{head}.")


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
