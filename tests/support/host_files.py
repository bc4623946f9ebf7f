"""Files as nine hosts write them, with what people add: comments, settings, tabs, CRLF, marks and trailing commas.

`@PROGRAM@`, `@NOTES@` and `@SHELF@` stand for this library's program and for two small servers; `@HOME@` for the home.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import FORKED_PROGRAM

NOTES = '''
from deltamcp import DeltaServer

server = DeltaServer("notes", version="1")


@server.tool(annotations={"readOnlyHint": True})
async def read_note(title: str) -> str:
    """Read a note."""
    return f"The note {title}"


@server.tool
async def delete_note(title: str) -> str:
    """Delete a note."""
    return f"No more {title}"
'''
SHELF = '''
import os

from deltamcp import DeltaServer

server = DeltaServer("shelf", version="1")


@server.tool(annotations={"readOnlyHint": True})
async def show_key() -> str:
    """Show the key and the folder that the server was started with."""
    return f"{os.environ.get('SHELF_KEY', 'none')} in {os.getcwd()}"
'''
KEY = "sk-live-0123456789"


@dataclass(frozen=True)
class HostSample:
    """A file of a host, with two servers `notes` and `shelf` that can move, and others that cannot."""

    host: str
    """The host's id."""
    path: str
    """Under the home of a user of Linux."""
    text: str
    staying: tuple[str, ...] = ()
    keys: tuple[str, ...] = ("mcpServers",)
    others: tuple[str, ...] = field(default=())
    """Pieces of the text that must survive every change."""

    def write(self, home: Path) -> tuple[Path, bytes]:
        """Writes the file and its servers; returns the file's path and content."""
        servers = {"@NOTES@": home / "servers" / "notes.py", "@SHELF@": home / "servers" / "shelf.py"}
        (home / "servers").mkdir(exist_ok=True)
        servers["@NOTES@"].write_text(NOTES)
        servers["@SHELF@"].write_text(SHELF)
        text = self.text
        for mark, value in {"@PROGRAM@": FORKED_PROGRAM, "@HOME@": home, **servers}.items():
            text = text.replace(mark, json.dumps(str(value))[1:-1])
        path = home / self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path, text.encode()


CLAUDE_CODE = HostSample(
    "claude-code",
    ".claude.json",
    """{
  "numStartups": 184,
  "installMethod": "native",
  "autoUpdates": false,
  "tipsHistory": {
    "new-user-warmup": 3,
    "shift-enter": 181
  },
  "userID": "5d0a3c",
  "projects": {
    "@HOME@/work": {
      "allowedTools": [],
      "history": [
        {
          "display": "why does \\"mcpServers\\": {} not work?",
          "pastedContents": {}
        }
      ],
      "mcpContextUris": [],
      "mcpServers": {
        "scratch": {
          "type": "stdio",
          "command": "@PROGRAM@",
          "args": ["serve", "@NOTES@"],
          "env": {}
        }
      },
      "enabledMcpjsonServers": [],
      "disabledMcpjsonServers": [],
      "hasTrustDialogAccepted": true
    },
    "/elsewhere/site": {
      "mcpServers": {
        "theirs": {
          "command": "x"
        }
      }
    }
  },
  "mcpServers": {
    "notes": {
      "type": "stdio",
      "command": "@PROGRAM@",
      "args": [
        "serve",
        "@NOTES@"
      ],
      "env": {}
    },
    "linear": {
      "type": "http",
      "url": "https://mcp.linear.example/mcp",
      "oauth": {
        "clientId": "abc",
        "callbackPort": 8080
      }
    },
    "shelf": {
      "type": "stdio",
      "command": "@PROGRAM@",
      "args": [
        "serve",
        "@SHELF@"
      ],
      "env": {
        "SHELF_KEY": "sk-live-0123456789"
      }
    }
  },
  "oauthAccount": {
    "emailAddress": "ada@example.com"
  },
  "hasCompletedOnboarding": true
}
""",
    staying=("theirs", "linear"),
    others=('"numStartups": 184', "why does", '"clientId": "abc"'),
)
CLAUDE_DESKTOP = HostSample(
    "claude-desktop",
    ".config/Claude/claude_desktop_config.json",
    """{\r
    "globalShortcut": "Ctrl+Space",\r
    "mcpServers": {\r
        "notes": {\r
            "command": "@PROGRAM@",\r
            "args": ["serve", "@NOTES@"]\r
        },\r
        "shelf": {\r
            "command": "@PROGRAM@",\r
            "args": ["serve", "@SHELF@"],\r
            "env": { "SHELF_KEY": "sk-live-0123456789" },\r
            "someKeyOfTomorrow": {"a": [1, 2]}\r
        }\r
    },\r
    "preferences": {"quickEntryDictationShortcut": "off"}\r
}""",
    others=('"globalShortcut": "Ctrl+Space"', "quickEntryDictationShortcut"),
)
CURSOR = HostSample(
    "cursor",
    ".cursor/mcp.json",
    """{
  // The servers of all projects; do not sort
  "mcpServers": {
    /* notes of the team */
    "notes": {
      "command": "@PROGRAM@",
      "args": ["serve", "@NOTES@"], // the local one
    },
    "here": { "command": "npx", "args": ["-y", "thing", "${workspaceFolder}"] },
    "shelf": { "command": "@PROGRAM@", "args": ["serve", "@SHELF@"], "env": { "SHELF_KEY": "sk-live-0123456789" } },
    "file": { "command": "node", "args": ["x.js"], "envFile": ".env" },
  },
}
""",
    staying=("here", "file"),
    others=("// The servers of all projects; do not sort", "/* notes of the team */", "${workspaceFolder}"),
)
VSCODE = HostSample(
    "vscode",
    ".config/Code/User/mcp.json",
    """\ufeff{
\t// asked once
\t"inputs": [
\t\t{ "type": "promptString", "id": "key", "description": "Key", "password": true },
\t],
\t"servers": {
\t\t"notes": {
\t\t\t"type": "stdio",
\t\t\t"command": "@PROGRAM@",
\t\t\t"args": ["serve", "@NOTES@"]
\t\t},
\t\t"asks": { "type": "http", "url": "https://x.example/mcp", "headers": { "Authorization": "Bearer ${input:key}" } },
\t\t"shelf": {
\t\t\t"type": "stdio",
\t\t\t"command": "@PROGRAM@",
\t\t\t"args": ["serve", "@SHELF@"],
\t\t\t"env": { "SHELF_KEY": "sk-live-0123456789" }, // rotated in May
\t\t\t"dev": { "watch": "**/*.py" }
\t\t},
\t},
}
""",
    staying=("asks",),
    keys=("servers",),
    others=("// asked once", "${input:key}"),
)
WINDSURF = HostSample(
    "windsurf",
    ".codeium/windsurf/mcp_config.json",
    """{"mcpServers": {"notes": {"command": "@PROGRAM@", "args": ["serve", "@NOTES@"],
 "disabledTools": ["delete_note"]},
"off": {"serverUrl": "https://x.example/sse", "disabled": true},
"shelf": {"command": "@PROGRAM@", "args": ["serve", "@SHELF@"], "env": {"SHELF_KEY": "sk-live-0123456789"}}}}""",
    staying=("off",),
    others=('"serverUrl": "https://x.example/sse"',),
)
CODEX = HostSample(
    "codex",
    ".codex/config.toml",
    """# Codex
model = "gpt-5-codex" # for now
approval_policy = "on-request"

[mcp_servers.notes]
command = "@PROGRAM@"
args = ["serve", "@NOTES@"]
startup_timeout_sec = 20
tool_timeout_sec = 600

[mcp_servers.off]
command = "x"
enabled = false

# The key is that of staging
[mcp_servers.shelf]
command = "@PROGRAM@"
args = [
  "serve", # as always
  "@SHELF@",
]

[mcp_servers.shelf.env]
SHELF_KEY = 'sk-live-0123456789'

[projects."@HOME@/work"]
trust_level = "trusted"
""",
    staying=("off",),
    keys=("mcp_servers",),
    others=("# Codex", "# for now", 'trust_level = "trusted"'),
)
GEMINI_CLI = HostSample(
    "gemini-cli",
    ".gemini/settings.json",
    """{
  "security": { "auth": { "selectedType": "oauth-personal" } },
  "ui": { "theme": "GitHub" },
  "mcpServers": {
    "notes": {
      "command": "@PROGRAM@", "args": ["serve", "@NOTES@"], "timeout": 30000, "excludeTools": ["delete_note"]
    },
    "shelf": {
      "command": "@PROGRAM@",
      "args": ["serve", "@SHELF@"],
      "env": { "SHELF_KEY": "$GEMINI_TEST_KEY" },
      "trust": true
    }
  },
  "general": { "vimMode": true }
}
""",
    others=('"theme": "GitHub"', '"vimMode": true'),
)
ZED = HostSample(
    "zed",
    ".config/zed/settings.json",
    """// Zed settings
//
// For information on how to configure Zed, see the Zed
// documentation: https://zed.dev/docs/configuring-zed
{
  "context_servers": {
    "mcp-server-context7": {
      "source": "extension",
      "enabled": true,
      "settings": {},
    },
    "notes": {
      "source": "custom",
      "command": "@PROGRAM@",
      "args": ["serve", "@NOTES@"],
    },
    "shelf": {
      "enabled": true,
      "command": { "path": "@PROGRAM@", "args": ["serve", "@SHELF@"], "env": { "SHELF_KEY": "sk-live-0123456789" } },
    },
  },
  "vim_mode": false,
  "theme": { "mode": "system", "light": "One Light", "dark": "One Dark" },
}
""",
    staying=("mcp-server-context7",),
    keys=("context_servers",),
    others=("// Zed settings", '"dark": "One Dark"'),
)
OPENCODE = HostSample(
    "opencode",
    ".config/opencode/opencode.jsonc",
    """{
  "$schema": "https://opencode.ai/config.json",
  // local first
  "mcp": {
    "notes": { "type": "local", "command": ["@PROGRAM@", "serve", "@NOTES@"], "enabled": true },
    "shelf": {
      "type": "local",
      "command": ["@PROGRAM@", "serve", "@SHELF@"],
      "environment": { "SHELF_KEY": "sk-live-0123456789" }
    }
  },
  "theme": "system"
}
""",
    keys=("mcp",),
    others=("// local first", '"theme": "system"'),
)
HOST_SAMPLES = (CLAUDE_CODE, CLAUDE_DESKTOP, CURSOR, VSCODE, WINDSURF, CODEX, GEMINI_CLI, ZED, OPENCODE)
