"""Shows how a configuration file changes, without the secrets in it, and asks the user whether to write it."""

import difflib
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from deltamcp.cli.elicitation import read_choice
from deltamcp.cli.output import print_text
from deltamcp.client.configs.variables import find_references
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.installation.installation import decode, editor_for
from deltamcp.values import JSON

MASK = "•••"
_SECRET_OBJECTS = frozenset({"env", "environment", "headers", "http_headers", "requestInit"})
"""The keys of objects all of whose texts may be secret."""
_SECRET_NAME = re.compile(
    r"token|secret|passw|credential|api[-_]?key|access[-_]?key|private[-_]?key|auth\b", re.IGNORECASE
)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'")
_ASSIGNED_SECRET = re.compile(rf"((?:{_SECRET_NAME.pattern})[\w-]*[\"']?\s*[:=]\s*[\"'])[^\"']+", re.IGNORECASE)
_PATH_KEY = re.compile(r"(?<=/)(?=[^/]*[0-9])[\w-]{16,}(?=/|$)")
"""A part of an address's path that is a key rather than a name."""
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
    print_text(f"{path}:")
    for line in _changed_lines(old, new):
        print_text(f"  {line[:_MAX_LINE]}…" if len(line) > _MAX_LINE else f"  {line}")


def mask_secrets(path: Path, content: bytes) -> str:
    """Returns the text of a file with a mask in place of each text that may be a secret.

    Raises:
        ConfigurationError: the content cannot be read.
    """
    text = decode(content)
    masks = dict(_find_secrets(editor_for(path).parse(text)))

    def mask(match: re.Match[str]) -> str:
        value = _decode_string(match[0])
        return f'"{masks[value]}"' if value in masks else match[0]

    return _ASSIGNED_SECRET.sub(lambda match: match[1] + MASK, _STRING.sub(mask, text))


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


def _find_secrets(node: JSON, is_secret: bool = False) -> Iterator[tuple[str, str]]:
    """Yields the texts of a value that may be secret, each with what is shown instead."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _find_secrets(value, is_secret or name in _SECRET_OBJECTS or bool(_SECRET_NAME.search(name)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            previous = node[index - 1] if index else None
            named = isinstance(previous, str) and previous.startswith("-") and bool(_SECRET_NAME.search(previous))
            yield from _find_secrets(value, is_secret or named)
    elif isinstance(node, str):
        if is_secret and not _is_reference(node):
            yield node, MASK
        elif node.startswith("-") and "=" in node and _SECRET_NAME.search(node.partition("=")[0]):
            yield node, f"{node.partition('=')[0]}={MASK}"
        elif "://" in node and (masked := _mask_address(node)) != node:
            yield node, masked


def _is_reference(text: str) -> bool:
    """Whether a text is a variable and no more than a word in front of it, as `Bearer ${TOKEN}`."""
    references = find_references(text)
    return bool(references) and re.fullmatch(r"[A-Za-z]*\s*", text.replace(references[0].text, "", 1)) is not None


def _mask_address(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    return parts._replace(
        netloc=f"{MASK}@{host}" if user and at else parts.netloc,
        path=_PATH_KEY.sub(MASK, parts.path),
        query=parts.query and MASK,
        fragment=parts.fragment and MASK,
    ).geturl()


def _decode_string(token: str) -> str:
    try:
        decoded = json.loads(token) if token.startswith('"') else tomllib.loads(f"x = {token}")["x"]
    except ValueError:
        return token
    return str(decoded)


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
