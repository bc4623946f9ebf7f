"""A server of the handshake era that lists what a JSON file has, word for word, and does nothing with it.

`python tests/support/listing_server.py FILE`. The file may have `tools`, `resources`, `resourceTemplates`, `prompts`,
`instructions`, `links`, `result`; `fails` and `hangs` name methods that are refused, or never answered. A call of any
tool returns the result, or the request and the links; of the tool `announce`, after a notice that all lists changed; of
the tool `touch`, after a notice that the resource at `uri` did, if that is subscribed to.
`{{count}}` in the file is the number of requests so far. The methods of requests are written to FILE.log.
"""

import json
import sys
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def main(file: Path) -> None:
    subscribed: list[str] = []
    for count, line in enumerate(sys.stdin):
        request = json.loads(line)
        method, params = request.get("method"), request.get("params") or {}
        if "id" not in request:
            continue
        with file.with_suffix(".log").open("a") as log:
            log.write(f"{method}\n")
        listed = json.loads(file.read_text().replace("{{count}}", str(count)))
        result: dict[str, Any] | None = None
        if method in listed.get("hangs", ()):
            continue
        if method in listed.get("fails", ()):
            send({"id": request["id"], "error": {"code": -32603, "message": f"{method} is broken."}})
            continue
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {
                    "tools": {"listChanged": True},
                    "resources": {"subscribe": True, "listChanged": True},
                    "prompts": {"listChanged": True},
                    "completions": {},
                },
                "serverInfo": {"name": "listing", "version": "1"},
                "instructions": listed.get("instructions", ""),
            }
        elif method in LISTS:
            result = {LISTS[method]: listed.get(LISTS[method], [])}
        elif method == "tools/call":
            if params["name"] == "announce":
                for kind in ("tools", "resources", "prompts"):
                    notify(f"notifications/{kind}/list_changed")
            if params["name"] == "touch" and params["arguments"]["uri"] in subscribed:
                notify("notifications/resources/updated", uri=params["arguments"]["uri"])
            echo = {"content": [{"type": "text", "text": json.dumps(params)}, *listed.get("links", [])]}
            result = listed.get("result", echo)
        elif method == "resources/read":
            told = {**params, "subscribed": subscribed, "server": file.stem}
            result = {"contents": [{"uri": params["uri"], "text": json.dumps(told)}]}
        elif method == "prompts/get":
            result = {"messages": [{"role": "user", "content": {"type": "text", "text": json.dumps(params)}}]}
        elif method == "completion/complete":
            result = {"completion": {"values": [json.dumps(params["ref"]), json.dumps(params["argument"])]}}
        elif method in ("resources/subscribe", "resources/unsubscribe"):
            (subscribed.append if method.endswith("/subscribe") else subscribed.remove)(params["uri"])
            result = {}
        elif method == "ping":
            result = {}
        if result is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "There is no such method."}})
        else:
            send({"id": request["id"], "result": result})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
