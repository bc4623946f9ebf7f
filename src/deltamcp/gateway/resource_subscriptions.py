"""Subscriptions to resources of upstreams: held at the upstream as long as a client of the gateway has one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

from deltamcp.errors import DeltaError, PeerError
from deltamcp.gateway.upstream_resources import UpstreamResource
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.upstreams.upstream import Upstream

_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 300.0
"""Between attempts to subscribe at an upstream that cannot be reached."""

logger = logging.getLogger("deltamcp")


class _Place(NamedTuple):
    upstream: Upstream
    uri: str
    """The URI that the upstream has."""


class ResourceSubscriptions:
    """Subscribes at upstreams to what clients watch, and passes their notices to those clients."""

    def __init__(
        self, hub: ChangeHub, find: Callable[[str], UpstreamResource | None], announce: Callable[[str], None]
    ) -> None:
        """
        Args:
            find: Returns the resource of an upstream that has a URI.
            announce: Notifies the clients that watch a URI.
        """
        self._hub = hub
        self._find = find
        self._announce = announce
        self._places: dict[str, _Place] = {}
        """Where the watched resources are, by their URIs here."""
        self._may_differ = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows what clients watch."""
        self._hub.on_watch = self._may_differ.set
        self._start(self._follow())
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def receive(self, upstream: Upstream, uri: str) -> None:
        """Passes on that a resource of an upstream has changed."""
        for here, place in self._places.items():
            if place == (upstream, uri):
                self._announce(here)

    async def _follow(self) -> None:
        while True:
            await self._may_differ.wait()
            self._may_differ.clear()
            wanted = self._hub.watched_uris()
            for uri in self._places.keys() - wanted:
                place = self._places.pop(uri)
                if place not in self._places.values():
                    self._start(self._unsubscribe(place))
            for uri in wanted - self._places.keys():
                resource = self._find(uri)
                if resource is not None:
                    place = _Place(resource.upstream, resource.uri_there(uri))
                    self._places[uri] = place
                    self._start(self._subscribe(place))

    async def _subscribe(self, place: _Place) -> None:
        """Subscribes at an upstream, again and again if it cannot be reached: the client believes that it has."""
        pause = _FIRST_PAUSE
        while place in self._places.values():
            try:
                await place.upstream.subscribe(place.uri)
            except DeltaError as error:
                logger.info("%s does not notify of changes of %s: %s", place.upstream.name, place.uri[:200], error)
                if isinstance(error, PeerError):  # it refuses
                    return
            else:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _unsubscribe(self, place: _Place) -> None:
        try:
            await place.upstream.unsubscribe(place.uri)
        except DeltaError as error:
            logger.info("%s still notifies of changes of %s: %s", place.upstream.name, place.uri[:200], error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it in a task of its own, so that one upstream does not delay another."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
