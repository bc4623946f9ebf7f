"""`delta-mcp secret` puts a secret into the user's keyring, where configurations name it as `${keyring:NAME}`."""

import argparse
import getpass
import re
import sys

from deltamcp.cli.terminal.output import print_line
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.secrets import delete_secret, save_secret

_NAME = re.compile(r"[\w.@/ -]{1,100}")
_MAX_CHARS = 64 * 1024


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "set asks for the secret at the terminal, or reads it from stdin; it is never an argument, which other users "
        "of this machine could read. Write ${keyring:NAME} where a configuration needs it."
    )
    verb.add_argument("action", choices=("set", "delete"))
    verb.add_argument("name", metavar="NAME", help="what configurations call it")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if not _NAME.fullmatch(args.name):
        raise ConfigurationError("The name of a secret has letters, digits, spaces and . _ @ / -, at most 100.")
    if args.action == "delete":
        was_there = delete_secret(args.name)
        print_line(f"{args.name} is deleted" if was_there else f"There was no secret {args.name}")
        return
    save_secret(args.name, _read_secret(args.name))
    print_line(f"Your keyring has it: write ${{keyring:{args.name}}} in the configuration")


def _read_secret(name: str) -> str:
    if sys.stdin.isatty():
        secret = getpass.getpass(f"{name}: ")
    else:
        secret = sys.stdin.read(_MAX_CHARS).removesuffix("\n").removesuffix("\r")
    if not secret:
        raise ConfigurationError("The secret is empty; type it, or send it to stdin.")
    return secret
