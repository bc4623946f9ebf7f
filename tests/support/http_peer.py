"""An HTTP server on a socket that records requests to the byte and answers as a test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple


class Heard(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """An HTTP server that records its requests and answers with `answer`; None closes the connection instead."""

    def __init__(self, answer: Callable[[Heard], bytes | None]) -> None:
        self.heard: list[Heard] = []
        self.connections = 0
        self.url = ""
        self._answer = answer

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.strip().split("\r\n")
                headers = {key.lower(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
                method, target, _ = line.split(" ")
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                heard = Heard(method, target, headers, body)
                self.heard.append(heard)
                answer = self._answer(heard)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def reply(status: int = 200, body: bytes | str = b"", kind: str = "application/json", *more: str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    lines = [
        f"HTTP/1.1 {status} Said",
        f"content-length: {len(body)}",
        *([f"content-type: {kind}"] if kind else []),
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def listening(answer: Any = None) -> AsyncIterator[Peer]:
    """Runs a server: `answer` is a function of the request, or the bytes of every response; by default 204."""
    fixed = answer if isinstance(answer, bytes) else reply(204, kind="")
    peer = Peer(answer if callable(answer) else lambda heard: fixed)
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
        await server.wait_closed()
