"""A Redis server for the tests of calls that replicas share."""

from collections.abc import Iterator

import pytest

from tests.support.processes import free_port
from tests.support.redis_server import redis_server


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory) -> Iterator[str]:
    port = free_port()
    with redis_server(port, tmp_path_factory.mktemp("redis")):
        yield f"redis://127.0.0.1:{port}/0"
