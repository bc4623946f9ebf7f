"""Only the fields that are wanted of a value: by dotted path, which goes through lists, or by JMESPath."""

import re
from collections.abc import Sequence

from deltamcp.errors import UnfitError
from deltamcp.values import JSON

_PATHS = re.compile(r"[\w.-]+(\s*,\s*[\w.-]+)*")
_LONGEST = 2_000
"""Characters of an expression; parsing one is recursive."""


def check(fields: Sequence[str] | str | None) -> None:
    """
    Raises:
        UnfitError: it is an expression that cannot be read.
    """
    if isinstance(fields, str) and isinstance(_listed(fields), str):
        _search(None, fields)


def project(value: JSON, fields: Sequence[str] | str) -> JSON:
    """`["id", "user.login"]` of an object or of each object in a list; what is not there is left out.

    One text is the same with commas, or an expression: `"items[?state=='open'].{id: id, who: user.login}"`.

    Raises:
        UnfitError: the expression is wrong.
    """
    fields = _listed(fields)
    return _search(value, fields) if isinstance(fields, str) else _wanted(value, fields)


def _listed(fields: Sequence[str] | str) -> Sequence[str] | str:
    if isinstance(fields, str) and _PATHS.fullmatch(fields):
        return [path.strip() for path in fields.split(",")]
    return fields


def _search(value: JSON, expression: str) -> JSON:
    import jmespath  # 15 ms, seldom needed
    from jmespath.exceptions import JMESPathError

    if len(expression) > _LONGEST:
        raise UnfitError(f"An expression may have {_LONGEST} characters.")
    try:
        return jmespath.search(expression, value)
    except (JMESPathError, TypeError, AttributeError) as error:
        raise UnfitError(f"fields is not a list of paths, and as JMESPath it is wrong: {error}") from None
    except RecursionError:
        raise UnfitError("The expression in fields is nested too deeply.") from None


def wanted(value: JSON, fields: Sequence[str] | str, rows: Sequence[str] | None) -> JSON:
    """The same, but fields that the value itself has none of are its rows', and what stands beside those stays."""
    fields = _listed(fields)
    names = set() if isinstance(fields, str) else {field.partition(".")[0] for field in fields}
    if not rows or not isinstance(value, dict) or not names or not names.isdisjoint(value):
        return project(value, fields)
    inner = value.get(rows[0])
    return {**value, rows[0]: wanted(inner, fields, rows[1:]) if rows[1:] else project(inner, fields)}


def _wanted(value: JSON, fields: Sequence[str]) -> JSON:
    wanted: dict[str, list[str]] = {}
    for field in fields:
        name, _, rest = field.partition(".")
        wanted.setdefault(name, []).append(rest)
    return _kept(value, wanted)


def _kept(value: JSON, wanted: dict[str, list[str]]) -> JSON:
    if isinstance(value, list):
        return [_kept(item, wanted) for item in value]
    if not isinstance(value, dict):
        return value
    # A field wanted whole is kept whole, whatever is wanted inside it.
    return {
        name: inner if "" in wanted[name] else _wanted(inner, wanted[name])
        for name, inner in value.items()
        if name in wanted
    }
