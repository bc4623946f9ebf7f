"""Selects fields of a value, by dotted paths that go through lists, or by a JMESPath expression."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from deltamcp.errors import UsageError
from deltamcp.values import JSON
from deltamcp.work import Work

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
