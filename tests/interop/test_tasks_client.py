"""Published clients of MCP's tasks: npm's @modelcontextprotocol/ext-tasks, and the official SDK for Python."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from pydantic import TypeAdapter

from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import served_command

pytestmark = pytest.mark.interop

SECONDS = 120
OLD, NEW = "2025-11-25", "2026-07-28"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served_command(
        [str(FORKED_PROGRAM), "serve", str(ROOT / "tests/conformance/everything_with_tasks.py")]
    ) as address:
        yield address


@pytest.fixture
def call(node: Path, node_modules: Path, url: str) -> Any:
    """Calls tools by the client, and gives what came of them."""

    def run(version: str, *calls: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        given = {"modules": str(node_modules), "url": url, "version": version, "calls": calls}
        program = ROOT / "tests/interop/programs/tasks_client.mjs"
        ran = subprocess.run(
            [node, program, json.dumps(given)], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        return found["capabilities"], found["calls"]

    return run


def text(called: dict[str, Any]) -> str:
    found: str = called["result"]["content"][0]["text"]
    return found


@pytest.mark.parametrize("version", [OLD, NEW])
def test_it_calls_tools_at_once_as_tasks_and_cancels(call, version):
    capabilities, (greeted, computed, cancelled) = call(
        version,
        {"tool": "greet", "arguments": {"name": "Ada"}},
        {"tool": "slow_compute", "arguments": {"seconds": 1, "label": "sum"}},
        {"tool": "slow_compute", "arguments": {"seconds": 60}, "cancel": True},
    )
    assert capabilities["execution"] and capabilities["cancellation"]
    assert (greeted["kind"], text(greeted)) == ("immediate", "Hello, Ada!")
    assert (computed["kind"], computed["status"], text(computed)) == ("task", "completed", "sum: 1 s")
    assert (cancelled["kind"], cancelled["status"]) == ("task", "cancelled")


def test_a_tools_error_fails_a_task_of_2025_11_25(call):
    _, (failed,) = call(OLD, {"tool": "failing_job", "arguments": {}})
    assert (failed["kind"], failed["status"]) == ("task", "failed")
    assert failed["error"]["message"] == "This job always fails."


def test_in_the_extension_only_an_error_of_the_protocol_fails_a_task(call):
    _, (failed, refused) = call(
        NEW, {"tool": "failing_job", "arguments": {}}, {"tool": "protocol_error_job", "arguments": {}}
    )
    assert (failed["status"], failed["result"]["isError"]) == ("completed", True)
    assert (refused["status"], refused["error"]["code"]) == ("failed", -32021)


def test_in_the_extension_it_answers_questions_before_and_during_a_task(call):
    """In 2025-11-25 this client does not ask for the questions: it never calls `tasks/result` before the end."""
    _, (deleted, several, greeted) = call(
        NEW,
        {"tool": "confirm_delete", "arguments": {"filename": "a.txt"}},
        {"tool": "multi_input", "arguments": {}},
        {"tool": "test_tool_with_task", "arguments": {}},
    )
    assert "input_required" in deleted["states"]
    assert (text(deleted), text(several)) == ("a.txt: accept", "2 answers")
    assert (greeted["kind"], text(greeted)) == ("task", "Hello, Ada!")


# The official Python SDK has no tasks, and takes no task for the result of a call; other methods it passes on.


class SdkRequest(types.Request[dict[str, Any], str]):
    """A request of a method that the SDK does not know."""


def start_task(url: str, tool: str, arguments: dict[str, Any]) -> str:
    """The id of a task that a client of 2026-07-28 has made."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    headers = {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": tool}
    response = httpx2.post(
        url,
        json={**body, "params": {"name": tool, "arguments": arguments, "_meta": meta}},
        headers={"accept": "application/json, text/event-stream", **headers},
    )
    id_: str = response.json()["result"]["taskId"]
    return id_


async def test_the_python_sdk_is_asked_the_questions_of_a_task_while_it_waits_for_the_result(url):
    asked: list[Any] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return types.ElicitResult(action="accept", content={"confirm": True})

    id_ = start_task(url, "confirm_delete", {"filename": "a.txt"})
    async with asyncio.timeout(SECONDS), Client(url, mode="legacy", elicitation_callback=elicit) as client:
        adapter: Any = TypeAdapter(dict[str, Any])
        waiting = SdkRequest(method="tasks/result", params={"taskId": id_})
        result = await client.session.send_request(waiting, adapter)
        assert result["content"][0]["text"] == "a.txt: accept"
        ended = await client.session.send_request(SdkRequest(method="tasks/get", params={"taskId": id_}), adapter)
        assert ended["status"] == "completed"
    assert [params.message for params in asked] == ["Delete a.txt?"]
    assert asked[0].meta["io.modelcontextprotocol/related-task"] == {"taskId": id_}
