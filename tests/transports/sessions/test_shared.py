"""Sessions that any replica serves: records, messages between replicas, and GET streams that move."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, ClassVar

import pytest

from deltamcp import Context, DeltaServer, Limits, ResultPolicy
from deltamcp.auth.authenticator import Credentials
from deltamcp.delivery import sent_results
from deltamcp.replicas import SessionChanged, SessionEnded
from deltamcp.stores.store import StoreError
from deltamcp.transports.sessions.records import StreamCopies, StreamCopy
from deltamcp.values import Failure, Kind, Principal
from tests.support.asgi_client import AsgiClient, AsgiExchange
from tests.support.conditions import HANG_SECONDS, is_listened_to, wait_until
from tests.support.era_client import RESULT_KEY
from tests.support.processes import free_port
from tests.support.redis_server import redis_server
from tests.support.replicas import Replicas, replicas


class Bearers:
    """Takes a token for the id of its principal."""

    documents: ClassVar[dict[str, Any]] = {}

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        return Principal((credentials.authorization or "Bearer nobody").split()[1])

    def challenge(self, failure: Failure) -> str | None:
        return None

    async def close(self) -> None:
        pass


def make(store: str, **options: Any) -> DeltaServer:
    server = DeltaServer("notes", store=store, limits=Limits(store_seconds=30, **options))
    server.cancelled = asyncio.Event()  # type: ignore[attr-defined]
    server.goes_on = asyncio.Event()  # type: ignore[attr-defined]

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"name": str})
        return f"hello {answer.content['name']}" if answer.accepted else answer.action

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.log("info", "begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            server.cancelled.set()  # type: ignore[attr-defined]
            raise
        return "never"

    @server.tool
    async def log_quietly(ctx: Context) -> str:
        await ctx.log("debug", "details")
        return "logged"

    @server.tool
    async def count(ctx: Context, n: int) -> str:
        for number in range(n):
            await ctx.log("info", f"number {number}")
            await asyncio.sleep(0)
        await server.goes_on.wait()  # type: ignore[attr-defined]
        await ctx.log("info", "at last")
        return "counted"

    @server.resource("notes://all")
    def notes() -> str:
        return "notes"

    return server


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory) -> Iterator[str]:
    port = free_port()
    with redis_server(port, tmp_path_factory.mktemp("redis")):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path) -> str:
    if request.param == "redis":
        import redis

        url: str = request.getfixturevalue("redis_url")
        with redis.Redis.from_url(url) as raw:
            raw.flushall()
        return url
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
async def two(store) -> AsyncIterator[Replicas]:
    async with replicas(make, store) as running:
        yield running


async def status(exchange: AsgiExchange) -> int:
    return (await exchange.start())[0]


async def result(exchange: AsgiExchange) -> Any:
    code, _ = await exchange.start()
    answer = await exchange.json()
    assert code == 200, answer
    return answer.get("result", answer.get("error"))


async def first_message(exchange: AsgiExchange) -> Any:
    """The first event of a stream that has data."""
    while True:
        event = await exchange.event()
        if event.get("data"):
            return json.loads(event["data"])


async def begin(client: AsgiClient, id_: int | str, tool: str) -> AsgiExchange:
    exchange = client.request(id_, "tools/call", name=tool, arguments={})
    assert await status(exchange) == 200
    return exchange


# Records


async def test_every_replica_serves_a_session(two):
    one, other = two.clients
    await one.initialize()
    for client in (other, one, other):
        tools = (await result(client.request(1, "tools/list")))["tools"]
        assert [tool["name"] for tool in tools] == ["ask", "wait", "log_quietly", "count"]
    again = other.request(2, "initialize", protocolVersion="2025-11-25")
    assert await status(again) == 400


async def test_a_session_outlives_the_processes_that_served_it(store):
    headers: dict[str, str] = {}
    for turn in range(3):
        async with replicas(make, store, count=1) as running:
            [client] = running.clients
            if not turn:
                await client.initialize()
                headers = client.headers
            client.headers = headers
            assert await result(client.request(1, "ping")) == {}


async def test_dialect_and_agreement_are_the_sessions(two):
    one, other = two.clients
    await one.initialize("delta-mcp/0.2.0")
    described = await result(other.request(1, "tools/call", name="missing", arguments={}))
    assert described["message"] == "Unknown tool: missing"
    del one.headers["mcp-session-id"]
    await one.initialize("2025-03-26")
    batch = other.post([{"jsonrpc": "2.0", "id": id_, "method": "ping"} for id_ in (1, 2)])
    assert await status(batch) == 200 and len(await batch.json()) == 2


async def test_an_unknown_session_and_another_principals_get_the_same_answer(store):
    async with replicas(make, store, auth=Bearers()) as two:
        one, other = two.clients
        one.headers["authorization"] = "Bearer ann"
        await one.initialize()
        assert await status(other.request(1, "ping")) == 200
        stranger = two.another_principal(authorization="Bearer bob")
        unknown = two.another_principal(**{"mcp-session-id": "0" * 32})
        odd = two.another_principal(**{"mcp-session-id": "x"})
        answers = []
        for client in (stranger, unknown, odd):
            exchange = client.request(1, "ping")
            answers.append((await status(exchange), await exchange.json()))
            delete = AsgiExchange(two.apps[1], "DELETE", client.headers)
            assert await status(delete) == 404
            assert await status(client.get()) == 404
        assert answers[0][0] == 404 and answers[0] == answers[1] == answers[2]
        assert await status(one.request(1, "ping")) == 200


async def test_what_a_client_changes_holds_at_every_replica(two):
    one, other = two.clients
    await one.initialize()
    assert await result(other.request(1, "logging/setLevel", level="debug")) == {}
    exchange = await begin(one, 2, "log_quietly")
    assert (await first_message(exchange))["params"]["data"] == "details"
    assert await result(one.request(3, "logging/setLevel", level="error")) == {}
    assert (await result(other.request(4, "tools/call", name="log_quietly", arguments={})))["content"]


async def test_changes_at_two_replicas_at_once_are_all_made(two):
    one, other = two.clients
    await one.initialize()
    asked = [
        (one, other)[number % 2].request(number, "resources/subscribe", uri=f"notes://{number}") for number in range(20)
    ]
    for exchange in asked:
        assert await result(exchange) == {}
    sessions: Any = two.apps[0]._endpoint._in_sessions._sessions
    watched = await sessions._records.read_watched(one.headers["mcp-session-id"])
    assert watched == {f"notes://{number}" for number in range(20)}


async def test_a_session_that_expired_ends_everywhere(store):
    async with replicas(lambda url: make(url, session_idle_seconds=2), store) as two:
        one, other = two.clients
        await one.initialize()
        assert await status(other.request(1, "ping")) == 200
        await asyncio.sleep(2.5)
        assert [await status(client.request(1, "ping")) for client in (one, other)] == [404, 404]


async def test_an_open_stream_keeps_a_session_alive(store):
    async with replicas(lambda url: make(url, session_idle_seconds=2), store) as two:
        one, other = two.clients
        await one.initialize()
        stream = one.get()
        assert await status(stream) == 200
        await asyncio.sleep(3)
        assert await status(other.request(1, "ping")) == 200


def make_changing_rows(store: str) -> Any:
    """A server whose rows begin at `server.start`."""
    server: Any = DeltaServer("rows", store=store, results=ResultPolicy(deltas=True), conversation="process")
    server.start = 0

    @server.tool(annotations={"readOnlyHint": True})
    def rows() -> list[dict[str, int]]:
        return [{"id": server.start + number, "square": number * number} for number in range(40)]

    return server


async def call_rows(client: Any, **policy: Any) -> tuple[str, str]:
    """Returns the outcome and the text of a call."""
    meta = {"_meta": {RESULT_KEY: policy}} if policy else {}
    answer = await result(client.request(1, "tools/call", name="rows", arguments={}, **meta))
    return answer["_meta"][RESULT_KEY]["outcome"], answer["content"][0]["text"]


async def test_deltas_are_against_the_last_result_that_any_replica_has_sent(tmp_path, monkeypatch):
    monkeypatch.setattr(sent_results, "_CLOCK_SECONDS", 0.0)
    async with replicas(make_changing_rows, f"sqlite:///{tmp_path}/store.db") as two:
        one, other = two.clients
        await one.initialize()
        assert (await call_rows(one))[0] == "full"
        assert (await call_rows(other))[0] == "unchanged"
        two.servers[1].start = 1000
        assert (await call_rows(other))[0] == "full", "every row differs"
        outcome, text = await call_rows(one)
        assert outcome == "full" and "\n39,1521" in text, "the other replica has sent something else since"
        assert (await call_rows(one))[0] == "unchanged"


async def test_a_reset_reaches_all_replicas(tmp_path, monkeypatch):
    monkeypatch.setattr(sent_results, "_CLOCK_SECONDS", 0.0)
    async with replicas(make_changing_rows, f"sqlite:///{tmp_path}/store.db") as two:
        one, other = two.clients
        await one.initialize()
        await call_rows(one)
        assert (await call_rows(other, pack_root="reset"))[0] == "full"
        assert (await call_rows(one))[0] == "unchanged"


async def test_a_reply_of_another_process_a_moment_before_counts_as_later(tmp_path, monkeypatch):
    async with replicas(make_changing_rows, f"sqlite:///{tmp_path}/store.db") as two:
        one, other = two.clients
        await one.initialize()
        await call_rows(one)
        monkeypatch.setattr(sent_results, "_PROCESS", "another")
        monkeypatch.setattr(sent_results, "_CLOCK_SECONDS", 3600.0)
        assert (await call_rows(other))[0] == "full"


# Messages between replicas


async def test_who_takes_longer_than_a_lock_lasts_changes_nothing_and_leaves_the_lock_to_the_next(two, monkeypatch):
    monkeypatch.setattr("deltamcp.transports.sessions.records._LOCK_SECONDS", 0.3)
    one, other = (app._endpoint._in_sessions._sessions._records for app in two.apps)
    has_lock = asyncio.Event()

    async def change_next() -> None:
        async with other.locked("session"):
            has_lock.set()
            await asyncio.Event().wait()

    with pytest.raises(StoreError):
        async with asyncio.timeout(HANG_SECONDS), one.locked("session"):
            monkeypatch.setattr("deltamcp.transports.sessions.records._LOCK_SECONDS", 30)
            following = asyncio.create_task(change_next())
            await asyncio.Event().wait()
    async with asyncio.timeout(HANG_SECONDS):
        await has_lock.wait()
    store = two.servers[0].engine.store
    assert await store.get(other._locks, "session") == b""
    following.cancel()


async def test_a_response_that_reaches_another_replica_finds_its_call(two):
    one, other = two.clients
    await one.initialize()
    calls = [await begin(client, id_, "ask") for id_, client in enumerate((one, one, other))]
    questions = [await first_message(call) for call in calls]
    assert len({question["id"] for question in questions}) == 3
    for number, (question, client) in enumerate(zip(questions, (other, one, one), strict=True)):
        answer = {"action": "accept", "content": {"name": f"Ann {number}"}, "_meta": {"n": 2**70}}
        posted = client.post({"jsonrpc": "2.0", "id": question["id"], "result": answer})
        assert await status(posted) == 202
    for number, call in enumerate(calls):
        content = (await first_message(call))["result"]["content"]
        assert content[0]["text"] == f"hello Ann {number}"


async def test_a_response_that_is_an_error_or_of_another_session_is_told_apart(store):
    async with replicas(make, store, auth=Bearers()) as two:
        one, other = two.clients
        one.headers["authorization"] = "Bearer ann"
        await one.initialize()
        call = await begin(one, 1, "ask")
        question = await first_message(call)
        stranger = two.another_principal(authorization="Bearer bob")
        del stranger.headers["mcp-session-id"]
        await stranger.initialize()
        forged = {"action": "accept", "content": {"name": "Eve"}}
        assert await status(stranger.post({"jsonrpc": "2.0", "id": question["id"], "result": forged})) == 202
        refusal = {"code": -1, "message": "not now"}
        assert await status(other.post({"jsonrpc": "2.0", "id": question["id"], "error": refusal})) == 202
        answer = (await first_message(call))["result"]
        assert answer["isError"] and "not now" in answer["content"][0]["text"]


@pytest.mark.parametrize("id_", [7, 2**70, "seven"])
async def test_a_cancellation_that_reaches_another_replica_finds_its_call(two, id_):
    one, other = two.clients
    await one.initialize()
    call = await begin(one, id_, "wait")
    await first_message(call)
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
    assert await status(other.post(note)) == 202
    async with asyncio.timeout(HANG_SECONDS):
        await two.servers[0].cancelled.wait()
    assert (await first_message(call))["error"]["code"] == -32800
    assert not two.servers[1].cancelled.is_set()


async def test_a_message_that_cannot_be_served_does_not_keep_a_replica_from_the_next(two):
    one, other = two.clients
    await one.initialize()
    call = await begin(one, 1, "ask")
    question = await first_message(call)
    replica = two.servers[0].engine.replica
    received: list[Any] = replica._receivers

    async def fail(message: Any) -> None:
        received.remove(fail)
        raise ValueError("a defect")

    received.insert(0, fail)
    await replica.store.publish("notes", b"of another version")
    await two.servers[1].engine.replica.publish(SessionEnded("0" * 32))
    await wait_until(lambda: fail not in received)
    answer = {"action": "decline"}
    assert await status(other.post({"jsonrpc": "2.0", "id": question["id"], "result": answer})) == 202
    assert (await first_message(call))["result"]["content"][0]["text"] == "decline"


async def test_replicas_are_not_told_of_the_cancellation_of_an_id_that_no_request_can_have(two, monkeypatch):
    one, _ = two.clients
    await one.initialize()
    told = []

    async def publish(channel: str, message: bytes) -> None:
        told.append(message)

    monkeypatch.setattr(two.servers[0].engine.store, "publish", publish)
    for id_ in ("x" * 100_000, True, None, [1]):
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
        assert await status(one.post(note)) == 202
    assert told == []


async def test_an_error_does_not_cut_a_replica_off_from_the_others(two, monkeypatch):
    monkeypatch.setattr("deltamcp.replicas._SIGN_SECONDS", 0.01)
    one, other = two.clients
    await one.initialize()
    call = await begin(one, 7, "wait")
    await first_message(call)
    has_failed = asyncio.Event()

    async def fail(message: Any) -> None:
        if not has_failed.is_set():
            has_failed.set()
            raise RuntimeError("nobody expected it")

    replica = two.servers[0].engine.replica
    replica.add_receiver(fail)
    await replica.publish(SessionChanged("x"))
    async with asyncio.timeout(HANG_SECONDS):
        await has_failed.wait()
        while not two.servers[0].cancelled.is_set():  # until it listens again
            await other.post(
                {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            ).start()


async def test_delete_ends_streams_and_calls_everywhere(two):
    one, other = two.clients
    await one.initialize()
    call, stream = await begin(one, 1, "wait"), one.get()
    assert await status(stream) == 200
    await first_message(call)
    assert await status(AsgiExchange(two.apps[1], "DELETE", other.headers)) == 200
    async with asyncio.timeout(HANG_SECONDS):
        await two.servers[0].cancelled.wait()
        await stream.task
        await call.task
    assert [await status(client.request(1, "ping")) for client in (one, other)] == [404, 404]


# Changes


async def notices(stream: AsgiExchange, count: int) -> list[str]:
    told = [await first_message(stream) for _ in range(count)]
    return [note.get("params", {}).get("uri", note["method"]) for note in told]


async def test_a_change_at_one_replica_reaches_the_clients_of_all(two):
    one, other = two.clients
    await one.initialize()
    assert await result(other.request(1, "resources/subscribe", uri="notes://all")) == {}
    stream = one.get()
    assert await status(stream) == 200
    two.servers[1].list_changed(Kind.TOOLS)
    two.servers[1].resource_updated("notes://other")
    two.servers[1].resource_updated("notes://all")
    assert await notices(stream, 2) == ["notifications/tools/list_changed", "notes://all"]
    assert await result(other.request(2, "resources/subscribe", uri="notes://other")) == {}
    await wait_until(lambda: is_listened_to(two.servers[0], "notes://other"))
    two.servers[0].resource_updated("notes://other")
    assert await notices(stream, 1) == ["notes://other"]


async def test_a_change_at_one_replica_reaches_modern_subscriptions_at_others(two):
    one, _ = two.clients
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    listen = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["notes://all"]}, "_meta": meta}
    stream = one.post(
        {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen},
        **{"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"},
    )
    assert await status(stream) == 200
    assert (await first_message(stream))["method"] == "notifications/subscriptions/acknowledged"
    two.servers[1].list_changed(Kind.TOOLS)
    two.servers[1].resource_updated("notes://all")
    told = [await first_message(stream) for _ in range(2)]
    assert [note["method"] for note in told] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]


async def last_id(stream: AsgiExchange, count: int) -> str:
    """The id of the last of the next `count` events with data."""
    id_ = ""
    while count:
        event = await stream.event()
        id_ = event.get("id", id_)
        count -= bool(event.get("data"))
    return id_


async def test_a_stream_that_moves_misses_nothing_and_repeats_nothing(two):
    one, other = two.clients
    await one.initialize()
    for uri in ("notes://1", "notes://2", "notes://3", "notes://4", "notes://5"):
        await result(one.request(1, "resources/subscribe", uri=uri))
    stream = one.get()
    assert await status(stream) == 200
    two.servers[1].resource_updated("notes://1")
    two.servers[1].resource_updated("notes://2")
    after = await last_id(stream, 2)
    stream.leave()
    await stream.task
    two.servers[0].resource_updated("notes://3")
    moved = other.get(**{"last-event-id": after})
    assert await status(moved) == 200
    assert await notices(moved, 1) == ["notes://3"]
    two.servers[0].resource_updated("notes://4")
    after = await last_id(moved, 1)
    back = one.get(**{"last-event-id": after})
    assert await status(back) == 200
    two.servers[1].resource_updated("notes://5")
    assert await notices(back, 1) == ["notes://5"]
    async with asyncio.timeout(HANG_SECONDS):
        await moved.task  # a client has one such stream


async def test_a_client_without_an_event_id_hears_what_it_has_not_heard(two):
    one, other = two.clients
    await one.initialize()
    two.servers[1].list_changed(Kind.TOOLS)
    stream = other.get()
    assert await status(stream) == 200
    assert await notices(stream, 1) == ["notifications/tools/list_changed"]
    stream.leave()
    await stream.task
    sessions: Any = two.apps[1]._endpoint._in_sessions._sessions
    await asyncio.gather(*sessions._tasks)
    two.servers[1].list_changed(Kind.RESOURCES)
    again = one.get()
    assert await status(again) == 200
    assert await notices(again, 1) == ["notifications/resources/list_changed"]


async def test_who_comes_back_after_the_log_was_forgotten_is_told_that_everything_may_have_changed(two):
    one, other = two.clients
    await one.initialize()
    await result(one.request(1, "resources/subscribe", uri="notes://all"))
    for last in ("changes-5.0", "changes-x", "changes-5.all3"):
        stream = other.get(**{"last-event-id": last})
        assert await status(stream) == 200
        assert sorted(await notices(stream, 3)) == [
            "notes://all",
            "notifications/resources/list_changed",
            "notifications/tools/list_changed",
        ]


async def test_a_stream_that_cannot_begin_holds_nothing_of_the_account_s_quota(two, monkeypatch):
    one, _ = two.clients
    await one.initialize()
    await result(one.request(1, "resources/subscribe", uri="notes://all"))

    async def fail(position: Any) -> None:
        raise StoreError("lost")

    monkeypatch.setattr(two.servers[0].engine.replica.changes, "missed_since", fail)
    assert await status(one.get()) == 503
    assert two.apps[0]._quotas.watched.held == 0


async def test_changes_that_were_missed_are_caught_up(two, monkeypatch):
    one, _ = two.clients
    await one.initialize()
    stream = one.get()
    assert await status(stream) == 200
    replica = two.servers[0].engine.replica
    received: Callable[..., Any] = replica.changes.receive

    async def miss(entry: Any) -> None:
        replica.changes.receive = received

    replica.changes.receive = miss
    two.servers[1].list_changed(Kind.TOOLS)
    await wait_until(lambda: replica.changes.receive is received)
    two.servers[1].list_changed(Kind.RESOURCES)
    assert await notices(stream, 2) == [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
    ]


# Streams that are resumed at another replica


async def read_events(stream: AsgiExchange, count: int) -> tuple[str, list[Any]]:
    """The last id and the contents of the next `count` events with data."""
    told: list[Any] = []
    id_ = ""
    while len(told) < count:
        event = await stream.event()
        assert event, "the stream has ended"
        id_ = event.get("id", id_)
        if event.get("data"):
            message = json.loads(event["data"])
            told.append(message["params"]["data"] if "params" in message else message)
    return id_, told


async def count_to(client: AsgiClient, n: int, id_: int = 5) -> AsgiExchange:
    exchange = client.request(id_, "tools/call", name="count", arguments={"n": n})
    assert await status(exchange) == 200
    return exchange


async def resume(client: AsgiClient, last: str) -> AsgiExchange:
    exchange = client.get(**{"last-event-id": last})
    assert await status(exchange) == 200
    return exchange


async def ends(stream: AsgiExchange) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        await stream.task


async def test_a_stream_goes_on_at_another_replica_while_the_call_runs(two):
    one, other = two.clients
    await one.initialize()
    call = await count_to(one, 6)
    last, told = await read_events(call, 3)
    assert told == ["number 0", "number 1", "number 2"]
    call.leave()
    resumed = await resume(other, last)
    assert (await read_events(resumed, 3))[1] == ["number 3", "number 4", "number 5"]
    two.servers[0].goes_on.set()
    last, told = await read_events(resumed, 2)
    assert told[0] == "at last" and told[1]["id"] == 5
    assert told[1]["result"]["content"][0]["text"] == "counted"
    await ends(resumed)
    again = await resume(other, last.rpartition(".")[0] + ".5")
    assert len((await read_events(again, 3))[1]) == 3
    await ends(again)


async def test_a_stream_of_another_replica_ends_here_when_this_one_drains(two):
    one, other = two.clients
    await one.initialize()
    call = await count_to(one, 1)
    last, _ = await read_events(call, 1)
    resumed = await resume(other, last)
    two.apps[1].drain()
    await ends(resumed)
    two.servers[0].goes_on.set()
    assert (await read_events(call, 1))[1] == ["at last"]


async def test_events_that_later_ones_replace_do_not_wait_for_a_slow_store(two):
    goes_on = asyncio.Event()
    places: list[str] = []

    class SlowCopies(StreamCopies):
        async def put(self, stream: str, place: str, entry: Any, account: str) -> None:
            await goes_on.wait()
            places.append(place)

    copies = SlowCopies(two.servers[0].engine.replica, Limits(replay_events=4))
    copy = StreamCopy(copies, "stream", "account")
    for number in range(1, 101):
        copy.add(number, b"event")
        await asyncio.sleep(0)
    copy.end(100)
    goes_on.set()
    await copies.finish()
    assert places == ["1", "0", "1", "2", "3", "end"]


async def test_a_response_is_found_after_its_process_has_stopped(store):
    async with replicas(make, store, count=1) as stopped:
        [client] = stopped.clients
        await client.initialize()
        call = await count_to(client, 1)
        last, _ = await read_events(call, 1)
        call.leave()
        stopped.servers[0].goes_on.set()
        await ends(call)
    async with replicas(make, store, count=1) as running:
        running.clients[0].headers = client.headers
        resumed = await resume(running.clients[0], last)
        _, told = await read_events(resumed, 2)
        assert told[0] == "at last" and told[1]["result"]["content"][0]["text"] == "counted"
        await ends(resumed)


async def test_the_call_of_a_replica_that_died_is_told_as_perhaps_executed(store, monkeypatch):
    monkeypatch.setattr("deltamcp.replicas._ALIVE_SECONDS", 0.3)
    monkeypatch.setattr("deltamcp.replicas._SIGN_SECONDS", 0.1)
    async with replicas(make, store) as two:
        one, other = two.clients
        await one.initialize()
        call = await count_to(one, 2)
        last, _ = await read_events(call, 2)
        call.leave()
        resumed = await resume(other, last)
        replica: Any = two.servers[0].engine.replica

        async def die(*_: Any) -> None:
            raise StoreError("dead")

        monkeypatch.setattr(replica, "store", type("Dead", (), {"put": die, "get": die, "delete": die})())
        _, [told] = await read_events(resumed, 1)
        assert told["id"] == 5 and "may have been executed" in told["error"]["message"]
        await ends(resumed)
        monkeypatch.undo()


async def test_streams_are_the_sessions_alone_and_unknown_ones_give_the_get_stream(two):
    one, other = two.clients
    await one.initialize()
    call = await count_to(one, 1)
    last, _ = await read_events(call, 1)
    stranger = two.another_principal()
    del stranger.headers["mcp-session-id"]
    await stranger.initialize()
    two.servers[0].goes_on.set()
    await ends(call)
    sessions: Any = two.apps[0]._endpoint._in_sessions._sessions
    await sessions._copies.finish()
    for client, id_ in ((other, "0123456789abcdef-1.0"), (other, "junk"), (stranger, "7.1")):
        stream = await resume(client, id_)
        two.servers[1].list_changed(Kind.TOOLS)
        assert "tools/list_changed" in (await first_message(stream))["method"]
        stream.leave()
    foreign: Any = two.apps[1]._endpoint._in_sessions._sessions
    own, theirs = one.headers["mcp-session-id"], stranger.headers["mcp-session-id"]
    assert await foreign._copies.read_end(f"{own} {last.rpartition('.')[0]}") is not None
    assert await foreign._copies.read_end(f"{theirs} {last.rpartition('.')[0]}") is None


async def test_a_stream_longer_than_what_is_stored_goes_on_where_it_can(store):
    async with replicas(lambda url: make(url, replay_events=8), store) as two:
        one, other = two.clients
        await one.initialize()
        call = await count_to(one, 50)
        await read_events(call, 50)
        two.servers[0].goes_on.set()
        last, told = await read_events(call, 2)
        await ends(call)
        sessions: Any = two.apps[0]._endpoint._in_sessions._sessions
        await sessions._copies.finish()
        resumed = await resume(other, last.rpartition(".")[0] + ".3")
        _, again = await read_events(resumed, 9)
        assert again[0] == "number 43" and again[-1] == told[-1]
        await ends(resumed)


async def test_delete_ends_a_stream_that_another_replica_relays(two):
    one, other = two.clients
    await one.initialize()
    call = await count_to(one, 1)
    last, _ = await read_events(call, 1)
    call.leave()
    resumed = await resume(other, last)
    assert await status(AsgiExchange(two.apps[0], "DELETE", one.headers)) == 200
    await ends(resumed)
