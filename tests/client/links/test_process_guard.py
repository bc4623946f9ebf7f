"""The process guard: what was started ends with the process that started it, also if that one is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from deltamcp.client.links import process
from deltamcp.client.links.process import ProcessGuard
from tests.support.conditions import wait_until
from tests.support.marked_processes import find_marked, needs_proc, new_mark

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups"),
    needs_proc,
]

TREE = """
trap '' TERM HUP INT
sleep 1000 &
sh -c 'trap "" TERM; sleep 1000 & sleep 1000; :' &
sleep 1000
:
"""
"""Five processes that ignore SIGTERM and the end of stdin."""

STARTER = """
import os, subprocess, sys, time
from deltamcp.client.links.process import ProcessGuard

guard = ProcessGuard()
guard.open()
for mark in sys.argv[2:]:
    child = subprocess.Popen(["sh", "-c", sys.argv[1]], env={**os.environ, "MARK": mark}, start_new_session=True)
    guard.add(child.pid)
print(guard.pid, flush=True)
time.sleep(1000)
"""


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


def start(
    command: list[str], mark: str, variables: Mapping[str, str] = {}, stdout: int | None = None
) -> "subprocess.Popen[str]":
    """A process that leads a group of its own."""
    environment = {**os.environ, **variables, "MARK": mark}
    return subprocess.Popen(command, env=environment, stdout=stdout, text=True, start_new_session=True)


async def test_trees_that_ignore_signals_end_with_a_killed_process_and_so_does_the_guard():
    marks = [new_mark(), new_mark()]
    starter = start([sys.executable, "-c", STARTER, TREE, *marks], "", stdout=subprocess.PIPE)
    assert starter.stdout is not None
    guard = int(starter.stdout.readline())
    await wait_until(lambda: all(len(find_marked(mark)) >= 5 for mark in marks), "the trees")
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    await wait_until(lambda: not any(map(find_marked, marks)), "the end of the trees")
    await wait_until(lambda: has_ended(guard), "the end of the guard")


async def test_a_group_that_was_removed_is_left_alone():
    guard, mark = ProcessGuard(), new_mark()
    guard.open()
    child = start(["sleep", "1000"], mark)
    guard.add(child.pid)
    guard.remove(child.pid)
    guard.close()
    assert child.poll() is None
    child.kill()
    child.wait()


async def test_a_number_that_is_in_use_again_ends_nobody(monkeypatch):
    """The start time that the guard was told is not that of the process with this number."""
    guard, mark = ProcessGuard(), new_mark()
    guard.open()
    child = start(["sleep", "1000"], mark)
    other = start(["sleep", "1000"], mark)
    monkeypatch.setattr(process, "_start_time", lambda pid: "12345")
    guard.add(child.pid)
    monkeypatch.undo()
    guard.add(other.pid)
    guard.close()
    assert other.wait() == -signal.SIGTERM
    assert child.poll() is None
    child.kill()
    child.wait()


async def test_a_group_whose_leader_is_gone_is_ended():
    guard, mark = ProcessGuard(), new_mark()
    guard.open()
    leader = start(["sh", "-c", "sleep 1000 & exit 0"], mark)
    guard.add(leader.pid)
    leader.wait()
    assert find_marked(mark)
    guard.close()
    await wait_until(lambda: not find_marked(mark), "the end of what the leader left")


async def test_who_has_left_its_group_is_found_by_its_mark():
    guard, mark = ProcessGuard(), new_mark()
    guard.open()
    script = "import os; os.fork() or (os.setsid(), os.execlp('sh', 'sh', '-c', 'trap \"\" TERM; sleep 1000; :'))"
    leader = start([sys.executable, "-c", script], mark, guard.environment)
    guard.add(leader.pid)
    leader.wait()
    await wait_until(lambda: len(find_marked(mark)) == 2)
    guard.remove(leader.pid)
    guard.close()
    await wait_until(lambda: not find_marked(mark), "the end of who left the group")


async def test_a_guard_that_was_killed_is_replaced_and_told_all_again():
    guard, mark = ProcessGuard(), new_mark()
    guard.open()
    children = [start(["sleep", "1000"], mark) for _ in range(2)]
    guard.add(children[0].pid)
    first = guard.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: has_ended(first))
    guard.add(children[1].pid)
    assert guard.pid != first
    guard.close()
    assert [child.wait() for child in children] == [-signal.SIGTERM] * 2


async def test_with_no_group_left_it_ends_at_once():
    guard = ProcessGuard()
    guard.open()
    child = start(["sleep", "1000"], "")
    guard.add(child.pid)
    pid = guard.pid
    assert pid is not None
    child.kill()
    child.wait()
    guard.remove(child.pid)
    guard.close()
    assert guard.pid is None
    assert has_ended(pid)
