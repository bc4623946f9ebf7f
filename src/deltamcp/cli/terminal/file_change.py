"""Shows how a configuration file changes, without the secrets in it, and asks the user whether to change it.

A text may be a secret by its place (`env`, `headers`), by the name of its key, option, variable, header or parameter,
or because it is the rest of an address. Arguments may be command lines for a shell, in any quoting, and those again.
"""

import argparse
import contextlib
import difflib
import itertools
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from deltamcp.cli.terminal.elicitation import agrees
from deltamcp.cli.terminal.output import print_changed_line, print_line
from deltamcp.errors import ConfigurationError
from deltamcp.hosts.files import is_reference
from deltamcp.hosts.installation import decode, editor_for
from deltamcp.runtime.secrets import Secrets, is_secret_name, shell_words
from deltamcp.values import JSON

MASK = "•••"
_SECRET_OBJECTS = frozenset({"env", "environment", "headers", "http_headers", "requestInit"})
"""The keys of objects all of whose texts may be secret."""
_VARIABLE_OPTIONS = frozenset({"-e", "--env", "--environment", "--build-arg"})
_HEADER_OPTIONS = frozenset({"-h", "--header", "--headers"})
_SCHEMES = frozenset({"bearer", "basic", "digest", "token", "apikey"})
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""' + r"|'''.*?'''" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
# Each begins where nothing before it belongs to it, too: else a long word is searched from each of its characters.
_ASSIGNED = re.compile(r"(?<![\w.-])([\w.-]+)([\"']?\s*[:=]\s*[\"']|=)((?<=[\"'])[^\"']+|[^\s\"',;]+)")
"""A name and its value, as comments have them."""
_OPTION = re.compile(r"[-/][^\s=]*")
_SHELL_OPTION = re.compile(r"-\w*c|/[ck]|-command")
"""The option before a command line."""
_VARIABLE = re.compile(r"(?<![A-Za-z_])(?<![A-Za-z_][\w.-])([A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_HEADER = re.compile(r"(?<![\w-])([\w-]+)\s*:\s*(?!//)(\S.*)", re.DOTALL)
_ADDRESS = re.compile(r"(?<![A-Za-z])(?<![A-Za-z][A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_PATH_KEY = re.compile(r"(?<=/)(?=[^/]*[0-9])[\w-]{16,}(?=/|$)")
"""A part of an address's path that is a key rather than a name."""
_MAX_SHELLS = 4
"""How many shells may be in each other; what a further one is told is masked as a whole."""


@contextlib.contextmanager
def file_faults(path: Path) -> Iterator[None]:
    """Names a file in what is wrong with it: that it cannot be read, or not be changed.

    Raises:
        ConfigurationError: the block raised `OSError` or `ConfigurationError`.
    """
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path} cannot be changed: {str(error).rstrip('.')}.") from None


def mask_secrets(path: Path, content: bytes) -> str:
    """Returns the text of a file with a mask in place of each text that may be a secret.

    Raises:
        ConfigurationError: the content cannot be read.
    """
    text = decode(content)
    masks: dict[str, str] = {}
    for value, shown in _find_secrets(editor_for(path).parse(text)):
        if masks.get(value) != MASK:
            masks[value] = shown
    secrets = Secrets(value for value, shown in masks.items() if shown == MASK)

    def mask(match: re.Match[str]) -> str:
        value = _decode_string(match[0])
        shown = masks.get(value) or _mask_words([value])[0]
        if shown != MASK and not is_secret_name(value):
            shown = secrets.redact(shown)
        return match[0] if shown == value else json.dumps(shown, ensure_ascii=False)

    return _ASSIGNED.sub(_mask_assigned, _STRING.sub(mask, text))


def _find_secrets(node: JSON, is_secret: bool = False) -> Iterator[tuple[str, str]]:
    """Yields the texts of a value that may be secret, each with what is shown instead."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from _find_secrets(value, is_secret or name in _SECRET_OBJECTS or is_secret_name(name))
    elif isinstance(node, list):
        words = [item for item in node if isinstance(item, str)]
        if not is_secret:
            yield from ((word, shown) for word, shown in zip(words, _mask_words(words), strict=True) if word != shown)
        for item in node:
            if is_secret or not isinstance(item, str):
                yield from _find_secrets(item, is_secret)
    elif isinstance(node, str):
        shown = _mask_whole(node) if is_secret else _mask_words([node])[0]
        if shown != node:
            yield node, shown


def _mask_words(words: Sequence[str], shells: int = 0) -> list[str]:
    """Masks what may be secret in the words of a command line."""
    shown, before = [], ""
    for word in words:
        shown.append(_mask_word(before, word, shells))
        before = word
    return shown


def _mask_word(before: str, word: str, shells: int) -> str:
    option = before.casefold() if _OPTION.fullmatch(before) else ""
    if (option and is_secret_name(option)) or before.casefold().rstrip(":") in _SCHEMES:
        return _mask_whole(word)
    if option in _HEADER_OPTIONS and (header := _HEADER.fullmatch(word)):
        return f"{header[1]}: {_mask_whole(header[2])}"
    name, is_assigned, value = word.partition("=")
    if is_assigned and _OPTION.fullmatch(name):
        return f"{name}={_mask_word(name, value, shells)}"
    if word[:1] in ("{", "[") and is_secret_name(word):
        return MASK
    variable = _VARIABLE.search(word)
    if option in _VARIABLE_OPTIONS and variable:
        return f"{variable[1]}={_mask_whole(variable[2])}"
    if _SHELL_OPTION.fullmatch(option) or (re.search(r"\s", word) and not _VARIABLE.match(word)):
        return _mask_command(word, shells)
    word = _ADDRESS.sub(lambda address: _mask_address(address[0]), word)
    variable = _VARIABLE.search(word)
    if variable and (variable[1].isupper() or is_secret_name(variable[1])):
        return f"{word[: variable.start(2)]}{_mask_whole(variable[2])}"
    if re.search(r"\s", word):
        return _mask_command(word, shells)
    if (header := _HEADER.search(word)) and is_secret_name(header[1]):
        return f"{word[: header.start(2)]}{_mask_whole(header[2])}"
    return word


def _mask_command(text: str, shells: int) -> str:
    """Masks what may be secret in a command line; it is written anew from its words if there is anything."""
    if shells == _MAX_SHELLS:
        return MASK
    if (header := _HEADER.fullmatch(text)) and is_secret_name(header[1]):
        return f"{header[1]}: {_mask_whole(header[2])}"
    words = shell_words(text)
    shown = _mask_words(words, shells + 1)
    return text if shown == words else " ".join(shlex.quote(word) if re.search(r"\s", word) else word for word in shown)


def _mask_whole(text: str) -> str:
    return text if is_reference(text) else MASK


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


def _mask_assigned(match: re.Match[str]) -> str:
    name, mark, value = match.groups()
    return f"{name}{mark}{_mask_whole(value)}" if is_secret_name(name) and MASK not in value else match[0]


def _decode_string(token: str) -> str:
    try:
        is_json = token.startswith('"') and not token.startswith('"""')
        decoded = json.loads(token) if is_json else tomllib.loads(f"x = {token}")["x"]
    except ValueError:
        return token
    return str(decoded)


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
        print_changed_line(f"{line[:_MAX_LINE]}…" if len(line) > _MAX_LINE else line)


def name_file(path: Path) -> str:
    """Names a file, and the one that is written in its place if links lead there."""
    target = Path(os.path.realpath(path))
    return str(path) if target == path.absolute() else f"{path}, a link that leads to {target}"


def add_change_options(verb: argparse.ArgumentParser) -> None:
    """Adds what `agrees_to_write` reads."""
    verb.add_argument("--yes", action="store_true", help="write without asking")
    verb.add_argument("--dry-run", action="store_true", help="show the change and write nothing")


def agrees_to_write(args: argparse.Namespace) -> bool:
    """Whether the user wants the change that was shown, at the terminal or beforehand; tells if nothing is written.

    Raises:
        ConfigurationError: there is nobody to ask.
    """
    if not args.dry_run:
        if not args.yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigurationError("Nothing was written: say --yes to write it, or run this at a terminal.")
        if args.yes or agrees("Write this?"):
            return True
    print_line("Nothing was written.")
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
