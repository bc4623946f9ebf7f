"""`delta-mcp add` puts one more server behind the gateway, in its file, and `delta-mcp remove` takes one away."""

import argparse
import shlex
import shutil
from pathlib import Path
from typing import Any

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal import targets
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.cli.terminal.file_change import add_change_options, agrees_to_write, file_faults, name_file, print_change
from deltamcp.cli.terminal.output import print_line, suggest
from deltamcp.client.target import is_python_file
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.config import GatewayFile, UpstreamConfig, entry_fault, entry_line, read_gateway_file
from deltamcp.gateway.trust.review import approve_command
from deltamcp.hosts import files
from deltamcp.hosts.files import is_reference
from deltamcp.hosts.gateway_file import servers_key, switch_off_server
from deltamcp.hosts.host_entry import find_program
from deltamcp.hosts.hosts import Machine, belongs_to_project, installed_folder
from deltamcp.hosts.installation import decode, editor_for, members_at, put_member, remove_member, write_host_file
from deltamcp.runtime.files import user_folder
from deltamcp.runtime.secrets import is_secret_name

_DOCUMENT_SUFFIXES = (".json", ".yaml", ".yml")


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.usage = "delta-mcp add NAME [OPTIONS] -- COMMAND... | URL | FILE"
    verb.description = (
        "Writes a server into the gateway's file, which a gateway that runs follows. Shows the change and asks first; "
        "remove undoes it."
    )
    add_repeatable(verb, "--env", "NAME[=VALUE]", "a variable of the command; without VALUE, as the gateway has it")
    add_repeatable(verb, "--header", "NAME:VALUE", "for every request to the URL")
    verb.add_argument("--cwd", metavar="FOLDER", help="where the command is started")
    _add_options(verb)
    targets.add_words_argument(
        verb,
        "NAME",
        "what the model knows the server by; then its command, its URL, a file that serve takes or an OpenAPI document",
    )
    verb.set_defaults(run=lambda args: run(args, verb))


def set_up_remove(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Takes a server out of the gateway's file, which a gateway that runs follows; one that an included file has is "
        "switched off, and stays there. Shows the change and asks first."
    )
    verb.add_argument("name", metavar="NAME", help="a server behind the gateway")
    _add_options(verb)
    verb.set_defaults(run=run_remove)


def _add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--config", type=Path, metavar="FILE", help="the gateway's file (default: what delta-mcp gateway takes)"
    )
    add_change_options(verb)


def run(args: argparse.Namespace, verb: argparse.ArgumentParser) -> None:
    names, words = targets.read_named_words(args, verb)
    if len(names) != 1 or not words:
        raise ConfigurationError("Name the server, and then say what it is: delta-mcp add NAME -- COMMAND, or a URL.")
    (name,) = names
    if not name.strip() or visible_line(name) != name:
        raise ConfigurationError("The name of a server has characters that can be seen, on one line.")
    entry = _make_entry(words, args)
    if fault := entry_fault(UpstreamConfig(name=name, entry=entry)):
        raise ConfigurationError(f"{fault}.")
    path = _find_file(args.config)
    if "openapi" in entry and path.suffix != ".toml":
        raise ConfigurationError(f"An HTTP API stands in a gateway.toml of delta-mcp, not in {path}.")
    before = _read(path)
    if before is not None:
        _check_name(name, read_gateway_file(path))
    with file_faults(path):
        content = before or b""
        after = put_member(path, content, [servers_key(path, content)], name, {**entry})
    _print_hints(entry)
    if _write(path, before, after, args):
        if belongs_to_project(path, Machine.detect()):
            print_line(f"It is in a project's file, so that it waits until you approve it: {approve_command(name)}")
        else:
            print_line("A gateway that runs starts it within seconds.")
        print_line(f"Try it: delta-mcp list {shlex.quote(f'{path}#{name}')}")


def run_remove(args: argparse.Namespace) -> None:
    path = _find_file(args.config)
    before = _read(path)
    if before is None:
        raise ConfigurationError(f"There is no file {path}.")
    found = read_gateway_file(path)
    keys = [servers_key(path, before)]
    own = members_at(editor_for(path).parse(decode(before)), keys)
    included = [one for file in found.paths[1:] for one in files.read_servers(file, at_least=0)]
    elsewhere = next((one for one in included if one.name == args.name), None)
    names = [*(one.name for one in found.config.upstreams), *(one.name for one in found.skipped)]
    if args.name not in names:
        hint = suggest(args.name, names, otherwise=f"it has {', '.join(names) or 'none'}")
        raise ConfigurationError(f"There is no server {args.name!r} in {path}{hint}")
    if elsewhere is not None:
        is_off = members_at(own, [args.name]).get("enabled") is False
        if is_off or (elsewhere.skip_reason or "").startswith(files.DISABLED):
            raise ConfigurationError(f"{args.name} is switched off already, in {path if is_off else elsewhere.path}.")
        with file_faults(path):
            after = switch_off_server(before, args.name)
        print_line(f"{args.name} is in {elsewhere.path}, and stays there, switched off for this gateway.")
    elif args.name in own:
        with file_faults(path):
            after = remove_member(path, before, keys, args.name)
    else:
        raise ConfigurationError(f"{args.name} is there because two files have a server of one name; rename it there.")
    if _write(path, before, after, args):
        print_line("A gateway that runs lets its calls end, and stops it.")


def _make_entry(words: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Returns the entry of a server, as files have it.

    Raises:
        ConfigurationError: options and words do not go together.
    """
    path = Path(words[0]).expanduser()
    headers = dict(map(targets.parse_header, args.header))
    with_headers = {"headers": headers} if headers else {}
    if len(words) == 1 and "://" in words[0]:
        if args.env or args.cwd:
            raise ConfigurationError("--env and --cwd are for a command; a URL takes --header NAME:VALUE.")
        return {"url": words[0], **with_headers}
    is_document = len(words) == 1 and path.suffix in _DOCUMENT_SUFFIXES and path.is_file()
    if is_document and not (path.suffix == ".json" and files.is_operations_file(path)):
        return {"openapi": str(path.resolve()), **with_headers}
    if args.header:
        raise ConfigurationError("--header is for a URL; a command takes --env NAME=VALUE.")
    if is_document or (len(words) == 1 and is_python_file(words[0])):
        words = [*find_program(), "serve", str(path.resolve())]
    entry: dict[str, Any] = {"command": words[0], "args": words[1:]}
    env = dict(map(_parse_variable, args.env))
    folder = args.cwd or ("." if any(map(_is_here, words)) else None)
    return {
        **{key: value for key, value in entry.items() if value},
        **({"env": env} if env else {}),
        **({"cwd": str(Path(folder).expanduser().resolve())} if folder else {}),
    }


def _parse_variable(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not name.strip() or any(ord(char) < 32 for char in text):
        raise ConfigurationError(f"--env takes NAME=VALUE or NAME, not {name!r:.40}.")
    return name.strip(), value if is_given else f"${{{name.strip()}}}"


def _is_here(word: str) -> bool:
    """Whether a word is a path from this folder, where the command has to be started then."""
    path = Path(word)
    return not path.is_absolute() and (word.startswith(".") or "/" in word or bool(path.suffix)) and path.exists()


def _print_hints(entry: dict[str, Any]) -> None:
    for name, text in {**entry.get("env", {}), **entry.get("headers", {})}.items():
        if is_secret_name(name) and not is_reference(text):
            print_line(
                f"The file has {name} as it is; with delta-mcp secret set {shlex.quote(name)}, and "
                f"${{keyring:{name}}} in its place, only your keyring has it."
            )
    command = entry.get("command", "")
    if command and shutil.which(command) is None and not Path(entry.get("cwd", ""), command).is_file():
        print_line(f"There is no program {command!r} here: is it spelled right?")


def _find_file(given: Path | None) -> Path:
    """Returns the file that a gateway takes by default, or that which is to be its first.

    Raises:
        ConfigurationError: there are several; the text says what to do.
    """
    if given is not None:
        return given.expanduser()
    own = user_folder("config") / "gateway.toml"
    installed = [] if own.is_file() else sorted(installed_folder().glob("*.toml"))
    if len(installed) > 1:
        raise ConfigurationError(f"Say which gateway is meant: --config {' or --config '.join(map(str, installed))}.")
    return installed[0] if installed else own


def _read(path: Path) -> bytes | None:
    """Returns the content of a file; None if there is none.

    Raises:
        ConfigurationError: it cannot be read.
    """
    with file_faults(path):
        return path.read_bytes() if path.exists() else None


def _check_name(name: str, found: GatewayFile) -> None:
    """
    Raises:
        ConfigurationError: there is a server of this name.
    """
    if name in {*(one.name for one in found.config.upstreams), *(one.name for one in found.skipped)}:
        path = next((path for path in found.paths if entry_line(path, name) > 1), found.paths[0])
        raise ConfigurationError(
            f"There is a server {name!r} already, in {path}; take another name, or "
            f"delta-mcp remove {shlex.quote(name)} first."
        )


def _write(path: Path, before: bytes | None, after: bytes, args: argparse.Namespace) -> bool:
    """Shows the change, asks, and writes it; returns whether it was written."""
    print_change(path, before, after)
    if not agrees_to_write(args):
        return False
    write_host_file(path, after, expected=before)
    print_line(f"Written: {name_file(path)}")
    return True
