"""The stdio link: starts the server as a process and exchanges one message per line with it; the guard of processes."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, cast

from deltamcp.client.links.link import NO_HEADERS, MessageReceiver, read_messages, too_large_error
from deltamcp.errors import ConnectionLostError, UnreachableError
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed
from deltamcp.wire.codecs import JSON_CODEC
from deltamcp.wire.frames import LineReader

logger: logging.Logger = logging.getLogger("deltamcp")

_CLOSE_SECONDS = 2.0
_HOST_PORT = re.compile(r"[\w.\-]+(:\d+)(/.*)?")
_ERROR_LINE = re.compile(r"\w*(Error|Exception)\b|\b(error|fatal|cannot|missing|required)\b", re.IGNORECASE)
_TEXT_LINE = re.compile(r"\w{2}")
_OWN_PREFIX = "delta-mcp: "
"""Before the sentence in which `delta-mcp serve` tells why it ended."""
_NOT_EXECUTABLE = "no program by itself; put before it what runs it, as python, node or delta-mcp serve."
_END_POLLS = 10
_END_POLL_SECONDS = 0.1
"""How often, and how far apart, the client checks whether a process that is ending has closed its pipes and has an exit
code. A process that it started and left may hold the pipes open. A client that does not get to run loses one check,
not all of them."""
_MAX_FINAL_BYTES = 1024 * 1024
"""How much of stderr the client reads after the end has begun: as much as Linux keeps in a pipe (pipe-max-size in
pipe(7)). Later bytes were written by another process."""
_MAX_INDENT = 256
"""How far a message may be indented on its line."""
_MAX_STDERR_CHARS = 8192
"""How much of a line of stderr is kept until its end comes; more is taken for a line."""
_MAX_STDERR_LINES = 200
"""How many lines of a server's stderr are kept for the error that reports its end."""

OnStderr: TypeAlias = Callable[[str], None]
"""Takes a line that a server wrote to stderr, without its end."""


class ProcessLink:
    """Runs a server process; closing the link ends the process and all processes that it started."""

    carries_headers = False

    def __init__(
        self,
        label: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        quiet: bool,
        limits: Limits,
        on_stderr: OnStderr | None = None,
        guard: "ProcessGuard | None" = None,
    ) -> None:
        """
        Args:
            quiet: keep the server's stderr for the error that reports an early end, instead of showing it.
            on_stderr: takes each line of the server's stderr, which is then kept, too.
            guard: ends the process if this one ends without closing the link.
        """
        self._guard = guard
        self.codec = JSON_CODEC
        self.ended: bool = False
        self.label = label
        self._command, self._environment, self._cwd, self._quiet = command, environment, cwd, quiet
        self.limits: Limits = limits
        self.on_stderr: OnStderr | None = on_stderr
        self._process: _Process | None = None

    async def open(self, receiver: MessageReceiver) -> None:
        loop = asyncio.get_running_loop()
        if self._guard is not None:
            self._guard.open()
        try:
            _, self._process = await loop.subprocess_exec(
                lambda: _Process(self, receiver),
                *self._command,
                stderr=asyncio.subprocess.PIPE if self._quiet or self.on_stderr is not None else None,
                env={**self._environment, **({} if self._guard is None else self._guard.environment)},
                cwd=self._cwd,
                start_new_session=True,  # a process group, so that what `npx` and the like start ends with it
            )
        except FileNotFoundError:
            raise UnreachableError(f"{self.label} cannot be started: {self._missing_reason()}") from None
        except PermissionError:
            raise UnreachableError(f"{self.label} cannot be started: {self._command[0]} is {_NOT_EXECUTABLE}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreachableError(f"{self.label} cannot be started: {reason}.") from None
        if self._guard is not None:
            self._guard.add(self._process.transport.get_pid())

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.transport.get_pid()

    def _missing_reason(self) -> str:
        """Says whether folder or program is missing, and suggests a fix."""
        if self._cwd and not Path(self._cwd).is_dir():
            return f"there is no folder {self._cwd}."
        program = self._command[0]
        if Path(program).is_file():
            return f"{program} is {_NOT_EXECUTABLE}"
        hint = (
            "an address begins with http://." if _HOST_PORT.fullmatch(program) else "is it spelt right and installed?"
        )
        return f"there is no {program} here; {hint}"

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        """
        Raises:
            ConnectionLostError: the process has ended; the text has its exit code and its last error line.
        """
        process = self._process
        if process is None:
            raise ConnectionLostError(f"{self.label} is not started.", maybe_done=False)
        if self.ended or process.stdin.is_closing():
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_POLLS * _END_POLL_SECONDS):
                    await process.end_handled.wait()
            raise ConnectionLostError(process.end_text(), maybe_done=False)
        process.stdin.write(self.codec.encode(message) + b"\n")
        if not process.writable.is_set():
            await process.writable.wait()

    async def listen(self, headers: Mapping[str, str], on_open: Callable[[], None]) -> bool:
        """Returns True: all messages come on stdout."""
        on_open()
        return True

    async def close(self) -> None:
        """Closes stdin so that the process ends by itself; if it does not, sends SIGTERM, then SIGKILL."""
        self.ended = True
        process = self._process
        if process is None:
            return
        process.stop_watching_end()
        process.stdin.close()
        try:
            for signal_name in ("", "SIGTERM", "SIGKILL"):
                if signal_name:
                    _send_signal(process.transport, signal_name)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await process.exited.wait()
                        break
        finally:
            _send_signal(process.transport, "SIGKILL")  # to processes it left, or to all if the caller is cancelled
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_POLLS * _END_POLL_SECONDS):
                    await process.exited.wait()  # a killed process is reaped, or it is reported as one that runs
            process.transport.close()
            if self._guard is not None:
                self._guard.remove(process.transport.get_pid())


class _Process(asyncio.SubprocessProtocol):
    """Receives the process's output and its end from the event loop.

    The end of a process comes in parts and in any order: its exit code and the end of each pipe. The first of them,
    except the end of stderr, ends the link; pending requests fail when the exit code and all output have arrived.
    """

    transport: asyncio.SubprocessTransport
    stdin: asyncio.WriteTransport

    def __init__(self, link: ProcessLink, receiver: MessageReceiver) -> None:
        self._link, self._receiver = link, receiver
        self._lines = LineReader(link.limits)
        self._stderr_lines: deque[str] = deque(maxlen=_MAX_STDERR_LINES)
        self._stderr_rest = ""
        self._open_pipes: set[int] = set()
        self._final_bytes = 0
        self._end_timer: asyncio.TimerHandle | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.exited = asyncio.Event()
        self.end_handled = asyncio.Event()
        """Set when the end has been reported to the receiver, or the client closed the link itself."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.SubprocessTransport", transport)
        self.stdin = cast("asyncio.WriteTransport", self.transport.get_pipe_transport(0))
        self._open_pipes = {fd for fd in (1, 2) if self.transport.get_pipe_transport(fd) is not None}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            for line in self._lines.feed(data):
                if isinstance(line, Malformed) and line.id is not None:
                    self._receiver.receive(line)
                elif isinstance(line, Malformed):
                    # It may answer any pending request: its id cannot be read.
                    self._receiver.fail_pending(
                        too_large_error(f"A message of {self._link.label}", self._link.limits.message_bytes)
                    )
                # Some servers print a greeting or a warning to stdout, which is ignored.
                elif line[:_MAX_INDENT].lstrip()[:1] in (b"{", b"["):
                    for message in read_messages(line, self._link.codec, self._link.limits):
                        self._receiver.receive(message)
            return
        if self._end_timer is not None:
            self._final_bytes += len(data)
        *lines, rest = (self._stderr_rest + data.decode("utf-8", "replace")).split("\n")
        if len(rest) > _MAX_STDERR_CHARS:
            lines.append(rest)
            rest = ""
        self._stderr_rest = rest
        self._add_stderr(lines)
        if self._final_bytes > _MAX_FINAL_BYTES:
            self._report_end()

    def _add_stderr(self, lines: list[str]) -> None:
        self._stderr_lines.extend(line.strip()[:500] for line in lines if line.strip())
        if self._link.on_stderr is not None:
            try:
                for line in lines:
                    self._link.on_stderr(line)
            except Exception:
                logger.exception("a callback for stderr failed")

    def end_text(self) -> str:
        """Says how the process ended, with the error line of its stderr."""
        told = [line.removeprefix(_OWN_PREFIX) for line in self._stderr_lines if line.startswith(_OWN_PREFIX)]
        if told:
            return f"{self._link.label} ended: {told[-1]}"
        code = self.transport.get_returncode()
        status = "" if code is None else f" with exit code {code}" if code >= 0 else f" by signal {-code}"
        last_line = self.error_line().rstrip(".")
        if not last_line and code == 0:
            return f"{self._link.label} ended{status}; does it run a server?"
        return f"{self._link.label} ended{status}{f': {last_line}' if last_line else ''}."

    def error_line(self) -> str:
        """Returns the line of stderr that most likely says why the process ended."""
        lines = [*self._stderr_lines, self._stderr_rest.strip()[:500]]
        candidates = [line for line in lines if _ERROR_LINE.search(line)] or [
            line for line in lines if _TEXT_LINE.search(line)
        ]
        return candidates[-1] if candidates else ""

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == 0:
            # Earlier requests may still be answered: a server that is told to end may finish its calls first.
            self._link.ended = True
            self.writable.set()
        elif fd == 1:
            self._begin_end()
        elif self._stderr_rest:
            self._add_stderr([self._stderr_rest])
            self._stderr_rest = ""
        self._report_end_if_complete()

    def process_exited(self) -> None:
        self.exited.set()
        self._begin_end()
        self._report_end_if_complete()

    def _begin_end(self) -> None:
        if self._end_timer is None and not self.end_handled.is_set():
            self._link.ended = True
            self.writable.set()  # a process that it left may hold stdin open without reading it
            self._poll_end(_END_POLLS)

    def _poll_end(self, polls: int) -> None:
        if polls:
            self._end_timer = asyncio.get_running_loop().call_later(_END_POLL_SECONDS, self._poll_end, polls - 1)
        else:
            self._report_end()

    def _report_end_if_complete(self) -> None:
        if self._end_timer is not None and self.exited.is_set() and not self._open_pipes:
            self._report_end()

    def _report_end(self) -> None:
        if not self.end_handled.is_set():
            self.stop_watching_end()
            self._receiver.fail_pending(ConnectionLostError(self.end_text()))

    def stop_watching_end(self) -> None:
        """Ends the wait for the exit code and the last output."""
        self.end_handled.set()
        if self._end_timer is not None:
            self._end_timer.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


def _send_signal(transport: asyncio.SubprocessTransport, name: str) -> None:
    """Signals the process and those it started; on Windows, which has no process groups, kills only the process."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            transport.kill()
        else:
            os.killpg(transport.get_pid(), getattr(signal, name))


# The guard

_SCRIPT = """
trap '' HUP INT TERM
mark=$1
groups=
while read -r sign group start; do
  case $sign in
  +) groups="$groups $group:$start" ;;
  -)
    rest=
    for one in $groups; do [ "${one%:*}" = "$group" ] || rest="$rest $one"; done
    groups=$rest
    ;;
  esac
done
find_marked() {
  [ -d /proc/self ] && grep -lsF -- "$mark" /proc/[0-9]*/environ
}
is_same() {
  [ "$2" != 0 ] && read -r line 2>/dev/null <"/proc/$1/stat" || return 0
  set -- "$2" ${line##*) }
  [ "$1" = "${21}" ]
}
[ "$groups" ] || [ "$(find_marked)" ] || exit 0
for signal in TERM KILL; do
  sleep 1
  for one in $groups; do
    is_same "${one%:*}" "${one#*:}" && kill -s "$signal" -- "-${one%:*}" 2>/dev/null
  done
  for file in $(find_marked); do
    pid=${file#/proc/}
    kill -s "$signal" "${pid%/environ}" 2>/dev/null
  done
done
"""
"""`is_same` compares when the group's leader started, so that a number that is in use again ends nobody. Where the
leader is gone and others of its group are left, the kernel gives its number to nobody."""
_MARK_VARIABLE = "DELTA_MCP_GUARD"
_END_SECONDS = 5.0


class ProcessGuard:
    """Ends servers that this process started, if this process ends without doing so itself.

    A server sees the end of its stdin when this process is killed, but not every server ends then, and what it has
    started seldom does. Each server is the leader of a process group. The guard is a small shell that reads, from a
    pipe, which groups there are. The pipe closes when this process ends, however it ends; the groups that are left then
    are ended.

    On Linux, all of them also have a mark in their environment, by which the guard finds processes that have left their
    group, as browsers do that a server starts, and a server of which this process was killed before it told the guard.
    Windows has neither process groups nor this shell: there the guard does nothing, and a server that ignores the end
    of its stdin outlives a process that was killed.
    """

    def __init__(self) -> None:
        self._mark = f"{_MARK_VARIABLE}={uuid.uuid4().hex}"
        self._groups: dict[int, str] = {}
        self._shell: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The guard's own process; None before `open` and after `close`."""
        return None if self._shell is None else self._shell.pid

    @property
    def environment(self) -> Mapping[str, str]:
        """What the environment of a guarded process has in addition."""
        name, _, value = self._mark.partition("=")
        return {name: value}

    def open(self) -> None:
        """Starts the guard, unless it runs; called before a process is started, so that none is ever unguarded."""
        if sys.platform != "win32" and (self._shell is None or self._shell.poll() is not None):
            self._restart()

    def add(self, group: int) -> None:
        """Guards a process group; its id is that of the process that leads it."""
        if sys.platform != "win32":
            self._groups[group] = _start_time(group)
            self._tell(f"+ {group} {self._groups[group]}\n")

    def remove(self, group: int) -> None:
        """Forgets a process group that has been ended."""
        if self._groups.pop(group, None) is not None:
            self._tell(f"- {group}\n")

    def close(self) -> None:
        """Ends the guard, which ends what is left of the groups that it had."""
        shell, self._shell = self._shell, None
        if shell is not None:
            assert shell.stdin is not None
            shell.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(_END_SECONDS)

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except BrokenPipeError:  # somebody has ended the guard
            self._restart()

    def _restart(self) -> None:
        self.close()
        self._shell = self._start_shell()
        self._write("".join(f"+ {group} {start}\n" for group, start in self._groups.items()))

    def _write(self, text: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.write(text.encode())

    def _start_shell(self) -> "subprocess.Popen[bytes] | None":
        """Starts the shell in a session of its own, so that no signal to this process's group reaches it."""
        try:
            return subprocess.Popen(  # noqa: S603 - a program of our own
                ["/bin/sh", "-c", _SCRIPT, "delta-mcp-guard", self._mark],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
        except OSError:  # a system without a shell, or without room for another process
            return None


def _start_time(pid: int) -> str:
    """Returns when a process started, in the kernel's ticks (`starttime` in proc(5)); 0 where there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"
