"""A server of the handshake era that says who it is: `python tests/support/named_server.py NAME MARK`.

`who` answers with the name, the mark and the process; `wait` does so once the file at `path` is there, and first makes
one with the suffix `.begun`. Other tools that are listed are named by further words. `MARK` may also be in the
environment, as `SERVER_MARK`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

ANY = {"type": "object"}


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


LOCK = threading.Lock()


def main(name: str, mark: str, *others: str) -> None:
    identity = {"server": name, "mark": os.environ.get("SERVER_MARK", mark), "pid": os.getpid()}
    result = {"content": [{"type": "text", "text": json.dumps(identity)}]}
    tools = [
        {"name": tool, "description": f"The tool {tool}.", "inputSchema": ANY} for tool in ("who", "wait", *others)
    ]

    def wait(id_: Any, path: Path) -> None:
        path.with_suffix(".begun").touch()
        while not path.exists():
            time.sleep(0.005)
        send({"id": id_, "result": result})

    for line in sys.stdin:
        request = json.loads(line)
        method, params = request.get("method"), request.get("params") or {}
        if "id" not in request:
            continue
        if method == "tools/call" and params["name"] == "wait":
            path = Path(params["arguments"]["path"])
            threading.Thread(target=wait, args=(request["id"], path), daemon=True).start()
        elif method == "tools/call":
            send({"id": request["id"], "result": result})
        elif method == "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": name, "version": "1"}}
            send({"id": request["id"], "result": {"protocolVersion": "2025-11-25", **about}})
        elif method == "tools/list":
            send({"id": request["id"], "result": {"tools": tools}})
        elif method == "ping":
            send({"id": request["id"], "result": {}})
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "There is no such method."}})


if __name__ == "__main__":
    main(*sys.argv[1:])
