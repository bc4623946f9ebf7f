"""nginx before servers on the loopback, with the configuration of deploy/."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hostile.stores import SkippedError
from bench.peers import ROOT
from bench.ports import find_free_port, wait_for_port

CONFIGURATION = ROOT / "deploy" / "nginx" / "nginx.conf"
REPLICAS = CONFIGURATION.with_name("replicas.conf")
_WRITTEN = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""What nginx writes to disk for; its own folders are root's."""


def nginx_command(folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    """Writes the configuration into a folder, with other ports and paths; returns the command that runs nginx with it.

    Raises:
        SkippedError: nginx is not installed.
        RuntimeError: the configuration is not the one whose lines are known here.
    """
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SkippedError("there is no nginx on PATH or in /usr/sbin")
    text = CONFIGURATION.read_text()
    for shipped, ours in {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "error_log /var/log/nginx/": f"error_log {folder}/",
        "access_log /var/log/nginx/": f"access_log {folder}/",
        "pid /run/": f"pid {folder}/",
        "http {\n": "http {\n" + "".join(f"{name}_temp_path {folder}/{name};\n" for name in _WRITTEN),
    }.items():
        if text.count(shipped) != 1:
            raise RuntimeError(f"{CONFIGURATION} does not have {shipped!r} once")
        text = text.replace(shipped, ours)
    (folder / "nginx.conf").write_text(text)
    [parameters] = set(re.findall(r"^server \S+( .+)?;$", REPLICAS.read_text(), re.MULTILINE))
    (folder / "replicas.conf").write_text("".join(f"server 127.0.0.1:{one}{parameters};\n" for one in upstreams))
    settings = "daemon off;" if os.geteuid() else "daemon off; user root;"  # root's folders are not for others
    return [program, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), "-g", settings]


@contextlib.contextmanager
def run_nginx(folder: Path, upstreams: Sequence[int], port: int | None = None) -> Iterator[int]:
    """Runs nginx before these ports until the end of the block; yields its own port, a free one unless given.

    Raises:
        SkippedError: nginx is not installed.
    """
    port = port or find_free_port()
    process = subprocess.Popen(nginx_command(folder, port, upstreams), stdin=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()
