"""`delta-mcp token` makes a bearer token for `serve --auth tokens:FILE`."""

import argparse
import os
import sys
from pathlib import Path

from deltamcp.auth.static_tokens import VARIABLE, make_token
from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", metavar="NAME", help="whom the token is for; the server knows its callers by this name")
    verb.add_argument("--scope", action="append", default=[], metavar="SCOPE", help="a scope it has; repeatable")
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
        raise ConfigurationError(f"The token cannot be added to {path}: {reason}.") from None
