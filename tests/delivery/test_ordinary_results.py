"""Results as servers of other libraries write them: nothing of them is lost, and none costs more than it did."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deltamcp import DeltaServer, ResultPolicy, decode_result
from deltamcp.catalog.items.remote_items import RemoteOperation
from deltamcp.results.blocks import EMPTY_NOTE
from deltamcp.tokens import count
from deltamcp.values import RawResult
from deltamcp.wire import jsonrpc
from tests.support.equality import is_same
from tests.support.era_client import era_client, result_meta, texts, token_cost
from tests.support.properties import examples
from tests.support.strategies import any_json

Result = dict[str, Any]

row = st.fixed_dictionaries(
    {"id": st.integers(0, 10**6), "name": st.text("abc é\n", max_size=6)}, optional={"city": st.just("Oslo")}
)
value = any_json | st.lists(row, min_size=1, max_size=30) | st.fixed_dictionaries({"rows": st.lists(row, max_size=30)})
other_block = st.sampled_from(
    [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "a://b", "name": "b"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "some text"}},
        {"type": "text", "text": "a text", "annotations": {"priority": 1}},
        {"type": "of another revision", "member": [1]},
    ]
)


def text_blocks(*texts: str) -> list[Result]:
    return [{"type": "text", "text": text} for text in texts]


def sdk_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in sdk_texts(item)]
    if value is None:
        return []
    return [value if isinstance(value, str) else json.dumps(value, indent=2)]


def wrapped(value: Any) -> Any:
    return value if isinstance(value, dict) else {"result": value}


def compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


result = st.one_of(
    value.map(lambda value: {"content": text_blocks(*sdk_texts(value)), "structuredContent": wrapped(value)}),
    value.map(lambda value: {"content": text_blocks(compact(value)), "structuredContent": wrapped(value)}),
    value.map(lambda value: {"content": text_blocks(*sdk_texts(value))}),
    value.map(lambda value: {"content": text_blocks(json.dumps(value))}),
    value.map(lambda value: {"content": [], "structuredContent": wrapped(value)}),
    st.tuples(value, value).map(
        lambda pair: {"content": text_blocks(*sdk_texts(pair[0])), "structuredContent": wrapped(pair[1])}
    ),
    st.tuples(value, st.lists(other_block, min_size=1, max_size=2)).map(
        lambda pair: {"content": [*text_blocks(compact(pair[0])), *pair[1]], "structuredContent": wrapped(pair[0])}
    ),
)


def server(
    sent: Result, disclosure: Any, max_tokens: int = 20_000, deltas: bool = False, **members: Any
) -> DeltaServer:
    """A server in front of another one's tool, which answers with a result."""

    async def call(arguments: Any, context: Any) -> RawResult:
        return RawResult(jsonrpc.encode(sent), sent)

    made = DeltaServer(
        "shop",
        disclosure=disclosure,
        results=ResultPolicy(max_tokens=max_tokens, deltas=deltas),
        conversation="process",
    )
    tool = {"name": "get", "inputSchema": {"type": "object"}, **members}
    made.items.add(RemoteOperation(call, tool, name="get", category="up", action="get"))
    return made


def model_texts(reply: Result) -> list[str]:
    return [block["text"] for block in reply.get("content", ()) if block["type"] == "text"]


def readings(reply: Result) -> Iterator[Any]:
    """What a reader takes a reply for: its structure; its only text, as JSON or as it is; a list of its texts."""
    if "structuredContent" in reply:
        yield reply["structuredContent"]
    texts = model_texts(reply)
    if len(texts) != 1:
        read = [json_or_text(text) for text in texts]
        yield texts if read == texts else read
    else:
        yield texts[0]
        with contextlib.suppress(ValueError):
            yield decode_result(texts[0])


def tokens(texts: list[str]) -> int:
    return count("\n".join(texts))


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def with_items(value: Any) -> Iterator[Any]:
    yield value
    for item in value if isinstance(value, list) else ():
        yield from with_items(item)


def is_said(value: Any, reply: Result) -> bool:
    return any(is_same(value, read) for read in readings(reply))


def is_text_said(text: str, reply: Result) -> bool:
    """Whether a text is in the reply, or what it says as JSON."""
    meant = [text, json_or_text(text)]
    said = [item for read in readings(reply) for item in with_items(read)]
    return any(is_same(one, item) for one in meant for item in said)


@settings(max_examples=examples(500), suppress_health_check=list(HealthCheck))
@given(sent=result)
@example(sent={"content": text_blocks("{}"), "structuredContent": {"result": [None, {}]}})
@example(sent={"content": text_blocks("a", "b"), "structuredContent": {"result": [["a"], ["b"]]}})
@example(sent={"content": text_blocks("a", "b"), "structuredContent": {"result": [None, ["a", "b"]]}})
@example(sent={"content": text_blocks("false", "false"), "structuredContent": {"result": [False, False]}})
@example(sent={"content": text_blocks("5"), "structuredContent": {"result": [5]}})
@example(sent={"content": text_blocks("5", "6"), "structuredContent": {"result": ["5", "6"]}})
async def test_behind_meta_tools_nothing_is_lost_and_no_result_costs_more_than_its_own_texts(sent):
    async with era_client(server(sent, "meta"), "handshake") as peer:
        reply = await peer.result_of("execute", operation="up.get")
    for block in sent["content"]:
        if block["type"] == "text" and len(block) == 2:
            assert is_text_said(block["text"], reply) or not block["text"].strip()
        else:
            assert block in reply["content"]
    direct = model_texts(sent)
    structured = sent.get("structuredContent")
    if structured is not None and not is_said(structured, reply):
        [(name, inner)] = structured.items()
        assert name == "result" or len(sent["content"]) == 1
        assert is_said(inner, reply) or (inner == "" and EMPTY_NOTE in model_texts(reply)[-1])
        if not is_said(inner, {"content": sent["content"]}):  # of `[null, {}]` the texts say `{}`
            direct = max([compact(inner)], direct, key=tokens)
    if structured is not None and not direct:
        direct = [compact(structured)]
    assert tokens([text for text in model_texts(reply) if text != EMPTY_NOTE]) <= tokens(direct)


@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(sent=result)
async def test_in_full_disclosure_a_tool_with_an_output_schema_keeps_its_structure(sent):
    members: dict[str, Any] = {"outputSchema": {"type": "object"}} if "structuredContent" in sent else {}
    async with era_client(server(sent, "full", **members), "handshake") as peer:
        reply = await peer.result_of("get")
    assert reply.get("structuredContent") == sent.get("structuredContent")
    for block in sent["content"]:
        if block["type"] == "text" and len(block) == 2:
            assert is_text_said(block["text"], reply) or not block["text"].strip()
        else:
            assert block in reply["content"]
    assert tokens([text for text in model_texts(reply) if text != EMPTY_NOTE]) <= tokens(model_texts(sent))


ROWS = [{"id": number, "name": f"name {number}", "city": ("Oslo", "Quito")[number % 2]} for number in range(500)]
OF_LIBRARIES: dict[str, Result] = {
    "the official SDK": {"content": text_blocks(*sdk_texts(ROWS)), "structuredContent": {"result": ROWS}},
    "FastMCP": {"content": text_blocks(compact(ROWS)), "structuredContent": {"result": ROWS}},
    "an SDK before structured content": {"content": text_blocks(*sdk_texts(ROWS))},
    "JSON in a text": {"content": text_blocks(json.dumps(ROWS)), "structuredContent": {"result": json.dumps(ROWS)}},
}


@pytest.mark.parametrize("library", OF_LIBRARIES)
async def test_rows_of_a_library_are_cut_selected_searched_and_compared_like_any_other(library):
    sent = OF_LIBRARIES[library]
    async with era_client(server(sent, "meta", 300, deltas=True), "handshake") as peer:
        reply = await peer.result_of("execute", operation="up.get")
        assert token_cost(reply) <= 300 and "of 500 rows" in texts(reply)[-1]
        handle = result_meta(reply)["handle"]
        found = await peer.result_of("continue", handle=handle, grep="name 417")
        assert "417" in texts(found)[0] and token_cost(found) <= 300
        selected = await peer.result_of("execute", operation="up.get", fields="max_by(@, &id).name")
        assert "name 499" in texts(selected)[0] and token_cost(selected) < 60
        again = await peer.result_of("execute", operation="up.get")
        assert token_cost(again) < 100 and "same 500 rows" in texts(again)[0]


@pytest.mark.parametrize("library", ["the official SDK", "FastMCP"])
async def test_in_full_disclosure_the_budget_counts_texts_and_structure_and_what_is_cut_conforms(library):
    schema = {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "object", "required": ["id", "name", "city"]}}},
        "required": ["result"],
    }
    async with era_client(server(OF_LIBRARIES[library], "full", 2_000, outputSchema=schema), "handshake") as peer:
        reply = await peer.result_of("get")
        assert token_cost(reply) <= 2_000
        shown = reply["structuredContent"]["result"]
        assert shown == ROWS[: len(shown)] and len(shown) > 10
        rest = await peer.result_of("continue", handle=result_meta(reply)["handle"], path="/result", offset=499)
        assert decode_result(texts(rest)[0]) == ROWS[499:]
