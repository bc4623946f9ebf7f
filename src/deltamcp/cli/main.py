"""The entry point of `delta-mcp`: imports the module of the verb, runs it, and turns errors into exit codes."""

import argparse
import contextlib
import gc
import importlib
import io
import logging
import os
import sys
import textwrap
from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from deltamcp.cli.terminal.command_parser import HELP_COLUMNS, CommandParser
from deltamcp.cli.terminal.output import PrintableStream, print_error, print_traceback, similar_names
from deltamcp.errors import (
    CallFailedError,
    ConfigurationError,
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


class VerbGroup(Enum):
    """What one wants of a command, as a heading of the help."""

    LOOK = "Look at any MCP server, and use it"
    GATEWAY = "Put your servers behind one that costs the model little"
    WRITE = "Write a server"
    RUN = "Run a server for others"


class Verb(NamedTuple):
    """A command: its group in the help, its module, which is imported only to run it, and its help line.

    The module has `set_up(parser)`, which adds the command's options and sets `run`, the function that runs it.
    """

    group: VerbGroup
    module: str
    help: str
    set_up: str = "set_up"
    """The function of the module, where it has several commands."""
    runs_author_code: bool = False
    """Whether the stderr of the command is that of an author's program, which may write what it likes."""
    other_names: tuple[str, ...] = ()
    """What else people type for it; the command itself is then named to them."""


_LISTED = "delta-mcp --help lists them."
_MIN_COMPARED = 4
"""From how many letters on another name of a verb is compared: shorter ones are parts of many words."""
_LOOK, _GATEWAY, _WRITE, _RUN = VerbGroup
VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "list": Verb(_LOOK, "tools", "the tools of a server", other_names=("ls", "tools", "list-tools")),
        "describe": Verb(_LOOK, "tools", "one tool, whole", "set_up_describe", other_names=("show", "schema", "info")),
        "call": Verb(_LOOK, "tools", "call a tool", "set_up_call", other_names=("call-tool", "invoke", "exec")),
        "redeem": Verb(_LOOK, "tools", "the result of a call that a server goes on with", "set_up_redeem"),
        "resources": Verb(_LOOK, "resources", "the resources of a server, and its templates"),
        "read": Verb(_LOOK, "resources", "read a resource", "set_up_read", other_names=("cat",)),
        "prompts": Verb(_LOOK, "resources", "the prompts of a server", "set_up_prompts"),
        "prompt": Verb(_LOOK, "resources", "a prompt, filled in", "set_up_prompt"),
        "bench": Verb(_LOOK, "audit", "measure a server: latency, tokens, bytes", "set_up_bench"),
        "login": Verb(_LOOK, "login", "log in to a server that wants it", other_names=("auth",)),
        "logout": Verb(_LOOK, "login", "forget the login at a server", "set_up_logout"),
        "audit": Verb(_GATEWAY, "audit", "what your servers cost a model now, and would behind the gateway"),
        "install": Verb(_GATEWAY, "install", "put the servers of a host, such as Cursor, behind the gateway"),
        "uninstall": Verb(_GATEWAY, "install", "undo install", "set_up_uninstall"),
        "add": Verb(_GATEWAY, "add", "put one more server behind the gateway"),
        "remove": Verb(
            _GATEWAY, "add", "take a server away from the gateway", "set_up_remove", other_names=("rm", "delete")
        ),
        "gateway": Verb(
            _GATEWAY,
            "gateway",
            "run the gateway; --check tries every server behind it",
            runs_author_code=True,
            other_names=("proxy", "doctor"),
        ),
        "openapi": Verb(
            _GATEWAY,
            "openapi",
            "what an OpenAPI document offers, costs, and has wrong",
            other_names=("swagger", "api"),
        ),
        "approve": Verb(_GATEWAY, "approve", "what changed in those servers, to be approved or rejected"),
        "dashboard": Verb(_GATEWAY, "dashboard", "your gateways that run, in a browser", other_names=("ui",)),
        "status": Verb(_GATEWAY, "dashboard", "your gateways that run, and what needs attention", "set_up_status"),
        "logs": Verb(_GATEWAY, "dashboard", "what a server wrote to stderr, or the calls that came", "set_up_logs"),
        "restart": Verb(_GATEWAY, "dashboard", "start a server behind a gateway anew", "set_up_restart"),
        "cancel": Verb(_GATEWAY, "dashboard", "end a call that runs", "set_up_cancel"),
        "stats": Verb(_GATEWAY, "stats", "what the gateway saved a model, and what it cost"),
        "secret": Verb(_GATEWAY, "token", "put a secret into your keyring, for configurations", "set_up_secret"),
        "dev": Verb(
            _WRITE,
            "serve",
            "run a server while you write it, with the MCP Inspector",
            "set_up_dev",
            runs_author_code=True,
            other_names=("inspect", "inspector"),
        ),
        "new": Verb(
            _WRITE,
            "new",
            "a small project that runs: a server or a gateway, with a test",
            other_names=("init", "create"),
        ),
        "validate": Verb(_WRITE, "openapi", "check an operations.json and tell every fault in it", "set_up_validate"),
        "serve": Verb(
            _RUN,
            "serve",
            "run a server written in Python, or an operations.json",
            runs_author_code=True,
            other_names=("run", "start", "server"),
        ),
        "worker": Verb(
            _RUN,
            "serve",
            "run the promises of a server elsewhere than it serves",
            "set_up_worker",
            runs_author_code=True,
        ),
        "token": Verb(_RUN, "token", "make a bearer token for a server of yours"),
        "completion": Verb(_RUN, "completion", "a completion script for your shell"),
    }
)
"""The commands, by name. Those of a group stand together; the help has them in this order."""

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
_EXIT_CODES_HELP = """\
exit codes: 0 done; 1 the tool or the server says it failed, or it broke;
2 the command, or what it names, is wrong; 3 the server cannot be reached, or
went away; 130 interrupted."""


def main(arguments: list[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escapes characters that the terminal cannot write
            stream.reconfigure(errors="backslashreplace")
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    verb = next((word for word in words if not word.startswith("-")), "")
    args = argparse.Namespace(debug="--debug" in words)  # until the words are parsed
    stderr = sys.stderr if verb in VERBS and VERBS[verb].runs_author_code else PrintableStream(sys.stderr)
    try:
        with collection_paused():
            args = make_parser([verb]).parse_args(words or ["--help"])
        gc.freeze()  # modules stay, so that no later search needs to look through them
        if logging.lastResort is not None:  # which writes the warnings of the library
            logging.lastResort.setFormatter(LineFormatter())
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


class _MainParser(CommandParser):
    """The parser of the whole command line, whose help has the verbs by what one wants."""

    def format_help(self) -> str:
        lines = [self.format_usage().rstrip(), "", "Token-efficient MCP: look at servers, call, measure and run them."]
        for group in VerbGroup:
            lines += ["", f"{group.value}:"]
            for name, verb in VERBS.items():
                if verb.group is group:
                    lines += textwrap.wrap(
                        verb.help, HELP_COLUMNS - 1, initial_indent=f"  {name:11} ", subsequent_indent=" " * 14
                    )
        return "\n".join(
            [*lines, "", "delta-mcp VERB --help tells what it takes; --version, --debug.", "", _EXIT_CODES_HELP, ""]
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed = super().parse_args(args, namespace)
        if parsed.verb is None:
            raise ConfigurationError(f"Name a command; {_LISTED}")
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.dest == "verb" and value not in VERBS:
            raise ConfigurationError(_unknown_verb(str(value)))
        super()._check_value(action, value)


def _unknown_verb(word: str) -> str:
    """Says which verb may be meant, or which takes such a target."""
    meant = next((name for name, verb in VERBS.items() if word in verb.other_names), None)
    if meant is not None:
        return f"There is no command {word!r}; delta-mcp {meant} does that: {VERBS[meant].help}."
    if "://" in word or "/" in word or word.endswith((".py", ".json", ".toml")):
        return f"A command comes first; delta-mcp list {word} shows the tools of it."
    if word == "version":
        return "There is no command 'version'; delta-mcp --version prints it."
    names = {name: name for name in VERBS}
    names |= {other: name for name, verb in VERBS.items() for other in verb.other_names if len(other) >= _MIN_COMPARED}
    similar = dict.fromkeys(names[name] for name in similar_names(word, names))
    hint = f"did you mean {' or '.join(similar)}?" if similar else _LISTED
    return f"There is no command {word!r}; {hint}"


def make_parser(verb_names: Collection[str]) -> CommandParser:
    """Makes the parser with all verbs; only those in `verb_names` get their arguments, because that imports them."""
    parser = _MainParser("delta-mcp")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=CommandParser)
    for name, verb in VERBS.items():
        subparser = verbs.add_parser(name, help=verb.help)
        subparser.set_defaults(parser=subparser)
        subparser.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks, and stderr"
        )
        if name in verb_names:
            getattr(importlib.import_module(f"deltamcp.cli.verbs.{verb.module}"), verb.set_up)(subparser)
    return parser
