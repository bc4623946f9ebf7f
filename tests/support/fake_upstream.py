"""A gateway in this process over scripted servers (`fake_stdio.py`), and clients in front of it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support import fake_stdio
from tests.support.era_client import EraClient, era_client

ANY: dict[str, Any] = {"type": "object"}
TOOLS = [
    {"name": name, "inputSchema": ANY} for name in ("echo", "raw", "ask", "progress", "log", "hang", "late", "release")
]
DISCOVER = {"handshake": -32601, "modern": "answer"}


def upstream_config(era: str, name: str = "fake", log: Path | None = None, **script: Any) -> UpstreamConfig:
    """A scripted upstream of an era."""
    script = {"tools": TOOLS, "discover": DISCOVER[era], **script}
    if log is not None:
        script["log"] = str(log)
    command, *args = fake_stdio.command(**script)
    return UpstreamConfig(name=name, entry={"command": command, "args": args})


def fake_gateway(era: str, log: Path | None = None, **script: Any) -> Gateway:
    """A gateway over one scripted upstream of an era; its tools have their own names."""
    return Gateway(GatewayConfig(upstreams=[upstream_config(era, log=log, **script)], disclosure="full"))


@contextlib.asynccontextmanager
async def fronted(front: str, behind: str, log: Path | None = None, **script: Any) -> AsyncIterator[EraClient]:
    """A client of one era in front of a gateway with an upstream of another."""
    async with era_client(fake_gateway(behind, log, **script).server, front) as client:
        yield client
