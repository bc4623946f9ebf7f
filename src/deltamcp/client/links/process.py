"""A server that we start: one message a line on its standard streams."""

import asyncio
import os
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from deltamcp.client.links.link import LIMITS, NO_HEADERS, MessageReceiver, read_messages
from deltamcp.errors import ConnectionLostError, UnreachableError
from deltamcp.values import JSON, Malformed
from deltamcp.wire.codecs import JSON_CODEC
from deltamcp.wire.lines import LineReader

_CLOSE_SECONDS = 2.0
_HOST_PORT = re.compile(r"[\w.\-]+(:\d+)(/.*)?")
_ERROR_LINE = re.compile(r"\w*(Error|Exception)\b|\b(error|fatal|cannot|missing|required)\b", re.IGNORECASE)
_TEXT_LINE = re.compile(r"\w{2}")
_NOT_EXECUTABLE = "no program by itself; put before it what runs it, as python, node or delta-mcp serve."
_LAST_LOOKS = 10
_LOOK_SECONDS = 0.1
"""How often, and how far apart, the client looks whether a process that is ending has closed its pipes and has an exit
code. A process that it started and left may hold the pipes open. A client that does not get to run loses one look,
not all of them."""
_LAST_BYTES = 1024 * 1024
"""Of stderr that the client reads after the end has begun: as much as Linux keeps in a pipe (pipe-max-size in pipe(7)).
What comes after it was written by another process."""
_MAX_STDERR_LINES = 20
"""Of what a server wrote to stderr before it ended, to be told with that."""


class ProcessLink:
    """The process and what it started end with the connection."""

    carries_headers = False

    def __init__(
        self, label: str, command: Sequence[str], environment: Mapping[str, str], cwd: str | None, quiet: bool
    ) -> None:
        """`quiet` keeps the server's stderr for the day it ends early, instead of showing it."""
        self.codec = JSON_CODEC
        self.ended = False
        self.label = label
        self._command, self._environment, self._cwd, self._quiet = command, environment, cwd, quiet
        self._process: _Process | None = None

    async def open(self, receiver: MessageReceiver) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, self._process = await loop.subprocess_exec(
                lambda: _Process(self, receiver),
                *self._command,
                stderr=asyncio.subprocess.PIPE if self._quiet else None,
                env=dict(self._environment),
                cwd=self._cwd,
                start_new_session=True,  # a group of its own: what `npx` and the like start goes when it goes
            )
        except FileNotFoundError:
            raise UnreachableError(f"{self.label} cannot be started: {self._missing_reason()}") from None
        except PermissionError:
            raise UnreachableError(f"{self.label} cannot be started: {self._command[0]} is {_NOT_EXECUTABLE}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreachableError(f"{self.label} cannot be started: {reason}.") from None

    def _missing_reason(self) -> str:
        """What is not there, and what may have been meant."""
        if self._cwd and not Path(self._cwd).is_dir():
            return f"there is no folder {self._cwd}."
        program = self._command[0]
        if Path(program).is_file():
            return f"{program} is {_NOT_EXECUTABLE}"
        hint = (
            "an address begins with http://." if _HOST_PORT.fullmatch(program) else "is it spelt right and installed?"
        )
        return f"there is no {program} here; {hint}"

    async def send(self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS) -> None:
        """
        Raises:
            ConnectionLostError: the process has ended; the error waits for its exit code and its last words.
        """
        process = self._process
        if process is None:
            raise ConnectionLostError(f"{self.label} is not started.", maybe_done=False)
        if self.ended or process.stdin.is_closing():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_LOOKS * _LOOK_SECONDS):
                    await process.over.wait()
            raise ConnectionLostError(process.epitaph(), maybe_done=False)
        process.stdin.write(self.codec.encode(message) + b"\n")
        if not process.writable.is_set():
            await process.writable.wait()

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Everything comes over the one connection."""
        on_open()
        return True

    async def close(self) -> None:
        """Lets the process end by itself, then asks it to, then makes it."""
        self.ended = True
        process = self._process
        if process is None:
            return
        process.forget()
        process.stdin.close()
        try:
            for insist in ("", "SIGTERM", "SIGKILL"):
                if insist:
                    _send_signal(process.transport, insist)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await process.exited.wait()
                        break
        finally:
            _send_signal(process.transport, "SIGKILL")  # whatever it left behind, or all of it where nobody may wait
            process.transport.close()


class _Process(asyncio.SubprocessProtocol):
    """What the loop tells of it.

    The end of a process comes in parts and in any order: its exit code and the end of each pipe. The first of them,
    except the end of stderr, ends the link; the client is told when the exit code and all that was written have come.
    """

    transport: asyncio.SubprocessTransport
    stdin: asyncio.WriteTransport

    def __init__(self, link: ProcessLink, receiver: MessageReceiver) -> None:
        self._link, self._receiver = link, receiver
        self._lines = LineReader(LIMITS)
        self._stderr_lines: deque[str] = deque(maxlen=_MAX_STDERR_LINES)
        self._stderr_rest = ""
        self._unread: set[int] = set()
        self._last_bytes = 0
        self._looking: asyncio.TimerHandle | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.exited = asyncio.Event()
        self.over = asyncio.Event()
        """The client was told of the end, or closed the link itself."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)
        self.stdin = cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0))
        self._unread = {fd for fd in (1, 2) if self.transport.get_pipe_transport(fd) is not None}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            for line in self._lines.feed(data):
                if isinstance(line, Malformed):
                    # It answered something, and nobody can tell what.
                    self._receiver.fail_pending(
                        ConnectionLostError(f"{self._link.label} sent a message that is too large.")
                    )
                # Old servers print a greeting or a warning there; that is not a message, and nothing breaks by it.
                elif line.lstrip()[:1] in (b"{", b"["):
                    for message in read_messages(line, self._link.codec):
                        self._receiver.receive(message)
            return
        if self._looking is not None:
            self._last_bytes += len(data)
        lines = (self._stderr_rest + data.decode("utf-8", "replace")).split("\n")
        self._stderr_rest = lines[-1][-1000:]
        self._stderr_lines.extend(line.strip()[:500] for line in lines[:-1] if line.strip())
        if self._last_bytes > _LAST_BYTES:
            self._tell()

    def epitaph(self) -> str:
        code = self.transport.get_returncode()
        how = "" if code is None else f" with exit code {code}" if code >= 0 else f" by signal {-code}"
        last = self.error_line().rstrip(".")
        if not last and code == 0:
            return f"{self._link.label} ended{how}; does it run a server?"
        return f"{self._link.label} ended{how}{f': {last}' if last else ''}."

    def error_line(self) -> str:
        """The line of its stderr that most likely says why it ended."""
        lines = [*self._stderr_lines, self._stderr_rest.strip()]
        telling = [line for line in lines if _ERROR_LINE.search(line)] or [
            line for line in lines if _TEXT_LINE.search(line)
        ]
        return telling[-1] if telling else ""

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._unread.discard(fd)
        if fd == 0:
            # What was asked before may still be answered: a server that is told to end may finish its calls first.
            self._link.ended = True
            self.writable.set()
        elif fd == 1:
            self._mark_ended()
        self._tell_if_complete()

    def process_exited(self) -> None:
        self.exited.set()
        self._mark_ended()
        self._tell_if_complete()

    def _mark_ended(self) -> None:
        if self._looking is None and not self.over.is_set():
            self._link.ended = True
            self.writable.set()  # a process that it left may hold stdin open without reading it
            self._look(_LAST_LOOKS)

    def _look(self, looks: int) -> None:
        if looks:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look, looks - 1)
        else:
            self._tell()

    def _tell_if_complete(self) -> None:
        if self._looking is not None and self.exited.is_set() and not self._unread:
            self._tell()

    def _tell(self) -> None:
        if not self.over.is_set():
            self.forget()
            self._receiver.fail_pending(ConnectionLostError(self.epitaph()))

    def forget(self) -> None:
        """Ends the wait for last words."""
        self.over.set()
        if self._looking is not None:
            self._looking.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


def _send_signal(transport: asyncio.SubprocessTransport, name: str) -> None:
    """To the process and what it started; Windows, which has no groups, kills the process alone."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), getattr(signal, name))
