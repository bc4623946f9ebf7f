"""nginx with the configuration of deploy/, at a port of a test's own."""

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.processes import wait_until_it_listens

CONFIGURATION = ROOT / "deploy" / "nginx" / "nginx.conf"
REPLICAS = CONFIGURATION.with_name("replicas.conf")
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
"""What nginx writes to disk for, in folders that are root's unless it is told others."""


def nginx_command(folder: Path, port: int, replicas: Sequence[int]) -> list[str]:
    """Writes the configuration into a folder, with other ports and paths; the command that runs nginx with it."""
    program = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx on PATH or in /usr/sbin")
    text = CONFIGURATION.read_text()
    places = "".join(f"{name}_temp_path {folder}/{name};\n" for name in TEMPORARY)
    for shipped, ours in {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "error_log /var/log/nginx/": f"error_log {folder}/",
        "access_log /var/log/nginx/": f"access_log {folder}/",
        "pid /run/": f"pid {folder}/",
        "http {\n": f"http {{\n{places}",
    }.items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    (folder / "nginx.conf").write_text(text)
    [parameters] = set(re.findall(r"^server \S+( .+)?;$", REPLICAS.read_text(), re.MULTILINE))
    (folder / "replicas.conf").write_text("".join(f"server 127.0.0.1:{one}{parameters};\n" for one in replicas))
    settings = "daemon off;" if os.geteuid() else "daemon off; user root;"  # root's folders are not for others
    return [program, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), "-g", settings]


@contextlib.contextmanager
def nginx(folder: Path, replicas: Sequence[int], port: int) -> Iterator[str]:
    """The address of nginx in front of replicas at these ports."""
    with subprocess.Popen(nginx_command(folder, port, replicas)) as process:
        try:
            wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(HANG_SECONDS)
