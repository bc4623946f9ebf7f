"""Receives a server's notifications: changed lists, updated resources and log messages."""

import asyncio
import logging
from contextlib import suppress

from deltamcp.client.connector import Connector
from deltamcp.client.lists import ServerLists
from deltamcp.client.options import ClientOptions
from deltamcp.client.uri_groups import UriGroups
from deltamcp.dialects import modern
from deltamcp.errors import ClientError, DeadlineError, PeerError, UnreachableError
from deltamcp.values import JSON, Era

logger = logging.getLogger("deltamcp")

_RETRY_SECONDS = 1.0
_OPEN_SECONDS = 2.0
_LIST_CHANGED_KINDS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class NotificationListener:
    """Listens for notifications while the client is open, on a stream of its own if transport or era need one."""

    def __init__(self, connector: Connector, lists: ServerLists, options: ClientOptions) -> None:
        self._connector, self._lists = connector, lists
        self._on_change, self._on_log = options.get("on_change"), options.get("on_log")
        self._log_level = options.get("log_level", "info")
        self._is_enabled = options.get("listen", True)
        self._answers_requests = any(key in options for key in ("on_elicitation", "on_sampling", "roots", "sender"))
        self._sender = options.get("sender")
        self._subscribed_uris: set[str] = set()
        self._uri_groups = UriGroups(self._report_change)
        self._listen_task: asyncio.Task[None] | None = None
        self._stream_opened = asyncio.Event()

    @property
    def log_level_meta(self) -> dict[str, JSON]:
        """The `_meta` that asks the server to log during a request (MCP 2026-07-28)."""
        if self._on_log is None or self._connector.server.era is not Era.MODERN:
            return {}
        return {modern.LOG_LEVEL_KEY: self._log_level}

    async def start(self) -> None:
        server = self._connector.server
        if self._on_log is not None and server.era is Era.HANDSHAKE and "logging" in server.capabilities:
            with suppress(PeerError, DeadlineError):
                await self._connector.request("logging/setLevel", {"level": self._log_level}, timeout=_OPEN_SECONDS)
        self.restart()
        if self._listen_task is not None and server.era is Era.HANDSHAKE:
            # A notification that the server sends before the stream is open is lost.
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPEN_SECONDS):
                    await self._stream_opened.wait()

    def restart(self) -> None:
        """Subscribes again, as a new connection needs it."""
        if self._listen_task is not None:
            self._listen_task.cancel()
            self._listen_task = None
        server = self._connector.server
        has_changes = any(server.changes(kind) for kind in _LIST_CHANGED_KINDS.values())
        self._lists.receives_changes = self._is_enabled and has_changes
        is_modern = server.era is Era.MODERN
        self._uri_groups.restart(self._connector.connection, self._subscribed_uris if is_modern else ())
        # In the handshake era a server may send its requests, too, on the stream that belongs to no request.
        is_needed = has_changes or (self._answers_requests and not is_modern)
        if (self._is_enabled and is_needed) or (self._subscribed_uris and not is_modern):
            self._listen_task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        connection = self._connector.connection
        if connection is None:
            return
        if self._connector.server.era is Era.HANDSHAKE:
            for uri in tuple(self._subscribed_uris):
                with suppress(ClientError, PeerError):
                    await self._connector.request("resources/subscribe", {"uri": uri})
            headers = connection.dialect.headers("", {})
            is_received = await connection.link.listen(headers, self._on_stream_open)
            self._lists.receives_changes = self._lists.receives_changes and is_received
            return
        server, flags = self._connector.server, {kind: f"{kind}ListChanged" for kind in _LIST_CHANGED_KINDS.values()}
        notifications: dict[str, JSON] = {flag: True for kind, flag in flags.items() if server.changes(kind)}
        while True:
            try:
                await connection.request("subscriptions/listen", {"notifications": notifications}, {})
            except (PeerError, UnreachableError) as error:
                logger.info("the server does not notify of changes: %s", error)
                self._lists.receives_changes = False
                return
            except ClientError:
                if connection.link.ended:
                    return  # `restart` runs after the connector has reconnected
            # The server may have changed its lists while the client did not listen.
            self._lists.invalidate()
            await asyncio.sleep(_RETRY_SECONDS)

    def _on_stream_open(self) -> None:
        """Invalidates the lists when the stream opens again: the server may have changed them in between."""
        if self._stream_opened.is_set():
            self._lists.invalidate()
        self._stream_opened.set()

    def receive(self, method: str, params: dict[str, JSON]) -> None:
        kind = _LIST_CHANGED_KINDS.get(method)
        if kind == "tools":
            self._lists.invalidate()
        if kind is not None:
            self._report_change(kind)
        elif method == "notifications/resources/updated" and isinstance(params.get("uri"), str):
            self._report_change(params["uri"])
        elif method == "notifications/message" and self._sender is not None:
            self._sender.log(params)
        elif method == "notifications/message" and self._on_log is not None:
            name = params.get("logger")
            try:
                self._on_log(str(params.get("level")), params.get("data"), name if isinstance(name, str) else None)
            except Exception:
                logger.exception("a log callback failed")

    def _report_change(self, kind_or_uri: str) -> None:
        if self._on_change is not None:
            try:
                self._on_change(kind_or_uri)
            except Exception:
                logger.exception("a change callback failed")

    async def subscribe(self, uri: str) -> None:
        """
        Raises:
            ClientError: too many resources are subscribed to, or the server cannot be reached.
            PeerError: a server of the handshake era refuses.
        """
        if self._connector.server.era is Era.MODERN:
            self._uri_groups.add(uri)
            self._subscribed_uris.add(uri)
            return
        self._subscribed_uris.add(uri)
        await self._connector.request("resources/subscribe", {"uri": uri})
        if self._listen_task is None:
            self.restart()

    async def unsubscribe(self, uri: str) -> None:
        self._subscribed_uris.discard(uri)
        self._uri_groups.discard(uri)
        if self._connector.server.era is Era.HANDSHAKE:
            await self._connector.request("resources/unsubscribe", {"uri": uri})

    async def stop(self) -> None:
        await self._uri_groups.stop()
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])
