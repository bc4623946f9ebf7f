"""A server within reach: connected, connected again with growing patience, and nothing ever done twice."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from deltamcp.catalog.headers import ParameterHeader
from deltamcp.client.conversation import Conversation, Heard, Progress
from deltamcp.client.introduction import Manner, ServerInfo, introduce
from deltamcp.client.links.link import Link
from deltamcp.client.questions import Questions
from deltamcp.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    HttpStatusError,
    UnauthorizedError,
    UnreachableError,
)
from deltamcp.values import JSON, Era

_ATTEMPTS = 6
_LONGEST_WAIT = 5.0
_FIRST_WAIT = 0.1
_STUMBLES = 2
_MAYBE = " It may have been done nevertheless; look before it is asked again."


class Reaching:
    """One server, whatever becomes of the connections to it."""

    def __init__(
        self,
        who: str,
        links: Sequence[Callable[[], Link]],
        manner: Manner,
        questions: Questions,
        heard: Heard,
        seconds: float,
        timeout: float | None,
    ) -> None:
        """`links` are ways to it, the likeliest first; `seconds` is how long starting and introducing may take, and
        `timeout` how long a request that says nothing else."""
        self._who, self._links, self._manner = who, links, manner
        self._questions, self._heard = questions, heard
        self._seconds, self._timeout = seconds, timeout
        self._conversation: Conversation | None = None
        self._connecting = asyncio.Lock()
        self._closed = False
        self._leaving: set[asyncio.Task[None]] = set()
        self.reopened: Callable[[], None] = lambda: None
        """Called when what was agreed on before, and what the server was told, is no more."""
        self._server: ServerInfo | None = None

    @property
    def server(self) -> ServerInfo:
        """
        Raises:
            ClientError: nobody has been connected to yet.
        """
        if self._server is None:
            raise ClientError("A client is used within `async with`.")
        return self._server

    @property
    def conversation(self) -> Conversation | None:
        """The present connection."""
        return self._conversation

    @property
    def progressive(self) -> bool:
        """Whether the server was told that names and summaries are enough."""
        return self._manner.progressive

    @property
    def mirrors(self) -> bool:
        """Whether arguments may have to be repeated in headers."""
        conversation = self._conversation
        return conversation is not None and conversation.link.mirrors and self.server.era is Era.MODERN

    async def open(self) -> None:
        """
        Raises:
            ClientError: it is not within reach; the text says why and what to do.
        """
        async with self._connecting:
            self._closed = False
            await self._connect()

    async def ask(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON] = {},
        *,
        repeatable: bool = True,
        timeout: float | None = None,
        progress: Progress | None = None,
        parameters: tuple[ParameterHeader, ...] = (),
    ) -> dict[str, JSON]:
        """A request's result. One that is not `repeatable` is sent again only where it surely was not done.

        Raises:
            PeerError: the server answered with an error.
            ConnectionLostError: the connection broke and could not be mended, or must not.
            DeadlineError: no answer in time.
        """
        timeout = self._timeout if timeout is None else timeout
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                return await self._persist(method, params, meta, repeatable, progress, parameters)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeadlineError(f"{method} was not answered within {timeout:g} s, and was cancelled.") from None

    async def _persist(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON],
        repeatable: bool,
        progress: Progress | None,
        parameters: tuple[ParameterHeader, ...],
    ) -> dict[str, JSON]:
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            try:
                conversation = self._conversation
                if conversation is None or conversation.link.ended:
                    conversation = await self._connected()
                return await conversation.ask(method, params, meta, progress=progress, parameters=parameters)
            except HttpStatusError as error:
                # It spoke MCP before; what stands between us and it may have passed the request on.
                raise ConnectionLostError(f"{error}{'' if repeatable else _MAYBE}") from None
            except ConnectionLostError as lost:
                if lost.maybe_done and not repeatable:
                    raise ConnectionLostError(f"{lost}{_MAYBE}", retry_after=lost.retry_after) from None
                if self._closed or is_last or lost.retry_after > _LONGEST_WAIT:
                    raise
                wait = lost.retry_after
            except UnreachableError as error:
                if is_last or isinstance(error, UnauthorizedError) or self._conversation is not None:
                    raise
                wait = 0.0
            await asyncio.sleep(max(wait, _patience(attempt)))
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        self._closed = True
        async with self._connecting:
            conversation, self._conversation = self._conversation, None
            if conversation is not None:
                await conversation.close()
            for leaving in self._leaving:
                leaving.cancel()
            if self._leaving:
                await asyncio.wait(self._leaving)

    async def _connected(self) -> Conversation:
        async with self._connecting:
            conversation = self._conversation
            if conversation is not None and not conversation.link.ended:
                return conversation
            if self._closed:
                raise ConnectionLostError("This client is closed.", maybe_done=False)
            if conversation is not None:
                self._conversation = None
                # What is under way on it may still be answered.
                leaving = asyncio.get_running_loop().create_task(conversation.leave())
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
            made = await self._connect()
            self.reopened()
            return made

    async def _connect(self) -> Conversation:
        """
        Raises:
            UnreachableError: it is not within reach.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._despite_stumbling()
        except TimeoutError:
            raise UnreachableError(
                f"{self._who} did not introduce itself within {self._seconds:g} s; is it an MCP server, or does it "
                "need longer?"
            ) from None
        except (ConnectionLostError, HttpStatusError) as error:
            raise UnreachableError(str(error)) from None

    async def _despite_stumbling(self) -> Conversation:
        """A server that answers HTTP 503 and the like is there, and says nothing of what it speaks."""
        for attempt in range(_STUMBLES):
            try:
                return await self._by_any_link()
            except ConnectionLostError as lost:
                if not lost.maybe_done or lost.retry_after > _LONGEST_WAIT:
                    raise
                await asyncio.sleep(max(lost.retry_after, _patience(attempt)))
        return await self._by_any_link()

    async def _by_any_link(self) -> Conversation:
        likeliest, *others = self._links
        link = likeliest()
        try:
            return await self._introduced(link, self._manner)
        except ConnectionLostError as lost:
            if link.mirrors:
                raise
            if self._manner.spoken != "auto" or not lost.maybe_done:
                raise UnreachableError(str(lost)) from None
            return await self._greeted(likeliest())
        except UnauthorizedError:
            raise
        except UnreachableError:
            for make in others if self._manner.spoken in ("auto", "handshake") else ():
                with suppress(UnreachableError, ConnectionLostError):
                    made = await self._introduced(make(), self._manner.speaking("handshake"))
                    self._links = [make]
                    return made
            raise

    async def _greeted(self, link: Link) -> Conversation:
        """Some servers of the handshake era end at a first message that is not `initialize`."""
        try:
            return await self._introduced(link, self._manner.speaking("handshake"))
        except ConnectionLostError as lost:
            raise UnreachableError(str(lost)) from None

    async def _introduced(self, link: Link, manner: Manner) -> Conversation:
        conversation = Conversation(link, self._questions, self._heard)
        try:
            await conversation.link.open(conversation)
            self._server = await introduce(conversation, manner, self._who)
        except BaseException:
            await conversation.close()
            raise
        self._conversation = conversation
        if manner.spoken in ("auto", "handshake"):
            # MCP 2026-07-28 "Versioning": the era is a property of the server, found once.
            is_delta = conversation.speech.delta
            is_modern = self.server.era is Era.MODERN
            self._manner = manner.speaking("delta-mcp" if is_delta else "modern" if is_modern else "handshake")
        return conversation


def _patience(attempt: int) -> float:
    """Nothing the first time; then doubled each time, and never quite the same."""
    if attempt == 0:
        return 0.0
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
