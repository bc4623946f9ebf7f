"""Equality of JSON values that also compares their kinds."""

from typing import Any


def is_same(one: Any, other: Any) -> bool:
    """Equal in kind too: 1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return repr(one) == repr(other)
