"""CS-12: the client of the official TypeScript SDK, over stdio, sees an ordinary server."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import six_tool_server as six_tools
from tests.support.conditions import HANG_SECONDS
from tests.support.six_tool_server import HITS, SIX_TOOLS

pytestmark = pytest.mark.interop
_PROGRAM = Path(__file__).with_name("official_client.cjs")


@pytest.fixture(scope="module")
def seen(node: Path, node_modules: Path) -> dict[str, Any]:
    """What the client saw; that it prints anything means that it could connect."""
    command = [str(node), str(_PROGRAM), sys.executable, six_tools.__file__]
    done = subprocess.run(
        command, cwd=node_modules.parent, capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_cs_12_01_it_connects(seen: dict[str, Any]) -> None:
    assert seen["server"] == {"name": "six-tools", "version": "0.2.1"}


def test_cs_12_02_the_list_has_schemas(seen: dict[str, Any]) -> None:
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in seen["tools"])


def test_cs_12_03_the_list_has_the_tools(seen: dict[str, Any]) -> None:
    assert {tool["name"] for tool in seen["tools"]} >= set(SIX_TOOLS)


def test_cs_12_04_a_call_returns_text(seen: dict[str, Any]) -> None:
    content = seen["searched"]["content"]
    assert content[0]["type"] == "text" and HITS[0]["title"] in content[0]["text"]


def test_cs_12_05_a_list_is_a_list_in_json(seen: dict[str, Any]) -> None:
    assert json.loads(seen["listed"]["content"][0]["text"]) == ["docs/", "src/", "README.md"]


def test_cs_12_06_a_call_of_an_unknown_tool_is_an_error_and_the_server_lives(seen: dict[str, Any]) -> None:
    assert "nonexistent_tool" in seen["unknown"]
    assert seen["afterwards"] == seen["listed"]


def test_cs_12_07_the_server_declares_tools(seen: dict[str, Any]) -> None:
    assert "tools" in seen["capabilities"]


def test_cs_12_08_a_failure_is_a_result(seen: dict[str, Any]) -> None:
    assert seen["failed"]["isError"] is True
