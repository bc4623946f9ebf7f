"""Where a link gets its bearer token from, and what it does when the server refuses the token."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Protocol, TypeAlias

from deltamcp.errors import UnauthorizedError

BearerToken: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A bearer token, or a function that returns one; the link calls it again when the server refuses the last token."""


class TokenSource(Protocol):
    """Gives the bearer tokens of one server."""

    async def token(self) -> str | None:
        """Returns the token to begin with; None to send none."""
        ...

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        """Returns another token after the server refused one; None if there is no other.

        Args:
            refused: the token that the server refused; None if it refused a request without a token.
            challenge: the server's `WWW-Authenticate` header.

        Raises:
            UserNeededError: the user must be asked for another token.
            UnauthorizedError: no token can be had; the text says why.
        """
        ...


class UserNeededError(UnauthorizedError):
    """Another token can be had only by asking the user, who takes longer than requests may take.

    The connector therefore calls `ask_user` outside of any deadline, and sends the request again.
    """

    def __init__(
        self, message: str, challenge: str, ask_user: Callable[[], Awaitable[None]], *, is_step_up: bool
    ) -> None:
        super().__init__(message, challenge)
        self.ask_user = ask_user
        self.is_step_up = is_step_up
        """Whether the server accepts the token, and wants one that allows more."""


class FixedToken:
    """A source of one token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token

    async def renew(self, refused: str | None, challenge: str) -> None:
        return None


class TokenFunction:
    """A source that asks a function of the caller, once for all requests that were refused at the same time."""

    def __init__(self, function: Callable[[], str | Awaitable[str]]) -> None:
        self._function = function
        self._last: str | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        result = self._function()
        self._last = token = await result if isawaitable(result) else result
        return token

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        async with self._lock:
            token = await self.token() if self._last == refused else self._last
            return token if token != refused else None


def make_token_source(token: BearerToken) -> TokenSource:
    return FixedToken(token) if isinstance(token, str) else TokenFunction(token)
