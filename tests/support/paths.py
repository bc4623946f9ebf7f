"""Where this repository is, and the programs that tests start."""

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("delta-mcp")
FORKED_PROGRAM = Path(tempfile.gettempdir(), f"delta-mcp-tests-{os.getpid()}", PROGRAM.name)
"""The same program, run by the fork server: for tests that need a server as a process and not its start."""
FORKED_PYTHON = FORKED_PROGRAM.with_name("python")
"""An interpreter that has imported the library, and the official SDK's server: runs a file, a module or a text."""
FORKED_PATH = os.pathsep.join((str(FORKED_PROGRAM.parent), str(PROGRAM.parent), os.environ["PATH"]))
"""Where shells find both of them first."""
PEER_COMMAND = [str(FORKED_PROGRAM), "serve", str(Path(__file__).with_name("example_peer.py"))]
SDK_PEER = Path(__file__).with_name("sdk_peer.py")
MISBEHAVING_SERVER = Path(__file__).with_name("misbehaving_server.py")
PRINTING_SERVER = Path(__file__).with_name("printing_server.py")
