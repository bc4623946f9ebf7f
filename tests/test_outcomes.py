"""Unchanged, a delta, or in full: what a caller is sent of a result that it was sent before.

Written from the promise, not from our source: a client keeps what it was sent, by root, and must always be able to make
the server's value from that and the reply.
"""

import asyncio
import contextlib
import copy
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from deltamcp import DeltaServer, Principal, ResultPolicy, Text, ToolError, ToolResult
from deltamcp.deltas.delta import applied, delta
from deltamcp.deltas.root import root_of
from deltamcp.results.encode import decode
from deltamcp.tokens import count
from deltamcp.values import CallTool, Era, Terms
from tests.raw import META, connected
from tests.strategies import any_json, same
from tests.test_delta_dialect import modern
from tests.test_results import KEY, Peer, Program, Result, about, compact, cost, first, joined, texts

ERAS = ["handshake", "modern"]
ROOT = re.compile(r"sha256:[0-9a-f]{64}")
SENTENCE = re.compile(
    r"Executed now: same ([\d,]+) (row|line|field|symbol)s?(?:, sent before)?; "
    r'(?:full: )?(?:continue (\S+)|pack_root="")'
)
SENTENCE_AS = re.compile(r"Executed now: same ([\d,]+) (row|line|field|symbol)s? as ([0-9a-f]{4,12})")
TERSE = re.compile(r"Executed now: same ([\d,]+) (row|line|field|symbol)s?(?:; (?:full: )?continue (\S+)| \((\S+)\))")
"""Where a great count leaves no room for more."""
# What a delta's first line says is told apart here by either wording; one test below holds the wording promised.
CHANGES = re.compile(r"Changed; (?:full: )?(?:continue (\S+)|pack_root=\"\")")
CHANGES_SINCE = re.compile(r"Change[sd] since ([0-9a-f]{12}), now ([0-9a-f]{12}):")
PACK_ROOT = re.compile(r"\[pack_root ([0-9a-f]{12})\]")
DELTAS = ResultPolicy(deltas=True)
MOST_TOKENS = 16


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# A server of one changing value, and a client that keeps what it was sent


@dataclass
class Shelf:
    """What the tools of a server return at the moment."""

    value: Any = None
    calls: int = 0

    def __call__(self) -> Any:
        self.calls += 1
        return copy.deepcopy(self.value)


def served(value: Any, policy: ResultPolicy | None = DELTAS, **options: Any) -> tuple[DeltaServer, Shelf]:
    """A server with the tool `get` under a policy, and `plain`, which never tells changes."""
    server, shelf = DeltaServer("shop", **options), Shelf(value)

    @server.tool(results=policy or ResultPolicy(), annotations={"readOnlyHint": True})
    async def get(query: str = "", page: int = 0) -> Any:
        return shelf()

    @server.tool(results=ResultPolicy(deltas=False, max_tokens=1_000_000))
    async def plain() -> Any:
        return shelf()

    return server, shelf


@dataclass
class Got:
    result: Result
    value: Any

    @property
    def outcome(self) -> str:
        return str(about(self.result)["outcome"])

    @property
    def root(self) -> str:
        return str(about(self.result)["root"])

    @property
    def digits(self) -> str:
        return self.root.removeprefix("sha256:")[:12]

    @property
    def handle(self) -> str:
        return str(about(self.result)["handle"])

    @property
    def text(self) -> str:
        return first(self.result)


@dataclass
class Reader:
    """Keeps what it was sent by its root, the last of each, and makes every result whole by that."""

    peer: Peer
    held: dict[str, Any] = field(default_factory=dict)

    async def get(self, root: str | None = None, tool: str = "get", **arguments: Any) -> Got:
        """One call, the root among its arguments."""
        if root is not None:
            arguments["pack_root"] = root
        return self.take(await self.peer.done(tool, **arguments), root)

    async def by_meta(self, root: str, tool: str = "get", **arguments: Any) -> Got:
        """One call, the root in its `_meta`."""
        return self.take(await self.peer.done(tool, {"pack_root": root}, **arguments), root)

    def take(self, result: Result, root: str | None = None) -> Got:
        said = about(result)
        assert ROOT.fullmatch(said["root"]) and said["handle"], said
        if root == "reset":
            self.held.clear()
            assert said["outcome"] == "full"
        return Got(result, self._value(result, said, root))

    def _value(self, result: Result, said: dict[str, Any], root: str | None) -> Any:
        if said["outcome"] == "full":
            value = self.held[said["root"]] = whole(result)
            return value
        assert said["outcome"] in ("unchanged", "delta"), said
        assert said["base"] in self.held, "a base that was never sent"
        if root is not None:
            assert root and said["base"].startswith("sha256:" + root.removeprefix("sha256:")), (
                "a base that was not named"
            )
        base = self.held[said["base"]]
        if said["outcome"] == "unchanged":
            assert said["base"] == said["root"]
            pattern = SENTENCE if root is None else SENTENCE_AS
            assert len(texts(result)) == 1 and pattern.fullmatch(first(result)), first(result)
            assert cost(result) <= MOST_TOKENS
            return base
        head, _, body = first(result).partition("\n")
        if root is None:
            assert CHANGES.fullmatch(head), head
        else:
            found = CHANGES_SINCE.fullmatch(head)
            assert found, head
            assert said["base"].startswith("sha256:" + found[1]) and said["root"].startswith("sha256:" + found[2])
        value = self.held[said["root"]] = applied(copy.deepcopy(base), body)
        return value


def whole(result: Result) -> Any:
    """The value of a result that is sent in full and fits."""
    shown = first(result)
    return shown if about(result).get("form") == "text" else decode(shown)


async def continued(peer: Peer, handle: str) -> Any:
    return await Program(peer, handle, 20_000).value()


@contextlib.asynccontextmanager
async def reading(server: DeltaServer, era: str = "modern") -> AsyncIterator[Reader]:
    async with joined(server, era) as peer:
        yield Reader(peer)


# The same over HTTP


@dataclass
class HttpPeer(Peer):
    """A client of the HTTP door: stateless in the modern era, a session in the other."""

    http: httpx2.AsyncClient | None = None
    session: dict[str, str] = field(default_factory=dict)
    ids: int = 0

    async def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        assert self.http is not None
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return await self.http.post("/mcp", content=json.dumps(body).encode(), headers={**accept, **headers})

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        answer = await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {})
        self.session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.session)

    async def ask(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        self.ids += 1
        said = {**(META if self.era == "modern" else {}), **(meta or {})}
        body = {
            "jsonrpc": "2.0",
            "id": self.ids,
            "method": method,
            "params": {**params, **({"_meta": said} if said else {})},
        }
        headers = self.session
        if self.era == "modern":
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            if name := params.get("name", params.get("uri")):
                headers["mcp-name"] = name
        answer = await self._post(body, headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = json.loads(answer.text.partition("data: ")[2] or answer.text)
        return found


@contextlib.asynccontextmanager
async def over_http(server: DeltaServer) -> AsyncIterator[Callable[[str], Any]]:
    """Readers of one server, as many as are asked for."""
    async with server.engine.life.running():
        transport = httpx2.ASGITransport(app=server.asgi())
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def reader(era: str) -> Reader:
                peer = HttpPeer(None, era, http)  # type: ignore[arg-type]
                if era == "handshake":
                    await peer.initialize()
                return Reader(peer)

            yield reader


# Values


def items(number: int = 60, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "sku": f"S-{n:04}",
            "title": f"A thing of the sort {n * 37 % 101}",
            "price": n * 113 % 997 / 4,
            "stock": n * 7 % 23,
        }
        | changes
        for n in range(number)
    ]


def changed_at(value: Any, *path: Any, to: Any) -> Any:
    value = copy.deepcopy(value)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return value


LINES = "".join(f"{n:03} the log says that part {n * 31 % 89} was mended by worker {n * 17 % 41}\n" for n in range(80))
OBJECT = {f"setting_{n}": {"value": n * 31 % 89, "note": f"why it is so: reason {n * 17 % 41}"} for n in range(30)}
STATES: dict[str, tuple[Any, Any, str]] = {
    "rows": (items(), changed_at(items(), 7, "stock", to=99), "60 row"),
    "a row less": (items(), items()[:20] + items()[21:], "60 row"),
    "a row more": (items(50), items(51), "50 row"),
    "rows in an envelope": (
        {"total": 60, "items": items(), "next": None},
        {"total": 60, "items": changed_at(items(), 0, "price", to=1), "next": "x"},
        "60 row",
    ),
    "a text": (LINES, LINES.replace("050 the log", "050 a log"), "80 line"),
    "an object": (OBJECT, changed_at(OBJECT, "setting_3", "value", to=None), "30 field"),
    "numbers of another kind": (items(), changed_at(items(), 4, "stock", to=5.0), "60 row"),
    "one instead of true": (
        [row | {"on": True} for row in items()],
        changed_at([row | {"on": True} for row in items()], 4, "on", to=1),
        "60 row",
    ),
    "another order of rows": (items(), [*items()[1:], items()[0]], "60 row"),
}


# The three outcomes


@pytest.mark.parametrize("name", STATES)
async def test_full_then_unchanged_then_a_delta_then_unchanged(name, era):
    before, after, unit = STATES[name]
    server, shelf = served(before)
    async with reading(server, era) as reader:
        one = await reader.get()
        assert one.outcome == "full" and same(one.value, before) and one.root == root_of(before)
        two = await reader.get()
        assert two.outcome == "unchanged" and same(two.value, before)
        assert f"same {unit}" in two.text
        shelf.value = after
        three = await reader.get()
        assert three.outcome == "delta" and same(three.value, after) and three.root == root_of(after)
        assert about(three.result)["base"] == one.root
        four = await reader.get()
        assert four.outcome == "unchanged" and same(four.value, after) and four.root == three.root
        assert shelf.calls == 4, "it is executed every time"


async def test_the_words_of_a_delta_are_those_promised():
    server, shelf = served(items())
    async with reading(server) as reader:
        one = await reader.get()
        shelf.value = STATES["rows"][1]
        two = await reader.get()
        assert two.text.startswith(f"Changed; full: continue {two.handle}\n")
        three = await reader.get(one.digits)
        assert three.text.startswith(f"Changed since {one.digits}, now {three.digits}:\n")


@pytest.mark.parametrize("name", STATES)
async def test_the_handle_that_a_text_names_gives_the_full_current_result(name, era):
    before, after, _ = STATES[name]
    server, shelf = served(before)
    async with reading(server, era) as reader:
        one = await reader.get()
        assert same(await continued(reader.peer, one.handle), before)
        named = SENTENCE.fullmatch((await reader.get()).text)
        assert named and same(await continued(reader.peer, named[3]), before)
        shelf.value = after
        got = await reader.get()
        changes = CHANGES.fullmatch(got.text.partition("\n")[0])
        assert changes and changes[1] == got.handle
        assert same(await continued(reader.peer, changes[1]), after)
        named = SENTENCE.fullmatch((await reader.get()).text)
        assert named and same(await continued(reader.peer, named[3]), after)
        assert same(await continued(reader.peer, (await reader.get(got.digits)).handle), after)


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("name", STATES)
async def test_a_caller_that_sends_its_root_gets_the_outcomes_by_root(name, way, era):
    before, after, _ = STATES[name]
    server, shelf = served(before)
    async with reading(server, era) as reader:
        ask = reader.get if way == "argument" else reader.by_meta
        one = await ask("")
        assert one.outcome == "full" and same(one.value, before)
        shown = PACK_ROOT.fullmatch(texts(one.result)[-1])
        assert shown and shown[1] == one.digits
        two = await ask(one.digits)
        assert two.outcome == "unchanged"
        shelf.value = after
        three = await ask(one.digits)
        assert three.outcome == "delta" and same(three.value, after)
        four = await ask(three.digits)
        assert four.outcome == "unchanged" and same(four.value, after)
        back = await ask(one.digits)
        assert back.outcome == "delta" and same(back.value, after), "the base is the one that was named"


async def test_a_root_in_the_request_asks_for_it_of_a_tool_without_deltas(era):
    server, shelf = served(items(), policy=None)
    async with reading(server, era) as reader:
        plain = await reader.peer.done("get")
        assert "outcome" not in about(plain)
        one = await reader.by_meta("")
        assert one.outcome == "full" and PACK_ROOT.fullmatch(texts(one.result)[-1])
        assert (await reader.by_meta(one.digits)).outcome == "unchanged"
        shelf.value = STATES["rows"][1]
        got = await reader.by_meta(one.root)
        assert got.outcome == "delta" and same(got.value, shelf.value)
        assert "outcome" not in about(await reader.peer.done("get")), "who does not ask is not told changes"
        assert "pack_root" not in (await reader.peer.tools())["get"]["inputSchema"].get("properties", {})


async def test_a_tool_may_refuse_to_tell_changes(era):
    server, _ = served(items(), policy=ResultPolicy(deltas=False), results=DELTAS)
    async with reading(server, era) as reader:
        expected = first(await reader.peer.done("get"))
        for wish in (None, {"pack_root": ""}, {"pack_root": root_of(items())}):
            result = await reader.peer.done("get", wish)
            assert about(result).get("outcome", "full") == "full" and first(result) == expected
        assert "pack_root" not in (await reader.peer.tools())["get"]["inputSchema"].get("properties", {})


async def test_a_server_says_it_for_all_its_tools(era):
    server, shelf = served(items(), policy=None, results=DELTAS)
    async with reading(server, era) as reader:
        assert [(await reader.get()).outcome for _ in range(3)] == ["full", "unchanged", "unchanged"]
        shelf.value = STATES["rows"][1]
        assert (await reader.get()).outcome == "delta"


async def test_a_full_result_reads_as_without_deltas(era):
    server, _ = served(items())
    async with reading(server, era) as reader:
        assert texts((await reader.get()).result) == texts(await reader.peer.done("plain"))
        assert texts((await reader.get("")).result)[:-1] == texts(await reader.peer.done("plain"))


async def test_a_tool_that_changes_what_it_returned_cannot_change_what_is_remembered(era):
    server = DeltaServer("shop", results=DELTAS)
    value = items()

    @server.tool
    async def get() -> Any:
        return value

    async with reading(server, era) as reader:
        one = await reader.get()
        value[3]["stock"] = 77
        two = await reader.get()
        assert two.outcome == "delta" and same(two.value, value)
        value.pop(9)
        assert same((await reader.get(one.digits)).value, value)
        assert same((await reader.get()).value, value)


# Which call is the same


async def test_a_call_is_its_tool_and_its_arguments_in_whatever_order():
    server = DeltaServer("shop", results=DELTAS)

    async def of(a: int = 0, b: str = "", c: dict[str, Any] | None = None) -> Any:
        return items(30, a=a, b=b, c=c or {})

    server.tool(name="one")(of)
    server.tool(name="other")(of)
    async with reading(server) as reader:
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"b": "x", "c": {"q": 2, "p": 1}, "a": 1}, "unchanged"),
            ("one", {"a": 2, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "y", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 3}}, "full"),
            ("other", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "full"),
            ("one", {"a": 1, "b": "x", "c": {"p": 1, "q": 2}}, "unchanged"),
        ]
        for tool, arguments, outcome in calls:
            got = await reader.get(tool=tool, **arguments)
            assert got.outcome == outcome, (tool, arguments)
            assert same(got.value, items(30, **arguments))


async def test_arguments_that_are_equal_only_to_python_are_other_calls():
    server = DeltaServer("shop", results=DELTAS)

    @server.tool
    async def get(what: Any) -> Any:
        return items(30, what=what)

    async with reading(server) as reader:
        for what in (1, True, 1.5, "1", [1], {"what": 1}, None):
            got = await reader.get(what=what)
            assert got.outcome == "full" and same(got.value, items(30, what=what))
        for what in (1, True, 1.5, "1", [1], {"what": 1}, None):
            got = await reader.get(what=what)
            assert got.outcome == "unchanged" and same(got.value, items(30, what=what))


async def test_the_root_is_no_part_of_the_call(era):
    server, _ = served(items())
    async with reading(server, era) as reader:
        one = await reader.get(query="x")
        assert (await reader.get(one.digits, query="x")).outcome == "unchanged"
        assert (await reader.by_meta(one.digits, query="x")).outcome == "unchanged"
        assert (await reader.get(query="x")).outcome == "unchanged"
        assert (await reader.get(one.digits, query="y")).outcome in ("full", "unchanged")


async def test_fields_of_execute_are_part_of_the_call(era):
    server, shelf = served(items(), policy=None, results=DELTAS, disclosure="meta")

    def thin(value: Any) -> Any:
        return [{"sku": row["sku"], "title": row["title"]} for row in value]

    async with reading(server, era) as reader:
        call: dict[str, Any] = {"tool": "execute", "operation": "get", "params": {"query": "x"}}
        assert same((await reader.get(**call)).value, items())
        few = await reader.get(**call, fields="sku,title")
        assert few.outcome == "full" and same(few.value, thin(items()))
        assert (await reader.get(**call)).outcome == "unchanged"
        assert (await reader.get(**call, fields="sku,title")).outcome == "unchanged"
        shelf.value = changed_at(items(), 5, "title", to="Another")
        some = await reader.get(**call, fields="sku,title")
        assert some.outcome == "delta" and same(some.value, thin(shelf.value))
        everything = await reader.get(**call)
        assert everything.outcome == "delta" and same(everything.value, shelf.value)


async def test_fields_that_a_request_wishes_do_not_mix_with_the_whole(era):
    server, shelf = served(items())
    async with reading(server, era) as reader:

        async def ask(fields: str | None) -> Got:
            wish = None if fields is None else {"fields": fields}
            return reader.take(await reader.peer.done("get", wish))

        for value in (items(), STATES["rows"][1], STATES["a row less"][1]):
            shelf.value = value
            assert same((await ask(None)).value, value)
            assert same((await ask("sku,stock")).value, [{"sku": row["sku"], "stock": row["stock"]} for row in value])


# Roots


SPELLINGS: dict[str, Callable[[str], str]] = {
    "12 digits": lambda root: root[7:19],
    "8 digits": lambda root: root[7:15],
    "11 digits": lambda root: root[7:18],
    "40 digits": lambda root: root[7:47],
    "64 digits": lambda root: root[7:],
    "with its algorithm": lambda root: root,
}


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_root_may_be_written_short(spelling, way):
    server, shelf = served(items())
    async with reading(server) as reader:
        written = SPELLINGS[spelling]((await reader.get("")).root)
        ask = reader.get if way == "argument" else reader.by_meta
        got = await ask(written)
        assert got.outcome == "unchanged" and count(got.text) <= MOST_TOKENS
        shelf.value = STATES["rows"][1]
        got = await ask(written)
        assert got.outcome == "delta" and same(got.value, shelf.value)


def unheld(root: str) -> dict[str, str]:
    """What names nothing that was sent, given a root that was."""
    digits = root[7:]
    return {
        "nothing": "",
        "too few digits": digits[:7],
        "one digit": digits[:1],
        "not its beginning": digits[1:13],
        "a digit wrong": digits[:11] + ("0" if digits[11] != "0" else "1"),
        "a digit wrong at the end": "sha256:" + digits[:63] + ("0" if digits[63] != "0" else "1"),
        "unknown": "0123456789ab",
        "another algorithm": "md5:" + digits,
        "too long": digits + "0",
        "no digits": "sha256:",
        "words": "the root you sent me",
        "another script": "根" * 12,
        "a path": "../../../etc/passwd",
        "controls": "\x00\r\n\t",
        "very long": "a" * 100_000,
        "almost reset": "resets",
    }


@pytest.mark.parametrize("way", ["argument", "meta"])
@pytest.mark.parametrize("name", unheld("sha256:" + "0" * 64))
async def test_a_root_that_names_nothing_held_gets_it_in_full(name, way):
    server, shelf = served(items())
    async with reading(server) as reader:
        sent = await reader.get("")
        ask = reader.get if way == "argument" else reader.by_meta
        for value in (items(), STATES["rows"][1]):
            shelf.value = value
            got = await ask(unheld(sent.root)[name])
            assert got.outcome == "full" and same(got.value, value)
            assert PACK_ROOT.fullmatch(texts(got.result)[-1])


async def test_a_root_of_another_call_is_never_guessed_with():
    """Whatever comes of it, it must apply to what that root names."""
    server, shelf = served(items())
    async with reading(server) as reader:
        one = await reader.get("", query="one")
        shelf.value = STATES["rows"][1]
        got = await reader.get(one.digits, query="other")
        assert same(got.value, shelf.value)


async def test_a_sent_root_that_is_unknown_does_not_fall_back_to_what_is_remembered():
    server, _ = served(items())
    async with reading(server) as reader:
        await reader.get()
        assert (await reader.get("0123456789ab")).outcome == "full"
        assert (await reader.get("")).outcome == "full"
        assert (await reader.get()).outcome == "unchanged"


async def test_reset_forgets_everything_of_this_caller(era):
    server, shelf = served(items())
    async with reading(server, era) as reader:
        for query in ("a", "b", "c"):
            await reader.get(query=query)
        got = await reader.get("reset", query="a")
        assert got.outcome == "full" and same(got.value, items()) and PACK_ROOT.fullmatch(texts(got.result)[-1])
        assert (await reader.get(query="b")).outcome == "full"
        assert (await reader.get(query="a")).outcome == "unchanged", "it was sent after the reset"
        shelf.value = STATES["rows"][1]
        await reader.by_meta("reset", query="x")
        for query in ("a", "b", "c"):
            got = await reader.get(query=query)
            assert got.outcome == "full" and same(got.value, shelf.value)


@pytest.mark.parametrize("way", ["argument", "meta"])
async def test_after_a_reset_a_root_that_is_sent_is_taken_at_its_word(way):
    server, shelf = served(items())
    async with reading(server) as reader:
        root = (await reader.get("")).digits
        shelf.value = STATES["rows"][1]
        await (reader.get if way == "argument" else reader.by_meta)("reset", query="x")
        result = await reader.peer.done("get", pack_root=root)
        assert about(result)["outcome"] == "delta"


async def test_reset_does_not_forget_for_others():
    server, _ = served(items())
    async with reading(server) as one, reading(server) as other:
        await one.get()
        await other.get()
        await one.get("reset")
        assert (await other.get()).outcome == "unchanged"


# What the model and programs are told beforehand


async def test_the_root_is_an_argument_that_is_listed(era):
    server, _ = served(items(), results=DELTAS, disclosure="full")

    @server.tool(
        input_schema={"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    )
    async def raw(arguments: dict[str, Any]) -> Any:
        assert "pack_root" not in arguments
        return items()

    async with reading(server, era) as reader:
        tools = await reader.peer.tools()
        for name in ("get", "raw"):
            assert tools[name]["inputSchema"]["properties"]["pack_root"]["type"] == "string"
            assert "pack_root" not in tools[name]["inputSchema"].get("required", [])
            assert (await reader.get("", tool=name)).outcome == "full"
            assert (await reader.get(root_of(items()), tool=name)).outcome == "unchanged"


async def test_a_functions_own_pack_root_is_its_own(era):
    server = DeltaServer("shop", results=DELTAS)

    @server.tool
    async def get(pack_root: int) -> Any:
        return items(40, given=pack_root)

    async with reading(server, era) as reader:
        assert (await reader.peer.tools())["get"]["inputSchema"]["properties"]["pack_root"]["type"] == "integer"
        for number, outcome in ((1, "full"), (2, "full"), (1, "unchanged")):
            got = reader.take(await reader.peer.done("get", pack_root=number))
            assert got.outcome == outcome and same(got.value, items(40, given=number))
        root = root_of(items(40, given=2))
        got = reader.take(await reader.peer.done("get", {"pack_root": root}, pack_root=2), root)
        assert got.outcome == "unchanged"


async def test_execute_takes_a_root_beside_the_operation(era):
    server, shelf = served(items(), policy=None, results=DELTAS, disclosure="meta")
    async with reading(server, era) as reader:
        tools = await reader.peer.tools()
        for name in ("execute", "discover"):
            assert tools[name]["inputSchema"]["properties"]["pack_root"]["type"] == "string"
        call: dict[str, Any] = {"tool": "execute", "operation": "get", "params": {"query": "x"}}
        one = await reader.get("", **call)
        assert one.outcome == "full" and PACK_ROOT.fullmatch(texts(one.result)[-1])
        assert (await reader.get(one.digits, **call)).outcome == "unchanged"
        shelf.value = STATES["rows"][1]
        got = await reader.get(one.digits, **call)
        assert got.outcome == "delta" and same(got.value, shelf.value)
        assert (await reader.get(**call)).outcome == "unchanged"
        assert (await reader.get("reset", **call)).outcome == "full"


async def test_execute_and_the_flat_tool_are_one_call_or_two_but_never_wrong(era):
    server, shelf = served(items(), policy=None, results=DELTAS, disclosure="meta")
    async with reading(server, era) as reader:
        for value in (items(), STATES["rows"][1], STATES["a row less"][1]):
            shelf.value = value
            assert same((await reader.get(query="x")).value, value)
            assert same((await reader.get(tool="execute", operation="get", params={"query": "x"})).value, value)


# Sixteen tokens

LONG_TEXTS = {
    "a million lines": "a\n" * 1_234_567,
    "many rows": [{"n": n} for n in range(98_765)],
    "many fields": {f"k{n}": n for n in range(12_345)},
    "one line": "word " * 2000,
    "one row": [{"text": "word " * 2000}],
    "numbers": list(range(10_000)),
}


@pytest.mark.parametrize("name", LONG_TEXTS)
async def test_unchanged_costs_sixteen_tokens_at_most(name):
    value = LONG_TEXTS[name]
    server, _ = served(value, ResultPolicy(deltas=True, max_tokens=500), limits=None)
    async with reading(server) as reader:
        one = await reader.peer.done("get")
        root = about(one)["root"]
        for sent in (None, root[7:19], root, root[7:15]):
            result = await reader.peer.done("get", **({} if sent is None else {"pack_root": sent}))
            assert about(result)["outcome"] == "unchanged" and cost(result) <= MOST_TOKENS, result
            pattern = TERSE if sent is None and name == "a million lines" else SENTENCE if sent is None else SENTENCE_AS
            assert pattern.fullmatch(first(result))
            named = about(result)["handle"]
            assert not (await reader.peer.done("continue", handle=named)).get("isError")


async def test_unchanged_costs_sixteen_tokens_whatever_the_handle():
    """Roots, and so handles, look different every time; some are dearer than others."""
    server, shelf = served(None)
    async with reading(server) as reader:
        for number in range(150):
            shelf.value = items(40, run=number)
            await reader.get(query=str(number))
            got = await reader.get(query=str(number))
            assert got.outcome == "unchanged" and count(got.text) <= MOST_TOKENS, got.text
            by_root = await reader.get(got.digits, query=str(number))
            assert by_root.outcome == "unchanged" and count(by_root.text) <= MOST_TOKENS, by_root.text


# Worth it, or in full


async def test_a_delta_is_sent_where_it_is_below_three_fifths_of_the_full_form():
    base = items(40)
    outcomes = []
    for changed in range(0, 41, 2):
        server, shelf = served(base)
        async with reading(server) as reader:
            await reader.get()
            shelf.value = [
                row | {"title": f"now {row['sku']} is called {n}"} if n < changed else row for n, row in enumerate(base)
            ]
            full = cost(await reader.peer.done("plain"))
            got = await reader.get()
            assert same(got.value, shelf.value)
            outcomes.append(got.outcome)
            if got.outcome == "delta":
                assert cost(got.result) < 0.6 * full
            elif changed:
                assert count(delta(base, shelf.value)) + MOST_TOKENS >= 0.6 * full, "a delta would have been cheap"
    assert outcomes[0] == "unchanged" and outcomes[1] == "delta" and outcomes[-1] == "full"
    assert outcomes == sorted(outcomes, key=["unchanged", "delta", "full"].index)


async def test_a_delta_keeps_to_the_budget():
    budget = 150
    server, shelf = served(items(400), ResultPolicy(deltas=True, max_tokens=budget))
    seen = set()
    async with joined(server) as peer:
        for changed in (0, 0, 1, 3, 10, 40, 120, 0):
            shelf.value = [
                row | {"title": f"title {n} of {changed}"} if n < changed else row for n, row in enumerate(items(400))
            ]
            result = await peer.done("get")
            assert cost(result) <= budget
            seen.add(about(result)["outcome"])
            assert same(await Program(peer, about(result)["handle"], budget).value(), shelf.value)
    assert seen == {"full", "unchanged", "delta"}


@pytest.mark.parametrize("value", [{"a": 1}, [], {}, "ok", 7, True, "", [1, 2, 3], "two\nlines"])
async def test_what_is_smaller_than_the_sentence_comes_in_full(value, era):
    server, _ = served(value)
    async with reading(server, era) as reader:
        expected = await reader.peer.done("plain")
        for _ in range(3):
            result = await reader.peer.done("get")
            assert about(result).get("outcome", "full") == "full" and texts(result) == texts(expected)


async def test_after_fifteen_deltas_in_a_row_comes_a_full_one(era):
    server, shelf = served(items())
    async with reading(server, era) as reader:
        outcomes = []
        for number in range(36):
            shelf.value = changed_at(items(), number % 60, "stock", to=1000 + number)
            got = await reader.get()
            assert same(got.value, shelf.value)
            outcomes.append(got.outcome)
        assert outcomes == (["full"] + ["delta"] * 15) * 2 + ["full"] + ["delta"] * 3


# Volatile members, and keys


def timed(took: int, age: int, **changes: Any) -> dict[str, Any]:
    return {"took_ms": took, "items": [row | {"age": age + n} for n, row in enumerate(items(40, **changes))]}


VOLATILE = ResultPolicy(deltas=True, volatile=["took_ms", "items.age"])


async def test_volatile_members_alone_are_no_change_and_a_later_delta_applies_to_what_was_sent(era):
    server, shelf = served(timed(1, 1), VOLATILE)
    async with reading(server, era) as reader:
        one = await reader.get()
        for number in (2, 3):
            shelf.value = timed(number, number * 10)
            got = await reader.get()
            assert got.outcome == "unchanged" and got.root == one.root
            assert same(got.value, timed(1, 1))
        shelf.value = changed_at(timed(3, 1), "items", 5, "stock", to=77)
        got = await reader.get()
        assert got.outcome == "delta" and same(got.value, shelf.value)
        shelf.value = changed_at(timed(9, 1), "items", 5, "stock", to=77)
        assert (await reader.get()).outcome == "unchanged"
        shelf.value = changed_at(timed(10, 1), "items", 6, "stock", to=78)
        got = await reader.get()
        assert got.outcome == "delta" and same(got.value, shelf.value)


async def test_volatile_members_of_a_value_sent_twice_are_those_sent_last():
    server, shelf = served(timed(1, 1), VOLATILE)
    other = changed_at(timed(5, 1), "items", 5, "stock", to=77)
    async with reading(server) as reader:
        await reader.get()
        shelf.value = other
        assert (await reader.get()).outcome == "delta"
        shelf.value = timed(9, 1)
        back = await reader.get()
        assert same(back.value, shelf.value)
        shelf.value = changed_at(timed(1, 1), "items", 7, "stock", to=78)
        got = await reader.get(back.digits)
        assert got.outcome == "delta" and same(got.value, shelf.value)


async def test_volatile_members_that_another_connection_was_sent_are_not_taken_for_held():
    server, shelf = served(timed(1, 1), VOLATILE)
    async with reading(server) as one, reading(server) as other:
        mine = (await one.get("")).digits
        shelf.value = timed(2, 1)
        theirs = (await other.get("")).digits
        shelf.value = changed_at(timed(2, 1), "items", 7, "stock", to=78)
        assert same((await one.get(mine)).value, shelf.value)
        assert same((await other.get(theirs)).value, shelf.value)


async def test_keys_tell_rows_apart_where_nothing_else_does():
    rows = [
        {"code": f"c{n}", "id": n % 3, "text": f"The words of row {n * 31 % 89}, which are many"} for n in range(40)
    ]
    server, shelf = served(rows, ResultPolicy(deltas=True, keys=["code"]))
    async with reading(server) as reader:
        await reader.get()
        for value in (
            changed_at(rows, 20, "text", to="other words"),
            rows[5:],
            [{"code": "new", "id": 1, "text": "A row that was not there"}, *rows],
            rows[::-1],
            [row for row in rows if row["id"]],
            [*rows, rows[3]],
            [{"id": 1, "text": "no code"}, *rows],
        ):
            shelf.value = value
            got = await reader.get()
            assert same(got.value, value)
        shelf.value = rows
        await reader.get("reset")
        shelf.value = changed_at(rows, 20, "text", to="other words")
        got = await reader.get()
        assert got.outcome == "delta" and "c20" in got.text and len(got.text.splitlines()) <= 4


# Who remembers whom


async def test_connections_are_conversations_of_their_own(era):
    server, shelf = served(items())
    async with reading(server, era) as one, reading(server, era) as other:
        assert (await one.get()).outcome == "full"
        assert (await other.get()).outcome == "full", "this one was sent nothing yet"
        shelf.value = STATES["rows"][1]
        assert (await one.get()).outcome == "delta"
        shelf.value = STATES["a row less"][1]
        for reader in (one, other, one, other):
            assert same((await reader.get()).value, shelf.value)


async def test_a_root_is_known_on_another_connection_of_the_same_owner(era):
    server, shelf = served(items())
    async with reading(server, era) as one, reading(server, era) as other, reading(server, era) as third:
        sent = await one.get("")
        other.held = third.held = one.held
        assert (await other.get(sent.digits)).outcome == "unchanged"
        shelf.value = STATES["rows"][1]
        got = await third.get(sent.digits)
        assert same(got.value, shelf.value) and got.outcome == "delta"


@dataclass
class Channel:
    """The way back to a client, as a door has it."""

    conversation: str | None = None
    caller: str = "x"

    def arm(self) -> None: ...
    def disarm(self) -> None: ...


@pytest.mark.parametrize("conversation", [None, "the same"])
@pytest.mark.parametrize("way", ["argument", "meta"])
async def test_what_one_principal_was_sent_is_no_base_for_another(way, conversation):
    server, shelf = served(items(), ResultPolicy(deltas=True, dedup=True))

    async def ask(who: str, root: str | None = None) -> tuple[str, Any]:
        by_meta: dict[str, Any] = {} if way == "argument" or root is None else {KEY: {"pack_root": root}}
        arguments: dict[str, Any] = {"pack_root": root} if way == "argument" and root is not None else {}
        terms = Terms(Era.MODERN, "2026-07-28", {}, {}, by_meta, principal=Principal(who))
        answer: Any = await server.engine.perform(CallTool("get", arguments), terms, Channel(conversation), 1)  # type: ignore[arg-type]
        meta = answer.value.meta[KEY]
        return meta["outcome"], decode(answer.value.content[0].text) if meta["outcome"] == "full" else meta

    async with connected(server):
        outcome, _ = await ask("a", "")
        root = root_of(items())
        assert outcome == "full" and (await ask("a", root))[0] == "unchanged"
        assert await ask("b", root) == ("full", items())
        shelf.value = STATES["rows"][1]
        assert (await ask("a", root))[0] == "delta"
        for who in ("c", "d"):
            assert await ask(who, root) == ("full", shelf.value)
        assert await ask("e") == ("full", shelf.value)


async def test_sessions_over_http_are_remembered_each_for_itself():
    server, shelf = served(items())
    async with over_http(server) as join:
        one, other = await join("handshake"), await join("handshake")
        assert [(await one.get()).outcome for _ in range(2)] == ["full", "unchanged"]
        assert (await other.get()).outcome == "full"
        shelf.value = STATES["rows"][1]
        for reader in (one, other):
            got = await reader.get()
            assert got.outcome == "delta" and same(got.value, shelf.value)
            assert got.text.startswith('Changed; full: pack_root=""\n')  # handles of strangers are long
            assert same(await continued(reader.peer, got.handle), shelf.value)
            got = await reader.get(got.digits)
            assert got.outcome == "unchanged"
            got = await reader.get("")
            assert got.outcome == "full" and same(got.value, shelf.value)


async def test_strangers_over_http_are_not_remembered_but_told_the_root():
    server, shelf = served(items())
    async with over_http(server) as join:
        reader = await join("modern")
        for _ in range(2):
            got = await reader.get()
            assert got.outcome == "full" and same(got.value, items())
            shown = PACK_ROOT.fullmatch(texts(got.result)[-1])
            assert shown and shown[1] == got.digits
        again = await reader.get(got.digits)
        assert again.outcome == "unchanged"
        assert same(await continued(reader.peer, again.handle), items())
        shelf.value = STATES["rows"][1]
        changes = await reader.get(got.digits)
        assert changes.outcome == "delta" and same(changes.value, shelf.value)
        assert same(await continued(reader.peer, changes.handle), shelf.value)
        assert (await reader.get("reset")).outcome == "full"


@pytest.mark.parametrize("era_of", ERAS)
async def test_the_handles_of_strangers_are_not_made_of_the_result(era_of):
    """Decision 4 of results: 130 random bits, or at least read by nobody else."""
    server, _ = served(items())
    async with over_http(server) as join:
        got = await (await join(era_of)).get()
        if got.handle in got.root or len(got.handle) < 22:
            for other in ERAS:
                assert (await (await join(other)).peer.use("continue", handle=got.handle)).get("isError"), got.handle


# Failures, schemas, and results that are cut


async def test_failures_are_no_deltas_and_disturb_nothing(era):
    server, shelf = DeltaServer("shop", results=DELTAS), Shelf(items())
    fault: list[Exception | None] = [None]

    @server.tool
    async def get(query: str = "") -> Any:
        if fault[0] is not None:
            raise fault[0]
        return shelf()

    async with reading(server, era) as reader:
        one = await reader.get()
        for error in (ToolError("no " * 200), RuntimeError("x"), ToolError("no " * 200)):
            fault[0] = error
            for root in (None, "", one.digits, "0123456789ab"):
                sent: dict[str, Any] = {} if root is None else {"pack_root": root}
                result = await reader.peer.use("get", **sent)
                assert result["isError"] and "outcome" not in about(result)
                assert "Executed" not in first(result) and "Changes" not in first(result)
            assert (await reader.peer.use("get", query=5)).get("isError"), "refused before it runs"
            fault[0] = None
            assert (await reader.get()).outcome == "unchanged"
            assert (await reader.get(one.digits)).outcome == "unchanged"
        fault[0] = ToolError("no")
        await reader.peer.use("get")
        fault[0], shelf.value = None, STATES["rows"][1]
        got = await reader.get()
        assert got.outcome == "delta" and same(got.value, shelf.value) and about(got.result)["base"] == one.root


async def test_a_failure_as_a_value_is_no_base_either():
    server, shelf = DeltaServer("shop", results=DELTAS), Shelf(items())

    @server.tool
    async def get() -> Any:
        return shelf()

    failed = ToolResult(content=[Text("No such thing. " * 40)], is_error=True)
    async with reading(server) as reader:
        await reader.get()
        shelf.value = failed
        for _ in range(2):
            result = await reader.peer.use("get")
            assert result["isError"] and first(result) == "No such thing. " * 40
        shelf.value = items()
        assert (await reader.get()).outcome == "unchanged"


class Item(BaseModel):
    sku: str
    title: str
    price: float
    stock: int


class Stock(BaseModel):
    items: list[Item]


async def test_structured_content_that_is_promised_is_sent_every_time(era):
    server = DeltaServer("shop", results=DELTAS)

    @server.tool
    async def get() -> Stock:
        return Stock(items=[Item(**row) for row in items(30)])

    async with joined(server, era) as peer:
        assert "outputSchema" in (await peer.tools())["get"]
        results = [
            await peer.done("get"),
            await peer.done("get"),
            await peer.done("get", {"pack_root": root_of(items(30))}),
        ]
        for result in results:
            assert about(result).get("outcome", "full") == "full"
            assert result["structuredContent"]["items"][7]["sku"] == "S-0007"
            assert texts(result)[0] == texts(results[0])[0]


@pytest.mark.parametrize("budget", [60, 200, 1000])
async def test_what_is_cut_is_told_by_its_changes_too(budget, era):
    server, shelf = served(items(400), ResultPolicy(deltas=True, max_tokens=budget))
    async with joined(server, era) as peer:

        async def ask(outcome: str, **arguments: Any) -> Result:
            result = await peer.done("get", **arguments)
            assert about(result)["outcome"] == outcome and cost(result) <= budget, result
            assert same(await Program(peer, about(result)["handle"], budget).value(), shelf.value)
            return result

        root = about(await ask("full"))["root"]
        await ask("unchanged")
        shelf.value = changed_at(items(400), 399, "stock", to=99)
        result = await ask("delta")
        assert same(applied(items(400), first(result).partition("\n")[2]), shelf.value)
        await ask("unchanged")
        result = await ask("delta", pack_root=root)
        assert same(applied(items(400), first(result).partition("\n")[2]), shelf.value)


async def test_content_blocks_come_again_or_as_a_sentence_but_whole():
    server, shelf = served(None)
    blocks = ToolResult(content=[Text(LINES), Text("second")])
    async with joined(server) as peer:
        shelf.value = blocks
        one = await peer.done("get")
        assert texts(one)[:2] == [LINES, "second"]
        two = await peer.done("get")
        assert about(two).get("outcome", "full") in ("full", "unchanged")
        shelf.value = ToolResult(content=[Text(LINES), Text("other")])
        three = await peer.done("get")
        assert about(three).get("outcome") != "unchanged"
        assert "other" in "\n".join(texts(three))


# The catalogue


def cards(**options: Any) -> DeltaServer:
    server = DeltaServer("cards", disclosure="meta", **options)
    for number in range(30):
        add_card(server, number)
    return server


def add_card(server: DeltaServer, number: int) -> None:
    async def act(text: str, times: int = 1) -> str:
        return text * times

    name = f"act_{number}"
    server.tool(name=name, category=f"group{number % 4}", action=name, summary=f"Does what number {number} does.")(act)


DISCOVERED: list[dict[str, Any]] = [
    {},
    {"detail": "brief"},
    {"detail": "full"},
    {"category": "group1", "detail": "brief"},
]


async def test_discover_tells_what_changed_in_the_catalogue(era):
    server = cards()
    async with joined(server, era) as peer:
        for extra in DISCOVERED:
            one = await peer.done("discover", pack_root="", **extra)
            said = about(one)
            assert said["outcome"] == "full" and PACK_ROOT.fullmatch(texts(one)[-1])
            same_again = await peer.done("discover", pack_root=said["root"][7:19], **extra)
            assert about(same_again)["outcome"] == "unchanged" and SENTENCE_AS.fullmatch(first(same_again))
    number = 101
    for extra in DISCOVERED[:3]:
        async with joined(server, era) as peer:
            one = await peer.done("discover", pack_root="", **extra)
            add_card(server, number)
            two = await peer.done("discover", pack_root=about(one)["root"], **extra)
            full = await peer.done("discover", pack_root="", **extra)
            assert about(two)["outcome"] == "delta" and about(two)["root"] == about(full)["root"]
            assert CHANGES_SINCE.fullmatch(first(two).partition("\n")[0]) and cost(two) < 0.6 * cost(full)
            base, new = (whole(result) for result in (one, full))
            assert same(applied(base, first(two).partition("\n")[2]), new)
        number += 4


async def read(peer: Peer, uri: str, root: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a resource holds, and what programs are told of it."""
    answer = await peer.ask("resources/read", None if root is None else {KEY: {"pack_root": root}}, uri=uri)
    [content] = answer["result"]["contents"]
    assert content["uri"] == uri
    return content, content.get("_meta", {}).get(KEY) or answer["result"].get("_meta", {}).get(KEY, {})


async def test_programs_are_told_in_the_meta_of_the_reply(era):
    async with joined(cards(), era) as peer:
        uri = "cards://operations/index"
        _, said = await read(peer, uri, "")
        for root in ("", said["root"]):
            answer = await peer.ask("resources/read", {KEY: {"pack_root": root}}, uri=uri)
            assert {"outcome", "root"} <= set(answer["result"]["_meta"][KEY])


@pytest.mark.parametrize("uri", ["cards://operations/index", "cards://operations/group1"])
async def test_resources_of_the_catalogue_tell_what_changed(uri, era):
    server = cards()
    async with joined(server, era) as peer:
        plain, said = await read(peer, uri, None)
        assert "outcome" not in said and plain["mimeType"] == "application/json"
        content, said = await read(peer, uri, "")
        assert said["outcome"] == "full" and content["text"] == plain["text"] and ROOT.fullmatch(said["root"])
        base, root = json.loads(content["text"]), said["root"]
        content, said = await read(peer, uri, root)
        assert (said["outcome"], said["root"], said["base"]) == ("unchanged", root, root)
        assert content["mimeType"] == "text/plain" and count(content["text"]) <= MOST_TOKENS
        assert SENTENCE_AS.fullmatch(content["text"])
        add_card(server, 101)
        content, said = await read(peer, uri, root[7:19])
        assert (said["outcome"], said["base"]) == ("delta", root) and content["mimeType"] == "text/plain"
        new, told = await read(peer, uri, "")
        assert told["root"] == said["root"] and told["outcome"] == "full"
        head, _, body = content["text"].partition("\n")
        assert CHANGES_SINCE.fullmatch(head) and same(applied(base, body), json.loads(new["text"]))
        assert count(content["text"]) < 0.6 * count(new["text"])
        for garbled in ("0123456789ab", "x", "sha256:"):
            content, said = await read(peer, uri, garbled)
            assert said["outcome"] == "full" and content["text"] == new["text"]


async def test_the_manifest_tells_what_changed():
    server = cards()
    async with connected(server) as raw:

        async def manifest(root: str | None) -> tuple[list[Any], dict[str, Any]]:
            params = modern()
            if root is not None:
                params["_meta"][KEY] = {"pack_root": root}
            result = (await raw.call("tools/manifest", **params))["result"]
            return result["entries"], result.get("_meta", {}).get(KEY, {})

        plain, said = await manifest(None)
        assert "outcome" not in said
        entries, said = await manifest("")
        assert entries == plain and said["outcome"] == "full"
        root = said["root"]
        unchanged, said = await manifest(root)
        assert unchanged == [] and (said["outcome"], said["root"], said["base"]) == ("unchanged", root, root)
        assert SENTENCE_AS.fullmatch(said["text"]) and count(said["text"]) <= MOST_TOKENS
        add_card(server, 101)
        none, said = await manifest(root)
        assert none == [] and (said["outcome"], said["base"]) == ("delta", root)
        head, _, body = said["text"].partition("\n")
        new, told = await manifest("0123456789ab")
        assert told["outcome"] == "full" and told["root"] == said["root"]
        assert CHANGES_SINCE.fullmatch(head) and same(applied(entries, body), new)
        assert count(said["text"]) < 0.2 * count(compact(new))


# Stores


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_both_stores_remember(kind, tmp_path, era):
    store = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'kept.db'}"
    server, shelf = served(items(), store=store)
    async with reading(server, era) as reader:
        assert [(await reader.get()).outcome for _ in range(2)] == ["full", "unchanged"]
        shelf.value = STATES["rows"][1]
        got = await reader.get()
        assert got.outcome == "delta" and same(got.value, shelf.value)
        assert same(await continued(reader.peer, got.handle), shelf.value)


async def test_what_sqlite_keeps_is_a_base_for_another_process_that_is_sent_the_root(tmp_path):
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    server, _ = served(items(), store=store)
    async with reading(server) as reader:
        sent = await reader.get()
    server, shelf = served(items(), store=store)
    async with reading(server) as other:
        other.held = reader.held
        shelf.value = STATES["rows"][1]
        got = await other.get(sent.digits)
        assert got.outcome == "delta" and same(got.value, shelf.value)
        assert same(await continued(other.peer, sent.handle), items())
    server, shelf = served(items(), store=store)
    async with reading(server) as third:
        assert (await third.get()).outcome == "full", "a new connection is a new conversation"


async def test_what_the_store_forgot_comes_in_full():
    server, shelf = served(items())
    async with reading(server) as reader:
        sent = await reader.get()
        await server._store.close()  # forgets everything
        got = await reader.get()
        assert same(got.value, items())
        named = SENTENCE.fullmatch(got.text)
        assert got.outcome == "full" or (named and same(await continued(reader.peer, named[3]), items()))
        await server._store.close()
        shelf.value = STATES["rows"][1]
        assert same((await reader.get(sent.digits)).value, shelf.value)
        await server._store.close()
        shelf.value = STATES["a row less"][1]
        assert same((await reader.get()).value, shelf.value)


# Many at once, and answers that never arrive


async def test_fifty_calls_at_once_can_all_be_applied(era):
    server = DeltaServer("shop", results=DELTAS)
    values = [changed_at(items(), n % 60, "stock", to=1000 + n) for n in range(150)]
    roots = {root_of(value): value for value in values}
    numbers = iter(range(150))

    @server.tool
    async def get() -> Any:
        number = next(numbers)
        for _ in range(number * 7 % 5):
            await asyncio.sleep(0)
        return values[number]

    async with reading(server, era) as reader:
        raw = reader.peer.raw
        outcomes = []
        for batch in range(3):
            ids = [f"{batch}-{n}" for n in range(50)]
            for id_ in ids:
                about_it = {"_meta": META} if era == "modern" else {}
                raw.send(id=id_, method="tools/call", params={"name": "get", "arguments": {}, **about_it})
            for _ in ids:
                got = reader.take((await raw.receive())["result"])
                assert same(got.value, roots[got.root])
                outcomes.append(got.outcome)
        assert outcomes[0] == "full" and "delta" in outcomes


async def test_fifty_callers_in_threads_with_and_without_roots():
    server = DeltaServer("shop", results=DELTAS)
    values = [changed_at(items(), n % 60, "stock", to=1000 + n) for n in range(100)]
    roots = {root_of(value): value for value in values}
    numbers = iter(range(100))
    lock = threading.Lock()

    @server.tool
    def get() -> Any:
        with lock:
            return values[next(numbers)]

    async with reading(server) as reader:
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
                assert same(got.value, roots[got.root])


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_result_that_was_cancelled_is_no_base(threaded, era):
    server, shelf = DeltaServer("shop", results=DELTAS), Shelf(items())
    started, going = threading.Event(), threading.Event()
    entered, gate = asyncio.Event(), asyncio.Event()
    waits = [False]

    def in_thread() -> Any:
        value = shelf()
        if waits[0]:
            started.set()
            going.wait(5)
        return value

    async def on_loop() -> Any:
        value = shelf()
        if waits[0]:
            entered.set()
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        return value

    server.tool(name="get")(in_thread if threaded else on_loop)
    async with reading(server, era) as reader:
        await reader.get()
        waits[0], shelf.value = True, STATES["rows"][1]
        reader.peer.raw.send(
            id="c",
            method="tools/call",
            params={"name": "get", "arguments": {}, **({"_meta": META} if era == "modern" else {})},
        )
        if threaded:
            await asyncio.to_thread(started.wait, 5)
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
        assert same(got.value, shelf.value), "it was told as known, and never sent"


# The pure functions


PAIRS: dict[str, tuple[Any, Any]] = {
    **{name: (before, after) for name, (before, after, _) in STATES.items()},
    "nothing and something": (None, items(3)),
    "something and nothing": (items(3), None),
    "false and zero": ({"a": False}, {"a": 0}),
    "one kinds": ([1, 1.0, True], [True, 1, 1.0]),
    "signs of zero": ({"a": 0.0}, {"a": -0.0}),
    "empty things": ([[], {}, "", None], [{}, [], None, ""]),
    "a member that is null and one that is not there": ({"a": None, "b": 1}, {"b": 1}),
    "keys that are written like something": (
        {"": 1, " ": 2, "a.b": 3, "a/b": 4, "~": 5},
        {"": 2, " ": 1, "a.b": 4, "a/b": 3, "~": 6},
    ),
    "keys like markers": ({"-": 1, "+": 2, "=": 3, "[id]": 4, "\n": 5}, {"-": 2, "+": 1, "=": 4, "[id]": 3, "\n": 6}),
    "rows twice": ([{"id": 1, "a": 1}] * 3, [{"id": 1, "a": 1}] * 2 + [{"id": 1, "a": 2}]),
    "keys of several kinds": ([{"id": 1}, {"id": "1"}, {"id": 1.0}], [{"id": "1"}, {"id": 1.0}, {"id": True}]),
    "rows that lose their key": ([{"id": n, "a": n} for n in range(9)], [{"a": n} for n in range(9)]),
    "texts of other line ends": ("a\r\nb\nc\r" * 9, "a\nb\r\nc\r" * 9),
    "a text without its last line end": (LINES, LINES.rstrip("\n")),
    "texts with odd separators": ("a\u2028b\x85c\x0bd\x1ce\n" * 9, "a\u2028b\x85c\x0bd\x1cf\n" * 9),
    "great numbers": ({"a": 2**53, "b": 10**30, "c": 1e300}, {"a": 2**53 + 1, "b": 10**30 + 1, "c": 1e301}),
    "deep": ([[[[[[1]]]]]], [[[[[[2]]]]]]),
    "text and rows": (LINES, items(3)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("keys", [(), ("sku",), ("id", "code")])
def test_a_delta_applied_to_its_base_is_the_new_value(name, keys):
    for base, new in (PAIRS[name], PAIRS[name][::-1]):
        kept = copy.deepcopy(base)
        text = delta(base, new, keys)
        assert same(applied(base, text), new)
        assert same(base, kept), "neither changes what it is given"
        assert delta(new, copy.deepcopy(new), keys) == ""


@pytest.mark.parametrize("name", PAIRS)
def test_roots_are_of_values_strictly(name):
    base, new = PAIRS[name]
    assert root_of(base) == root_of(copy.deepcopy(base)) != root_of(new)
    assert ROOT.fullmatch(root_of(base))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(any_json, any_json)
@settings(max_examples=200, deadline=None)
def test_any_values(base, new):
    assert same(applied(base, delta(base, new)), new)
    assert root_of(base) == root_of(reordered(base)) and delta(base, reordered(base)) == ""
    assert (root_of(base) == root_of(new)) == same(base, new)
    assert applied(base, "") == base


def test_roots_leave_out_what_is_volatile():
    volatile = ["took_ms", "items.age"]
    assert root_of(timed(1, 1), volatile) == root_of(timed(2, 30), volatile)
    assert root_of(timed(1, 1), volatile) != root_of(timed(1, 1, stock=5), volatile)
    assert root_of(timed(1, 1), ["took_ms"]) != root_of(timed(1, 2), ["took_ms"])
    assert root_of({"a": {"took_ms": 1}}, volatile) != root_of({"a": {"took_ms": 2}}, volatile), "it is a path"


# Any sequence

cells = st.one_of(
    st.sampled_from([0, 1, 1.0, True, False, None, "", "a", "0", -0.0, 0.0, 2**60, 'x,y\n"z"', "-1", "#", "[", "… +3"]),
    any_json,
)
rows = st.dictionaries(st.sampled_from(["name", "a", "b.c", "", "$seen", "é"]), cells, max_size=4)
Edit = tuple[str, int, Any]
edits: st.SearchStrategy[Edit] = st.one_of(
    st.tuples(st.just("same"), st.just(0), st.none()),
    st.tuples(st.just("volatile"), st.integers(0, 3), st.none()),
    st.tuples(st.just("cell"), st.integers(0, 40), cells),
    st.tuples(st.just("drop"), st.integers(0, 40), st.none()),
    st.tuples(st.just("add"), st.integers(0, 40), rows),
    st.tuples(st.just("move"), st.integers(0, 40), st.none()),
    st.tuples(st.just("head"), st.just(0), cells),
    st.tuples(st.just("twin"), st.integers(0, 40), st.none()),
    st.tuples(st.just("all"), st.just(0), any_json.filter(lambda value: not isinstance(value, str))),
    st.tuples(st.just("text"), st.integers(0, 3), st.text(max_size=60)),
    st.tuples(st.just("back"), st.just(0), st.none()),
)
asking = st.sampled_from(["none", "none", "none", "last", "older", "prefix", "meta", "empty", "unknown", "reset"])


def edited(now: Any, start: Any, edit: Edit) -> Any:
    kind, number, new = edit
    if kind == "all":
        return new
    if kind == "text":
        return LINES[: 500 * number] + new + LINES[500 * number : 2500]
    if kind == "back" or not (isinstance(now, dict) and isinstance(now.get("items"), list)):
        return copy.deepcopy(start)
    value = copy.deepcopy(now)
    found = value["items"]
    if kind == "volatile":
        value["took_ms"] = number
        for row in found:
            row["age"] = number
    elif kind == "head":
        value["head"] = new
    elif kind == "add":
        found.insert(number % (len(found) + 1), {"id": 1000 + len(found), "age": 0, **new})
    elif found and kind == "cell":
        found[number % len(found)]["a"] = new
    elif found and kind == "drop":
        found.pop(number % len(found))
    elif found and kind == "move":
        found.append(found.pop(number % len(found)))
    elif found and kind == "twin":
        found.append(copy.deepcopy(found[number % len(found)]))
    return value


def stable(value: Any) -> Any:
    """The value without what is volatile."""
    if not isinstance(value, dict):
        return value
    left = {key: item for key, item in value.items() if key != "took_ms"}
    if isinstance(left.get("items"), list):
        left["items"] = [
            {key: item for key, item in row.items() if key != "age"} if isinstance(row, dict) else row
            for row in left["items"]
        ]
    return left


@given(
    st.lists(rows, min_size=1, max_size=25),
    st.lists(st.tuples(edits, asking), min_size=2, max_size=20),
    st.booleans(),
    st.sampled_from(ERAS),
    st.sampled_from([None, ["id"], ["name"]]),
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_client_that_keeps_what_it_is_sent_always_has_the_servers_value(some, steps, volatile, era, keys):
    start = {"took_ms": 0, "head": "x", "items": [{"id": n, "age": 0, **row} for n, row in enumerate(some)]}
    paths = ["took_ms", "items.age"] if volatile else None

    async def run() -> None:
        server, shelf = served(start, ResultPolicy(deltas=True, volatile=paths, keys=keys))
        async with reading(server, era) as reader:
            sent: list[str] = []
            for edit, way in steps:
                shelf.value = edited(shelf.value, start, edit)
                last = sent[-1] if sent else ""
                root = {
                    "none": None,
                    "last": last[7:19],
                    "older": sent[len(sent) // 2][7:19] if sent else "",
                    "prefix": last[7:15],
                    "meta": last,
                    "empty": "",
                    "unknown": "0123456789ab",
                    "reset": "reset",
                }[way]
                if isinstance(shelf.value, type(None)):
                    shelf.value = {}
                got = await (reader.by_meta(last) if way == "meta" else reader.get(root))
                if way in ("empty", "unknown", "reset"):
                    assert got.outcome == "full"
                if got.outcome == "unchanged" and volatile:
                    assert same(stable(got.value), stable(shelf.value))
                else:
                    assert same(got.value, shelf.value)
                assert got.root in (root_of(got.value), root_of(got.value, paths or ()))
                sent = [*([] if way == "reset" else sent), got.root]

    asyncio.run(run())
