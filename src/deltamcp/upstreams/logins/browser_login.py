"""A login at an authorization server that is under way in a user's browser, and that this process waits for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from deltamcp.client.oauth.login_page import LoginPage
from deltamcp.client.oauth.oauth import OAuth
from deltamcp.client.oauth.server_access import ServerAccess
from deltamcp.client.oauth.token_storage import TokenStorage
from deltamcp.errors import ConfigurationError, UnauthorizedError

LOGIN_SECONDS = 300.0
"""How long a user may take."""


class BrowserLogin:
    """One authorization code flow with PKCE: the page to open, and what came back from it."""

    def __init__(
        self,
        url: str,
        storage: TokenStorage,
        redirect_uri: str = "",
        refused: str | None = None,
        challenge: str = "",
        client_id: str | None = None,
        resource: str | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        """
        Args:
            url: The MCP server that the tokens are for.
            storage: Where the tokens go.
            redirect_uri: Where the browser comes back to, and `come_back` is called then; empty to listen on this
                machine.
            refused: The token that the server refused last.
            challenge: With which words it did.
            client_id: The client's id at the authorization server; it registers itself by default.
            resource: An address above the server's that its tokens may be for.
            redact: Takes secrets out of what the user is told of a login that failed.
        """
        self._redact = redact
        loop = asyncio.get_running_loop()
        self._page: asyncio.Future[LoginPage] = loop.create_future()
        self._redirected: asyncio.Future[str] = loop.create_future()
        self.access = ServerAccess(_PageOAuth(self, storage, redirect_uri, client_id, resource), url)
        self._task = loop.create_task(self.access.log_in(refused, challenge))
        self._task.add_done_callback(self._end)

    async def page(self) -> LoginPage:
        """Returns the page of the authorization server that the user is to open.

        Raises:
            UnauthorizedError: there is none; the text says why.
        """
        return await asyncio.shield(self._page)

    async def wait(self) -> None:
        """Waits until the user has logged in.

        Raises:
            UnauthorizedError: the user did not; the text says why.
        """
        await asyncio.wait([self._task])
        if self._task.cancelled():
            raise UnauthorizedError("The login was ended; try again.")
        error = self._task.exception()
        if error is not None:
            raise UnauthorizedError(self._redact(str(error)))

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    def is_answered_by(self, state: str) -> bool:
        """Whether a browser that comes back with this state comes from the page."""
        if not state or not self._page.done() or self._page.cancelled() or self._page.exception() is not None:
            return False
        return parse_qs(urlsplit(self._page.result().url).query).get("state") == [state]

    def come_back(self, address: str) -> None:
        """The browser was sent to this address."""
        if not self._redirected.done():
            self._redirected.set_result(address)

    def cancel(self) -> None:
        self._task.cancel()

    async def show(self, page: LoginPage) -> str | None:
        """Takes the page from the flow, and returns where the browser was sent, unless the flow itself listens."""
        if not self._page.done():
            self._page.set_result(page)
        if page.redirect_uri is not None:
            return None
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await self._redirected
        except TimeoutError:
            raise UnauthorizedError(f"Nobody logged in within {LOGIN_SECONDS:g} s; try again.") from None

    def _end(self, task: "asyncio.Task[None]") -> None:
        error: BaseException | None = None
        with suppress(asyncio.CancelledError):
            error = task.exception()
        if isinstance(error, ConfigurationError | UnauthorizedError):
            error = UnauthorizedError(self._redact(str(error)))
        if not self._page.done():
            self._page.set_exception(error or UnauthorizedError("The login ended without a page to open."))
            self._page.exception()  # else asyncio logs that it was never retrieved


class _PageOAuth(OAuth):
    """The authorization code grant whose pages a `BrowserLogin` shows."""

    def __init__(
        self,
        login: BrowserLogin,
        storage: TokenStorage,
        redirect_uri: str,
        client_id: str | None,
        resource: str | None,
    ) -> None:
        super().__init__(
            grant="authorization_code",
            open_page=login.show,
            storage=storage,
            redirect_uri=redirect_uri,
            client_id=client_id,
            resource=resource,
            login_seconds=LOGIN_SECONDS,
        )

    @property
    def listens(self) -> bool:
        """At an address of this server its own pages listen, also if that is on this machine."""
        return not self.redirect_uri
