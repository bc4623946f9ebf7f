"""The log on stderr never waits for a reader; what it drops it counts."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID, HttpRequestIdFilter
from deltamcp.runtime.log import JsonFormatter, StderrHandler, take_unhandled_records
from tests.support.conditions import HANG_SECONDS
from tests.support.raw_client import META

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no polls of pipes")

RECORDS = 500


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StderrHandler, int]]:
    """A handler that writes to a pipe, and the pipe's other end."""
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", stream)
            handler = StderrHandler()
        yield handler, reads
    os.close(reads)


def log(handler: StderrHandler, text: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": text}))


def read(fd: int) -> str:
    """What is in a pipe, which has something."""
    return os.read(fd, 1 << 20).decode()


def test_records_are_written_as_they_come(pipe):
    handler, reader = pipe
    log(handler, "first")
    log(handler, "é" * 3000)
    assert read(reader) == "first\n" + "é" * 3000 + "\n"


def test_what_nobody_reads_is_dropped_and_counted(pipe):
    handler, reader = pipe
    for number in range(RECORDS):
        log(handler, f"record {number} " + "x" * 1000)
    written = read(reader)
    whole = len(re.findall(r"^record \d+ x{1000}$", written, re.MULTILINE))
    assert 0 < whole < RECORDS
    log(handler, "afterwards")
    (dropped,) = re.findall(r"(\d+) records of this log were dropped, because nobody read it\n", told := read(reader))
    assert whole + int(dropped) == RECORDS
    assert told.endswith("afterwards\n")
    log(handler, "later")
    assert read(reader) == "later\n", "what was dropped is told once"


@pytest.mark.parametrize("formatter", [logging.Formatter("%(message)s%(request_suffix)s"), JsonFormatter()])
def test_how_many_were_dropped_is_told_in_the_format_of_the_log(pipe, formatter):
    handler, reader = pipe
    HTTP_REQUEST_ID.set("")  # tests that call an application directly leave theirs
    handler.addFilter(HttpRequestIdFilter())
    handler.setFormatter(formatter)
    for number in range(RECORDS):
        log(handler, f"record {number} " + "x" * 1000)
    read(reader)
    log(handler, "afterwards")
    told = read(reader).splitlines()[-2:]
    if isinstance(formatter, JsonFormatter):
        told = [json.loads(line)["message"] for line in told]
    assert re.fullmatch(r"\d+ records of this log were dropped, because nobody read it", told[0])
    assert told[1] == "afterwards"


def test_records_are_dropped_when_the_reader_has_gone(pipe, capsys):
    handler, reader = pipe
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, reader)
    os.close(nothing)
    log(handler, "nobody hears it")
    assert capsys.readouterr().err == "", "no traceback of the handler"


def test_a_stream_without_a_descriptor_is_written_to(capsys):
    log(StderrHandler(), "captured")
    assert capsys.readouterr().err == "captured\n"


def test_records_without_a_handler_are_written_by_it(monkeypatch):
    monkeypatch.setattr(logging, "lastResort", None)
    take_unhandled_records()
    handler = logging.lastResort
    assert isinstance(handler, StderrHandler) and handler.level == logging.WARNING


PRINTING = """
import threading, warnings
from deltamcp.runtime.log import take_unhandled_records, take_what_python_prints


def fail(*_):
    raise RuntimeError("x\\nFORGED\\x1b[2J")


{before}
take_unhandled_records()
take_what_python_prints()
thread = threading.Thread(target=fail, name="the\\nthread")
thread.start()
thread.join()
type("Unraisable", (), {{"__del__": fail}})()
warnings.warn("x\\nFORGED\\x1b[2J")
"""


def printed(before: str = "") -> list[str]:
    """The lines on stderr of a program that does nothing but serve."""
    done = subprocess.run([sys.executable, "-c", PRINTING.format(before=before)], capture_output=True, check=True)
    return done.stderr.decode().splitlines()


def test_what_python_would_print_of_threads_and_warnings_is_a_line_each():
    lines = printed()
    assert len(lines) == 3 and all("x\\nFORGED\\u001b[2J" in line for line in lines), lines


def test_what_a_program_does_itself_with_failed_threads_and_warnings_it_still_does():
    assert printed("threading.excepthook = lambda failed: None; warnings.simplefilter('ignore')")[1:] == []
    lines = printed("import logging; logging.basicConfig(format='own %(name)s')")
    assert [line for line in lines if line.startswith("own")] == ["own deltamcp", "own deltamcp", "own py.warnings"]


SERVER = """
from deltamcp import DeltaServer

server = DeltaServer("x")

@server.tool
async def fail() -> int:
    raise RuntimeError("x" * 2000)

if __name__ == "__main__":
    server.run()
"""


@pytest.mark.parametrize("command", [[], ["-m", "deltamcp", "serve"]], ids=["run", "serve"])
def test_a_server_whose_stderr_nobody_reads_answers(tmp_path: Path, command: list[str]):
    path = tmp_path / "failing.py"
    path.write_text(SERVER)
    message = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "fail", "arguments": {}, "_meta": META}}
    body = b"".join(json.dumps({**message, "id": number}).encode() + b"\n" for number in range(RECORDS // 5))
    process = subprocess.Popen(
        [sys.executable, *command, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    hang = threading.Timer(HANG_SECONDS, process.kill)
    hang.start()
    with process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(body)
        process.stdin.flush()
        answered = {json.loads(process.stdout.readline())["id"] for _ in range(RECORDS // 5)}
        assert answered == set(range(RECORDS // 5))
        process.stdin.close()
        assert process.wait(HANG_SECONDS) == 0
    hang.cancel()
