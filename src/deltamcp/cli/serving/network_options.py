"""The options of servers over HTTP and gRPC: where they listen, to whom, who may call, how often, by which state keys.

Those that `add_http_options` adds are also options of `DeltaServer.run("http")`.
"""

import argparse
import base64
import binascii
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from deltamcp.calls.rate_limits import EVERY_TOOL, Rate, RateLimits
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.seal import KEY_BYTES

if TYPE_CHECKING:
    from deltamcp.auth.authenticator import Authenticator
    from deltamcp.transports.options import GrpcOptions, HttpServerOptions, McpLiteOptions


def add_http_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--allow-host",
        action="append",
        metavar="HOST",
        help="a Host header to accept besides loopback names; repeatable, '*' for any",
    )
    verb.add_argument(
        "--allow-origin", action="append", metavar="ORIGIN", help="an Origin header to accept; repeatable"
    )
    add_repeatable(
        verb,
        "--trusted-proxy",
        "ADDRESS",
        "an address or network whose Forwarded or X-Forwarded-For header names the client",
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
    add_repeatable(
        verb,
        "--mcp-lite-option",
        "NAME=VALUE",
        "an option of MCP-lite over HTTP and gRPC, such as prompts=true or prefix=/lite",
    )
    verb.add_argument(
        "--compat", action="store_true", help="answer as the original server of Delta-MCP 0.2 does, on every path"
    )


def read_http_options(args: argparse.Namespace) -> "HttpServerOptions":
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


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Reads HOST:PORT; an empty host is 127.0.0.1.

    Raises:
        ConfigurationError: the text, which is the value of `option`, is no address.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{option} takes HOST:PORT, such as 127.0.0.1:8000, not {text!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)


# gRPC


def add_grpc_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--grpc", metavar="HOST:PORT", help="serve MCP-lite over gRPC, alone or beside --http; port 0 is any free"
    )


def read_grpc_address(args: argparse.Namespace) -> tuple[str, int] | None:
    """
    Raises:
        ConfigurationError: the address is not one.
    """
    return None if args.grpc is None else parse_address("--grpc", args.grpc)


def select_grpc_options(http: "HttpServerOptions") -> "GrpcOptions":
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


def reserve_grpc_port(host: str, port: int) -> list[socket.socket]:
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


# Rates


def add_rate_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--rate-address",
        metavar="COUNT/SECONDS",
        help="how many HTTP requests one address may send in how many seconds, as 100/60",
    )
    verb.add_argument(
        "--rate-principal", metavar="COUNT/SECONDS", help="how many HTTP requests one authenticated caller may send"
    )
    add_repeatable(
        verb, "--rate-tool", "[TOOL=]COUNT/SECONDS", "how often a caller may call each tool, or the one of this name"
    )


def read_rate_limits(args: argparse.Namespace) -> RateLimits | None:
    """Returns the limits that the command line sets; None if it sets none.

    Raises:
        ConfigurationError: an option is no rate.
    """
    if not (args.rate_address or args.rate_principal or args.rate_tool):
        return None
    named = [text.rpartition("=") for text in args.rate_tool]
    return RateLimits(
        per_address=args.rate_address and _read_rate("--rate-address", args.rate_address),
        per_principal=args.rate_principal and _read_rate("--rate-principal", args.rate_principal),
        per_tool={name or EVERY_TOOL: _read_rate("--rate-tool", text) for name, _, text in named} or None,
    )


def _read_rate(option: str, text: str) -> Rate:
    count, _, seconds = text.partition("/")
    try:
        return Rate(int(count), float(seconds))
    except (ValueError, ConfigurationError):
        raise ConfigurationError(
            f"{option} takes COUNT/SECONDS above 0, such as 100/60 for 100 in a minute, not {text!r}."
        ) from None


# State keys

_STATE_KEYS_VARIABLE = "DELTA_MCP_STATE_KEYS"
_STATE_KEY_FORM = "a key is 32 random bytes, as 64 hex digits or in base64; `openssl rand -hex 32` makes one"


def add_state_key_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--state-key-file",
        type=Path,
        metavar="FILE",
        help=f"the keys that seal what clients carry, one a line, the first seals; or set {_STATE_KEYS_VARIABLE}",
    )


def read_keys(path: Path | None, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """Returns the keys of a file, or else of the environment; none if there is neither.

    Raises:
        ConfigurationError: the file cannot be read, or what is there are not keys.
    """
    if path is None:
        return (
            parse_keys(environment[_STATE_KEYS_VARIABLE], _STATE_KEYS_VARIABLE)
            if environment.get(_STATE_KEYS_VARIABLE)
            else ()
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"{path} cannot be read: {reason}; name another --state-key-file.") from None
    return parse_keys(re.sub(r"(?m)^\s*#.*$", "", text), str(path))


def parse_keys(text: str, source: str) -> tuple[bytes, ...]:
    """Reads keys that spaces, line ends or commas separate; `source` begins the texts of errors.

    Raises:
        ConfigurationError: one of them is not a key, or there is none; the text says which, and does not show it.
    """
    words = re.split(r"[\s,]+", text.strip(" \t\r\n,"))
    if words == [""]:
        raise ConfigurationError(f"{source} has no key; {_STATE_KEY_FORM}.")
    keys = [_decode(word) for word in words]
    if None in keys:
        raise ConfigurationError(f"Key {keys.index(None) + 1} of {source} cannot be used; {_STATE_KEY_FORM}.")
    return tuple(key for key in keys if key is not None)


def _decode(word: str) -> bytes | None:
    try:
        if len(word) == 2 * KEY_BYTES:
            key = bytes.fromhex(word)
        else:
            plain = word.rstrip("=").replace("-", "+").replace("_", "/")
            key = base64.b64decode(f"{plain}{'=' * (-len(plain) % 4)}", validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == KEY_BYTES else None


# Who may call

_AUTH_FORMS = "tokens:FILE, https://ISSUER, introspect:URL, presence or open"
_CLIENT_ID = "DELTA_MCP_INTROSPECTION_CLIENT_ID"
_CLIENT_SECRET = "DELTA_MCP_INTROSPECTION_CLIENT_SECRET"  # noqa: S105 - the name of a variable


class AuthOptions(Struct, frozen=True):
    """The options as the command line has them."""

    auth: str | None = None
    resource: str | None = None
    issuer: str | None = None
    jwks_url: str | None = None
    audiences: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    step_up: tuple[str, ...] = ()
    only_for_this_resource: bool = False


def add_auth_options(verb: argparse.ArgumentParser) -> None:
    group = verb.add_argument_group("who may call, over HTTP and gRPC")
    group.add_argument(
        "--auth",
        metavar="HOW",
        help="tokens:FILE, tokens (in DELTA_MCP_TOKENS), https://ISSUER (JSON Web Tokens), introspect:URL "
        f"({_CLIENT_ID} and ..._SECRET), presence (any token) or open; needed at addresses other than loopback",
    )
    group.add_argument("--resource", metavar="URL", help="this server's public URL, for which tokens are issued")
    group.add_argument("--issuer", metavar="URL", help="with introspect: the authorization server")
    group.add_argument("--jwks-url", metavar="URL", help="where the issuer's keys are, unless its metadata tells")
    add_repeatable(group, "--audience", "AUD", "what tokens name instead of URL")
    add_repeatable(group, "--algorithm", "ALG", "what may sign tokens, as ES256")
    add_repeatable(group, "--scope", "SCOPE", "a scope that every request needs")
    add_repeatable(group, "--step-up", "SCOPE", "one that clients may ask for later")
    group.add_argument(
        "--only-for-this-resource",
        action="store_true",
        help="with introspect: the endpoint calls only tokens for this server active",
    )


def read_auth_options(args: argparse.Namespace, *hosts: str) -> AuthOptions:
    """Returns the options for a server that listens at these hosts; none are for stdio.

    Raises:
        ConfigurationError: a host can be reached from other machines, and nothing says who may call; or there is no
            host, and something does.
    """
    from deltamcp.auth.safe_url import is_loopback

    if not hosts:
        if args.auth is not None:
            raise ConfigurationError("--auth needs --http HOST:PORT: over stdio the caller is who started the server.")
        return AuthOptions()
    exposed = [host for host in hosts if not is_loopback(host)]
    if args.auth is None and exposed:
        raise ConfigurationError(
            f"At {exposed[0]} other machines reach the server; say who may call by --auth {_AUTH_FORMS}."
        )
    return AuthOptions(
        args.auth,
        args.resource,
        args.issuer,
        args.jwks_url,
        tuple(args.audience),
        tuple(args.algorithm),
        tuple(args.scope),
        tuple(args.step_up),
        args.only_for_this_resource,
    )


def make_authenticator(options: AuthOptions) -> "Authenticator | None":
    """Returns what `--auth` asks for; None if it is not there.

    Raises:
        ConfigurationError: it is no form of `--auth`, an option that it needs is missing, or one does not belong to it.
    """
    how = options.auth or ""
    kind, _, rest = how.partition(":")
    if kind == "introspect" and rest:
        return _introspecting(options, rest)
    if kind in ("https", "http"):
        return _verifying(options, how)
    if options != AuthOptions(options.auth):
        raise ConfigurationError(
            "--resource, --scope and the options beside them need --auth https://ISSUER or --auth introspect:URL."
        )
    match how:
        case "":
            return None
        case "open":
            from deltamcp.auth.authenticator import OpenAccess

            return OpenAccess()
        case "presence":
            from deltamcp.auth.authenticator import PresenceOnly

            return PresenceOnly()
        case _ if kind == "tokens":
            from deltamcp.auth.static_tokens import StaticTokens

            return StaticTokens(rest or None)
        case _:
            raise ConfigurationError(f"--auth takes {_AUTH_FORMS}, not {how!r}.")


def _verifying(options: AuthOptions, issuer: str) -> "Authenticator":
    """Makes what verifies JSON Web Tokens."""
    from deltamcp.auth.jwt_verifier import ALGORITHMS
    from deltamcp.auth.resource_server import ResourceServer

    if options.issuer is not None or options.only_for_this_resource:
        raise ConfigurationError("--issuer and --only-for-this-resource belong to --auth introspect:URL.")
    return ResourceServer(
        _resource(options),
        issuer,
        jwks_url=options.jwks_url,
        algorithms=options.algorithms or ALGORITHMS,
        audience=options.audiences,
        scopes=options.scopes,
        step_up=options.step_up,
    )


def _introspecting(options: AuthOptions, url: str) -> "Authenticator":
    """Makes what asks the authorization server about each token."""
    from deltamcp.auth.introspection import Introspection
    from deltamcp.auth.resource_server import ResourceServer

    client_id, client_secret = os.environ.get(_CLIENT_ID), os.environ.get(_CLIENT_SECRET)
    if not client_id or not client_secret:
        raise ConfigurationError(f"--auth introspect:URL needs {_CLIENT_ID} and {_CLIENT_SECRET} in the environment.")
    if options.issuer is None:
        raise ConfigurationError("--auth introspect:URL needs --issuer URL, where clients get their tokens.")
    if options.jwks_url is not None or options.algorithms:
        raise ConfigurationError("--jwks-url and --algorithm belong to --auth https://ISSUER.")
    return ResourceServer(
        _resource(options),
        options.issuer,
        introspection=Introspection(
            url=url,
            client_id=client_id,
            client_secret=client_secret,
            only_for_this_resource=options.only_for_this_resource,
        ),
        audience=options.audiences,
        scopes=options.scopes,
        step_up=options.step_up,
    )


def _resource(options: AuthOptions) -> str:
    if options.resource is None:
        raise ConfigurationError(
            "This --auth needs --resource URL, the public address of the endpoint, such as https://tools.example/mcp."
        )
    return options.resource
