"""`delta-mcp logout` forgets the login at a server, and ends it at the authorization server if that one can."""

import argparse
import asyncio

from deltamcp.cli.terminal import targets
from deltamcp.cli.terminal.output import print_line, print_notice
from deltamcp.client.oauth.oauth import OAuth
from deltamcp.client.oauth.server_access import ServerAccess


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("target", metavar="TARGET", help="a URL, or the name of an entry with one")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    url = targets.find_url([args.target])
    forgotten = asyncio.run(ServerAccess(OAuth(), url).forget())
    if forgotten.problem:
        print_notice(f"delta-mcp: The login is forgotten here, and may still work: {forgotten.problem}")
    if forgotten.was_stored:
        print_line(f"Logged out of {url}")
    else:
        print_line(f"There was no login at {url}")
