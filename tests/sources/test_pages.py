"""The next page of a response, and pages as one value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import DeltaServer, connect
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.results.pages import join_pages, main_list, read_service_result
from deltamcp.sources.http import helpful_text
from deltamcp.sources.pages import PageArguments, next_arguments
from deltamcp.values import RawResult, ServiceResult
from tests.support.http_peer import Heard, listening, reply

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TEN = [{"id": number} for number in range(10)]


def arguments_of(**properties: Any) -> PageArguments:
    return PageArguments({name: name for name in properties}, properties)


@pytest.mark.parametrize(
    ("value", "links", "properties", "sent", "expected"),
    [
        # RFC 8288: the relation may stand among others, and parameters in any order.
        ([], '<https://x/?page=2>; rel="prev next"', {"page": NUMBER}, {}, {"page": 2}),
        ([], '<?page=1>; rel=prev, <?page=3>; title="a, b"; rel=next', {"page": NUMBER}, {"page": 2}, {"page": 3}),
        ([], '<https://x/?page=2>; rel="last"', {"page": NUMBER}, {}, None),
        # An address with a parameter that no argument sets would be another call.
        ([], '<https://x/?page=2&shard=7>; rel="next"', {"page": NUMBER}, {}, None),
        (
            {"next": "https://other.example/?after=abc&q=x"},
            "",
            {"after": TEXT, "q": TEXT},
            {"q": "x"},
            {"after": "abc"},
        ),
        ({"@odata.nextLink": "https://x/?$skip=10"}, "", {"$skip": NUMBER}, {}, {"$skip": 10}),
        ({"_links": {"next": {"href": "/items?offset=5"}}}, "", {"offset": NUMBER}, {}, {"offset": 5}),
        ({"nextPageToken": "t"}, "", {"pageToken": TEXT}, {}, {"pageToken": "t"}),
        ({"response_metadata": {"next_cursor": "c"}}, "", {"cursor": TEXT}, {}, {"cursor": "c"}),
        ({"response_metadata": {"next_cursor": ""}}, "", {"cursor": TEXT}, {"cursor": "b"}, None),
        ({"pageInfo": {"hasNextPage": True, "endCursor": "e"}}, "", {"after": TEXT}, {}, {"after": "e"}),
        ({"pageInfo": {"hasNextPage": False, "endCursor": "e"}}, "", {"after": TEXT}, {}, None),
        ({"metadata": {"continue": "k"}, "items": []}, "", {"continue": TEXT, "limit": NUMBER}, {}, {"continue": "k"}),
        ({"paging": {"cursors": {"after": "z"}}}, "", {"after": TEXT}, {}, {"after": "z"}),
        ({"next_page": 3}, "", {"page": NUMBER}, {"page": 2}, {"page": 3}),
        ({"next_page": None, "items": TEN}, "", {"page": NUMBER}, {"page": 2}, None),
        ({"cursor": "same"}, "", {"cursor": TEXT}, {"cursor": "same"}, None),
        ({"items": TEN, "total": 30}, "", {"offset": NUMBER, "limit": NUMBER}, {"offset": 10}, {"offset": 20}),
        ({"items": TEN, "total": 30}, "", {"offset": NUMBER, "limit": NUMBER}, {"offset": 20}, None),
        ({"items": TEN, "total_pages": 2}, "", {"page": {"type": "integer", "default": 0}}, {"page": 1}, None),
        ({"items": TEN, "total_pages": 2}, "", {"page": {"type": "integer", "default": 0}}, {}, {"page": 1}),
        (TEN, "", {"page": NUMBER, "per_page": {"type": "integer", "default": 10}}, {}, {"page": 2}),
        (TEN, "", {"page": NUMBER, "per_page": {"type": "integer", "default": 11}}, {}, None),
        ([], "", {"page": NUMBER, "per_page": NUMBER}, {"per_page": 10}, None),
        ({"has_more": True, "data": TEN}, "", {"starting_after": TEXT}, {}, {"starting_after": 9}),
        # A date is no offset, and a text no number.
        ({"items": TEN, "total": 30}, "", {"start": {"type": "string", "format": "date"}, "limit": NUMBER}, {}, None),
        ("text", "", {"page": NUMBER}, {}, None),
        (None, "", {"page": NUMBER}, {}, None),
    ],
)
def test_the_next_page_is_what_document_and_response_say(value, links, properties, sent, expected):
    found = next_arguments(value, links, sent, arguments_of(**properties))
    assert found == (None if expected is None else {**sent, **expected})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["items", "next", "page", "total", "cursor", "meta", "has_more"]), inner)
    ),
    max_leaves=12,
)


@given(_JSON, st.text(max_size=60))
def test_a_response_of_any_form_is_read_and_never_asks_for_the_same_page(value, links):
    pages = arguments_of(page=NUMBER, cursor=TEXT, offset=NUMBER, limit=NUMBER)
    found = next_arguments(value, links, {"limit": 2}, pages)
    assert found is None or (found != {"limit": 2} and found.keys() <= pages.properties.keys())


@given(
    st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=4), st.sampled_from(["", "data", "data.items"])
)
def test_pages_as_one_value_have_all_rows_in_their_order(rows, path):
    def page(own: list[int]) -> Any:
        value: Any = own
        for name in reversed(path.split(".") if path else []):
            value = {name: value, "count": len(own)}
        return value

    joined = join_pages([page(own) for own in rows])
    for name in path.split(".") if path else []:
        joined = joined[name]
    assert joined == [row for own in rows for row in own]


def test_pages_without_rows_stay_apart():
    assert join_pages([{"a": 1}, {"a": 2}]) == [{"a": 1}, {"a": 2}]
    assert main_list({"a": 1}) is None


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ('{"detail":"No credit.","title":"t","type":"about:blank"}', "application/problem+json", "No credit."),
        ('{"message":"Not Found","documentation_url":"https://x"}', "application/json", "Not Found"),
        ('{"error":{"code":"E1","message":"Bad key"}}', "application/json", "Bad key (E1)"),
        ('{"error":"invalid_client","error_description":"Who?"}', "application/json", "Who?"),
        (
            '{"detail":[{"loc":["body","name"],"msg":"Field required","type":"missing"}]}',
            "application/json",
            "body.name: Field required (missing)",
        ),
        (
            '{"errors":[{"field":"a","message":"is bad"},{"field":"b","message":"is worse"}]}',
            "application/json",
            "a: is bad; b: is worse",
        ),
        ('{"errors":{"email":["is taken"]}}', "application/json", "email: is taken"),
        ('["x","y"]', "application/json", "x; y"),
        ('{"strange":1}', "application/json", '{"strange":1}'),
        ("{broken", "application/json", "{broken"),
        ("<!doctype html><title>502 Bad &amp; Gateway</title><p>x", "text/html", "502 Bad & Gateway"),
        ("<html><body><script>var a</script><p>Down for repairs</p></body></html>", "text/html", "Down for repairs"),
        ("plain", "text/plain", "plain"),
    ],
)
def test_of_an_error_the_messages_are_told(body, kind, expected):
    assert helpful_text(body, kind) == expected


@given(_JSON)
def test_an_error_of_any_form_is_told(value):
    assert isinstance(helpful_text(json.dumps(value), "application/json"), str)


async def test_pages_of_an_operations_file_are_named_and_followed(tmp_path):
    def answer(heard: Heard) -> bytes:
        page = int(heard.target.partition("page=")[2] or 1)
        links = [f'link: <{heard.target.partition("?")[0]}?key=k&page={page + 1}>; rel="next"'] if page < 3 else []
        return reply(200, f'[{{"name":"row{page}"}}]', "application/json", *links)

    async with listening(answer) as peer:
        schema = {"type": "object", "properties": {"page": {"type": "integer"}}}
        handler = {"kind": "http", "method": "GET", "path": "/things"}
        listing = {"inputSchema": schema, "annotations": {"readOnlyHint": True}, "handler": handler}
        given = {"http": {"base_url": f"{peer.url}?key=k"}, "operations": {"things": {"list": listing}}}
        file = tmp_path / "operations.json"
        file.write_text(json.dumps(given))
        server = DeltaServer("things", disclosure=Disclosure("meta", query=True))
        server.operations(file)
        async with connect(server, progressive=False) as client:
            one = await client.call_tool("query", {"operation": "things.list", "params": {}})
            every = await client.call_tool("query", {"operation": "things.list", "params": {}, "pages": 5})
    assert 'Next page: the same call with {"page":2}' in one.text
    assert [f"row{page}" in every.text for page in (1, 2, 3)] == [True] * 3
    assert "(3 pages, all there are.)" in every.text


_RESULTS = (
    st.text(max_size=20) | st.lists(st.integers(), max_size=3) | st.dictionaries(st.text(max_size=3), st.integers())
)
_NOTES = st.lists(st.sampled_from(["(one)", "(two lines\nof it)", "(é)"]), unique=True, max_size=2)


@given(_RESULTS, _NOTES, st.none() | st.just({"page": 2}))
async def test_a_gateway_reads_a_result_as_it_was_before_notes_were_added(value, notes, following):
    server = DeltaServer("notes")

    @server.tool(annotations={"readOnlyHint": True})
    async def read(page: int = 1) -> Any:
        return ServiceResult(value, following, tuple(notes))

    async with connect(server) as client:
        raw = await client.request("tools/call", {"name": "read", "arguments": {}})
    told = read_service_result(RawResult(json.dumps(raw).encode(), raw))
    plain = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if not notes and following is None:
        assert told is None and raw["content"][0]["text"] == plain
        return
    assert told is not None and (told.next_arguments, [*told.notes]) == (following, notes)
    assert "".join(block.text for block in told.value.content) == plain and not told.value.meta
