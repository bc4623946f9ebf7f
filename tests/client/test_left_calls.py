"""Calls whose callers leave before the server has said that the call is a task: the task is cancelled all the same."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from deltamcp.client import connection as connection_module
from deltamcp.client.callbacks import ClientCallbacks
from deltamcp.client.connection import ClientConnection
from deltamcp.client.dialect import ClientDialect, handshake_dialect, modern_dialect
from deltamcp.errors import ConnectionLostError
from deltamcp.values import RawResult, Response
from tests.support.conditions import HANG_SECONDS, wait_until

EXTENSION = "io.modelcontextprotocol/tasks"
DIALECTS: dict[str, ClientDialect] = {
    "handshake": handshake_dialect("2025-11-25"),
    "modern": modern_dialect("2026-07-28", {"name": "x", "version": "1"}, {"extensions": {EXTENSION: {}}}),
}
TASKS: dict[str, dict[str, Any]] = {
    "handshake": {"task": {"taskId": "t1", "status": "working"}},
    "modern": {"resultType": "task", "taskId": "t1", "status": "working"},
}
PARAMS: dict[str, dict[str, Any]] = {
    "handshake": {"name": "hang", "arguments": {}, "task": {}},
    "modern": {"name": "hang", "arguments": {}},
}
DONE: dict[str, Any] = {"resultType": "complete", "content": []}


class ScriptedLink:
    """A link whose server answers when the test says so; over HTTP a request is sent until it is answered."""

    codec: Any = None
    pid: int | None = None
    ended = False

    def __init__(self, is_http: bool) -> None:
        self.carries_headers = is_http
        self.sent: list[dict[str, Any]] = []
        self.cut_off: list[Any] = []
        self._answered: dict[Any, asyncio.Event] = {}

    async def open(self, receiver: Any) -> None: ...

    async def send(self, message: dict[str, Any], headers: Any = None, ends_at: Any = None) -> None:
        self.sent.append(message)
        if not self.carries_headers or "id" not in message or message["method"] != "tools/call":
            return
        answered = self._answered[message["id"]] = asyncio.Event()
        try:
            await answered.wait()
        except asyncio.CancelledError:
            self.cut_off.append(message["id"])
            raise

    def answered(self, id_: Any) -> None:
        if id_ in self._answered:
            self._answered[id_].set()

    async def listen(self, headers: Any, on_open: Any) -> bool:
        return True

    async def close(self) -> None:
        self.ended = True


class Peer:
    """A connection, and the server at its other end."""

    def __init__(self, era: str, is_http: bool) -> None:
        self.era, self.link = era, ScriptedLink(is_http)
        callbacks = ClientCallbacks(None, None, None)
        self.connection = ClientConnection(self.link, callbacks, lambda *_: None, lambda *_: None)
        self.connection.dialect = DIALECTS[era]

    async def start_call(self) -> "asyncio.Task[RawResult]":
        count = len(self.sent("tools/call"))
        call = asyncio.create_task(self.connection.forward("tools/call", PARAMS[self.era], {}))
        await wait_until(lambda: len(self.sent("tools/call")) > count, "the call")
        return call

    async def leave(self, call: "asyncio.Task[RawResult]") -> None:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [message for message in self.link.sent if message["method"] == method]

    def answer(self, method: str, result: dict[str, Any]) -> None:
        id_ = self.sent(method)[-1]["id"]
        self.connection.receive(Response(id_, result))
        self.link.answered(id_)

    async def cancelled_task(self) -> str:
        await wait_until(lambda: bool(self.sent("tasks/cancel")), "the end of the task")
        [message] = self.sent("tasks/cancel")
        self.answer("tasks/cancel", DONE)
        id_: str = message["params"]["taskId"]
        return id_


@pytest.fixture(params=["stdio", "http"])
def is_http(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "http")


@pytest.fixture(params=DIALECTS)
def peer(request: pytest.FixtureRequest, is_http: bool, monkeypatch: pytest.MonkeyPatch) -> Peer:
    monkeypatch.setattr(connection_module, "_LATE_STREAM_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(connection_module, "_LATE_SECONDS", HANG_SECONDS)
    return Peer(request.param, is_http)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_task_whose_id_comes_after_its_caller_has_left_is_cancelled(peer: Peer) -> None:
    await peer.leave(await peer.start_call())
    await settle()
    peer.answer("tools/call", TASKS[peer.era])
    assert await peer.cancelled_task() == "t1"
    await settle()
    assert not peer.connection._pending and not peer.connection._left_calls
    assert not peer.link.cut_off


async def test_a_task_whose_id_comes_in_the_same_moment_is_cancelled(peer: Peer) -> None:
    call = await peer.start_call()
    peer.answer("tools/call", TASKS[peer.era])
    await peer.leave(call)
    assert await peer.cancelled_task() == "t1"


async def test_a_call_that_has_its_result_by_then_needs_no_cancelling(peer: Peer) -> None:
    await peer.leave(await peer.start_call())
    peer.answer("tools/call", DONE)
    await settle()
    assert not peer.sent("tasks/cancel") and not peer.connection._left_calls


async def test_a_call_of_the_modern_era_is_cancelled_at_once_and_a_task_by_its_id_only(peer: Peer) -> None:
    await peer.leave(await peer.start_call())
    await settle()
    # Over HTTP closing the connection cancels a call of 2026-07-28.
    expected = 1 if peer.era == "modern" and not peer.link.carries_headers else 0
    assert len(peer.sent("notifications/cancelled")) == expected
    peer.connection.fail_pending(ConnectionLostError("gone"))


@pytest.mark.parametrize("era", DIALECTS)
async def test_a_server_that_does_not_answer_is_told_by_the_means_that_there_are(
    era: str, is_http: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_LATE_STREAM_SECONDS", 0)
    monkeypatch.setattr(connection_module, "_LATE_SECONDS", 0)
    peer = Peer(era, is_http)
    await peer.leave(await peer.start_call())
    [call] = peer.sent("tools/call")
    await wait_until(lambda: not peer.connection._left_calls, "the end of the wait")
    assert peer.link.cut_off == ([call["id"]] if is_http else [])
    notices = [message["params"]["requestId"] for message in peer.sent("notifications/cancelled")]
    assert notices == ([] if is_http and era == "modern" else [call["id"]])
    assert not peer.connection._pending


async def test_a_lost_connection_ends_the_wait(peer: Peer) -> None:
    await peer.leave(await peer.start_call())
    await settle()
    peer.connection.fail_pending(ConnectionLostError("gone"))
    peer.link.answered(peer.sent("tools/call")[0]["id"])
    await settle()
    assert not peer.connection._left_calls and not peer.sent("tasks/cancel")


async def test_closing_waits_for_the_id_where_the_server_outlives_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_LATE_STREAM_SECONDS", HANG_SECONDS)
    monkeypatch.setattr(connection_module, "_CANCEL_SECONDS", HANG_SECONDS)
    for era in DIALECTS:
        peer = Peer(era, is_http=True)
        await peer.leave(await peer.start_call())
        closing = asyncio.create_task(peer.connection.close())
        await settle()
        assert not peer.link.ended
        peer.answer("tools/call", TASKS[era])
        assert await peer.cancelled_task() == "t1"
        await closing
        assert peer.link.ended


async def test_what_a_server_sends_about_a_left_call_reaches_nobody(peer: Peer) -> None:
    heard: list[Any] = []
    progress: Callable[..., None] = lambda *arguments: heard.append(arguments)  # noqa: E731
    call = asyncio.create_task(peer.connection.forward("tools/call", PARAMS[peer.era], {}, progress=progress))
    await wait_until(lambda: bool(peer.sent("tools/call")), "the call")
    await peer.leave(call)
    [pending] = peer.connection._pending.values()
    assert pending.progress is None and pending.sender is None
    peer.answer("tools/call", DONE)
    await settle()
    assert not heard


async def test_only_so_many_answers_are_awaited(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_MAX_LEFT_CALLS", 2)
    for _ in range(5):
        await peer.leave(await peer.start_call())
    await settle()
    assert len(peer.connection._pending) == 2
    peer.connection.fail_pending(ConnectionLostError("gone"))
    for message in peer.sent("tools/call"):
        peer.link.answered(message["id"])
    await settle()
