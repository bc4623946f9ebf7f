"""A user's login at an upstream: whether there is one, how the user is asked for it, and one that is under way."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from deltamcp.calls.request_context import LOGIN_PREFIX
from deltamcp.client.links.link import TokenSource
from deltamcp.client.oauth.oauth import LoginPage, LoginRequiredError, OAuth
from deltamcp.client.oauth.server_access import ServerAccess, server_key
from deltamcp.client.oauth.token_storage import TokenStorage, UserStorage, decode_record
from deltamcp.context import Context
from deltamcp.errors import ConfigurationError, InputDeclinedError, UnauthorizedError, UpstreamError
from deltamcp.upstreams.secrets import UpstreamSecrets

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
        self.access: ServerAccess = ServerAccess(_PageOAuth(self, storage, redirect_uri, client_id, resource), url)
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


class LearntStorage:
    """A `TokenStorage` in front of another."""

    def __init__(self, storage: TokenStorage, secrets: UpstreamSecrets) -> None:
        self._storage, self._secrets = storage, secrets

    async def load(self, server: str) -> bytes | None:
        record = await self._storage.load(server)
        self._learn(record)
        return record

    async def save(self, server: str, record: bytes) -> None:
        self._learn(record)
        await self._storage.save(server, record)

    async def delete(self, server: str) -> None:
        await self._storage.delete(server)

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self._storage.lock(server)

    def _learn(self, record: bytes | None) -> None:
        for login in decode_record(record).logins.values():
            self._secrets.learn(login.client.client_secret)
            if login.tokens is not None:
                self._secrets.learn(login.tokens.access_token, login.tokens.refresh_token)


class LoginPlace(Protocol):
    """Where a browser comes back to from the authorization server of an upstream."""

    @property
    def redirect_uri(self) -> str:
        """The address; empty for a free port of this machine.

        Raises:
            UnauthorizedError: there is none; the text says why.
        """
        ...

    async def open(self, login: BrowserLogin, upstream: str, context: Context) -> str:
        """Returns the address that the user opens to log in.

        Raises:
            UnauthorizedError: there is none; the text says why.
        """
        ...


class ThisMachine:
    """The place of the user who started this process, whose browser is here."""

    redirect_uri = ""

    async def open(self, login: BrowserLogin, upstream: str, context: Context) -> str:
        return (await login.page()).url


class UserLogin:
    """The tokens that one user has for one upstream. No token of another user, or for another server, is among them."""

    def __init__(
        self,
        name: str,
        url: str,
        storage: TokenStorage,
        place: LoginPlace,
        secrets: UpstreamSecrets,
        resource: str | None = None,
    ) -> None:
        """
        Args:
            name: The upstream's.
            url: Its address.
            secrets: What nobody is told; it learns the user's tokens.
            resource: An address above the upstream's that its tokens may be for.
        """
        self._name = name
        self._url = server_key(url)
        self._redact = secrets.redact
        self._storage = storage = LearntStorage(storage, secrets)
        self._place = place
        self._resource = resource
        self.oauth: OAuth = _StoredOAuth(self, storage, resource)
        """For the client that talks to the upstream: it uses and renews what is stored, and asks nobody."""
        self._access = ServerAccess(self.oauth, url)
        self._refused: tuple[str | None, str] | None = None
        self._pending: BrowserLogin | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the upstream refused what is stored, and no other token can be had without the user."""
        return self._refused is not None

    def refuse(self, token: str | None, challenge: str) -> None:
        self._refused = token, challenge

    async def is_missing(self) -> bool:
        """Whether the user has to log in."""
        return self._refused is not None or await self._access.token() is None

    async def ensure(self, context: Context) -> None:
        """Has the user log in if there is no login: by a page that the client asks the user to open.

        Raises:
            InputPending: the client has to ask its user first.
            UpstreamError: the user has to log in, and cannot be asked, or did not; the text says what to do.
        """
        if not await self.is_missing():
            return
        try:
            login = await self._begin()
            address = await self._place.open(login, self._name, context)
            question = f"Log in at {self._name} to use its tools. {self._redact((await login.page()).notice)}".rstrip()
            answer = await context.elicit_url(question, address, key=f"{LOGIN_PREFIX}{self._name}")
            if not answer.accepted:
                raise UpstreamError(f"{self._name} was not called: the user did not log in there.")
            await login.wait()
        except InputDeclinedError:
            raise UpstreamError(self._sentence(address)) from None
        except UnauthorizedError as error:
            raise UpstreamError(str(error)) from None
        self._refused = None

    async def _begin(self) -> BrowserLogin:
        """Returns the login that is under way, or begins one.

        Raises:
            UnauthorizedError: the last one failed, which is told once.
        """
        if self._pending is not None and self._pending.has_ended:
            ended, self._pending = self._pending, None
            await ended.wait()
        if self._pending is None:
            refused, challenge = self._refused or (None, "")
            self._pending = BrowserLogin(
                self._url,
                self._storage,
                self._place.redirect_uri,
                refused,
                challenge,
                resource=self._resource,
                redact=self._redact,
            )
        return self._pending

    def _sentence(self, address: str) -> str:
        """Returns what a user does whose client cannot ask for it."""
        if isinstance(self._place, ThisMachine):
            option = f" --resource {self._resource}" if self._resource else ""
            return f"{self._name} wants you to log in. Run: delta-mcp login {self._redact(self._url)}{option}"
        return f"{self._name} wants you to log in at {address}; then call again."

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()


def local_login(name: str, url: str, secrets: UpstreamSecrets, resource: str | None = None) -> UserLogin:
    """Returns the login of the user who started this process, as `delta-mcp login` stores it."""
    return UserLogin(name, url, UserStorage(), ThisMachine(), secrets, resource)


class _StoredOAuth(OAuth):
    """Uses and renews stored logins, and notes where that is not enough."""

    def __init__(self, login: UserLogin, storage: TokenStorage, resource: str | None) -> None:
        super().__init__(storage=storage, asks_user=False, resource=resource)
        self._login = login

    def token_source(self, url: str) -> TokenSource:
        return _NotingAccess(self, url, self._login)


class _NotingAccess(ServerAccess):
    def __init__(self, oauth: OAuth, url: str, login: UserLogin) -> None:
        super().__init__(oauth, url)
        self._login = login

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        try:
            return await super().renew(refused, challenge)
        except LoginRequiredError:
            self._login.refuse(refused, challenge)
            raise
