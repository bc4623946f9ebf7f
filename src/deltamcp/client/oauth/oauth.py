"""`OAuth`: how a client gets access tokens by itself, as its caller configures it."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from deltamcp.auth.safe_url import is_loopback
from deltamcp.client.links.link import TokenSource
from deltamcp.client.oauth.login_page import LoginPage, open_in_browser
from deltamcp.errors import ConfigurationError, UnauthorizedError

if TYPE_CHECKING:
    from deltamcp.client.oauth.token_storage import TokenStorage

logger: logging.Logger = logging.getLogger("deltamcp")

Grant: TypeAlias = Literal["authorization_code", "device_code", "client_credentials"]
OpenPage: TypeAlias = Callable[[LoginPage], str | Awaitable[str | None] | None]
"""Shows the user a page; where the program has a `redirect_uri` of its own, returns the address that the browser was
sent to in the end."""


class LoginRequiredError(UnauthorizedError):
    """The user would have to log in at the server, and the program asks no user."""

    def __init__(self, server_url: str, challenge: str) -> None:
        super().__init__(f"The server at {server_url} wants you to log in.", challenge)
        self.server_url = server_url


class OAuth:
    """The client's part of MCP's authorization: `connect(url, auth=OAuth())`.

    The client finds the server's authorization server, registers itself there if need be, has the user log in, and
    keeps and renews the tokens. One object may serve several clients.
    """

    def __init__(
        self,
        *,
        grant: Grant | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_key: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "delta-mcp",
        scopes: Iterable[str] = (),
        redirect_uri: str = "",
        open_page: OpenPage | None = None,
        asks_user: bool = True,
        storage: "TokenStorage | None" = None,
        login_seconds: float = 300.0,
        resource: str | None = None,
    ) -> None:
        """
        Args:
            grant: how tokens are got: in a browser, on another device, or with the client's own secret and no user. By
                default in a browser if one can be opened here, else on another device if the server offers that.
            client_id: the id of a client that is registered at the authorization server already.
            client_secret: its secret, if it has one.
            client_key: its private key in PEM, which signs a statement instead of a secret.
            issuer: the authorization server that knows this client, which a secret and a key need; the client refuses
                to use the id at any other.
            client_metadata_url: the https address of a document about the program, which stands for a client id where
                the authorization server supports that.
            client_name: what the authorization server calls the program to the user.
            scopes: scopes to ask for beside those that the server names.
            redirect_uri: where the browser comes back to. The client listens at an http address of this machine, which
                may leave the port open; for any other, `open_page` returns the address that the browser was sent to.
                By default a free port of 127.0.0.1.
            open_page: shows the page to log in at; by default it is written to stderr and opened in the browser.
            asks_user: False to use and renew stored logins only; where the user would have to log in, the client raises
                `LoginRequiredError`.
            storage: where logins are kept; by default in the user's keyring, or a file that only the user reads. Tokens
                of the grant client_credentials are kept in memory.
            login_seconds: how long the user may take.
            resource: the http address that the server's tokens are for, where that is not the one at which the client
                reaches it: over gRPC, at the paths of MCP-lite, and where they are for an address above the server's,
                as `https://tools.example` for `https://tools.example/mcp`. The program vouches for the server, which
                can use such a token at every other server there.

        Raises:
            ConfigurationError: these options do not fit together.
        """
        self.grant = grant
        self.client_id: str | None = client_id
        self.client_secret: str | None = client_secret
        self.client_key: str | None = client_key
        self.issuer: str | None = issuer
        self.client_metadata_url: str | None = client_metadata_url
        self.client_name: str = client_name
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.redirect_uri: str = redirect_uri
        self.open_page: OpenPage | None = open_page
        self.login_seconds: float = login_seconds
        self.asks_user: bool = asks_user
        self._storage = storage
        self.resource: str | None = resource
        if (client_secret or client_key or grant == "client_credentials") and not client_id:
            raise ConfigurationError("A client's secret, its key and the grant client_credentials need a client_id.")
        if grant == "client_credentials" and not (client_secret or client_key):
            raise ConfigurationError("The grant client_credentials needs a client_secret or a client_key.")
        if (client_secret or client_key) and not issuer:
            raise ConfigurationError(
                "A client's secret or key needs the issuer that knows the client (OAuth(issuer=...), --issuer URL): "
                "else a server could name anybody to get it."
            )
        if client_metadata_url is not None and not _is_document_url(client_metadata_url):
            raise ConfigurationError("The client_metadata_url is an https address with a path.")
        if not self.listens and open_page is None:
            raise ConfigurationError(
                "The browser comes back to an http address of this machine, such as http://127.0.0.1:7777/callback; "
                f"for {redirect_uri!r:.200} the program needs an open_page that returns it."
            )

    @property
    def listens(self) -> bool:
        """Whether the client itself waits for the browser at the `redirect_uri`."""
        return not self.redirect_uri or _is_local_http(self.redirect_uri)

    def __repr__(self) -> str:
        return f"<OAuth {self.client_id or self.client_metadata_url or self.client_name}>"

    @property
    def storage(self) -> "TokenStorage":
        """Where the tokens are kept: the given one, the user's files, or memory for a client with a secret."""
        if self._storage is None:
            from deltamcp.client.oauth.token_storage import MemoryStorage, UserStorage

            # Whoever has a secret names its issuer, so that it needs no record of where it was used.
            self._storage = MemoryStorage() if self.grant == "client_credentials" else UserStorage()
        return self._storage

    async def show(self, page: LoginPage) -> str | None:
        """Shows the user a page; returns the address that the browser was sent to, if `open_page` knows it."""
        if self.open_page is None:
            await open_in_browser(page)
            return None
        for warning in page.warnings:
            logger.warning("%s", warning)
        returned = self.open_page(page)
        if isawaitable(returned):
            returned = await returned
        return returned if isinstance(returned, str) else None

    def token_source(self, url: str) -> TokenSource:
        """Returns the source of tokens for the server at this URL."""
        from deltamcp.client.oauth.server_access import ServerAccess

        return ServerAccess(self, url)


def _is_local_http(url: str) -> bool:
    """
    Raises:
        ConfigurationError: this is no address at all.
    """
    try:
        parts = urlsplit(url)
        is_reachable = parts.port != 0
    except ValueError:
        is_reachable = False
    if not is_reachable:
        raise ConfigurationError(f"{url!r:.200} is no address that a browser can come back to.")
    return parts.scheme == "http" and is_loopback(parts.hostname or "")


def _is_document_url(url: str) -> bool:
    """Whether this can be the URL of a client id metadata document (draft-ietf-oauth-client-id-metadata-document)."""
    parts = urlsplit(url)
    return parts.scheme == "https" and bool(parts.hostname) and parts.path not in ("", "/") and not parts.fragment
