"""Edits the tables below one table of a TOML text, and leaves every other character alone.

The functions are those of `jsonc_edit.py`. A member is a table with a header of its own, with the tables below it: this
is how people and hosts write servers. One that is written inline is left out of `member_texts`. `tomlkit` would find
all forms, but its insertions change line ends and join tables that a blank line separated.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.jsonc_edit import line_end
from deltamcp.values import JSON

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|#[^\n]*|[\[\]{}]|\n|[^\s]",
    re.DOTALL,
)
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*")
_LINE_END = re.compile(r"\r?\n")


class _Section(NamedTuple):
    """A table with its header, up to the end of its last statement."""

    path: tuple[str, ...]
    start: int
    end: int


def parse(text: str) -> JSON:
    """
    Raises:
        ConfigurationError: the text is not TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"it is not TOML: {str(error)[:200]}") from None


def member_texts(text: str, path: Sequence[str]) -> dict[str, str]:
    """Returns the texts of the tables below the table at the path that are written with a header, by name."""
    newline = line_end(text)
    return {
        name: (newline * 2).join(text[section.start : section.end] for section in spans)
        for name, spans in _find_members(text, path).items()
    }


def repeated_names(text: str, path: Sequence[str]) -> set[str]:
    """TOML forbids them."""
    return set()


def make_member(name: str, value: dict[str, Any], text: str, path: Sequence[str]) -> str:
    """Returns the text of a new table, with tables in it inline."""
    import tomlkit  # 30 ms to import

    body = tomlkit.document()
    for key, item in value.items():
        if isinstance(item, dict):
            table = tomlkit.inline_table()
            table.update(item)
            body[key] = table
        else:
            body[key] = item
    header = ".".join(tomlkit.key(part).as_string() for part in (*path, name))
    return f"[{header}]\n{body.as_string().rstrip()}".replace("\n", line_end(text))


def edit_members(
    text: str, path: Sequence[str], replaced: Mapping[str, Sequence[str]], added: Sequence[str] = ()
) -> str:
    """Returns the text with some tables below the table at the path replaced, and others added at its end."""
    newline = line_end(text)
    members = _find_members(text, path)
    cuts: list[tuple[int, int, str]] = []
    for name, texts in replaced.items():
        removed = members.get(name, [])
        if removed and texts:
            first, *removed = removed
            cuts.append((first.start, first.end, (newline * 2).join(texts)))
        cuts += [_removal(text, section) for section in removed]
    for start, end, new in sorted(cuts, reverse=True):
        text = text[:start] + new + text[end:]
    for new in added:
        if text.strip("\ufeff \t\r\n"):
            text = text.rstrip() + newline * 2
        text += new + newline
    return text


def _removal(text: str, section: _Section) -> tuple[int, int, str]:
    blank = _BLANK_LINES.match(text, section.end)
    return section.start, blank.end() if blank else section.end, ""


def _find_members(text: str, path: Sequence[str]) -> dict[str, list[_Section]]:
    """Returns where each table below the table at the path is: one section, or several if others stand between them."""
    depth = len(path)
    members: dict[str, list[_Section]] = {}
    last: tuple[str, ...] = ()
    for section in _find_sections(text):
        key = section.path[: depth + 1]
        if len(key) == depth + 1 and key[:depth] == tuple(path):
            sections = members.setdefault(key[depth], [])
            if key == last:
                sections[-1] = sections[-1]._replace(end=section.end)
            else:
                sections.append(section)
        last = key
    return members


def _find_sections(text: str) -> list[_Section]:
    sections: list[_Section] = []
    depth, starts_statement, header_start = 0, True, None
    start = 1 if text.startswith("\ufeff") else 0
    for token in _TOKEN.finditer(text, start):
        kind = token[0][0]
        if kind == "\n":
            starts_statement = starts_statement or not depth
            continue
        if kind == "#":
            continue
        if starts_statement and kind == "[" and not depth:
            header_start = token.start()
        starts_statement = False
        depth += (kind in "[{") - (kind in "]}")
        if header_start is not None and not depth:
            sections.append(_Section(_parse_header(text[header_start : token.end()]), header_start, token.end()))
            header_start = None
        elif sections and header_start is None:
            sections[-1] = sections[-1]._replace(end=token.end())
    return [section._replace(end=_statement_end(text, section.end)) for section in sections]


def _statement_end(text: str, at: int) -> int:
    """Returns the end of the line that a statement ends in, with its comment and without its line end."""
    found = _LINE_END.search(text, at)
    return found.start() if found else len(text)


def _parse_header(header: str) -> tuple[str, ...]:
    names: list[str] = []
    node: Any = tomllib.loads(header)
    while node:
        if isinstance(node, list):
            node = node[0]
            continue
        ((name, node),) = node.items()
        names.append(name)
    return tuple(names)
