"""Results within a budget, and read to their end: as a program does it by `_meta`, as a model does it by the notes."""

import contextlib
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltamcp import (
    Audio,
    BlobResource,
    DeltaServer,
    EmbeddedResource,
    Image,
    ResourceLink,
    ResultPolicy,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.results.encode import decode, encode
from deltamcp.tokens import count
from tests.raw import META, Raw, connected
from tests.strategies import any_json, same
from tests.test_delta_shapes import USERS

KEY = "io.github.delta-mcp/result"
BUDGETS = [50, 60, 100, 200, 500, 2000]
ERAS = ["handshake", "modern"]
Result = dict[str, Any]


# Talking to a server, and reading what it says


@dataclass
class Peer:
    raw: Raw
    era: str = "modern"

    async def ask(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        about = {**(META if self.era == "modern" else {}), **(meta or {})}
        return await self.raw.call(method, **({"_meta": about} if about else {}), **params)

    async def use(self, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> Result:
        """A tool's result; a JSON-RPC error fails the test."""
        meta = None if wish is None else {KEY: wish}
        answer = await self.ask("tools/call", meta, name=tool, arguments=arguments)
        assert "result" in answer, answer
        found: Result = answer["result"]
        return found

    async def done(self, tool: str, wish: dict[str, Any] | None = None, **arguments: Any) -> Result:
        result = await self.use(tool, wish, **arguments)
        assert not result.get("isError"), result
        return result

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The text of a failure that the model is told of."""
        result = await self.use(tool, **arguments)
        assert result.get("isError") is True, result
        return first(result)

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in (await self.ask("tools/list"))["result"]["tools"]}

    async def read(self, uri: str) -> Any:
        answer = await self.ask("resources/read", uri=uri)
        assert "result" in answer, answer
        [content] = answer["result"]["contents"]
        assert content["uri"] == uri
        return json.loads(content["text"]) if content["mimeType"] == "application/json" else content["text"]


@contextlib.asynccontextmanager
async def joined(server: DeltaServer, era: str = "modern") -> AsyncIterator[Peer]:
    async with connected(server) as raw:
        if era == "handshake":
            await raw.handshake(elicitation={})
        yield Peer(raw, era)


@pytest.fixture(params=ERAS)
def era(request) -> str:
    return str(request.param)


def texts(result: Result) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def first(result: Result) -> str:
    return texts(result)[0]


def about(result: Result) -> dict[str, Any]:
    """What a program is told."""
    found: dict[str, Any] = result.get("_meta", {}).get(KEY, {})
    return found


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def cost(result: Result) -> int:
    """The tokens of a reply as the model sees it."""
    seen = []
    for block in result["content"]:
        if block["type"] == "text":
            seen.append(block["text"])
        elif block["type"] == "resource_link":
            seen.append(compact(block))
        elif block["type"] == "resource" and "text" in block["resource"]:
            seen.append(block["resource"]["text"])
    if "structuredContent" in result:
        seen.append(compact(result["structuredContent"]))
    return count("\n".join(seen))


def token(key: object) -> str:
    return "/" + str(key).replace("~", "~0").replace("/", "~1")


def placed(value: Any, pointer: str, new: Any) -> Any:
    """The value with another at the pointer."""
    if not pointer:
        return new
    at = value
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = new
    return value


@dataclass
class Program:
    """Reads a result whole by what `_meta` says, never looking at a note."""

    peer: Peer
    handle: str
    budget: int
    calls: int = 0

    async def value(self, path: str = "") -> Any:
        shown: list[Any] = []
        cuts: list[str] = []
        offset, unit = 0, ""
        while True:
            self.calls += 1
            asked = f"raw:{path}" if unit == "JSON characters" else path
            result = await self.peer.done("continue", handle=self.handle, path=asked, offset=offset)
            assert cost(result) <= self.budget, result
            said = about(result)
            if said["unit"] == "JSON characters" and unit != "JSON characters":
                shown, cuts, offset = [], [], 0  # what no window can show is begun anew, as a text
            else:
                assert unit in ("", said["unit"])
            assert said["handle"] == self.handle and said["start"] == offset and said["path"] == path, said
            unit = said["unit"]
            if said["total"]:
                assert offset < said["end"] <= said["total"], "it does not go on"
            shown.append("" if unit == "characters" and not said["total"] else first(result))
            cuts += said.get("cuts", [])
            offset = said["end"]
            if offset == said["total"]:
                break
        if unit == "characters":
            return "".join(shown)
        if unit == "JSON characters":
            return json.loads("".join(shown))
        whole: Any
        if unit == "rows":
            whole = [row for part in shown for row in decode(part)]
        else:
            assert unit == "keys"
            whole = {key: value for part in shown for key, value in decode(part).items()}
        for cut in cuts:
            assert cut, "a window shows whole units"
            if not any(cut.startswith(other + "/") for other in cuts):
                whole = placed(whole, cut, await self.value(path + cut))
        return whole


NEXT = re.compile(r"\boffset=(\d+)")
UNIT = re.compile(r"\b(rows|keys|JSON characters|characters)\b")
SPAN = re.compile(r"^\[(\d+)-(\d+) of (\d+) ")


def marks(value: Any, pointer: str = "") -> list[str]:
    """Where a model sees that something is cut."""
    if isinstance(value, str):
        return [pointer] if re.search(r"… \+\d+ chars$", value) else []
    if isinstance(value, list):
        if value and isinstance(value[-1], str) and re.fullmatch(r"… \+\d+", value[-1]):
            return [pointer]
        return [found for index, item in enumerate(value) for found in marks(item, pointer + token(index))]
    if isinstance(value, dict):
        if re.fullmatch(r"\+\d+ keys?", str(value.get("…"))):
            return [pointer]
        return [found for key, item in value.items() for found in marks(item, pointer + token(key))]
    return []


@dataclass
class Model:
    """Reads a result whole by the texts alone."""

    peer: Peer
    budget: int
    handle: str = ""

    async def whole(self, result: Result) -> Any:
        """All of what the first reply shows a part of."""
        head, note = texts(result)[:2]
        found = re.search(r'continue\(handle="([^"]+)"', note)
        assert found and note[0] == "[" and note[-1] == "]", note
        self.handle = found[1]
        on = NEXT.search(note)
        if "has all" in note:
            return await self.value("")
        if on and "characters" in note:
            return head + await self.value(None, int(on[1]))
        value = decode(head)
        if on:
            rows, pointer = the_rows(value)
            span = SPAN.match(note) or re.search(r"\b(\d+)-(\d+) of (\d+) rows", note)
            assert span and int(span[1]) == 1 and int(span[2]) == len(rows) == int(on[1]), note
            more = await self.value(None, int(on[1]))
            cut = marks(value)
            rows += more
            assert len(rows) == int(span[3])
        else:
            cut = marks(value)
            assert cut, "nothing is marked, and yet it says so"
        for pointer in cut:
            value = placed(value, pointer, await self.value(pointer))
        return value

    async def value(self, path: str | None, offset: int = 0) -> Any:
        """What is at a path, or the rows or the text, from an offset on."""
        arguments: dict[str, Any] = {"handle": self.handle} | ({} if path is None else {"path": path})
        shown: list[tuple[int, str]] = []
        at: str | None = path
        raw = False
        while True:
            result = await self.peer.done("continue", **arguments, offset=offset)
            assert cost(result) <= self.budget, result
            *body, note = texts(result)
            unit = UNIT.search(note)
            assert unit and note[0] == "[" and note[-1] == "]", note
            if unit[1] == "JSON characters" and not raw:
                raw, shown, offset = True, [], 0
            shown.append((offset, body[0] if body else ""))
            on = NEXT.search(note)
            if not on:
                assert "the last" in note, note
                break
            again = re.search(r'path="((?:raw:)?[^"]*)"', note)
            if again:
                arguments["path"] = again[1]
            assert int(on[1]) > offset
            offset = int(on[1])
        if unit[1] == "characters":
            return "".join(text for _, text in shown)
        if raw:
            return json.loads("".join(text for _, text in shown))
        merged: Any = [] if unit[1] == "rows" else {}
        for start, text in shown:
            part = decode(text)
            cut = marks(part)
            assert "" not in cut, "a window shows whole units"
            for pointer in cut:
                index, *rest = pointer[1:].split("/")
                where = (at if at is not None else self.rows_at) + "".join(
                    f"/{step}" for step in (str(start + int(index)) if unit[1] == "rows" else index, *rest)
                )
                part = placed(part, pointer, await Model(self.peer, self.budget, self.handle).value(where))
            if isinstance(part, list):
                merged += part
            else:
                merged.update(part)
        return merged

    rows_at: str = ""


def the_rows(value: Any, pointer: str = "") -> tuple[list[Any], str]:
    """The list in an envelope, as a reader sees it."""
    if isinstance(value, list):
        return value, pointer
    for key in ("data", "items", "results", "users"):
        if isinstance(value.get(key), list | dict):
            return the_rows(value[key], pointer + token(key))
    raise AssertionError(value)


# Values of every sort


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = {"a": value} if level % 3 else [value, level]
    return value


LINES = "".join(f"Line {number} of the log: the quick brown fox jumps. Over the lazy dog.\n" for number in range(60))
VALUES: dict[str, Any] = {
    "rows": USERS[:60],
    "in data": {"data": USERS[:40], "total": 40},
    "in items": {"total": 40, "items": USERS[:40], "next": None},
    "in results": {"results": USERS[:40]},
    "lines": LINES,
    "one line": "word " * 900,
    "no spaces": "xyz" * 900,
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈" * 60,
    "another script": "日本語のテキスト。" * 120,
    "control characters": '\x00\x01\x1b[0m\r\n\t\\"' * 150,
    "lines of nothing": "\n" * 1500,
    "text like a table": "#a,b\n1,2\n" * 200,
    "text like JSON": json.dumps([1, 2, {"a": "b"}] * 150),
    "text in brackets": "[1-2 of 3 rows; the last]\n" * 100,
    "numbers": list(range(900)),
    "words": [f"word {number}" for number in range(300)],
    "keys": {f"key{number}": number for number in range(300)},
    "long values": {f"key{number}": f"value {number} " * 40 for number in range(12)},
    "one long value": {"id": 1, "body": "word " * 900},
    "long rows": [{"id": number, "body": f"w{number} " * 150} for number in range(5)],
    "one long row": [{"id": 1}, {"id": 2, "body": "x y z " * 400, "tail": 2}, {"id": 3}],
    "lists in lists": [[row, [row, [row]]] for row in range(150)],
    "deep": nested(60),
    "odd keys": {key: f"{key} text " * 60 for key in ("", "a/b", "~t", "a.b", "raw:", "0", "-", "c d", '"', "é")},
    "long keys": {"k" * 300 + str(number): "text " * 50 for number in range(4)},
    "long path": {"outer key of some length " * 8: {"inner key " * 12: "word " * 500}},
    "mixed": [None, True, 1, 1.0, -0.0, 1e300, "", [], {}, "text " * 100, {"a": [None] * 100}] * 6,
    "big numbers": [2**60 + number for number in range(200)],
    "rows of rows": [{"id": n, "tags": ["a", "b"], "owner": {"name": f"n{n}", "age": n}} for n in range(60)],
    "uneven rows": [{"id": n, **({"x": n} if n % 2 else {"y": [n]})} for n in range(120)],
}
LIKE_MARKS: dict[str, Any] = {
    "values like marks": ["… +7", "a… +12 chars", {"…": "+2 keys"}] * 80,
    "rows like marks": [{"id": n, "…": "+1 key", "t": "x… +3 chars"} for n in range(60)],
}


def shop(**policy: Any) -> DeltaServer:
    server = DeltaServer("shop", results=ResultPolicy(**policy))

    @server.tool
    async def get(kind: str) -> Any:
        return copy.deepcopy((VALUES | LIKE_MARKS)[kind])

    @server.tool(output_schema={"type": "object"})
    async def typed(kind: str) -> Any:
        return copy.deepcopy(VALUES[kind])

    return server


# The budget


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_a_reply_keeps_to_its_budget(kind, budget, era):
    async with joined(shop(max_tokens=budget), era) as peer:
        result = await peer.done("get", kind=kind)
        assert cost(result) <= budget
        whole = (VALUES | LIKE_MARKS)[kind]
        if "handle" in about(result):
            assert len(texts(result)) >= 2
        else:
            text = first(result)
            assert text == whole if isinstance(whole, str) else same(decode(text), whole)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", [kind for kind, value in VALUES.items() if isinstance(value, dict)])
async def test_text_and_structured_content_share_the_budget(kind, budget, era):
    async with joined(shop(max_tokens=budget), era) as peer:
        result = await peer.use("typed", kind=kind)
        assert cost(result) <= budget
        assert result.get("isError") or isinstance(result["structuredContent"], dict)


@pytest.mark.parametrize("kind", VALUES)
async def test_what_fits_comes_whole_and_without_a_note(kind, era):
    whole = VALUES[kind]
    async with joined(shop(max_tokens=100_000), era) as peer:
        result = await peer.done("get", kind=kind)
        [text] = texts(result)
        assert len(result["content"]) == 1 and "handle" not in about(result)
        assert text == whole if isinstance(whole, str) else same(decode(text), whole)


BLOCKS: dict[str, Callable[[], Any]] = {
    "an image and texts": lambda: [Image(b"\x89PNG" * 900, "image/png"), Text("hello " * 900), Text("second " * 900)],
    "texts and an image": lambda: [Text("hello " * 900), Image(b"\x89PNG" * 900, "image/png")],
    "a sound": lambda: [Audio(b"RIFF" * 900, "audio/wav"), Text("hello\n" * 900)],
    "many texts": lambda: [Text(f"text {number} ") for number in range(500)],
    "an embedded text": lambda: [EmbeddedResource(TextResource("x://a", "line\n" * 900, "text/plain"))],
    "embedded texts": lambda: [EmbeddedResource(TextResource(f"x://{n}", "line\n" * 90)) for n in range(10)],
    "embedded bytes": lambda: [EmbeddedResource(BlobResource("x://a", b"b" * 3000)), Text("word " * 900)],
    "links": lambda: [ResourceLink(f"x://{number}/a/long/path", f"n{number}") for number in range(200)],
    "by hand": lambda: ToolResult([Text("hello world\n" * 900)], meta={"mine": 1}),
    "by hand, two": lambda: ToolResult([Text("hello world\n" * 900), Text("more " * 900)]),
    "by hand with structure": lambda: ToolResult([Text("hello world\n" * 900)], structured={"a": ["x y"] * 400}),
    "by hand, structure only": lambda: ToolResult([], structured={"a": ["x y"] * 400}),
    "JSON of others": lambda: ToolResult([Text(json.dumps({"total": 60, "items": USERS[:60]}, indent=2))]),
    "rows of others": lambda: ToolResult([Text(json.dumps(USERS[:60]))]),
}


def made(kind: str, **policy: Any) -> DeltaServer:
    server = DeltaServer("shop", results=ResultPolicy(**policy))
    server.tool(name="make")(BLOCKS[kind])
    return server


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", BLOCKS)
async def test_blocks_keep_to_the_budget_and_are_kept_whole(kind, budget, era):
    server = made(kind, max_tokens=budget)
    whole = made(kind, max_tokens=1_000_000)
    async with joined(whole, era) as peer:
        intact = await peer.done("make")
    async with joined(server, era) as peer:
        result = await peer.use("make")
        assert cost(result) <= budget
        media = [block for block in intact["content"] if block["type"] in ("image", "audio")]
        assert [block for block in result["content"] if block["type"] in ("image", "audio")] == media
        of_others = "of others" in kind
        kept: Any = decode(first(intact)) if of_others else {"content": intact["content"]}
        if kind == "by hand, structure only":
            kept = intact["structuredContent"]
        elif "structuredContent" in intact:
            kept["structuredContent"] = intact["structuredContent"]
        if "handle" not in about(result):
            shown = {key: result[key] for key in ("content", "structuredContent") if key in result}
            assert (decode(first(result)) if of_others else shown) == kept
            return
        read = await Program(peer, about(result)["handle"], budget).value()
        if isinstance(read, str):  # one text by itself
            read = {"content": [{"type": "text", "text": read}]}
        assert read == kept


@pytest.mark.parametrize("kind", [kind for kind in BLOCKS if kind.startswith("by hand")])
async def test_a_cut_is_not_taken_for_a_failure(kind, era):
    """Without an output schema nothing is promised that cutting could break."""
    async with joined(made(kind, max_tokens=200), era) as peer:
        result = await peer.use("make")
    assert not result.get("isError"), result


async def test_an_authors_own_meta_stays(era):
    async with joined(made("by hand", max_tokens=200), era) as peer:
        assert (await peer.use("make"))["_meta"]["mine"] == 1


# The largest part


@pytest.mark.parametrize("budget", [200, 500, 2000])
@pytest.mark.parametrize("tables", [True, False])
async def test_no_further_row_would_have_fitted(budget, tables):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget, tables=tables))
    server.tool(name="rows")(lambda: USERS)
    async with joined(server) as peer:
        result = await peer.done("rows")
        shown = about(result)["end"]
        assert same(decode(first(result)), USERS[:shown])
        result["content"][0]["text"] = encode(USERS[: shown + 1], tables=tables).text
        assert cost(result) > budget


@pytest.mark.parametrize("budget", [100, 200, 500, 2000])
@pytest.mark.parametrize("tail", [0.0, None])
async def test_no_further_line_would_have_fitted(budget, tail):
    lines = [f"{number}: the quick brown fox jumps over the lazy dog\n" for number in range(1000)]
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget, tail=tail))
    server.tool(name="log")(lambda: "".join(lines))
    async with joined(server) as peer:
        result = await peer.done("log")
        head = first(result)
        shown = head.count("\n")
        assert head == "".join(lines[:shown]), "a text of lines is cut between two"
        assert (len(texts(result)) == 3) == (tail is None)
        result["content"][0]["text"] = "".join(lines[: shown + 1])
        assert cost(result) > budget


async def test_the_end_of_a_text_is_shown_too(era):
    async with joined(shop(max_tokens=300, tail=0.5), era) as peer:
        head, note, tail = texts(await peer.done("get", kind="lines"))
        assert LINES.startswith(head) and LINES.endswith(tail) and head.endswith("\n") and tail.startswith("Line ")
        assert f"{len(LINES) - len(head) - len(tail)} of {len(LINES)} characters" in note


TEXTS = {
    "sentences": "One sentence stands here. Another one follows it! Does a third? " * 100,
    "headings": "".join(
        f"# Heading {n}\n\n" + "A paragraph of some words without any end " * 6 + "\n" for n in range(50)
    ),
}


@pytest.mark.parametrize(("kind", "edge"), [("sentences", r"[.!?]\s*$"), ("headings", r"\n$")])
async def test_texts_are_cut_at_edges(kind, edge):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=300, tail=0.0))
    server.tool(name="text")(lambda: TEXTS[kind])
    async with joined(server) as peer:
        assert re.search(edge, first(await peer.done("text")))


# Nothing is lost


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_a_program_reads_all(kind, budget):
    whole = (VALUES | LIKE_MARKS)[kind]
    async with joined(shop(max_tokens=budget)) as peer:
        result = await peer.done("get", kind=kind)
        if handle := about(result).get("handle"):
            assert same(await Program(peer, handle, budget).value(), whole)


@pytest.mark.parametrize("budget", [50, 100])
@pytest.mark.parametrize("kind", VALUES | LIKE_MARKS)
async def test_the_characters_of_its_json_can_be_read(kind, budget):
    whole = (VALUES | LIKE_MARKS)[kind]
    async with joined(shop(max_tokens=budget)) as peer:
        handle = about(await peer.done("get", kind=kind))["handle"]
        shown, offset = "", 0
        while True:
            result = await peer.done("continue", handle=handle, path="raw:", offset=offset)
            said = about(result)
            assert cost(result) <= budget and said["unit"] == "JSON characters" and said["end"] > offset
            shown, offset = shown + first(result), said["end"]
            if offset == said["total"]:
                break
        assert same(json.loads(shown), whole) and len(shown) == said["total"]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", VALUES)
async def test_a_model_reads_all(kind, budget):
    whole = VALUES[kind]
    async with joined(shop(max_tokens=budget), "handshake") as peer:
        result = await peer.done("get", kind=kind)
        if "handle" in about(result):
            model = Model(peer, budget)
            model.rows_at = f"/{kind.removeprefix('in ')}" if kind.startswith("in ") else ""
            assert same(await model.whole(result), whole)


@pytest.mark.parametrize("kind", VALUES)
async def test_pages_by_number_make_up_the_rows_or_the_text(kind):
    whole = VALUES[kind]
    rows = whole[kind.removeprefix("in ")] if kind.startswith("in ") else whole
    async with joined(shop(max_tokens=300)) as peer:
        result = await peer.done("get", kind=kind)
        if "handle" not in about(result):
            return
        handle, shown, page, end = about(result)["handle"], [], 1, 0
        while True:
            result = await peer.done("continue", handle=handle, page=page)
            said = about(result)
            assert said["start"] == end and cost(result) <= 300
            end, page = said["end"], page + 1
            shown.append(first(result))
            if end == said["total"]:
                break
        if isinstance(rows, str):
            assert "".join(shown) == rows
        else:
            assert said["total"] == len(rows)
        refusal = await peer.refused("continue", handle=handle, page=page)
        assert f"1 to {page - 1}" in refusal


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=any_json | st.lists(any_json, min_size=3), budget=st.sampled_from([50, 60, 100]))
async def test_any_value_can_be_read_whole_within_any_budget(value, budget):
    server = DeltaServer("shop", results=ResultPolicy(max_tokens=budget))

    @server.tool
    async def get() -> Any:
        return value

    async with joined(server) as peer:
        result = await peer.done("get")
        assert cost(result) <= budget
        if handle := about(result).get("handle"):
            assert same(await Program(peer, handle, budget).value(), value)


# What a request wishes


async def test_a_request_may_ask_for_less_or_more(era):
    async with joined(shop(max_tokens=500), era) as peer:
        less = await peer.done("get", {"maxTokens": 100}, kind="rows")
        assert cost(less) <= 100
        more = await peer.done("get", {"maxTokens": 100_000}, kind="rows")
        assert same(decode(first(more)), VALUES["rows"]) and "handle" not in about(more)


async def test_a_request_may_do_without_tables_and_name_its_fields(era):
    async with joined(shop(max_tokens=500), era) as peer:
        result = await peer.done("get", {"tables": False}, kind="rows")
        assert same(json.loads(first(result)), VALUES["rows"][: about(result)["end"]])
        result = await peer.done("get", {"fields": ["id", "score"], "tables": False}, kind="rows")
        shown = json.loads(first(result))
        assert shown == [{"id": row["id"], "score": row["score"]} for row in VALUES["rows"][: len(shown)]]


@pytest.mark.parametrize("wish", [{"maxTokens": 49}, {"maxTokens": "many"}, {"bogus": 1}, [], 7])
async def test_a_wish_that_cannot_be_meant_is_refused(wish, era):
    async with joined(shop(max_tokens=500), era) as peer:
        answer = await peer.ask("tools/call", {KEY: wish}, name="get", arguments={"kind": "rows"})
        assert "error" in answer or answer["result"].get("isError")
