"""The option of `delta-mcp serve` for gRPC, and the port that several workers share."""

import argparse
import socket
from typing import TYPE_CHECKING

from deltamcp.cli.address import parse_address
from deltamcp.errors import ConfigurationError

if TYPE_CHECKING:
    from deltamcp.transports.options import GrpcOptions, HttpServerOptions


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--grpc", metavar="HOST:PORT", help="serve MCP-lite over gRPC, alone or beside --http; port 0 is any free"
    )


def read_address(args: argparse.Namespace) -> tuple[str, int] | None:
    """
    Raises:
        ConfigurationError: the address is not one.
    """
    return None if args.grpc is None else parse_address("--grpc", args.grpc)


def select_options(http: "HttpServerOptions") -> "GrpcOptions":
    """Returns the options of HTTP that are gRPC's too."""
    mcp_lite = http.get("mcp_lite", False)
    selected: GrpcOptions = {
        "trusted_proxies": http.get("trusted_proxies", ()),
        "request_ids": http.get("request_ids", False),
        "tls_cert": http.get("tls_cert"),
        "tls_key": http.get("tls_key"),
    }
    if not isinstance(mcp_lite, bool):
        selected["mcp_lite"] = mcp_lite
    return selected


def reserve_port(host: str, port: int) -> list[socket.socket]:
    """Binds an address so that this user's processes can serve at it together (SO_REUSEPORT), and nobody else.

    Raises:
        ConfigurationError: nobody can listen at this address, or the system cannot share a port.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError("--grpc with --workers needs a system with SO_REUSEPORT; leave out --workers.")
    from deltamcp.transports.sockets import bind_sockets

    free = bind_sockets(host, port)  # which fails if another server listens there, whoever it lets share its port
    reserved = []
    for bound in free:
        address = bound.getsockname()
        bound.close()
        shared = socket.socket(bound.family, bound.type, bound.proto)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if shared.family == socket.AF_INET6:
            shared.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        shared.bind(address)
        reserved.append(shared)
    return reserved
