"""`delta-mcp token` makes a bearer token for a server; `delta-mcp secret` keeps one in the user's keyring."""

import argparse
import getpass
import os
import re
import sys
from pathlib import Path

from deltamcp.auth.static_tokens import VARIABLE, make_token
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.cli.terminal.output import print_line, print_notice
from deltamcp.errors import ConfigurationError
from deltamcp.runtime.secrets import delete_secret, save_secret


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", metavar="NAME", help="whom the token is for; the server knows its callers by this name")
    add_repeatable(verb, "--scope", "SCOPE", "a scope it has")
    verb.add_argument("--file", type=Path, metavar="FILE", help="the file of tokens to add it to, made if need be")
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    token, line = make_token(args.name, args.scope)
    if args.file is None:
        notes = [f"The token is shown only now. Its line for the file of tokens, or for {VARIABLE}:", line]
    else:
        _append(args.file, line)
        notes = [f"The token is shown only now. {args.file} has its digest."]
    print(token)
    sys.stdout.flush()
    for note in notes:
        print_notice(note)


def _append(path: Path, line: str) -> None:
    try:
        # Mode 0600: only its owner may give out tokens.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
            file.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"The token cannot be added to {path}: {reason}; name another --file.") from None


_NAME = re.compile(r"[\w.@/ -]{1,100}")
_MAX_CHARS = 64 * 1024


def set_up_secret(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "set asks for the secret at the terminal, or reads it from stdin; it is never an argument, which other users "
        "of this machine could read. Write ${keyring:NAME} where a configuration needs it."
    )
    verb.add_argument("action", choices=("set", "delete"), metavar="set|delete", help="keep a secret, or forget it")
    verb.add_argument("name", metavar="NAME", help="what configurations call it")
    verb.set_defaults(run=run_secret)


def run_secret(args: argparse.Namespace) -> None:
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
