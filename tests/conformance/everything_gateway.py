"""A gateway in front of one server, as a program: flat, without a prefix and without a result policy.

GATEWAY_ENTRY='{"url": "http://127.0.0.1:8000/mcp"}' delta-mcp serve tests/conformance/everything_gateway.py
"""

import json
import os
from pathlib import Path
from typing import Any

from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway

speak: Any = os.environ.get("GATEWAY_SPEAK", "auto")
upstream = UpstreamConfig(
    name="everything", entry=json.loads(os.environ["GATEWAY_ENTRY"]), speak=speak, on_changed="accept"
)
config = GatewayConfig(upstreams=[upstream], name="everything", disclosure="full", query=False, prefix=False)
server = Gateway(config, cache_folder=Path(os.environ["GATEWAY_CACHE"])).server
