"""Redis, replicas and workers of the measured server, as processes that can be killed and start again."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.hostile import stores
from bench.ports import find_free_port, wait_for_port
from bench.restartable_process import RestartableProcess

_SERVER = "bench/promises/server.py"


class PromiseProcess(RestartableProcess):
    """A replica or a worker; it starts again at the same port."""

    def __init__(self, words: list[str], folder: Path) -> None:
        environment = {**os.environ, "PROMISES_EFFECTS": str(folder / "effects")}
        super().__init__([sys.executable, "-m", "deltamcp", *words], folder / "log", environment)


class PromiseTopology:
    """Replicas and workers with one Redis."""

    def __init__(self, store: str, folder: Path, replicas: int, workers: int, options: list[str]) -> None:
        self.store = store
        self._folder = folder
        self.ports = [find_free_port() for _ in range(replicas)]
        serve = ["serve", _SERVER, *options, "--http"]
        self.replicas = []
        for number, port in enumerate(self.ports, start=1):
            named = f"{store}?client_name=replica-{number}" if store.startswith("redis") else store
            self.replicas.append(PromiseProcess([*serve, f"127.0.0.1:{port}", "--store", named], folder))
        self.workers = [PromiseProcess(["worker", _SERVER, "--store", store], folder) for _ in range(workers)]

    @property
    def processes(self) -> list[PromiseProcess]:
        return [*self.replicas, *self.workers]

    @property
    def endpoints(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/mcp-lite/v1/calltools" for port in self.ports]

    def effects(self) -> list[str]:
        """The calls that began, a line each."""
        path = self._folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def log_text(self) -> str:
        """What the processes wrote."""
        return (self._folder / "log").read_text(errors="replace")


@contextlib.contextmanager
def run_topology(replicas: int, workers: int, *options: str, store: str | None = None) -> Iterator[PromiseTopology]:
    """Starts everything, and ends it with the block; `options` are those of `delta-mcp serve`.

    The store is in a Redis server of its own, unless `store` is the URL of another.

    Raises:
        SkippedError: Redis is not installed.
    """
    with contextlib.ExitStack() as stack:
        store = store or stack.enter_context(stores.redis()).url
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        topology = PromiseTopology(store, folder, replicas, workers, list(options))
        for process in topology.processes:
            stack.callback(process.kill)
        for port, replica in zip(topology.ports, topology.replicas, strict=True):
            wait_for_port(port, replica.process)
        yield topology
