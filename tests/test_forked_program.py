"""`FORKED_PROGRAM`, which tests start in the place of `delta-mcp`: it takes and gives what the program does."""

import contextlib
import signal
import socket
import subprocess

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON
from tests.support.program import running_program

SERVER = """
from deltamcp import DeltaServer

server = DeltaServer("shelf")
"""
PRINTING = """
import os, sys

print(sys.argv[1:], os.getcwd(), os.environ["WORD"], sys.stdin.read())
sys.exit(3)
"""


def test_it_has_the_streams_the_folder_the_variables_and_the_exit_code_of_a_process(tmp_path):
    (tmp_path / "printing.py").write_text(PRINTING)
    for variables in ({"WORD": "a"}, {"WORD": "a", "PYTHONHASHSEED": "1"}):  # forked; by an interpreter of its own
        done = subprocess.run(
            [FORKED_PYTHON, "printing.py", "b"], cwd=tmp_path, env=variables, input="c", capture_output=True, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, f"['b'] {tmp_path} a c\n", "")
    done = subprocess.run([FORKED_PROGRAM, "serve", "none.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "delta-mcp: There is no file none.py; there is printing.py.\n",
    )


def test_signals_reach_what_it_stands_for(tmp_path):
    (tmp_path / "shelf.py").write_text(SERVER)
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0"]
    with running_program(command, tmp_path) as program:
        program.wait_for("Serving")
        assert program.end(signal.SIGTERM) == 0
        assert "stopped" in program.text()


def test_what_it_stands_for_ends_with_it_and_it_ends_by_the_same_signal(tmp_path):
    (tmp_path / "shelf.py").write_text(SERVER)
    (tmp_path / "ended.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert subprocess.run([FORKED_PYTHON, "ended.py"], cwd=tmp_path).returncode == -signal.SIGTERM
    command = [str(FORKED_PROGRAM), "serve", "shelf.py", "--http", "127.0.0.1:0"]
    with running_program(command, tmp_path) as program:
        port = int(program.wait_for(r"Serving shelf at http://127\.0\.0\.1:(\d+)")[1])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            program.end(signal.SIGKILL)
            connection.settimeout(HANG_SECONDS)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "nobody is left to serve it"
