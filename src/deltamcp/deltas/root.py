"""What a value is known by: the SHA-256 of its canonical form.

The canonical form is compact JSON with members in the order of their names. Unlike RFC 8785's it keeps numbers as
they are: 1, 1.0 and 9007199254740993 are three values, none of them any other.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from deltamcp.values import JSON

ALGORITHM = "sha256:"
SHORT_DIGITS = 12
"""Of a root that a model is shown, and sends back: 7 tokens where all of them are 39."""
_MIN_DIGITS = 8

canonical_bytes = msgspec.json.Encoder(order="sorted").encode
"""The bytes that are equal for equal values, and for no others."""
_match_root = re.compile(rf"(?:{ALGORITHM})?([0-9a-f]{{{_MIN_DIGITS},64}})").fullmatch


def root_of(value: JSON, volatile: Iterable[str] = ()) -> str:
    """`sha256:` and 64 digits, the same for equal values whatever the order of their members, and for no others.

    Args:
        volatile: dotted paths of what does not count, as `meta.took_ms`; through a list, of each of its items.
    """
    return ALGORITHM + hashlib.sha256(canonical_bytes(remove_paths(value, volatile))).hexdigest()


def root_digits(root: str) -> str | None:
    """The digits of a root that was sent, all or the first 8 or more; None where it is none of ours."""
    found = _match_root(root.strip().lower())
    return None if found is None else found[1]


def remove_paths(value: JSON, paths: Iterable[str]) -> JSON:
    """A value without what is at some dotted paths."""
    for path in paths:
        value = _remove_path(value, path.split("."))
    return value


def _remove_path(value: Any, steps: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_remove_path(item, steps) for item in value]
    if not isinstance(value, dict) or steps[0] not in value:
        return value
    if len(steps) == 1:
        return {name: item for name, item in value.items() if name != steps[0]}
    return {**value, steps[0]: _remove_path(value[steps[0]], steps[1:])}
