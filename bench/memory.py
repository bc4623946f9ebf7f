"""What an idle client costs the server in memory, over HTTP: a session without a stream, an open stream.

The growth of the process's PSS while 2,000 are opened, divided by 2,000; some are opened before, so that what is
made once is not counted. The kernel's socket buffers are not in it. The peers run as shipped, for set to JSON
replies they open no streams. `bare` answers the same request with a silent event stream straight on uvicorn.
"""

import contextlib
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

from deltamcp.bench.speed import messages, report
from deltamcp.bench.speed.clients import REPLY_SECONDS, HttpSide
from deltamcp.bench.speed.messages import Era
from deltamcp.bench.speed.report import Report, Table
from deltamcp.bench.speed.sides import BARE, OURS, Side

COUNT = 2_000
BEFORE = 200


class Refused(Exception):  # noqa: N818
    """A side does not offer what was asked."""


Open = Callable[[HttpSide], socket.socket | None]


def measure() -> Report:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kinds: dict[str, Open] = {
        "session": _session,
        "subscriptions/listen stream": _listen,
        "session with GET stream": _get,
    }
    found: dict[str, dict[str, float | None]] = {}
    notes: list[str] = []
    for side in (BARE, OURS, Side("sdk"), Side("fastmcp")):
        found[side.name] = dict.fromkeys(kinds)
        for kind, open_one in kinds.items():
            if side == BARE and open_one is not _listen:
                continue
            found[side.name][kind], note = _each(side, open_one)
            if note is not None:
                notes.append(f"{side.name}, {kind}: {note}")
    rows = [(name, list(figures.values())) for name, figures in found.items()]
    table = Table(f"Memory of each of {COUNT:,} idle clients, kB", "PSS, HTTP.", list(kinds), rows, notes)
    session, stream, _ = found["ours"].values()
    if session is None or stream is None:
        raise RuntimeError(f"ours opens nothing: {notes}")
    verdicts = [report.at_most("idle session", session, 8, " kB"), report.at_most("idle stream", stream, 20, " kB")]
    return Report([table], verdicts)


def _each(side: Side, open_one: Open) -> tuple[float | None, str | None]:
    """kB for one, and what there is to say about it. A side that refuses more is divided by what it took."""
    with contextlib.ExitStack() as stack:
        shipped = ["shipped"] if side not in (BARE, OURS) else []
        server = stack.enter_context(HttpSide(side, "add", *shipped))
        streams: list[socket.socket] = []
        opened, before, note = 0, 0, None
        try:
            while opened < BEFORE + COUNT:
                if opened == BEFORE:
                    before = _settled(server)
                stream = open_one(server)
                if stream is not None:
                    streams.append(stack.enter_context(stream))
                opened += 1
        except Refused as refused:
            note = f"refused after {opened:,}: {refused}" if opened else str(refused)
        if opened < 2 * BEFORE:
            return None, note
        grown = _settled(server) - before
        if any(map(_is_closed, streams)):
            raise RuntimeError(f"{side.name} has closed streams that were to stay open")
        return grown / (opened - BEFORE) / 1e3, note


def _settled(server: HttpSide) -> int:
    """The process's own memory and its share of what it shares, in bytes."""
    time.sleep(0.5)
    told = Path(f"/proc/{server.child.process.pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in told.splitlines() if line.startswith("Pss:"))) * 1024


def _is_closed(stream: socket.socket) -> bool:
    stream.setblocking(False)
    try:
        return stream.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def _session(server: HttpSide) -> None:
    server.handshake()


def _listen(server: HttpSide) -> socket.socket:
    method = "subscriptions/listen"
    body = messages.request(Era.MODERN, method, {"notifications": {"toolsListChanged": True}})
    return _stream(server, "POST", messages.headers(Era.MODERN, method), body, b"acknowledged")


def _get(server: HttpSide) -> socket.socket:
    session = server.handshake()
    headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session, "MCP-Protocol-Version": Era.HANDSHAKE.value}
    return _stream(server, "GET", headers, b"", b"text/event-stream")


def _stream(server: HttpSide, verb: str, headers: dict[str, str], body: bytes, until: bytes) -> socket.socket:
    """An event stream on a connection of its own, read until something was said.

    Raises:
        Refused: the reply is no event stream.
    """
    opened = socket.create_connection(("127.0.0.1", server.port), timeout=REPLY_SECONDS)
    try:
        sent = {"Host": f"127.0.0.1:{server.port}", "Content-Length": str(len(body)), **headers}
        lines = [f"{verb} /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        opened.sendall("\r\n".join(lines).encode() + body)
        read = b""
        while until not in read:
            part = opened.recv(65536)
            read += part
            if not part or b"text/event-stream" not in read:
                raise Refused(read.split(b"\r\n")[0].decode())
    except BaseException:
        opened.close()
        raise
    return opened
