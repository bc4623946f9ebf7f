"""Roots: a root is the SHA-256 digest of a value's canonical form, and identifies the value.

The canonical form is compact JSON with members sorted by name. Unlike that of RFC 8785 it keeps numbers as they are:
1 and 1.0 have different roots, and so have 9007199254740992 and 9007199254740993.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from deltamcp.values import JSON

ALGORITHM = "sha256:"
SHORT_DIGITS = 12
"""Digits of a root as models see it and send it back: 7 tokens, where the full root takes 39."""
_MIN_DIGITS = 8

canonical_bytes: Callable[[Any], bytes] = msgspec.json.Encoder(order="sorted").encode
"""Encode a value as bytes that are equal for equal values only."""
_match_root = re.compile(rf"(?:{ALGORITHM})?([0-9a-f]{{{_MIN_DIGITS},64}})").fullmatch


def root_of(value: JSON, volatile: Iterable[str] = ()) -> str:
    """Returns the root of a value: `sha256:` and 64 digits, whatever the order of its members.

    Args:
        volatile: dotted paths to leave out, such as `meta.took_ms`; a path through a list applies to each of its items.
    """
    return ALGORITHM + hashlib.sha256(canonical_bytes(remove_paths(value, volatile))).hexdigest()


def root_digits(root: str) -> str | None:
    """Returns the digits of a root that a client sent, in full or the first 8 or more; None if it is not a root."""
    found = _match_root(root.strip().lower())
    return None if found is None else found[1]


def remove_paths(value: JSON, paths: Iterable[str]) -> JSON:
    """Returns the value without the members at these dotted paths."""
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
