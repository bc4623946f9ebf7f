"""Token introspection: asks the authorization server whom a token is for (RFC 7662)."""

import asyncio
import base64
import hashlib
import logging
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from msgspec import Struct

from deltamcp.auth.claims import ClaimRules
from deltamcp.auth.json_document import DocumentError, open_client, send_request
from deltamcp.auth.token_fault import IssuerUnavailableError, TokenError, TokenFault
from deltamcp.values import JSON, Principal

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("deltamcp.auth")

_INACTIVE_SECONDS = 10.0
"""For so long a token that was not active is refused without another question."""
_MAX_INACTIVE = 4096


class Introspection(Struct, frozen=True, kw_only=True):
    """Where to ask about tokens, and as whom: `ResourceServer(..., introspection=Introspection(url=...))`."""

    url: str
    """The authorization server's introspection endpoint."""
    client_id: str
    """The name by which the authorization server knows this resource server."""
    client_secret: str
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
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def verify(self, token: str) -> Principal:
        """Returns whom a token is for.

        Raises:
            TokenError: the token is refused.
            IssuerUnavailableError: the authorization server does not answer.
        """
        digest, now = hashlib.sha256(token.encode()).digest(), time.monotonic()
        if self._inactive.get(digest, -math.inf) > now:
            raise TokenError(TokenFault.INACTIVE)
        answer = await self._ask_once(token, digest)
        if answer.get("active") is not True:
            self._inactive[digest] = time.monotonic() + _INACTIVE_SECONDS
            self._inactive.move_to_end(digest)
            if len(self._inactive) > _MAX_INACTIVE:
                self._inactive.popitem(last=False)
            raise TokenError(TokenFault.INACTIVE)
        return self._rules.check_answer(answer, time.time(), self._options.only_for_this_resource)

    async def _ask_once(self, token: str, digest: bytes) -> dict[str, JSON]:
        """Asks about a token, or waits for the answer if another request has asked."""
        loop = asyncio.get_running_loop()
        question = self._questions.get(digest)
        if question is None or question.get_loop() is not loop:
            question = self._questions[digest] = loop.create_task(self._ask(token))
            question.add_done_callback(lambda _: self._questions.pop(digest, None))
        return await asyncio.shield(question)

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
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = open_client(), loop
        return self._client

    async def close(self) -> None:
        """Closes the connections; a later question opens others."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()
