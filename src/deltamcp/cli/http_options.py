"""The command-line options of servers over HTTP that are also options of `DeltaServer.run("http")`."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltamcp.transports.http_options import HttpServerOptions


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
    verb.add_argument(
        "--compat", action="store_true", help="answer as the original server of Delta-MCP 0.2 does, on every path"
    )


def read_options(args: argparse.Namespace) -> "HttpServerOptions":
    """Returns the options that the command line sets."""
    from deltamcp.transports.allowed_names import LOOPBACK  # servers over stdio need nothing of HTTP

    return {
        "allowed_hosts": None if args.allow_host is None else [*args.allow_host, *LOOPBACK],
        "allowed_origins": args.allow_origin,
        "trusted_proxies": args.trusted_proxy,
        "request_ids": args.request_ids,
        "sessions": not args.stateless,
        "tls_cert": args.tls_cert,
        "tls_key": args.tls_key,
        "compat": args.compat,
    }
