"""The clients of the replicas: ours in both eras, bare sessions, and the official SDK's."""

import asyncio
import contextlib
import http.client
import itertools
import json
import random
import time
from collections import deque
from typing import Any, NamedTuple, Protocol

from bench import messages
from bench.fuzz.sender import RawReply, read_reply
from bench.replicas.ledger import Ledger
from bench.replicas.server import ROWS, token_of
from deltamcp import ConnectionLostError, DeltaError, ResultLostError, connect
from deltamcp.client.reply import Reply
from deltamcp.values import Era

OLD_SECONDS = 6.0
"""How old a cut result is when its rest is read: a replica was killed meanwhile."""
CALL_SECONDS = 60.0
_numbers = itertools.count(1)


def make_nonce(client: str) -> str:
    return f"{client}-{next(_numbers)}"


class Load(NamedTuple):
    """What every client needs: where to call, until when, and where to write down what happens."""

    url: str
    port: int
    ledger: Ledger
    end: float
    """By `time.monotonic`."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end


class LoadClient(Protocol):
    async def __call__(self, load: Load, principal: str) -> None: ...


class OldReply(NamedTuple):
    reply: Reply
    nonce: str
    at: float


def our_client(era: Era) -> LoadClient:
    """Our client, which retries by itself: it must answer every call but a write that was in flight."""
    name = f"ours, {era.value}"
    speak: Any = era.value

    async def run(load: Load, principal: str) -> None:
        chance, old = random.Random(f"{name}{principal}"), deque[OldReply]()
        async with connect(load.url, speak=speak, token=token_of(principal), deltas=False) as client:
            while not load.is_over:
                nonce = make_nonce(f"{name}-{principal}")
                kind = chance.choices(("read", "write", "rows"), (4, 4, 1))[0]
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        if kind == "rows":
                            old.append(
                                OldReply(await client.call_tool("rows", {"nonce": nonce}), nonce, time.monotonic())
                            )
                        else:
                            answer = await client.call(kind, nonce=nonce)
                            load.ledger.check_answer(name, principal, nonce, answer)
                            if kind == "write":
                                load.ledger.answered.add(nonce)
                        load.ledger.count(name, "answered")
                except ConnectionLostError as lost:
                    if kind == "write" and lost.maybe_done:
                        load.ledger.open.add(nonce)
                        load.ledger.count(name, "told as maybe done")
                    else:
                        load.ledger.report(name, f"{kind} of {principal}: {lost}")
                except (DeltaError, TimeoutError) as error:
                    load.ledger.report(name, f"{kind} of {principal}: {type(error).__name__}: {error}")
                if old and old[0].at < time.monotonic() - OLD_SECONDS:
                    await _read_rest(client, old.popleft(), load.ledger, name, principal)
            for one in old:
                await _read_rest(client, one, load.ledger, name, principal)

    return run


async def _read_rest(client: Any, old: OldReply, ledger: Ledger, name: str, principal: str) -> None:
    """Reads the rest of a result that was cut some time ago."""
    if not old.reply.is_part:
        ledger.report(name, "rows were not cut")
        return
    try:
        rows = await _read_whole(client, old.reply, ledger, name)
    except ResultLostError as error:
        ledger.report(name, f"a cursor is lost: {error}")
        return
    except (DeltaError, TimeoutError) as error:
        ledger.report(name, f"the rest of rows: {type(error).__name__}: {error}")
        return
    if [row["id"] for row in rows] != list(range(ROWS)):
        ledger.report(name, f"{len(rows)} rows instead of {ROWS}")
    elif {(row["owner"], row["nonce"]) for row in rows} != {(principal, old.nonce)}:
        ledger.report(name, f"rows of another: {rows[0]}")
    else:
        ledger.count(name, "read on")


async def _read_whole(client: Any, reply: Reply, ledger: Ledger, name: str) -> Any:
    """Reads a result whole; again where the server says that its store is late, as it may be on a busy machine."""
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            try:
                return await client.whole(reply)
            except DeltaError as error:
                if "try again in a few seconds" not in str(error):
                    raise
                ledger.count(name, "told to try again")
                await asyncio.sleep(2)


async def bare_session(load: Load, principal: str) -> None:
    """One handshake session for the whole run, without a library: it must never be forgotten."""
    name, bearer = "bare session", {"Authorization": f"Bearer {token_of(principal)}"}
    opened = await _post_until_answered(load, messages.initialize(), messages.headers(None, "initialize") | bearer)
    headers = messages.headers(Era.HANDSHAKE, "tools/call", session=opened.session) | bearer
    await _post_until_answered(load, messages.INITIALIZED, headers)
    while not load.is_over:
        nonce = make_nonce(f"session-{principal}")
        reply = await _post_until_answered(load, messages.call(Era.HANDSHAKE, "read", {"nonce": nonce}), headers)
        if reply.status == 404:
            load.ledger.report(name, f"the session of {principal} is lost")
            return
        try:
            answer = json.loads(messages.call_text(reply.body))
        except ValueError as error:
            load.ledger.report(name, str(error)[:300])
            continue
        if load.ledger.check_answer(name, principal, nonce, answer):
            load.ledger.count(name, "answered")
        await asyncio.sleep(0.05)


async def _post_until_answered(load: Load, body: bytes, headers: dict[str, str]) -> RawReply:
    """Posts again while a gateway answers for the server, which is safe for what only reads."""
    while True:
        with contextlib.suppress(OSError, TimeoutError, http.client.HTTPException):
            async with asyncio.timeout(CALL_SECONDS):
                reply = await _post(load.port, body, headers)
                if reply.status not in (0, 502, 503, 504) and (reply.status != 200 or reply.body):
                    return reply
        await asyncio.sleep(0.05)


async def _post(port: int, body: bytes, headers: dict[str, str]) -> RawReply:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        sent = {"Host": "localhost", "Content-Length": str(len(body)), "Connection": "close", **headers}
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {text}" for name, text in sent.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        return await read_reply(reader)
    finally:
        writer.close()


def sdk_client(era: Era) -> LoadClient:
    """The official SDK's client, which does not retry: a call may fail, and the next one is made by a new client."""
    name = f"official SDK, {era.value}"
    mode: Any = "legacy" if era is Era.HANDSHAKE else "auto"

    async def run(load: Load, principal: str) -> None:
        while not load.is_over:
            with contextlib.suppress(Exception):
                await _call_by_sdk(load, principal, name, mode)
            await asyncio.sleep(0.1)

    return run


async def _call_by_sdk(load: Load, principal: str, name: str, mode: Any) -> None:
    """Calls until a call fails."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token_of(principal)}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http_client:
        async with Client(streamable_http_client(load.url, http_client=http_client), mode=mode) as client:
            while not load.is_over:
                nonce, kind = make_nonce(f"{name}-{principal}"), random.choice(("read", "write"))
                if kind == "write":
                    load.ledger.open.add(nonce)
                try:
                    async with asyncio.timeout(30):
                        result: Any = await client.call_tool(kind, {"nonce": nonce})
                except Exception as error:
                    lost = "session" in str(error).lower() and "terminated" in str(error).lower()
                    load.ledger.count(name, "failed")
                    if lost:
                        load.ledger.report(name, f"the session of {principal} is lost: {error}")
                    raise
                if result.is_error:
                    load.ledger.report(name, str(result.content)[:300])
                    continue
                if load.ledger.check_answer(name, principal, nonce, json.loads(result.content[0].text)):
                    load.ledger.count(name, "answered")
                    if kind == "write":
                        load.ledger.answered.add(nonce)
                await asyncio.sleep(0.02)
