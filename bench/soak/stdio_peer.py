"""The peer of a soak on stdio: a client that calls, cancels, sends rubbish, and reads slowly."""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator
from typing import Any

from bench import messages
from bench.peers import ROOT
from bench.soak.tally import Tally
from deltamcp.values import Era

_REPLY_SECONDS = 20.0
_LINE_BYTES = 1 << 24


class StdioPeer:
    """One client of one server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._ids = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def read(self) -> None:
        """Reads replies until the process ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            future = self._waiting.pop(message.get("id"), None) if "method" not in message else None
            if future is not None and not future.done():
                future.set_result(message)

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The whole reply to a call."""
        self._ids += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[self._ids] = future
        self.write(messages.call(Era.MODERN, name, arguments, self._ids))
        async with asyncio.timeout(_REPLY_SECONDS):
            return await future

    async def cancelled_call(self) -> None:
        self._ids += 1
        id_ = self._ids
        self.write(messages.call(Era.MODERN, "wait", {"seconds": 2}, id_))
        await asyncio.sleep(0.02)
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
        self.write(json.dumps(cancelled).encode())

    async def behave(self, tally: Tally) -> None:
        """Does one thing and counts its outcome."""
        chosen = random.choice(["calls", "calls", "cut result", "fail", "cancel", "malformed", "long line", "report"])
        try:
            match chosen:
                case "calls":
                    replies = await asyncio.gather(*(self.call("add", {"a": 2, "b": 3}) for _ in range(20)))
                    if not all('"5"' in json.dumps(reply) for reply in replies):
                        raise ValueError(str(replies)[:200])
                case "cut result":
                    await self.call("rows", {"count": 2_000})
                case "fail":
                    await self.call("fail", {"kind": "other"})
                case "report":
                    await self.call("report", {"steps": 5})
                case "cancel":
                    await self.cancelled_call()
                case "malformed":
                    self.write(random.choice([b"{", b"\xff", b"[]", b"null", b'{"jsonrpc":"2.0","id":{}}']))
                case _:
                    self.write(b'{"jsonrpc":"2.0","id":0,"method":"' + b"x" * 5_000_000 + b'"}')
            assert self.process.stdin is not None
            await self.process.stdin.drain()
        except Exception as error:
            tally.surprise(f"stdio {chosen}", f"{type(error).__name__}: {error}")
        else:
            tally.count(f"stdio {chosen}", "done")


@contextlib.asynccontextmanager
async def stdio_peer(*arguments: str) -> AsyncIterator[StdioPeer]:
    """Starts a server on stdio and a client of it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-E", "-m", "bench.soak.server", "stdio", *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_LINE_BYTES,
    )
    peer = StdioPeer(process)
    reading = asyncio.create_task(peer.read())
    try:
        yield peer
    finally:
        reading.cancel()
        process.kill()
        await process.wait()
