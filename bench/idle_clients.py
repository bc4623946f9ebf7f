"""Clients that open a session or a stream and do nothing more, and the memory of the server that holds them."""

import socket
import time
from pathlib import Path

from bench import messages
from bench.proxy_process import PipeFront
from bench.server_process import REPLY_SECONDS, HttpServerProcess
from deltamcp.values import Era


class StreamRefusedError(Exception):
    """A server does not offer what was asked."""


def memory_bytes(process: HttpServerProcess | PipeFront) -> int:
    """The process's own memory and its share of what it shares (PSS), half a second after the last client came."""
    time.sleep(0.5)
    rollup = Path(f"/proc/{process.server.process.pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))) * 1024


def is_closed(stream: socket.socket) -> bool:
    stream.setblocking(False)
    try:
        return stream.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def open_session(process: HttpServerProcess) -> None:
    process.handshake()


def open_subscription(process: HttpServerProcess) -> socket.socket:
    """
    Raises:
        StreamRefusedError: the server opens no such stream.
    """
    method = "subscriptions/listen"
    body = messages.request(Era.MODERN, method, {"notifications": {"toolsListChanged": True}})
    return _open_stream(process, "POST", messages.headers(Era.MODERN, method), body, b"acknowledged")


def open_get_stream(process: HttpServerProcess) -> socket.socket:
    """
    Raises:
        StreamRefusedError: the server opens no such stream.
    """
    session = process.handshake()
    headers = {
        "Accept": "text/event-stream",
        "Mcp-Session-Id": session,
        "MCP-Protocol-Version": messages.REVISIONS[Era.HANDSHAKE],
    }
    return _open_stream(process, "GET", headers, b"", b"text/event-stream")


def _open_stream(
    process: HttpServerProcess, verb: str, headers: dict[str, str], body: bytes, until: bytes
) -> socket.socket:
    """Opens an event stream on a connection of its own, and reads it until something was sent."""
    opened = socket.create_connection(("127.0.0.1", process.port), timeout=REPLY_SECONDS)
    try:
        sent = {"Host": f"127.0.0.1:{process.port}", "Content-Length": str(len(body)), **headers}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        opened.sendall("\r\n".join(lines).encode() + body)
        read = b""
        while until not in read:
            part = opened.recv(65536)
            read += part
            if not part or b"text/event-stream" not in read:
                raise StreamRefusedError(read.split(b"\r\n")[0].decode())
    except BaseException:
        opened.close()
        raise
    return opened
