"""The entry point of `delta-mcp`: imports the module of the verb, runs it, and turns errors into exit codes."""

import argparse
import contextlib
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal.output import PrintableStream, print_error, print_traceback
from deltamcp.errors import (
    CallFailedError,
    ConnectionLostError,
    DeadlineError,
    DeltaError,
    PeerError,
    ResourceNeededError,
    ResponseTypeError,
    UnreachableError,
)
from deltamcp.runtime.log import LineFormatter
from deltamcp.runtime.process import collection_paused
from deltamcp.version import VERSION


class Verb(NamedTuple):
    """A command: its module, which is imported only to run it, and its help line.

    The module has `set_up(parser)`, which adds the command's options and sets `run`, the function that runs it.
    """

    module: str
    help: str
    set_up: str = "set_up"
    """The function of the module, where it has several commands."""
    runs_author_code: bool = False
    """Whether the stderr of the command is that of an author's program, which may write what it likes."""


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "list": Verb("tools", "the tools of any MCP server"),
        "describe": Verb("tools", "one tool of any MCP server, whole", "set_up_describe"),
        "call": Verb("call", "call a tool of any MCP server"),
        "redeem": Verb("call", "the result of a call that a server goes on with", "set_up_redeem"),
        "resources": Verb("resources", "the resources of any MCP server, and its templates"),
        "read": Verb("resources", "read a resource of any MCP server", "set_up_read"),
        "prompts": Verb("resources", "the prompts of any MCP server", "set_up_prompts"),
        "prompt": Verb("resources", "a prompt of any MCP server, filled in", "set_up_prompt"),
        "login": Verb("login", "log in to a server that wants it"),
        "logout": Verb("login", "forget the login at a server", "set_up_logout"),
        "secret": Verb("token", "put a secret into your keyring, for configurations to name", "set_up_secret"),
        "bench": Verb("audit", "measure any server: latency, tokens, bytes", "set_up_bench"),
        "audit": Verb("audit", "what your servers cost a model now, and would behind the gateway"),
        "gateway": Verb("gateway", "put your servers behind one that costs the model little", runs_author_code=True),
        "install": Verb("install", "put the servers of a host behind the gateway"),
        "uninstall": Verb("install", "undo install", "set_up_uninstall"),
        "serve": Verb("serve", "run a server written in Python, or an operations.json", runs_author_code=True),
        "approve": Verb("approve", "what changed in the servers behind the gateway, to be approved or rejected"),
        "worker": Verb("worker", "run the promises of a server elsewhere than it serves", runs_author_code=True),
        "dev": Verb("dev", "run a server while you write it, with the MCP Inspector", runs_author_code=True),
        "dashboard": Verb("dashboard", "pages of all your gateways that run, in a browser"),
        "status": Verb("dashboard", "your gateways that run: their servers, and what needs attention", "set_up_status"),
        "restart": Verb("dashboard", "start a server behind a gateway anew", "set_up_restart"),
        "logs": Verb("dashboard", "what a server wrote to stderr, or the calls of a gateway", "set_up_logs"),
        "cancel": Verb("dashboard", "end a call that runs", "set_up_cancel"),
        "stats": Verb("audit", "what the gateway saved a model, and what it cost", "set_up_stats"),
        "token": Verb("token", "make a bearer token for a server of yours"),
        "validate": Verb("validate", "check an operations.json and tell every fault in it"),
        "completion": Verb("completion", "a completion script for your shell"),
    }
)

EXIT_FAILED, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 2, 3, 130
EXIT_CODES: tuple[tuple[type[DeltaError], int], ...] = (
    (CallFailedError, EXIT_FAILED),
    (PeerError, EXIT_FAILED),
    (ResourceNeededError, EXIT_FAILED),
    (ResponseTypeError, EXIT_FAILED),
    (UnreachableError, EXIT_UNREACHABLE),
    (ConnectionLostError, EXIT_UNREACHABLE),
    (DeadlineError, EXIT_UNREACHABLE),
    (DeltaError, EXIT_USAGE),
)
"""The first error class that matches gives the exit code."""
_EPILOG = """\
exit codes: 0 done; 1 the tool or the server says it failed, or it broke; 2 the command, or what it names, is wrong;
3 the server cannot be reached, or went away; 130 interrupted."""


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escapes characters that the terminal cannot write
            stream.reconfigure(errors="backslashreplace")
    if words == ["help"]:
        words = ["--help"]
    verb = next((word for word in words if not word.startswith("-")), "")
    with collection_paused():
        args = make_parser([verb]).parse_args(words)
    gc.freeze()  # modules stay, so that no later search needs to look through them
    stderr = sys.stderr if VERBS[args.verb].runs_author_code else PrintableStream(sys.stderr)
    if logging.lastResort is not None:  # which writes the warnings of the library
        logging.lastResort.setFormatter(LineFormatter())
    try:
        with contextlib.redirect_stderr(stderr):
            args.run(args)
        sys.stdout.flush()
    except DeltaError as error:
        if args.debug:
            print_traceback(error)
        else:
            print_error(error)
        raise SystemExit(next(code for kind, code in EXIT_CODES if isinstance(error, kind))) from None
    except KeyboardInterrupt as error:
        if args.debug:
            print_traceback(error)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:  # the reader of the output closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:  # a defect
        print_traceback(error)
        raise SystemExit(EXIT_FAILED) from None


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong with a command in lines of ours: the shell may have put the name of a file into its words."""

    def error(self, message: str) -> NoReturn:
        super().error(visible_line(message))


def make_parser(verb_names: Collection[str]) -> argparse.ArgumentParser:
    """Makes the parser with all verbs; only those in `verb_names` get their arguments, because that imports them."""
    parser = _Parser(
        "delta-mcp",
        description="Token-efficient MCP: look at servers, call, measure and run them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        subparser = verbs.add_parser(name, help=verb.help)
        subparser.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks, and stderr"
        )
        if name in verb_names:
            getattr(importlib.import_module(f"deltamcp.cli.verbs.{verb.module}"), verb.set_up)(subparser)
    return parser
