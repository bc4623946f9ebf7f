"""The name of an upstream that nobody has named: from its command line or its address."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from deltamcp.gateway.item_names import id_segment

_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pnpm", "yarn", "npm", "bun", "deno", "uv", "pipx", "docker", "podman", "delta-mcp"}
)
"""Programs whose argument names what they run."""
_INTERPRETERS = frozenset({"node", "python", "tsx", "ts-node", "ruby", "java", "sh", "bash", "env", "cmd"})
_SUBCOMMANDS = frozenset({"run", "dlx", "exec", "x", "tool", "container", "deltamcp", "serve"})
_VALUED_OPTIONS = frozenset(
    {"-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "-p", "--publish", "--env-file", "-w"}
    | {"--from", "--with", "--directory", "--project", "--python", "-u", "--user", "--package"}
)
"""Options of runners whose value is a word of its own."""
_COMMON_FILES = frozenset({"index", "main", "__main__", "server", "cli", "app", "start", "mcp"})
"""Files that are called by what they are for; their folder has the name."""
_COMMON_FOLDERS = frozenset({"dist", "build", "src", "out", "bin", "lib"})
_FILE_SUFFIX = re.compile(r"\.(py|js|mjs|cjs|ts|mts|rb|jar|sh|exe|cmd|bat)$", re.IGNORECASE)
_COMMON_WORDS = re.compile(r"^(mcp-server|server|mcp)[-_]|[-_](mcp-server|server|mcp)$", re.IGNORECASE)
_COMMON_LABELS = frozenset({"mcp", "api", "www", "app", "server", "co", "com"})


def name_command(words: Sequence[str]) -> str:
    """Returns a name for a server by its command line: that of the package, the image or the file that it runs."""
    program = _FILE_SUFFIX.sub("", _last_part(words[0]))
    runner = re.sub(r"[\d.]+$", "", program)
    if runner in _RUNNERS | _INTERPRETERS:
        return _shorten(_first_argument(words[1:]) or program)
    return _shorten(words[0])


def name_address(url: str) -> str:
    """Returns a name for a server by its address: what tells its host from others."""
    parts = urlsplit(url)
    host = parts.hostname or "server"
    if ":" in host or host.replace(".", "").isdigit() or host == "localhost":
        return _clean(f"{host}-{parts.port}" if parts.port else host)
    labels = host.split(".")
    telling = [label for label in labels[:-1] if label not in _COMMON_LABELS]
    return _clean((telling or labels)[-1])


def _first_argument(words: Sequence[str]) -> str:
    """Returns the first word that is neither an option, nor its value, nor a subcommand of the runner."""
    skips_next = False
    for word in words:
        if skips_next or word in _SUBCOMMANDS or word.startswith("-"):
            skips_next = word in _VALUED_OPTIONS and not skips_next
            continue
        return word
    return ""


def _shorten(word: str) -> str:
    """Returns what tells a package, an image or a path from others."""
    without_version = re.sub(r"(?<=.)@[^/@]*$|:[\w.-]*$|(==|>=|~=).*$|\[.*\]$", "", word)
    parts = [part for part in PurePosixPath(without_version.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    name = _FILE_SUFFIX.sub("", parts[-1]) if parts else word
    while len(parts) > 1 and (name.lower() in _COMMON_FILES or name.lower() in _COMMON_FOLDERS):
        parts.pop()
        name = parts[-1].removeprefix("@")
    shorter = name
    while (match := _COMMON_WORDS.search(shorter)) and len(shorter) > len(match[0]):
        shorter = shorter[: match.start()] + shorter[match.end() :]
    return _clean(shorter)


def _clean(name: str) -> str:
    return id_segment(name, "server")


def _last_part(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name
