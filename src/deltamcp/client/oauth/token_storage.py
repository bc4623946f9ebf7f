"""Logins between programs: what the client keeps of them, in memory, in the user's keyring or in files."""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import ConfigurationError, UnauthorizedError
from deltamcp.runtime.files import open_lock_file, read_own_file, replace_own_file, try_lock, user_folder
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


ClientAuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
"""How the client proves who it is at the token endpoint (RFC 7591, 2; RFC 7523)."""


class SecretStruct(Struct, frozen=True, omit_defaults=True):
    """A structure whose fields are not shown, because some are secrets."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> None:  # type: ignore[override]
        return None


class ClientIdentity(SecretStruct, frozen=True, omit_defaults=True):
    """Who the client is at one authorization server."""

    client_id: str
    auth_method: ClientAuthMethod = "none"
    client_secret: str | None = None
    secret_expires_at: float = 0
    """In seconds since 1970; 0 if the secret does not expire."""
    redirect_uri: str = ""
    scope: str | None = None
    """The scopes that the client may ask for, if the registration limits them."""
    is_dynamic: bool = False
    """Whether the client registered itself (RFC 7591)."""

    @property
    def is_expired(self) -> bool:
        return 0 < self.secret_expires_at <= time.time()


class IssuedTokens(SecretStruct, frozen=True, omit_defaults=True):
    """What a token endpoint gave."""

    access_token: str
    refresh_token: str | None = None
    granted_scopes: tuple[str, ...] = ()
    """Those that the authorization server says it granted; those that were asked for if it says nothing."""


class IssuerLogin(SecretStruct, frozen=True, omit_defaults=True):
    """The client's login at one authorization server."""

    client: ClientIdentity
    tokens: IssuedTokens | None = None
    scopes: tuple[str, ...] = ()
    """The scopes that the client has asked for."""
    token_endpoint: str = ""
    """Where the tokens were got; nothing of the login is sent to another origin."""


class LoginRecord(SecretStruct, frozen=True, omit_defaults=True):
    """The logins for one MCP server, by authorization server: nothing of one is used at another (MCP 2026-07-28,
    "Authorization Server Binding")."""

    issuer: str = ""
    """The authorization server of the last login."""
    logins: dict[str, IssuerLogin] = {}
    resource: str = ""
    """The address above the server's that the tokens of the last login are for; empty if they are for the server."""

    @property
    def current(self) -> IssuerLogin | None:
        return self.logins.get(self.issuer)

    def check_binding(self, client_id: str, issuer: str) -> None:
        """
        Raises:
            UnauthorizedError: the server names another authorization server than the one that the program's client id
                was used at before; its secret is not for that one.
        """
        earlier = [name for name, login in self.logins.items() if login.client.client_id == client_id]
        if earlier and issuer not in earlier:
            raise UnauthorizedError(
                f"The server now trusts the authorization server {issuer[:200]}, and the client id was used at "
                f"{earlier[0][:200]}; name the issuer that knows it, or ask who runs the server."
            )

    def with_login(self, issuer: str, login: IssuerLogin) -> "LoginRecord":
        return replace(self, issuer=issuer, logins={**self.logins, issuer: login})

    def without_tokens(self, issuer: str) -> "LoginRecord":
        login = self.logins.get(issuer)
        return self if login is None else self.with_login(issuer, replace(login, tokens=None))

    def without_client(self, issuer: str) -> "LoginRecord":
        """Forgets a client that its authorization server no longer knows, and its tokens.

        Of a client id that the program gave it stays known where it was used: no other authorization server gets it.
        """
        login = self.logins.get(issuer)
        if login is not None and not login.client.is_dynamic:
            return self.without_tokens(issuer)
        others: Mapping[str, IssuerLogin] = {name: login for name, login in self.logins.items() if name != issuer}
        return replace(self, logins=dict(others))


def encode_record(record: LoginRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes | None) -> LoginRecord:
    """Returns a stored record; an empty one if there is none, or none that can be read."""
    if data is None:
        return LoginRecord()
    try:
        return msgspec.json.decode(data, type=LoginRecord)
    except (msgspec.DecodeError, ValueError):
        return LoginRecord()
