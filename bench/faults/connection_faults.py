"""Faults of connections, calls and signals over HTTP: slow clients, clients that leave, tools that end the program."""

import concurrent.futures
import contextlib
import itertools
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from bench import messages
from bench.faults.fault_server import FaultServer, comes_true
from bench.faults.message_faults import HttpFault, judge
from bench.faults.outcome import Grade, Outcome, harmed, right, safe, worst
from bench.hostile.attacked_server import MEGABYTE, HttpReply, reset_peak, resident_bytes
from bench.idle_clients import StreamRefusedError, is_closed, memory_bytes, open_get_stream, open_subscription
from deltamcp.values import Era

LARGE = 100 * MEGABYTE
FLAT_MB = 24.0
"""How much a process may grow and count as flat: what it loads at its first use is in it."""
SLOW_CONNECTIONS = 200
IDLE_STREAMS = 5_000
IDLE_KB = 20.0
ABORTED_CALLS = 10_000
CALLS_AT_ONCE = 100
EXIT_SECONDS = 20.0
ANSWER_SECONDS = 15.0
HELD_UP_MS = 250.0
"""Others who wait longer than that for `add` are held up; the limit allows for what else the machine does."""


def _large_body(chunked: bool) -> Callable[[FaultServer, Era], Outcome]:
    def run(server: FaultServer, era: Era) -> Outcome:
        reset_peak(server.process.pid)
        before = resident_bytes(server.process.pid)
        framing = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(LARGE)}
        headers = server.headers(era, name="echo") | {"Host": "127.0.0.1"} | framing
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items()), "", ""])
        piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n" if chunked else b"x" * 65_536
        with server.caller.connect() as stream, contextlib.suppress(OSError):
            stream.sendall(head.encode())
            with contextlib.suppress(OSError):
                for _ in range(LARGE // 65_536):
                    stream.sendall(piece)
            said = stream.recv(65_536)
        grown = (resident_bytes(server.process.pid, peak=True) - before) / MEGABYTE
        status = int(said.split()[1]) if said.startswith(b"HTTP/1.1 ") else 0
        if status != 413 or grown > FLAT_MB:
            return harmed(f"{status or 'no answer'}, +{grown:.0f} MB")
        told = b'"error"' in said
        return right("413") if told else safe("413 without a JSON-RPC error")

    return run


# Slow clients and idle streams


def _slow(what: str, deadline: float) -> Callable[[FaultServer, Era], Outcome]:
    """Connections that send headers or a body a byte at a time, for five seconds beyond the deadline of ours."""

    def run(server: FaultServer, era: Era) -> Outcome:
        opening = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        if what == "body":
            headers = server.headers(era, name="echo") | {"Content-Length": "100000"}
            opening += "".join(f"{name}: {text}\r\n" for name, text in headers.items()) + "\r\n"
        sent = itertools.cycle(b"X-Slow: x\r\n" if what == "headers" else b"x")
        with contextlib.ExitStack() as stack:
            other = stack.enter_context(server.other_caller())
            slow = [stack.enter_context(server.caller.connect()) for _ in range(SLOW_CONNECTIONS)]
            for one in slow:
                one.sendall(opening.encode())
            time.sleep(0.5)
            other.report()
            began, open_ = time.monotonic(), set(slow)
            while open_ and time.monotonic() < began + deadline + 5:
                byte = bytes([next(sent)])
                for one in list(open_):
                    if _is_gone(one, byte):
                        open_.discard(one)
                time.sleep(0.1)
            took, waited = time.monotonic() - began, other.report()
        closed = SLOW_CONNECTIONS - len(open_)
        if waited.longest * 1e3 > HELD_UP_MS or waited.failed:
            return harmed(f"{closed} closed, others waited {waited.longest * 1e3:.0f} ms")
        return right(f"all closed in {took:.0f} s") if not open_ else harmed(f"{closed} closed in {took:.0f} s")

    return run


def _is_gone(connection: socket.socket, byte: bytes) -> bool:
    """Sends one byte more, if the server has not closed the connection or answered."""
    connection.setblocking(False)
    try:
        if connection.recv(1 << 16) is not None:
            return True
    except BlockingIOError:
        pass
    except OSError:
        return True
    try:
        connection.send(byte)
    except BlockingIOError:
        pass
    except OSError:
        return True
    return False


def _idle_streams(server: FaultServer, era: Era) -> Outcome:
    open_one = open_subscription if era is Era.MODERN else open_get_stream
    with contextlib.ExitStack() as stack:
        streams: list[socket.socket] = []
        before = 0
        try:
            for number in range(200 + IDLE_STREAMS):
                if number == 200:
                    before = memory_bytes(server)
                streams.append(stack.enter_context(open_one(server)))
        except (StreamRefusedError, OSError) as error:
            return harmed(f"refused after {len(streams):,}: {error}")
        each = (memory_bytes(server) - before) / IDLE_STREAMS / 1e3
        closed = sum(map(is_closed, streams))
        lives = server.lives
    if closed or not lives:
        return harmed(f"{closed:,} closed, {'serves on' if lives else 'serves no more'}")
    return Outcome(Grade.RIGHT if each <= IDLE_KB else Grade.SAFE, f"{each:.1f} kB each")


# Clients that leave, cancel, or use an id twice


def _start_calls(server: FaultServer, era: Era, number: int, seconds: float) -> list[socket.socket]:
    """Calls `wait` so many times, each on a connection of its own, and leaves the replies unread."""
    headers = server.headers(era, name="wait")
    return [
        server.caller.send(messages.call(era, "wait", {"seconds": seconds}, id=number), headers)
        for number in range(1, number + 1)
    ]


def _close(connections: list[socket.socket]) -> None:
    for one in connections:
        one.close()


def _disconnect(server: FaultServer, era: Era) -> Outcome:
    calls = 20
    connections = _start_calls(server, era, calls, 4)
    started = comes_true(lambda: server.state()["started"] >= calls)
    _close(connections)
    comes_true(lambda: server.state()["cancelled"] >= calls, 3)
    cancelled = server.state()["cancelled"]
    if not started:
        return harmed("the calls did not start")
    return right("the tool is cancelled") if cancelled == calls else harmed("the tool runs on")


def _aborted_calls(server: FaultServer, era: Era) -> Outcome:
    def abort(number: int) -> None:
        before = server.state()["started"]
        connections = _start_calls(server, era, number, 3)
        comes_true(lambda: server.state()["started"] >= before + number)
        _close(connections)

    for _ in range(2):
        abort(CALLS_AT_ONCE)
    time.sleep(4)
    tasks, memory = server.state()["tasks"], memory_bytes(server)
    for _ in range(ABORTED_CALLS // CALLS_AT_ONCE):
        abort(CALLS_AT_ONCE)
    time.sleep(4)
    comes_true(lambda: server.state()["tasks"] <= tasks, 5)
    leaked = server.state()["tasks"] - tasks
    grown = (memory_bytes(server) - memory) / MEGABYTE
    text = f"{max(0, leaked)} tasks, +{max(0.0, grown):.0f} MB"
    if leaked <= 0 and grown <= FLAT_MB:
        return right(text)
    return Outcome(Grade.HARMED if leaked > CALLS_AT_ONCE else Grade.SAFE, text)


def _cancelled(server: FaultServer, era: Era) -> Outcome:
    headers = server.headers(era, name="wait")
    with server.caller.send(messages.call(era, "wait", {"seconds": 4}, id=7), headers):
        comes_true(lambda: server.state()["started"] == 1)
        body = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}'
        server.caller.post(body, headers)
        cancelled = comes_true(lambda: server.state()["cancelled"] == 1, 3)
    return right("cancelled") if cancelled else harmed("the tool runs on")


def _same_id(server: FaultServer, era: Era) -> Outcome:
    headers, body = server.headers(era, name="wait"), messages.call(era, "wait", {"seconds": 1}, id=7)
    threads = concurrent.futures.ThreadPoolExecutor(2)
    calls = [threads.submit(server.caller.post, body, headers)]
    comes_true(lambda: server.state()["started"] == 1)
    calls.append(threads.submit(server.caller.post, body, headers))
    first, second = _replies(threads, calls)
    if first.status != 200 or b"waited" not in first.body:
        return harmed("the first is never answered")
    if b"waited" in second.body:
        return right("both answered")
    found = judge(second, (-32600,))
    return right(f"second refused {found.text}") if found.grade is Grade.RIGHT else found


def _replies(
    threads: concurrent.futures.ThreadPoolExecutor, calls: list[concurrent.futures.Future[HttpReply]]
) -> list[HttpReply]:
    """The replies that come in time, though a server may send comments for ever; the others have the status 0."""
    done, _ = concurrent.futures.wait(calls, ANSWER_SECONDS)
    threads.shutdown(wait=False)
    return [call.result() if call in done and call.exception() is None else HttpReply(0, b"") for call in calls]


# Tools that hold up others or end the program


def _blocked_loop(server: FaultServer, era: Era) -> Outcome:
    with server.other_caller() as other:
        time.sleep(0.5)
        other.report()
        server.call(era, "block", {"seconds": 2})
        waited = other.report().longest
    if "block" in server.server.stderr_end():
        return right(f"others wait {waited:.1f} s, the log names the tool")
    return safe(f"others wait {waited:.1f} s, nobody is told why")


def _sleeping_tools(server: FaultServer, era: Era) -> Outcome:
    headers, body = server.headers(era, name="sleep"), messages.call(era, "sleep", {"seconds": 1})
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(server.other_caller())
        time.sleep(0.5)
        other.report()
        for number in range(60):
            stack.enter_context(server.caller.send(body.replace(b'"id":1', b'"id":%d' % number), headers))
        time.sleep(2.5)
        waited = other.report()
    text = f"`add` waits {waited.longest * 1e3:.0f} ms"
    return right(text) if waited.longest * 1e3 <= HELD_UP_MS and not waited.failed else safe(text)


def _exits(tool: str) -> Callable[[FaultServer, Era], Outcome]:
    def run(server: FaultServer, era: Era) -> Outcome:
        threads = concurrent.futures.ThreadPoolExecutor(1)
        [reply] = _replies(threads, [threads.submit(server.call, era, tool, {})])
        time.sleep(0.3)
        if not server.lives:
            code = server.process.poll()
            return harmed("the server is mute" if code is None else f"the process exits with {code}")
        if reply.status == 200 and b'"isError":true' in reply.body.replace(b" ", b""):
            return right("isError, server lives")
        return safe(f"{reply.status}, server lives") if reply.status else harmed("no answer, server lives")

    return run


# SIGTERM


def _terminate_in_flight(server: FaultServer, era: Era) -> Outcome:
    headers = server.headers(era, name="wait")
    threads = concurrent.futures.ThreadPoolExecutor(3)
    calls = [
        threads.submit(server.caller.post, messages.call(era, "wait", {"seconds": 2.5}, id=number), headers)
        for number in (1, 2, 3)
    ]
    comes_true(lambda: server.state()["started"] == 3)
    server.process.send_signal(signal.SIGTERM)
    replies = _replies(threads, calls)
    exited = _exit(server)
    answered = sum(b"waited" in reply.body for reply in replies)
    told = sum(b'"error"' in reply.body or b'"isError":true' in reply.body for reply in replies)
    text = f"{answered} of 3 answered" + (f", {told} told why not" if told else "") + f", {exited}"
    if "exit" not in exited or answered + told < 3:
        return harmed(text)
    return right(text) if answered == 3 else safe(text)


def _terminate_with_stream(server: FaultServer, era: Era) -> Outcome:
    try:
        stream = open_subscription(server) if era is Era.MODERN else open_get_stream(server)
    except StreamRefusedError as refused:
        return harmed(f"no stream: {refused}")
    with stream:
        server.process.send_signal(signal.SIGTERM)
        exited = _exit(server)
    return right(exited) if "exit" in exited else harmed(exited)


def _exit(server: FaultServer) -> str:
    began = time.monotonic()
    try:
        code = server.process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"still there after {EXIT_SECONDS:g} s"
    return f"exit {code} after {time.monotonic() - began:.1f} s"


def _both(*runs: Callable[[FaultServer, Era], Outcome]) -> Callable[[FaultServer, Era], Outcome]:
    return lambda server, era: worst(run(server, era) for run in runs)


CONNECTION_FAULTS = (
    HttpFault(
        "body",
        "a body of 100 MB with · without a length",
        _both(_large_body(chunked=False), _large_body(chunked=True)),
        own_process=True,
    ),
    HttpFault(
        "slow-headers",
        f"{SLOW_CONNECTIONS} connections send headers a byte at a time",
        _slow("headers", 10),
        eras=(Era.MODERN,),
        own_process=True,
    ),
    HttpFault(
        "slow-body",
        f"{SLOW_CONNECTIONS} connections send a body a byte at a time",
        _slow("body", 30),
        eras=(Era.MODERN,),
        own_process=True,
    ),
    HttpFault("idle-streams", f"{IDLE_STREAMS:,} idle streams", _idle_streams, own_process=True),
    HttpFault("disconnect", "clients leave during a call", _disconnect, own_process=True),
    HttpFault("aborted", f"left after {ABORTED_CALLS:,} calls whose clients left", _aborted_calls, own_process=True),
    HttpFault("cancelled", "`notifications/cancelled`", _cancelled, eras=(Era.HANDSHAKE,), own_process=True),
    HttpFault("same-id", "two calls in flight with one id", _same_id, eras=(Era.HANDSHAKE,), own_process=True),
    HttpFault("blocked-loop", "an `async` tool blocks the loop for 2 s", _blocked_loop, own_process=True),
    HttpFault("sleeping-tools", "60 plain tools sleep for 1 s", _sleeping_tools, own_process=True),
    HttpFault("exit", "an `async` tool raises SystemExit", _exits("exit_async"), own_process=True),
    HttpFault("exit-plain", "a plain tool raises SystemExit", _exits("exit_plain"), own_process=True),
    HttpFault("sigterm", "SIGTERM with calls in flight", _terminate_in_flight, own_process=True),
    HttpFault("sigterm-stream", "SIGTERM with an idle stream open", _terminate_with_stream, own_process=True),
)
