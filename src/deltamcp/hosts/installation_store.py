"""Keeps what `install` has changed, with the files as they were before, and writes hosts' files."""

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec

from deltamcp.errors import ConfigurationError
from deltamcp.hosts.files import MAX_FILE_BYTES
from deltamcp.hosts.hosts import host_id
from deltamcp.hosts.installation import Installation
from deltamcp.runtime.own_files import read_own_file, replace_own_file, user_folder


class InstallationStore:
    """The installations of this user, a record and a backup for each file of a host."""

    def __init__(self) -> None:
        """
        Raises:
            ConfigurationError: the user has no home.
        """
        self._folder = user_folder("state") / "install"

    def load(self, host: str, path: Path) -> tuple[Installation, bytes] | None:
        """Returns the installation in a file of a host, and the file as it was before; None if there is none.

        Raises:
            ConfigurationError: the record cannot be read; the text says what to do.
        """
        return self._read(self._record_path(host, path))

    def list_all(self) -> list[tuple[Installation, bytes]]:
        """
        Raises:
            ConfigurationError: as in `load`.
        """
        found = [self._read(path) for path in sorted(self._folder.glob("*.json"))]
        return [one for one in found if one is not None]

    def save(self, installation: Installation, original: bytes) -> None:
        """
        Raises:
            OSError: the folder cannot be written to.
        """
        path = self._record_path(installation.host, installation.path)
        replace_own_file(path.with_suffix(".backup"), original)
        replace_own_file(path, msgspec.json.encode(installation, enc_hook=str))

    def delete(self, installation: Installation) -> None:
        path = self._record_path(installation.host, installation.path)
        path.unlink(missing_ok=True)
        path.with_suffix(".backup").unlink(missing_ok=True)

    def backup_path(self, installation: Installation) -> Path:
        return self._record_path(installation.host, installation.path).with_suffix(".backup")

    def _record_path(self, host: str, path: Path) -> Path:
        place = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:12]
        return self._folder / f"{host_id(host)}-{place}.json"

    def _read(self, path: Path) -> tuple[Installation, bytes] | None:
        record = read_own_file(path, MAX_FILE_BYTES)
        original = read_own_file(path.with_suffix(".backup"), MAX_FILE_BYTES)
        if record is None:
            return None
        try:
            installation = msgspec.json.decode(record, type=Installation, dec_hook=lambda kind, text: kind(text))
        except (msgspec.DecodeError, TypeError) as error:
            raise ConfigurationError(f"{path} cannot be read ({error}); move it away to go on without it.") from None
        if original is None:
            raise ConfigurationError(f"{path.with_suffix('.backup')} is missing; move {path} away to go on without it.")
        return installation, original


def write_host_file(path: Path, content: bytes, expected: bytes | None) -> None:
    """Replaces a host's file at once; keeps its mode, its owner, and the links to it.

    Args:
        expected: what the file must still contain; None if it must not be there.

    Raises:
        ConfigurationError: another program changed the file meanwhile, or it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        present = target.read_bytes() if target.exists() else None
        if present != expected:
            raise ConfigurationError(f"{path} was changed meanwhile; nothing was written. Run the command again.")
        if present is not None and not os.access(target, os.W_OK):
            raise ConfigurationError(f"{path} may not be written; nothing was changed.")
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if present is not None:
                _copy_owner(target, Path(name))
                shutil.copymode(target, name)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None


def _copy_owner(source: Path, target: Path) -> None:
    if os.name == "posix":
        with suppress(PermissionError):  # only root may give files away
            status = source.stat()
            os.chown(target, status.st_uid, status.st_gid)
