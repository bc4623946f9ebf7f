"""Selects fields of a value, by dotted paths that go through lists, or by a JMESPath expression."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from deltamcp.errors import UsageError
from deltamcp.values import JSON

_DOTTED_PATHS = re.compile(r"[\w.-]+(\s*,\s*[\w.-]+)*")
_MAX_COPIES = 16
_MAX_EXPRESSION_CHARS = 2_000
"""Longer expressions are refused, because the parser is recursive."""


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
