"""Characters that look like others: Unicode's confusables (UTS #39) and a few more."""

import functools
import importlib.resources
import unicodedata
from collections.abc import Mapping

from deltamcp.catalog.clean_text import clean

_FURTHER = {"k": "κкĸ", "m": "мʍ", "n": "п", "r": "гꮁ", "t": "тτ", "w": "ωшщ", "x": "χ", "y": "γ"}
"""What differs from a Latin letter by its height or a stroke; to Unicode that is no confusion."""
_ALIKE = {"0": "o", "1": "l", "i": "l", "|": "l", "!": "l", "5": "s", "$": "s", "@": "a"}
_PAIRS = {"rn": "m", "vv": "w", "cl": "d"}
"""ASCII characters that look alike."""


def latin(text: str) -> str:
    """Returns a text without hidden characters and marks, and with Latin letters for all that look like them."""
    if text.isascii():
        return text
    mapped = unicodedata.normalize("NFKC", clean(text)).translate(_table())
    decomposed = unicodedata.normalize("NFKD", mapped.translate(_table()))
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def skeleton(name: str) -> str:
    """Returns what a reader sees of a name at a glance: no case, no separators, one letter for all that look alike."""
    folded = latin(latin(name).casefold()).translate(_ascii_table())
    seen = "".join(char for char in folded if char.isalnum())
    for pair, letter in _PAIRS.items():
        seen = seen.replace(pair, letter)
    return seen


@functools.cache
def _ascii_table() -> Mapping[int, str]:
    return str.maketrans(_ALIKE)


@functools.cache
def _table() -> Mapping[int, str]:
    table = {lookalike: letter for letter, lookalikes in _FURTHER.items() for lookalike in lookalikes}
    text = importlib.resources.files("deltamcp.gateway.trust").joinpath("confusables.txt").read_text("utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            letters, _, lookalikes = line.partition(" ")
            table.update(dict.fromkeys(lookalikes, letters))
    return str.maketrans(table)
