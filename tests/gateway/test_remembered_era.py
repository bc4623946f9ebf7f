"""The era of a server is remembered with its lists: an old one is not asked what it does not know, until it fails."""

from pathlib import Path

import pytest

from deltamcp import connect
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.upstreams.upstream import Upstream
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.forwarded_call import call
from tests.support.listing_upstream import gateway


def scripted(folder: Path, **script: object) -> UpstreamConfig:
    """A server that says what a file says, so that its entry stays the same when it is another version."""
    file = folder / "script"
    _, program, text = fake_stdio.command(log=str(folder / "log"), **script)
    file.write_text(text)
    start = "import runpy, sys; sys.argv = [sys.argv[1], open(sys.argv[2]).read()]; "
    command = fake_stdio.command()[0]
    args = ["-c", start + "runpy.run_path(sys.argv[0], run_name='__main__')", program, str(file)]
    return UpstreamConfig(name="fake", entry={"command": command, "args": args}, promise="never")


async def use(folder: Path, config: UpstreamConfig) -> None:
    async with connect(gateway(folder, config).server, progressive=False) as client:
        assert not (await client.call_tool("echo", {})).is_error
        await wait_until(lambda: any((folder / "catalogs").glob("*.catalog")))


def probes(folder: Path) -> int:
    return len(fake_stdio.messages(folder / "log", "server/discover"))


async def test_an_old_server_is_probed_once_and_again_after_a_failure(tmp_path: Path) -> None:
    old = scripted(tmp_path, discover=-32601)
    await use(tmp_path, old)
    assert probes(tmp_path) == 1
    for _ in range(2):
        await use(tmp_path, old)
        assert probes(tmp_path) == 1, "a start of the gateway probes nothing"
    await use(tmp_path, scripted(tmp_path, initialize=-32601))
    assert probes(tmp_path) == 2, "it is of the modern era now, and refuses the introduction"
    await use(tmp_path, scripted(tmp_path))
    assert probes(tmp_path) == 3, "a modern server is asked as ever"


@pytest.mark.parametrize("protocol", ["2025-11-25", "2024-11-05"])
async def test_a_known_server_that_does_not_start_is_probed_at_its_next_start(tmp_path: Path, protocol: str) -> None:
    upstream = Upstream("fake", scripted(tmp_path, discover=-32601, initialize=["exit", "answer"]).entry)
    upstream.remember_protocol(protocol)
    try:
        with pytest.raises(Exception, match="cannot be used: ended with exit code 3"):
            await call(upstream, "echo")
        assert probes(tmp_path) == 0
        await call(upstream, "echo")
        assert probes(tmp_path) == 1
    finally:
        await upstream.close()
