"""Selects fields of a value, by dotted paths that go through lists, or by a JMESPath expression."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from deltamcp.errors import UsageError
from deltamcp.values import JSON

_DOTTED_PATHS = re.compile(r"[\w.-]+(\s*,\s*[\w.-]+)*")
_MAX_COPIES = 16
_MAX_EXPRESSION_CHARS = 2_000
"""Longer expressions are refused, because the parser is recursive."""
_MAX_NAME_CHARS = 40
_MAX_SENTENCE_BYTES = 400


def check_fields(fields: Sequence[str] | str | None) -> None:
    """Check that a field selection is valid.

    Raises:
        UsageError: the selection is an expression that does not parse, or that would copy the value too often.
    """
    if isinstance(fields, str) and isinstance(_split_paths(fields), str):
        _compile_expression(fields)


def project(value: JSON, fields: Sequence[str] | str) -> JSON:
    """Return the selected fields of an object, or of each object in a list; missing fields are left out.

    `fields` is a list of dotted paths, `["id", "user.login"]`; the same as one string with commas; or a JMESPath
    expression, `"items[?state=='open'].{id: id, who: user.login}"`.

    Raises:
        UsageError: the expression is invalid or does not apply to the value.
    """
    fields = _split_paths(fields)
    return _search_jmespath(value, fields) if isinstance(fields, str) else _select_paths(value, fields)


def _split_paths(fields: Sequence[str] | str) -> Sequence[str] | str:
    if isinstance(fields, str) and _DOTTED_PATHS.fullmatch(fields):
        return [path.strip() for path in fields.split(",")]
    return fields


def _search_jmespath(value: JSON, expression: str) -> JSON:
    from jmespath.exceptions import JMESPathTypeError

    try:
        return _compile_expression(expression).search(value)
    except JMESPathTypeError as error:
        # The text of the original error contains the value.
        raise UsageError(f"fields: {error.function_name}() does not accept the type of its argument.") from None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise UsageError("fields: the expression does not apply to this value.") from None


def _compile_expression(expression: str) -> Any:
    import jmespath  # 15 ms, seldom needed
    from jmespath.exceptions import JMESPathError

    if len(expression) > _MAX_EXPRESSION_CHARS:
        raise UsageError(f"fields: an expression may have at most {_MAX_EXPRESSION_CHARS} characters.")
    try:
        compiled = jmespath.compile(expression)
        copies = _count_copies(compiled.parsed)
    except (JMESPathError, ValueError) as error:
        raise UsageError(f"fields is neither paths nor JMESPath: {str(error)[:200]}") from None
    except RecursionError:
        raise UsageError("fields: the expression is nested too deeply.") from None
    if copies > _MAX_COPIES or expression.count("to_string") > 1:
        raise UsageError("fields: the expression would copy the value too many times.")
    return compiled


def _count_copies(node: Any) -> int:
    """Return how many copies of its input an expression may make: `[@, @] | [@, @]` makes four."""
    inner = [_count_copies(child) for child in node["children"] if isinstance(child, dict)]
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        return max(1, sum(inner))
    return min(math.prod(inner), _MAX_COPIES + 1)


def are_row_fields(fields: Sequence[str] | str, members: Iterable[str]) -> bool:
    """Whether the fields are fields of the rows: none is a member of the object. An expression never counts as such."""
    fields = _split_paths(fields)
    names = set() if isinstance(fields, str) else {field.partition(".")[0] for field in fields}
    return bool(names) and names.isdisjoint(members)


def project_rows(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None) -> JSON:
    """Return the selected fields as `project` does; fields that the value itself lacks are selected from its rows.

    The members beside the rows then stay whole.
    """
    if not rows or not isinstance(value, dict) or not are_row_fields(fields, value):
        return project(value, fields)
    inner = value.get(rows[0])
    return {**value, rows[0]: project_rows(inner, fields, rows[1:]) if rows[1:] else project(inner, fields)}


# Fields that do not exist


class MissingFields(NamedTuple):
    """The requested fields that a value does not have."""

    paths: list[str]
    known: list[str]
    """The paths of the fields that the value has beside them, in its order."""
    are_all: bool
    """Whether the value has none of the requested fields."""

    def sentence(self, max_tokens: int) -> str:
        """Return a sentence for the caller, for a reply of `max_tokens`; empty where no field is missing."""
        if not self.paths:
            return ""
        room = min(_MAX_SENTENCE_BYTES, max_tokens // 2)  # each byte may be a token
        longest = min(_MAX_NAME_CHARS, room // 2)
        missing = _join_within([repr(path[:longest]) for path in self.paths], " or ", room // 2)
        known = _join_within([path[:longest] for path in self.known], ", ", room - len(missing.encode()))
        return f"No field {missing}; there are {known}."


def find_missing(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None) -> MissingFields:
    """Return the dotted paths that no object of the value, or no row, has; those of an expression are not known.

    A path into what is null, or into an empty list, may exist. A value without objects misses no field.
    """
    paths = _split_paths(fields)
    if isinstance(paths, str):
        return MissingFields([], [], False)
    if rows and isinstance(value, dict) and are_row_fields(paths, value):
        for name in rows:
            value = value[name] if isinstance(value, dict) and name in value else None
    found = {path: _known_beside(value, path.split(".")) for path in paths}
    missing = [path for path, known in found.items() if known]
    return MissingFields(
        missing, list(dict.fromkeys(name for path in missing for name in found[path])), len(missing) == len(found)
    )


def _known_beside(value: JSON, path: list[str]) -> list[str]:
    """Return the fields at the level where a path leads no further; none if the path exists, or may exist."""
    objects = _objects(value)
    known: list[str] = []
    for depth, name in enumerate(path):
        if objects:
            known = [".".join((*path[:depth], one)) for one in dict.fromkeys(key for item in objects for key in item)]
        inner = [item[name] for item in objects if name in item]
        if objects and not inner:
            return known
        objects = [item for one in inner for item in _objects(one)]
        if not objects:
            is_value = any(one is not None and not isinstance(one, list) for one in inner)
            return known if is_value and depth + 1 < len(path) else []
    return []


def _objects(value: JSON) -> list[dict[str, JSON]]:
    """Return the object, or the objects of a list, at any depth of lists."""
    if isinstance(value, list):
        return [item for one in value for item in _objects(one)]
    return [value] if isinstance(value, dict) else []


def _join_within(names: Sequence[str], separator: str, room: int) -> str:
    """Join the first names, at least one, that fit into a number of bytes."""
    shown = [names[0]]
    for name in names[1:]:
        if len(separator.join((*shown, name)).encode()) > room:
            return separator.join((*shown, "…"))
        shown.append(name)
    return separator.join(shown)


# Paths


def _select_paths(value: JSON, fields: Sequence[str]) -> JSON:
    selected: dict[str, list[str]] = {}
    for field in fields:
        name, _, rest = field.partition(".")
        selected.setdefault(name, []).append(rest)
    return _select_members(value, selected)


def _select_members(value: JSON, selected: dict[str, list[str]]) -> JSON:
    if isinstance(value, list):
        return [_select_members(item, selected) for item in value]
    if not isinstance(value, dict):
        return value
    # A field that is selected itself stays whole, even if fields inside it are selected too.
    return {
        name: inner if "" in selected[name] else _select_paths(inner, selected[name])
        for name, inner in value.items()
        if name in selected
    }
