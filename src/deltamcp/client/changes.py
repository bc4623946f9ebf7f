"""What a server tells unasked: that a list or a resource has changed, and what it logs."""

import asyncio
import logging
from contextlib import suppress

from deltamcp.client.listing import Listing
from deltamcp.client.options import ClientOptions
from deltamcp.client.reaching import Reaching
from deltamcp.dialects import modern
from deltamcp.errors import ClientError, DeadlineError, PeerError, UnreachableError
from deltamcp.values import JSON, Era

logger = logging.getLogger("deltamcp")

_AGAIN_SECONDS = 1.0
_OPEN_SECONDS = 2.0
_LISTS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Changes:
    """Listens, on a stream of its own where the transport or the era needs one, for as long as the client lives."""

    def __init__(self, reaching: Reaching, listing: Listing, options: ClientOptions) -> None:
        self._reaching, self._listing = reaching, listing
        self._on_change, self._on_log = options.get("on_change"), options.get("on_log")
        self._level = options.get("log_level", "info")
        self._wanted = options.get("listen", True)
        self._is_asked = any(key in options for key in ("on_elicitation", "on_sampling", "roots"))
        self._watched: set[str] = set()
        self._listening: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()

    @property
    def meta(self) -> dict[str, JSON]:
        """What every request says so that logs come with it (2026-07-28)."""
        if self._on_log is None or self._reaching.server.era is not Era.MODERN:
            return {}
        return {modern.LOG_LEVEL_KEY: self._level}

    async def begin(self) -> None:
        server = self._reaching.server
        if self._on_log is not None and server.era is Era.HANDSHAKE and "logging" in server.capabilities:
            with suppress(PeerError, DeadlineError):
                await self._reaching.ask("logging/setLevel", {"level": self._level}, timeout=_OPEN_SECONDS)
        self.again()
        if self._listening is not None and server.era is Era.HANDSHAKE:
            # What a server says before the stream is there, it says to nobody.
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPEN_SECONDS):
                    await self._opened.wait()

    def again(self) -> None:
        """On a new connection everything is to be asked for once more."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        server = self._reaching.server
        tells = any(server.changes(kind) for kind in _LISTS.values())
        self._listing.listens = self._wanted and tells
        # In the handshake era questions, too, may come on the stream that belongs to no request.
        is_asked = self._is_asked and server.era is Era.HANDSHAKE
        if (self._wanted and (tells or is_asked)) or self._watched:
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        conversation = self._reaching.conversation
        if conversation is None:
            return
        if self._reaching.server.era is Era.HANDSHAKE:
            for uri in tuple(self._watched):
                with suppress(ClientError, PeerError):
                    await self._reaching.ask("resources/subscribe", {"uri": uri})
            headers = conversation.speech.headers("", {})
            is_heard = await conversation.link.listen(headers, self._begun)
            self._listing.listens = self._listing.listens and is_heard
            return
        server, flags = self._reaching.server, {kind: f"{kind}ListChanged" for kind in _LISTS.values()}
        wanted: dict[str, JSON] = {flag: True for kind, flag in flags.items() if server.changes(kind)}
        if self._watched:
            wanted["resourceSubscriptions"] = sorted(self._watched)
        while True:
            try:
                await conversation.ask("subscriptions/listen", {"notifications": wanted}, {})
            except (PeerError, UnreachableError) as error:
                logger.info("changes are not told: %s", error)
                self._listing.listens = False
                return
            except ClientError:
                if conversation.link.ended:
                    return  # whoever connects again begins again
            # What changed while nobody listened, nobody knows.
            self._listing.doubt()
            await asyncio.sleep(_AGAIN_SECONDS)

    def _begun(self) -> None:
        """The stream is there, or there again: what changed meanwhile, nobody knows."""
        if self._opened.is_set():
            self._listing.doubt()
        self._opened.set()

    def hear(self, method: str, params: dict[str, JSON]) -> None:
        kind = _LISTS.get(method)
        if kind == "tools":
            self._listing.doubt()
        if kind is not None:
            self._tell(kind)
        elif method == "notifications/resources/updated" and isinstance(params.get("uri"), str):
            self._tell(params["uri"])
        elif method == "notifications/message" and self._on_log is not None:
            by = params.get("logger")
            try:
                self._on_log(str(params.get("level")), params.get("data"), by if isinstance(by, str) else None)
            except Exception:
                logger.exception("a log callback failed")

    def _tell(self, what: str) -> None:
        if self._on_change is not None:
            try:
                self._on_change(what)
            except Exception:
                logger.exception("a change callback failed")

    async def watch(self, uri: str) -> None:
        self._watched.add(uri)
        if self._reaching.server.era is Era.HANDSHAKE:
            await self._reaching.ask("resources/subscribe", {"uri": uri})
        if self._reaching.server.era is Era.MODERN or self._listening is None:
            self.again()

    async def unwatch(self, uri: str) -> None:
        self._watched.discard(uri)
        if self._reaching.server.era is Era.HANDSHAKE:
            await self._reaching.ask("resources/unsubscribe", {"uri": uri})
        else:
            self.again()

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
