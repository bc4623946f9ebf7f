"""Ways to another MCP server: a process we start, or an address. Each carries messages and knows nothing of tools."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

from deltamcp.errors import FAULTS, Fault, ToolError
from deltamcp.limits import Limits
from deltamcp.sources.secrets import quiet_client
from deltamcp.values import Failure, Request, Response
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    import httpx2

_LIMITS = Limits(message_bytes=16 * 1024 * 1024)
_CLOSE_SECONDS = 2.0
_RETRY_SECONDS = 1.0


class SessionLostError(Exception):
    """The server does not know us any more, and has not done what we asked."""


class Inbox:
    """What was asked and is not yet answered."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[Response]] = {}

    def expect(self) -> tuple[int, asyncio.Future[Response]]:
        id_ = next(self._ids)
        future = self._waiting[id_] = asyncio.get_running_loop().create_future()
        return id_, future

    def forget(self, id_: int) -> None:
        future = self._waiting.pop(id_)
        if not future.cancel() and not future.cancelled():
            future.exception()  # asyncio complains of failures nobody has looked at

    def awaits(self, id_: Any) -> bool:
        return id_ in self._waiting and not self._waiting[id_].done()

    def take(self, body: bytes) -> list[bytes]:
        """Reads a message and gives what to reply to it: we answer pings and offer nothing else."""
        read = jsonrpc.read(body, _LIMITS)
        replies = []
        for message in read if isinstance(read, list) else [read]:
            if isinstance(message, Response) and self.awaits(message.id):
                self._waiting[message.id].set_result(message)
            elif isinstance(message, Request) and message.method == "ping":
                replies.append(jsonrpc.result(message.id, b"{}"))
            elif isinstance(message, Request):
                unknown = Failure(Fault.UNKNOWN_METHOD, f"There is no method {message.method} here.")
                replies.append(jsonrpc.error(message.id, FAULTS[unknown.fault].handshake, unknown))
        return replies

    def fail(self, sentence: str) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ToolError(sentence))


class StdioLink:
    """A process, one message a line. Its stderr is ours."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], cwd: str | None) -> None:
        self._command, self._environment, self._cwd = command, environment, cwd
        self._epitaph = f"The server {name} behind this operation ended; try again."
        self._process: asyncio.subprocess.Process | None = None
        self.inbox = Inbox()
        self.ended = False
        self.version = ""

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            env=self._environment,
            cwd=self._cwd,
            limit=_LIMITS.message_bytes,
            start_new_session=True,  # a group of its own: what `npx` and the like start goes when it goes
        )
        assert process.stdin is not None and process.stdout is not None, "pipes were asked for"
        self._stdin = process.stdin
        self._reading = asyncio.create_task(self._read(process.stdout))

    async def send(self, body: bytes, id_: int | None = None) -> None:
        if self.ended:
            raise ToolError(self._epitaph)
        try:
            self._stdin.write(body + b"\n")
            await self._stdin.drain()
        except ConnectionError:
            raise ToolError(self._epitaph) from None

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        try:
            while line := await stdout.readline():
                for reply in self.inbox.take(line):
                    self._stdin.write(reply + b"\n")
        except ValueError:  # a line beyond the limit, after which nothing can be told apart
            pass
        finally:
            self.ended = True
            self.inbox.fail(self._epitaph)

    async def close(self) -> None:
        """Lets the process end by itself, then asks it to, then makes it."""
        process = self._process
        if process is None:
            return
        self._stdin.close()
        for insist in ("", "SIGTERM", "SIGKILL"):
            if insist:
                _signal(process, insist)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await process.wait()
                    break
        _signal(process, "SIGKILL")  # whatever it left behind
        self._reading.cancel()
        await asyncio.wait([self._reading])


def _signal(process: asyncio.subprocess.Process, name: str) -> None:
    """To the process and what it started; Windows, which has no groups, kills the process alone."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        else:
            process.kill()


class HttpLink:
    """An address, one POST a message; what comes back is read until the message is answered."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str]) -> None:
        self._who = f"The server {name} behind this operation"
        self._url = url
        self._headers = {**headers, "accept": "application/json, text/event-stream"}
        self._session: str | None = None
        self._client: httpx2.AsyncClient | None = None
        self.inbox = Inbox()
        self.ended = False
        self.version = ""

    async def start(self) -> None:
        import httpx2

        self._client = quiet_client(timeout=httpx2.Timeout(30.0, read=None))

    async def send(self, body: bytes, id_: int | None = None) -> None:
        """Raises `SessionLostError` where the server has forgotten us."""
        import httpx2

        try:
            last, wait = await self._exchange("POST", {"content-type": "application/json"}, body, id_)
            while self.inbox.awaits(id_):
                if not last:
                    raise ToolError(f"{self._who} gave no answer; try again.")
                # MCP 2025-11-25 "Resumability": a stream that closed early goes on where it is asked for.
                await asyncio.sleep(wait)
                last, wait = await self._exchange("GET", {"last-event-id": last}, None, id_)
        except (httpx2.HTTPError, httpx2.InvalidURL):
            raise ToolError(f"{self._who} could not be reached; try again later.") from None

    async def _exchange(
        self, method: str, headers: dict[str, str], body: bytes | None, id_: int | None
    ) -> tuple[str, float]:
        assert self._client is not None, "it was started"
        async with self._client.stream(method, self._url, content=body, headers=self._said(headers)) as response:
            if response.status_code == 404 and self._session is not None:
                self.ended = True
                raise SessionLostError
            self._session = self._session or response.headers.get("mcp-session-id")
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "text/event-stream" and response.status_code == 200:
                return await self._follow(response, id_)
            if kind == "application/json":
                await self._take(await _body(response))
            if response.status_code >= 300 and (id_ is None or self.inbox.awaits(id_)):
                raise ToolError(f"{self._who} answered HTTP {response.status_code}.")
            return "", 0.0

    async def _follow(self, response: "httpx2.Response", id_: int | None) -> tuple[str, float]:
        """Reads events until the message is answered or the stream closes; where and when to ask for the rest."""
        import httpx2

        last, wait = "", _RETRY_SECONDS
        source = aiter(httpx2.EventSource(response, max_event_size=_LIMITS.message_bytes))
        async with aclosing(cast("AsyncGenerator[httpx2.ServerSentEvent, None]", source)) as events:
            async for event in events:
                last = event.id or last
                wait = wait if event.retry is None else event.retry / 1000
                if event.data:
                    await self._take(event.data.encode())
                if id_ is not None and not self.inbox.awaits(id_):
                    break
        return last, wait

    async def _take(self, body: bytes) -> None:
        for reply in self.inbox.take(body):
            with suppress(ToolError):  # whether it takes our reply is its own affair
                await self.send(reply)

    def _said(self, headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
        ours = {"mcp-session-id": self._session, "mcp-protocol-version": self.version}
        every = {**self._headers, **headers, **{name: text for name, text in ours.items() if text}}
        return [(name.encode(), text.encode()) for name, text in every.items()]

    async def close(self) -> None:
        """Tells the server, if it kept a session, that it need not."""
        import httpx2

        client = self._client
        if client is None:
            return
        if self._session is not None and not self.ended:
            with suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.delete(self._url, headers=self._said({}))
        await client.aclose()


async def _body(response: "httpx2.Response") -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _LIMITS.message_bytes:
            raise ToolError("The answer behind this operation is too long; ask for less.")
    return bytes(body)
