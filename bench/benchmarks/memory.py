"""What an idle client costs the server in memory, over HTTP: a session without a stream, an open stream.

The growth of the process's PSS while 2,000 are opened, divided by 2,000; some are opened before, so that what is
made once is not counted. The kernel's socket buffers are not in it. The peers run as shipped, for set to JSON
replies they open no streams. `bare` answers the same request with a silent event stream straight on uvicorn.
"""

import contextlib
import socket
from collections.abc import Callable

from bench import machine, report
from bench.idle_clients import (
    StreamRefusedError,
    is_closed,
    memory_bytes,
    open_get_stream,
    open_session,
    open_subscription,
)
from bench.options import BenchOptions
from bench.peers import BARE, OURS
from bench.report import BenchReport, FigureTable
from bench.server_process import HttpServerProcess

COUNT = 2_000
BEFORE = 200


OpenClient = Callable[[HttpServerProcess], socket.socket | None]


def measure(options: BenchOptions) -> BenchReport:
    machine.raise_descriptor_limit()
    kinds: dict[str, OpenClient] = {
        "session": open_session,
        "subscriptions/listen stream": open_subscription,
        "session with GET stream": open_get_stream,
    }
    found: dict[str, dict[str, float | None]] = {}
    notes = [*options.peers.missing]
    for server in (BARE, OURS, *options.peers.names):
        found[server] = dict.fromkeys(kinds)
        for kind, open_one in kinds.items():
            if server == BARE and open_one is not open_subscription:
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
                    before = memory_bytes(process)
                stream = open_one(process)
                if stream is not None:
                    streams.append(stack.enter_context(stream))
                opened += 1
        except StreamRefusedError as refused:
            note = f"refused after {opened:,}: {refused}" if opened else str(refused)
        if opened < 2 * BEFORE:
            return None, note
        grown = memory_bytes(process) - before
        if any(map(is_closed, streams)):
            raise RuntimeError(f"{server} has closed streams that were to stay open")
        return grown / (opened - BEFORE) / 1e3, note
