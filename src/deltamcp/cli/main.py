"""`delta-mcp`: one verb a file, told apart here."""

import argparse
import importlib.metadata
import os
import sys

from deltamcp.cli import audit, bench, call_tool, completion, describe_tool, list_tools, serve, validate
from deltamcp.errors import (
    CallFailedError,
    ConnectionLostError,
    DeadlineError,
    DeltaError,
    PeerError,
    UnreachableError,
)

FAILED, WRONG, AWAY, INTERRUPTED = 1, 2, 3, 130
EXIT_CODES: tuple[tuple[type[DeltaError], int], ...] = (
    (CallFailedError, FAILED),
    (PeerError, FAILED),
    (UnreachableError, AWAY),
    (ConnectionLostError, AWAY),
    (DeadlineError, AWAY),
    (DeltaError, WRONG),
)
"""The first that fits."""
_EPILOG = """\
exit codes: 0 done; 1 the tool or the server says it failed, or it broke; 2 the command, or what it names, is wrong;
3 the server cannot be reached, or went away; 130 interrupted."""


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(bench.spelt_out(sys.argv[1:] if arguments is None else arguments))
    try:
        given.run(given)
        sys.stdout.flush()
    except DeltaError as error:
        if given.debug:
            raise
        print(f"delta-mcp: {error}", file=sys.stderr)
        raise SystemExit(next(code for kind, code in EXIT_CODES if isinstance(error, kind))) from None
    except KeyboardInterrupt:
        if given.debug:
            raise
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "delta-mcp",
        description="Token-efficient MCP: look at servers, call, measure and run them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=importlib.metadata.version("delta-mcp"))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in (list_tools, describe_tool, call_tool, bench, audit, serve, validate):
        verb.add_to(verbs)
    completion.add_to(verbs, parser)
    return parser
