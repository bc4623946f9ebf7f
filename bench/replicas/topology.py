"""Redis, replicas of one server, and nginx before them: as processes on the loopback."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.hostile import stores
from bench.hostile.stores import SkippedError
from bench.peers import ROOT

START_SECONDS = 60.0

_NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream replicas {{
{servers}
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Host localhost;
            proxy_set_header Connection "";
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_buffering off;
            proxy_read_timeout 1h;
            proxy_next_upstream error timeout;
        }}
    }}
}}
"""
"""A POST that an upstream has received is not sent to another: `proxy_next_upstream` lacks `non_idempotent`."""


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


class Replica:
    """One process of the server, which can be killed and started again at the same port."""

    def __init__(self, store: str, log: Path) -> None:
        self.port = find_free_port()
        self._store = store
        self._log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-E", "-m", "bench.replicas.server", str(self.port), self._store]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def restart(self) -> None:
        """Kills the process as a crash would, and starts another."""
        self.kill()
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Topology:
    """Replicas behind nginx, all with one Redis."""

    def __init__(self, port: int, replicas: list[Replica], store: str, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.port = port
        self.replicas = replicas
        self.store = store
        self._log = log

    def log_text(self) -> str:
        """What the replicas wrote."""
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def run_topology(count: int = 3) -> Iterator[Topology]:
    """Starts everything, and ends it with the block.

    Raises:
        SkippedError: nginx or Redis is not installed.
    """
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise SkippedError("nginx is not installed")
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(stores.redis())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        log = folder / "replicas.log"
        replicas = [Replica(store.url, log) for _ in range(count)]
        for replica in replicas:
            stack.callback(replica.kill)
        for replica in replicas:
            wait_for_port(replica.port, replica.process)
        port = find_free_port()
        servers = "\n".join(
            f"        server 127.0.0.1:{replica.port} max_fails=1 fail_timeout=1s;" for replica in replicas
        )
        settings = folder / "nginx.conf"
        settings.write_text(_NGINX.format(folder=folder, port=port, servers=servers))
        command = [nginx, "-c", str(settings), "-e", str(folder / "error.log")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        wait_for_port(port, process)
        yield Topology(port, replicas, store.url, log)
