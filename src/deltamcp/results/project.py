"""Only the fields that are wanted of a value, by dotted path; through lists every item is meant."""

from collections.abc import Sequence

from deltamcp.values import JSON


def project(value: JSON, fields: Sequence[str]) -> JSON:
    """`["id", "user.login"]` of an object or of each object in a list; what is not there is left out."""
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
        name: inner if "" in wanted[name] else project(inner, wanted[name])
        for name, inner in value.items()
        if name in wanted
    }
