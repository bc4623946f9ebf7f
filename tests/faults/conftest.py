"""The server process that the tests of HTTP faults share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http_faults import FaultServer, fault_server

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """The server most tests share; whatever one test does to it the next one feels."""
    place = tmp_path_factory.mktemp("http")
    with fault_server(place, threads=8, stall_seconds=0.2) as server:
        yield server
        assert server.process.poll() is None, server.log_text()
