"""Faults over stdio, each on a process of its own."""

import contextlib
import dataclasses
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from bench import messages
from bench.faults.connection_faults import FLAT_MB
from bench.faults.fault_server import PACKAGE, comes_true
from bench.faults.outcome import Grade, Outcome, harmed, right, safe, worst
from bench.hostile import payloads
from bench.hostile.attacked_server import MEGABYTE, reset_peak, resident_bytes
from bench.hostile.stdio_attacks import PipedServer
from deltamcp.values import Era

START_SECONDS = 60.0
EXIT_SECONDS = 20.0
ANSWER_SECONDS = 5.0
NEVER_ENDING = 5_000
UNREAD = 20_000


@dataclasses.dataclass(frozen=True)
class StdioFault:
    """One row of the table of faults over stdio."""

    name: str
    title: str
    run: Callable[[PipedServer], Outcome]


class StdioClient:
    """A client of a server behind pipes, which finds the answers to its requests by their ids."""

    def __init__(self, server: PipedServer) -> None:
        self.server = server
        self._others: list[dict[str, Any]] = []

    def answer(self, id: Any, seconds: float = ANSWER_SECONDS) -> dict[str, Any] | None:
        """The answer with an id; None if there is none in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self._others:
                if message.get("id") == id and "method" not in message:
                    self._others.remove(message)
                    return message
            with contextlib.suppress(queue.Empty, ValueError):
                self._others.append(json.loads(self.server.receive(max(0.01, end - time.monotonic()))))
        return None

    def call(self, tool: str, arguments: dict[str, Any], id: int) -> dict[str, Any] | None:
        self.server.send(messages.call(Era.MODERN, tool, arguments, id))
        return self.answer(id)

    def state(self) -> dict[str, int]:
        said = self.call("state", {}, 999_999)
        assert said is not None
        told: dict[str, int] = json.loads(said["result"]["content"][0]["text"])
        return told

    @property
    def lives(self) -> bool:
        if self.server.process.poll() is not None:
            return False
        with contextlib.suppress(OSError):
            return self.call("add", {"a": 2, "b": 3}, 888_888) is not None
        return False


def _wrong_line(body: bytes) -> Callable[[PipedServer], Outcome]:
    def run(server: PipedServer) -> Outcome:
        client = StdioClient(server)
        server.send(body)
        said = client.answer(None, 2) or client.answer(1, 0.1)
        if not client.lives:
            return harmed("the server answers no more")
        if said is None:
            return harmed("no answer")
        return right(str(said["error"]["code"])) if "error" in said else safe("accepted")

    return run


def _echo(value: bytes, id: bytes = b"1") -> bytes:
    return payloads.call("echo", b'{"value":' + value + b"}").replace(b'"id":1', b'"id":' + id, 1)


def _all(*runs: Callable[[PipedServer], Outcome]) -> Callable[[PipedServer], Outcome]:
    return lambda server: worst(run(server) for run in runs)


def _long_line(server: PipedServer) -> Outcome:
    client = StdioClient(server)
    reset_peak(server.process.pid)
    before = resident_bytes(server.process.pid)
    server.send(_echo(b'"' + b"x" * (100 * MEGABYTE) + b'"', b"77"))
    said = client.answer(None, 20) or client.answer(77, 0.1)
    grown = (resident_bytes(server.process.pid, peak=True) - before) / MEGABYTE
    if not client.lives:
        return harmed("the server answers no more")
    text = f"{'no answer' if said is None else 'refused' if 'error' in said else 'accepted'}, +{grown:.0f} MB"
    return right(text) if said is not None and "error" in said and grown <= FLAT_MB else harmed(text)


def _returns(tool: str, what: str) -> Callable[[PipedServer], Outcome]:
    """A tool that returns what cannot be sent, or ends the program."""

    def run(server: PipedServer) -> Outcome:
        client = StdioClient(server)
        said = client.call(tool, {}, 5)
        if not client.lives:
            code = server.process.poll()
            return harmed("mute from then on" if code is None else f"exits with {code}")
        if said is None:
            return harmed("no answer")
        if "error" in said or said["result"].get("isError"):
            return right("isError, server lives")
        return harmed(f"{what}: {json.dumps(said['result'].get('structuredContent'))[:40]}")

    return run


def _large_result(server: PipedServer) -> Outcome:
    client = StdioClient(server)
    reset_peak(server.process.pid)
    before, began = resident_bytes(server.process.pid), time.monotonic()
    server.send(messages.call(Era.MODERN, "list_many", {}, 5))
    said = client.answer(5, 60)
    took = time.monotonic() - began
    grown = (resident_bytes(server.process.pid, peak=True) - before) / MEGABYTE
    if said is None:
        return harmed("no answer")
    sent = len(json.dumps(said)) / MEGABYTE
    return right(f"{took:.1f} s, {sent:.1f} MB on the wire, +{grown:.0f} MB")


def _unread(server: PipedServer) -> Outcome:
    reset_peak(server.process.pid)
    before = resident_bytes(server.process.pid)
    server.stop_reading()
    sent = [0]

    def send() -> None:
        with contextlib.suppress(OSError):
            for number in range(UNREAD):
                server.send(messages.call(Era.MODERN, "echo", {"value": "x" * 1_000}, number + 10))
                sent[0] += 1

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(12)
    grown = (resident_bytes(server.process.pid, peak=True) - before) / MEGABYTE
    text = f"{sent[0]:,} taken, +{grown:.0f} MB"
    return right(text) if grown <= FLAT_MB else harmed(text)


def _never_ending(server: PipedServer) -> Outcome:
    client = StdioClient(server)
    before_state = client.state()["started"]
    before = resident_bytes(server.process.pid)
    for number in range(NEVER_ENDING):
        server.send(messages.call(Era.MODERN, "wait", {"seconds": 600}, number + 1_000))
    comes_true(lambda: client.state()["started"] - before_state >= NEVER_ENDING, 20)
    each = (resident_bytes(server.process.pid) - before) / NEVER_ENDING / 1e3
    return right(f"{each:.0f} kB each, others served") if client.lives else harmed("others are not served")


def _cancelled(server: PipedServer) -> Outcome:
    client = StdioClient(server)
    server.send(messages.call(Era.MODERN, "wait", {"seconds": 5}, 7))
    comes_true(lambda: client.state()["started"] == 1)
    server.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}')
    if not comes_true(lambda: client.state()["cancelled"] == 1, 3):
        return harmed("the tool runs on")
    return right("cancelled, no answer") if client.answer(7, 0.5) is None else safe("cancelled, and answered")


def _leave(with_calls: bool) -> Callable[[PipedServer], Outcome]:
    def run(server: PipedServer) -> Outcome:
        _start_calls(server, 3 if with_calls else 0)
        assert server.process.stdin is not None
        server.process.stdin.close()
        return _judge_exit(server)

    return run


def _terminate(server: PipedServer) -> Outcome:
    client = _start_calls(server, 3, 1.5)
    server.process.send_signal(signal.SIGTERM)
    told = sum(client.answer(number, 4) is not None for number in (11, 12, 13))
    found = _judge_exit(server)
    text = f"{told} of 3 answered, {found.text}"
    return Outcome(found.grade, text) if told == 3 else harmed(text)


def _close_reading_end(server: PipedServer) -> Outcome:
    _start_calls(server, 1)
    server.stop_reading()
    assert server.process.stdout is not None
    server.send(messages.call(Era.MODERN, "add", {"a": 1, "b": 1}, 21))  # the reading thread waits after this reply
    time.sleep(0.5)
    server.process.stdout.close()
    with contextlib.suppress(OSError):
        for number in range(50):
            server.send(messages.call(Era.MODERN, "add", {"a": 1, "b": 1}, number + 30))
            time.sleep(0.02)
    return _judge_exit(server)


def _start_calls(server: PipedServer, number: int, seconds: float = 30) -> StdioClient:
    client = StdioClient(server)
    for place in range(number):
        server.send(messages.call(Era.MODERN, "wait", {"seconds": seconds}, place + 11))
    comes_true(lambda: client.state()["started"] == number)
    return client


def _judge_exit(server: PipedServer) -> Outcome:
    began = time.monotonic()
    try:
        code = server.process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return harmed(f"still there after {EXIT_SECONDS:g} s")
    return Outcome(Grade.SAFE if code else Grade.RIGHT, f"exit {code} after {time.monotonic() - began:.1f} s")


_BATCH = b"[" + messages.call(Era.MODERN, "echo", {"value": 1}) + b"]"

STDIO_FAULTS = (
    StdioFault("stdio-not-json", "a line that is not JSON · a batch", _all(_wrong_line(b"words"), _wrong_line(_BATCH))),
    StdioFault("stdio-id", "id null", _wrong_line(_echo(b"1", b"null"))),
    StdioFault(
        "stdio-values",
        "nesting of 10,000 · integer of 5,000 digits",
        _all(_wrong_line(_echo(b"[" * 10_000 + b"]" * 10_000)), _wrong_line(_echo(b"9" * 5_000))),
    ),
    StdioFault("stdio-utf-8", "invalid UTF-8", _wrong_line(_echo(b'"\xff\xfe"'))),
    StdioFault("stdio-line", "a line of 100 MB", _long_line),
    StdioFault("stdio-nan", "a tool returns NaN", _returns("give_nan", "sent as")),
    StdioFault("stdio-surrogate", "a tool returns a lone surrogate", _returns("give_surrogate", "sent as")),
    StdioFault("stdio-exit", "an `async` tool raises SystemExit", _returns("exit_async", "answered")),
    StdioFault("stdio-exit-plain", "a plain tool raises SystemExit", _returns("exit_plain", "answered")),
    StdioFault("stdio-large", "a tool returns 50 MB (ours with a budget of 2,000 tokens)", _large_result),
    StdioFault("stdio-unread", f"{UNREAD:,} calls sent, nothing read", _unread),
    StdioFault("stdio-endless", f"{NEVER_ENDING:,} calls that do not return", _never_ending),
    StdioFault("stdio-cancelled", "a cancelled call", _cancelled),
    StdioFault("stdio-left", "stdin closed with calls in flight", _leave(with_calls=True)),
    StdioFault("stdio-left-idle", "stdin closed when idle", _leave(with_calls=False)),
    StdioFault("stdio-sigterm", "SIGTERM with calls in flight", _terminate),
    StdioFault("stdio-reading-end", "the client closes its reading end", _close_reading_end),
)


def measure(fault: StdioFault, library: str) -> Outcome:
    with PipedServer(library, package=PACKAGE) as server:
        server.send(messages.call(Era.MODERN))
        StdioClient(server).answer(1, START_SECONDS)  # what it loads at its first call does not count
        return fault.run(server)
