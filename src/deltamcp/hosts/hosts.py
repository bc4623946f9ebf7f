"""Lists the configuration files of MCP hosts, and finds those that exist on this machine."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from deltamcp.runtime.files import user_folder, user_home


class HostFile(NamedTuple):
    """A configuration file of a host."""

    host: str
    system: str
    """A value of `sys.platform`; empty for any system."""
    template: str
    """The path under `{home}`, `{cwd}` (files of a project), `{data}` or `{config}` (system folders); may hold `*`."""
    key: str
    """Dotted paths to the servers in the file, separated by spaces; `*` matches any member."""


MCP_SERVERS_KEY, _CLAUDE_KEYS, _VSCODE_KEY, _ZED_KEY = (
    "mcpServers",
    "mcpServers projects.*.mcpServers",
    "servers",
    "context_servers",
)
_GLOBAL_STORAGE = "{data}/Code/User/globalStorage"
HOST_FILES = (
    HostFile("Claude Code", "", "{claude}/.claude.json", _CLAUDE_KEYS),
    HostFile("Claude Code", "", "{cwd}/.mcp.json", MCP_SERVERS_KEY),
    HostFile("Claude Desktop", "", "{data}/Claude/claude_desktop_config.json", MCP_SERVERS_KEY),
    HostFile("Cursor", "", "{home}/.cursor/mcp.json", MCP_SERVERS_KEY),
    HostFile("Cursor", "", "{cwd}/.cursor/mcp.json", MCP_SERVERS_KEY),
    HostFile("VS Code", "", "{data}/Code/User/mcp.json", _VSCODE_KEY),
    HostFile("VS Code", "", "{data}/Code/User/settings.json", "mcp.servers"),
    HostFile("VS Code", "", "{cwd}/.vscode/mcp.json", _VSCODE_KEY),
    HostFile("VS Code", "", "{cwd}/.vscode/settings.json", "mcp.servers"),
    HostFile("VS Code Insiders", "", "{data}/Code - Insiders/User/mcp.json", _VSCODE_KEY),
    HostFile("Windsurf", "", "{home}/.codeium/windsurf/mcp_config.json", MCP_SERVERS_KEY),
    HostFile("Windsurf", "", "{home}/.codeium/mcp_config.json", MCP_SERVERS_KEY),
    HostFile(
        "Cline", "", f"{_GLOBAL_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", MCP_SERVERS_KEY
    ),
    HostFile("Cline", "", "{home}/.cline/data/settings/cline_mcp_settings.json", MCP_SERVERS_KEY),
    HostFile(
        "Roo Code", "", f"{_GLOBAL_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json", MCP_SERVERS_KEY
    ),
    HostFile("Roo Code", "", "{cwd}/.roo/mcp.json", MCP_SERVERS_KEY),
    HostFile("Zed", "darwin", "{home}/.config/zed/settings.json", _ZED_KEY),
    HostFile("Zed", "linux", "{config}/zed/settings.json", _ZED_KEY),
    HostFile("Zed", "win32", "{data}/Zed/settings.json", _ZED_KEY),
    HostFile("Zed", "", "{cwd}/.zed/settings.json", _ZED_KEY),
    HostFile("Gemini CLI", "", "{home}/.gemini/settings.json", MCP_SERVERS_KEY),
    HostFile("Gemini CLI", "", "{cwd}/.gemini/settings.json", MCP_SERVERS_KEY),
    HostFile("Antigravity", "", "{home}/.gemini/antigravity/mcp_config.json", MCP_SERVERS_KEY),
    HostFile("Antigravity", "", "{home}/.gemini/config/mcp_config.json", MCP_SERVERS_KEY),
    HostFile("Qwen Code", "", "{home}/.qwen/settings.json", MCP_SERVERS_KEY),
    HostFile("Qwen Code", "", "{cwd}/.qwen/settings.json", MCP_SERVERS_KEY),
    HostFile("Codex", "", "{codex}/config.toml", "mcp_servers"),
    HostFile("Codex", "", "{cwd}/.codex/config.toml", "mcp_servers"),
    HostFile("Copilot CLI", "", "{home}/.copilot/mcp-config.json", MCP_SERVERS_KEY),
    HostFile("LM Studio", "", "{home}/.lmstudio/mcp.json", MCP_SERVERS_KEY),
    HostFile("Amazon Q", "", "{home}/.aws/amazonq/mcp.json", MCP_SERVERS_KEY),
    HostFile("Amazon Q", "", "{home}/.aws/amazonq/default.json", MCP_SERVERS_KEY),
    HostFile("Amazon Q", "", "{home}/.aws/amazonq/agents/default.json", MCP_SERVERS_KEY),
    HostFile("Amazon Q", "", "{cwd}/.amazonq/mcp.json", MCP_SERVERS_KEY),
    HostFile("Amazon Q", "", "{cwd}/.amazonq/default.json", MCP_SERVERS_KEY),
    HostFile("Kiro", "", "{home}/.kiro/settings/mcp.json", MCP_SERVERS_KEY),
    HostFile("Kiro", "", "{cwd}/.kiro/settings/mcp.json", MCP_SERVERS_KEY),
    HostFile("Junie", "", "{home}/.junie/mcp/mcp.json", MCP_SERVERS_KEY),
    HostFile("Junie", "", "{cwd}/.junie/mcp/mcp.json", MCP_SERVERS_KEY),
    HostFile("Warp", "", "{home}/.warp/.mcp.json", MCP_SERVERS_KEY),
    HostFile("Warp", "", "{cwd}/.warp/.mcp.json", MCP_SERVERS_KEY),
    HostFile("Continue", "", "{cwd}/.continue/mcpServers/*.json", MCP_SERVERS_KEY),
    HostFile("OpenCode", "", "{config}/opencode/opencode.json", "mcp"),
    HostFile("OpenCode", "", "{config}/opencode/opencode.jsonc", "mcp"),
    HostFile("OpenCode", "", "{cwd}/opencode.json", "mcp"),
    HostFile("OpenCode", "", "{cwd}/opencode.jsonc", "mcp"),
)
"""Each host's user files come before its project files, so that a server in both is reported as the user's."""

SERVER_KEYS = tuple(dict.fromkeys(host_file.key for host_file in HOST_FILES))
"""The keys to try on a file of an unknown host. `mcp` is last: in other hosts' files it holds settings."""
_REPOSITORY_MARKS = (".git", ".hg", ".jj", ".svn")


_INSTALLED_FOLDER = "delta-mcp/gateway"
INSTALLED_FILE = HostFile("delta-mcp", "", "{gateway}/*.json", MCP_SERVERS_KEY)
"""A file that `install` moved a host's servers to. It is no host's, so that nobody counts its servers twice."""


def host_id(host: str) -> str:
    """Returns the name of a host as a word of a command line, such as `claude-code` and `vscode`."""
    return host.lower().replace("vs code", "vscode").replace(" ", "-")


def installed_folder() -> Path:
    """Returns the folder of the files that `install` writes.

    Raises:
        ConfigurationError: the user has no home.
    """
    folder = user_folder("config") / "gateway"
    assert folder.match(_INSTALLED_FOLDER), "files in it are known by the name of the folder"
    return folder


class Machine(NamedTuple):
    """The folders, system and environment that templates and variables refer to."""

    home: Path
    cwd: Path
    system: str
    environment: Mapping[str, str]

    @classmethod
    def detect(cls) -> "Machine":
        """
        Raises:
            ConfigurationError: the user has no home.
        """
        return cls(user_home(), Path.cwd(), sys.platform, os.environ)

    def existing_files(self, host_file: HostFile) -> list[Path]:
        """Returns the files that match a host file's template and exist."""
        if host_file.system not in ("", self.system):
            return []
        folder, pattern = self._split(host_file)
        return [path for path in sorted(folder.glob(pattern)) if path.is_file()]

    def path_of(self, host_file: HostFile) -> Path:
        """Returns where a host file is, or would be; a `*` of its template stays."""
        folder, pattern = self._split(host_file)
        return folder / pattern

    def _split(self, host_file: HostFile) -> tuple[Path, str]:
        root, _, pattern = host_file.template.partition("/")
        return self._base_folders[root.strip("{}")], pattern

    @property
    def _base_folders(self) -> dict[str, Path]:
        variable = self.environment.get
        config = Path(variable("XDG_CONFIG_HOME") or self.home / ".config")
        data = {
            "darwin": self.home / "Library" / "Application Support",
            "win32": Path(variable("APPDATA") or self.home / "AppData" / "Roaming"),
        }
        return {
            "home": self.home,
            "cwd": self.cwd,
            "config": config,
            "data": data.get(self.system, config),
            "claude": Path(variable("CLAUDE_CONFIG_DIR") or self.home),
            "codex": Path(variable("CODEX_HOME") or self.home / ".codex"),
        }


def identify_host_file(path: Path, machine: Machine) -> HostFile:
    """Returns the host file that a path is: on this machine, or by its name in another project or home folder.

    A path of no known host is taken for a file with `mcpServers`.
    """
    resolved = path.resolve()
    if resolved.match(f"{_INSTALLED_FOLDER}/*"):  # by its name: a host may have other variables than a shell
        return INSTALLED_FILE
    for host_file in HOST_FILES:
        if resolved in (file.resolve() for file in machine.existing_files(host_file)):
            return host_file
    candidates = [host_file for host_file in HOST_FILES if resolved.match(relative_path(host_file))]
    # The longest match, because `.warp/.mcp.json` also matches `.mcp.json`; then a project's file before a user's.
    return max(
        candidates,
        key=lambda host_file: (len(relative_path(host_file)), is_project_file(host_file)),
        default=HostFile("file", "", "", MCP_SERVERS_KEY),
    )


def is_project_file(host_file: HostFile) -> bool:
    return host_file.template.startswith("{cwd}")


def belongs_to_project(path: Path, machine: Machine) -> bool:
    """Whether a file is of a project, so that others than the user may change it: by a `git pull`, for instance.

    That is one which hosts read for a project, or one below a folder with a repository; the user's home with all that
    is kept in it is no project, even if it is a repository.
    """
    absolute = Path(os.path.normpath(path.absolute()))  # a link that leads out of a project may be changed there
    if absolute.is_relative_to(user_folder("config")):
        return False
    if is_project_file(identify_host_file(path, machine)):
        return True
    return any(_is_in_repository(one, machine.home) for one in {absolute, absolute.resolve()})


def _is_in_repository(path: Path, home: Path) -> bool:
    for folder in path.parents:
        if folder == home or folder in home.parents:
            return False
        if any((folder / mark).exists() for mark in _REPOSITORY_MARKS):
            return True
    return False


def relative_path(host_file: HostFile) -> str:
    return host_file.template.partition("/")[2]
