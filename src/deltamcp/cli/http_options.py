"""The command-line options of servers over HTTP that are also options of `DeltaServer.run("http")`."""

import argparse
from typing import TYPE_CHECKING, Any, cast

import msgspec

from deltamcp.errors import ConfigurationError

if TYPE_CHECKING:
    from deltamcp.transports.options import HttpServerOptions, McpLiteOptions


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--allow-host",
        action="append",
        metavar="HOST",
        help="a Host header to accept besides loopback names; repeatable, '*' for any",
    )
    verb.add_argument(
        "--allow-origin", action="append", metavar="ORIGIN", help="an Origin header to accept; repeatable"
    )
    verb.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="an address or network whose Forwarded or X-Forwarded-For header names the client; repeatable",
    )
    verb.add_argument(
        "--request-ids", action="store_true", help="an X-Request-Id for every response, and in the log of its request"
    )
    verb.add_argument("--tls-cert", metavar="FILE", help="the certificate in PEM, to serve https")
    verb.add_argument("--tls-key", metavar="FILE", help="its private key in PEM, if it is in another file")
    verb.add_argument(
        "--stateless",
        action="store_true",
        help="keep no sessions: each request of a client up to 2025-11-25 stands alone",
    )
    verb.add_argument("--no-mcp-lite", action="store_true", help="serve MCP only, not MCP-lite beside it")
    verb.add_argument(
        "--mcp-lite-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of MCP-lite over HTTP and gRPC, such as prompts=true or prefix=/lite; repeatable",
    )
    verb.add_argument(
        "--compat", action="store_true", help="answer as the original server of Delta-MCP 0.2 does, on every path"
    )


def read_options(args: argparse.Namespace) -> "HttpServerOptions":
    """Returns the options that the command line sets."""
    from deltamcp.transports.http.origins import LOOPBACK  # servers over stdio need nothing of HTTP

    return {
        "mcp_lite": not args.no_mcp_lite and _read_mcp_lite(args.mcp_lite_option),
        "allowed_hosts": None if args.allow_host is None else [*args.allow_host, *LOOPBACK],
        "allowed_origins": args.allow_origin,
        "trusted_proxies": args.trusted_proxy,
        "request_ids": args.request_ids,
        "sessions": not args.stateless,
        "tls_cert": args.tls_cert,
        "tls_key": args.tls_key,
        "compat": args.compat,
    }


def _read_mcp_lite(given: list[str]) -> "McpLiteOptions":
    """Returns the options of MCP-lite; a value is JSON, or else a text.

    Raises:
        ConfigurationError: an option has no value.
    """
    options: dict[str, Any] = {}
    for option in given:
        name, equals, value = option.partition("=")
        if not equals:
            raise ConfigurationError(f"--mcp-lite-option takes NAME=VALUE, not {option!r}.")
        try:
            options[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[name] = value
    return cast("McpLiteOptions", options)
