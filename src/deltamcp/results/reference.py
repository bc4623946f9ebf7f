"""Resolves references to stored results in the arguments of a call.

With a reference a model passes a part of an earlier result on, with changes, without writing the value itself:

    {"$result": "R7", "path": "/items/3/body", "patch": [{"find": "teh", "replace": "the"}]}

A patch is a list of JSON Patch operations (RFC 6902), or of texts to find and their replacements.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TypeGuard

from deltamcp.errors import UsageError
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

KEY = "$result"
_ALLOWED_KEYS = frozenset({KEY, "path", "patch"})
_MAX_PATCH_CHANGES = 1_000
_NESTED_TYPES = (dict, list)


def is_reference(value: JSON) -> TypeGuard[dict[str, JSON]]:
    return type(value) is dict and KEY in value and value.keys() <= _ALLOWED_KEYS


def has_reference(arguments: Mapping[str, JSON]) -> bool:
    """Whether the arguments contain a reference, at any depth."""
    for value in arguments.values():  # noqa: SIM110 - a generator costs every call 0.4 µs
        if type(value) in _NESTED_TYPES and any(find_references(value)):
            return True
    return False


def find_references(value: JSON) -> Iterator[dict[str, JSON]]:
    """Yield every reference in a value, at any depth."""
    stack = [value]
    while stack:
        node = stack.pop()
        if is_reference(node):
            yield node
        elif type(node) is dict:
            stack.extend(node.values())
        elif type(node) is list:
            stack.extend(node)


def reference_paths(value: JSON) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every reference in a value, at any depth."""
    stack: list[tuple[tuple[str | int, ...], JSON]] = [((), value)]
    while stack:
        path, node = stack.pop()
        if is_reference(node):
            yield path
        elif type(node) is dict:
            stack.extend(((*path, key), inner) for key, inner in node.items())
        elif type(node) is list:
            stack.extend(((*path, index), inner) for index, inner in enumerate(node))


def replace_references(value: JSON, resolved: Mapping[int, JSON]) -> JSON:
    """Return the value with the resolved value in place of each reference; `resolved` has them by `id(reference)`."""
    if id(value) in resolved:
        return resolved[id(value)]
    if type(value) is dict:
        return {key: replace_references(inner, resolved) for key, inner in value.items()}
    if type(value) is list:
        return [replace_references(inner, resolved) for inner in value]
    return value


def apply_patch(value: JSON, patch: JSON, max_bytes: int) -> JSON:
    """Return a copy of the value with the changes of a patch applied in order; the copy may grow by `max_bytes`.

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
                value = _find_and_replace(value, change, place, max_bytes)
        else:
            value = _apply_json_patch(value, [change for _, change in run], max_bytes)
    return value


def _find_and_replace(value: JSON, change: dict[str, JSON], place: int, max_bytes: int) -> JSON:
    find, replace, every = change["find"], change.get("replace", ""), change.get("all", False)
    if not isinstance(value, str):
        raise UsageError(f"patch[{place}] has find, but the value is not a text; give the path of a text.")
    if not isinstance(find, str) or not find or not isinstance(replace, str):
        raise UsageError(f"patch[{place}] must have texts in find and replace.")
    times = value.count(find)
    if not times:
        raise UsageError(f"patch[{place}]: {find[:60]!r} is not in the text.")
    if times > 1 and every is not True:
        raise UsageError(
            f'patch[{place}]: {find[:60]!r} is in the text {times} times; find more of it, or "all": true.'
        )
    if times * (len(replace) - len(find)) > max_bytes or len(value) > max_bytes:
        raise UsageError(f"patch[{place}] makes the text too long.")
    return value.replace(find, replace)


def _apply_json_patch(value: JSON, changes: list[dict[str, Any]], max_bytes: int) -> JSON:
    import jsonpatch  # 10 ms, seldom needed
    from jsonpointer import JsonPointerException

    # Each copy operation may copy the whole value into itself, and so double it.
    copies = sum(change.get("op") == "copy" for change in changes)
    if copies and len(jsonrpc.encode(value)) << min(copies, 64) > max_bytes:
        raise UsageError("The patch copies too much.")
    try:
        return jsonpatch.JsonPatch(changes).apply(value)
    except jsonpatch.JsonPatchTestFailed:
        raise UsageError("The patch cannot be applied: a test in it does not hold.") from None
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, ValueError, KeyError) as error:
        raise UsageError(f"The patch cannot be applied: {str(error)[:200]}.") from None
    except RecursionError:
        raise UsageError("The patch cannot be applied: the value is nested too deeply.") from None
