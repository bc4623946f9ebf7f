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

from bench import messages, report
from bench.options import BenchOptions
from bench.peers import BARE, OURS
from bench.report import BenchReport, FigureTable
from bench.server_process import REPLY_SECONDS, HttpServerProcess
from deltamcp.values import Era

COUNT = 2_000
BEFORE = 200


class StreamRefusedError(Exception):
    """A server does not offer what was asked."""


OpenClient = Callable[[HttpServerProcess], socket.socket | None]


def measure(options: BenchOptions) -> BenchReport:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kinds: dict[str, OpenClient] = {
        "session": _open_session,
        "subscriptions/listen stream": _open_subscription,
        "session with GET stream": _open_get_stream,
    }
    found: dict[str, dict[str, float | None]] = {}
    notes = [*options.peers.missing]
    for server in (BARE, OURS, *options.peers.names):
        found[server] = dict.fromkeys(kinds)
        for kind, open_one in kinds.items():
            if server == BARE and open_one is not _open_subscription:
                continue
            found[server][kind], note = _kilobytes_each(server, open_one)
            if note is not None:
                notes.append(f"{server}, {kind}: {note}")
    rows = [(name, list(figures.values())) for name, figures in found.items()]
    table = FigureTable(f"Memory of each of {COUNT:,} idle clients, kB", "PSS, HTTP.", list(kinds), rows, notes)
    session, stream, _ = found[OURS].values()
    if session is None or stream is None:
        raise RuntimeError(f"ours opens nothing: {notes}")
    verdicts = [report.at_most("idle session", session, 8, " kB"), report.at_most("idle stream", stream, 20, " kB")]
    return BenchReport([table], verdicts)


def _kilobytes_each(server: str, open_one: OpenClient) -> tuple[float | None, str | None]:
    """Measures kB a client, and says what was refused. Where a server refuses more, those it took are counted."""
    with contextlib.ExitStack() as stack:
        shipped = ["shipped"] if server not in (BARE, OURS) else []
        process = stack.enter_context(HttpServerProcess(server, "add", *shipped))
        streams: list[socket.socket] = []
        opened, before, note = 0, 0, None
        try:
            while opened < BEFORE + COUNT:
                if opened == BEFORE:
                    before = _memory_bytes(process)
                stream = open_one(process)
                if stream is not None:
                    streams.append(stack.enter_context(stream))
                opened += 1
        except StreamRefusedError as refused:
            note = f"refused after {opened:,}: {refused}" if opened else str(refused)
        if opened < 2 * BEFORE:
            return None, note
        grown = _memory_bytes(process) - before
        if any(map(_is_closed, streams)):
            raise RuntimeError(f"{server} has closed streams that were to stay open")
        return grown / (opened - BEFORE) / 1e3, note


def _memory_bytes(process: HttpServerProcess) -> int:
    """The process's own memory and its share of what it shares (PSS), half a second after the last client came."""
    time.sleep(0.5)
    rollup = Path(f"/proc/{process.server.process.pid}/smaps_rollup").read_text()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))) * 1024


def _is_closed(stream: socket.socket) -> bool:
    stream.setblocking(False)
    try:
        return stream.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def _open_session(process: HttpServerProcess) -> None:
    process.handshake()


def _open_subscription(process: HttpServerProcess) -> socket.socket:
    method = "subscriptions/listen"
    body = messages.request(Era.MODERN, method, {"notifications": {"toolsListChanged": True}})
    return _open_stream(process, "POST", messages.headers(Era.MODERN, method), body, b"acknowledged")


def _open_get_stream(process: HttpServerProcess) -> socket.socket:
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
    """Opens an event stream on a connection of its own, and reads it until something was sent.

    Raises:
        StreamRefusedError: the reply is no event stream.
    """
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
