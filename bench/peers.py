"""The servers under measurement: their names, and which peers are installed."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
"""Server programs are started here, as `python -m bench.servers.<name>`."""

BARE, THIN, OURS = "bare", "thin", "ours"


class PeerPackage(NamedTuple):
    package: str
    statement: str
    """The statement that imports what its servers are made of."""


PEERS = {
    "sdk": PeerPackage("mcp", "from mcp.server.mcpserver import MCPServer"),
    "fastmcp": PeerPackage("fastmcp", "from fastmcp import FastMCP"),
}


class InstalledPeers(NamedTuple):
    names: list[str]
    versions: dict[str, str]
    missing: list[str]
    """A sentence on each that is left out."""


NO_PEERS = InstalledPeers([], {}, [])


def find_peers() -> InstalledPeers:
    """Imports each peer in a new interpreter; what cannot be imported is left out, with a sentence that says why."""
    found = InstalledPeers([], {}, [])
    for name, peer in PEERS.items():
        code = f"from importlib.metadata import version; {peer.statement}; print(version({peer.package!r}))"
        ran = subprocess.run([sys.executable, "-EP", "-c", code], capture_output=True, text=True, check=False)
        if ran.returncode:
            reason = ran.stderr.strip().rpartition("\n")[2]
            found.missing.append(f"{name} is left out: {reason}; `make bench` installs it")
        else:
            found.names.append(name)
            found.versions[peer.package] = ran.stdout.strip()
    return found
