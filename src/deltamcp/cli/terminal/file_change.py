"""Shows how a configuration file changes, without the secrets in it, and asks the user whether to write it."""

import difflib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deltamcp.cli.terminal.elicitation import read_choice
from deltamcp.cli.terminal.output import print_line
from deltamcp.cli.terminal.secret_mask import mask_secrets
from deltamcp.errors import ConfigurationError

_MAX_LINE = 200
_CONTEXT_LINES = 2
_TELLING_CHARS = 20
"""Lines with fewer characters, such as `"args": [`, are alike in many entries."""


def print_change(path: Path, before: bytes | None, after: bytes) -> None:
    """Prints the lines that change.

    Raises:
        ConfigurationError: one of the contents cannot be read.
    """
    old, new = mask_secrets(path, before or b"").splitlines(), mask_secrets(path, after).splitlines()
    print_line(f"{name_file(path)}:")
    for line in map(str.expandtabs, _changed_lines(old, new)):
        print_line(f"  {line[:_MAX_LINE]}…" if len(line) > _MAX_LINE else f"  {line}")


def name_file(path: Path) -> str:
    """Names a file, and the one that is written in its place if links lead there."""
    target = Path(os.path.realpath(path))
    return str(path) if target == path.absolute() else f"{path}, a link that leads to {target}"


def confirm(question: str, is_agreed: bool) -> bool:
    """Returns whether the user agrees, at the terminal or beforehand.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    if is_agreed:
        return True
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise ConfigurationError("Nothing was written: say --yes to write it, or run this at a terminal.")
    try:
        return read_choice(f"{question} y or n", "yn") == "y"
    except EOFError:
        return False


class _ChangedBlock(NamedTuple):
    """Lines that change: those of the old text from `start` to `end`, and of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


def _changed_lines(old: list[str], new: list[str]) -> Iterator[str]:
    """Yields the lines that go, marked with -, those that come, marked with +, and a few around them."""
    blocks = _find_blocks(old, new)
    shown = 0
    for block, following in itertools.zip_longest(blocks, blocks[1:]):
        start = max(shown, block.start - _CONTEXT_LINES)
        if start > shown:
            yield "..."
        yield from (f"  {line}" for line in old[start : block.start])
        yield from (f"- {line}" for line in old[block.start : block.end])
        yield from (f"+ {line}" for line in new[block.new_start : block.new_end])
        shown = min(block.end + _CONTEXT_LINES, following.start if following else len(old))
        yield from (f"  {line}" for line in old[block.end : shown])
    if shown < len(old):
        yield "..."


def _find_blocks(old: list[str], new: list[str]) -> list[_ChangedBlock]:
    """Returns the blocks of lines that change; those between which there are only braces and the like are one."""
    first = next((index for index, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), None)
    if first is None:
        first = min(len(old), len(new))
    blocks: list[_ChangedBlock] = []
    for kind, *places in difflib.SequenceMatcher(None, old[first:], new[first:]).get_opcodes():
        block = _ChangedBlock(*(first + place for place in places))
        if kind == "equal":
            continue
        between = old[blocks[-1].end if blocks else 0 : block.start]
        if blocks and len(between) <= 2 * _CONTEXT_LINES and max(map(len, map(str.strip, between))) < _TELLING_CHARS:
            block = block._replace(start=blocks[-1].start, new_start=blocks.pop().new_start)
        blocks.append(block)
    return blocks
