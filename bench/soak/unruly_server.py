"""A server behind the gateway of `make soak`, on bare pipes: it echoes, and it misbehaves where it is told to."""

import json
import os
import sys
import threading
import time
from typing import Any

_SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}, "how": {"type": "string"}}}
_TOOLS = [{"name": "echo", "description": "Echoes a value, in one of several ways.", "inputSchema": _SCHEMA}]
_GARBAGE = b'this is no message\n{"jsonrpc":"2.0","id":999999,"result":{}}\n[1,2\n\xff\xfe\n'
_lock = threading.Lock()


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=_serve, args=(message,), daemon=True).start()


def _serve(message: dict[str, Any]) -> None:
    match message["method"]:
        case "initialize":
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            _answer(message, {**about, "serverInfo": {"name": "unruly", "version": "1"}})
        case "tools/list":
            _answer(message, {"tools": _TOOLS})
        case "tools/call":
            _call(message)
        case _:
            _send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "No such method."}})


def _call(message: dict[str, Any]) -> None:
    arguments = message["params"]["arguments"]
    value = arguments["value"]
    match arguments["how"]:
        case "slowly":
            time.sleep(0.2)
        case "never":
            return
        case "with garbage":
            with _lock:
                sys.stdout.buffer.write(_GARBAGE)
                sys.stdout.buffer.flush()
        case "and die":
            os._exit(3)
        case "at length":
            value = f"{value} " * 2_000
        case "with progress":
            token = message["params"].get("_meta", {}).get("progressToken")
            for step in range(3):
                if token is not None:
                    params = {"progressToken": token, "progress": step, "total": 3}
                    _send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        case "as an error":
            _answer(message, {"content": [{"type": "text", "text": value}], "isError": True})
            return
        case _:
            pass
    _answer(message, {"content": [{"type": "text", "text": value}]})


def _answer(message: dict[str, Any], result: dict[str, Any]) -> None:
    _send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
