"""The servers under measurement: which there are, and the interpreter of each.

A side is a file in `bench/peers/sides`, run there as `python -m sides.<name> DOOR TOOLS [MORE]` by an interpreter that
need not have this package, hence the relative imports there. DOOR is `stdio` or a port of the loopback. TOOLS is
`add`, `many:N`, `described:N` (see `tools` there) or a JSON file of listed tools. MORE is for HTTP: to `bare` a file
with the body it answers, without which it opens silent streams; to a peer the word `shipped`, without which it is set
to answer in JSON, its faster form and ours.
"""

import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from deltamcp.bench import environments

FOLDER = Path(__file__).parent.parent / "peers"
_SERVER = ("httptools", "uvicorn", "uvloop")
"""What every side is served by over HTTP; in an environment made for a peer in the versions we have."""


class Side(NamedTuple):
    name: str
    python: str = sys.executable


BARE, THIN, OURS = Side("bare"), Side("thin"), Side("ours")


class Peer(NamedTuple):
    package: str
    requirement: str
    imported: str
    """The statement that imports what its servers are made of."""


PEERS = {
    "sdk": Peer("mcp", environments.SDK, "from mcp.server.mcpserver import MCPServer"),
    "fastmcp": Peer("fastmcp", environments.FASTMCP, "from fastmcp import FastMCP"),
}


class Peers(NamedTuple):
    sides: list[Side]
    versions: dict[str, str]
    missing: list[str]
    """A sentence on each that is left out."""


def peers(choice: str) -> Peers:
    """`here`: those this interpreter has; `install`: all, in environments made for them; `none`.

    Raises:
        ConfigurationError: one cannot be installed.
    """
    found = Peers([], {}, [])
    for name, peer in PEERS.items() if choice != "none" else ():
        python = environments.python_with(peer.requirement, *_server()) if choice == "install" else sys.executable
        code = f"from importlib.metadata import version; {peer.imported}; print(version({peer.package!r}))"
        ran = subprocess.run([python, "-EP", "-c", code], capture_output=True, text=True, check=False)
        if ran.returncode:
            reason = ran.stderr.strip().rpartition("\n")[2]
            found.missing.append(f"{name} is left out: {reason}; --peer install makes an environment that has it")
        else:
            found.sides.append(Side(name, python))
            found.versions[peer.package] = ran.stdout.strip()
    return found


def _server() -> list[str]:
    """Requirements; uvloop is not to be had everywhere."""
    return [f"{name}=={metadata.version(name)}" for name in _SERVER if find_spec(name) is not None]
