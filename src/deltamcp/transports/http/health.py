"""`/healthz` and `/readyz`: whether the process lives, and whether it should be sent requests."""

import asyncio
import logging
import time

from deltamcp.calls.engine import Engine
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Receive, Scope, Send
from deltamcp.transports.warning_filter import WARNING_FILTER

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

_CHECK_SECONDS = 1.0
"""How long an answer of the store counts, so that anybody may ask for the page as often as they like."""
_OWNER = "readiness"
"""The owner and the name of the entry that a check reads; nobody has stored it."""
_NOT_STORED = (b"cache-control", b"no-store")


class HealthPages:
    """Answers whoever asks, by any name of the host and without credentials; the answers reveal one word."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._checked_at = -_CHECK_SECONDS
        self._store_answers = False
        self.draining = False

    async def show_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _show(scope, send, 200, b'{"status":"ok"}')

    async def show_readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        obstacle = await self._find_obstacle()
        if obstacle is None:
            await _show(scope, send, 200, b'{"status":"ready"}')
        else:
            await _show(scope, send, 503, b'{"status":"%b"}' % obstacle)

    async def _find_obstacle(self) -> bytes | None:
        """Returns the reason why no requests should come; None if there is none."""
        if self.draining:
            return b"draining"
        try:
            await self._engine.lifespan.start()
        except Exception as error:
            logger.warning("the server is not ready, because its lifespan fails", exc_info=error)
            return b"not started"
        return None if await self._ask_store() else b"store unavailable"

    async def _ask_store(self) -> bool:
        async with self._lock:
            if time.monotonic() - self._checked_at >= _CHECK_SECONDS:
                try:
                    await self._engine.store.get(_OWNER, _OWNER)  # which has a deadline, `Limits.store_seconds`
                    self._store_answers = True
                except Exception:  # of any kind, if the store is the author's own
                    self._store_answers = False
                self._checked_at = time.monotonic()
        return self._store_answers


async def _show(scope: Scope, send: Send, status: int, body: bytes) -> None:
    if scope["method"] in ("GET", "HEAD"):
        await asgi.respond_json(send, status, body, _NOT_STORED)
    else:
        await asgi.respond(send, 405, b"", [(b"allow", b"GET, HEAD")])
