"""Long calls through the gateway: they become promises, and tasks of upstreams are waited for, in both eras."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp.catalog.items.remote_items import RemoteOperation
from deltamcp.client import connection
from deltamcp.client.client import DeltaClient
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from tests.support import task_server
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.era_client import ERAS
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.paths import FORKED_PROGRAM
from tests.support.raw_client import META, RawClient, raw_client

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
WITH_TASKS: Any = {**META, CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}}}
NAMES = {"first": "Ada", "last": "Lovelace"}


class TaskGateway:
    """A gateway in front of `task_server.py`."""

    def __init__(self, folder: Path, behind: str, sync_seconds: float = 0.0, **options: Any) -> None:
        self._log = folder / "log"
        entry = {
            "command": str(FORKED_PROGRAM),
            "args": ["serve", task_server.__file__],
            "env": {task_server.LOG: str(self._log)},
        }
        options |= {"speak": behind, "sync_seconds": sync_seconds}
        upstream = UpstreamConfig(name="up", entry=entry, **options)
        self.gateway = Gateway(
            GatewayConfig(upstreams=[upstream], disclosure="full", query=False), cache_folder=folder / "cache"
        )

    def log(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    @contextlib.asynccontextmanager
    async def client(self, front: str) -> AsyncIterator[RawClient]:
        async with raw_client(self.gateway.server) as client:
            if front == "handshake":
                await client.handshake(elicitation={})
            yield client


@pytest.fixture(params=ERAS, ids=lambda era: f"{era} behind")
def tasks(request: pytest.FixtureRequest, tmp_path: Path) -> TaskGateway:
    return TaskGateway(tmp_path, request.param)


async def modern(client: RawClient, method: str, **params: Any) -> Any:
    answer = await client.call(method, _meta=WITH_TASKS, **params)
    assert "result" in answer, answer
    return answer["result"]


async def settle(client: RawClient, id_: str, *until: str) -> list[Any]:
    """Every state of a task until its end."""
    seen = []
    while True:
        seen.append(await modern(client, "tasks/get", taskId=id_))
        if seen[-1]["status"] in (until or ("completed", "failed", "cancelled")):
            return seen
        await asyncio.sleep(0.05)


async def test_a_task_of_an_upstream_is_a_task_of_the_gateway_with_its_progress(
    tasks: TaskGateway, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="render", arguments={"pages": 4, "until": str(seen)})
        assert (made["resultType"], made["status"]) == ("task", "working")
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                state = await modern(client, "tasks/get", taskId=made["taskId"])
                if "page" in state.get("statusMessage", ""):
                    break
                await asyncio.sleep(0.05)
        seen.touch()
        ended = (await settle(client, made["taskId"]))[-1]
    assert ended["result"]["content"] == [{"type": "text", "text": "4 pages"}]
    assert RELATED not in ended["result"].get("_meta", {})
    assert tasks.log() == ["render 4"]


@pytest.mark.diagonal("tasks", "front")
@pytest.mark.parametrize("front", ERAS)
async def test_a_client_without_tasks_waits_for_the_result(tasks: TaskGateway, front: str) -> None:
    async with tasks.client(front) as client:
        call = client.modern if front == "modern" else client.call
        answer = await call("tools/call", name="render", arguments={"pages": 1})
    assert answer["result"]["content"] == [{"type": "text", "text": "1 pages"}]
    assert tasks.log() == ["render 1"]


async def test_a_client_of_2025_11_25_may_ask_for_a_task(tasks: TaskGateway) -> None:
    async with tasks.client("handshake") as client:
        made = await client.call("tools/call", name="render", arguments={"pages": 1}, task={})
        id_ = made["result"]["task"]["taskId"]
        answer = await client.call("tasks/result", taskId=id_)
    assert answer["result"]["content"] == [{"type": "text", "text": "1 pages"}]
    assert answer["result"]["_meta"][RELATED] == {"taskId": id_}


async def test_a_tools_error_and_a_result_are_as_the_upstream_wrote_them(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="jam", arguments={})
        ended = (await settle(client, made["taskId"]))[-1]
    assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
    assert ended["result"]["content"] == [{"type": "text", "text": "The paper is jammed."}]


async def test_cancelling_the_promise_cancels_the_task_of_the_upstream(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="hang", arguments={})
        await wait_until(lambda: tasks.log() == ["hang"], "the upstream's run")
        await modern(client, "tasks/cancel", taskId=made["taskId"])
        assert (await settle(client, made["taskId"]))[-1]["status"] == "cancelled"
        await wait_until(lambda: tasks.log() == ["hang", "hang stopped"], "the end of the upstream's run")


async def test_cancelling_the_promise_cancels_a_call_that_is_no_task_upstream(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="plain_hang", arguments={})
        await wait_until(lambda: tasks.log() == ["plain hang"], "the upstream's run")
        await modern(client, "tasks/cancel", taskId=made["taskId"])
        await wait_until(lambda: tasks.log() == ["plain hang", "plain hang stopped"], "the end of the upstream's run")


async def test_cancelling_the_promise_cancels_the_task_of_the_upstream_while_it_asks(
    tasks: TaskGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[Any] = []
    request = DeltaClient.request

    async def noting(self: DeltaClient, method: str, params: Any = None, **options: Any) -> Any:
        answer = await request(self, method, params, **options)
        if method == "tasks/cancel":
            cancelled.append(await request(self, "tasks/get", params))
        return answer

    monkeypatch.setattr(DeltaClient, "request", noting)
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="greet", arguments={}, task={})
        await settle(client, made["taskId"], "input_required")
        await modern(client, "tasks/cancel", taskId=made["taskId"])
        assert (await settle(client, made["taskId"]))[-1]["status"] == "cancelled"
        await wait_until(lambda: bool(cancelled), "the upstream's end of the task")
    assert [one["status"] for one in cancelled] == ["cancelled"]


async def test_a_client_that_leaves_cancels_the_task_that_it_waited_for(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        client.send(id=77, method="tools/call", params={"name": "hang", "arguments": {}, "_meta": META})
        await wait_until(lambda: tasks.log() == ["hang"], "the upstream's run")
        client.send(method="notifications/cancelled", params={"requestId": 77})
        await wait_until(lambda: tasks.log() == ["hang", "hang stopped"], "the end of the upstream's run")


@pytest.mark.diagonal("front", "behind")
@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
async def test_a_client_that_leaves_before_the_task_has_an_id_cancels_it_all_the_same(
    front: str, behind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LATE_STREAM_SECONDS", HANG_SECONDS, raising=False)
    went_on, asked, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    task = {"taskId": "t1", "status": "working", "createdAt": "2026-01-01T00:00:00Z", "ttl": None}

    async def answer_late(request: FakeRequest, wire: FakeConnection) -> None:
        asked.set()
        await go_on.wait()
        result = {"resultType": "task", **task} if behind == "modern" else {"task": task}
        await wire.json({"jsonrpc": "2.0", "id": request.id, "result": result})
        went_on.set()

    capabilities = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}, "extensions": {EXTENSION: {}}}
    tool = {"name": "hang", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
    fake = Fake(modern=behind == "modern", handshake=behind == "handshake", tools=[tool])
    fake.capabilities = capabilities
    fake.once("tools/call", answer_late)
    async with serve_fake(fake):
        upstream = UpstreamConfig(name="up", entry={"url": fake.url}, speak=behind)  # type: ignore[arg-type]
        config = GatewayConfig(upstreams=[upstream], disclosure="full", query=False)
        async with raw_client(Gateway(config, cache_folder=tmp_path).server) as client:
            if front == "handshake":
                await client.handshake()
            meta = {"_meta": META} if front == "modern" else {}
            client.send(id=77, method="tools/call", params={"name": "hang", "arguments": {}, **meta})
            await wait_until(asked.is_set, "the call")
            client.send(method="notifications/cancelled", params={"requestId": 77})
            await client.call("ping", **meta)
            go_on.set()
            await wait_until(lambda: bool(fake.of("tasks/cancel")), "the end of the task")
    assert went_on.is_set()
    assert [request.params["taskId"] for request in fake.of("tasks/cancel")] == ["t1"]


async def test_questions_of_a_task_are_asked_through_the_promise(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        made = await modern(client, "tools/call", name="greet", arguments={}, task={})
        answered: set[str] = set()
        id_ = made.get("taskId")
        assert id_ is not None, made
        while True:
            state = (await settle(client, id_, "input_required", "completed", "failed"))[-1]
            if state["status"] != "input_required":
                break
            answers = {key: _answer(question) for key, question in state["inputRequests"].items()}
            assert not answered & answers.keys()
            answered |= answers.keys()
            await modern(client, "tasks/update", taskId=id_, inputResponses=answers)
    assert state["result"]["content"] == [{"type": "text", "text": "Ada Lovelace"}], state


def _answer(question: Any) -> dict[str, Any]:
    first = question["params"]["message"] == "[server up asks] First name?"
    return {"action": "accept", "content": {"name": NAMES["first" if first else "last"]}}


async def test_a_modern_client_without_tasks_answers_by_sending_its_call_again(tasks: TaskGateway) -> None:
    async with tasks.client("modern") as client:
        params: dict[str, Any] = {"name": "greet", "arguments": {}}
        sent = dict(params)
        for _ in range(5):
            result = (await client.modern("tools/call", **sent))["result"]
            if result["resultType"] != "input_required":
                break
            answers = {key: _answer(question) for key, question in result["inputRequests"].items()}
            sent = {**params, "inputResponses": answers, "requestState": result["requestState"]}
    assert result["content"] == [{"type": "text", "text": "Ada Lovelace"}]
    assert tasks.log() == ["greet"]


async def test_a_call_behind_a_promise_is_a_task_upstream_too_where_the_tool_lets_the_client_choose(
    tmp_path: Path,
) -> None:
    tasks = TaskGateway(tmp_path, "handshake", sync_seconds=60)
    async with tasks.client("modern") as client:
        waited = (await client.modern("tools/call", name="optional", arguments={}))["result"]
        promised = await modern(client, "tools/call", name="optional", arguments={})
    assert [one["content"][0]["text"] for one in (waited, promised)] == ["as a task: False", "as a task: True"]


@pytest.mark.diagonal("behind", "action")
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_promise_runs_only_with_the_users_consent_and_can_still_be_cancelled(
    tmp_path: Path, behind: str, action: str
) -> None:
    tasks = TaskGateway(tmp_path, behind, confirm="always")
    async with tasks.client("modern") as client:
        id_ = (await modern(client, "tools/call", name="plain_hang", arguments={}))["taskId"]
        asked = (await settle(client, id_, "input_required", "completed"))[-1]
        assert asked["status"] == "input_required" and tasks.log() == []
        [(key, question)] = asked["inputRequests"].items()
        assert question["params"]["message"] == "Run up.plain_hang with {}?"
        await modern(client, "tasks/update", taskId=id_, inputResponses={key: {"action": action, "content": {}}})
        if action == "decline":
            ended = (await settle(client, id_))[-1]
            assert ended["result"]["isError"] and tasks.log() == []
            return
        await wait_until(lambda: tasks.log() == ["plain hang"], "the upstream's run")
        await modern(client, "tasks/cancel", taskId=id_)
        await wait_until(lambda: tasks.log() == ["plain hang", "plain hang stopped"], "the end of the upstream's run")


@pytest.mark.parametrize(
    ("annotations", "may_rerun"),
    [(None, False), ({"readOnlyHint": True}, True), ({"idempotentHint": True}, True), ({"readOnlyHint": False}, False)],
)
def test_only_what_changes_nothing_twice_runs_again_after_a_crash(annotations: Any, may_rerun: bool) -> None:
    """Else the promise ends with OUTCOME_UNKNOWN."""
    definition = {"name": "x", "inputSchema": {"type": "object"}, "annotations": annotations}
    assert RemoteOperation(unused, definition, promise="auto").may_rerun is may_rerun


async def unused(**_: Any) -> None: ...
