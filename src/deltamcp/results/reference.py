"""Resolves references to stored results in the arguments of a call.

With a reference a model passes a part of an earlier result on, with changes, without writing the value itself:

    {"$result": "R7", "path": "/items/3/body", "patch": [{"find": "teh", "replace": "the"}]}

`fields` selects what it passes on, as a query does, and an argument that is a text gets a list of texts as its lines:

    {"$result": "R7", "fields": "[].name"}

A patch is a list of JSON Patch operations (RFC 6902), or of texts to find and their replacements.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypeGuard

from deltamcp.errors import UsageError
from deltamcp.results import document
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc
from deltamcp.work import Work, WorkLimitError

KEY = "$result"
MAX_BYTES = 8 * 1024 * 1024
"""The most bytes of stored results that the arguments of one call may refer to; each reference counts, because the
value of each is checked and encoded again."""
MAX_VALUES = 250_000
"""The most values in them, by `document.estimate_values`; decoded, they take some 25 MB."""
_ALLOWED_KEYS = frozenset({KEY, "path", "fields", "patch"})
_ENCODED_KEY = b'"$result":'
_MAX_PATCH_CHANGES = 1_000
_NULL = {"type": "null"}
_NESTED_TYPES = (dict, list)
_MAX_SEEN = 500
"""Values that `has_reference` looks at one by one; of larger arguments it searches the JSON, which is faster."""
_POINTER_BYTES = 8


def is_reference(value: JSON) -> TypeGuard[dict[str, JSON]]:
    return type(value) is dict and KEY in value


def check_reference(value: dict[str, JSON]) -> None:
    """Checks that a reference has nothing beside what references have.

    Raises:
        UsageError: it has, or a part of it has the wrong type.
    """
    unknown = value.keys() - _ALLOWED_KEYS
    if unknown:
        raise UsageError(f"A reference has {KEY}, path, fields and patch, not {', '.join(sorted(unknown))[:100]!r}.")
    fields = value.get("fields")
    if not (fields is None or isinstance(fields, str) or (isinstance(fields, list) and all(map(_is_text, fields)))):
        raise UsageError("fields must be a JMESPath expression, or a list of paths into the result.")


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def join_lines(arguments: dict[str, JSON], sent: Mapping[str, JSON], schema: Mapping[str, Any]) -> dict[str, JSON]:
    """Returns the arguments with lists of texts as lines, where a reference stands for a text by its schema."""
    properties = schema.get("properties", {})
    for name, value in arguments.items():
        if (
            is_reference(sent[name])
            and isinstance(value, list)
            and all(map(_is_text, value))
            and _takes_text(properties.get(name))
        ):
            arguments = {**arguments, name: "\n".join(map(str, value))}
    return arguments


def _takes_text(schema: JSON) -> bool:
    """Whether a schema admits a text, or null, and no list."""
    if not isinstance(schema, dict):
        return False
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return any(map(_takes_text, branches)) and all(_takes_text(each) or each == _NULL for each in branches)
    types = schema.get("type")
    return types == "string" or (isinstance(types, list) and set(types) == {"string", "null"})


def has_reference(arguments: Mapping[str, JSON]) -> bool:
    """Whether the arguments contain a reference, at any depth; of large arguments, whether they may contain one."""
    for value in arguments.values():  # noqa: SIM110 - a generator costs every call 0.4 µs
        if type(value) in _NESTED_TYPES and _may_have_reference(value):
            return True
    return False


def _may_have_reference(value: JSON) -> bool:
    try:
        return any(find_references(value, Work(_MAX_SEEN)))
    except WorkLimitError:
        return _ENCODED_KEY in jsonrpc.encode(value)


def find_references(value: JSON, work: Work) -> Iterator[dict[str, JSON]]:
    """Yields every reference in a value, at any depth."""
    stack = [value]
    while stack:
        work.spend()
        node = stack.pop()
        if is_reference(node):
            yield node
        elif type(node) is dict:
            stack.extend(node.values())
        elif type(node) is list:
            stack.extend(node)


def reference_paths(value: JSON) -> Iterator[tuple[str | int, ...]]:
    """Yields the path of every reference in a value, at any depth."""
    stack: list[tuple[tuple[str | int, ...], JSON]] = [((), value)]
    while stack:
        path, node = stack.pop()
        if is_reference(node):
            yield path
        elif type(node) is dict:
            stack.extend(((*path, key), inner) for key, inner in node.items())
        elif type(node) is list:
            stack.extend(((*path, index), inner) for index, inner in enumerate(node))


def replace_references(value: JSON, resolved: Mapping[int, JSON], work: Work) -> JSON:
    """Returns the value with the resolved value in place of each reference; `resolved` has them by `id(reference)`."""
    work.spend()
    if id(value) in resolved:
        return resolved[id(value)]
    if type(value) is dict:
        return {key: replace_references(inner, resolved, work) for key, inner in value.items()}
    if type(value) is list:
        return [replace_references(inner, resolved, work) for inner in value]
    return value


def apply_patch(value: JSON, patch: JSON, max_bytes: int, work: Work) -> JSON:
    """Changes a value by a patch, whose changes apply in order, and return it; it may grow by `max_bytes`.

    Raises:
        UsageError: one of the changes cannot be applied.
    """
    if not isinstance(patch, list) or len(patch) > _MAX_PATCH_CHANGES:
        raise UsageError(f"patch must be a list of at most {_MAX_PATCH_CHANGES} changes.")
    for place, change in enumerate(patch):
        if not isinstance(change, dict):
            raise UsageError(f"patch[{place}] must be an object.")
    for finds, run in groupby(enumerate(patch), key=lambda placed: "find" in placed[1]):
        if finds:
            for place, change in run:
                value = _find_and_replace(value, change, place, max_bytes, work)
        else:
            value = _apply_json_patch(value, [change for _, change in run], max_bytes, work)
    return value


def _find_and_replace(value: JSON, change: dict[str, JSON], place: int, max_bytes: int, work: Work) -> JSON:
    find, replace, every = change["find"], change.get("replace", ""), change.get("all", False)
    if not isinstance(value, str):
        raise UsageError(f"patch[{place}] has find, but the value is not a text; give the path of a text.")
    if not isinstance(find, str) or not find or not isinstance(replace, str):
        raise UsageError(f"patch[{place}] must have texts in find and replace.")
    # In a short text the search may compare the text to find with each place.
    work.scan(3 * len(value) * (1 + min(len(find), 100) // 16))
    times = value.count(find)
    if not times:
        raise UsageError(f"patch[{place}]: {find[:60]!r} is not in the text.")
    if times > 1 and every is not True:
        raise UsageError(
            f'patch[{place}]: {find[:60]!r} is in the text {times} times; find more of it, or "all": true.'
        )
    if len(value) + times * (len(replace) - len(find)) > max_bytes:
        raise UsageError(f"patch[{place}] makes the text too long.")
    return value.replace(find, replace)


def _apply_json_patch(value: JSON, changes: list[dict[str, Any]], max_bytes: int, work: Work) -> JSON:
    import jsonpatch  # 10 ms, seldom needed
    from jsonpointer import JsonPointerException

    _count_json_patch(value, changes, max_bytes, work)
    try:
        return jsonpatch.JsonPatch(changes).apply(value, in_place=True)
    except jsonpatch.JsonPatchTestFailed:
        raise UsageError("The patch cannot be applied: a test in it does not hold.") from None
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, ValueError, KeyError) as error:
        raise UsageError(f"The patch cannot be applied: {str(error)[:200]}.") from None
    except RecursionError:
        raise UsageError("The patch cannot be applied: the value is nested too deeply.") from None


def _count_json_patch(value: JSON, changes: list[dict[str, Any]], max_bytes: int, work: Work) -> None:
    """Counts the steps that a patch takes: those of its pointers, of lists that items are moved in, and of copies."""
    data = jsonrpc.encode([value, changes])
    work.scan(len(data))
    values = document.estimate_values(data, work)
    for change in changes:
        for name in ("path", "from"):
            path = change.get(name)
            if isinstance(path, str):
                work.scan(len(path))
                work.spend(path.count("/"))
        work.scan(_POINTER_BYTES * values)
    # Each copy operation may copy the whole value into itself, and so double it.
    copies = sum(change.get("op") == "copy" for change in changes)
    if copies and (len(data) << min(copies, 64) > max_bytes or values << min(copies, 64) > MAX_VALUES):
        raise UsageError("The patch copies too much.")
    if copies:
        work.spend(values << copies)
