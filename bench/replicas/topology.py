"""Redis, replicas of one server, and nginx before them: as processes on the loopback."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.hostile import stores
from bench.ports import find_free_port, wait_for_port
from bench.replicas.nginx import run_nginx
from bench.restartable_process import RestartableProcess


class Replica(RestartableProcess):
    """One process of the server, which starts again at the same port."""

    def __init__(self, store: str, log: Path) -> None:
        self.port = find_free_port()
        super().__init__([sys.executable, "-E", "-m", "bench.replicas.server", str(self.port), store], log)


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
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(stores.redis())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        log = folder / "replicas.log"
        replicas = [Replica(store.url, log) for _ in range(count)]
        for replica in replicas:
            stack.callback(replica.kill)
        for replica in replicas:
            wait_for_port(replica.port, replica.process)
        port = stack.enter_context(run_nginx(folder, [replica.port for replica in replicas]))
        yield Topology(port, replicas, store.url, log)
