"""The limit: nothing but the event loop and, over HTTP, uvicorn. Bytes in, the same bytes out every time.

Over stdio it echoes lines. Over HTTP a request is read and answered with a file's bytes or, without a file, with
an event stream that stays silent, as idle as a stream can be.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any


async def echo_lines() -> None:
    """Writes every line of stdin to stdout."""
    loop, closed, rest = asyncio.get_running_loop(), asyncio.Event(), b""

    def readable() -> None:
        nonlocal rest
        data = os.read(0, 1 << 16)
        if not data:
            closed.set()
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            os.write(1, line + b"\n")

    loop.add_reader(0, readable)
    await closed.wait()


class FixedAnswerApp:
    """An ASGI application that answers every request with the same bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


async def open_silent_stream(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with an event stream that stays silent."""
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b": acknowledged\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(echo_lines())
    else:
        from .uvicorn_settings import serve

        answered = FixedAnswerApp(Path(sys.argv[3]).read_bytes()) if len(sys.argv) > 3 else open_silent_stream
        serve(answered, int(sys.argv[1]))
