"""Separates the options from the words of a command line that name a target, and makes the client for the target.

`delta-mcp call node ./server.js search '{"query":"x"}'`: the words of the server's command line, then those of the
verb. Options of `delta-mcp` stand before the target or at the very end; all words after `--` are the target's or the
verb's. After a URL, a file or FILE#NAME, which have no words of their own, options may stand anywhere.
"""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack
from urllib.parse import urlsplit

from deltamcp.cli.terminal.command_parser import add_repeatable, unknown_word
from deltamcp.cli.terminal.output import print_notice, similar_names, suggest
from deltamcp.client.target import (
    Address,
    GrpcAddress,
    Program,
    is_python_file,
    is_whole_target,
    parse_target,
    served_command,
)
from deltamcp.errors import ConfigurationError, ConnectionLostError, UnauthorizedError, UnreachableError
from deltamcp.hosts import files
from deltamcp.hosts.files import DISABLED, UNTRUSTED, ConfiguredServer
from deltamcp.hosts.host_entry import starts_gateway
from deltamcp.hosts.hosts import Machine
from deltamcp.runtime.process import keep_grpc_off_stderr
from deltamcp.values import JSON
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from deltamcp.client.client import DeltaClient
    from deltamcp.client.options import ClientOptions

T = TypeVar("T")

WORDS = "words"
TARGET_HELP = (
    "TARGET is a URL, a Python file (FILE.py or FILE.py:NAME), FILE#NAME for a server of an mcpServers file, the name "
    "of a server in your hosts' files, or a server's own command line; so our options stand before it or at the very "
    "end, and after -- every word is the server's."
)
_SERVER_NAME = re.compile(r"[\w.@ -]+")
"""What the name of a server in a host's file may look like; it has no separators of paths."""
_WAITING = re.compile(
    r"^WARNING deltamcp: .+ is left out: .+ waits until the user approves it\. delta-mcp approve (.+) shows it\.\s*$"
)
"""What a gateway logs of a server that it leaves out, by `log_line` of `gateway.trust.entry_approvals`."""
LIST_SECONDS = 60.0
"""The timeout of requests that list or describe tools."""


def set_up_verb(
    verb: argparse.ArgumentParser,
    usage: str,
    metavar: str,
    run: Callable[[argparse.Namespace, list[str]], None],
    description: str = TARGET_HELP,
) -> None:
    """Sets up a verb that takes a target: its usage, its words, and the options of every such verb.

    Args:
        metavar: the words, as the help shows them.
        run: runs the verb with the parsed options and the words that are none.
    """
    verb.usage, verb.description = usage, description
    add_options(verb)
    add_words_argument(verb, metavar)

    def run_words(args: argparse.Namespace) -> None:
        words = read_words(args, verb)
        try:
            run_with_login(args, lambda: run(args, words))
        except UnreachableError as error:
            if not isinstance(error.__context__, ConnectionLostError) or not _is_address(words):
                raise
            said = f"{str(error).rstrip('.')}; is the address right, and does a server run there?"
            raise UnreachableError(said).with_traceback(error.__traceback__) from None
        finally:
            _tell_what_waits([*getattr(args, "waiting", ())])

    verb.set_defaults(run=run_words)


def _tell_what_waits(servers: Sequence[str]) -> None:
    """Tells the user which servers the gateway that was the target leaves out, as `make_client` noted them."""
    if servers:
        them, named = ("it", f" {servers[0]}") if len(servers) == 1 else ("them", "")
        print_notice(
            f"delta-mcp: the gateway leaves out {', '.join(servers)} until you approve {them}: delta-mcp approve{named}"
        )


def run_with_login(args: argparse.Namespace, run: Callable[[], T]) -> T:
    """Runs a verb; where the server wants a login, and the user at the terminal agrees, logs in and runs it again.

    One command opens one page: a server that then wants another login is told with what to do.

    Raises:
        UnauthorizedError: the server wants a login, and there is no terminal, or the user does not want to, or has just
            logged in.
    """
    from deltamcp.client.oauth.oauth import LoginRequiredError  # imported late, as a gateway starts without a client

    try:
        return run()
    except LoginRequiredError as error:
        needed = error
    from deltamcp.cli.verbs import login  # imported late, so that other verbs start faster

    login.offer(args, needed)
    try:
        return run()
    except LoginRequiredError as error:
        raise login.say_how(error) from None


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds the options of every verb that takes a target."""
    verb.add_argument("--json", action="store_true", help="one JSON value instead of text")
    add_repeatable(verb, "--header", "NAME:VALUE", "for every HTTP request")
    verb.add_argument("--token", metavar="TOKEN", help="a bearer token (or set DELTA_MCP_TOKEN)")
    verb.add_argument("--timeout", type=_parse_seconds, metavar="SECONDS", help="for starting, and for every answer")
    verb.add_argument(
        "--max-bytes",
        type=_parse_bytes,
        metavar="N",
        help="size of the largest message, list or result of the server (default 16 MiB)",
    )
    verb.add_argument(
        "--speak",
        choices=("auto", "modern", "handshake", "delta-mcp", "mcp-lite"),
        default="auto",
        help="what to speak to the server (default auto: whatever it understands)",
    )
    verb.add_argument(
        "--encoding",
        choices=("json", "compact-json", "cbor"),
        default="json",
        help="how messages are written, where the server agrees (default json)",
    )


def add_words_argument(
    verb: argparse.ArgumentParser, metavar: str, help_: str = "a URL, a file, FILE#NAME, or a command line"
) -> None:
    verb.add_argument(WORDS, nargs=argparse.REMAINDER, metavar=metavar, help=help_)


def _parse_seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < 1e6:
            return seconds
    raise argparse.ArgumentTypeError(f"a number of seconds above 0, not {text!r}")


def _parse_bytes(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (size := int(text)) > 0:
            return size
    raise argparse.ArgumentTypeError(f"a number of bytes above 0, not {text!r}")


def read_words(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Returns the words that are not options of `delta-mcp`; parses the options among them into `args`.

    Raises:
        ConfigurationError: there is no such option, or it has no value.
    """
    words: list[str] = getattr(args, WORDS)
    if words[:1] == ["--"]:
        return words[1:]
    if words and is_whole_target(words[0]):
        words, options = _split_options(words, parser)
    else:
        start = _trailing_options_start(words, parser)
        words, options = words[:start], words[start:]
        if words and words[-1] in _valued_options(parser):
            raise ConfigurationError(f"{words[-1]} needs a value; put -- before the server if the word is its own.")
    _parse_options(options, args, parser)
    return words


def read_named_words(args: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Returns the words before a server, and those of the server: what follows `--`, a second word that is a whole
    target, or everything from a second word on. Options of `delta-mcp` stand before a command.

    Raises:
        ConfigurationError: as of `read_words`.
    """
    words: list[str] = getattr(args, WORDS)
    valued = _valued_options(parser)
    start = count = 0
    while start < len(words) and words[start] != "--":
        count += not words[start].startswith("-")
        if count == 2:
            break
        start += 2 if words[start] in valued else 1
    own, server = words[:start], words[start:]
    if server[:1] == ["--"]:
        server = server[1:]
    elif server and is_whole_target(server[0]):
        own, server = [*own, *server[1:]], server[:1]
    names, options = _split_options(own, parser)
    _parse_options(options, args, parser)
    return names, server


def _parse_options(options: list[str], args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if options:
        parsed = argparse.Namespace(**{**vars(args), WORDS: []})
        vars(args).update(vars(parser.parse_args(options, parsed)))


def _split_options(words: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Splits the words after a target of one word into those of the verb and options with their values."""
    valued, optional = _valued_options(parser), _optionally_valued_options(parser)
    flags = _option_names(parser) - valued | {"-h", "--help"}
    others: list[str] = []
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, is_assigned, _ = word.partition("=")
        if word == "--":
            return others + rest, options
        lacks_value = not rest or rest[0].startswith("--")
        if word in flags or (is_assigned and name in valued) or (word in optional and lacks_value):
            options.append(word)
        elif word in valued:
            if not rest:
                raise ConfigurationError(f"{word} needs a value.")
            options += [word, rest.pop(0)]
        elif word.startswith("--"):
            raise ConfigurationError(unknown_word(parser, [word]))
        else:
            others.append(word)
    return others, options


def _trailing_options_start(words: Sequence[str], parser: argparse.ArgumentParser) -> int:
    """Returns the index at which the options at the end of a command line begin."""
    valued = _valued_options(parser)
    flags = _option_names(parser) - valued | _optionally_valued_options(parser)
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


def _optionally_valued_options(parser: argparse.ArgumentParser) -> set[str]:
    actions = parser._actions  # noqa: SLF001 - argparse has no other way to ask
    return {option for action in actions if action.nargs == argparse.OPTIONAL for option in action.option_strings}


@contextlib.contextmanager
def explain_word(target: Sequence[str], word: str, noun: str) -> Iterator[None]:
    """Adds to the error of an unreachable server which word was taken for a tool; the user may have meant another.

    To that of a tool that is not there it adds the command that lists those that are.

    Args:
        target: the words that begin with the server; there is no doubt about one that is a URL or a file.
        noun: what the word was taken for.
    """
    from deltamcp.client.lists import UnknownToolError  # imported late, so that other verbs start faster

    try:
        yield
    except UnauthorizedError:
        raise
    except UnknownToolError as error:
        if error.reason or error.similar:
            raise
        said = f"{str(error).rstrip('.')}; {list_command('list', target)} names them."
        raise UnknownToolError(error.tool, said).with_traceback(error.__traceback__) from None
    except UnreachableError as error:
        if is_whole_target(target[0]):
            raise
        said = f"{error} ({word!r} was taken for the {noun}, what is before it for the server.)"
        raise UnreachableError(said).with_traceback(error.__traceback__) from None


def make_client(args: argparse.Namespace, target: list[str], **verb_options: "Unpack[ClientOptions]") -> "DeltaClient":
    """Makes a client from the options of a command line and those of the verb.

    Raises:
        ConfigurationError: there is no such target.
    """
    keep_grpc_off_stderr()
    args.login_target = target  # where `login.offer` logs in, if the server wants that: an entry has headers, too
    from deltamcp.client.client import DeltaClient
    from deltamcp.client.oauth.oauth import OAuth
    from deltamcp.client.options import COMMAND_LINE

    options: ClientOptions = {
        "info": {"name": COMMAND_LINE, "version": VERSION},
        "speak": args.speak,
        "encoding": args.encoding,
        "headers": dict(map(parse_header, args.header)),
        "listen": False,
        "quiet": True,
    }
    endpoint = _find_by_name(target) or target
    if args.debug:
        options["on_stderr"] = lambda line: print_notice(f"stderr: {line}")
    elif _is_gateway(endpoint):
        waiting = args.waiting = getattr(args, "waiting", {})  # a verb may connect twice
        options["on_stderr"] = lambda line: waiting.update(dict.fromkeys(_WAITING.findall(line)))
    if args.max_bytes is not None:
        options["max_bytes"] = args.max_bytes
    options.update(verb_options)
    if "auth" not in options:
        token = args.token or os.environ.get("DELTA_MCP_TOKEN")
        if token:
            options["token"] = token
        elif not _is_grpc(target):
            options["auth"] = OAuth(asks_user=False)
    if args.timeout is not None:
        options["timeout"] = options["start_timeout"] = args.timeout
    return DeltaClient(endpoint, **options)


def _is_gateway(target: dict[str, JSON] | list[str]) -> bool:
    """Whether a target is a command that starts a gateway of this library, the log of which is for this user."""
    program = parse_target(target)
    return isinstance(program, Program) and starts_gateway({"command": program.command[0], "args": program.command[1:]})


def _is_grpc(target: Sequence[str]) -> bool:
    """Whether the target is reached over gRPC, by which nobody finds where to log in; --token is for those."""
    return isinstance(parse_target(_find_by_name(target) or list(target)), GrpcAddress)


def check_remote(target: list[str], purpose: str) -> None:
    """
    Raises:
        ConfigurationError: the target is a program, which ends with this command.
    """
    if isinstance(parse_target(_find_by_name(target) or target), Program):
        raise ConfigurationError(f"{purpose} needs a server that outlives this command; name one by its address.")


def find_url(target: list[str]) -> str:
    """Returns the address of a target, as logins are stored under it.

    Raises:
        ConfigurationError: there is no such target, or it is a program.
    """
    from deltamcp.client.oauth.server_access import server_key  # imported late, so that other verbs start faster

    endpoint = parse_target(_find_by_name(target) or target)
    if not isinstance(endpoint, Address):
        raise ConfigurationError("Only a server at a URL has logins; name its URL, or an entry of a file that has one.")
    return server_key(endpoint.url)


def _find_by_name(target: Sequence[str]) -> dict[str, JSON] | None:
    """Returns the entry of the server that hosts' files list by this name; None if a program or no server has it.

    Raises:
        ConfigurationError: nothing is named, several files list different servers by this name, or only a file that is
            not trusted does.
    """
    if not target:
        raise ConfigurationError(
            "Name a server: a URL, a Python file, a command line, or FILE#NAME for one of an mcpServers file."
        )
    name = target[0]
    if len(target) > 1 or not _SERVER_NAME.fullmatch(name) or shutil.which(name) or is_python_file(name):
        return None
    listed = files.find_servers(Path.home(), Path.cwd(), sys.platform, os.environ)
    matching = [server for server in listed if server.name == name]
    startable = [server for server in matching if server.skip_reason in (None, DISABLED)]
    if not matching:
        _check_spelling(name, [server.name for server in listed if server.name])
        return None
    if not startable:
        path, reason = matching[0].path, matching[0].skip_reason
        if reason == UNTRUSTED:
            raise ConfigurationError(f"{name} is in {path} of this folder; where you trust that, say {path}#{name}.")
        raise ConfigurationError(f"{name} in {path} cannot be started: {reason}.")
    if any(server.entry != startable[0].entry for server in startable):
        places = " or ".join(dict.fromkeys(f"{server.path}#{name}" for server in startable))
        raise ConfigurationError(f"Several servers are called {name}; say {places}.")
    return startable[0].entry


def _check_spelling(name: str, servers: Sequence[str]) -> None:
    """
    Raises:
        ConfigurationError: a word that names nothing here is similar to the name of a server, or to that of a file.
    """
    if Path(name).suffix:
        return  # a file, of which others tell
    known = dict.fromkeys([*servers, *servable_files()])
    if similar_names(name, known):
        raise ConfigurationError(f"Nothing here is called {name!r}{suggest(name, known)}")


def servable_files() -> list[str]:
    """Returns the names of the files of this folder that may be servers, or may list some."""
    return sorted(path.name for path in Path().iterdir() if path.suffix in (".py", ".json", ".jsonc", ".toml"))


def _is_address(target: Sequence[str]) -> bool:
    return "://" in target[0]


def find_servers(target: str) -> list[ConfiguredServer]:
    """Returns the servers of a file of `mcpServers`; the one server of `FILE#NAME`, of a Python or an operations file;
    the API of an OpenAPI document, also at an address.

    Raises:
        ConfigurationError: there is no such file or server.
    """
    if is_api_document(target):
        from deltamcp.gateway.api_server import make_entry, name_api

        entry = make_entry({"openapi": target}, files.VariableExpander(Machine.detect(), Path.cwd()), Path.cwd())
        return [ConfiguredServer(name_api(entry), "file", Path(target), entry)]
    file, mark, name = target.rpartition("#")
    if mark and not Path(target).exists():
        return [files.find_server(Path(file).expanduser(), name)]
    path = Path(target).expanduser()
    if is_python_file(target) or files.is_operations_file(path):
        command, *words = served_command(target)
        return [ConfiguredServer(path.stem, "file", path, {"command": command, "args": words})]
    return files.read_servers(path)


def is_api_document(word: str) -> bool:
    """Whether a word is the file or the address of an OpenAPI document, as far as its name and first members say."""
    suffix = Path(urlsplit(word).path if "://" in word else word).suffix.lower()
    if "://" in word or suffix in (".yaml", ".yml"):
        return suffix in (".json", ".yaml", ".yml")
    path = Path(word).expanduser()
    if suffix != ".json" or not path.is_file():
        return False
    document = files.read_document(path)
    return isinstance(document, dict) and ("openapi" in document or "swagger" in document)


def name_target(target: Sequence[str]) -> str:
    """Returns what a user calls a target: the host of a URL, the name of a file or an entry, or the program."""
    word = target[0] if target else ""
    if "://" in word:
        with contextlib.suppress(ValueError):
            return urlsplit(word).netloc.rpartition("@")[2] or "the server"
        return "the server"
    file, mark, name = word.rpartition("#")
    return name if mark and file else Path(word).name or "the server"


def list_command(verb: str, target: Sequence[str]) -> str:
    """Returns the command that lists what a target has."""
    return f"delta-mcp {verb} {shlex.join(target)}"


def missing_word(words: Sequence[str], verb: str, noun: str, listing_verb: str) -> ConfigurationError:
    """Returns the error of a command line that names no server, or nothing of it.

    Args:
        words: those that are there: none, or a server.
        verb: the command, such as `call`, with the words that it takes.
        noun: what it takes of the server, such as a tool.
        listing_verb: the command that lists those.
    """
    if not words:
        return ConfigurationError(f"Name a server and a {noun}: delta-mcp {verb}.")
    return ConfigurationError(f"Name a {noun} of {words[0]}; {list_command(listing_verb, words)} lists them.")


def parse_header(text: str) -> tuple[str, str]:
    """
    Raises:
        ConfigurationError: this is no `NAME:VALUE`.
    """
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(ord(char) < 32 or ord(char) > 255 for char in text):
        raise ConfigurationError(f"--header takes NAME:VALUE, not {text.partition(':')[0]!r:.40}.")
    return name.strip(), value.strip()
