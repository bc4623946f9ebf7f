"""The MCP Inspector's command line against the example server, on stdio and HTTP, in both eras."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.interop,
    pytest.mark.diagonal("era", "target", "method", "request_"),
]

SECONDS = 120
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

LISTS = {
    "tools/list": ("tools", "name", "operations"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "templates"),
    "prompts/list": ("prompts", "name", "prompts"),
}
"""The key of the list, what names an item, and the catalog's shelf."""

REQUESTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a tool without arguments": (
        ["tools/call", "--tool-name", "test_simple_text"],
        {"content": [{"type": "text", "text": "This is a simple text response for testing."}]},
    ),
    "a tool with arguments": (
        ["tools/call", "--tool-name", "test_plain_function", "--tool-arg", "text=ab", "times=3"],
        {"content": [{"type": "text", "text": '["ab","ab","ab"]'}]},
    ),
    "a tool with a structured result": (
        [
            *("tools/call", "--tool-name", "test_structured_output"),
            *("--tool-args-json", '{"place": {"city": "Bern"}, "days": 2}'),
        ],
        {
            "content": [{"type": "text", "text": '{"city":"Bern","celsius":22.0,"sky":"clear"}'}],
            "structuredContent": {"city": "Bern", "celsius": 22.0, "sky": "clear"},
        },
    ),
    "a tool with a mirrored argument": (
        ["tools/call", "--tool-name", "test_x_mcp_header", "--tool-arg", "region=Zürich"],
        {"content": [{"type": "text", "text": "region=Zürich"}]},
    ),
    "a resource": (
        ["resources/read", "--uri", "test://static-text"],
        {
            "contents": [
                {
                    "uri": "test://static-text",
                    "mimeType": "text/plain",
                    "text": "This is the content of the static text resource.",
                }
            ]
        },
    ),
    "a prompt": (
        ["prompts/get", "--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=tea", "arg2=milk"],
        {
            "description": "A prompt that is filled in.",
            "messages": [
                {
                    "role": "user",
                    "content": {"type": "text", "text": "Prompt with arguments: arg1='tea', arg2='milk'"},
                }
            ],
        },
    ),
}

MODERN_ONLY = {"ttlMs", "cacheScope"}
"""What 2026-07-28 adds to a result that may be kept."""


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, command: list[str]) -> list[str]:
    return command if request.param == "stdio" else [request.getfixturevalue("everything"), "--transport", "http"]


@pytest.fixture
def inspect(node: Path, node_modules: Path, target: list[str], era: str, tmp_path: Path) -> Any:
    """Runs one method; its exit code, its result and its complaint."""
    entry = node_modules / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"

    def run(method: str, *options: str) -> tuple[int, Any, str]:
        ran = subprocess.run(
            [node, entry, "--cli", *target, "--protocol-era", era, "--format", "json", "--method", method, *options],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={"HOME": str(tmp_path), "PATH": str(node.parent)},
        )
        return ran.returncode, json.loads(ran.stdout)["result"] if ran.stdout else None, ran.stderr

    return run


@pytest.mark.parametrize("method", LISTS)
def test_a_list_holds_what_the_catalog_holds(inspect, server, method):
    key, name, shelf = LISTS[method]
    code, result, complaint = inspect(method)
    assert code == 0, complaint
    assert [item[name] for item in result[key]] == list(getattr(server.engine.catalog, shelf))


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_is_answered(inspect, era, request_):
    options, expected = REQUESTS[request_]
    code, result, complaint = inspect(*options)
    assert code == 0, complaint
    if era == "modern":
        assert result.pop("_meta")[SERVER_INFO]["name"] == "everything"
        result = {key: value for key, value in result.items() if key not in MODERN_ONLY}
    assert result == expected


def test_a_tool_that_fails_is_told_from_one_that_does_not(inspect):
    """Exit code 5 is the Inspector's for a result with `isError`."""
    code, result, complaint = inspect("tools/call", "--tool-name", "test_error_handling")
    assert (code, result["isError"]) == (5, True)
    assert json.loads(complaint)["error"]["code"] == "tool_is_error"
