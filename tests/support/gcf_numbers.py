"""Numbers as GCF gives them back."""

from typing import Any


def with_whole_integers(value: Any) -> Any:
    """`value` as the format gives it back: whole numbers are integers, whatever they were."""
    if isinstance(value, dict):
        return {name: with_whole_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return list(map(with_whole_integers, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
