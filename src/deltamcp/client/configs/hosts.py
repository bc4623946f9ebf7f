"""Where hosts keep the servers they start: a table, and the machine it is looked up on."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """A file of a host."""

    host: str
    system: str
    """A value of `sys.platform`; any where empty."""
    template: str
    """Under `{home}`, `{cwd}` for files of a project, `{data}` and `{config}` as the system has them; may hold `*`."""
    key: str
    """Dotted paths to the servers in it, `*` for any member."""


MCP, _CLAUDE, _VSCODE, _ZED = "mcpServers", "mcpServers projects.*.mcpServers", "servers", "context_servers"
_GLOBAL_STORAGE = "{data}/Code/User/globalStorage"
PLACES = (
    Place("Claude Code", "", "{claude}/.claude.json", _CLAUDE),
    Place("Claude Code", "", "{cwd}/.mcp.json", MCP),
    Place("Claude Desktop", "", "{data}/Claude/claude_desktop_config.json", MCP),
    Place("Cursor", "", "{home}/.cursor/mcp.json", MCP),
    Place("Cursor", "", "{cwd}/.cursor/mcp.json", MCP),
    Place("VS Code", "", "{data}/Code/User/mcp.json", _VSCODE),
    Place("VS Code", "", "{data}/Code/User/settings.json", "mcp.servers"),
    Place("VS Code", "", "{cwd}/.vscode/mcp.json", _VSCODE),
    Place("VS Code", "", "{cwd}/.vscode/settings.json", "mcp.servers"),
    Place("VS Code Insiders", "", "{data}/Code - Insiders/User/mcp.json", _VSCODE),
    Place("Windsurf", "", "{home}/.codeium/windsurf/mcp_config.json", MCP),
    Place("Windsurf", "", "{home}/.codeium/mcp_config.json", MCP),
    Place("Cline", "", f"{_GLOBAL_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", MCP),
    Place("Cline", "", "{home}/.cline/data/settings/cline_mcp_settings.json", MCP),
    Place("Roo Code", "", f"{_GLOBAL_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json", MCP),
    Place("Roo Code", "", "{cwd}/.roo/mcp.json", MCP),
    Place("Zed", "darwin", "{home}/.config/zed/settings.json", _ZED),
    Place("Zed", "linux", "{config}/zed/settings.json", _ZED),
    Place("Zed", "win32", "{data}/Zed/settings.json", _ZED),
    Place("Zed", "", "{cwd}/.zed/settings.json", _ZED),
    Place("Gemini CLI", "", "{home}/.gemini/settings.json", MCP),
    Place("Gemini CLI", "", "{cwd}/.gemini/settings.json", MCP),
    Place("Antigravity", "", "{home}/.gemini/antigravity/mcp_config.json", MCP),
    Place("Antigravity", "", "{home}/.gemini/config/mcp_config.json", MCP),
    Place("Qwen Code", "", "{home}/.qwen/settings.json", MCP),
    Place("Qwen Code", "", "{cwd}/.qwen/settings.json", MCP),
    Place("Codex", "", "{codex}/config.toml", "mcp_servers"),
    Place("Codex", "", "{cwd}/.codex/config.toml", "mcp_servers"),
    Place("Copilot CLI", "", "{home}/.copilot/mcp-config.json", MCP),
    Place("LM Studio", "", "{home}/.lmstudio/mcp.json", MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/mcp.json", MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/default.json", MCP),
    Place("Amazon Q", "", "{home}/.aws/amazonq/agents/default.json", MCP),
    Place("Amazon Q", "", "{cwd}/.amazonq/mcp.json", MCP),
    Place("Amazon Q", "", "{cwd}/.amazonq/default.json", MCP),
    Place("Kiro", "", "{home}/.kiro/settings/mcp.json", MCP),
    Place("Kiro", "", "{cwd}/.kiro/settings/mcp.json", MCP),
    Place("Junie", "", "{home}/.junie/mcp/mcp.json", MCP),
    Place("Junie", "", "{cwd}/.junie/mcp/mcp.json", MCP),
    Place("Warp", "", "{home}/.warp/.mcp.json", MCP),
    Place("Warp", "", "{cwd}/.warp/.mcp.json", MCP),
    Place("Continue", "", "{cwd}/.continue/mcpServers/*.json", MCP),
    Place("OpenCode", "", "{config}/opencode/opencode.json", "mcp"),
    Place("OpenCode", "", "{config}/opencode/opencode.jsonc", "mcp"),
    Place("OpenCode", "", "{cwd}/opencode.json", "mcp"),
    Place("OpenCode", "", "{cwd}/opencode.jsonc", "mcp"),
)
"""The user's files before the project's, so that a server in both is told of where it is the user's."""

KEYS = tuple(dict.fromkeys(place.key for place in PLACES))
"""`mcp` is the last: in other hosts' files it has settings, and is not looked at where there are servers."""


class Machine(NamedTuple):
    """What paths and variables are filled in from."""

    home: Path
    cwd: Path
    system: str
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> "Machine":
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


def place_of(path: Path, machine: Machine) -> Place:
    """Whose file it is: one that is looked at here, one that lies so in another project or home, or nobody's."""
    where = path.resolve()
    for place in PLACES:
        if where in (file.resolve() for file in machine.files(place)):
            return place
    alike = [place for place in PLACES if where.match(below(place))]
    # The longest, for `.warp/.mcp.json` ends as `.mcp.json` does; a project's rather than a user's.
    return max(alike, key=lambda place: (len(below(place)), of_project(place)), default=Place("file", "", "", MCP))


def of_project(place: Place) -> bool:
    return place.template.startswith("{cwd}")


def below(place: Place) -> str:
    return place.template.partition("/")[2]
