"""A user's login at an upstream: whether there is one, and how the user is asked for it."""

from typing import Protocol

from deltamcp.calls.request_state import LOGIN_PREFIX
from deltamcp.client.links.token_source import TokenSource
from deltamcp.client.oauth.oauth import LoginRequiredError, OAuth
from deltamcp.client.oauth.server_access import ServerAccess, server_key
from deltamcp.client.oauth.token_storage import TokenStorage, UserStorage
from deltamcp.context import Context
from deltamcp.errors import InputDeclinedError, UnauthorizedError, UpstreamError
from deltamcp.upstreams.logins.browser_login import BrowserLogin
from deltamcp.upstreams.logins.learnt_storage import LearntStorage
from deltamcp.upstreams.upstream_secrets import UpstreamSecrets


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
