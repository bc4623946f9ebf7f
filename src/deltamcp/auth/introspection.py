"""Token introspection: asks the authorization server whom a token is for (RFC 7662)."""

import asyncio
import base64
import hashlib
import logging
import math
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from msgspec import Struct

from deltamcp.auth.bearer import IssuerUnavailableError, TokenError, TokenFault
from deltamcp.auth.claims import ClaimRules
from deltamcp.auth.json_document import DocumentError, open_client, send_request
from deltamcp.runtime.quota import Turns
from deltamcp.values import JSON, Principal

if TYPE_CHECKING:
    import httpx2

logger: logging.Logger = logging.getLogger("deltamcp.auth")

_INACTIVE_SECONDS = 10.0
"""For so long a token that was not active is refused without another question."""
_MAX_INACTIVE = 4096
_QUESTIONS_AT_ONCE = 16
"""How many questions the authorization server is asked at once; each takes some milliseconds of the event loop."""
_MAX_QUESTIONS = 1024
_MAX_QUESTIONS_PER_ADDRESS = _MAX_QUESTIONS // 8
"""How many questions may wait for their turn; the requests of others are told to come again."""
_TURN_SECONDS = 5.0
"""How long a question waits for its turn."""


class Introspection(Struct, frozen=True, kw_only=True):
    """Where to ask about tokens, and as whom: `ResourceServer(..., introspection=Introspection(url=...))`."""

    url: str
    """The authorization server's introspection endpoint."""
    client_id: str
    """The name by which the authorization server knows this resource server."""
    client_secret: str
    """The secret that proves it; logs and `repr` leave it out."""
    only_for_this_resource: bool = False
    """Whether the endpoint calls only those tokens active that are for this resource. Where it does, an answer without
    an audience is accepted; else such a token could be one that another service got."""
    cache_seconds: float = 30.0
    """For so long a token is used without another question."""

    def __repr__(self) -> str:
        return f"Introspection(url={self.url!r}, client_id={self.client_id!r})"


class IntrospectionVerifier:
    """Asks about each token, and remembers for a short time which are not active."""

    def __init__(self, options: Introspection, rules: ClaimRules) -> None:
        self._options = options
        self._rules = rules
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(options.client_id)}:{quote_plus(options.client_secret)}"
        self._authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._inactive: OrderedDict[bytes, float] = OrderedDict()
        self._questions: dict[bytes, asyncio.Task[dict[str, JSON]]] = {}
        """The questions that are not answered yet, by the digests of their tokens."""
        self._counts: Counter[str] = Counter()
        """How many of them there are of each address."""
        self._turns = Turns(_QUESTIONS_AT_ONCE)
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def verify(self, token: str, address: str = "") -> Principal:
        """Returns whom a token is for. The addresses that send tokens which nobody knows take turns.

        Raises:
            TokenError: the token is refused.
            IssuerUnavailableError: the authorization server does not answer, or has too many questions to answer.
        """
        digest, now = hashlib.sha256(token.encode()).digest(), time.monotonic()
        if self._inactive.get(digest, -math.inf) > now:
            raise TokenError(TokenFault.INACTIVE)
        answer = await self._ask_once(token, digest, address)
        if answer.get("active") is not True:
            self._inactive[digest] = time.monotonic() + _INACTIVE_SECONDS
            self._inactive.move_to_end(digest)
            if len(self._inactive) > _MAX_INACTIVE:
                self._inactive.popitem(last=False)
            raise TokenError(TokenFault.INACTIVE)
        return self._rules.check_answer(answer, time.time(), self._options.only_for_this_resource)

    async def _ask_once(self, token: str, digest: bytes, address: str) -> dict[str, JSON]:
        """Asks about a token, or waits for the answer if another request has asked."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the one before has ended, with all that was open in it
            self._loop, self._client, self._turns = loop, None, Turns(_QUESTIONS_AT_ONCE)
            self._questions.clear()
            self._counts.clear()
        question = self._questions.get(digest)
        if question is None:
            if len(self._questions) >= _MAX_QUESTIONS or self._counts[address] >= _MAX_QUESTIONS_PER_ADDRESS:
                raise IssuerUnavailableError
            question = self._questions[digest] = loop.create_task(self._ask_in_turn(token, address))
            self._counts[address] += 1
            question.add_done_callback(lambda ended: self._end_question(ended, digest, address))
        return await asyncio.shield(question)

    def _end_question(self, ended: "asyncio.Task[dict[str, JSON]]", digest: bytes, address: str) -> None:
        if self._questions.get(digest) is not ended:
            return
        del self._questions[digest]
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    async def _ask_in_turn(self, token: str, address: str) -> dict[str, JSON]:
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turns.take(address)
        except TimeoutError:
            raise IssuerUnavailableError from None
        try:
            return await self._ask(token)
        finally:
            self._turns.release()

    async def _ask(self, token: str) -> dict[str, JSON]:
        url = self._options.url
        try:
            status, _, answer = await send_request(
                self._open_client(),
                "POST",
                url,
                data={"token": token, "token_type_hint": "access_token"},
                headers={"authorization": self._authorization},
            )
        except DocumentError as error:
            logger.warning("a token cannot be verified: %s", error)
            raise IssuerUnavailableError from None
        if status != 200 or answer is None:
            logger.warning("a token cannot be verified: %s answers with the status %d", url, status)
            raise IssuerUnavailableError
        return answer

    def _open_client(self) -> "httpx2.AsyncClient":
        if self._client is None:
            self._client = open_client()
        return self._client

    async def close(self) -> None:
        """Closes the connections; a later question opens others."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()
