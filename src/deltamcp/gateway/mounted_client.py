"""A server that stands for the server of a client, to be mounted: the gateway of that server alone."""

import os
from collections.abc import Mapping
from typing import Any, cast

from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.target import Address, Endpoint, GrpcAddress, InProcessServer, Program
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.item_names import name_address, name_command
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.server import DeltaServer

_PASSED_ON = frozenset({"auth", "encoding", "info", "max_bytes", "token"})
"""The options of a client that its connections have here, too."""
_TAKEN = frozenset({"headers", "speak", "timeout"})
"""Those that the configuration has a place for."""


def server_of_client(client: DeltaClient, prefix: str) -> DeltaServer:
    """Returns a server that offers what the server of a client offers, with names that begin with a prefix.

    The author vouches for that server: its definitions are not reviewed, and nothing is kept on disk. What it asks
    its user and reports goes to whoever calls.

    Raises:
        ConfigurationError: there is an option that only a program of its own can use, or it is in this process.
    """
    options = client.options
    if unused := sorted(options.keys() - _PASSED_ON - _TAKEN):
        raise ConfigurationError(
            f"mount(connect(...)) has no use for {', '.join(unused)}; leave {'it' if len(unused) == 1 else 'them'} out."
            " What the server asks and tells goes to the callers of the one that it is mounted in."
        )
    token = options.get("token")
    headers = {**({"Authorization": f"Bearer {token}"} if isinstance(token, str) else {}), **options.get("headers", {})}
    entry = _entry(client.endpoint, headers)  # what nobody is told is taken from the entry
    name = prefix or _name(client.endpoint)
    upstream = UpstreamConfig(
        name=name,
        entry=entry,
        speak=options.get("speak", "auto"),
        timeout=options.get("timeout"),
        on_changed="accept",
        on_new="announce",
        promise="never",
    )
    passed_on = {key: value for key, value in options.items() if key in _PASSED_ON}
    if isinstance(token, str):
        del passed_on["token"]
    gateway = Gateway(
        GatewayConfig(upstreams=[upstream], name=name, disclosure="full", prefix=bool(prefix)),
        cache_folder=False,
        client_options={name: cast("ClientOptions", passed_on)},
        default_results=None,
        approvals=Approvals(False),
    )
    return gateway.server


def _entry(endpoint: Endpoint, headers: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry of an `mcpServers` file that means an endpoint.

    Raises:
        ConfigurationError: the server is in this process.
    """
    match endpoint:
        case Program(command=(command, *args), env=env, cwd=cwd):
            inherited = dict(os.environ) if env is None else env
            return {"command": command, "args": args, "env": inherited, **({} if cwd is None else {"cwd": cwd})}
        case Address():
            kind = {"type": "mcp-lite"} if endpoint.is_lite else {"type": "sse"} if endpoint.only_sse else {}
            return {"url": endpoint.url, "headers": {**endpoint.headers, **headers}, **kind}
        case GrpcAddress():
            return {"url": endpoint.url, "headers": {**endpoint.headers, **headers}}
        case InProcessServer() | _:
            raise ConfigurationError("That server is in this process: mount it itself, with mount(server).")


def _name(endpoint: Endpoint) -> str:
    """Returns a name for a server that has none here."""
    match endpoint:
        case Program():
            return name_command([endpoint.file] if endpoint.file else endpoint.command)
        case Address() | GrpcAddress():
            return name_address(endpoint.url)
        case _:
            raise AssertionError("it has an entry")
