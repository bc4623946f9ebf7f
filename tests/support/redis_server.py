"""A Redis server of a test's own."""

import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.certificate import write_certificate
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT


class ProtectedRedis(NamedTuple):
    """The addresses of a Redis server, by who connects."""

    url: str
    """For the server and its workers."""
    admin_url: str
    """For who looks at what was refused."""
    anonymous_url: str


@contextmanager
def protected_redis_server(port: int, directory: Path) -> Iterator[ProtectedRedis]:
    """Starts one with the configuration and the users of deploy/redis, and one user more, who may everything."""
    password = secrets.token_hex(32)
    users = (ROOT / "deploy" / "redis" / "users.acl").read_text()
    users = users.replace("PASSWORD_SHA256", sha256(password.encode()).hexdigest())
    (directory / "users.acl").write_text(f"{users}user admin on >{password} allkeys allchannels allcommands\n")
    write_certificate(directory)
    options = [str(ROOT / "deploy" / "redis" / "redis.conf"), "--tls-port", str(port)]
    for option, name in (("--tls-cert-file", "cert.pem"), ("--tls-key-file", "key.pem"), ("--aclfile", "users.acl")):
        options += [option, str(directory / name)]
    place = f"127.0.0.1:{port}/0?ssl_ca_certs={directory / 'cert.pem'}"
    with redis_server(port, directory, *options):
        yield ProtectedRedis(
            f"rediss://delta-mcp:{password}@{place}", f"rediss://admin:{password}@{place}", f"rediss://{place}"
        )


@contextmanager
def redis_server(port: int, directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts one at a port of loopback; `options` may begin with a configuration file."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("there is no redis-server on PATH")
    if not options:
        options = ("--port", str(port))
    command = [program, *options, "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    log = directory / "log"
    log.unlink(missing_ok=True)
    process = subprocess.Popen([*command, "--logfile", str(log)])
    try:
        end = time.monotonic() + HANG_SECONDS
        while not (log.exists() and "Ready to accept connections" in log.read_text()):
            assert process.poll() is None and time.monotonic() < end, "redis-server did not start"
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
