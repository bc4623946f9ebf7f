"""The entry of the gateway in a host's file, in the shape that the host reads."""

import contextlib
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltamcp.hosts.files import find_references, normalize_entry

PROGRAM = "delta-mcp"
_MAX_FOLDERS_ABOVE = 3
"""How far above a server's file its environment is looked for."""
_TYPES: Mapping[str, str] = {
    "Claude Code": "stdio",
    "VS Code": "stdio",
    "VS Code Insiders": "stdio",
    "Copilot CLI": "local",
    "OpenCode": "local",
}
"""The value of `type` where the host demands it, or writes it itself."""
_NAMED_VARIABLES_ONLY: Mapping[str, str] = {
    "Codex": "env_vars",
    "Gemini CLI": "env",
    "Qwen Code": "env",
    "Cline": "env",
    "Roo Code": "env",
}
"""The hosts that give a server only the variables that its entry names, and the key for them. The gateway needs those
that the entries behind it refer to."""
_TIMEOUT_KEYS = ("timeout", "tool_timeout_sec")
"""Keys with the time that a host gives a call; the longest of the moved servers is the gateway's."""
_PROGRAM_PATH = re.compile(r"(^|[/\\])(delta-mcp|deltamcp)(\.exe)?$")
_VARIABLE_NAME = re.compile(r"[A-Za-z_]\w*")


def find_program() -> list[str]:
    """Returns the words that start this program from anywhere: hosts have another PATH than shells."""
    beside = Path(sys.executable).with_name(f"{PROGRAM}.exe" if sys.platform == "win32" else PROGRAM)
    uvx = shutil.which("uvx")
    if uvx and "uv" in Path(sys.prefix).parts and {"archive-v0", "environments-v2"} & set(Path(sys.prefix).parts):
        return [str(Path(uvx).absolute()), PROGRAM]  # uvx runs it from a cache, which is not there for ever
    found = shutil.which(PROGRAM)
    pipx = shutil.which("pipx")
    if pipx and "pipx" in Path(sys.prefix).parts and {".cache", "cache"} & set(Path(sys.prefix).parts):
        return [str(Path(pipx).absolute()), "run", PROGRAM]  # `pipx run` deletes what it has cached
    if found and beside.is_file() and Path(found).resolve() == beside.resolve():
        return [str(Path(found).absolute())]  # the link of a tool's installer, which an upgrade keeps
    if beside.is_file():
        return [str(beside)]
    return [str(Path(found).absolute())] if found else [sys.executable, "-m", "deltamcp"]


def find_program_for(file: Path) -> list[str]:
    """Returns the words that start this program with what a server in a file imports.

    That is the program of the environment `.venv` beside the file, or in a folder above it; else this program.
    """
    folder = file.resolve().parent
    for above in (folder, *folder.parents[:_MAX_FOLDERS_ABOVE]):
        for program in (above / ".venv" / "bin" / PROGRAM, above / ".venv" / "Scripts" / f"{PROGRAM}.exe"):
            if program.is_file():
                return [str(program)]
    return find_program()


def make_entry(host: str, words: Sequence[str], moved: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the entry by which a host starts the gateway.

    Args:
        words: the command line.
        moved: the entries, as the host has them, of the servers that are behind it.
    """
    entries = list(moved)
    kind = {"type": _TYPES[host]} if host in _TYPES else {}
    if host == "OpenCode":
        return {**kind, "command": list(words), "enabled": True}
    entry: dict[str, Any] = {**kind, "command": words[0], "args": list(words[1:])}
    if host == "Zed":
        entry = {"source": "custom", **entry}  # some versions demand it
    if host == "Copilot CLI":
        entry["tools"] = ["*"]
    references = {
        reference.name: reference.text
        for raw in entries
        for reference in find_references(normalize_entry(raw))
        if _VARIABLE_NAME.fullmatch(reference.name) and reference.name != "userHome"
    }
    key = _NAMED_VARIABLES_ONLY.get(host)
    if references and key:
        entry[key] = sorted(references) if key == "env_vars" else references
    for name in _TIMEOUT_KEYS:
        given = [raw[name] for raw in entries if isinstance(raw.get(name), int | float)]
        if given:
            entry[name] = max(given)
    return entry


def starts_gateway(entry: Mapping[str, Any]) -> bool:
    """Whether an entry, in the shape of `normalize_entry`, starts a gateway of this library."""
    return _find_words(entry) is not None


def gateway_words(entry: Mapping[str, Any]) -> list[str]:
    """Returns the words after `delta-mcp gateway` of an entry that starts a gateway."""
    return _find_words(entry) or []


def started_configurations(entry: Mapping[str, Any]) -> list[Path]:
    """Returns the files that an entry which starts a gateway names, as far as they are there."""
    folder, found = Path(str(entry.get("cwd") or ".")), []
    for word in gateway_words(entry):
        with contextlib.suppress(OSError, RuntimeError):  # a word may be longer than a name, or `~nobody`
            path = folder / Path(word).expanduser()
            if path.is_file():
                found.append(path.resolve())
    return found


def _find_words(entry: Mapping[str, Any]) -> list[str] | None:
    """Returns the words after `delta-mcp gateway`; None if the entry does not start a gateway."""
    words = [str(word) for word in (entry.get("command", ""), *entry.get("args", ()))]
    program = next((index for index, word in enumerate(words) if _PROGRAM_PATH.search(word)), None)
    if program is None or "gateway" not in words[program + 1 :]:
        return None
    return words[words.index("gateway", program + 1) + 1 :]
