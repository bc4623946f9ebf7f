"""Where the client keeps its logins: in memory, in the user's keyring, or in files that only their owner reads."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from deltamcp.errors import ConfigurationError
from deltamcp.runtime.own_files import open_lock_file, read_own_file, replace_own_file, try_lock, user_folder
from deltamcp.runtime.secrets import ask_keyring

_IN_KEYRING = b"keyring"
"""What the file of a server contains whose record is in the keyring; so only its users wait for the keyring."""
_LOCK_ATTEMPTS, _LOCK_WAIT_SECONDS = 1200, 0.05
_SERVICE = "delta-mcp"
_MAX_RECORD_BYTES = 1024 * 1024


class TokenStorage(Protocol):
    """Keeps one record for each MCP server. Several programs may use it at the same time."""

    async def load(self, server: str) -> bytes | None:
        """Returns the record of a server, which is named by its URL; None if there is none."""
        ...

    async def save(self, server: str, record: bytes) -> None: ...

    async def delete(self, server: str) -> None: ...

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        """Keeps other programs from changing a server's record: a refresh token can be used only once."""
        ...


class MemoryStorage:
    """Keeps logins as long as this object exists."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        return self._records.get(server)

    async def save(self, server: str, record: bytes) -> None:
        self._records[server] = record

    async def delete(self, server: str) -> None:
        self._records.pop(server, None)

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(server, asyncio.Lock())


class UserStorage:
    """Keeps logins for the user who runs the program: in the keyring if there is one, else in files."""

    def __init__(self, folder: Path | None = None, *, uses_keyring: bool = True) -> None:
        """
        Args:
            folder: where the files are; by default in the user's folder for the state of programs.
            uses_keyring: False to keep all in the files.
        """
        self._given_folder = folder
        self._uses_keyring = uses_keyring

    @property
    def _folder(self) -> Path:
        return self._given_folder or user_folder("state") / "logins"

    async def load(self, server: str) -> bytes | None:
        return await asyncio.to_thread(self._load, server)

    async def save(self, server: str, record: bytes) -> None:
        """
        Raises:
            ConfigurationError: the folder cannot be written to, or the user has none.
        """
        await asyncio.to_thread(self._save, server, record)

    async def delete(self, server: str) -> None:
        await asyncio.to_thread(self._delete, server)

    @contextlib.asynccontextmanager
    async def lock(self, server: str) -> AsyncIterator[None]:
        """Waits for other programs for a while; one that hangs does not stop this one for ever."""
        try:
            path = self._path(server).with_suffix(".lock")
        except ConfigurationError:
            yield  # a user without a folder has no record that another program could change
            return
        with open_lock_file(path) as file:
            for _ in range(_LOCK_ATTEMPTS):
                if file is None or try_lock(file):
                    break
                await asyncio.sleep(_LOCK_WAIT_SECONDS)
            yield

    def _load(self, server: str) -> bytes | None:
        try:
            record = read_own_file(self._path(server), _MAX_RECORD_BYTES)
        except ConfigurationError:
            return None  # a user without a folder has no logins
        if record != _IN_KEYRING:
            return record
        found = ask_keyring("get_password", _SERVICE, server)
        return found.encode() if isinstance(found, str) else None

    def _save(self, server: str, record: bytes) -> None:
        if self._uses_keyring:
            ask_keyring("set_password", _SERVICE, server, record.decode())
            # A keyring may be switched off, locked, or too small: only what can be read again is stored.
            if ask_keyring("get_password", _SERVICE, server) == record.decode():
                self._write(server, _IN_KEYRING)
                return
        self._write(server, record)

    def _delete(self, server: str) -> None:
        if read_own_file(self._path(server), _MAX_RECORD_BYTES) == _IN_KEYRING:
            ask_keyring("delete_password", _SERVICE, server)
        self._path(server).unlink(missing_ok=True)

    def _write(self, server: str, content: bytes) -> None:
        try:
            replace_own_file(self._path(server), content)
        except OSError as error:
            raise ConfigurationError(f"The login cannot be stored in {self._folder}: {error.strerror}.") from None

    def _path(self, server: str) -> Path:
        return self._folder / f"{hashlib.sha256(server.encode()).hexdigest()[:40]}.json"
