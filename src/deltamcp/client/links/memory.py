"""The link to a server in the same process."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from deltamcp.calls.engine import Engine
from deltamcp.client.links.link import NO_HEADERS, MessageReceiver, read_messages
from deltamcp.errors import ConnectionLostError
from deltamcp.limits import Limits
from deltamcp.transports.stdio.duplex import Duplex
from deltamcp.values import JSON
from deltamcp.wire.codecs import JSON_CODEC


class MemoryLink:
    """Passes messages to a server's engine in memory, in the same encoding as over a wire."""

    carries_headers = False
    pid: int | None = None

    def __init__(
        self,
        run: Callable[[], contextlib.AbstractAsyncContextManager[Engine]],
        limits: Limits,
        duplex: type[Duplex] = Duplex,
    ) -> None:
        """
        Args:
            run: Opens the server, as long as the link is open.
            duplex: How the server reads and writes messages: as MCP or as MCP-lite.
        """
        self._make_duplex = duplex
        self.codec = JSON_CODEC
        self.ended: bool = False
        self._run, self._limits = run, limits
        self._exit_stack = contextlib.AsyncExitStack()
        self._duplex: Duplex | None = None
        self.writable: asyncio.Event = asyncio.Event()
        self.writable.set()  # memory can always be written to

    async def open(self, receiver: MessageReceiver) -> None:
        engine = await self._exit_stack.enter_async_context(self._run())
        self._receiver = receiver
        self._duplex = self._make_duplex(engine, self)

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        if self.ended or self._duplex is None:
            raise ConnectionLostError("The connection is closed; connect again.", maybe_done=False)
        self._duplex.receive(self.codec.encode(message))

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Returns True: all messages come on the one connection."""
        on_open()
        return True

    async def close(self) -> None:
        if not self.ended:
            self.ended = True
            if self._duplex is not None:
                await self._duplex.close()
            await self._exit_stack.aclose()

    # The output that the server's duplex writes to

    def write(self, message: bytes) -> None:
        for parsed in read_messages(message, self.codec, self._limits):
            self._receiver.receive(parsed)

    async def wait_writable(self) -> None: ...

    def request_finished(self) -> None: ...
