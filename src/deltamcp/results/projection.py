"""Only the fields that are wanted of a value: by dotted path, which goes through lists, or by JMESPath."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from deltamcp.errors import UnfitError
from deltamcp.values import JSON

_DOTTED_PATHS = re.compile(r"[\w.-]+(\s*,\s*[\w.-]+)*")
_MAX_COPIES = 16
_MAX_EXPRESSION_CHARS = 2_000
"""Characters of an expression; parsing one is recursive."""


def check_fields(fields: Sequence[str] | str | None) -> None:
    """
    Raises:
        UnfitError: it is an expression that cannot be read, or would make far more of a value than there is.
    """
    if isinstance(fields, str) and isinstance(_split_paths(fields), str):
        _compile_expression(fields)


def project(value: JSON, fields: Sequence[str] | str) -> JSON:
    """`["id", "user.login"]` of an object or of each object in a list; what is not there is left out.

    One text is the same with commas, or an expression: `"items[?state=='open'].{id: id, who: user.login}"`.

    Raises:
        UnfitError: the expression is wrong.
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
        # Its own words hold the value.
        raise UnfitError(f"fields: {error.function_name}() does not take what it is given here.") from None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise UnfitError("fields: the expression does not apply to this value.") from None


def _compile_expression(expression: str) -> Any:
    import jmespath  # 15 ms, seldom needed
    from jmespath.exceptions import JMESPathError

    if len(expression) > _MAX_EXPRESSION_CHARS:
        raise UnfitError(f"fields: an expression may have {_MAX_EXPRESSION_CHARS} characters.")
    try:
        made = jmespath.compile(expression)
        copies = _count_copies(made.parsed)
    except (JMESPathError, ValueError) as error:
        raise UnfitError(f"fields is neither paths nor JMESPath: {str(error)[:200]}") from None
    except RecursionError:
        raise UnfitError("fields: the expression is nested too deeply.") from None
    if copies > _MAX_COPIES or expression.count("to_string") > 1:
        raise UnfitError("fields: the expression would make many times the value that is there.")
    return made


def _count_copies(node: Any) -> int:
    """How many times what it is applied to may stand in an expression's value: `[@, @] | [@, @]` makes four of it."""
    inner = [_count_copies(child) for child in node["children"] if isinstance(child, dict)]
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        return max(1, sum(inner))
    return min(math.prod(inner), _MAX_COPIES + 1)


def are_row_fields(fields: Sequence[str] | str, members: Iterable[str]) -> bool:
    """Whether fields are none of an object's own. An expression says itself what it is of."""
    fields = _split_paths(fields)
    names = set() if isinstance(fields, str) else {field.partition(".")[0] for field in fields}
    return bool(names) and names.isdisjoint(members)


def project_rows(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None) -> JSON:
    """The same, but fields that the value itself has none of are its rows', and what stands beside those stays."""
    if not rows or not isinstance(value, dict) or not are_row_fields(fields, value):
        return project(value, fields)
    inner = value.get(rows[0])
    return {**value, rows[0]: project_rows(inner, fields, rows[1:]) if rows[1:] else project(inner, fields)}


def _select_paths(value: JSON, fields: Sequence[str]) -> JSON:
    wanted: dict[str, list[str]] = {}
    for field in fields:
        name, _, rest = field.partition(".")
        wanted.setdefault(name, []).append(rest)
    return _select_members(value, wanted)


def _select_members(value: JSON, wanted: dict[str, list[str]]) -> JSON:
    if isinstance(value, list):
        return [_select_members(item, wanted) for item in value]
    if not isinstance(value, dict):
        return value
    # A field wanted whole is kept whole, whatever is wanted inside it.
    return {
        name: inner if "" in wanted[name] else _select_paths(inner, wanted[name])
        for name, inner in value.items()
        if name in wanted
    }
