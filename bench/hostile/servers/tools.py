"""What every server under attack offers: the same functions and data in each, made before the first request."""

import ctypes
import gc
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

_WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "eiusmod", "tempor")
MEGABYTE = 1_000_000


def _make_text(size: int) -> str:
    line = " ".join(_WORDS) + "\n"
    return (line * (size // len(line) + 1))[:size]


NUMBERS = [number % 10 for number in range(480_000)]
"""960 kB of JSON."""
ROWS = [
    {"id": n, "name": f"user {n * 7919 % 10**6}", "email": f"u{n}@example.com", "tags": ["a", "bb"], "open": n % 7 > 0}
    for n in range(11_000)
]
"""960 kB of JSON."""
LONG_LIST = [number % 10 for number in range(2_000_000)]
"""4 MB of JSON."""
KEYED = {f"k{number:05}": "x" * 900 for number in range(3_200)}
"""2.9 MB of JSON."""
TEXT = _make_text(3 * MEGABYTE)
LARGE_TEXT = _make_text(20 * MEGABYTE)
CHATTER_MESSAGES = 2_000
CHATTER_TEXT = "x" * 1_000


async def total(values: list[int]) -> int:
    """Adds numbers."""
    return sum(values)


async def echo(text: str) -> str:
    """Returns its argument."""
    return text


async def count(items: list[Any]) -> int:
    """Counts items."""
    return len(items)


async def shorten(text: str) -> str:
    """Returns the length of a text."""
    return str(len(text))


async def list_numbers() -> Any:
    """Lists 480,000 numbers."""
    return NUMBERS


async def list_rows() -> Any:
    """Lists 11,000 users."""
    return ROWS


async def list_more() -> Any:
    """Lists 2,000,000 numbers."""
    return LONG_LIST


async def get_settings() -> Any:
    """Returns an object of 3,200 texts."""
    return KEYED


async def read_text() -> str:
    """Returns a text of 3 MB."""
    return TEXT


async def read_large_text() -> str:
    """Returns a text of 20 MB."""
    return LARGE_TEXT


async def fail() -> str:
    """Fails, so that the server logs why."""
    raise RuntimeError("x" * 1_000)


async def settle() -> str:
    """Returns free memory to the system.

    The size of the process is then what it holds.
    """
    return_memory()
    return "settled"


def return_memory() -> None:
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def settle_on_signal() -> None:
    """Has the process return free memory at SIGUSR1, whatever it serves and to whom."""
    signal.signal(signal.SIGUSR1, lambda *_: return_memory())


async def read_in_pieces(pieces: int = 2_000) -> AsyncIterator[str]:
    """Reads a text in pieces of a kilobyte, one after the other."""
    for number in range(min(pieces, 100_000)):
        yield f"{number} {CHATTER_TEXT}"


PLAIN = (total, echo, count, shorten, list_numbers, list_rows, read_large_text, fail, settle)
"""Tools without a policy for their results."""
CUT = (list_numbers, list_rows, list_more, get_settings, read_text, echo)
"""Tools whose results are cut and stored, where a server can do that; their names end in `_in_parts`."""


def describe_operation(number: int) -> str:
    """A description of one of many operations."""
    verbs, things = ("list", "get", "create", "delete", "find"), ("user", "row", "order", "invoice", "ticket", "page")
    return f"{verbs[number % 5].capitalize()} the {things[number % 6]}s of account {number}, by {_WORDS[number % 11]}."


def greet(name: str) -> str:
    """Greets somebody."""
    return f"Please greet {name}."


def read_place(a: str, b: str, c: str, d: str) -> str:
    """Reads a place that four names identify."""
    return f"{a} {b} {c} {d}"


TEMPLATE = "y://{a}-{b}-{c}-{d}!"
NAMES = ["Ann", "Bob", "Carol"]
