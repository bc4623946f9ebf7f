"""Stands for a process that the fork server runs: hands over its streams, passes signals on and ends as that one does.

It is the program that the library or a peer starts, and costs the start of a bare interpreter. So it imports nothing
that is written in Python.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, which is written in Python
import _socket
import array
import marshal
import os
import struct
import sys

MESSAGE_BYTES = 200_000
NUMBER = struct.Struct("q")
"""A process id, then an exit code: what the server tells of a process."""


def interpreter_variables(environment: dict[str, str]) -> dict[str, str]:
    """Returns the variables that an interpreter reads when it starts, but for the folders of modules.

    The library `keyring` reads its own when it is imported, as a forked process does when it needs it.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LC_", "LANG")) and name not in ("PYTHONPATH", "PYTHON_KEYRING_BACKEND")
    }


def main(place: str, program: str, variables: dict[str, str], words: list[str], file: str | None = None) -> None:
    """Runs a program on the fork server at a place, or as it is where its interpreter would read other variables.

    It is the command line with these words, or a file of Python, or `-m` or `-c` with the module or the program first.
    """
    environment = dict(os.environ)
    read = interpreter_variables(environment)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        if read.items() - variables.items() or ((file or "")[:1] == "-" and file not in ("-c", "-m")):
            raise OSError
        connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, MESSAGE_BYTES)
        connection.connect(place)
        streams = array.array("i", [0, 1, 2])
        cwd = os.getcwd()  # noqa: PTH109 - pathlib is written in Python
        request = marshal.dumps((words, cwd, environment, file))
        connection.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    except OSError:
        os.execv(program, [program, *sys.argv[1:]])
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in streams:
        os.dup2(nowhere, stream)
    (pid,) = NUMBER.unpack(connection.recv(NUMBER.size))

    def pass_on(number: int, _: object) -> None:
        try:  # noqa: SIM105 - contextlib is written in Python
            os.kill(pid, number)
        except ProcessLookupError:
            pass  # it has just ended

    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, pass_on)
    (code,) = NUMBER.unpack(connection.recv(NUMBER.size))
    if code < 0:
        if -code != _signal.SIGKILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
