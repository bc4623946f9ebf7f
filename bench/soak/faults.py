"""What goes wrong around the servers of a soak: their store, the service behind an operation, the operations file."""

import asyncio
import contextlib
import json
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from bench.ports import find_free_port


class RedisProcess:
    """A Redis server that stops answering, or ends and comes back empty."""

    def __init__(self, program: str) -> None:
        self.port = find_free_port()
        self._program = program
        self._process = self._start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _start(self) -> "subprocess.Popen[bytes]":
        options = ["--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", tempfile.gettempdir()]
        return subprocess.Popen([self._program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def entry_count(self) -> int:
        from redis.asyncio import Redis

        async with Redis.from_url(self.url) as client:
            return int(await client.dbsize())

    async def fail(self, seconds: float) -> None:
        """Fails once in one of two ways, and works again after some seconds."""
        if random.random() < 0.5:
            self._process.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                self._process.send_signal(signal.SIGCONT)
        else:
            self._process.kill()
            self._process.wait()
            try:
                await asyncio.sleep(seconds)
            finally:
                self._process = self._start()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def redis_process() -> Iterator[RedisProcess | None]:
    """Runs a Redis server; None where none is installed."""
    program = shutil.which("redis-server")
    redis = None if program is None else RedisProcess(program)
    try:
        yield redis
    finally:
        if redis is not None:
            redis.end()


@contextlib.asynccontextmanager
async def unreliable_service() -> AsyncIterator[int]:
    """Serves items over HTTP on a port, repeats the key that it is sent, and fails now and then."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                chance = random.random()
                if chance < 0.05:
                    break
                if chance < 0.1:
                    await asyncio.sleep(2)
                status = "500 Broken" if chance < 0.2 else "200 OK"
                body = json.dumps({"item": 1, "you sent": head.decode()}).encode()
                lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}", "", ""]
                writer.write("\r\n".join(lines).encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def write_operations(path: Path, port: int, version: int) -> None:
    """Writes a version of the operations file: most are new, one in five is faulty, one in five has no operation."""
    operation = {
        "name": "get_item",
        "description": f"Get an item, version {version}",
        "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
        "handler": {"kind": "http", "method": "GET", "path": "/items/{id}"},
    }
    document: dict[str, Any] = {
        "http": {
            "base_url": f"http://127.0.0.1:{port}",
            "headers": {"X-Key": "${SOAK_KEY}"},
            "timeout": 1 + version % 2,
        },
        "operations": {"items": {} if version % 5 == 4 else {"get": operation}},
    }
    path.write_text(json.dumps(document) if version % 5 != 3 else "{")
