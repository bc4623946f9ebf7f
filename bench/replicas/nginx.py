"""nginx before servers on the loopback, which passes each request on to the next of them in turn."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hostile.stores import SkippedError

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
"""A POST that an upstream has received is not sent to another: `proxy_next_upstream` lacks `non_idempotent`. No
upstream counts as failed for a time: where all do, nginx answers 502 without asking any."""


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
    servers = "\n".join(f"        server 127.0.0.1:{one} max_fails=0;" for one in upstreams)
    settings = folder / "nginx.conf"
    settings.write_text(_NGINX.format(folder=folder, port=port, servers=servers))
    process = subprocess.Popen([nginx, "-c", str(settings), "-e", str(folder / "error.log")], stdin=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait()
