"""Configurations for `delta-mcp gateway` in a process of its own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Behind:
    """A server behind a gateway, and the era in which the gateway talks to it: at a URL, or started by a command."""

    era: str
    url: str | None = None
    command: Sequence[str] = ()
    name: str = "behind"


def config_file(folder: Path, *servers: Behind) -> Path:
    """Writes the gateway.toml of some servers."""
    lines = []
    for server in servers:
        lines += [f"[servers.{server.name}]", f'speak = "{server.era}"']
        if server.url is not None:
            lines.append(f"url = {json.dumps(server.url)}")
        else:
            lines += [f"command = {json.dumps(server.command[0])}", f"args = {json.dumps([*server.command[1:]])}"]
    path = folder / "gateway.toml"
    path.write_text("\n".join(lines) + "\n")
    return path
