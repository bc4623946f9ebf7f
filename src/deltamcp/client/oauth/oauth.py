"""`OAuth`: how a client gets access tokens by itself, as its caller configures it; the page where a user logs in."""

import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from deltamcp.auth.safe_url import is_loopback
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.links.http1 import origin
from deltamcp.client.links.link import TokenSource
from deltamcp.errors import ConfigurationError, UnauthorizedError

if TYPE_CHECKING:
    from deltamcp.client.oauth.token_storage import TokenStorage


logger: logging.Logger = logging.getLogger("deltamcp")

_MAX_SCOPE_CHARS = 500


class LoginPage(Struct, frozen=True):
    """A page that the user is to open. Its addresses have printable ASCII characters only, and are https or local."""

    url: str
    user_code: str | None = None
    """The code to type in there, if the user logs in on another device."""
    full_url: str | None = None
    """An address that has the code in it already, if there is one."""

    redirect_uri: str | None = None
    """Where the browser comes back to, if the client listens there."""
    scopes: tuple[str, ...] = ()
    """What the user is asked to allow; empty if the authorization server decides that."""
    warnings: tuple[str, ...] = ()
    """Sentences that the user needs to read before logging in."""

    def __repr__(self) -> str:
        return f"<LoginPage at {self.url.partition('?')[0]}>"

    @property
    def sentence(self) -> str:
        """What to tell the user."""
        if self.user_code is None:
            return f"Log in at this page: {self.url}"
        return f"Log in at {self.url} with the code {self.user_code}"

    @property
    def notice(self) -> str:
        """What the user is asked to allow, and what to be careful of; one line, or nothing."""
        named = ", ".join(self.scopes)
        if len(named) > _MAX_SCOPE_CHARS:
            named = f"{named[:_MAX_SCOPE_CHARS]}... ({len(self.scopes)} in all)"
        asked = [f"It asks for the scopes {named}."] if self.scopes else []
        return " ".join([*asked, *(f"Careful: {warning}" for warning in self.warnings)])

    @property
    def hint(self) -> str:
        """What a user needs to know who opens the page without our help; a line, or nothing."""
        if self.redirect_uri is None:
            return ""
        port = urlsplit(self.redirect_uri).port
        return (
            f"Open it in a browser on this machine, to which it comes back at port {port}. If yours is on another "
            f"machine, forward the port first, as by ssh -L {port}:127.0.0.1:{port}\n"
        )


def find_warnings(page: LoginPage, issuer: str, earlier_issuer: str) -> tuple[str, ...]:
    """Returns what a user needs to know of a page that an authorization server names.

    Args:
        issuer: the authorization server. Its address is one that `JsonHttp.check_url` lets pass, as are the page's.
        earlier_issuer: the one of the user's last login at the same server; empty if there was none.
    """
    # RFC 9207, 1: a page elsewhere can be another's, whose code or consent this authorization server would get.
    found = [
        f"The page is at {urlsplit(url).netloc}, and the authorization server that gets what you allow there is "
        f"{issuer[:200]}; log in only if you know that they belong together."
        for url in dict.fromkeys((page.url, page.full_url or page.url))
        if origin(url) != origin(issuer)
    ]
    if earlier_issuer and earlier_issuer != issuer:
        found.append(
            f"The server had you log in at {earlier_issuer[:200]} before, and now at {issuer[:200]}; log in only if "
            "you know that it moved."
        )
    return tuple(found)


def can_open_browser() -> bool:
    """Whether a browser with a window can be started: not over SSH, and not without a display."""
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


async def open_in_browser(page: LoginPage) -> None:
    """Writes the page's address to stderr, and opens it in the user's browser if there is one."""
    is_opened = page.user_code is None and can_open_browser()
    notice = f"{visible_line(page.notice)}\n" if page.notice else ""
    sys.stderr.write(f"{visible_line(page.sentence)}\n{notice}{'' if is_opened else page.hint}")
    sys.stderr.flush()
    if is_opened:
        import webbrowser  # imported late: few programs open a page

        # Not awaited: some browsers are started in the foreground, and end when the user closes them.
        threading.Thread(target=webbrowser.open, args=(page.url,), daemon=True).start()


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
