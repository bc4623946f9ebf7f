"""A target among the words of a command line, and the client for it.

`delta-mcp call node ./server.js search '{"query":"x"}'`: the words of a server's own command line, then those of the
verb. Options of ours stand before the target, or at the very end; after `--` every word is the target's or the verb's.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Unpack

from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.errors import ConfigurationError, UnauthorizedError, UnreachableError

WORDS = "words"
TARGET_HELP = (
    "TARGET is a URL, FILE#NAME for a server of an mcpServers file, or a server's own command line; so our options "
    "stand before it or at the very end, and after -- every word is the server's."
)
LIST_SECONDS = 60.0
"""For an answer that takes no work."""


def add_options(verb: argparse.ArgumentParser) -> None:
    """What every verb with a target takes."""
    verb.add_argument("--json", action="store_true", help="one JSON value instead of text")
    verb.add_argument(
        "--header", action="append", default=[], metavar="NAME:VALUE", help="for every HTTP request; repeatable"
    )
    verb.add_argument("--token", metavar="TOKEN", help="a bearer token (or set DELTA_MCP_TOKEN)")
    verb.add_argument("--timeout", type=_parse_seconds, metavar="SECONDS", help="for starting, and for every answer")
    verb.add_argument(
        "--speak",
        choices=("auto", "modern", "handshake", "delta-mcp"),
        default="auto",
        help="what to speak to the server (default auto: whatever it understands)",
    )
    verb.add_argument(
        "--encoding",
        choices=("json", "compact-json", "cbor"),
        default="json",
        help="how messages are written, where the server agrees (default json)",
    )


def add_words_argument(verb: argparse.ArgumentParser, metavar: str) -> None:
    verb.add_argument(WORDS, nargs=argparse.REMAINDER, metavar=metavar, help="a URL, a command line, or FILE#NAME")


def _parse_seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < 1e6:
            return seconds
    raise argparse.ArgumentTypeError(f"a number of seconds above 0, not {text!r}")


def read_words(given: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """The words that are no options of ours; those at the very end are read into `given`."""
    words: list[str] = getattr(given, WORDS)
    if words[:1] == ["--"]:
        return words[1:]
    start = _trailing_options_start(words, parser)
    if start and words[start - 1] in _valued_options(parser):
        raise ConfigurationError(f"{words[start - 1]} needs a value; put -- before the server if the word is its own.")
    if start < len(words):
        kept = argparse.Namespace(**{**vars(given), WORDS: []})
        vars(given).update(vars(parser.parse_args(words[start:], kept)))
    return words[:start]


def _trailing_options_start(words: Sequence[str], parser: argparse.ArgumentParser) -> int:
    """Where the options begin that end a command line."""
    valued = _valued_options(parser)
    flags = _option_names(parser) - valued
    start = len(words)
    while start:
        last = words[start - 1]
        name, is_assigned, _ = last.partition("=")
        if last in flags or (is_assigned and name in valued):
            start -= 1
        elif start > 1 and words[start - 2] in valued:
            start -= 2
        else:
            break
    return start


def _option_names(parser: argparse.ArgumentParser, *, valued: bool = False) -> set[str]:
    return {
        option
        for action in parser._actions  # noqa: SLF001 - argparse has no other way to ask
        for option in action.option_strings
        if option not in ("-h", "--help") and (action.nargs != 0 or not valued)
    }


def _valued_options(parser: argparse.ArgumentParser) -> set[str]:
    return _option_names(parser, valued=True)


@contextlib.contextmanager
def explain_tool_word(word: str) -> Iterator[None]:
    """Where the server is not to be had, says which word was read as the tool: it may have been meant otherwise."""
    try:
        yield
    except UnauthorizedError:
        raise
    except UnreachableError as error:
        raise UnreachableError(
            f"{error} ({word!r} was taken for the tool, what is before it for the server.)"
        ) from None


def make_client(given: argparse.Namespace, target: list[str], **more: Unpack[ClientOptions]) -> DeltaClient:
    """A client as the options of a command line have it; `more` is the verb's own.

    Raises:
        ConfigurationError: there is no such target.
    """
    if not target:
        raise ConfigurationError("Name a server: a URL, a command line, or FILE#NAME for one of an mcpServers file.")
    options: ClientOptions = {
        "speak": given.speak,
        "encoding": given.encoding,
        "headers": dict(map(_parse_header, given.header)),
        "listen": False,
        "quiet": not given.debug,
    }
    options.update(more)
    token = given.token or os.environ.get("DELTA_MCP_TOKEN")
    if token:
        options["token"] = token
    if given.timeout is not None:
        options["timeout"] = options["start_timeout"] = given.timeout
    return DeltaClient(target, **options)


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(ord(char) < 32 or ord(char) > 255 for char in text):
        raise ConfigurationError(f"--header takes NAME:VALUE, not {text.partition(':')[0]!r:.40}.")
    return name.strip(), value.strip()


def is_interactive() -> bool:
    """Whether somebody sits at a terminal who can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
