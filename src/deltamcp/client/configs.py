"""Where hosts keep the servers they start, and what is written there: `mcpServers` and its cousins in one shape."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

BYTES = 32 * 1024 * 1024
"""A file's size. Claude Code keeps histories beside its servers, and that file grows to some megabytes."""

DISABLED = "it is switched off there"
UNTRUSTED = "it is in a file of this folder; where you trust that, name the file or say --project"


class Found(Struct, frozen=True):
    """A server that a file tells of."""

    name: str
    """Empty where `skipped` is about the whole file."""
    host: str
    path: Path
    entry: dict[str, Any]
    """`command` with `args`, `env` and `cwd`, or `url` with `headers`; variables are filled in."""
    skipped: str | None = None
    """Why it is not to be started, as the end of a sentence."""


class Place(NamedTuple):
    """A file of a host."""

    host: str
    system: str
    """A value of `sys.platform`; any where empty."""
    template: str
    """Under `{home}`, `{cwd}` for files of a project, `{data}` and `{config}` as the system has them; may hold `*`."""
    key: str
    """Dotted paths to the servers in it, `*` for any member."""


_MCP, _CLAUDE, _VSCODE, _ZED = "mcpServers", "mcpServers projects.*.mcpServers", "servers", "context_servers"
_GLOBAL_STORAGE = "{data}/Code/User/globalStorage"
PLACES = (
    Place("Claude Code", "", "{claude}/.claude.json", _CLAUDE),
    Place("Claude Code", "", "{cwd}/.mcp.json", _MCP),
    Place("Claude Desktop", "", "{data}/Claude/claude_desktop_config.json", _MCP),
    Place("Cursor", "", "{home}/.cursor/mcp.json", _MCP),
    Place("Cursor", "", "{cwd}/.cursor/mcp.json", _MCP),
    Place("VS Code", "", "{data}/Code/User/mcp.json", _VSCODE),
    Place("VS Code", "", "{data}/Code/User/settings.json", "mcp.servers"),
    Place("VS Code", "", "{cwd}/.vscode/mcp.json", _VSCODE),
    Place("VS Code", "", "{cwd}/.vscode/settings.json", "mcp.servers"),
    Place("VS Code Insiders", "", "{data}/Code - Insiders/User/mcp.json", _VSCODE),
    Place("Windsurf", "", "{home}/.codeium/windsurf/mcp_config.json", _MCP),
    Place("Windsurf", "", "{home}/.codeium/mcp_config.json", _MCP),
    Place("Cline", "", f"{_GLOBAL_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", _MCP),
    Place("Cline", "", "{home}/.cline/data/settings/cline_mcp_settings.json", _MCP),
    Place("Roo Code", "", f"{_GLOBAL_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json", _MCP),
    Place("Roo Code", "", "{cwd}/.roo/mcp.json", _MCP),
    Place("Zed", "darwin", "{home}/.config/zed/settings.json", _ZED),
    Place("Zed", "linux", "{config}/zed/settings.json", _ZED),
    Place("Zed", "win32", "{data}/Zed/settings.json", _ZED),
    Place("Zed", "", "{cwd}/.zed/settings.json", _ZED),
    Place("Gemini CLI", "", "{home}/.gemini/settings.json", _MCP),
    Place("Gemini CLI", "", "{cwd}/.gemini/settings.json", _MCP),
    Place("Antigravity", "", "{home}/.gemini/antigravity/mcp_config.json", _MCP),
    Place("Antigravity", "", "{home}/.gemini/config/mcp_config.json", _MCP),
    Place("Qwen Code", "", "{home}/.qwen/settings.json", _MCP),
    Place("Qwen Code", "", "{cwd}/.qwen/settings.json", _MCP),
    Place("Codex", "", "{codex}/config.toml", "mcp_servers"),
    Place("Codex", "", "{cwd}/.codex/config.toml", "mcp_servers"),
    Place("Copilot CLI", "", "{home}/.copilot/mcp-config.json", _MCP),
    Place("LM Studio", "", "{home}/.lmstudio/mcp.json", _MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/mcp.json", _MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/default.json", _MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/agents/default.json", _MCP),
    Place("Amazon Q", "", "{cwd}/.amazonq/mcp.json", _MCP),
    Place("Amazon Q", "", "{cwd}/.amazonq/default.json", _MCP),
    Place("Kiro", "", "{home}/.kiro/settings/mcp.json", _MCP),
    Place("Kiro", "", "{cwd}/.kiro/settings/mcp.json", _MCP),
    Place("Junie", "", "{home}/.junie/mcp/mcp.json", _MCP),
    Place("Junie", "", "{cwd}/.junie/mcp/mcp.json", _MCP),
    Place("Warp", "", "{home}/.warp/.mcp.json", _MCP),
    Place("Warp", "", "{cwd}/.warp/.mcp.json", _MCP),
    Place("Continue", "", "{cwd}/.continue/mcpServers/*.json", _MCP),
    Place("OpenCode", "", "{config}/opencode/opencode.json", "mcp"),
    Place("OpenCode", "", "{config}/opencode/opencode.jsonc", "mcp"),
    Place("OpenCode", "", "{cwd}/opencode.json", "mcp"),
    Place("OpenCode", "", "{cwd}/opencode.jsonc", "mcp"),
)
"""The user's files before the project's, so that a server in both is told of where it is the user's."""

_KEYS = tuple(dict.fromkeys(place.key for place in PLACES))
"""`mcp` is the last: in other hosts' files it has settings, and is not looked at where there are servers."""


class _Machine(NamedTuple):
    """What paths and variables are filled in from."""

    home: Path
    cwd: Path
    system: str
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> "_Machine":
        return cls(Path.home(), Path.cwd(), sys.platform, os.environ)

    def files(self, place: Place) -> list[Path]:
        """Those of a place that exist."""
        if place.system not in ("", self.system):
            return []
        root, _, below = place.template.partition("/")
        folder = self._roots[root.strip("{}")]
        return [path for path in sorted(folder.glob(below)) if path.is_file()]

    @property
    def _roots(self) -> dict[str, Path]:
        known = self.environment.get
        config = Path(known("XDG_CONFIG_HOME") or self.home / ".config")
        data = {
            "darwin": self.home / "Library" / "Application Support",
            "win32": Path(known("APPDATA") or self.home / "AppData" / "Roaming"),
        }
        return {
            "home": self.home,
            "cwd": self.cwd,
            "config": config,
            "data": data.get(self.system, config),
            "claude": Path(known("CLAUDE_CONFIG_DIR") or self.home),
            "codex": Path(known("CODEX_HOME") or self.home / ".codex"),
        }


def found_here(
    home: Path, cwd: Path, system: str, environment: Mapping[str, str], trusted: bool = False
) -> list[Found]:
    """The servers of every host that has a file for this user or this project; `system` as in `sys.platform`.

    A file that cannot be read is one of them, without a name, and with why. Whoever wrote the files of the folder we
    happen to be in decides what they start, so unless it is `trusted` they are told of and passed over.
    """
    machine = _Machine(home, cwd, system, environment)
    made: list[Found] = []
    seen: set[Path] = set()
    for place in PLACES:
        for path in machine.files(place):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                document = _document(path)
            except ConfigurationError as error:
                made.append(Found("", place.host, path, {}, str(error)))
                continue
            found = _servers(document, place, path, machine, elsewhere=False)
            if not trusted and place.template.startswith("{cwd}"):
                found = [replace(one, skipped=one.skipped or UNTRUSTED) for one in found]
            made += found
    return made


def read(path: Path) -> list[Found]:
    """The servers that one file tells of, in whatever host's format; of Claude Code's, those of every project.

    Raises:
        ConfigurationError: it cannot be read, or tells of none.
    """
    document = _document(path)
    machine = _Machine.this()
    place = _place_of(path, machine)
    for key in (place.key, *_KEYS):
        found = _servers(document, place._replace(key=key), path, machine, elsewhere=True)
        if found:
            return found
    raise ConfigurationError(f"{path} tells of no servers; they stand under {_MCP!r}, as in any host's file.")


def entry(path: Path, name: str) -> dict[str, Any]:
    """The server of that name in a file, whether switched off there or not.

    Raises:
        ConfigurationError: there is none, or something that it needs is missing.
    """
    found = read(path)
    fitting = [one for one in found if one.name == name]
    if not fitting:
        from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

        names = list(dict.fromkeys(one.name for one in found))
        near = [match for match, _, _ in process.extract(name, names, processor=str.casefold, limit=3, score_cutoff=60)]
        known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}."
        raise ConfigurationError(f"{path} has no server {name!r}; {known}")
    for one in fitting:
        if one.skipped in (None, DISABLED):
            return one.entry
    raise ConfigurationError(f"{name} in {path} cannot be started: {fitting[0].skipped}.")


# Files

_NOT_JSON = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?'
    rb"|//[^\n]*+|/\*.*?(?:\*/|\Z)"
    rb"|,(?=(?>\s++|//[^\n]*+|/\*.*?(?:\*/|\Z))*+[}\]])",
    re.DOTALL,
)
"""Strings, which stay, then comments and commas before an end. What never ends ends with the file, so it is linear."""


def plain(body: bytes) -> bytes:
    """JSON of JSON with comments and trailing commas: blanks in their places, so that lines and columns hold."""

    def blanked(match: re.Match[bytes]) -> bytes:
        text = match[0]
        return text if text.startswith(b'"') else re.sub(rb"[^\n]", b" ", text)

    return _NOT_JSON.sub(blanked, body)


def _document(path: Path) -> JSON:
    """
    Raises:
        ConfigurationError: it cannot be read; the text names it.
    """
    try:
        if not path.is_file():
            raise ConfigurationError(f"There is no file {path}.")
        if path.stat().st_size > BYTES:
            raise ConfigurationError(f"{path} is larger than {BYTES >> 20} MB; name a file with servers alone.")
        body = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    is_toml = path.suffix == ".toml"
    try:
        if is_toml:
            return tomllib.loads(body.decode())
        return json.loads(plain(body).decode("utf-8-sig")) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not {'TOML' if is_toml else 'JSON'}: {str(error)[:200]}.") from None


def _place_of(path: Path, machine: _Machine) -> Place:
    """Whose file it is: one that is looked at here, one that lies so in another project or home, or nobody's."""
    where = path.resolve()
    for place in PLACES:
        if where in (file.resolve() for file in machine.files(place)):
            return place
    alike = [place for place in PLACES if where.match(_below(place))]
    # The longest, for `.warp/.mcp.json` ends as `.mcp.json` does; a project's rather than a user's.
    return max(alike, key=lambda place: (len(_below(place)), _of_project(place)), default=Place("file", "", "", _MCP))


def _of_project(place: Place) -> bool:
    return place.template.startswith("{cwd}")


def _below(place: Place) -> str:
    return place.template.partition("/")[2]


# Servers


def _servers(document: JSON, place: Place, path: Path, machine: _Machine, elsewhere: bool) -> list[Found]:
    """`elsewhere` takes what belongs to other projects for as good as what belongs to this one."""
    made: list[Found] = []
    here = machine.cwd.resolve()
    for key in place.key.split():
        for project, servers in _maps(document, key):
            is_near = not project or Path(project).resolve() in (here, *here.parents)
            workspace = Path(project) if project else _workspace(place, path, machine)
            for written, raw in servers.items():
                name = _text(written, "name")
                found = _found(name, place.host, path, raw, _Filling(machine, workspace))
                if not is_near and not elsewhere and found.skipped is None:
                    found = Found(name, place.host, path, found.entry, f"it belongs to the project {project}")
                made.append(found)
    return made


def _maps(node: JSON, key: str, project: str = "") -> Iterator[tuple[str, dict[str, JSON]]]:
    """What is at a dotted key, with the member that `*` stood for."""
    if not isinstance(node, dict):
        return
    if not key:
        yield project, node
    head, _, rest = key.partition(".")
    for name, value in node.items():
        if rest and name == key:  # a dotted path is a name as well, in VS Code's settings
            yield from _maps(value, "", project)
        elif key and head in ("*", name):
            yield from _maps(value, rest, name if head == "*" else project)


def _workspace(place: Place, path: Path, machine: _Machine) -> Path:
    """The folder a project's file belongs to; for the user's files, where we are."""
    if not _of_project(place):
        return machine.cwd if place.template else path.resolve().parent
    return path.resolve().parents[len(Path(_below(place)).parts) - 1]


def _found(name: str, host: str, path: Path, raw: Any, filling: "_Filling") -> Found:
    try:
        shaped = _shaped(raw)
    except ConfigurationError as error:
        return Found(name, host, path, {}, str(error))
    filled = filling.of(shaped)
    if "command" in filled and filling.workspace != filling.machine.cwd:
        filled["cwd"] = str(filling.workspace / filled.get("cwd", ""))
    if raw.get("disabled") is True or raw.get("enabled") is False:
        return Found(name, host, path, filled, f"{DISABLED}, and {filling.lack}" if filling.lack else DISABLED)
    return Found(name, host, path, filled, filling.lack)


def _shaped(raw: Any) -> dict[str, Any]:
    """An entry as any host writes it, in one shape.

    Raises:
        ConfigurationError: it is none; the text is the end of a sentence.
    """
    if not isinstance(raw, dict):
        raise ConfigurationError("it is not an object")
    command: Any = raw.get("command")
    args = raw.get("args")
    if isinstance(command, dict):  # Zed's older form
        raw = {**raw, **command}
        command, args = command.get("path"), command.get("args")
    elif isinstance(command, list):  # OpenCode's
        command, args = (command[0] if command else None), [*command[1:], *(args or ())]
    if command:
        if "envFile" in raw:
            raise ConfigurationError("it reads variables from an envFile, which only its host does")
        passed = {one: f"${{{one}}}" for one in _list(raw.get("env_vars"), "env_vars") if isinstance(one, str)}
        made: dict[str, Any] = {
            "command": _text(command, "command"),
            "args": [_text(one, "args") for one in _list(args, "args")],
            "env": passed | _map(raw, "environment") | _map(raw, "env"),
        }
        return made | ({"cwd": _text(raw["cwd"], "cwd")} if raw.get("cwd") else {})
    url = next((raw[key] for key in ("url", "httpUrl", "serverUrl") if raw.get(key)), None)
    if url is None:
        raise ConfigurationError("it has neither a command nor a url")
    headers = _map(raw, "headers") | _map(raw, "http_headers")
    headers |= {name: f"${{{variable}}}" for name, variable in _map(raw, "env_http_headers").items()}
    if raw.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{_text(raw['bearer_token_env_var'], 'bearer_token_env_var')}}}"
    made = {"url": _text(url, "url"), "headers": headers}
    # The one way over HTTP that has to be said; others are found out.
    return {**made, "type": "sse"} if raw.get("type", raw.get("transport")) == "sse" else made


def _list(value: JSON, key: str) -> list[JSON]:
    if value is not None and not isinstance(value, list):
        raise ConfigurationError(f"its {key} are not a list")
    return value or []


def _map(raw: dict[str, JSON], key: str) -> dict[str, str]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"its {key} is not an object")
    return {_text(name, key): _text(one, key) for name, one in value.items() if one is not None}


def _text(value: JSON, key: str) -> str:
    """With no halves of surrogate pairs, which JSON can spell and nothing can print."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"its {key} has something that is not a text")
    return str(value).encode(errors="replace").decode()


# Variables

# `${NAME}` everywhere, `{env:NAME}` in OpenCode, a whole value of `$NAME` in Gemini CLI.
_VARIABLE = re.compile(r"\$\{([^{}]*)\}|\{env:([^{}]*)\}|^\$([A-Za-z_]\w*)$")


class _Filling:
    """Fills variables in, and remembers which it could not."""

    def __init__(self, machine: _Machine, workspace: Path) -> None:
        self.machine = machine
        self.workspace = workspace
        self._missing: dict[str, None] = {}
        self._known = {
            "workspaceFolder": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": str(machine.home),
            "cwd": str(machine.cwd),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    @property
    def lack(self) -> str | None:
        """What is needed and not there."""
        if not self._missing:
            return None
        inputs = [name.removeprefix("input:") for name in self._missing if name.startswith("input:")]
        variables = [name for name in self._missing if not name.startswith("input:")]
        needed = [f"the input {', '.join(inputs)}, which only its host can ask for"] if inputs else []
        needed += [f"the variable {', '.join(variables)}, which is not set"] if variables else []
        return f"it needs {' and '.join(needed)}"

    def of(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.of(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if value == "~" or value.startswith(("~/", "~\\")):
            value = f"{self.machine.home}{value[1:]}"
        return _VARIABLE.sub(self._value, value)

    def _value(self, match: re.Match[str]) -> str:
        name, is_default, default = (match[1] or match[2] or match[3] or "").partition(":-")
        name = name.removeprefix("env:")
        value = self._known.get(name) or self.machine.environment.get(name)
        if value is None and not is_default:
            self._missing[name[:100]] = None
            return match[0]
        return default if value is None else value
