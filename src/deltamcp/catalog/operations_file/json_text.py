"""JSON that people write: parses it and reports every fault with its place."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from deltamcp.values import JSON

_MAX_NESTING = 128
_MAX_INTEGER_DIGITS = 1000
_SURROGATE = re.compile("[\ud800-\udfff]")


class Problem(Struct, frozen=True):
    """One fault of a file: a JSON pointer to it ("" is the document), and a sentence that tells how to correct it."""

    pointer: str
    sentence: str


def extend_pointer(pointer: str, *parts: str | int) -> str:
    """Appends parts to a JSON pointer."""
    # RFC 6901, 3
    return pointer + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def parse_json(body: bytes) -> tuple[JSON, list[Problem]]:
    """Parses a file and returns its value and its faults; an unusable value is `UNSET`. Never raises."""
    repeats: list[tuple[dict[str, JSON], list[str]]] = []

    def make_object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
        result = dict(pairs)
        if len(result) < len(pairs):
            times = Counter(key for key, _ in pairs)
            repeats.append((result, [key for key in result if times[key] > 1]))
        return result

    try:
        text = body.decode("utf-8-sig")
        root = json.loads(
            text, object_pairs_hook=make_object, parse_constant=_refuse_constant, parse_int=_parse_integer
        )
    except UnicodeDecodeError as error:
        return UNSET, [Problem("", f"The file is not UTF-8 at byte {error.start + 1}; save it as UTF-8.")]
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return UNSET, [Problem("", f"The file is not JSON at {where}: {error.msg[0].lower()}{error.msg[1:]}.")]
    except RecursionError:
        return UNSET, [_too_deep_problem()]
    except ValueError as error:
        return UNSET, [Problem("", f"The file is not JSON: {error}.")]
    return _examine(root, {id(node): keys for node, keys in repeats})


def _refuse_constant(name: str) -> None:
    raise ValueError(f"there is no number {name}")


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer has more than {_MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _too_deep_problem() -> Problem:
    return Problem("", f"The file is nested deeper than {_MAX_NESTING} levels.")


def _examine(root: JSON, repeats: Mapping[int, list[str]]) -> tuple[JSON, list[Problem]]:
    """Finds faults that the grammar of JSON allows: duplicate keys, lone surrogates, huge numbers and deep nesting."""
    problems: list[Problem] = []
    broken = False
    stack: list[tuple[JSON, tuple[Any, ...], int]] = [(root, (), 1)]
    while stack:
        node, path, level = stack.pop()
        children: Iterable[tuple[Any, JSON]]
        if isinstance(node, dict):
            if any(not key.isascii() and _SURROGATE.search(key) for key in node):
                problems.append(
                    Problem(_make_pointer(path), "A key here has half of a surrogate pair; write both halves.")
                )
                broken = True
                continue
            problems += (
                Problem(extend_pointer(_make_pointer(path), key), f"The key {key!r} stands here twice; keep one.")
                for key in repeats.get(id(node), ())
            )
            children = node.items()
        elif isinstance(node, list):
            children = enumerate(node)
        else:
            if isinstance(node, str) and not node.isascii() and _SURROGATE.search(node):
                problems.append(
                    Problem(_make_pointer(path), "The text has half of a surrogate pair; write both halves.")
                )
                broken = True
            elif isinstance(node, float) and not math.isfinite(node):
                problems.append(
                    Problem(_make_pointer(path), "The number is larger than a double can be; write a smaller one.")
                )
            continue
        if level > _MAX_NESTING:
            return UNSET, [*problems, _too_deep_problem()]
        stack.extend((child, (path, key), level + 1) for key, child in children)
    return (UNSET if broken else root), problems


def _make_pointer(path: tuple[Any, ...]) -> str:
    parts = []
    while path:
        path, part = path
        parts.append(part)
    return extend_pointer("", *reversed(parts))
