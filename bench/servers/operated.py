"""This library with what operators add: `python -m bench.servers.operated PORT OPTIONS`, where OPTIONS is JSON.

`store` is a URL; `issuer` and `jwks_url` turn on OAuth for the resource `RESOURCE`; `observer` adds one that does
nothing; `metrics` shows metrics; `promises` adds a tool that may give promises, which nobody calls.
"""

import json
import sys
from typing import Any

from deltamcp import CallObserver, DeltaServer, Limits, ObservedCall
from deltamcp.auth.resource_server import ResourceServer

from .tools import add

RESOURCE = "http://127.0.0.1/mcp"


class NoObserver(CallObserver):
    """Observes calls and does nothing about it."""

    is_active = True

    def call_started(self, call: ObservedCall) -> None:
        return None

    def call_finished(self, call: ObservedCall) -> None:
        return None


async def never_called() -> None:
    """Do nothing."""


if __name__ == "__main__":
    port, options = int(sys.argv[1]), json.loads(sys.argv[2])
    observers = [NoObserver()] if options.get("observer") else []
    server = DeltaServer(
        "bench", "1", limits=Limits(account_share=1), store=options.get("store", "memory://"), observers=observers
    )
    server.tool(add)
    if options.get("promises"):
        server.tool(never_called, promise="auto")
    more: dict[str, Any] = {"metrics": options.get("metrics", False)}
    if "issuer" in options:
        more["auth"] = ResourceServer(RESOURCE, options["issuer"], jwks_url=options["jwks_url"])
    server.run("http", port=port, **more)
