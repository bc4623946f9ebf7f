"""The command-line options that say who may call a server over HTTP."""

import argparse
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.errors import ConfigurationError

if TYPE_CHECKING:
    from deltamcp.auth.authenticator import Authenticator

_FORMS = "tokens:FILE, https://ISSUER, introspect:URL, presence or open"
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


def add_options(verb: argparse.ArgumentParser) -> None:
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


def read_options(args: argparse.Namespace, *hosts: str) -> AuthOptions:
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
            f"At {exposed[0]} other machines reach the server; say who may call by --auth {_FORMS}."
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
            raise ConfigurationError(f"--auth takes {_FORMS}, not {how!r}.")


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
