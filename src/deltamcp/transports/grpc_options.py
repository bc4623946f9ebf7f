"""What an operator or an author sets about gRPC."""

import os
from collections.abc import Sequence
from typing import TypedDict

from deltamcp.auth.authenticator import Authenticator
from deltamcp.transports.lite_options import McpLiteOptions
from deltamcp.transports.metrics import Metrics


class GrpcOptions(TypedDict, total=False):
    """The options of `DeltaServer.grpc` and `run("grpc")`."""

    auth: Authenticator | None
    """Who the callers are, by the metadata `authorization`: `ResourceServer`, `StaticTokens`, `HostAuth`,
    `PresenceOnly` or `OpenAccess`. Without it every caller is anonymous, which is allowed at
    loopback addresses only."""
    trusted_proxies: Sequence[str]
    """The proxies whose metadata `forwarded` and `x-forwarded-for` say who the client is; see `HttpOptions`."""
    request_ids: bool
    """Whether every response and every log record of a request has an `x-request-id`, which clients find in the
    trailing metadata. By default there are none."""
    mcp_lite: McpLiteOptions
    """What of MCP-lite is served, such as prompts; those of its options that are about HTTP do nothing here."""
    metrics: Metrics | None
    """Where to count the requests that are refused; it is that of the HTTP application of the same server."""
    tls_cert: str | os.PathLike[str] | None
    """The PEM file of a certificate, to serve TLS; `tls_key` is that of its private key, if that is another file."""
    tls_key: str | os.PathLike[str] | None
    reuse_port: bool
    """Whether other processes serve at the same port (SO_REUSEPORT); the system deals out the connections."""
