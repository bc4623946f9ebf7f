"""The example whose callers log in: run as its pages say, by those who have what the README installs."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from mcp_types import TextContent

from tests.docs.example_readme import ExampleReadme
from tests.docs.page import assert_printed
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PYTHON, ROOT
from tests.support.processes import free_port
from tests.support.program import running_program
from tests.support.sdk_login import SdkLogin


@pytest.fixture
def example(tmp_path):
    """The example's server, and the address that it serves."""
    port = free_port()
    command = [str(FORKED_PYTHON), "-m", "examples.http_oauth.server", str(port), str(free_port())]
    with running_program(command, tmp_path, cwd=ROOT) as program:
        program.wait_for(r"Serving whoami at (\S+)")
        yield program, f"http://127.0.0.1:{port}/mcp"


def test_the_client_logs_in_asks_for_more_and_a_stranger_is_refused(example):
    _, url = example
    ran = subprocess.run(
        [str(FORKED_PYTHON), "-m", "examples.http_oauth.client", url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    _, client = ExampleReadme("http_oauth").commands()
    assert client.shown is not None
    assert_printed(ran.stdout, client.shown, client.text)


def test_the_printed_commands_are_answered_and_refused(example):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on PATH")
    program, _ = example
    valid, foreign = re.findall(r"^curl .+$", program.text(), re.MULTILINE)

    def run(command: str) -> Any:
        ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=HANG_SECONDS)
        return json.loads(ran.stdout)

    [content] = run(valid)["result"]["content"]
    told = json.loads(content["text"])
    assert told["subject"] == "alice" and told["scopes"] == ["notes:read"]
    assert run(foreign)["error"]["data"]["reason"] == "wrong_audience"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdks_client_logs_in_too(example, mode):
    _, url = example
    login = SdkLogin("bob")
    async with login.connect(url, mode) as client:
        [content] = (await client.call_tool("whoami")).content
        assert isinstance(content, TextContent) and json.loads(content.text)["subject"] == "bob"
        assert not (await client.call_tool("write_note", {"text": "buy milk"})).is_error
    assert len(login.visits) == 2
