"""Upstreams of a gateway that list what a test says, and gateways in front of them."""

import json
import sys
from pathlib import Path
from typing import Any

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support.paths import ROOT


class ListingUpstream:
    """A program that lists what is written into its file."""

    def __init__(self, folder: Path, name: str, **lists: Any) -> None:
        self.name = name
        self._file = folder / f"{name}.json"
        self.write(**lists)

    def write(self, **lists: Any) -> None:
        self._file.write_text(json.dumps(lists))

    def requests(self) -> list[str]:
        """Returns the methods of the requests that came so far."""
        log = self._file.with_suffix(".log")
        return log.read_text().split() if log.exists() else []

    def config(self, **options: Any) -> UpstreamConfig:
        program = ROOT / "tests" / "support" / "listing_server.py"
        entry = {"command": sys.executable, "args": [str(program), str(self._file)]}
        return UpstreamConfig(name=self.name, entry=entry, **{"promise": "never", **options})


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}", "inputSchema": {"type": "object"}, **members}


def gateway(folder: Path, *upstreams: UpstreamConfig, **options: Any) -> Gateway:
    """Returns a gateway that keeps its catalogs in a folder."""
    config = GatewayConfig(upstreams=list(upstreams), **{"disclosure": "full", **options})
    return Gateway(config, cache_folder=folder / "catalogs")
