"""What the client keeps about its logins at one MCP server, between programs."""

import time
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.errors import UnauthorizedError

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
