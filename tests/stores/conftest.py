"""The media over which the tests of stores run."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.processes import free_port
from tests.support.redis_server import redis_server
from tests.support.store_medium import Medium


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory) -> Iterator[str]:
    port = free_port()
    with redis_server(port, tmp_path_factory.mktemp("redis")):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def medium(request, tmp_path) -> AsyncIterator[Medium]:
    url = request.getfixturevalue("redis_url") if request.param == "redis" else ""
    made = Medium(request.param, tmp_path, url)
    yield made
    await made.close()
