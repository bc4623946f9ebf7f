"""A process that runs a server exempts what it loaded from garbage collection."""

import json
import subprocess
import sys

from tests.support.conditions import HANG_SECONDS
from tests.support.raw_client import META

SCRIPT = """
import gc
from deltamcp import DeltaServer

server = DeltaServer("frozen")

@server.tool
async def frozen() -> bool:
    return gc.get_freeze_count() > 10_000

assert gc.get_freeze_count() == 0
server.run()
"""


def test_startup_objects_are_frozen() -> None:
    params = {"name": "frozen", "arguments": {}, "_meta": META}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=f"{request}\n", capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert json.loads(ran.stdout)["result"]["content"] == [{"type": "text", "text": "true"}], ran.stderr
