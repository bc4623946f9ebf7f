"""The attacks on servers over stdio, whose process is its client's own: only memory counts, and that it answers."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bench import messages
from bench.hostile import payloads
from bench.hostile.attack import Answered
from bench.hostile.attacked_server import MEGABYTE, cap_memory, reset_peak, resident_bytes
from bench.hostile.payloads import sizes
from bench.hostile.rule import ATTEMPTS, Measured, best_of
from bench.hostile.servers.options import ServerOptions
from bench.peers import ROOT
from deltamcp.values import Era

_REST_SECONDS = 1.0
_REPLY_SECONDS = 20.0


class PipedServer:
    """A server process behind pipes, read by a thread unless nobody reads. Leaving the `with` block kills it."""

    def __init__(self, name: str, drains_stderr: bool = True, package: str = "bench.hostile.servers") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-E", "-m", f"{package}.{name}", "stdio", ServerOptions().encode()],
            cwd=ROOT,
            env={**os.environ, "FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if drains_stderr else subprocess.PIPE,
        )
        cap_memory(self.process.pid)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reads = threading.Event()
        self._reads.set()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> "PipedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
            self._reads.wait()

    def stop_reading(self) -> None:
        """Leaves all replies from now on in the pipe, but for one."""
        self._reads.clear()

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self, seconds: float = _REPLY_SECONDS) -> bytes:
        """
        Raises:
            queue.Empty: there is no reply in time.
        """
        return self._lines.get(timeout=seconds)

    def ask(self, line: bytes) -> str:
        """Sends a line and says what it was answered, in a few words."""
        self.send(line)
        return self._describe()

    def _describe(self) -> str:
        try:
            said = json.loads(self.receive())
        except queue.Empty:
            return "no answer"
        if "error" in said:
            return f"{said['error']['message'][:100]} (id {said.get('id')})"
        result = said.get("result", {})
        return str(result["content"][0]["text"][:100]) if result.get("content") else "a result"

    def settle(self) -> str:
        return self.ask(messages.call(Era.MODERN, "settle", {}))


def _validation(server: PipedServer) -> Answered:
    return _send_sizes(server, lambda size: payloads.call("total", b'{"values":' + payloads.items(b"[]", size) + b"}"))


def _parse(server: PipedServer) -> Answered:
    return _send_sizes(
        server, lambda size: payloads.request("server/discover", {"x": "@@@"}, payloads.items(b"[]", size))
    )


def _send_sizes(server: PipedServer, make: Callable[[int], bytes]) -> Answered:
    said = [server.ask(make(size)) for size in sizes()]
    return Answered(
        "; ".join(list(dict.fromkeys(said))[:3]), "a request was not answered" if "no answer" in said else ""
    )


def _long_line(server: PipedServer) -> Answered:
    body = messages.call(Era.MODERN, "echo", {"text": "@"}, id=77)
    said = server.ask(body.replace(b'"@"', b'"' + b"x" * (100 * MEGABYTE) + b'"'))
    then = server.ask(messages.request(Era.MODERN, "server/discover"))
    return Answered(f"{said}; then {then}", "" if then == "a result" else "the server answers no more")


def _unread(server: PipedServer) -> Answered:
    server.stop_reading()
    sent = 0

    def send() -> None:
        nonlocal sent
        for number in range(50):
            server.send(messages.call(Era.MODERN, "read_large_text", {}, id=number + 10))
            sent += 1

    threading.Thread(target=send, daemon=True).start()
    time.sleep(3)
    return Answered(f"{sent} calls were sent")


def _undrained_stderr(server: PipedServer) -> Answered:
    for number in range(300):
        said = server.ask(messages.call(Era.MODERN, "fail", {}, id=number + 10))
        if said == "no answer":
            return Answered(f"no answer to call {number}", "a full stderr pipe keeps the server from answering")
    return Answered(f"300 answers: {said}")


class StdioAttack(NamedTuple):
    name: str
    title: str
    run: Callable[[PipedServer], Answered]
    drains_stderr: bool = True
    reads: bool = True


STDIO_ATTACKS = (
    StdioAttack("stdio-validation", "stdio: `total` with 4 MB of `[]`", _validation),
    StdioAttack("stdio-parse", "stdio: 4 MB of `[]`, only decoded", _parse),
    StdioAttack("stdio-line", "stdio: a line of 100 MB", _long_line),
    StdioAttack("stdio-unread", "stdio: 50 replies of 20 MB that nobody reads", _unread, reads=False),
    StdioAttack("stdio-stderr", "stdio: 300 logged failures, stderr unread", _undrained_stderr, drains_stderr=False),
)


def measure(attack: StdioAttack, server: str, bound: float, attempts: int = ATTEMPTS) -> Measured:
    """Makes an attack, again if it breaks the rule, and takes the best figures. `bound` is when it is ended."""
    made: list[Measured] = []
    while len(made) < attempts:
        made.append(_measure_once(attack, server, bound))
        if not made[-1].is_doubtful:
            break
    return best_of(made)


def _measure_once(attack: StdioAttack, server: str, bound: float) -> Measured:
    with PipedServer(server, attack.drains_stderr) as process:
        process.ask(messages.call(Era.MODERN, "total", {"values": ["x"]}))  # what is loaded at first use does not count
        process.settle()
        before = resident_bytes(process.process.pid)
        reset_peak(process.process.pid)
        ends: list[Answered] = []

        def run() -> None:
            try:
                ends.append(attack.run(process))
            except Exception as error:  # the server has ended
                ends.append(Answered(f"{type(error).__name__}: {error}", "the server has ended"))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(bound)
        timed_out = thread.is_alive()
        peak = resident_bytes(process.process.pid, peak=True)
        if not timed_out:
            time.sleep(_REST_SECONDS)
            if attack.reads:
                process.settle()
        after = resident_bytes(process.process.pid)
    answered: Any = ends[0] if ends else Answered(f"not over after {bound:g} s", f"not answered within {bound:g} s")
    return Measured(
        grown_mb=(peak - before) / MEGABYTE,
        retained_mb=None if timed_out else (after - before) / MEGABYTE,
        answered=answered.text,
        broken=answered.broken,
        timed_out=timed_out,
    )
