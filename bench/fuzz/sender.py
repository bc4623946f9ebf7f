"""Sends cases to a server over sockets, and sees that each is answered or its connection closed in time."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from bench import messages
from bench.fuzz.cases import make_body_case, make_chance, make_http_bytes
from bench.fuzz.valid_messages import HANDLE, META, SESSION, STATE, TOKEN
from bench.fuzz.verdict import FuzzTally, check_reply
from deltamcp.values import Era

QUIET_SECONDS = 0.15
"""Silence after which the client of a mutated request says that it has nothing more to send."""
DEADLINE_SECONDS = 10.0
"""Time in which a connection is answered or closed; the server's own deadlines are two seconds each."""
CONNECTIONS = 48
REFRESH_CASES = 500
"""How many cases use one session, handle and state."""


class RawReply(NamedTuple):
    status: int
    content_type: str
    session: str | None
    body: bytes


class FuzzSender:
    """Sends cases by their numbers, many at once."""

    def __init__(self, port: int, seed: int, tally: FuzzTally, token: str, is_modern: bool = True) -> None:
        """`is_modern` says whether the server has the modern era, which the original Delta-MCP has not."""
        self._port = port
        self._seed = seed
        self._tally = tally
        self._token = token
        self._is_modern = is_modern
        self._known: dict[str, str] = {}
        self.canary_waits: list[float] = []

    async def send_bodies(self, numbers: range) -> None:
        await self._send_all("body", numbers, self._send_body)

    async def send_requests(self, numbers: range) -> None:
        await self._send_all("http", numbers, self._send_bytes)

    async def _send_all(self, kind: str, numbers: range, send: Callable[[int], Awaitable[None]]) -> None:
        left = iter(numbers)
        while batch := list(itertools.islice(left, REFRESH_CASES)):
            self._known = await self._refresh()
            await send_each(self._tally, kind, batch, send)

    async def _refresh(self) -> dict[str, str]:
        """A session, the handle of a stored result and a sealed state that the server knows."""
        bearer = {"Authorization": f"Bearer {self._token}"}
        opened = await self._post(messages.initialize(), messages.headers(None, "initialize") | bearer)
        if not self._is_modern:
            return {SESSION: opened.session or "", HANDLE: "a" * 16, STATE: "x", TOKEN: self._token}
        headers = messages.headers(Era.MODERN, "tools/call", "rows") | bearer
        stored = await self._post(messages.call(Era.MODERN, "rows", {"count": 300}), headers)
        handle = messages.parse_reply(stored.body)["result"]["_meta"]["io.github.delta-mcp/result"]["handle"]
        params = {"name": "ask", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        asked = await self._post(body, messages.headers(Era.MODERN, "tools/call", "ask") | bearer)
        state = messages.parse_reply(asked.body)["result"]["requestState"]
        return {SESSION: opened.session or "", HANDLE: handle, STATE: state, TOKEN: self._token}

    async def _post(self, body: bytes, headers: dict[str, str], path: str = "/mcp") -> RawReply:
        """Posts a request on a connection of its own, which ends with the reply."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                sent = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
                lines = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in sent.items()), "", ""]
                writer.write("\r\n".join(lines).encode("utf-8", "replace") + body)
                return await read_reply(reader)
            finally:
                writer.close()

    async def _send_body(self, number: int) -> None:
        case = make_body_case(self._seed, number).fill_in(self._known)
        reply = await self._post(case.body, dict(case.headers), case.target)
        self._tally.count(str(reply.status))
        if wrong := check_reply(reply.status, reply.content_type, reply.body):
            self._tally.report("body", number, wrong)

    async def _send_bytes(self, number: int) -> None:
        """Sends bytes in pieces and reads what comes; a client that hears nothing says that it has no more to send."""
        data = make_http_bytes(self._seed, number, self._known)
        chance = make_chance(self._seed, "pieces", number)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            with contextlib.suppress(ConnectionError):
                for piece in _split(data, chance.choice((1, 1, 1, 2, 5))):
                    writer.write(piece)
                    await writer.drain()
            status = await self._read_all(number, reader, writer, has_bodies=b"HEAD " not in data)
            self._tally.count(status)
        finally:
            writer.close()

    async def _read_all(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, has_bodies: bool
    ) -> str:
        """Reads replies until the connection is closed, or is quiet after a reply; the status of the first."""
        first = ""
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    begin = await reader.read(1)
            except TimeoutError:
                if first:
                    return first
                with contextlib.suppress(OSError):
                    writer.write_eof()
                begin = await reader.read(1)
            except ConnectionError:
                return first or "closed"
            reply = await read_reply(reader, begin, has_bodies)
            if not reply.status:
                return first or "closed"
            first = first or str(reply.status)
            if wrong := check_reply(reply.status, reply.content_type, reply.body):
                self._tally.report("http", number, wrong)
            if wrong or not has_bodies or reply.content_type.startswith("text/event-stream"):
                return first

    async def watch(self, pause: float = 0.05) -> None:
        """Calls `add` again and again, and notes how long each call waits."""
        era = Era.MODERN if self._is_modern else Era.HANDSHAKE
        headers = messages.headers(era, "tools/call", "add") | {"Authorization": f"Bearer {self._token}"}
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                reply = await self._post(messages.call(era), headers)
                if messages.call_text(reply.body) != "5":
                    raise ValueError("not 5")
            except (OSError, ValueError, TimeoutError) as error:
                self._tally.report("canary", 0, f"{type(error).__name__}: {error}")
            self.canary_waits.append(loop.time() - began)
            await asyncio.sleep(pause)


def _split(data: bytes, count: int) -> list[bytes]:
    size = max(1, -(-len(data) // count))
    return [data[at : at + size] for at in range(0, len(data), size)]


async def read_reply(reader: asyncio.StreamReader, begin: bytes = b"", has_body: bool = True) -> RawReply:
    """Reads one response that begins with bytes that were read before; of an event stream what comes at first.

    The status is 0 if the connection ended.

    Raises:
        OSError: what came is no HTTP.
    """
    try:
        head = begin + await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return RawReply(0, "", None, b"")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if not words[0].startswith("HTTP/1.") or len(words) < 2:
        raise OSError(f"not HTTP: {lines[0][:100]}")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines[1:] if line)}
    status, body = int(words[1]), b""
    if status == 100:
        return await read_reply(reader, has_body=has_body)
    content_type = headers.get("content-type", "")
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        if not has_body or status in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
                if content_type.startswith("text/event-stream"):
                    break
            else:
                await reader.readexactly(2)
        else:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RawReply(status, content_type, headers.get("mcp-session-id"), body)


async def send_each(
    tally: FuzzTally, kind: str, numbers: Iterable[int], send: Callable[[int], Awaitable[None]]
) -> None:
    """Sends cases by their numbers, many at once, and reports those that are neither answered nor closed in time."""
    shared = iter(numbers)

    async def send_some() -> None:
        for number in shared:
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await send(number)
            except TimeoutError:
                tally.report(kind, number, "neither answered nor closed in time")
            except OSError as error:
                tally.report(kind, number, f"{type(error).__name__}: {error}")

    await asyncio.gather(*(send_some() for _ in range(CONNECTIONS)))
