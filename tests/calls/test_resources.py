"""Resources: the bounds of what a client may ask to read."""

import pytest

from deltamcp import DeltaServer
from tests.support.era_client import ERAS, era_client


def dashes() -> DeltaServer:
    server = DeltaServer("dashes")
    for number in range(10):
        uri = f"y://{{a}}-{number}{{b}}-{{c}}-{{d}}"

        @server.resource(uri)
        def read(a: str, b: str, c: str, d: str) -> str:
            return f"{a} {b} {c} {d}"

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_a_uri_that_fits_in_many_ways_is_read_or_refused(era):
    async with era_client(dashes(), era) as peer:
        read = await peer.ask("resources/read", uri="y://1-3--5--7")
        assert read["result"]["contents"][0]["text"] == "1 - 5- 7"
        refused = await peer.ask("resources/read", uri="y://" + "-" * 8000)
        assert refused["error"]["code"] == -32602
        assert "too many ways" in refused["error"]["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_uri_beyond_the_limit_is_refused_and_not_repeated(era):
    async with era_client(dashes(), era) as peer:
        refused = await peer.ask("resources/read", uri="y://" + "-" * 8192)
    assert refused["error"]["code"] == -32602
    assert refused["error"]["message"] == "params.uri may have at most 8192 characters."
    assert "data" not in refused["error"]
