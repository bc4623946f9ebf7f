"""The commands of docs/mcp-lite.md print what the page says."""

import asyncio
import shutil

import pytest

from deltamcp.cli.serving.server_target import load
from tests.docs.page import assert_printed, blocks, commands
from tests.support.http_server import serve_http
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "mcp-lite.md"
ADDRESS = "http://127.0.0.1:8000"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_requests_of_the_page_are_answered_as_it_says(tmp_path):
    [source] = [block.text for block in blocks(PAGE) if block.file == "shelf.py"]
    (tmp_path / "shelf.py").write_text(source)
    shown = [
        command
        for block in blocks(PAGE)
        if block.language == "console" and block.reason is not None
        for command in commands(block.text)
    ]
    assert len(shown) >= 4
    async with serve_http(load(str(tmp_path / "shelf.py"))) as address:
        for command, wanted in shown:
            assert ADDRESS in command
            ran = await asyncio.create_subprocess_shell(
                command.replace(ADDRESS, address.removesuffix("/mcp")), stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await ran.communicate()
            assert_printed(printed.decode(), wanted, command)
