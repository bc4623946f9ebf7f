"""With `keep_shapes`, what operations were seen to return outlives the gateway's process; else it stays in memory."""

import json
import stat
from pathlib import Path

from deltamcp import DeltaClient, connect
from tests.support import rows_server
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON

OBSERVED = "observed: {rows:[{id:int, title}]}"


def gateway(folder: Path, config: str) -> DeltaClient:
    """A client of `delta-mcp gateway` in a process of its own, which ends with the client."""
    path = folder / "gateway.toml"
    command = f"command = {json.dumps(str(FORKED_PYTHON))}\nargs = [{json.dumps(rows_server.__file__)}]"
    path.write_text(f"{config}\n[servers.rows]\n{command}\n")
    env = {f"XDG_{purpose}_HOME": str(folder / purpose.lower()) for purpose in ("STATE", "CACHE", "CONFIG")}
    entry = {"command": str(FORKED_PROGRAM), "args": ["gateway", str(path)], "env": env, "cwd": str(folder)}
    return connect(entry, progressive=False)


async def use(folder: Path, config: str) -> None:
    async with gateway(folder, config) as client:
        for count in (2, 3):
            await client.call_tool("execute", {"operation": "rows.table", "params": {"count": count}})


async def described(folder: Path, config: str) -> str:
    async with gateway(folder, config) as client:
        return (await client.call_tool("get_schema", {"operation": ["rows.table"]})).text


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_text(errors="replace")]


async def test_the_next_process_knows_and_the_file_is_its_users_alone(tmp_path: Path) -> None:
    config = "keep_shapes = true"
    await use(tmp_path, config)
    kept = files_with(tmp_path, '"title"')
    assert kept and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)
    assert not files_with(tmp_path, "Order 1"), "no value is written"
    assert OBSERVED in await described(tmp_path, config)


async def test_by_default_nothing_is_written(tmp_path: Path) -> None:
    await use(tmp_path, "")
    assert not files_with(tmp_path, '"title"')
    assert "observed" not in await described(tmp_path, "")


async def test_a_file_that_cannot_be_read_is_as_none(tmp_path: Path) -> None:
    config = "keep_shapes = true"
    await use(tmp_path, config)
    for path in files_with(tmp_path, '"title"'):
        path.write_text('[1, {"rows.table": [7]}]')
    assert "observed" not in await described(tmp_path, config)
    await use(tmp_path, config)
    assert OBSERVED in await described(tmp_path, config)
