"""The end of a server process: its exit code, the end of stdout and the end of stderr come in any order."""

import asyncio
import contextlib
import itertools
import os
import sys
from typing import Any

import pytest
import uvloop

from deltamcp.client.client import connect
from deltamcp.client.links import process
from deltamcp.client.links.link import DEFAULT_MAX_BYTES, UnaddressedError, message_limits
from deltamcp.client.links.process import ProcessLink
from deltamcp.errors import ClientError, ConnectionLostError, UnreachableError
from deltamcp.values import Message, RequestId, Response
from tests.support.conditions import wait_until

LIMITS = message_limits(DEFAULT_MAX_BYTES)
ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {}}\n'
HELD = "import os, subprocess, sys; subprocess.Popen(['sh', '-c', sys.argv[1]]); os._exit(7)"
"""A process that ends at once and leaves another one, which holds its pipes."""


class RecordingReceiver:
    """Records what the link passes to its receiver, in order."""

    def __init__(self) -> None:
        self.heard: list[Message | UnaddressedError | ClientError] = []

    def receive(self, message: Message | UnaddressedError, request_id: RequestId | None = None) -> None:
        self.heard.append(message)

    def receive_detach(self, id_: RequestId) -> None:
        raise AssertionError("a process has no stream of one request")

    def is_awaiting(self, id_: RequestId) -> bool:
        return True

    def fail_pending(self, error: ClientError) -> None:
        self.heard.append(error)


class FakeTransport(asyncio.SubprocessTransport):
    """A transport whose pipes and exit code the test sets."""

    def __init__(self, has_stderr: bool) -> None:
        super().__init__()
        self.code: int | None = None
        self.written = b""
        self._fds = (0, 1, 2) if has_stderr else (0, 1)

    def get_pipe_transport(self, fd: int) -> Any:
        return self if fd in self._fds else None

    def get_returncode(self) -> int | None:
        return self.code

    def get_pid(self) -> int:
        raise ProcessLookupError

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


class FakeProcess:
    """A process whose end the test reports in parts, as the event loop does."""

    def __init__(self, link: ProcessLink, hearer: RecordingReceiver, transport: FakeTransport, protocol: Any) -> None:
        self.link, self.transport, self._protocol = link, transport, protocol
        self.heard = hearer.heard

    def end(self, part: str) -> None:
        match part:
            case "exit":
                self.transport.code = 3
                self._protocol.process_exited()
            case "stdin":
                self._protocol.pipe_connection_lost(0, BrokenPipeError())
            case "stdout":
                self._protocol.pipe_data_received(1, ANSWER)
                self._protocol.pipe_connection_lost(1, None)
            case "stderr":
                self.write_stderr(b"no database there\n")
                self._protocol.pipe_connection_lost(2, None)
            case unknown:
                raise AssertionError(unknown)

    def write_stderr(self, data: bytes) -> None:
        self._protocol.pipe_data_received(2, data)

    def fill_stdin(self) -> None:
        self._protocol.pause_writing()

    @property
    def errors(self) -> list[str]:
        return [str(said) for said in self.heard if isinstance(said, ConnectionLostError)]


@pytest.fixture
async def start(monkeypatch):
    """Opens a link to a fake process. No time passes unless the test lets it."""
    monkeypatch.setattr(process, "_END_POLL_SECONDS", 3600)

    async def opened(quiet: bool = True) -> FakeProcess:
        transport = FakeTransport(quiet)

        async def subprocess_exec(factory: Any, *_: Any, **__: Any) -> Any:
            protocol = factory()
            protocol.connection_made(transport)
            return transport, protocol

        monkeypatch.setattr(asyncio.get_running_loop(), "subprocess_exec", subprocess_exec)
        link, hearer = ProcessLink("The server", ["server"], {}, None, quiet, LIMITS), RecordingReceiver()
        await link.open(hearer)
        return FakeProcess(link, hearer, transport, link._process)

    return opened


@pytest.mark.parametrize("order", [*itertools.permutations(["exit", "stdout", "stderr"])], ids="-".join)
async def test_the_client_is_told_once_when_all_parts_of_the_end_have_come(start, order):
    server = await start()
    for part in order:
        assert not server.errors, f"{part} was not waited for"
        server.end(part)
    answer, error = server.heard
    assert isinstance(answer, Response), "an answer that was written before the end is lost"
    assert str(error) == "The server ended with exit code 3: no database there."


@pytest.mark.parametrize("order", [["exit", "stdout"], ["stdout", "exit"]], ids="-".join)
async def test_a_stderr_that_is_shown_is_not_waited_for(start, order):
    server = await start(quiet=False)
    for part in order:
        assert not server.errors
        server.end(part)
    assert isinstance(server.heard[0], Response)
    assert server.errors == ["The server ended with exit code 3."]


async def test_a_stderr_that_the_server_closed_is_not_its_end(start):
    server = await start()
    server.end("stderr")
    await server.link.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert b"ping" in server.transport.written
    assert not server.heard


@pytest.mark.parametrize("first", ["exit", "stdout"])
async def test_what_is_sent_while_a_process_ends_is_refused_with_its_last_words(start, first):
    server = await start()
    server.end(first)
    assert server.link.ended
    sending = asyncio.create_task(server.link.send({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
    await asyncio.sleep(0)
    assert not sending.done()
    for part in {"exit", "stdout", "stderr"} - {first}:
        server.end(part)
    with pytest.raises(ConnectionLostError, match="with exit code 3: no database there") as caught:
        await sending
    assert not caught.value.maybe_done
    assert not server.transport.written


async def test_a_server_that_closed_stdin_may_still_answer_what_it_was_asked_before(start):
    server = await start()
    server.end("stdin")
    assert server.link.ended, "nothing can be sent any more"
    server.end("stdout")
    assert [type(said) for said in server.heard] == [Response]


async def test_what_waits_for_room_in_stdin_hears_of_the_end(start):
    """A process that the server left may hold stdin open, so that no write ever fails."""
    server = await start()
    server.fill_stdin()
    sending = asyncio.create_task(server.link.send({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
    await asyncio.sleep(0)
    assert not sending.done()
    server.end("exit")
    await sending


async def test_a_stderr_without_end_is_not_read_for_ever(start):
    server = await start()
    server.end("exit")
    pieces = 0
    while not server.errors:
        server.write_stderr(b"x" * 65536)
        pieces += 1
    assert pieces == 17, "a mebibyte, and what is more than it"
    server.end("stderr")
    server.end("stdout")
    assert len(server.errors) == 1


async def test_a_link_that_is_closed_while_its_process_ends_tells_nothing_more(start):
    server = await start()
    server.end("exit")
    sending = asyncio.create_task(server.link.send({"jsonrpc": "2.0", "id": 2, "method": "ping"}))
    await asyncio.sleep(0)
    await server.link.close()
    with pytest.raises(ConnectionLostError, match="ended with exit code 3"):
        await sending
    server.end("stderr")
    server.end("stdout")
    assert not server.errors


async def test_last_words_that_come_after_the_exit_are_told(monkeypatch, tmp_path):
    """The process that the server left writes them when this test opens a FIFO, after the link has seen the exit."""
    monkeypatch.setattr(process, "_END_POLL_SECONDS", 3600)
    exits: list[int] = []
    noticed = process._Process.process_exited

    def exited(self: Any) -> None:
        noticed(self)
        exits.append(self.transport.get_returncode())

    monkeypatch.setattr(process._Process, "process_exited", exited)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    words = [sys.executable, "-c", HELD, f"read go < {gate}; echo no database there >&2"]
    client = connect(words, quiet=True, speak="handshake")
    entering = asyncio.create_task(client.__aenter__())
    await wait_until(lambda: bool(exits))
    assert not entering.done()
    await asyncio.to_thread(gate.write_text, "go\n")
    with pytest.raises(UnreachableError, match="ended with exit code 7: no database there"):
        await entering


async def test_a_pipe_that_stays_open_does_not_keep_the_client_waiting(monkeypatch):
    monkeypatch.setattr(process, "_END_POLL_SECONDS", 0.01)
    words = [sys.executable, "-c", HELD, "exec sleep 1000"]
    with pytest.raises(UnreachableError, match="ended with exit code 7"):
        async with connect(words, quiet=True, speak="handshake"):
            pass


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_process_that_has_ended_before_anything_is_sent_is_told_with_its_last_words(new_loop):
    """The test blocks the event loop until the process is gone, so that all parts of its end arrive at once."""

    async def main() -> str:
        words = [sys.executable, "-c", "import sys; sys.exit('no database there')"]
        link = ProcessLink("The server", words, dict(os.environ), None, True, LIMITS)
        await link.open(RecordingReceiver())
        assert link._process is not None
        wait_for_exit(link._process.transport.get_pid())
        try:
            with pytest.raises(ConnectionLostError) as caught:
                while True:
                    await link.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
                    await asyncio.sleep(0)
            return str(caught.value)
        finally:
            await link.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) == "The server ended with exit code 1: no database there."


def wait_for_exit(pid: int) -> None:
    """Waits without running the event loop, and leaves the exit code to it."""
    with contextlib.suppress(ChildProcessError):  # asyncio's own thread was faster
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
