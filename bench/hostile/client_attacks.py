"""The attacks of hostile servers on clients: what freezes the client, how it grows, and whether SIGINT ends it."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.hostile.attacked_server import MEGABYTE, cap_memory, put_first, resident_bytes
from bench.hostile.rule import ATTEMPTS, Measured, best_of
from bench.machine import SERVER_CORE, run_on_core
from bench.peers import OURS, ROOT
from bench.ports import find_free_port

_SERVER = Path(__file__).with_name("hostile_server.py")
_ENDLESS_SECONDS = 5.0
_END_SECONDS = 3.0
"""How long a client has to end after SIGINT."""


class ClientAttack(NamedTuple):
    name: str
    title: str
    kind: str
    action: str
    transport: str
    ends: bool = True
    """Whether the client must give up by itself."""

    @property
    def for_peers(self) -> bool:
        """Whether the peers are attacked too: over HTTP only where the attack needs it, for the time it takes."""
        return self.transport == "stdio" or self.kind == "cbor"


CLIENT_ATTACKS = (
    ClientAttack("client-refs", "client: a schema of 40 doubling `$ref`s", "references", "call", "stdio"),
    ClientAttack("client-refs-http", "the same over HTTP", "references", "call", "http"),
    ClientAttack("client-output", "client: the same as an output schema", "output", "call", "stdio"),
    ClientAttack("client-cbor", "client: 16 MB of CBOR that was not negotiated", "cbor", "list", "http"),
    ClientAttack("client-pages", "client: endless pages of 10 MB", "pages", "list", "stdio"),
    ClientAttack("client-pages-http", "the same over HTTP", "pages", "list", "http"),
    ClientAttack("client-containers", "client: a list with 15 MB of `[]`", "containers", "list", "stdio"),
    ClientAttack("client-result", "client: a result of 300 MB", "result", "call", "stdio"),
    ClientAttack("client-result-http", "the same over HTTP", "result", "call", "http"),
    ClientAttack("client-events", "client: log messages without end", "events", "call", "stdio", ends=False),
    ClientAttack("client-events-http", "the same over HTTP", "events", "call", "http", ends=False),
)


@contextlib.contextmanager
def _target(attack: ClientAttack) -> Iterator[Any]:
    """What a client is told to connect to; over HTTP, a server that runs until the end of the block."""
    if attack.transport == "stdio":
        yield [sys.executable, str(_SERVER), attack.kind, "stdio"]
        return
    port = find_free_port()
    server = subprocess.Popen([sys.executable, "-EP", str(_SERVER), attack.kind, str(port)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def measure(attack: ClientAttack, library: str, bound: float, attempts: int = ATTEMPTS) -> Measured:
    """Lets a hostile server attack a client library; after `bound` seconds the client gets SIGINT.

    Ours is attacked again if it breaks the rule, and the best figures are taken.
    """
    if not attack.ends:
        bound = min(bound, _ENDLESS_SECONDS)
    made: list[Measured] = []
    while len(made) < attempts:
        with _target(attack) as target:
            made.append(_measure_library(attack, library, target, bound))
        if not made[-1].is_doubtful:
            break
    found = best_of(made)
    if library == OURS:
        with _target(attack) as target:
            interrupted = _interrupt_command(attack, target)
        found.broken = "; ".join(filter(None, (found.broken, interrupted)))
    return found


def _measure_library(attack: ClientAttack, library: str, target: Any, bound: float) -> Measured:
    command = [sys.executable, "-m", "bench.hostile.client_program", library, json.dumps(target), attack.action]
    with run_on_core(SERVER_CORE):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "FASTMCP_LOG_LEVEL": "WARNING", "FASTMCP_CHECK_FOR_UPDATES": "off"},
            start_new_session=True,
        )
    cap_memory(process.pid)
    put_first(process.pid)
    try:
        assert process.stdout is not None
        _read_line(process, time.monotonic() + 60)
        before = peak = resident_bytes(process.pid)
        began = time.monotonic()
        told = b""
        while not told and time.monotonic() - began < bound and process.poll() is None:
            peak = max(peak, resident_bytes(process.pid, peak=True) or 0)
            told = _read_line(process, time.monotonic() + 0.05)
        seconds, broken = time.monotonic() - began, ""
        if not told and process.poll() is not None:
            told = _read_line(process, time.monotonic() + 1)  # it ended between two looks
        if not told and process.poll() is None:
            broken = f"it does not give up within {bound:g} s" if attack.ends else ""
            process.send_signal(signal.SIGINT)
            told = _read_line(process, time.monotonic() + _END_SECONDS)
            if not told:
                broken = "; ".join(filter(None, (broken, "SIGINT has no effect")))
        last = resident_bytes(process.pid, peak=True)
        peak = max(peak, last) if last == last else peak
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    gap, outcome = seconds * 1e3, f"frozen for {seconds:.0f} s"
    if told:
        report = json.loads(told)
        gap, outcome = report["longest_gap"] * 1e3, f"after {report['seconds']:.1f} s: {report['outcome']}"
    return Measured(
        waited_ms=gap,
        grown_mb=(peak - before) / MEGABYTE,
        answered=outcome,
        broken=broken,
        timed_out=not told,
    )


def _read_line(process: "subprocess.Popen[bytes]", until: float) -> bytes:
    """The next line of a process; empty if there is none by then."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n") and (left := until - time.monotonic()) > 0:
        if select.select([process.stdout], [], [], left)[0]:
            part = process.stdout.read(4096)
            if not part:
                break
            line += part
    return line if line.endswith(b"\n") else b""


def _interrupt_command(attack: ClientAttack, target: Any) -> str:
    """Runs the command line on the hostile server and interrupts it; says so if that has no effect."""
    words = [target] if isinstance(target, str) else target
    more = [] if attack.action == "list" else ["x", "value=x"]
    process = subprocess.Popen(
        [sys.executable, "-m", "deltamcp", attack.action, *words, *more],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cap_memory(process.pid)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            return ""
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            return ""
        return "SIGINT does not end the command"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
