"""`delta-mcp uninstall` undoes `install`: the host starts its servers itself again."""

import argparse
from pathlib import Path
from typing import NamedTuple

from deltamcp.cli.terminal.file_change import confirm, name_file, print_change
from deltamcp.cli.terminal.output import print_line
from deltamcp.cli.verbs import install
from deltamcp.client.configs.hosts import host_id, installed_folder
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.installation.installation import Installation, Undone, digest_of, undo
from deltamcp.gateway.installation.installation_store import InstallationStore, write_host_file
from deltamcp.gateway.installation.installed_gateway import read_file


class _Reversal(NamedTuple):
    installation: Installation
    content: bytes | None
    undone: Undone


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = (
        "Brings the servers that install moved back to the host's file, as they were written, and takes the gateway's "
        "entry away. What else was changed in the file since stays."
    )
    install.add_options(verb)
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    store = InstallationStore()
    here = Path.cwd()
    installations = store.list_all()
    if args.host is None:
        hosts = dict.fromkeys(host_id(installation.host) for installation, _ in installations)
        raise ConfigurationError(
            f"Name a host: delta-mcp uninstall {' or '.join(hosts) or 'HOST; none has a gateway'}."
        )
    reversals = [
        _plan(installation, original, store)
        for installation, original in installations
        if host_id(installation.host) == args.host and installation.project == (here if args.project else None)
    ]
    if not reversals:
        place = "the files of this folder" if args.project else "your files"
        raise ConfigurationError(f"Nothing was installed into {place} of {args.host}.")
    for reversal in reversals:
        print_change(reversal.installation.path, reversal.content, reversal.undone.content)
        for name in reversal.undone.taken:
            print_line(f"{name} does not come back: the file has another server of this name now.")
    if args.dry_run:
        print_line("Nothing was written.")
    elif confirm("Write this?", args.yes):
        for reversal in reversals:
            _apply(reversal, store)
        print_line(f"Done. Restart {reversals[0].installation.host} now.")
    else:
        print_line("Nothing was written.")


def _plan(installation: Installation, original: bytes, store: InstallationStore) -> _Reversal:
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


def _apply(reversal: _Reversal, store: InstallationStore) -> None:
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
