"""nginx before servers on the loopback, with the configuration of deploy/."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hostile.stores import SkippedError
from bench.peers import ROOT

START_SECONDS = 60.0
CONFIGURATION = ROOT / "deploy" / "nginx" / "nginx.conf"
_WRITTEN = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""What nginx writes to disk for; its own folders are root's."""


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """
    Raises:
        RuntimeError: the process ended, or does not listen in time.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen")


@contextlib.contextmanager
def run_nginx(folder: Path, upstreams: Sequence[int]) -> Iterator[int]:
    """Runs nginx before these ports until the end of the block; yields its own port.

    Raises:
        SkippedError: nginx is not installed.
    """
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise SkippedError("nginx is not installed")
    port = find_free_port()
    text = CONFIGURATION.read_text()
    for shipped, ours in {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "/var/log/nginx/": f"{folder}/",
        "/run/nginx.pid": f"{folder}/nginx.pid",
        "http {\n": "http {\n" + "".join(f"{name}_temp_path {folder}/{name};\n" for name in _WRITTEN),
        "include replicas.conf;": f"include {folder}/replicas.conf;",
    }.items():
        if shipped not in text:
            raise RuntimeError(f"{CONFIGURATION} has no {shipped!r}")
        text = text.replace(shipped, ours)
    (folder / "nginx.conf").write_text(text)
    parameters = _server_parameters()
    (folder / "replicas.conf").write_text("".join(f"server 127.0.0.1:{one}{parameters};\n" for one in upstreams))
    globals_ = "daemon off;" if os.geteuid() else "daemon off; user root;"  # root's folders are not for others
    command = [nginx, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), "-g", globals_]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()


def _server_parameters() -> str:
    """What the shipped list of replicas says of each beside its address."""
    first = next(line for line in CONFIGURATION.with_name("replicas.conf").read_text().splitlines() if "server" in line)
    _, _, parameters = first.strip().rstrip(";").removeprefix("server ").partition(" ")
    return f" {parameters}" if parameters else ""
