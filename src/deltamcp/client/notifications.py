"""Receives a server's notifications: changed lists, log messages, and updates of watched resources."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from deltamcp.client.connection import ClientConnection
from deltamcp.client.connector import Connector
from deltamcp.client.lists import ServerLists
from deltamcp.client.options import ClientOptions
from deltamcp.dialects import modern
from deltamcp.errors import ArgumentsError, ClientError, DeadlineError, PeerError, UnreachableError
from deltamcp.values import JSON, Era

logger: logging.Logger = logging.getLogger("deltamcp")

MAX_URIS, _MAX_CHARS = 250, 49_152
"""The URIs of one group, which are sent again whenever one of them comes or goes, and their characters; a URI that is
longer has a group of its own. Servers of this library take 1,000 URIs of 65,536 characters in one subscription."""
_MAX_GROUPS = 120
"""Over HTTP each has a socket, and two while it changes, of the 256 that a link opens. What one account may watch at a
gateway fits into fewer groups."""
_RETRY_SECONDS = 1.0
_OPEN_SECONDS = 2.0
"""How long an old subscription is kept for a new one that the server does not acknowledge."""


class UriGroups:
    """Subscribes to resources; what the server refuses of one group concerns no other.

    Changes of one turn of the event loop are sent together, and so are those that come before the server has
    acknowledged the last ones.
    """

    def __init__(self, report_change: Callable[[str], None]) -> None:
        """
        Args:
            report_change: Called with the URI of a resource that may have changed while the client did not listen.
        """
        self._report_change = report_change
        self._connection: ClientConnection | None = None
        self._groups: dict[_UriGroup, None] = {}
        self._group_of: dict[str, _UriGroup] = {}
        self._refused: dict[str, None] = {}
        """What this server refuses; it is asked again on the next connection, or when somebody subscribes again."""
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, uri: str) -> None:
        """
        Raises:
            ClientError: no more resources can be watched.
        """
        if uri in self._group_of:
            return
        group = next((one for one in self._groups if one.has_room(uri)), None) or self._make_group()
        self._refused.pop(uri, None)
        self._put(uri, group)

    def discard(self, uri: str) -> None:
        self._refused.pop(uri, None)
        group = self._group_of.pop(uri, None)
        if group is not None:
            group.discard(uri)
            self._end_if_empty(group)

    def restart(self, connection: ClientConnection | None, uris: Collection[str]) -> None:
        """Subscribes to exactly these URIs on a new connection; on none, later."""
        self._cancel()
        for uri in [uri for uri in (*self._group_of, *self._refused) if uri not in uris]:
            self.discard(uri)
        self._connection = connection
        for group in self._groups:
            self._start(group)
        try:
            for uri in uris:
                if uri not in self._refused:
                    self.add(uri)
            self._ask_again()
        except ClientError as error:
            logger.warning("the server does not notify of changes of some resources: %s", error)

    def _ask_again(self) -> None:
        """Puts what was refused into groups of its own, which take nothing else before they are accepted."""
        group: _UriGroup | None = None
        for uri in tuple(self._refused):
            if group is None or not group.has_room(uri, is_suspect=True):
                group = self._make_group(is_suspect=True)
            del self._refused[uri]
            self._put(uri, group)

    async def stop(self) -> None:
        """Ends all subscriptions; `restart` begins them again."""
        self._cancel()
        self._connection = None
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _make_group(self, *, is_suspect: bool = False) -> "_UriGroup":
        if len(self._groups) >= _MAX_GROUPS:
            raise ClientError("Too many resources are subscribed to; unsubscribe from some first.")
        group = _UriGroup(self._report_change, self._put_apart, is_suspect)
        self._groups[group] = None
        self._start(group)
        return group

    def _put(self, uri: str, group: "_UriGroup") -> None:
        self._group_of[uri] = group
        group.add(uri)

    def _put_apart(self, group: "_UriGroup", uris: Collection[str]) -> None:
        for uri in uris:
            if self._group_of.get(uri) is group:
                del self._group_of[uri]
                group.discard(uri)
                self._refused[uri] = None
        self._end_if_empty(group)

    def _end_if_empty(self, group: "_UriGroup") -> None:
        if not group.uris and group in self._groups:
            del self._groups[group]
            if group.task is not None:
                group.task.cancel()

    def _start(self, group: "_UriGroup") -> None:
        if self._connection is not None:
            task = group.task = asyncio.get_running_loop().create_task(group.follow(self._connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class _UriGroup:
    """URIs that have one subscription, which is replaced when they change."""

    def __init__(
        self,
        report_change: Callable[[str], None],
        put_apart: Callable[["_UriGroup", Collection[str]], None],
        is_suspect: bool,
    ) -> None:
        self._report_change, self._put_apart = report_change, put_apart
        self._is_suspect = is_suspect
        """Whether the server refused these URIs before."""
        self.uris: set[str] = set()
        self._chars = 0
        self._changed = asyncio.Event()
        self._is_gap = False
        """Whether changes may have been missed since the server acknowledged a subscription."""
        self.task: asyncio.Task[None] | None = None

    def has_room(self, uri: str, *, is_suspect: bool = False) -> bool:
        is_small = len(self.uris) < MAX_URIS and self._chars + len(uri) <= _MAX_CHARS
        return self._is_suspect is is_suspect and (is_small or not self.uris)

    def add(self, uri: str) -> None:
        self.uris.add(uri)
        self._chars += len(uri)
        self._changed.set()

    def discard(self, uri: str) -> None:
        self.uris.remove(uri)
        self._chars -= len(uri)
        self._changed.set()

    async def follow(self, connection: ClientConnection) -> None:
        """Keeps a subscription to the URIs open as long as the connection is."""
        current: asyncio.Task[bool] | None = None
        following: asyncio.Task[bool] | None = None
        listened: frozenset[str] = frozenset()
        self._is_gap = False
        self._changed.set()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if current is not None and current.done():
                    if not current.result():
                        return
                    self._put_apart(self, listened)
                    current, listened = None, frozenset()
                wanted = frozenset(self.uris)
                if not wanted or wanted == listened:
                    continue
                is_settled = asyncio.Event()
                following = asyncio.get_running_loop().create_task(self._listen(connection, wanted, is_settled))
                try:
                    async with asyncio.timeout(_OPEN_SECONDS):
                        await is_settled.wait()
                except TimeoutError:
                    self._is_gap = self._is_gap or current is not None
                if following.done() and following.result():
                    self._put_apart(self, wanted - listened)  # the one before, if there is one, stays open
                    continue
                if current is not None:
                    current.cancel()
                current, listened = following, wanted
                current.add_done_callback(lambda _: self._changed.set())
        finally:
            listens = {task for task in (current, following) if task is not None}
            for task in listens:
                task.cancel()
            if listens:
                await asyncio.wait(listens)

    async def _listen(self, connection: ClientConnection, uris: frozenset[str], is_settled: asyncio.Event) -> bool:
        """Returns True if the server refuses the subscription, and False if the connection has ended."""

        def acknowledge() -> None:
            is_settled.set()
            self._is_suspect = False
            if self._is_gap:
                self._is_gap = False
                for uri in uris & self.uris:
                    self._report_change(uri)

        params = {"notifications": {"resourceSubscriptions": sorted(uris)}}
        try:
            while True:
                try:
                    await connection.request("subscriptions/listen", params, {}, on_acknowledgement=acknowledge)
                except (PeerError, UnreachableError, ArgumentsError) as error:
                    logger.info("the server does not notify of changes of %d resources: %s", len(uris), error)
                    return True
                except ClientError:
                    if connection.link.ended:
                        return False  # `restart` runs after the connector has reconnected
                self._is_gap = True
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            is_settled.set()


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
