"""The callers for which the server remembers results: connections, sessions, principals, stores, parallel calls."""

import asyncio
import contextlib
import json
import threading
import time
from typing import Any

import pytest
import uvicorn

from deltamcp import DeltaServer, HostAuth, Principal, ResultPolicy, connect
from deltamcp.delivery.sent_results import (
    _MAX_BYTES,
    _MAX_BYTES_PER_ACCOUNT,
    _MAX_BYTES_PER_CONVERSATION,
    CallKey,
    LastSent,
    RowLocation,
    SentResults,
)
from deltamcp.delivery.stored_results import UNSCOPED
from deltamcp.deltas.root import root_of
from deltamcp.dialects.methods import CONVERSATION_KEY
from deltamcp.gcf import Symbol
from deltamcp.results.encode import decode
from deltamcp.values import Caller
from tests.support.change_reader import HANDLE, UNCHANGED, change_reader, http_change_readers, read_by_handle
from tests.support.changing_server import DELTAS, STATES, ChangingValue, changing_server, shop_items, with_value_at
from tests.support.conditions import HANG_SECONDS
from tests.support.engine_calls import call_as
from tests.support.equality import is_same
from tests.support.era_client import ERAS, RESULT_KEY, era_client, result_meta, texts
from tests.support.http_server import serve_uvicorn
from tests.support.raw_client import META, raw_client

# Who remembers whom


async def test_connections_are_conversations_of_their_own(era):
    server, current = changing_server(shop_items())
    async with change_reader(server, era) as one, change_reader(server, era) as other:
        assert (await one.get()).outcome == "full"
        assert (await other.get()).outcome == "full", "this one was sent nothing yet"
        current.value = STATES["rows"][1]
        assert (await one.get()).outcome == "delta"
        current.value = STATES["a row less"][1]
        for reader in (one, other, one, other):
            assert is_same((await reader.get()).value, current.value)


async def test_a_root_is_known_on_another_connection_of_the_same_owner(era):
    server, current = changing_server(shop_items())
    async with (
        change_reader(server, era) as one,
        change_reader(server, era) as other,
        change_reader(server, era) as third,
    ):
        sent = await one.get("")
        other.held = third.held = one.held
        assert (await other.get(sent.digits)).outcome == "unchanged"
        current.value = STATES["rows"][1]
        got = await third.get(sent.digits)
        assert is_same(got.value, current.value) and got.outcome == "delta"


@pytest.mark.parametrize("conversation", [None, "the same"])
@pytest.mark.parametrize("way", ["argument", "meta"])
async def test_what_one_principal_was_sent_is_no_base_for_another(way, conversation):
    server, current = changing_server(shop_items(), ResultPolicy(deltas=True, dedup=True))

    async def ask(who: str, root: str | None = None) -> tuple[str, Any]:
        by_meta: dict[str, Any] = {} if way == "argument" or root is None else {RESULT_KEY: {"pack_root": root}}
        arguments: dict[str, Any] = {"pack_root": root} if way == "argument" and root is not None else {}
        reply: Any = await call_as(
            server, Caller(Principal(who), conversation=conversation), "get", by_meta, **arguments
        )
        meta = reply.meta[RESULT_KEY]
        shown = reply.content[0].text[: meta.get("lengths", [None])[0]]
        return meta["outcome"], decode(shown) if meta["outcome"] == "full" else meta

    async with raw_client(server):
        outcome, _ = await ask("a", "")
        root = root_of(shop_items())
        assert outcome == "full" and (await ask("a", root))[0] == "unchanged"
        assert await ask("b", root) == ("full", shop_items())
        current.value = STATES["rows"][1]
        assert (await ask("a", root))[0] == "delta"
        for who in ("c", "d"):
            assert await ask(who, root) == ("full", current.value)
        assert await ask("e") == ("full", current.value)


async def test_sessions_over_http_are_remembered_each_for_itself():
    server, current = changing_server(shop_items())
    async with http_change_readers(server) as join:
        one, other = await join("handshake"), await join("handshake")
        assert [(await one.get()).outcome for _ in range(2)] == ["full", "unchanged"]
        assert (await other.get()).outcome == "full"
        current.value = STATES["rows"][1]
        for reader in (one, other):
            got = await reader.get()
            assert got.outcome == "delta" and is_same(got.value, current.value)
            assert got.text.startswith('Changed; full: since=""\n')  # handles of strangers are long
            assert is_same(await read_by_handle(reader.peer, got.handle), current.value)
            got = await reader.get(got.digits)
            assert got.outcome == "unchanged"
            got = await reader.get("")
            assert got.outcome == "full" and is_same(got.value, current.value)


async def test_strangers_over_http_are_not_remembered_but_told_the_root():
    server, current = changing_server(shop_items())
    async with http_change_readers(server) as join:
        reader = await join("modern")
        for _ in range(2):
            got = await reader.get()
            assert got.outcome == "full" and is_same(got.value, shop_items())
            shown = HANDLE.search(texts(got.result)[-1])
            assert shown and shown[1] == got.handle
        again = await reader.get(got.digits)
        assert again.outcome == "unchanged"
        assert is_same(await read_by_handle(reader.peer, again.handle), shop_items())
        current.value = STATES["rows"][1]
        changes = await reader.get(got.digits)
        assert changes.outcome == "delta" and is_same(changes.value, current.value)
        assert is_same(await read_by_handle(reader.peer, changes.handle), current.value)
        assert (await reader.get("reset")).outcome == "full"


@pytest.mark.parametrize("era_of", ERAS)
async def test_the_handles_of_strangers_are_not_made_of_the_result(era_of):
    """Decision 4 of results: 130 random bits, or at least read by nobody else."""
    server, _ = changing_server(shop_items())
    async with http_change_readers(server) as join:
        got = await (await join(era_of)).get()
        if got.handle in got.root or len(got.handle) < 22:
            for other in ERAS:
                assert (await (await join(other)).peer.use("continue", handle=got.handle)).get("isError"), got.handle


@pytest.mark.parametrize("policy", [ResultPolicy(deltas=True, dedup=True), ResultPolicy(dedup=True)], ids=str)
async def test_a_principal_without_a_conversation_is_sent_everything_and_the_root(policy):
    """It may have several conversations, and each has only what it was sent itself."""
    server, current = changing_server(shop_items(), policy)

    async def ask(**arguments: Any) -> tuple[dict[str, Any], str]:
        caller = server.engine.identify(Principal("ann"), None, "10.0.0.1")
        reply: Any = await call_as(server, caller, "get", **arguments)
        return reply.meta[RESULT_KEY], reply.content[0].text

    async with raw_client(server):
        for query in ("one", "one", "other"):
            meta, text = await ask(query=query)
            assert meta["outcome"] == "full" and "$seen" not in text
            assert f"[handle {meta['handle']}." in text
        if policy.deltas:
            held = meta["root"]
            assert (await ask(query="one", pack_root=held))[0]["outcome"] == "unchanged"
            current.value = STATES["rows"][1]
            assert (await ask(query="one", pack_root=held))[0]["outcome"] == "delta"


async def test_our_client_names_the_root_it_holds_where_it_has_no_conversation():
    server, current = changing_server(shop_items())
    app: Any = server.asgi(auth=HostAuth(lambda scope: Principal("ann")))
    bodies: list[dict[str, Any]] = []

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        async def read() -> Any:
            event = await receive()
            if event.get("body"):
                bodies.append(json.loads(event["body"]))
            return event

        await app(scope, read, send)

    config = uvicorn.Config(recorded, port=0, log_level="error", lifespan="off")
    outcomes = []
    async with (
        server.engine.lifespan.running(),
        serve_uvicorn(uvicorn.Server(config)) as url,
        connect(f"{url}/mcp", deltas=True) as client,
    ):
        for value in (shop_items(), shop_items(), STATES["rows"][1]):
            current.value = value
            reply = await client.call_tool("get")
            assert is_same(reply.value, value)
            outcomes.append(reply.delta_meta["outcome"])
    assert outcomes == ["full", "unchanged", "delta"]
    roots = [body["params"]["_meta"][RESULT_KEY]["pack_root"] for body in bodies if body.get("method") == "tools/call"]
    assert roots == ["", root_of(shop_items()), root_of(shop_items())]


# Bounds


def conversation(number: int, account: str = "") -> CallKey:
    return CallKey(
        Caller(Principal("ann"), conversation=str(number), account=account or f"account {number}"), "digest", UNSCOPED
    )


def remembers(sent: SentResults, call: CallKey) -> bool:
    return sent.last_sent(call) is not None


def places(number: int, count: int) -> dict[str, RowLocation]:
    return {f"{number} {row}": RowLocation(f"R{row}/{row}", "root") for row in range(count)}


def test_one_conversation_does_not_displace_anothers_records():
    sent = SentResults(300)
    sent.record(conversation(0), LastSent("root", 0))
    for number in range(1, 200):
        sent.record(conversation(number), LastSent("root", 0))
        sent.record_rows(conversation(number), places(number, 5_000))
    assert remembers(sent, conversation(0))
    assert sent._total_bytes <= _MAX_BYTES
    known = [number for number in range(200) if remembers(sent, conversation(number))]
    assert known == list(range(len(known))), "those who came when there was room"
    assert sent.sent_symbols(conversation(1)) is not None


def test_there_is_room_again_once_others_stay_away():
    sent = SentResults(0)
    for number in range(200):
        sent.record(conversation(number), LastSent("root", 0))
        sent.record_rows(conversation(number), places(number, 5_000))
        assert remembers(sent, conversation(number))
        assert sent._total_bytes <= _MAX_BYTES


def test_an_account_above_its_share_loses_its_own_records_only():
    sent = SentResults(300)
    sent.record(conversation(0), LastSent("root", 0))
    for number in range(1, 30_000):
        sent.record(conversation(number, "one account"), LastSent("root", 0))
    for number in range(30_000, 30_010):
        sent.record_rows(conversation(number, "one account"), places(number, 5_000))
    assert remembers(sent, conversation(0))
    assert sent._account_bytes["one account"] <= _MAX_BYTES_PER_ACCOUNT
    assert sent._total_bytes == sum(known.bytes for known in sent._conversations.values())
    assert sum(sent._account_bytes.values()) == sent._total_bytes


def test_symbols_without_end_are_forgotten_but_their_ids_are_not_used_again():
    sent, call = SentResults(300), conversation(1)
    last = -1
    for number in range(40):
        session = sent.sent_symbols(call)
        assert session is not None
        session = session.copy()
        for symbol in range(50):
            sid, known = session.write(Symbol(f"pkg.{number}.{symbol}.{'x' * 4000}", "function", provenance="x"))
            assert sid == last + 1 and not known
            last = sid
        sent.record_symbols(call, session)
        assert sent._total_bytes <= _MAX_BYTES_PER_CONVERSATION


def test_many_calls_of_one_conversation():
    sent = SentResults(300)
    calls = [conversation(1)._replace(digest=str(number)) for number in range(3000)]
    for call in calls:
        sent.record(call, LastSent("root", 0))
    assert [remembers(sent, call) for call in calls] == [False] * 2000 + [True] * 1000


# Stores


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_both_stores_remember(kind, tmp_path, era):
    store = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'kept.db'}"
    server, current = changing_server(shop_items(), store=store)
    async with change_reader(server, era) as reader:
        assert [(await reader.get()).outcome for _ in range(2)] == ["full", "unchanged"]
        current.value = STATES["rows"][1]
        got = await reader.get()
        assert got.outcome == "delta" and is_same(got.value, current.value)
        assert is_same(await read_by_handle(reader.peer, got.handle), current.value)


async def test_what_sqlite_keeps_is_a_base_for_another_process_that_is_sent_the_root(tmp_path):
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    server, _ = changing_server(shop_items(), store=store)
    async with change_reader(server) as reader:
        sent = await reader.get()
    server, current = changing_server(shop_items(), store=store)
    async with change_reader(server) as other:
        other.held = reader.held
        current.value = STATES["rows"][1]
        got = await other.get(sent.digits)
        assert got.outcome == "delta" and is_same(got.value, current.value)
        assert is_same(await read_by_handle(other.peer, sent.handle), shop_items())
    server, current = changing_server(shop_items(), store=store)
    async with change_reader(server) as third:
        assert (await third.get()).outcome == "full", "a new connection is a new conversation"


async def test_what_the_store_forgot_comes_in_full():
    server, current = changing_server(shop_items())
    async with change_reader(server) as reader:
        sent = await reader.get()
        await server._store.close()  # forgets everything
        got = await reader.get()
        assert is_same(got.value, shop_items())
        named = UNCHANGED.fullmatch(got.text)
        assert got.outcome == "full" or (named and is_same(await read_by_handle(reader.peer, named[3]), shop_items()))
        await server._store.close()
        current.value = STATES["rows"][1]
        assert is_same((await reader.get(sent.digits)).value, current.value)
        await server._store.close()
        current.value = STATES["a row less"][1]
        assert is_same((await reader.get()).value, current.value)


# Many at once, and answers that never arrive


async def test_fifty_calls_at_once_can_all_be_applied(era):
    server = DeltaServer("shop", results=DELTAS, conversation="process")
    values = [with_value_at(shop_items(), n % 60, "stock", to=1000 + n) for n in range(150)]
    roots = {root_of(value): value for value in values}
    numbers = iter(range(150))

    @server.tool
    async def get() -> Any:
        number = next(numbers)
        for _ in range(number * 7 % 5):
            await asyncio.sleep(0)
        return values[number]

    async with change_reader(server, era) as reader:
        raw = reader.peer.raw
        outcomes = []
        for batch in range(3):
            ids = [f"{batch}-{n}" for n in range(50)]
            for id_ in ids:
                about_it = {"_meta": META} if era == "modern" else {}
                raw.send(id=id_, method="tools/call", params={"name": "get", "arguments": {}, **about_it})
            for _ in ids:
                got = reader.take((await raw.receive())["result"])
                assert is_same(got.value, roots[got.root])
                outcomes.append(got.outcome)
        assert outcomes[0] == "full" and "delta" in outcomes


async def test_fifty_callers_in_threads_with_and_without_roots():
    server = DeltaServer("shop", results=DELTAS, conversation="process")
    values = [with_value_at(shop_items(), n % 60, "stock", to=1000 + n) for n in range(100)]
    roots = {root_of(value): value for value in values}
    numbers = iter(range(100))
    lock = threading.Lock()

    @server.tool
    def get() -> Any:
        with lock:
            return values[next(numbers)]

    async with change_reader(server) as reader:
        raw = reader.peer.raw
        for batch in range(2):
            sent: dict[str, str | None] = {}
            known = list(reader.held)
            for n in range(50):
                root = known[n % len(known)] if known and n % 2 else None
                sent[f"{batch}-{n}"] = root
                arguments = {} if root is None else {"pack_root": root}
                raw.send(
                    id=f"{batch}-{n}",
                    method="tools/call",
                    params={"name": "get", "arguments": arguments, "_meta": META},
                )
            for _ in sent:
                answer = await raw.receive()
                got = reader.take(answer["result"], sent[answer["id"]])
                assert is_same(got.value, roots[got.root])


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_result_that_was_cancelled_is_no_base(threaded, era):
    server, current = DeltaServer("shop", results=DELTAS, conversation="process"), ChangingValue(shop_items())
    started, going = threading.Event(), threading.Event()
    entered, gate = asyncio.Event(), asyncio.Event()
    waits = [False]

    def in_thread() -> Any:
        value = current()
        if waits[0]:
            started.set()
            going.wait(HANG_SECONDS)
        return value

    async def on_loop() -> Any:
        value = current()
        if waits[0]:
            entered.set()
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return value

    server.tool(name="get")(in_thread if threaded else on_loop)
    async with change_reader(server, era) as reader:
        await reader.get()
        waits[0], current.value = True, STATES["rows"][1]
        reader.peer.raw.send(
            id="c",
            method="tools/call",
            params={"name": "get", "arguments": {}, **({"_meta": META} if era == "modern" else {})},
        )
        if threaded:
            await asyncio.to_thread(started.wait, HANG_SECONDS)
        else:
            await entered.wait()
        reader.peer.raw.send(method="notifications/cancelled", params={"requestId": "c"})
        await reader.peer.ask("tools/list")  # so the note above has been read
        going.set()
        gate.set()
        await reader.peer.ask("tools/list")
        waits[0] = False
        for answer in reader.peer.raw.heard:
            if answer.get("id") == "c" and "result" in answer:
                reader.take(answer["result"])
        got = await reader.get()
        assert is_same(got.value, current.value), "it was told as known, and never sent"


@pytest.mark.parametrize("name", [None, "a conversation"])
async def test_a_reply_that_crosses_its_cancellation_is_no_base(name, era):
    """MCP 2025-11-25, "Cancellation": the client ignores a response that comes after it has cancelled."""
    server, _ = changing_server(shop_items(), conversation=None if name else "process")
    meta = {**(META if era == "modern" else {}), **({CONVERSATION_KEY: name} if name else {})}
    params = {"name": "get", "arguments": {}, "_meta": meta}
    async with era_client(server, era) as peer:
        outcomes = []
        for number in range(4):
            peer.raw.send(id=f"c{number}", method="tools/call", params=params)
            outcomes.append(result_meta((await peer.raw.receive())["result"])["outcome"])
            if number == 1:
                peer.raw.send(method="notifications/cancelled", params={"requestId": "c1"})
                await peer.ask("tools/list")
        assert outcomes == ["full", "unchanged", "full", "unchanged"]


async def test_a_reply_in_a_session_over_http_that_crosses_its_cancellation_is_no_base():
    server, _ = changing_server(shop_items())
    async with http_change_readers(server) as join:
        reader = await join("handshake")
        assert [(await reader.get()).outcome for _ in range(2)] == ["full", "unchanged"]
        await reader.peer.cancel(reader.peer.ids)
        assert [(await reader.get()).outcome for _ in range(2)] == ["full", "unchanged"]


def test_conversations_whose_results_have_expired_go_when_others_begin(monkeypatch):
    sent, now = SentResults(10.0), time.monotonic()
    for number in range(500):
        monkeypatch.setattr(time, "monotonic", lambda number=number: now + number)
        sent.record(
            CallKey(Caller(Principal("p"), conversation=f"conversation {number}"), "call", UNSCOPED),
            LastSent("root", 0),
        )
    assert len(sent._conversations) <= 11
