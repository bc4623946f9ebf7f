"""Lists the tools of a published server, and cannot call them: `python -m bench.agents.servers.listed FILE`."""

import json
import sys
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            info = {"name": published["server"], "version": published["version"]}
            version = request["params"]["protocolVersion"]
            result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": published["tools"]}
        case "tools/call":
            text = "The service does not answer: there are no credentials."
            result = {"content": [{"type": "text", "text": text}], "isError": True}
        case "ping":
            result = {}
        case method:
            return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def main() -> None:
    published = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps(answer(request, published)), flush=True)


if __name__ == "__main__":
    main()
