"""The applications of docs/deployment.md serve MCP beside their own routes."""

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from deltamcp import UnauthorizedError, connect
from tests.docs.page import blocks
from tests.support.http_server import serve_uvicorn
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "deployment.md"


def load(file: str, folder: Path) -> Any:
    """The application of a block, as a reader would import it."""
    [text] = [block.text for block in blocks(PAGE) if block.file == file]
    path = folder / file
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"deployment_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module.app


def serve_app(app: Any) -> contextlib.AbstractAsyncContextManager[str]:
    return serve_uvicorn(uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on")))


async def test_a_server_stands_beside_the_routes_of_an_application(tmp_path):
    async with serve_app(load("app.py", tmp_path)) as address:
        async with connect(f"{address}/mcp") as client:
            assert await client.call("lend", id=7) == "Volume 7 is lent."
        async with httpx2.AsyncClient() as web:
            assert (await web.get(f"{address}/health")).text == "ok"


async def test_a_middleware_says_who_calls(tmp_path, monkeypatch):
    monkeypatch.setenv("SHELF_TOKEN", "t0ken")
    async with serve_app(load("guarded.py", tmp_path)) as address:
        async with connect(f"{address}/mcp", token="t0ken") as client:
            assert await client.call("lend", id=7) == "Volume 7 is lent by librarian."
        with pytest.raises(UnauthorizedError):
            async with connect(f"{address}/mcp", token="wrong"):
                pass
