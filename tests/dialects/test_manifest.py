"""SEP-2636: `tools/manifest` and `tools/describe` of several names; digests checked with our own RFC 8785.

Written from the specification, not from our source.
"""

import decimal
import hashlib
import json
from typing import Any

import pytest

from deltamcp import DeltaServer, Icon
from tests.support.bytes_client import (
    EXTENSION,
    HANDSHAKE_VERSIONS,
    BytesClient,
    memory_client,
    modern_params,
    unique_keys,
    utf16_length,
)
from tests.support.demo_server import DEMO_CONNECTIONS, DEMO_TOOLS, demo_server, full_tool_list


def canonical(value: Any) -> str:
    """RFC 8785, the plain way."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return ecmascript(float(value))


def ecmascript(number: float) -> str:
    """A number as `String(number)` of ECMAScript."""
    if number == 0:
        return "0"
    shortest = decimal.Decimal(repr(number))
    if 1e-6 <= abs(number) < 1e21:
        text = f"{shortest:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{shortest.normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+d}"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-9, "1.5e-9"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.25e30, "-1.25e+30"),
        (333333333.33333329, "333333333.3333333"),
    ],
)
def test_our_own_numbers_are_those_of_the_rfc(number, text):
    assert ecmascript(number) == text


def expected(tool: dict[str, Any]) -> dict[str, Any]:
    """The entry of a tool as `tools/describe` gives it at the newest version."""
    form = canonical(tool).encode()
    entry = {
        "name": tool["name"],
        "title": tool.get("title"),
        "digest": f"sha256:{hashlib.sha256(form).hexdigest()}",
        "size": len(form),
        "annotations": tool.get("annotations"),
    }
    return {key: value for key, value in entry.items() if value is not None}


async def newest(peer: BytesClient, names: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await peer.call("tools/describe", modern_params(names=names)))["result"]["tools"]
    return found


async def manifest(peer: BytesClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await peer.call("tools/manifest", modern_params()))["result"]["entries"]
    return found


async def one_tool(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The definition and the entry of a tool made with these options."""
    server = DeltaServer("x")

    async def call(arguments: dict[str, Any]) -> str:
        return ""

    server.tool(**{"name": "t", "input_schema": {"type": "object"}, **options})(call)
    async with memory_client(server) as peer:
        (tool,), (entry,) = await newest(peer, ["t"]), await manifest(peer)
        return tool, entry


# tools/manifest


@pytest.mark.parametrize("kind", DEMO_CONNECTIONS)
async def test_every_tool_has_an_entry_with_the_digest_and_size_of_its_definition(kind):
    async with DEMO_CONNECTIONS[kind]() as peer:
        answer = (await peer.call("tools/manifest", modern_params()))["result"]
        assert answer["resultType"] == "complete"
        assert isinstance(answer["ttlMs"], int)
        assert answer["cacheScope"] in ("public", "private")
        assert "nextCursor" not in answer
        assert [entry["name"] for entry in answer["entries"]] == DEMO_TOOLS
        tools = await newest(peer, DEMO_TOOLS)
        assert tools == (await peer.call("tools/list", modern_params(declared=False)))["result"]["tools"]
        assert answer["entries"] == [expected(tool) for tool in tools]
        assert list(answer["entries"][0]) == ["name", "title", "digest", "size", "annotations"]
        assert list(answer["entries"][1]) == ["name", "digest", "size"]


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_the_digest_is_that_of_the_newest_version_whoever_asks(version):
    async with memory_client(demo_server()) as peer:
        entries = await manifest(peer)
        await peer.declaring(version)
        assert (await peer.call("tools/manifest"))["result"] == {"entries": entries}
        assert (await peer.call("tools/manifest", {}))["result"] == {"entries": entries}


async def test_a_delta_session_has_the_manifest_too():
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        assert (await peer.call("tools/manifest"))["result"] == {"entries": await manifest(peer)}


async def test_everything_in_a_definition_counts():
    everything: dict[str, Any] = {
        "title": "Title",
        "description": "Description – with ümläuts, 😀, \u2028, \x7f and \x01.",
        "annotations": {"readOnlyHint": True, "title": "x"},
        "icons": [Icon("https://example.org/i.png")],
        "meta": {"example.org/x": [1, None, False]},
        "output_schema": {"type": "object", "properties": {"a": {"type": "null"}}},
    }
    tool, entry = await one_tool(**everything)
    assert {"title", "description", "annotations", "icons", "_meta", "outputSchema"} <= tool.keys()
    assert entry == expected(tool)
    digests = {entry["digest"]}
    for left_out in everything:
        tool, entry = await one_tool(**{key: value for key, value in everything.items() if key != left_out})
        assert entry == expected(tool)
        digests.add(entry["digest"])
    assert len(digests) == len(everything) + 1


async def test_what_is_not_part_of_the_definition_does_not_count():
    _, plain = await one_tool(description="Some words.")
    _, other = await one_tool(description="Some words.", summary="Others.", timeout=5)
    assert other == plain


async def test_the_order_of_keys_does_not_count():
    names = ["b", "a", "A", "é", "\ue000", "😀", "10", "9", ""]
    schemas = [
        {"type": "object", "properties": {name: {"type": "string"} for name in order}}
        for order in (names, sorted(names), names[::-1])
    ]
    entries = []
    for schema in schemas:
        tool, entry = await one_tool(input_schema=schema)
        assert list(tool["inputSchema"]["properties"]) == list(schema["properties"])
        assert entry == expected(tool)
        entries.append(entry)
    assert entries[0] == entries[1] == entries[2]


@pytest.mark.parametrize(
    "number", [1.0, -0.0, 0.1, 1e-6, 1e-7, 1.5e-9, 1e16, 1e20, 1e21, 1.25e30, 5e-324, 2**53, -(2**53), 0, 7, 1e300]
)
async def test_numbers_are_written_as_the_rfc_says(number):
    tool, entry = await one_tool(input_schema={"type": "object", "default": {"x": number}})
    assert tool["inputSchema"]["default"]["x"] == number
    assert entry == expected(tool)


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**64) - 1])
async def test_whole_numbers_no_double_holds_are_digested_as_doubles(number):
    tool, entry = await one_tool(input_schema={"type": "object", "default": {"x": number}})
    assert tool["inputSchema"]["default"]["x"] == number
    assert entry == expected(tool)


async def test_two_servers_with_one_definition_agree():
    assert await one_tool(description="Same.") == await one_tool(description="Same.")


async def test_the_manifest_comes_in_pages_like_the_list():
    server = DeltaServer("x", page_size=3)

    async def call(arguments: dict[str, Any]) -> str:
        return ""

    names = [f"t{number}" for number in range(7)]
    for name in names:
        server.tool(name=name, input_schema={"type": "object"})(call)
    async with memory_client(server) as peer:
        pages: dict[str, list[list[str]]] = {}
        for method, field, declared in [("tools/list", "tools", False), ("tools/manifest", "entries", True)]:
            pages[method] = []
            cursor: dict[str, str] = {}
            while True:
                page = (await peer.call(method, modern_params(declared, **cursor)))["result"]
                pages[method].append([item["name"] for item in page[field]])
                if "nextCursor" not in page:
                    break
                cursor = {"cursor": page["nextCursor"]}
        assert pages["tools/manifest"] == pages["tools/list"] == [names[:3], names[3:6], names[6:]]
        for wrong in ("-1", "99", "x", ""):
            assert (await peer.call("tools/manifest", modern_params(cursor=wrong)))["error"]["code"] == -32602


async def test_the_manifest_follows_what_is_registered_and_removed():
    server = demo_server()
    async with memory_client(server) as peer:
        before = await manifest(peer)
        server.remove_tool("add")

        @server.tool
        async def add(a: int, b: int = 3) -> int:
            """Add two numbers."""
            return a + b

        after = await manifest(peer)
        assert [entry["name"] for entry in after] == ["write_file", "list_dir", "fails", "breaks", "add"]
        assert after[-1]["digest"] != before[1]["digest"]
        assert after[:-1] == [before[0], *before[2:]]
        assert after[-1] == expected((await newest(peer, ["add"]))[0])


async def test_a_server_without_tools_has_nothing_to_disclose():
    async with memory_client(DeltaServer("x")) as peer:
        answer = await peer.call("tools/manifest", modern_params())
        listed = await peer.call("tools/list", modern_params())
        if "error" in listed:
            assert answer["error"]["code"] == listed["error"]["code"]
        else:
            assert answer["result"]["entries"] == listed["result"]["tools"] == []


# tools/describe of several


async def test_several_come_in_the_order_asked_for():
    full = json.loads(await full_tool_list(demo_server()))["tools"]
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        for names in (DEMO_TOOLS, DEMO_TOOLS[::-1], ["add"], ["fails", "write_file"]):
            answer = (await peer.call("tools/describe", {"names": names}))["result"]
            assert answer == {"tools": [full[DEMO_TOOLS.index(name)] for name in names]}


async def test_several_are_the_bytes_of_the_full_list():
    async with memory_client(demo_server()) as peer:
        await peer.delta()
        assert await peer.result("tools/describe", {"names": DEMO_TOOLS}) == await full_tool_list(demo_server())


@pytest.mark.parametrize("kind", DEMO_CONNECTIONS)
async def test_all_or_nothing(kind):
    async with DEMO_CONNECTIONS[kind]() as peer:
        error = (await peer.call("tools/describe", modern_params(names=["add", "nope", "fails", "neither"])))["error"]
        assert error["code"] == -32602
        assert error["data"] == {"unknownNames": ["nope", "neither"]}
        error = (await peer.call("tools/describe", modern_params(names=[])))["error"]
        assert (error["code"], error["data"]) == (-32602, {"reason": "empty"})
        error = (await peer.call("tools/describe", modern_params(names=["add"] * 51)))["error"]
        assert (error["code"], error["data"]) == (-32602, {"maxNames": 50})


async def test_the_handshake_era_refuses_likewise():
    async with memory_client(demo_server()) as delta, memory_client(demo_server()) as declaring:
        await delta.delta()
        await declaring.declaring()
        for peer in (delta, declaring):
            for names, data in [
                (["nope"], {"unknownNames": ["nope"]}),
                ([], {"reason": "empty"}),
                (["add"] * 51, {"maxNames": 50}),
            ]:
                error = (await peer.call("tools/describe", {"names": names}))["error"]
                assert (error["code"], error["data"]) == (-32602, data)


async def test_fifty_are_taken_and_fifty_one_are_not_and_the_limit_is_advertised():
    server = DeltaServer("x")

    async def call(arguments: dict[str, Any]) -> str:
        return ""

    names = [f"t{number}" for number in range(60)]
    for name in names:
        server.tool(name=name, input_schema={"type": "object"})(call)
    async with memory_client(server) as peer:
        assert [tool["name"] for tool in await newest(peer, names[49::-1])] == names[49::-1]
        assert (await peer.call("tools/describe", modern_params(names=names[:51])))["error"]["data"] == {"maxNames": 50}
        discovered = await peer.call("server/discover", modern_params())
        assert discovered["result"]["capabilities"]["extensions"][EXTENSION]["describe"]["maxNames"] == 50


@pytest.mark.parametrize("names", ["add", {"add": 1}, 5, True, [1], [None], ["add", ["add"]]])
async def test_names_that_are_none_are_invalid_params(names):
    async with memory_client(demo_server()) as peer:
        assert (await peer.call("tools/describe", modern_params(names=names)))["error"]["code"] == -32602
        await peer.delta()
        assert (await peer.call("tools/describe", {"names": names}))["error"]["code"] == -32602


# Real definitions


FIELDS = {"title": "title", "annotations": "annotations", "output_schema": "outputSchema", "meta": "_meta"}


@pytest.mark.parametrize("everything", [False, True])
async def test_the_definitions_of_real_servers_come_through_unchanged(shared, everything):
    files = sorted((shared / "corpus" / "mcp_tools").glob("*.json"))
    if not files:
        pytest.skip("there is no corpus")
    wrong: list[tuple[str, str, str]] = []
    seen = 0
    for file in files:
        server = DeltaServer(file.stem)
        tools = json.loads(file.read_text())["tools"]
        for tool in tools:

            async def call(arguments: dict[str, Any]) -> str:
                return ""

            options = {ours: tool[theirs] for ours, theirs in FIELDS.items() if everything and theirs in tool}
            server.tool(
                name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"], **options
            )(call)
        names = [tool["name"] for tool in tools]
        full = await full_tool_list(server)
        shown = json.loads(full, object_pairs_hook=unique_keys)["tools"]
        assert [tool["name"] for tool in shown] == names, file.stem
        kept = ["description", "inputSchema", *(FIELDS.values() if everything else ())]
        for ours, theirs in zip(shown, tools, strict=True):
            seen += 1
            wrong += [
                (file.stem, theirs["name"], key)
                for key in kept
                if json.dumps(ours.get(key)) != json.dumps(theirs.get(key))
            ]
        async with memory_client(server) as peer:
            await peer.delta()
            summaries = json.loads(await peer.result("tools/list"))["tools"]
            assert [summary["name"] for summary in summaries] == names
            wrong += [
                (file.stem, summary["name"], "summary")
                for summary in summaries
                if list(summary) != ["name", "description"] or not 0 < utf16_length(summary["description"]) <= 60
            ]
            bare = [await peer.result("tools/describe", {"name": name}) for name in names]
            assert b'{"tools":[' + b",".join(bare) + b"]}" == full, file.stem
            described = []
            for start in range(0, len(names), 50):
                described += await newest(peer, names[start : start + 50])
            entries = await manifest(peer)
            assert [entry["name"] for entry in entries] == names
            wrong += [
                (file.stem, tool["name"], "entry")
                for tool, entry in zip(described, entries, strict=True)
                if entry != expected(tool)
            ]
    assert seen > 0
    assert wrong == []
