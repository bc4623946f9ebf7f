"""`delta-mcp login` has the user log in to a server, as other verbs offer where it wants that; `logout` forgets it."""

import argparse
import asyncio
import os
import shlex
import sys

from deltamcp.cli.terminal import targets
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.cli.terminal.elicitation import agrees
from deltamcp.cli.terminal.output import print_json, print_line, print_notice
from deltamcp.client.oauth.metadata import covers, read_bearer_challenge
from deltamcp.client.oauth.oauth import LoginPage, LoginRequiredError, OAuth
from deltamcp.client.oauth.server_access import ServerAccess
from deltamcp.errors import ConfigurationError, UnauthorizedError

_MAX_NAMED_SCOPES = 10
"""How many scopes a sentence names."""


def set_up(verb: argparse.ArgumentParser) -> None:
    targets.set_up_verb(
        verb,
        "delta-mcp login [OPTIONS] TARGET",
        "TARGET",
        run,
        "TARGET is a URL, or names an entry with one. The login is kept in the keyring, or a file that only you read.",
    )
    verb.add_argument("--device", action="store_true", help="log in on another device, with a code that is shown here")
    add_repeatable(verb, "--scope", "SCOPE", "ask for this scope, too")
    verb.add_argument(
        "--client-id",
        metavar="ID",
        help="a client that is registered already; its secret, if it has one, is in DELTA_MCP_CLIENT_SECRET",
    )
    verb.add_argument(
        "--issuer",
        metavar="URL",
        help="the authorization server that knows the client; a client with a secret needs it",
    )
    verb.add_argument("--client-metadata", metavar="URL", help="a document that stands for a client id")
    verb.add_argument(
        "--callback",
        metavar="URL",
        default="",
        help="the http address of this machine that the client is registered with (default a free port of 127.0.0.1)",
    )
    verb.add_argument(
        "--resource",
        metavar="URL",
        help="an address above TARGET's that its tokens may be for; every server there can be used with them",
    )


def run(args: argparse.Namespace, target: list[str]) -> None:
    if args.resource is not None and not covers(args.resource, targets.find_url(target)):
        raise ConfigurationError("--resource is an address above that of the server, such as https://tools.example.")
    auth = _OnePageOAuth(
        grant="device_code" if args.device else None,
        client_id=args.client_id,
        client_secret=os.environ.get("DELTA_MCP_CLIENT_SECRET") if args.client_id else None,
        issuer=args.issuer,
        client_metadata_url=args.client_metadata,
        scopes=args.scope,
        redirect_uri=args.callback,
        resource=args.resource,
    )
    url = _log_in(args, target, auth)
    if args.json:
        print_json({"server": url})
    else:
        print_line(f"Logged in to {url}")


def offer(args: argparse.Namespace, needed: LoginRequiredError) -> None:
    """Asks the user at the terminal whether to log in, and does so.

    Raises:
        UnauthorizedError: there is no terminal, the user does not want to, or the server does not say where to log in.
    """
    challenge = read_bearer_challenge(needed.challenge)
    url, scopes = needed.server_url, challenge.scopes
    if challenge.resource_metadata is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise say_how(needed)
    print_notice(f"{needed} {LoginPage(url, scopes=scopes).notice}".rstrip())
    if not agrees("Log in now?"):
        raise UnauthorizedError(f"Not logged in to the server at {url}.", needed.challenge)
    url = _log_in(args, args.login_target, _OnePageOAuth(scopes=scopes))
    print_notice(f"Logged in to {url}")


def say_how(needed: LoginRequiredError) -> UnauthorizedError:
    """Returns the error of a command that opens no page, with the command that logs in."""
    challenge = read_bearer_challenge(needed.challenge)
    scopes = challenge.scopes[:_MAX_NAMED_SCOPES]
    command = shlex.join(["delta-mcp", "login", needed.server_url, *(f"--scope={scope}" for scope in scopes)])
    if challenge.resource_metadata is None:  # servers up to MCP 2025-03-26 may have a login, and cannot say so
        return UnauthorizedError(
            f"The server at {needed.server_url} wants a token, and does not say where to log in: give one by --token "
            f"or DELTA_MCP_TOKEN (or try {command}).",
            needed.challenge,
        )
    return UnauthorizedError(f"{needed} Do that with: {command} (or give --token)", needed.challenge)


class _OnePageOAuth(OAuth):
    """Shows one page: a server cannot have one command open several."""

    _is_shown = False

    async def show(self, page: LoginPage) -> str | None:
        if self._is_shown:
            named = ", ".join(page.scopes[:_MAX_NAMED_SCOPES])
            raise UnauthorizedError(
                f"The server wants another login, for the scopes {named}; run delta-mcp login again if you agree."
            )
        self._is_shown = True
        return await super().show(page)


def _log_in(args: argparse.Namespace, target: list[str], auth: OAuth) -> str:
    """Logs in to a server and returns its URL.

    Raises:
        UnauthorizedError: the user did not log in, or the server's authorization does not work; the text says why.
        ConfigurationError: the server wants no login.
    """
    url = targets.find_url(target)
    if not asyncio.run(_connect(args, target, url, auth)):
        raise ConfigurationError(f"The server at {url} wants no login.")
    return url


async def _connect(args: argparse.Namespace, target: list[str], url: str, auth: OAuth) -> bool:
    """Connects to a server, which has the user log in if need be; returns whether there is a login then."""
    async with targets.make_client(args, target, auth=auth) as client:
        if "tools" in client.server.capabilities:
            await client.tools()  # some servers let everybody connect, and want a login for anything else
    return await auth.token_source(url).token() is not None


def set_up_logout(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("target", metavar="TARGET", help="a URL, or the name of an entry with one")
    verb.set_defaults(run=run_logout)


def run_logout(args: argparse.Namespace) -> None:
    url = targets.find_url([args.target])
    forgotten = asyncio.run(ServerAccess(OAuth(), url).forget())
    if forgotten.problem:
        print_notice(f"delta-mcp: The login is forgotten here, and may still work: {forgotten.problem}")
    if forgotten.was_stored:
        print_line(f"Logged out of {url}")
    else:
        print_line(f"There was no login at {url}")
