"""Everything the example server says, held against the JSON Schemas MCP publishes for each of its versions."""

import asyncio
import base64
import binascii
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import FormatChecker  # type: ignore[import-untyped]
from jsonschema.validators import validator_for  # type: ignore[import-untyped]
from referencing import Registry, Resource

from deltamcp import DeltaServer
from deltamcp.cli.serving.server_target import load
from tests.support.raw_link import RawLink, raw_link
from tests.support.sdk_host import FORM

SECONDS = 120
MODERN = "2026-07-28"
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
VERSIONS = [*HANDSHAKE, MODERN]

CAPABILITIES: dict[str, dict[str, Any]] = {
    "2024-11-05": {"sampling": {}, "roots": {}},
    "2025-03-26": {"sampling": {}, "roots": {}},
    "2025-06-18": {"sampling": {}, "roots": {}, "elicitation": {}},
    "2025-11-25": {"sampling": {}, "roots": {}, "elicitation": {}},
    "2026-07-28": {"sampling": {}, "roots": {}, "elicitation": {}},
}
"""All a client of a version can be asked."""

KINDS = {
    "2024-11-05": {"text", "image", "resource"},
    "2025-03-26": {"text", "image", "resource", "audio"},
    "2025-06-18": {"text", "image", "resource", "audio", "resource_link"},
    "2025-11-25": {"text", "image", "resource", "audio", "resource_link"},
    "2026-07-28": {"text", "image", "resource", "audio", "resource_link"},
}
"""The kinds of content a version has."""

RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
}

NOTIFICATIONS = {
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
}

QUESTIONS = {
    "sampling/createMessage": "CreateMessageRequest",
    "elicitation/create": "ElicitRequest",
    "roots/list": "ListRootsRequest",
}

ERRORS = {-32600: "InvalidRequestError", -32601: "MethodNotFoundError", -32602: "InvalidParamsError"}
ERROR_RESPONSES = {-32021: "MissingRequiredClientCapabilityError", -32022: "UnsupportedProtocolVersionError"}
"""2026-07-28 has a definition for each code: of the error, or of the whole response."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "test_structured_output": {"place": {"city": "Bern"}},
    "test_plain_function": {"text": "ab"},
    "json_schema_2020_12_tool": {"email": "ada@example.org"},
    "test_sampling": {"prompt": "What is the capital of France?"},
    "test_elicitation": {"message": "Who are you?"},
}
"""Of the tools that need some."""

URIS = [
    "test://static-text",
    "test://static-binary",
    "test://watched-resource",
    "test://parts",
    "test://template/1/data",
]

PROMPTS: dict[str, dict[str, str]] = {
    "test_simple_prompt": {},
    "test_prompt_with_arguments": {"arg1": "tea", "arg2": "milk"},
    "test_prompt_with_embedded_resource": {"resourceUri": "test://example"},
    "test_prompt_with_image": {},
}

COMPLETIONS: list[dict[str, Any]] = [
    {"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"}, "argument": {"name": "arg1", "value": "p"}},
    {"ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"}, "argument": {"name": "arg2", "value": "p"}},
    {"ref": {"type": "ref/resource", "uri": "test://template/{id}/data"}, "argument": {"name": "id", "value": ""}},
]

MISTAKES: dict[str, dict[str, Any]] = {
    "nothing/known": {},
    "tools/call": {"name": "test_nothing"},
    "resources/read": {"uri": "test://nowhere"},
    "prompts/get": {"name": "test_prompt_with_arguments"},
    "completion/complete": {"ref": {"type": "ref/nothing"}},
    "tools/list": {"cursor": "never given"},
}

formats = FormatChecker()


@formats.checks("uri")
def _is_uri(value: object) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)


@formats.checks("byte", raises=binascii.Error)
def _is_base64(value: object) -> bool:
    return not isinstance(value, str) or base64.b64decode(value, validate=True) is not None


class Schema:
    """One version's definitions."""

    def __init__(self, version: str, directory: Path) -> None:
        document = json.loads((directory / f"{version}.json").read_text())
        self.part = "definitions" if "definitions" in document else "$defs"
        self.definitions: dict[str, Any] = document[self.part]
        self._registry: Any = Registry().with_resource("mcp:schema", Resource.from_contents(document))
        self._validator = validator_for(document)

    def check(self, definition: str, value: Any) -> None:
        assert definition in self.definitions, definition
        reference = {"$ref": f"mcp:schema#/{self.part}/{definition}"}
        checker = self._validator(reference, registry=self._registry, format_checker=formats)
        problems = [f"{problem.json_path}: {problem.message}" for problem in checker.iter_errors(value)]
        assert not problems, (definition, problems, value)

    def fields(self, definition: str) -> set[str]:
        return set(self.definitions[definition]["properties"])


class Client:
    """Speaks one version by hand; holds everything it is sent against that version's schema."""

    def __init__(self, link: RawLink, version: str, schema: Schema) -> None:
        self.version = version
        self.schema = schema
        self.capabilities = CAPABILITIES[version]
        self.notified: list[str] = []
        self.questioned: set[str] = set()
        self._link = link
        self._id = 0

    def send(self, message: dict[str, Any]) -> None:
        self._link.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def post(self, method: str, params: dict[str, Any], meta: dict[str, Any]) -> int:
        self._id += 1
        if self.version == MODERN:
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                **meta,
            }
        if meta:
            params = {**params, "_meta": meta}
        self.send({"id": self._id, "method": method, "params": params})
        return self._id

    async def receive(self) -> Any:
        return json.loads(await self._link.receive())

    async def hear(self) -> dict[str, Any]:
        """The next message that is not a question; questions are answered on the way."""
        while True:
            message: dict[str, Any] = await self.receive()
            if "method" not in message:
                return message
            if "id" not in message:
                self.schema.check(NOTIFICATIONS[message["method"]], message)
                self.schema.check("JSONRPCNotification", message)
                self.notified.append(message["method"])
                return message
            self.schema.check(QUESTIONS[message["method"]], message)
            self.schema.check("ServerRequest", message)
            self.send({"id": message["id"], "result": self.answer(message)})

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        self.questioned.add(question["method"])
        if question["method"] == "roots/list":
            return {"roots": [{"uri": "file:///work"}]}
        if question["method"] == "sampling/createMessage":
            return {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "a-model"}
        fields = question["params"]["requestedSchema"]["properties"]
        return {"action": "accept", "content": {name: FORM[name] for name in fields}}

    async def response(self, method: str, params: dict[str, Any], **meta: Any) -> dict[str, Any]:
        id_ = self.post(method, params, meta)
        while True:
            message = await self.hear()
            if message.get("id") == id_:
                return message

    async def ask(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """A result that fits the definition for its method, after as many rounds as it takes."""
        asked = params = params or {}
        while True:
            message = await self.response(method, asked, **meta)
            assert "result" in message, message
            result: dict[str, Any] = message["result"]
            self.schema.check("JSONRPCResultResponse" if self.version >= "2025-11-25" else "JSONRPCResponse", message)
            if result.get("resultType") != "input_required":
                self.schema.check(RESULTS[method], result)
                return result
            self.schema.check("InputRequiredResult", result)
            for question in result["inputRequests"].values():
                self.schema.check(QUESTIONS[question["method"]], question)
            answers = {key: self.answer(question) for key, question in result["inputRequests"].items()}
            asked = {**params, "inputResponses": answers, "requestState": result["requestState"]}

    async def fail(self, method: str, params: dict[str, Any], **meta: Any) -> int:
        """The code of an error that fits its definition."""
        return self.check_error(await self.response(method, params, **meta))

    def check_error(self, message: dict[str, Any]) -> int:
        assert "error" in message, message
        self.schema.check("JSONRPCErrorResponse" if self.version >= "2025-11-25" else "JSONRPCError", message)
        code: int = message["error"]["code"]
        if self.version == MODERN and code in ERROR_RESPONSES:
            self.schema.check(ERROR_RESPONSES[code], message)
        elif self.version == MODERN:
            self.schema.check(ERRORS[code], message["error"])
        return code


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def schema(version: str, shared: Path) -> Schema:
    return Schema(version, shared / "specs" / "mcp-schema")


def only_in(*versions: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", versions, indirect=True)


@contextlib.asynccontextmanager
async def talking(server: DeltaServer, version: str, schema: Schema) -> AsyncIterator[Client]:
    """A client that has shaken hands, where its version does."""
    async with asyncio.timeout(SECONDS), raw_link(server.engine) as link:
        client = Client(link, version, schema)
        if version != MODERN:
            about = await client.ask(
                "initialize",
                {
                    "protocolVersion": version,
                    "capabilities": client.capabilities,
                    "clientInfo": {"name": "schemas", "version": "1"},
                },
            )
            assert about["protocolVersion"] == version
            assert about["serverInfo"].keys() <= schema.fields("Implementation")
            client.send({"method": "notifications/initialized"})
        yield client


async def test_the_server_introduces_itself(server, version, schema):
    async with talking(server, version, schema) as client:
        if version == MODERN:
            about = await client.ask("server/discover")
            schema.check("Implementation", about["_meta"]["io.modelcontextprotocol/serverInfo"])
            assert about["supportedVersions"] == [MODERN]


LISTS = {
    "tools/list": ("tools", "Tool"),
    "resources/list": ("resources", "Resource"),
    "resources/templates/list": ("resourceTemplates", "ResourceTemplate"),
    "prompts/list": ("prompts", "Prompt"),
}


@pytest.mark.parametrize("method", LISTS)
async def test_lists_fit_and_their_items_have_only_fields_of_the_version(server, version, schema, method):
    key, definition = LISTS[method]
    async with talking(server, version, schema) as client:
        result = await client.ask(method)
    assert result[key]
    for item in result[key]:
        assert item.keys() <= schema.fields(definition), item["name"]


TASKS = {
    "tools/call": "CreateTaskResult",
    "tasks/get": "GetTaskResult",
    "tasks/result": "CallToolResult",
    "tasks/cancel": "CancelTaskResult",
}
"""The results of calls as tasks, and of the methods of tasks."""


@only_in("2025-11-25")
async def test_tasks_fit_their_definitions(version, schema):
    pytest.importorskip("docket")
    server = load(str(Path(__file__).with_name("everything_with_tasks.py")))
    async with talking(server, version, schema) as client:

        async def ask(method: str, **params: Any) -> Any:
            message = await client.response(method, params)
            schema.check("JSONRPCResultResponse", message)
            schema.check(TASKS[method], message["result"])
            return message["result"]

        listed = await client.ask("tools/list")
        support = {tool["name"]: tool.get("execution", {}).get("taskSupport") for tool in listed["tools"]}
        assert (support["slow_compute"], support["failing_job"], support["greet"]) == ("optional", "required", None)
        for tool, ended in (("slow_compute", "completed"), ("failing_job", "failed")):
            arguments = {"seconds": 0} if tool == "slow_compute" else {}
            created = await ask("tools/call", name=tool, arguments=arguments, task={"ttl": 60_000})
            id_ = created["task"]["taskId"]
            await ask("tasks/result", taskId=id_)
            assert (await ask("tasks/get", taskId=id_))["status"] == ended
            assert await client.fail("tasks/cancel", {"taskId": id_}) == -32602
        created = await ask("tools/call", name="slow_compute", arguments={"seconds": 60}, task={})
        assert (await ask("tasks/cancel", taskId=created["task"]["taskId"]))["status"] == "cancelled"


async def test_the_result_of_every_tool_fits(server, version, schema):
    async with talking(server, version, schema) as client:
        results = {
            name: await client.ask("tools/call", {"name": name, "arguments": ARGUMENTS.get(name, {})})
            for name in server.engine.catalog.operations
        }
        asked = {"sampling": "sampling/createMessage", "roots": "roots/list", "elicitation": "elicitation/create"}
        assert client.questioned == {asked[capability] for capability in client.capabilities}
    assert {item["type"] for result in results.values() for item in result["content"]} == KINDS[version]
    for result in results.values():
        assert result.keys() <= schema.fields("CallToolResult")


async def test_resources_fit(server, version, schema):
    async with talking(server, version, schema) as client:
        for uri in URIS:
            for item in (await client.ask("resources/read", {"uri": uri}))["contents"]:
                schema.check("TextResourceContents" if "text" in item else "BlobResourceContents", item)


async def test_prompts_fit(server, version, schema):
    async with talking(server, version, schema) as client:
        for name, arguments in PROMPTS.items():
            assert (await client.ask("prompts/get", {"name": name, "arguments": arguments}))["messages"]


async def test_a_prompt_that_asks_first_fits(server, version, schema):
    async with talking(server, version, schema) as client:
        params = {"name": "test_input_required_result_prompt"}
        if "elicitation" in client.capabilities:
            assert (await client.ask("prompts/get", params))["messages"]
        else:
            assert await client.fail("prompts/get", params) == -32602


async def test_completions_fit(server, version, schema):
    async with talking(server, version, schema) as client:
        counts = [
            len((await client.ask("completion/complete", params))["completion"]["values"]) for params in COMPLETIONS
        ]
    assert counts == [2, 0, 100]


@only_in(*HANDSHAKE)
async def test_empty_results_are_empty(server, version, schema):
    watched = {"uri": "test://watched-resource"}
    async with talking(server, version, schema) as client:
        for method, params in {
            "ping": {},
            "logging/setLevel": {"level": "debug"},
            "resources/subscribe": watched,
            "resources/unsubscribe": watched,
        }.items():
            assert await client.ask(method, params) == {}


async def test_progress_and_log_messages_fit(server, version, schema):
    meta = {"io.modelcontextprotocol/logLevel": "debug"} if version == MODERN else {}
    async with talking(server, version, schema) as client:
        await client.ask("tools/call", {"name": "test_tool_with_progress"}, progressToken="a token")
        await client.ask("tools/call", {"name": "test_tool_with_progress"}, progressToken=7)
        await client.ask("tools/call", {"name": "test_logging_tool"}, **meta)
    assert client.notified == ["notifications/progress"] * 6 + ["notifications/message"]


CHANGES = {
    "test_trigger_tool_change": "notifications/tools/list_changed",
    "test_trigger_prompt_change": "notifications/prompts/list_changed",
    "test_touch_watched_resource": "notifications/resources/updated",
}


async def test_announcements_of_changes_fit(server, version, schema):
    async with talking(server, version, schema) as client:
        if version == MODERN:
            wanted = {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourceSubscriptions": ["test://watched-resource"],
            }
            client.post("subscriptions/listen", {"notifications": wanted}, {})
            assert (await client.hear())["params"]["notifications"] == wanted
        else:
            await client.ask("resources/subscribe", {"uri": "test://watched-resource"})
        for tool in CHANGES:
            await client.ask("tools/call", {"name": tool})
        while not set(CHANGES.values()) <= set(client.notified):
            await client.hear()


@pytest.mark.parametrize("method", MISTAKES)
async def test_errors_fit(server, version, schema, method):
    async with talking(server, version, schema) as client:
        code = await client.fail(method, MISTAKES[method])
    if method == "nothing/known":
        assert code == -32601
    elif method == "resources/read" and version != MODERN:
        assert code == -32002
    else:
        assert code == -32602


@only_in(MODERN)
async def test_errors_of_the_modern_era_fit(server, version, schema):
    async with talking(server, version, schema) as client:
        old = {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}
        assert await client.fail("tools/list", {}, **old) == -32022
        client.capabilities = {}
        assert await client.fail("tools/call", {"name": "test_missing_capability"}) == -32021


@only_in(*HANDSHAKE)
async def test_a_request_before_the_handshake_is_refused_in_form(server, version, schema):
    async with asyncio.timeout(SECONDS), raw_link(server.engine) as link:
        assert await Client(link, version, schema).fail("tools/list", {}) == -32600


MALFORMED = {b"{": -32700, b'{"jsonrpc": "2.0"}': -32600, b"[]": -32600, b'"text"': -32600}


@pytest.mark.parametrize("body", MALFORMED)
async def test_what_is_no_message_is_refused_in_form_but_for_its_id(server, version, schema, body):
    """Decision 0002, 9: the id is null, as JSON-RPC 2.0 asks and MCP's schemas do not know."""
    async with talking(server, version, schema) as client:
        client._link.send(body)
        message = await client.receive()
    assert message.pop("id") is None
    assert message["error"]["code"] == MALFORMED[body]
    schema.check("JSONRPCErrorResponse" if version >= "2025-11-25" else "JSONRPCError", {"id": 0, **message})


@only_in("2025-03-26")
async def test_the_answer_to_a_batch_fits(server, version, schema):
    """2025-03-26 is the one version with batches."""
    batch = [{"jsonrpc": "2.0", "id": id_, "method": method} for id_, method in enumerate(("ping", "tools/list", "no"))]
    async with talking(server, version, schema) as client:
        client._link.send(json.dumps(batch).encode())
        answers = await client.receive()
    schema.check("JSONRPCBatchResponse", answers)
    by_id = {answer["id"]: answer for answer in answers}
    schema.check("ListToolsResult", by_id[1]["result"])
    assert (by_id[0]["result"], by_id[2]["error"]["code"]) == ({}, -32601)
