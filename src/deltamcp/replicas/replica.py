"""This process among the replicas of a server: its id, its sign of life, and messages to and from the others."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable

from deltamcp.replicas import messages
from deltamcp.replicas.cancellation import raise_if_cancelled
from deltamcp.replicas.change_log import ChangeLog
from deltamcp.replicas.messages import ChangesMade, PromiseChanged, ReplicaMessage, SessionMessage
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.stores.store import SharedStore, StoreError

_ALIVE_SECONDS = 15.0
"""How long a replica that gives no sign of life counts as alive."""
_SIGN_SECONDS = 5.0
_LAST_SECONDS = 30.0
"""How long a replica that closes waits for what it still does; its worker ends in less."""
_CHECK_SECONDS = 0.1

logger = logging.getLogger("deltamcp")

Receive = Callable[[SessionMessage | None], Awaitable[None]]
"""Takes a message of any replica, this one included; None where messages may have been missed."""
ReceivePromise = Callable[[PromiseChanged | None], None]
"""Takes the key of a promise whose record has changed; None where messages may have been missed."""


class Replica:
    """Sends messages to all replicas of a server that use the same store, and receives theirs."""

    def __init__(self, store: SharedStore, server: str, hub: ChangeHub) -> None:
        self.id = secrets.token_hex(8)
        """Different for each process and each start of it."""
        self.server = server
        """The name of the server, which its entries in the store and its channel have."""
        self.store = store
        self.changes = ChangeLog(store, server, hub, self.publish)
        hub.relay = self.changes.add
        self._owner = f"{server} replicas"
        self._receivers: list[Receive] = []
        self._promise_receivers: list[ReceivePromise] = []
        self._busy_checks: list[Callable[[], bool]] = []
        self._sent = 0

    def add_receiver(self, receive: Receive) -> None:
        """Passes the messages about sessions to `receive` from now on."""
        self._receivers.append(receive)

    def add_promise_receiver(self, receive: ReceivePromise) -> None:
        """Passes the messages about promises to `receive` from now on."""
        self._promise_receivers.append(receive)

    def add_busy_check(self, is_busy: Callable[[], bool]) -> None:
        """Counts as alive when the server closes, for as long as `is_busy` says that it still has work of others."""
        self._busy_checks.append(is_busy)

    def next_id(self) -> str:
        """Returns an id that no other replica makes and that tells which one made it."""
        self._sent += 1
        return f"{self.id}-{self._sent}"

    async def publish(self, message: ReplicaMessage) -> None:
        """Sends a message to all replicas, this one included.

        Raises:
            StoreError: the store did not take it.
        """
        await self.store.publish(self.server, messages.encode(message))

    async def is_alive(self, replica: str) -> bool:
        """Whether a replica has given a sign of life lately."""
        return replica == self.id or await self.store.get(self._owner, replica) is not None

    async def run(self) -> None:
        """Receives messages and gives signs of life, as long as the server runs."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._give_signs, self._receive, self.changes.write):
                tasks.create_task(_repeat(work))

    async def _give_signs(self) -> None:
        try:
            while True:
                with contextlib.suppress(Exception):  # the circuit breaker logs what is wrong with the store
                    await self._sign()
                raise_if_cancelled()
                await asyncio.sleep(_SIGN_SECONDS)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        """Says that this replica is gone, once it has ended what others would take over."""
        clock = asyncio.get_running_loop().time
        ends = clock() + _LAST_SECONDS
        next_sign = clock()
        with contextlib.suppress(StoreError):
            while any(is_busy() for is_busy in self._busy_checks) and clock() < ends:
                if clock() >= next_sign:
                    next_sign = clock() + _SIGN_SECONDS
                    await self._sign()
                await asyncio.sleep(_CHECK_SECONDS)
            await self.store.delete(self._owner, self.id)

    async def _sign(self) -> None:
        await self.store.put(self._owner, self.id, b"", _ALIVE_SECONDS, _ALIVE_SECONDS, self._owner)

    async def _receive(self) -> None:
        async with contextlib.aclosing(self.store.subscribe(self.server)) as received:
            async for data in received:
                message = None if data is None else messages.decode(data)
                if data is not None and message is None:
                    continue
                try:
                    await self._pass_on(message)
                except Exception as error:  # one message must not keep this replica from the next
                    logger.warning("a message of another replica was not served: %s", error)
                raise_if_cancelled()

    async def _pass_on(self, message: ReplicaMessage | None) -> None:
        if isinstance(message, ChangesMade):
            await self.changes.receive(message)
            return
        if message is None or isinstance(message, PromiseChanged):
            for receive_promise in self._promise_receivers:
                receive_promise(message)
        if not isinstance(message, PromiseChanged):
            for receive in self._receivers:
                await receive(message)
        if message is None:
            await self.changes.catch_up()


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    """Begins anew what an error has ended: the other replicas would take this one for dead, and its calls for lost."""
    while True:
        try:
            await work()
        except Exception:
            logger.exception("this replica was cut off from the others; it tries again")
        await asyncio.sleep(_SIGN_SECONDS)
