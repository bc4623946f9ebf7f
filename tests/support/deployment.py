"""What deploy/ describes, on loopback: nginx in front of three replicas, a worker, and Redis behind them."""

import contextlib
import secrets
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.nginx import nginx
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import free_port, wait_until_it_listens
from tests.support.program import RunningProgram, running_program
from tests.support.redis_server import redis_server

REPLICAS = 3
OPTIONS = ("--trusted-proxy", "127.0.0.1", "--no-worker", "--metrics", "--log-format", "json")
WORKERS = ("--workers", "2")
"""With these a replica is three processes, two of which import the library by themselves."""


@dataclass
class Deployment:
    """Where it is, and what runs there."""

    address: str
    """nginx."""
    replicas: dict[int, RunningProgram]
    """By their ports."""
    access_log: Path

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    def served_by(self, since: int = 0) -> list[int]:
        """The ports of the replicas that answered at /mcp, in nginx's log from a line on; the last that it tried."""
        lines = [line.split() for line in self.access_log.read_text().splitlines()[since:]]
        return [int(line[-2].rpartition(":")[2]) for line in lines if line[3] == '/mcp"' and ":" in line[-2]]

    def log_lines(self) -> int:
        return len(self.access_log.read_text().splitlines())

    def kill(self, port: int) -> None:
        """Kills a replica with its workers, as a machine would that loses power."""
        self.replicas[port].end(signal.SIGKILL)


@contextlib.contextmanager
def deployment(folder: Path, options: Sequence[str] = (), port: int | None = None) -> Iterator[Deployment]:
    """Starts all of it, with nginx at a port; `options` are further ones of the replicas."""
    keys = folder / "state-keys"
    keys.write_text(secrets.token_hex(32))
    store, port = free_port(), port or free_port()
    ports = [free_port() for _ in range(REPLICAS)]
    with contextlib.ExitStack() as running:
        (folder / "nginx").mkdir()
        address = running.enter_context(nginx(folder / "nginx", ports, port))  # first, for it may not be installed
        (folder / "redis").mkdir()
        running.enter_context(redis_server(store, folder / "redis"))
        replicas = {}
        shared = ["--store", f"redis://127.0.0.1:{store}/0", "--state-key-file", str(keys)]
        (folder / "worker").mkdir()
        command = [str(FORKED_PROGRAM), "worker", str(ROOT / "deploy" / "server.py"), *shared]
        running.enter_context(running_program(command, folder / "worker"))
        for replica in ports:
            place = folder / str(replica)
            place.mkdir()
            command = [
                str(FORKED_PROGRAM),
                "serve",
                str(ROOT / "deploy" / "server.py"),
                "--http",
                f"127.0.0.1:{replica}",
            ]
            command += [*shared, *OPTIONS, *options]
            replicas[replica] = running.enter_context(running_program(command, place))
        for replica, running_replica in replicas.items():
            wait_until_it_listens(running_replica.process, replica)
        yield Deployment(address, replicas, folder / "nginx" / "access.log")
        for running_replica in replicas.values():  # all at once, for each takes its time
            running_replica.process.terminate()
