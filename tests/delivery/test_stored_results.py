"""Stored results: separate for callers and servers, bounded, and delivered even if the store fails."""

from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from deltamcp import DeltaServer, Limits, Principal, ResultPolicy, Text, ToolResult
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.results.encode import encode
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.shown_result import StoredHeader
from deltamcp.results.stored_result import StoredResult, parse_continue_arguments
from deltamcp.runtime.threads import Computations
from deltamcp.stores.store import MemoryStore
from deltamcp.tokens import count
from deltamcp.values import ANONYMOUS, LOCAL, Caller, CallTool, Era, ResultShape, Terms
from deltamcp.work import Work
from tests.support.asgi_client import INITIALIZE
from tests.support.engine_calls import call_as
from tests.support.office_server import KEY, ROWS, call, handle_of, office_server, result_text
from tests.support.raw_client import META, answer_text, raw_client

PATCHES = [
    [{"op": "copy", "from": "", "path": "/0"}] * 40,
    [{"find": "a", "replace": "a" * 1_000_000, "all": True}],
]


@pytest.mark.parametrize("patch", PATCHES)
async def test_patches_have_a_size(patch):
    server = office_server()
    async with raw_client(server) as raw:
        path = "/0/name" if "find" in patch[0] else ""
        change = [{"find": "n", "replace": "a" * 1_000_000}] * (path != "") + patch
        reference = {"$result": await handle_of(raw, "rows"), "path": path, "patch": change}
        assert (await call(raw, "take", v=reference))["isError"]
    assert "take" not in server.ran


async def test_many_references_to_one_part_are_read_once_and_add_up():
    server = office_server()

    @server.tool
    async def large() -> Any:
        return ["x" * 1_000_000] * 9

    async with raw_client(server) as raw:
        reference = {"$result": await handle_of(raw, "large")}
        assert answer_text({"result": await call(raw, "take", v=[reference] * 3)})
        assert "MiB" in result_text(await call(raw, "take", v=[reference] * 10))


def delta_terms(principal: Principal) -> Terms:
    return Terms(
        Era.HANDSHAKE,
        "2025-11-25",
        {},
        {},
        {},
        caller=Caller(principal, None, principal is ANONYMOUS),
        result_shape=ResultShape.DELTA_MCP,
    )


async def test_strangers_are_not_shown_each_others_pages():
    server: Any = DeltaServer("inbox", results=ResultPolicy(max_tokens=500, page_size=5))
    callers = iter(["first", "second"])

    @server.tool
    async def inbox() -> Any:
        whose = next(callers)
        return [{"of": whose, "n": n} for n in range(20)]

    async with raw_client(server):
        for arguments in ({}, {"page": 2}):
            ask, terms = CallTool("inbox", arguments), delta_terms(ANONYMOUS)
            outcome: Any = await server.engine.perform(ask, terms, None, 1)
    assert "second" in outcome.value.content[0].text and "first" not in outcome.value.content[0].text


async def test_servers_on_one_store_keep_apart(tmp_path):
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    servers = [DeltaServer(name, results=ResultPolicy(max_tokens=300), store=store) for name in ("payroll", "tracker")]
    for server in servers:
        server.tool(name="get")(lambda: ROWS)
    async with raw_client(servers[0]) as one, raw_client(servers[1]) as other:
        handle = await handle_of(one, "get")
        assert not (await call(one, "continue", handle=handle)).get("isError")
        assert (await call(other, "continue", handle=handle))["isError"]


# Accounts

ANN, BOB = Principal("ann"), Principal("bob")
CALLERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "principals": ((ANN, None, "10.0.0.1"), (BOB, None, "10.0.0.1")),
    "sessions": ((ANONYMOUS, "one", "", "address 10.0.0.1"), (ANONYMOUS, "two", "", "address 10.0.0.2")),
    "connections": ((LOCAL, "one"), (LOCAL, "two")),
    "addresses": ((ANONYMOUS, None, "10.0.0.1"), (ANONYMOUS, None, "10.0.0.2")),
}


def small_office(store: Any = "memory://", **limits: int) -> Any:
    server: Any = DeltaServer(
        "office",
        results=ResultPolicy(max_tokens=300),
        store=store,
        limits=Limits(**{"stored_bytes": 500_000, **limits}),
    )
    server.tool(name="get")(lambda n: [{"id": id_, "name": f"row {id_} of {n}"} for id_ in range(300)])
    return server


async def ask(server: Any, caller: tuple[Any, ...], tool: str, **arguments: Any) -> Any:
    return await call_as(server, server.engine.identify(*caller), tool, **arguments)


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


def http_client(app: Any, address: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app, client=(address, 5000))
    headers = {"accept": "application/json, text/event-stream"}
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


async def open_session(http: httpx2.AsyncClient) -> dict[str, str]:
    opened = await http.post("/mcp", json={**CALL, "method": "initialize", "params": INITIALIZE})
    return {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


async def call_in_session(http: httpx2.AsyncClient, session: dict[str, str], n: int) -> Any:
    params = {"name": "get", "arguments": {"n": n}}
    return (await http.post("/mcp", json={**CALL, "params": params}, headers=session)).json()["result"]


def forget_views(server: Any) -> None:
    server.engine._tool_calls._continuation._stored._opened.clear()


@pytest.mark.parametrize("callers", CALLERS)
async def test_many_calls_of_one_caller_do_not_evict_anothers_result(callers):
    server = small_office(stored_bytes_per_account=100_000)
    one, other = CALLERS[callers]
    async with raw_client(server):
        handle = (await ask(server, one, "get", n=0)).meta[KEY]["handle"]
        last = [(await ask(server, other, "get", n=n)).meta[KEY]["handle"] for n in range(66)]
        forget_views(server)
        assert not (await ask(server, one, "continue", handle=handle)).is_error
        assert not (await ask(server, other, "continue", handle=last[-1])).is_error
        assert (await ask(server, other, "continue", handle=last[0])).is_error, "its own oldest made room"


async def test_where_the_store_is_full_replies_say_so_and_what_is_stored_stays(caplog):
    server = small_office(stored_bytes=60_000, stored_bytes_per_account=60_000)
    async with raw_client(server):
        handles = {}
        for n in range(20):
            reply = await ask(server, (Principal(f"user {n}"),), "get", n=n)
            meta, text = reply.meta[KEY], reply.content[0].text
            if "handle" in meta:
                handles[n] = meta["handle"]
                continue
            assert not reply.is_error and meta["rest"] == "not stored" and meta["total"] == 300
            assert " of 300 rows. The rest could not be stored; call again with narrower arguments." in text
            assert "continue" not in text and "handle" not in text
        assert 2 < len(handles) < 10 and list(handles) == list(range(len(handles)))
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
            "a result could not be stored, so its caller gets only a part: "
            "The store keeps 60,000 bytes in all, and is full."
        ], "once a minute is enough"
        forget_views(server)
        for n, handle in handles.items():
            assert not (await ask(server, (Principal(f"user {n}"),), "continue", handle=handle)).is_error


async def test_blocks_and_fields_say_what_was_not_stored():
    server = small_office(stored_bytes=5_000, stored_bytes_per_account=5_000)
    server.tool(name="blocks")(lambda: ToolResult([Text("a" * 9000), Text("b" * 9000)]))
    server.tool(name="few", results=ResultPolicy(fields=["id"], max_tokens=3000))(
        lambda: [{"id": id_, "name": "row " * 40} for id_ in range(100)]
    )
    async with raw_client(server):
        reply = await ask(server, (ANN,), "blocks")
        assert reply.meta[KEY] == {"rest": "not stored"}
        assert "characters. The rest could not be stored; call again" in reply.content[-1].text
        reply = await ask(server, (ANN,), "few")
        assert reply.meta[KEY]["rest"] == "not stored" and "handle" not in reply.meta[KEY]
        assert "The rest could not be stored." in "".join(block.text for block in reply.content)


async def test_what_is_recorded_beside_results_counts_too():
    server = small_office(stored_bytes_per_account=30_000)
    server.tool(name="delta", results=ResultPolicy(deltas=True))(lambda n: ROWS)
    async with raw_client(server):
        for n in range(40):
            await ask(server, CALLERS["addresses"][0], "delta", n=n)
        [account] = server._store._accounts.values()
        assert account.size <= 30_000
        assert any(name.startswith("root ") for _, name in server._store._entries)


async def test_over_http_strangers_count_by_their_address_in_sessions_and_outside():
    server = small_office()
    async with server.engine.lifespan.running():
        app = server.asgi()
        for address in ("10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"):
            async with http_client(app, address) as http:
                params = {"name": "get", "arguments": {"n": 1}, "_meta": META}
                mirrored = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "get"}
                answer = await http.post("/mcp", json={**CALL, "params": params}, headers=mirrored)
                assert "handle" in answer.json()["result"]["_meta"][KEY]
                assert "handle" in (await call_in_session(http, await open_session(http), 1))["_meta"][KEY]
        accounts = [account.removeprefix("office\0") for account in server._store._accounts]
    assert accounts == ["address 10.0.0.1", "address 10.0.0.2", "address 2001:db8::/64"]


@pytest.mark.parametrize("compat", [False, True])
async def test_sessions_of_one_address_fill_only_its_share_of_the_store(compat):
    server = small_office(stored_bytes=400_000, stored_bytes_per_account=100_000)
    async with server.engine.lifespan.running():
        app = server.asgi(compat=compat)
        async with http_client(app, "10.0.0.1") as greedy, http_client(app, "10.0.0.2") as other:
            for _ in range(5):
                session = await open_session(greedy)
                for n in range(20):
                    assert "handle" in (await call_in_session(greedy, session, n))["_meta"][KEY]
            assert "handle" in (await call_in_session(other, await open_session(other), 1))["_meta"][KEY]
            sizes = {account: held.size for account, held in server._store._accounts.items()}
    assert max(sizes.values()) <= 100_000 and len(sizes) == 2


async def test_sessions_of_one_address_share_their_account_at_every_replica(tmp_path):
    store = f"sqlite:///{tmp_path}/store.db"
    limits = {"stored_bytes": 400_000, "stored_bytes_per_account": 100_000}
    one, another = small_office(store, **limits), small_office(store, **limits)
    async with one.engine.lifespan.running(), another.engine.lifespan.running():
        apps = one.asgi(), another.asgi()
        async with http_client(apps[0], "10.0.0.1") as first, http_client(apps[1], "10.0.0.1") as second:
            for _ in range(5):
                session = await open_session(first)
                for n in range(20):
                    assert "handle" in (await call_in_session(second, session, n))["_meta"][KEY]


async def test_callers_whom_the_server_cannot_tell_apart_take_turns_by_their_address(monkeypatch):
    server, turns = small_office(), []
    run = Computations.run

    async def note(self: Computations, caller: Any, compute: Any) -> Any:
        turns.append(caller)
        return await run(self, caller, compute)

    monkeypatch.setattr(Computations, "run", note)
    async with raw_client(server):
        for caller in CALLERS["addresses"]:
            handle = (await ask(server, caller, "get", n=0)).meta[KEY]["handle"]
            await ask(server, caller, "continue", handle=handle)
    assert list(dict.fromkeys(turns)) == ["address 10.0.0.1", "address 10.0.0.2"]


# Views


async def opened_by(stored: StoredResults, account: str, count: int, size: int) -> list[StoredResult]:
    caller = Caller(Principal(account), account=account)
    handles = []
    head = StoredHeader("json", None, ResolvedPolicy())

    for _ in range(count):
        data = b'["' + b"x" * size + b'"]'
        handle = await stored.store(head, data, caller, UNSCOPED)
        assert handle is not None
        handles.append(handle.name)
    return [await stored.open(name, caller) for name in handles]


async def test_opened_results_are_few_and_an_account_closes_its_own_first():
    stored = StoredResults(MemoryStore(), Limits(), "x", "x", "continue")
    first = await opened_by(stored, "ann", 2, 10)
    await opened_by(stored, "bob", 40, 10)
    assert [opened.account for opened in stored._opened.values()] == ["x\0ann"] * 2 + ["x\0bob"] * 4
    assert [opened.result for opened in stored._opened.values()][:2] == first
    for number in range(40):
        await opened_by(stored, f"user {number}", 1, 10)
    assert len(stored._opened) == 16


async def test_opened_results_are_counted_with_their_views():
    stored = StoredResults(MemoryStore(), Limits(), "x", "x", "continue")
    for account in ("ann", "bob", "cid"):
        opened = await opened_by(stored, account, 4, 10_000_000)
        assert [entry.result for entry in stored._opened.values()][-1] is opened[-1]
        own = [entry.bytes for entry in stored._opened.values() if entry.account == f"x\0{account}"]
        assert sum(own) <= 24 * 1024 * 1024 and len(own) == 2
        assert stored._opened_bytes() <= 48 * 1024 * 1024
    before = stored._opened_bytes()
    opened[-1].read(parse_continue_arguments({"handle": "h", "path": "raw:"}), None, Work(10**6))
    assert stored._opened_bytes() > before + 10_000_000
    (again,) = await opened_by(stored, "cid", 1, 10)
    assert opened[-1] not in [entry.result for entry in stored._opened.values()], "its views are above the share"
    assert again in [entry.result for entry in stored._opened.values()]


class Small(BaseModel):
    id: int
    name: str


async def test_fewer_fields_behind_execute_are_no_error():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a")
    async def one() -> Small:
        return Small(id=1, name="n")

    async with raw_client(server) as raw:
        result = await call(raw, "execute", operation="a.one", fields="id")
        assert not result.get("isError") and '{"id":1}' in result_text(result)


async def test_fewer_fields_than_an_output_schema_asks_for_are_not_given():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=300))

    @server.tool
    async def one() -> Small:
        return Small(id=1, name="n")

    async with raw_client(server) as raw:
        result = await call(raw, "one", {"fields": "id"})
        assert not result.get("isError") and result["structuredContent"] == {"id": 1, "name": "n"}
        assert "every field" in result_text(result)


class Listed(BaseModel):
    cursor: str
    items: list[Small]


async def test_what_programs_read_is_not_invented():
    server = DeltaServer("x", results=ResultPolicy(max_tokens=400))

    @server.tool
    async def some() -> Listed:
        return Listed(cursor="c" * 600, items=[Small(id=n, name="n") for n in range(500)])

    async with raw_client(server) as raw:
        result = await call(raw, "some")
        assert result["structuredContent"]["cursor"] == "c" * 600
        assert 0 < len(result["structuredContent"]["items"]) < 500


async def test_what_is_remembered_is_no_handle():
    server = office_server(page_size=5)
    async with raw_client(server) as delta, raw_client(server) as raw:
        await delta.handshake("delta-mcp/0.2.0")
        await delta.call("tools/call", name="rows", arguments={})
        names = [name for _, name in server._store._entries if name.startswith("page ")]
        assert names
        for name in (*names, "", "\0", "R" * 5000):
            refused = await call(raw, "continue", handle=name)
            assert ("again" if name else "handle is required") in result_text(refused)
            assert count(result_text(refused)) < 100
            assert (await call(raw, "take", v={"$result": name}))["isError"]
            read = await raw.modern("resources/read", uri=f"office://results/{name}")
            assert read["error"]["code"] == -32602


async def test_a_repair_keeps_to_the_budget_that_was_wished_for():
    server = DeltaServer("x", disclosure="meta")

    @server.tool(category="a")
    async def create(k: int = 0) -> Any:
        return ROWS

    async with raw_client(server) as raw:
        for arguments in ({"operation": "a.create"}, {"operation": "a.create", "k": 1}):
            result = await call(raw, "execute", {"maxTokens": 200}, **arguments)
            assert count(result_text(result)) <= 200


async def test_what_is_made_by_hand_and_fits_is_sent_as_it_is():
    made = '{"price": 0.12345678901234567890123, "n": 1.50, "a":1, "a":2}'
    server = office_server()
    server.tool(name="hand")(lambda: ToolResult([Text(made)]))
    async with raw_client(server) as raw:
        assert result_text(await call(raw, "hand")) == made


@pytest.mark.parametrize("words", ["   ", "\n", "STRASSE|straße", "i̇stanbul", "timeout|", "|"])
async def test_any_pattern_can_be_searched_for(words):
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "log")
        assert not (await call(raw, "continue", handle=handle, grep=words)).get("isError")


async def test_far_pages_are_not_looked_for():
    async with raw_client(office_server()) as raw:
        handle = await handle_of(raw, "rows")
        assert (await call(raw, "continue", handle=handle, page=10**9))["isError"]


async def test_uniform_rows_without_end_are_shown_by_few_attempts(monkeypatch):
    longest = 0

    def watched(value: Any, **options: Any) -> Any:
        nonlocal longest
        longest = max(longest, len(value))
        return encode(value, **options)

    monkeypatch.setattr("deltamcp.results.window.encode", watched)
    server = office_server()
    server.tool(name="uniform")(lambda: [{"id": n, "kind": "a"} for n in range(50_000)])
    async with raw_client(server) as raw:
        await call(raw, "uniform")
    assert longest < 2_000
