"""Where this repository is, and the programs that tests start."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("delta-mcp")
PEER_COMMAND = [str(PROGRAM), "serve", str(Path(__file__).with_name("example_peer.py"))]
SDK_PEER = Path(__file__).with_name("sdk_peer.py")
MISBEHAVING_SERVER = Path(__file__).with_name("misbehaving_server.py")
PRINTING_SERVER = Path(__file__).with_name("printing_server.py")
