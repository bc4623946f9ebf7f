"""MCP's tasks from end to end: calls that became promises, as clients of both wire forms follow them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deltamcp import Context, DeltaServer, ToolError, elicitation
from deltamcp.context import InputPending
from tests.support.conditions import wait_until
from tests.support.promise_queue import TaskQueue, promise_calls, queue_for
from tests.support.raw_client import META, RawClient, answer_text, raw_client

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
WITH_TASKS: Any = {**META, CAPABILITIES: {"elicitation": {}, "extensions": {EXTENSION: {}}}}
FINAL = ("completed", "failed", "cancelled")
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class TasksServer:
    """A server whose tools wait until the test lets them go on."""

    def __init__(self) -> None:
        self.server = DeltaServer("printers")
        self.go_on = asyncio.Event()
        self.started = asyncio.Event()
        self.runs: list[str] = []
        self._register()

    def _register(self) -> None:
        server = self.server

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @server.tool(promise="auto", sync_seconds=0)
        async def print_it(text: str, ctx: Context) -> str:
            self.runs.append(text)
            await ctx.report_progress(1, 4)
            self.started.set()
            await self.go_on.wait()
            return f"printed {text}"

        @server.tool(promise="always")
        async def jam(kind: str, ctx: Context) -> str:
            if kind == "roots":
                await ctx.roots()
            raise ToolError("The paper is jammed.")

        @server.tool(promise="always")
        async def address(ctx: Context) -> str:
            answers = await ctx.ask(first=elicitation("First name?", FORM), last=elicitation("Last name?", FORM))
            return " ".join(answer["content"]["name"] for answer in answers.values())

        @server.tool(promise="auto", sync_seconds=60)
        async def quick(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", FORM, key="user")
            return f"Hello, {answer.content['name']}!"

        async def remember(ctx: Context) -> str:
            try:
                await ctx.ask(user=elicitation("Who?", FORM))
            except InputPending as pending:
                raise InputPending(pending.requests, {"round": 1}) from None
            return f"memo {ctx.memo}"

        server.tool(remember, name="remember_first", promise="auto", sync_seconds=60)
        server.tool(remember, name="remember_promised", promise="always")


@pytest.fixture
async def tasks() -> AsyncIterator[tuple[TasksServer, TaskQueue]]:
    made = TasksServer()
    queue = queue_for(made.server)
    yield made, queue
    await queue.kill()


@contextlib.asynccontextmanager
async def handshake_client(server: DeltaServer, version: str = "2025-11-25") -> AsyncIterator[RawClient]:
    async with raw_client(server) as client:
        await client.handshake(version, elicitation={})
        yield client


async def modern(client: RawClient, method: str, **params: Any) -> Any:
    answer = await client.call(method, _meta=WITH_TASKS, **params)
    return answer.get("result", answer)


async def settle(client: RawClient, id_: str, *until: str) -> Any:
    while True:
        task = await modern(client, "tasks/get", taskId=id_)
        if task["status"] in (until or FINAL):
            return task
        await asyncio.sleep(0.01)


# The extension of 2026-07-28


async def test_a_call_becomes_a_task_whose_result_tasks_get_has(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        created = await modern(client, "tools/call", name="print_it", arguments={"text": "a"})
        assert (created["resultType"], created["status"]) == ("task", "working")
        assert {"result", "requestState", "task"}.isdisjoint(created)
        await made.started.wait()
        working = await modern(client, "tasks/get", taskId=created["taskId"])
        assert (working["resultType"], working["status"]) == ("complete", "working")
        assert working["createdAt"] == created["createdAt"]
        made.go_on.set()
        task = await settle(client, created["taskId"])
        assert task["result"]["content"][0]["text"] == "printed a"
        assert await settle(client, created["taskId"]) == task
    assert made.runs == ["a"]


async def test_without_the_extension_the_client_waits_or_is_told_what_it_lacks(tasks):
    made, _ = tasks
    made.go_on.set()
    async with raw_client(made.server) as client:
        assert answer_text(await client.modern("tools/call", name="print_it", arguments={"text": "a"})) == "printed a"
        refused = await client.modern("tools/call", name="jam", arguments={"kind": "paper"})
    assert refused["error"]["code"] == -32021
    assert refused["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_a_tools_error_completes_a_task_and_a_protocols_error_fails_it(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        jam = await modern(client, "tools/call", name="jam", arguments={"kind": "paper"})
        ended = await settle(client, jam["taskId"])
        assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
        assert "error" not in ended
        roots = await modern(client, "tools/call", name="jam", arguments={"kind": "roots"})
        ended = await settle(client, roots["taskId"])
        assert (ended["status"], ended["error"]["code"]) == ("failed", -32021)
        assert "result" not in ended


async def test_answers_may_come_one_by_one_and_unknown_ones_are_ignored(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        id_ = (await modern(client, "tools/call", name="address", arguments={}))["taskId"]
        asked = await settle(client, id_, "input_required")
        assert set(asked["inputRequests"]) == {"first", "last"}
        ada = {"action": "accept", "content": {"name": "Ada"}}
        for answers, left in (({"never asked": ada}, {"first", "last"}), ({"first": ada}, {"last"})):
            assert set(await modern(client, "tasks/update", taskId=id_, inputResponses=answers)) == {
                "resultType",
                "_meta",
            }
            still = await modern(client, "tasks/get", taskId=id_)
            assert (still["status"], set(still["inputRequests"])) == ("input_required", left)
        lovelace = {"action": "accept", "content": {"name": "Lovelace"}}
        await modern(client, "tasks/update", taskId=id_, inputResponses={"last": lovelace})
        assert (await settle(client, id_))["result"]["content"][0]["text"] == "Ada Lovelace"


async def test_a_question_in_the_sync_window_is_asked_before_there_is_a_task(tasks):
    made, queue = tasks
    async with raw_client(made.server) as client:
        asked = await modern(client, "tools/call", name="quick", arguments={})
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
        again = await modern(
            client,
            "tools/call",
            name="quick",
            arguments={},
            inputResponses={"user": {"action": "accept", "content": {"name": "Ada"}}},
            requestState=asked["requestState"],
        )
        assert again["content"][0]["text"] == "Hello, Ada!"
    assert len(queue.keys) == 2


async def test_what_a_function_leaves_for_its_next_round_is_there_in_a_task_and_before_there_is_one(tasks):
    made, _ = tasks
    answers = {"user": {"action": "accept", "content": {"name": "Ada"}}}
    async with raw_client(made.server) as client:
        asked = await modern(client, "tools/call", name="remember_first", arguments={})
        first = await modern(
            client,
            "tools/call",
            name="remember_first",
            arguments={},
            inputResponses=answers,
            requestState=asked["requestState"],
        )
        id_ = (await modern(client, "tools/call", name="remember_promised", arguments={}))["taskId"]
        await settle(client, id_, "input_required")
        await modern(client, "tasks/update", taskId=id_, inputResponses=answers)
        promised = (await settle(client, id_))["result"]
    assert [one["content"][0]["text"] for one in (first, promised)] == ["memo {'round': 1}"] * 2


async def test_cancelling_is_acknowledged_also_after_the_end(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        created = await modern(client, "tools/call", name="print_it", arguments={"text": "a"})
        await made.started.wait()
        for _ in range(2):
            acknowledged = await modern(client, "tasks/cancel", taskId=created["taskId"])
            assert set(acknowledged) == {"resultType", "_meta"}
        ended = await settle(client, created["taskId"])
        assert ended["status"] == "cancelled"
        assert {"result", "error"}.isdisjoint(ended)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_an_invalid_parameter(tasks, method):
    made, _ = tasks
    async with raw_client(made.server) as client:
        for id_ in ("", "nothing", "prom_0123456789abcdefghjkmnpqrs"):
            refused = await modern(client, method, taskId=id_, inputResponses={})
            assert refused["error"]["code"] == -32602


# 2025-11-25


async def test_a_client_of_2025_11_25_asks_for_a_task_and_waits_for_its_result(tasks):
    made, _ = tasks
    async with handshake_client(made.server) as client:
        answer = await client.call("tools/call", name="print_it", arguments={"text": "a"}, task={"ttl": 7_200_000})
        task = answer["result"]["task"]
        assert (task["status"], task["ttl"]) == ("working", 7_200_000)
        waiting = asyncio.create_task(client.call("tasks/result", taskId=task["taskId"]))
        await made.started.wait()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        made.go_on.set()
        answer = await waiting
        assert answer_text(answer) == "printed a"
        assert answer["result"]["_meta"][RELATED] == {"taskId": task["taskId"]}
        ended = (await client.call("tasks/get", taskId=task["taskId"]))["result"]
        assert ended["status"] == "completed"
        assert "result" not in ended
        assert (await client.call("tasks/cancel", taskId=task["taskId"]))["error"]["code"] == -32602


async def test_questions_of_a_task_come_with_tasks_result_in_2025_11_25(tasks):
    made, _ = tasks
    async with handshake_client(made.server) as client:
        created = await client.call("tools/call", name="address", arguments={}, task={})
        id_ = created["result"]["task"]["taskId"]
        client.send(id="r", method="tasks/result", params={"taskId": id_})
        questions = [await client.receive(), await client.receive()]
        assert (await client.call("tasks/get", taskId=id_))["result"]["status"] == "input_required"
        for question, name in zip(questions, ("Ada", "Lovelace"), strict=True):
            assert question["method"] == "elicitation/create"
            assert question["params"]["_meta"][RELATED] == {"taskId": id_}
            client.send(id=question["id"], result={"action": "accept", "content": {"name": name}})
        answer = await client.receive()
        assert (answer["id"], answer_text(answer)) == ("r", "Ada Lovelace")


async def test_progress_of_a_task_names_it_to_a_client_of_2025_11_25_that_waits(tasks):
    made, queue = tasks
    queue.is_open = False
    async with handshake_client(made.server) as client:
        created = await client.call("tools/call", name="print_it", arguments={"text": "a"}, task={})
        id_ = created["result"]["task"]["taskId"]
        client.send(id="r", method="tasks/result", params={"taskId": id_, "_meta": {"progressToken": "p"}})
        await wait_until(lambda: bool(promise_calls(made.server).store._watches), "the client waits")
        queue.open()
        reported = await client.receive()
        assert reported["method"] == "notifications/progress"
        assert reported["params"].pop("_meta") == {RELATED: {"taskId": id_}}
        assert reported["params"] == {"progressToken": "p", "progress": 1, "total": 4}
        made.go_on.set()
        assert answer_text(await client.receive()) == "printed a"


async def test_a_client_is_not_asked_what_it_cannot_be_asked(tasks):
    made, _ = tasks
    async with raw_client(made.server) as other, raw_client(made.server) as client:
        id_ = (await modern(other, "tools/call", name="address", arguments={}))["taskId"]
        await settle(other, id_, "input_required")
        await client.handshake()
        refused = await client.call("tasks/result", taskId=id_)
    assert refused["error"]["code"] == -32602
    assert "elicitation" in refused["error"]["message"]


async def test_a_tools_error_fails_a_task_of_2025_11_25_and_tasks_result_has_it(tasks):
    made, _ = tasks
    async with handshake_client(made.server) as client:
        created = await client.call("tools/call", name="jam", arguments={"kind": "paper"}, task={})
        id_ = created["result"]["task"]["taskId"]
        answer = await client.call("tasks/result", taskId=id_)
        assert answer["result"]["isError"]
        ended = (await client.call("tasks/get", taskId=id_))["result"]
        assert (ended["status"], ended["statusMessage"]) == ("failed", "The paper is jammed.")


async def test_2025_11_25_is_told_that_a_task_is_cancelled(tasks):
    made, _ = tasks
    async with handshake_client(made.server) as client:
        created = await client.call("tools/call", name="print_it", arguments={"text": "a"}, task={})
        id_ = created["result"]["task"]["taskId"]
        await made.started.wait()
        cancelled = await client.call("tasks/cancel", taskId=id_)
        assert cancelled["result"]["status"] == "cancelled"
        assert (await client.call("tasks/get", taskId=id_))["result"]["status"] == "cancelled"
        assert (await client.call("tasks/cancel", taskId=id_))["error"]["code"] == -32602


async def test_2025_11_25_cannot_call_every_tool_as_a_task_nor_every_tool_without_one(tasks):
    made, _ = tasks
    async with handshake_client(made.server) as client:
        refused = await client.call("tools/call", name="add", arguments={"a": 1, "b": 2}, task={})
        assert refused["error"]["code"] == -32601
        refused = await client.call("tools/call", name="jam", arguments={"kind": "paper"})
        assert refused["error"]["code"] == -32601


async def test_earlier_versions_wait_for_tools_that_always_give_promises(tasks):
    made, _ = tasks
    async with handshake_client(made.server, "2025-06-18") as client:
        answer = await client.call("tools/call", name="jam", arguments={"kind": "paper"}, task={})
    assert answer["result"]["isError"]


async def test_a_server_without_promises_knows_no_tasks_and_ignores_the_wish_for_one(era):
    server = DeltaServer("sums")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with raw_client(server) as client:
        if era == "handshake":
            opened = await client.handshake()
            assert "tasks" not in opened["result"]["capabilities"]
            ask = client.call
        else:
            discovered = await modern(client, "server/discover")
            assert EXTENSION not in discovered["capabilities"]["extensions"]

            async def ask(method: str, **params: Any) -> dict[str, Any]:
                return await client.call(method, _meta=WITH_TASKS, **params)

        called = await ask("tools/call", name="add", arguments={"a": 1, "b": 2}, task={"ttl": 5})
        assert called["result"]["content"][0]["text"] == "3"
        assert (await ask("tasks/get", taskId="t"))["error"]["code"] == -32601


# Subscriptions


async def test_a_subscription_tells_what_a_task_is_and_every_change(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        id_ = (await modern(client, "tools/call", name="print_it", arguments={"text": "a"}))["taskId"]
        wanted = {"taskIds": [id_, "prom_0123456789abcdefghjkmnpqrs", "x"], "toolsListChanged": True}
        client.send(id="s", method="subscriptions/listen", params={"_meta": WITH_TASKS, "notifications": wanted})
        acknowledged = await client.receive()
        assert acknowledged["params"]["notifications"] == {"taskIds": [id_], "toolsListChanged": True}
        first = await client.receive()
        assert (first["method"], first["params"]["taskId"]) == ("notifications/tasks", id_)
        assert first["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "s"}
        made.go_on.set()
        last = first
        while last["params"]["status"] not in FINAL:
            last = await client.receive()
            assert last["method"] == "notifications/tasks"
        asked = await modern(client, "tasks/get", taskId=id_)
        assert last["params"]["result"] == asked["result"]


async def test_a_subscription_to_a_task_that_has_ended_tells_so_at_once(tasks):
    made, _ = tasks
    made.go_on.set()
    async with raw_client(made.server) as client:
        id_ = (await modern(client, "tools/call", name="print_it", arguments={"text": "a"}))["taskId"]
        await settle(client, id_)
        listen = {"_meta": WITH_TASKS, "notifications": {"taskIds": [id_]}}
        client.send(id="s", method="subscriptions/listen", params=listen)
        assert (await client.receive())["method"] == "notifications/subscriptions/acknowledged"
        assert (await client.receive())["params"]["status"] == "completed"


async def test_a_subscription_to_tasks_needs_the_extension(tasks):
    made, _ = tasks
    async with raw_client(made.server) as client:
        refused = await client.modern("subscriptions/listen", notifications={"taskIds": ["x"]})
    assert refused["error"]["code"] == -32021
