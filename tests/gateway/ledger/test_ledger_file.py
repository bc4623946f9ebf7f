"""The ledger's file: several gateways add to it at once, and a process that is killed harms nothing."""

import datetime
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from deltamcp.errors import ConfigurationError
from deltamcp.gateway.ledger_figures import KEPT_DAYS, LedgerFile, LedgerKey, Usage
from tests.support.conditions import HANG_SECONDS

WRITER = """
import sys
from pathlib import Path
from deltamcp.gateway.ledger_figures import LedgerKey, Usage
from deltamcp.gateway.ledger_figures import LedgerFile

file = LedgerFile(Path(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    file.add({LedgerKey(sys.argv[3], "git", "log"): Usage(1, 0, 0, 10, 4)})
    print("added", flush=True)
"""


def day(ago: int) -> str:
    return (datetime.date.today() - datetime.timedelta(days=ago)).isoformat()


def start_writer(path: Path, times: int) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", WRITER, str(path), str(times), day(0)]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def test_figures_of_a_day_and_a_tool_add_up(tmp_path):
    file = LedgerFile(tmp_path / "folder" / "ledger.sqlite")
    assert file.read() == {}
    key = LedgerKey(day(0), "git", "log")
    file.add({key: Usage(1, 0, 0, 100, 20)})
    file.add({key: Usage(2, 1, 1, 50, 60), key._replace(tool="status"): Usage(1)})
    assert LedgerFile(file.path).read() == {key: Usage(3, 1, 1, 150, 80), key._replace(tool="status"): Usage(1)}
    assert file.path.stat().st_mode & 0o077 == 0 and file.path.parent.stat().st_mode & 0o077 == 0


def test_days_are_the_last_ones_with_today(tmp_path):
    file = LedgerFile(tmp_path / "ledger.sqlite")
    for ago in (0, 1, 2, KEPT_DAYS + 1):
        file.add({LedgerKey(day(ago), "git", "log"): Usage(1)})
    assert [key.day for key in file.read(2)] == [day(1), day(0)]
    file.add({LedgerKey(day(0), "git", "log"): Usage(1)})
    assert [key.day for key in file.read()] == [day(2), day(1), day(0)]


def test_processes_add_to_it_at_once(tmp_path):
    path, times = tmp_path / "ledger.sqlite", 40
    writers = [start_writer(path, times) for _ in range(3)]
    for writer in writers:
        assert writer.communicate(timeout=HANG_SECONDS) and writer.returncode == 0
    assert LedgerFile(path).read() == {LedgerKey(day(0), "git", "log"): Usage(3 * times, 0, 0, 30 * times, 12 * times)}


def test_a_killed_process_leaves_what_it_added(tmp_path):
    path = tmp_path / "ledger.sqlite"
    writer = start_writer(path, 10**6)
    assert writer.stdout is not None
    for _ in range(5):
        writer.stdout.readline()
    os.kill(writer.pid, signal.SIGKILL)
    writer.stdout.close()
    writer.wait(HANG_SECONDS)
    file = LedgerFile(path)
    [usage] = file.read().values()
    assert usage.calls >= 5 and (usage.before, usage.after) == (usage.calls * 10, usage.calls * 4)
    file.add({LedgerKey(day(0), "git", "log"): Usage(1)})


@pytest.mark.parametrize("damage", ["text", "another database"])
def test_a_file_that_is_no_ledger_is_told_and_reset(tmp_path, damage):
    path = tmp_path / "ledger.sqlite"
    if damage == "text":
        path.write_text("this is no database at all, and it is long enough to be taken for none" * 40)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE other (x)")
            connection.execute("PRAGMA user_version = 9")
        connection.close()
    file = LedgerFile(path)
    with pytest.raises(ConfigurationError, match="--reset"):
        file.read()
    with pytest.raises((ConfigurationError, sqlite3.DatabaseError)):
        file.add({LedgerKey(day(0), "git", "log"): Usage(1)})
    file.reset()
    file.add({LedgerKey(day(0), "git", "log"): Usage(1)})
    assert len(file.read()) == 1
