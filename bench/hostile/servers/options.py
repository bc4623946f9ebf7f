"""How the servers under attack are set up, as JSON on their command lines."""

import json
from typing import Any, NamedTuple


class ServerOptions(NamedTuple):
    """How a server is set up; peers know none of it but the tools."""

    store: str = "memory://"
    short_lifetimes: bool = False
    """Whether sessions and stored results live for a second or two, to see what is left after their time."""
    disclosure: str = "full"
    operations: int = 0
    """How many tools there are beside the usual ones, `operation_0` and so on."""
    grpc_port: int = 0
    """Where MCP-lite is served over gRPC, too; 0 is nowhere, and -1 a free port, chosen when the server is started."""
    metrics: bool = False
    tokens: str = ""
    """The lines of static tokens that callers need; empty if they need none."""
    introspection: str = ""
    """Where the server asks about access tokens; empty if callers need none."""

    @property
    def program(self) -> str:
        """The program of `bench.hostile.servers` that has these options; empty if every library's server has."""
        return "served" if self.grpc_port or self.metrics or self.tokens or self.introspection else ""

    @classmethod
    def parse(cls, text: str) -> "ServerOptions":
        return cls(**json.loads(text))

    def encode(self) -> str:
        return json.dumps(self._asdict())


class GatewayOptions(NamedTuple):
    """How a gateway is set up."""

    upstreams: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Names of the servers behind it, and the keys of each in `gateway.toml`."""
    folder: str = ""
    """Where the gateway keeps what servers list, and what its user approved."""
    disclosure: str = "meta"
    tokens: str = ""
    public_url: str = ""
    wait_seconds: float = 0.1
    """How long the gateway's start waits for servers that it has never seen."""
    short_lifetimes: bool = False

    @property
    def program(self) -> str:
        return "gateway"

    @classmethod
    def parse(cls, text: str) -> "GatewayOptions":
        return cls(**json.loads(text))

    def encode(self) -> str:
        return json.dumps(self._asdict())
