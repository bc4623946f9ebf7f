"""The process guard: ends servers that this process started, if this process ends without doing so itself.

A server sees the end of its stdin when this process is killed, but not every server ends then, and what it has started
seldom does. Each server is the leader of a process group. The guard is a small shell that reads, from a pipe, which
groups there are. The pipe closes when this process ends, however it ends; the groups that are left then are ended.

On Linux, all of them also have a mark in their environment, by which the guard finds processes that have left their
group, as browsers do that a server starts, and a server of which this process was killed before it told the guard.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

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
    """Ends the process groups that it is told, when this process ends.

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
