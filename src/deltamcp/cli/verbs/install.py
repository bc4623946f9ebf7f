"""`delta-mcp install` has a host start the gateway, behind which its servers run; `delta-mcp uninstall` undoes it."""

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deltamcp.cli.serving.server_target import FILE_SUFFIXES, check_target, split_target
from deltamcp.cli.terminal.command_parser import add_repeatable
from deltamcp.cli.terminal.elicitation import agrees
from deltamcp.cli.terminal.file_change import add_change_options, agrees_to_write, file_faults, name_file, print_change
from deltamcp.cli.terminal.output import print_line, suggest
from deltamcp.errors import ConfigurationError
from deltamcp.hosts.gateway_file import gateway_path, read_file, servers_path
from deltamcp.hosts.host_entry import find_program_for
from deltamcp.hosts.hosts import HOST_FILES, HostFile, Machine, host_id, installed_folder, is_project_file
from deltamcp.hosts.install_plan import InstallPlan, InstallPlanner, ServerChoice, host_files
from deltamcp.hosts.installation import (
    Installation,
    InstallationStore,
    InstalledServer,
    InstalledServerStore,
    MovedServers,
    Undone,
    choose_host_file,
    digest_of,
    find_keys,
    make_own_entry,
    name_server,
    remove_member,
    undo,
    write_entry,
    write_host_file,
)
from deltamcp.hosts.movable_servers import PermissionRule
from deltamcp.runtime.files import replace_own_file

HOST_IDS = tuple(dict.fromkeys(host_id(host_file.host) for host_file in HOST_FILES))


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Moves the servers of a host's file behind the gateway, which the host starts from then on. Shows the change "
        "and asks first; uninstall undoes it. Say it again to take in servers that were added since. With FILE it adds "
        "an entry for that server alone, beside the gateway's."
    )
    add_options(verb, "FILE", "a server of your own: FILE.py, FILE.py:NAME or an operations.json")
    verb.add_argument("--name", help="with FILE: what the host calls it (that of the file)")
    add_repeatable(
        verb,
        "--env",
        "NAME[=VALUE]",
        "with FILE: a variable that the server gets, with the value that it has here unless given",
    )
    add_repeatable(verb, "--only", "NAME", "a server to move")
    verb.add_argument("--except", action="append", default=[], dest="without", metavar="NAME", help="one that stays")
    verb.add_argument(
        "--process-per-conversation",
        action="store_true",
        help="each conversation of the host, and each subagent, starts a gateway of its own: let it say unasked what "
        "changed",
    )
    verb.set_defaults(run=run)


def add_options(verb: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Adds what `install` and `uninstall` have in common.

    Args:
        metavar, help_text: of the word that names one server of the user's own.
    """
    verb.add_argument("host", nargs="?", choices=HOST_IDS, metavar="HOST", help=", ".join(HOST_IDS))
    verb.add_argument("file", nargs="?", metavar=metavar, help=help_text)
    verb.add_argument(
        "--project", action="store_true", help="in the file of this folder's project, instead of your own file"
    )
    add_change_options(verb)


def run(args: argparse.Namespace) -> None:
    machine, store = Machine.detect(), InstallationStore()
    if args.host is None:
        raise ConfigurationError(_which_host(machine, args.project))
    if args.file is not None:
        _install_own(args, machine)
        return
    if args.name or args.env:
        raise ConfigurationError(
            f"--name and --env are for one server of your own; name its file: delta-mcp install {args.host} FILE.py"
        )
    found = list(host_files(args.host, machine, args.project))
    if not found:
        raise ConfigurationError(_no_file(args.host, machine, args.project))
    choice = ServerChoice(args.only, args.without, args.process_per_conversation)
    plans = [_plan(host_file, path, machine, choice, store) for host_file, path in found]
    _check_names([*args.only, *args.without], plans)
    movable = [plan for plan in plans if plan.installation.moved or plan.is_change]
    if not movable:
        for plan in plans:
            _print_staying(plan)
        raise ConfigurationError(_nothing_to_move(args, machine))
    for plan in movable:
        _print_plan(plan)
    changed = [plan for plan in movable if plan.is_change]
    if not changed:
        print_line("Nothing to change: all servers that can move are behind the gateway.")
        return
    if agrees_to_write(args):
        for plan in changed:
            _apply(plan, store)
        _print_end(args, changed)
        _offer_check(args, changed)


def _offer_check(args: argparse.Namespace, plans: Sequence[InstallPlan]) -> None:
    """Starts every server behind the new gateways once, if the user at the terminal wants that."""
    paths = [gateway_path(moved.stem) for plan in plans for moved in plan.installation.moved]
    if args.yes or not paths or not agrees("Start every server behind the gateway once, to see which work?"):
        for path in paths:
            print_line(f"See which servers work: delta-mcp gateway --check {shlex.quote(str(path))}")
        return
    from deltamcp.cli.serving.gateway_check import check  # imported late, as most do not need it
    from deltamcp.gateway.config import read_gateway_file

    checked = {path: check(read_gateway_file(path)) for path in paths}
    for path, works in checked.items():
        if not works:
            print_line(f"Repair or remove those that failed, in {path.with_suffix('.json')}")


def _which_host(machine: Machine, is_project: bool) -> str:
    found = [host for host in HOST_IDS if any(host_files(host, machine, is_project))]
    if not found:
        return "No host has a file of servers here; delta-mcp install --help lists the hosts that are known."
    return f"Name a host: delta-mcp install {' or '.join(found)}."


def _no_file(host: str, machine: Machine, is_project: bool) -> str:
    """Says which file was looked for, and what can be done without it."""
    of_host = [file for file in HOST_FILES if host_id(file.host) == host and file.system in ("", machine.system)]
    looked = [machine.path_of(file) for file in of_host if is_project_file(file) == is_project]
    name = of_host[0].host
    if not looked:
        return f"{name} has no file for {'a project' if is_project else 'all projects'}; {_other_place(is_project)}."
    if any(host_files(host, machine, not is_project)):
        return f"{name} has no file {looked[0]}; {_other_place(is_project)}, for which there is one."
    return f"{name} has no file {looked[0]}; add a server in {name} first, which makes it."


def _other_place(is_project: bool) -> str:
    return "leave out --project" if is_project else "say --project for the file of this folder's project"


def _plan(
    host_file: HostFile, path: Path, machine: Machine, choice: ServerChoice, store: InstallationStore
) -> InstallPlan:
    with file_faults(path):
        content = path.read_bytes()
        choice = choice._replace(own=InstalledServerStore().names_in(path))
        return InstallPlanner(host_file, path, machine, choice).plan(content, store.load(host_file.host, path))


def _check_names(names: Iterable[str], plans: Iterable[InstallPlan]) -> None:
    known = {name for plan in plans for moved in plan.installation.moved for name in moved.names}
    known |= {server.name for plan in plans for server in plan.staying}
    for name in names:
        if name not in known:
            hint = suggest(name, known, otherwise=f"there are {', '.join(sorted(known)) or 'none'}")
            raise ConfigurationError(f"There is no server {name!r}{hint}")


def _nothing_to_move(args: argparse.Namespace, machine: Machine) -> str:
    host = next(host_file.host for host_file in HOST_FILES if host_id(host_file.host) == args.host)
    if args.project:
        return f"{host} has no servers that can move in the files of this folder."
    has_project_files = any(host_files(args.host, machine, is_project=True))
    hint = " This folder's project has a file of its own: say --project for that." if has_project_files else ""
    return f"{host} has no servers that can move.{hint}"


def _apply(plan: InstallPlan, store: InstallationStore) -> None:
    """Writes everything, the host's file last, so that what it names is there."""
    installation = plan.installation
    earlier = store.load(installation.host, installation.path)
    try:
        store.save(installation, plan.original)
        for path, content in plan.files.items():
            replace_own_file(path, content)
        if plan.after != plan.before:
            write_host_file(installation.path, plan.after, expected=plan.before)
    except OSError as error:
        _withdraw(plan, earlier, store)
        raise ConfigurationError(
            f"{error.filename} cannot be written: {error.strerror}; nothing was changed."
        ) from None
    except ConfigurationError:
        _withdraw(plan, earlier, store)
        raise
    for path in plan.obsolete:
        path.unlink(missing_ok=True)
    if not installation.moved:
        store.delete(installation)


def _withdraw(plan: InstallPlan, earlier: tuple[Installation, bytes] | None, store: InstallationStore) -> None:
    """Takes back what was written for a change that the host's file did not get."""
    if earlier is None:
        for path in plan.files:
            path.unlink(missing_ok=True)
        store.delete(plan.installation)
    else:
        store.save(*earlier)


def _print_plan(plan: InstallPlan) -> None:
    if plan.after != plan.before:
        print_change(plan.installation.path, plan.before, plan.after)
    for moved in plan.installation.moved:
        print_line(f"Behind the gateway: {', '.join(moved.names)}; moved to {servers_path(moved.stem)}")
    for name, reason in plan.broken.items():
        print_line(f"{name} is broken: {reason}.")
    _print_staying(plan)
    for moved in plan.installation.moved:
        _print_rules([rule for rule in plan.rules if rule.server in moved.names], moved)
    for name, keys in plan.approvals.items():
        print_line(
            f"{name}: {' and '.join(keys)} of its entry no longer applies; the host asks about the gateway's tools."
        )
    for name in plan.logins:
        moved = next(moved for moved in plan.installation.moved if name in moved.names)
        target = shlex.quote(f"{servers_path(moved.stem)}#{name}")
        print_line(f"{name}: if your host had logged in to it, log the gateway in: delta-mcp login {target}")


def _print_staying(plan: InstallPlan) -> None:
    for server in plan.staying:
        print_line(f"Stays where it is: {server.name}, because {server.reason}.")


def _print_rules(rules: list[PermissionRule], moved: MovedServers) -> None:
    if not rules:
        return
    tools = f"mcp__{moved.entry}__"
    file = gateway_path(moved.stem)
    means = {
        "deny": "the gateway denies it from now on",
        "ask": f'do not allow {tools}execute, or write confirm = "always" to [servers.{{server}}] of {file}',
        "allow": f"allow {tools}query for everything that is read-only, {tools}execute for everything else",
        "hook": f"let it match {tools}execute and {tools}query, whose argument says which operation is called",
        "list": f"name {moved.entry} there",
    }
    print_line("Rules about tools that are behind the gateway now, so that the host no longer applies them:")
    for rule in rules:
        print_line(f"  {rule.effect} {rule.text} ({rule.path}): {means[rule.effect].format(server=rule.server)}")


def _print_end(args: argparse.Namespace, plans: Sequence[InstallPlan]) -> None:
    host = plans[0].installation.host
    for plan in plans:
        if plan.after != plan.before:
            print_line(f"Written: {name_file(plan.installation.path)}")
    print_line(f"Done. Restart {host} now: it may not read its file again before, or write over it.")
    for plan in plans:
        for moved in plan.installation.moved:
            print_line(f"Try it: delta-mcp list {shlex.quote(f'{plan.installation.path}#{moved.entry}')}")
    print_line(f"Undo it: delta-mcp uninstall {args.host}{' --project' if args.project else ''}")
    if args.project:
        print_line("The project's file now names paths of this machine: do not commit it for others.")


# One server of the user's own


def _install_own(args: argparse.Namespace, machine: Machine) -> None:
    if args.only or args.without or args.process_per_conversation:
        raise ConfigurationError("--only, --except and --process-per-conversation are for the gateway; leave out FILE.")
    text, name = split_target(args.file)
    file = Path(text).expanduser()
    if file.suffix not in FILE_SUFFIXES:
        raise ConfigurationError(f"{args.file} is neither a Python file (.py) nor an operations file (.json).")
    check_target(str(file))
    host_file, path = choose_host_file(args.host, machine, args.project)
    target = f"{file.resolve()}{':' * bool(name)}{name}"
    entry = make_own_entry(
        host_file.host, [*find_program_for(file), "serve", target], _read_variables(args.env, machine.environment)
    )
    store = InstalledServerStore()
    with file_faults(path):
        before = path.read_bytes() if path.exists() else None
        server = InstalledServer(
            host=host_file.host,
            path=path,
            keys=find_keys(host_file, path, before),
            name=args.name or name_server(file),
            file=file.resolve(),
            project=machine.cwd if args.project else None,
        )
        after = write_entry(server, entry, before, is_known=server.name in store.names_in(path))
    if after == before:
        print_line(f"Nothing to change: {host_file.host} has {server.name} as it is.")
        return
    print_change(path, before, after)
    if not agrees_to_write(args):
        return
    try:
        store.save(server)
        write_host_file(path, after, expected=before)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename} cannot be written: {error.strerror}; nothing was changed."
        ) from None
    print_line(f"Written: {name_file(path)}")
    print_line(f"Done. Restart {host_file.host} now: it may not read its file again before, or write over it.")
    print_line(f"Try it: delta-mcp list {shlex.quote(f'{path}#{server.name}')}")
    project = " --project" * args.project
    print_line(f"Undo it: delta-mcp uninstall {args.host} {shlex.quote(server.name)}{project}")


def _read_variables(texts: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """
    Raises:
        ConfigurationError: one of them is no variable, or has no value.
    """
    variables = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not name or not (is_given or name in environment):
            raise ConfigurationError(f"--env {name} has no value here; say --env {name or 'NAME'}=VALUE.")
        variables[name] = value if is_given else environment[name]
    return variables


def _uninstall_own(args: argparse.Namespace, own: Sequence[InstalledServer]) -> None:
    named = [one for one in own if args.file == one.name] or [
        one for one in own if Path(split_target(args.file)[0]).expanduser().resolve() == one.file
    ]
    if not named:
        names = [one.name for one in own]
        otherwise = f"install put {', '.join(names)} there" if names else "install put none there"
        raise ConfigurationError(
            f"{args.host} has no server {args.file!r} of your own{suggest(args.file, names, '', otherwise)}"
        )
    for server in named:
        with file_faults(server.path):
            before = server.path.read_bytes() if server.path.exists() else b""
            after = remove_member(server.path, before, server.keys, server.name) if before else b""
        if after == before:
            print_line(f"{server.path} no longer has {server.name}.")
            InstalledServerStore().delete(server)
            continue
        print_change(server.path, before, after)
        if not agrees_to_write(args):
            continue
        write_host_file(server.path, after, expected=before)
        InstalledServerStore().delete(server)
        print_line(f"Written: {name_file(server.path)}")
        print_line(f"Done. Restart {server.host} now.")


class _Reversal(NamedTuple):
    installation: Installation
    content: bytes | None
    undone: Undone


def set_up_uninstall(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Brings the servers that install moved back to the host's file, as they were written, and takes the gateway's "
        "entry away. What else was changed in the file since stays."
    )
    add_options(verb, "FILE|NAME", "one server of your own, whose entry goes; the gateway stays")
    verb.set_defaults(run=run_uninstall)


def run_uninstall(args: argparse.Namespace) -> None:
    store = InstallationStore()
    here = Path.cwd()
    installations = store.list_all()
    own = [one for one in InstalledServerStore().list_all() if one.project == (here if args.project else None)]
    if args.host is None:
        with_gateway = [installation.host for installation, _ in installations]
        hosts = dict.fromkeys(map(host_id, (*with_gateway, *(one.host for one in own))))
        if not hosts:
            raise ConfigurationError("No host has a gateway here; delta-mcp install HOST puts one into its file.")
        raise ConfigurationError(f"Name a host: delta-mcp uninstall {' or '.join(hosts)}.")
    own = [one for one in own if host_id(one.host) == args.host]
    if args.file is not None:
        _uninstall_own(args, own)
        return
    reversals = [
        _plan_reversal(installation, original, store)
        for installation, original in installations
        if host_id(installation.host) == args.host and installation.project == (here if args.project else None)
    ]
    if not reversals:
        place = "the files of this folder" if args.project else "your files"
        if own:
            names = " or ".join(shlex.quote(one.name) for one in own)
            raise ConfigurationError(
                f"{args.host} has no gateway there, but servers of your own: "
                f"delta-mcp uninstall {args.host} {names}{' --project' * args.project}"
            )
        command = f"delta-mcp install {args.host}{' --project' if args.project else ''}"
        raise ConfigurationError(f"Nothing was installed into {place} of {args.host}; {command} does that.")
    for reversal in reversals:
        print_change(reversal.installation.path, reversal.content, reversal.undone.content)
        for name in reversal.undone.taken:
            print_line(f"{name} does not come back: the file has another server of this name now.")
    if agrees_to_write(args):
        for reversal in reversals:
            _apply_reversal(reversal, store)
        print_line(f"Done. Restart {reversals[0].installation.host} now.")


def _plan_reversal(installation: Installation, original: bytes, store: InstallationStore) -> _Reversal:
    try:
        content = installation.path.read_bytes() if installation.path.exists() else None
        return _Reversal(installation, content, undo(installation, content, original))
    except OSError as error:
        raise ConfigurationError(f"{installation.path} cannot be read: {error.strerror}.") from None
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{installation.path} cannot be changed: {str(error).rstrip('.')}. "
            f"The file as it was before install is {store.backup_path(installation)}."
        ) from None


def _apply_reversal(reversal: _Reversal, store: InstallationStore) -> None:
    """Writes the host's file first: what it needs is kept until that has succeeded."""
    installation = reversal.installation
    if reversal.undone.content != reversal.content:
        write_host_file(installation.path, reversal.undone.content, expected=reversal.content)
        print_line(f"Written: {name_file(installation.path)}")
    for name, digest in installation.files.items():
        path = installed_folder() / name
        content = read_file(path)
        if content is not None and digest_of(content) != digest:
            print_line(f"{path} was changed by hand and stays; remove it when you no longer need it.")
        else:
            path.unlink(missing_ok=True)
    store.delete(installation)
