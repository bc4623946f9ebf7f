"""The clients of one upstream: one that all callers share, or one for each principal."""

import asyncio
from collections.abc import Callable, Iterator

from deltamcp.upstreams.upstream_client import UpstreamClient
from deltamcp.values import ANONYMOUS, LOCAL, Principal


class UpstreamClients:
    """Gives each caller its client. Two principals never share one, unless all do.

    The client of the local user, who has no name and no credentials, is also the one that lists and subscribes.
    """

    def __init__(self, make: Callable[[Principal], UpstreamClient], *, is_shared: bool, max_principals: int) -> None:
        """
        Args:
            make: Makes the client of a principal.
            max_principals: How many principals may have one at once, beside the local user.
        """
        self._make, self._is_shared, self._max_principals = make, is_shared, max_principals
        self.local = make(LOCAL)
        self._others: dict[tuple[bool, str], UpstreamClient] = {}
        """By whether nobody authenticates the principal, and its key; the last was used last."""
        self._closing: set[asyncio.Task[None]] = set()
        self._is_open = True

    def __iter__(self) -> Iterator[UpstreamClient]:
        yield self.local
        yield from self._others.values()

    def find(self, principal: Principal) -> UpstreamClient | None:
        """Returns the client that a principal has already."""
        return self.local if principal is LOCAL else self._others.get((principal is ANONYMOUS, principal.key))

    def get(self, principal: Principal) -> UpstreamClient | None:
        """Returns the client of a principal; None if all that there may be are in use by others."""
        if self._is_shared or principal is LOCAL:
            return self.local
        key = principal is ANONYMOUS, principal.key  # a user may have its name
        client = self._others.pop(key, None)
        if client is None:
            if not self._is_open or (len(self._others) >= self._max_principals and not self._drop_idle()):
                return None
            client = self._make(principal)
        self._others[key] = client
        return client

    def _drop_idle(self) -> bool:
        """Closes the client that nobody has used for longest; returns False if all are in use."""
        for key, client in self._others.items():
            if not client.is_in_use:
                del self._others[key]
                task = asyncio.get_running_loop().create_task(client.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return True
        return False

    def open(self) -> None:
        """Lets callers use clients again after `close`."""
        self._is_open = True
        self.local.open()

    async def close(self) -> None:
        """Ends all connections and processes."""
        self._is_open = False
        others = list(self._others.values())
        self._others.clear()
        await asyncio.gather(*self._closing, *(client.close() for client in (self.local, *others)))
