"""With `keep_results`, what a gateway on stdio has stored outlives its process; else the sentence about it says how."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaClient, ResultPolicy, connect
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support import rows_server
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON

ADVICE = "keep_results = true"


def own_files(folder: Path) -> list[Path]:
    """The files and folders in which results are kept."""
    kept = folder / "cache" / "delta-mcp" / "results"
    return [*kept.glob("*"), kept, folder / "state" / "delta-mcp" / "results.key"]


def gateway(folder: Path, config: str = "keep_results = true", cwd: Path | None = None) -> DeltaClient:
    """A client of `delta-mcp gateway` in a process of its own, which ends with the client."""
    path = folder / "gateway.toml"
    command = f"command = {json.dumps(str(FORKED_PYTHON))}\nargs = [{json.dumps(rows_server.__file__)}]"
    path.write_text(f'disclosure = "full"\nquery = false\n{config}\n[servers.rows]\n{command}\n')
    env = {f"XDG_{purpose}_HOME": str(folder / purpose.lower()) for purpose in ("STATE", "CACHE", "CONFIG")}
    return connect(
        {"command": str(FORKED_PROGRAM), "args": ["gateway", str(path)], "env": env, "cwd": str(cwd or folder)}
    )


async def call(client: DeltaClient, name: str, **arguments: Any) -> tuple[str, Mapping[str, Any]]:
    result = await client.request("tools/call", {"name": name, "arguments": arguments})
    return result["content"][0]["text"], (result.get("_meta") or {}).get("io.github.delta-mcp/result", {})


async def stored_handle(folder: Path, **options: Any) -> str:
    """The handle of a result that a gateway has cut, which has ended since."""
    async with gateway(folder, **options) as client:
        _, meta = await call(client, "rows", count=4000)
    return str(meta["handle"])


async def test_a_handle_is_good_for_the_next_process(tmp_path: Path) -> None:
    handle = await stored_handle(tmp_path)
    async with gateway(tmp_path) as client:
        found, meta = await call(client, "continue", handle=handle, grep="3999:")
        assert "3999: a line of the text" in found and meta["handle"] == handle
        unknown, _ = await call(client, "continue", handle="Rnone")
    assert "Nothing is kept" in unknown and ADVICE not in unknown


async def test_what_is_kept_is_the_users_alone_and_sealed(tmp_path: Path) -> None:
    await stored_handle(tmp_path)
    files = own_files(tmp_path)
    assert len(files) >= 3
    assert {path.stat().st_mode & 0o777 for path in files if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in files if path.is_file()} == {0o600}
    everything = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [content for content in everything if b"a line of the text" in content]


async def test_another_configuration_or_folder_does_not_find_it(tmp_path: Path) -> None:
    handle = await stored_handle(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other_config = "keep_results = true\nwait_seconds = 7"
    for client in (gateway(tmp_path, cwd=elsewhere), gateway(tmp_path, other_config)):
        async with client:
            text, _ = await call(client, "continue", handle=handle)
            assert "Nothing is kept" in text
    async with gateway(tmp_path) as client:
        text, _ = await call(client, "continue", handle=handle)
        assert "a line of the text" in text


async def test_without_the_key_nothing_is_kept_and_the_sentence_about_it_names_the_key(tmp_path: Path) -> None:
    handle = await stored_handle(tmp_path, config="")
    assert not any(path.exists() for path in own_files(tmp_path))
    async with gateway(tmp_path, "") as client:
        text, _ = await call(client, "continue", handle=handle)
    assert f"{handle!r} any more; call the tool again. With {ADVICE}" in text


def gateway_here(results: ResultPolicy) -> Gateway:
    upstream = UpstreamConfig(name="rows", entry={"command": str(FORKED_PYTHON), "args": [rows_server.__file__]})
    config = GatewayConfig(
        upstreams=[upstream], disclosure="full", query=False, results=results, keep_results=True, prefix=False
    )
    return Gateway(config)


async def test_a_result_that_was_stored_as_a_base_of_deltas_only_is_not_kept(tmp_path: Path) -> None:
    policy = ResultPolicy(max_tokens=2000, deltas=True)
    async with connect(gateway_here(policy).server) as client:
        _, whole = await call(client, "rows", count=50)
        _, part = await call(client, "rows", count=500)
        assert whole["outcome"] == part["outcome"] == "full"
        _, again = await call(client, "rows", count=500, pack_root=part["root"])
        assert again["outcome"] == "unchanged", "in one process it is a base"
    async with connect(gateway_here(policy).server) as client:
        lost, _ = await call(client, "continue", handle=whole["handle"])
        assert "Nothing is kept" in lost
        rest, _ = await call(client, "continue", handle=part["handle"], grep="499:")
        assert "499: a line of the text" in rest
        _, meta = await call(client, "rows", count=500, pack_root=part["root"])
        assert meta["outcome"] == "full", "a result of an earlier process is no base"


@pytest.mark.parametrize("kept", [True, False])
async def test_a_gateway_that_keeps_results_makes_no_file_before_there_is_one(tmp_path: Path, kept: bool) -> None:
    async with gateway(tmp_path, "keep_results = true" if kept else "") as client:
        await call(client, "rows", count=3)
    assert not any(path.exists() for path in own_files(tmp_path))
