"""What a result looks like: plain texts, tables and their legend, output schemas, hints, rate limits, failures."""

import json
import urllib.error
from http.client import HTTPMessage
from io import BytesIO
from typing import Any

import httpx2
import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from deltamcp import ConfigurationError, DeltaServer, Disclosure, ResultPolicy, Text, ToolError, ToolResult
from deltamcp.results.encode import decode, table_legend
from deltamcp.tokens import count
from tests.support.bytes_client import EXTENSION
from tests.support.equality import is_same
from tests.support.era_client import ERAS, era_client, first_text, result_meta, texts, token_cost
from tests.support.sample_values import LINES, USERS


@pytest.fixture(params=ERAS)
def era(request) -> str:
    return str(request.param)


class User(BaseModel):
    id: int
    username: str
    email: str
    score: int
    active: bool


class Listing(BaseModel):
    total: int
    items: list[User]


def serving(function: Any, **options: Any) -> DeltaServer:
    """A server of one tool, `get`; `results` and `disclosure` are the server's."""
    server = DeltaServer(
        "x", results=options.pop("results", None), disclosure=options.pop("disclosure", Disclosure("full"))
    )
    server.tool(name="get", **options)(function)
    return server


# Plain texts


@pytest.mark.parametrize("text", ["hello", '"quoted"', "a\nb", "", "#a,b\n1,2", "[1, 2]", "é\x00"])
async def test_a_plain_string_is_plain_text(text, era):
    def get() -> str:
        return str(text)

    async with era_client(serving(get, results=ResultPolicy(max_tokens=500)), era) as peer:
        result = await peer.result_of("get")
        assert [block["text"] for block in result["content"]] == [text]


async def test_without_a_budget_everything_is_whole(era):
    def get() -> Any:
        return USERS

    async with era_client(serving(get), era) as peer:
        result = await peer.result_of("get")
        assert json.loads(first_text(result)) == USERS and len(result["content"]) == 1
        assert list(await peer.tools()) == ["get"]


# Output schemas

ITEM = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    "rows": (Listing.model_json_schema(), {"total": 400, "items": USERS[:400]}),
    "required": (
        {"type": "object", "required": ["items", "total", "last"], "properties": {"items": {"type": "array"}}},
        {"items": USERS[:400], "total": 400, "last": "text"},
    ),
    "closed": (
        {"type": "object", "additionalProperties": False, "properties": {"items": {"type": "array", "items": ITEM}}},
        {"items": USERS[:400]},
    ),
    "few items needed": (
        {"type": "object", "properties": {"items": {"type": "array", "minItems": 3, "items": ITEM}}},
        {"items": USERS[:400]},
    ),
    "many items needed": (
        {"type": "object", "properties": {"items": {"type": "array", "minItems": 390, "items": ITEM}}},
        {"items": USERS[:400]},
    ),
    "a long text": (
        {"type": "object", "required": ["body"], "properties": {"body": {"type": "string"}}},
        {"body": LINES},
    ),
    "a text of a pattern": (
        {"type": "object", "required": ["body"], "properties": {"body": {"type": "string", "pattern": "^(ab)+$"}}},
        {"body": "ab" * 3000},
    ),
    "a text with a least length": (
        {"type": "object", "required": ["body"], "properties": {"body": {"type": "string", "minLength": 4000}}},
        {"body": "word " * 1000},
    ),
    "keys": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {f"key{number}": number for number in range(800)},
    ),
    "keys of a number": (
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 800},
        {f"key{number}": number for number in range(800)},
    ),
    "text and rows": (
        {
            "type": "object",
            "required": ["text", "items"],
            "additionalProperties": False,
            "properties": {"text": {"type": "string"}, "items": {"type": "array", "items": ITEM}},
        },
        {"text": LINES, "items": USERS[:400]},
    ),
    "nested rows": (
        {
            "type": "object",
            "required": ["page"],
            "properties": {"page": {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array"}}}},
        },
        {"page": {"rows": USERS[:400]}},
    ),
}


@pytest.mark.parametrize("budget", [50, 100, 200, 500, 2000])
@pytest.mark.parametrize("kind", SCHEMAS)
async def test_structured_content_validates_or_the_tool_says_why_not(kind, budget, era):
    schema, value = SCHEMAS[kind]
    server = serving(lambda: value, results=ResultPolicy(max_tokens=budget), output_schema=schema)
    async with era_client(server, era) as peer:
        result = await peer.use("get")
        assert token_cost(result) <= budget
        if result.get("isError"):
            assert "structuredContent" not in result
            assert "schema" in "\n".join(texts(result)), "the reason is missing"
        else:
            jsonschema.validate(result["structuredContent"], schema)
        handle = result_meta(result)["handle"]
        assert is_same(await peer.read(f"x://results/{handle}"), value)


@pytest.mark.parametrize("kind", ["rows", "required", "closed", "few items needed", "a long text"])
async def test_where_a_part_validates_it_is_given(kind, era):
    schema, value = SCHEMAS[kind]
    server = serving(lambda: value, results=ResultPolicy(max_tokens=500), output_schema=schema)
    async with era_client(server, era) as peer:
        result = await peer.result_of("get")
        jsonschema.validate(result["structuredContent"], schema)
        assert decode(first_text(result)) == result["structuredContent"]


async def test_a_model_of_pydantic_is_cut_between_rows(era):
    def get() -> Listing:
        return Listing(total=400, items=[User(**user) for user in USERS[:400]])

    async with era_client(serving(get, results=ResultPolicy(max_tokens=500)), era) as peer:
        result = await peer.result_of("get")
        shown = result_meta(result)["end"]
        assert result["structuredContent"] == {"total": 400, "items": USERS[:shown]} and shown > 1


# Tables and their legend


def returns_rows() -> list[dict[str, Any]]:
    """Rows of it."""
    return USERS[:50]


def returns_any() -> Any:
    return USERS[:50]


def returns_unsaid():
    return USERS[:50]


def returns_text() -> str:
    return LINES


def returns_number() -> int:
    return 1


def returns_listing() -> Listing:
    return Listing(total=50, items=[User(**user) for user in USERS[:50]])


def returns_long_listing() -> Listing:
    return Listing(total=1000, items=[User(**user) for user in USERS])


def returns_hand() -> ToolResult:
    return ToolResult([Text(json.dumps(USERS[:50]))])


@pytest.mark.parametrize(
    "function",
    [
        *(returns_rows, returns_any, returns_unsaid, returns_text, returns_number),
        *(returns_listing, returns_long_listing, returns_hand),
    ],
)
@pytest.mark.parametrize("tables", [None, False])
@pytest.mark.parametrize("budget", [100, 500, 2000])
async def test_whoever_is_shown_a_table_reads_what_its_forms_mean(function, tables, budget, era):
    server = serving(function, results=ResultPolicy(max_tokens=budget, tables=tables))
    async with era_client(server, era) as peer:
        result = await peer.use("get")
        is_table = result_meta(result).get("form") == "table"
        assert not is_table or tables is None
        legend = table_legend(first_text(result)) if is_table else ""
        assert legend in "".join(texts(result)[1:]) and ("Table: " in str(texts(result)[1:])) == bool(legend)


async def test_the_authors_words_stay():
    server = serving(returns_rows, results=ResultPolicy(max_tokens=500))
    server.tool(name="again")(returns_rows)
    async with era_client(server) as peer:
        tools = await peer.tools()
        assert tools["get"]["description"] == tools["again"]["description"] == "Rows of it."


async def test_a_tool_may_ban_tables_for_itself(era):
    server = DeltaServer("x", results=ResultPolicy(max_tokens=500))
    server.tool(name="plain", results=ResultPolicy(tables=False))(returns_rows)
    server.tool(name="table")(returns_rows)
    async with era_client(server, era) as peer:
        plain, table = await peer.result_of("plain"), await peer.result_of("table")
        assert json.loads(first_text(plain)) == USERS[: result_meta(plain)["end"]]
        assert is_same(decode(first_text(table)), USERS[: result_meta(table).get("end", 50)]) and first_text(
            table
        ).startswith("#")
        more = await peer.result_of("continue", handle=result_meta(plain)["handle"])
        assert json.loads(first_text(more))


async def test_behind_meta_tools_no_table_comes_where_the_author_bans_them(era):
    banned = serving(returns_rows, disclosure="meta", results=ResultPolicy(tables=False))
    async with era_client(banned, era) as peer:
        assert json.loads(first_text(await peer.result_of("execute", operation="get"))) == USERS[:50]


# Hints, and `continue` among the tools


@pytest.mark.parametrize("budget", [50, 500, 20_000, 1_000_000])
async def test_hosts_are_told_how_long_results_are(budget, era):
    async with era_client(serving(returns_text, results=ResultPolicy(max_tokens=budget)), era) as peer:
        tools = await peer.tools()
        for name in ("get", "continue"):
            size = tools[name]["_meta"]["anthropic/maxResultSizeChars"]
            assert 0 < size <= 500_000
        result = await peer.result_of("get")
        assert sum(map(len, texts(result))) <= tools["get"]["_meta"]["anthropic/maxResultSizeChars"]


async def test_a_text_of_few_tokens_is_not_longer_than_hosts_were_told():
    def get() -> str:
        return " " * 200_000

    async with era_client(serving(get, results=ResultPolicy(max_tokens=500))) as peer:
        size = (await peer.tools())["get"]["_meta"]["anthropic/maxResultSizeChars"]
        assert sum(map(len, texts(await peer.result_of("get")))) <= size


async def test_an_authors_own_meta_of_a_tool_stays(era):
    mine = {"mine": 1, "anthropic/alwaysLoad": True}
    async with era_client(serving(returns_text, results=ResultPolicy(max_tokens=500), meta=mine), era) as peer:
        about_it = (await peer.tools())["get"]["_meta"]
        assert {key: about_it[key] for key in mine} == mine and about_it["anthropic/maxResultSizeChars"] > 0


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["get"]),
        ({"results": ResultPolicy(max_tokens=500)}, ["get", "continue"]),
        ({"disclosure": "meta"}, ["discover", "get_schema", "execute", "continue"]),
        (
            {"disclosure": Disclosure("meta", prefix="p")},
            ["p_discover", "p_get_schema", "p_execute", "p_continue"],
        ),
    ],
)
async def test_continue_is_listed_where_there_is_a_budget(options, names, era):
    async with era_client(serving(returns_text, **options), era) as peer:
        assert list(await peer.tools()) == names


async def test_a_tools_own_budget_is_enough_for_continue_to_be_listed(era):
    server = DeltaServer("x")
    server.tool(name="plain")(returns_rows)
    async with era_client(server, era) as peer:
        assert list(await peer.tools()) == ["plain"]
        server.tool(name="cut", results=ResultPolicy(max_tokens=100))(returns_rows)
        tools = await peer.tools()
        assert set(tools) == {"plain", "cut", "continue"}
        assert tools["continue"]["annotations"]["readOnlyHint"] is True
        jsonschema.Draft202012Validator.check_schema(tools["continue"]["inputSchema"])
        assert json.loads(first_text(await peer.result_of("plain"))) == USERS[:50]
        server.remove_tool("cut")
        assert list(await peer.tools()) == ["plain"]


async def test_continue_describes_how_it_is_called():
    async with era_client(serving(returns_rows, results=ResultPolicy(max_tokens=100))) as peer:
        schema = (await peer.tools())["continue"]["inputSchema"]
        assert set(schema["properties"]) == {"handle", "offset", "path", "fields", "grep", "since"}
        assert schema["required"] == ["handle"]
        assert count(json.dumps((await peer.tools())["continue"])) <= 200


async def test_clients_of_progressive_disclosure_find_continue():
    """Those of revision 2025-11-25, who read a handle in the note; clients of Delta-MCP 0.2.0 do not."""
    async with era_client(serving(returns_rows, results=ResultPolicy(max_tokens=100))) as peer:
        await peer.raw.handshake("2025-11-25", experimental={EXTENSION: {}})
        listed = (await peer.raw.call("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["get", "continue"]
        assert all(set(tool) == {"name", "description"} and len(tool["description"]) <= 60 for tool in listed)
        described = (await peer.raw.call("tools/describe", name="continue"))["result"]
        assert described["name"] == "continue" and "handle" in described["inputSchema"]["properties"]


@pytest.mark.parametrize("options", [{"results": ResultPolicy(max_tokens=500)}, {"disclosure": "meta"}])
def test_an_authors_tool_cannot_be_called_continue_where_ours_is(options):
    server = DeltaServer("x", **options)
    with pytest.raises(ConfigurationError, match="continue"):
        server.tool(name="continue")(returns_text)


async def test_an_authors_tool_may_be_called_continue_elsewhere(era):
    def mine(step: int) -> str:
        return f"went on to {step}"

    plain = DeltaServer("x")
    plain.tool(name="continue")(mine)
    async with era_client(plain, era) as peer:
        assert first_text(await peer.result_of("continue", step=2)) == "went on to 2"
        with pytest.raises(ConfigurationError, match="continue"):
            plain.tool(name="cut", results=ResultPolicy(max_tokens=100))(returns_rows)
        assert list(await peer.tools()) == ["continue"]
    prefixed = DeltaServer("x", results=ResultPolicy(max_tokens=100), disclosure=Disclosure("full", prefix="p"))
    prefixed.tool(name="continue")(mine)
    prefixed.tool(name="cut")(returns_rows)
    async with era_client(prefixed, era) as peer:
        assert first_text(await peer.result_of("continue", step=2)) == "went on to 2"
        handle = result_meta(await peer.result_of("cut"))["handle"]
        await peer.result_of("p_continue", handle=handle)


@pytest.mark.parametrize(
    "options", [{"max_tokens": 49}, {"max_tokens": 0}, {"page_size": 0}, {"tail": 0.95}, {"tail": -0.1}]
)
def test_policies_that_cannot_be_meant_are_refused(options):
    with pytest.raises(ConfigurationError):
        ResultPolicy(**options)


# The pipeline


@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        (["id", "owner.name"], {"id": 1, "owner": {"name": "n", "age": 2}, "x": 3}, {"id": 1, "owner": {"name": "n"}}),
        (["id"], [{"id": 1, "x": 2}, {"id": 2}], [{"id": 1}, {"id": 2}]),
        ("id", [{"id": 1, "x": 2}], [{"id": 1}]),
        ("[?x].id", [{"id": 1, "x": True}, {"id": 2}], [1]),
        ("length(@)", [1, 2, 3], 3),
    ],
)
async def test_fields_are_projected_and_the_rest_is_kept(fields, value, expected, era):
    server = serving(lambda: value, results=ResultPolicy(max_tokens=500, fields=fields))
    async with era_client(server, era) as peer:
        result = await peer.result_of("get")
        assert decode(first_text(result)) == expected
        assert is_same(await peer.read(f"x://results/{result_meta(result)['handle']}"), value)


async def test_fields_reach_into_the_rows_of_an_envelope(era):
    value = {"total": 2, "items": [{"id": 1, "x": 2}, {"id": 2, "x": 3}]}
    server = serving(lambda: value, results=ResultPolicy(max_tokens=500, fields=["id"]))
    async with era_client(server, era) as peer:
        assert decode(first_text(await peer.result_of("get")))["items"] == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("rows", ["/page/records", "page.records"])
async def test_rows_are_where_the_policy_says(rows, era):
    value = {"items": [1, 2], "page": {"records": USERS[:200]}}
    server = serving(lambda: value, results=ResultPolicy(max_tokens=300, rows=rows))
    async with era_client(server, era) as peer:
        result = await peer.result_of("get")
        said = result_meta(result)
        assert said["unit"] == "rows" and said["total"] == 200
        shown = decode(first_text(result))
        assert shown == {"items": [1, 2], "page": {"records": USERS[: said["end"]]}}
        more = await peer.result_of("continue", handle=said["handle"])
        assert result_meta(more)["path"] == "/page/records" and result_meta(more)["start"] == said["end"]


@pytest.mark.parametrize("key", ["data", "items", "results", "only"])
async def test_rows_are_found_where_they_commonly_are(key, era):
    value = {"total": 200, key: USERS[:200]}
    async with era_client(serving(lambda: value, results=ResultPolicy(max_tokens=300)), era) as peer:
        said = result_meta(await peer.result_of("get"))
        assert said["unit"] == "rows" and said["total"] == 200


async def test_an_object_is_summarised_with_every_key(era):
    value = {f"key{number}": f"{number} word " * 60 for number in range(12)}
    async with era_client(serving(lambda: value, results=ResultPolicy(max_tokens=300)), era) as peer:
        result = await peer.result_of("get")
        shown = decode(first_text(result))
        assert list(shown) == list(value) and all(value[key].startswith(shown[key][:2]) for key in value)
        assert set(result_meta(result)["cuts"]) == {f"/{key}" for key in value}


# Rate limits, and failures


def http_error(status: int, **headers: str) -> httpx2.HTTPStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx2.Response(status, headers=named, request=httpx2.Request("GET", "https://example.com/?key=secret"))
    return httpx2.HTTPStatusError("no", request=response.request, response=response)


def url_error(retry: str) -> urllib.error.HTTPError:
    message = HTTPMessage()
    message["Retry-After"] = retry
    return urllib.error.HTTPError("https://example.com/?key=secret", 429, "No", message, BytesIO())


class Odd(Exception):
    status_code = 429
    retry_after = 11


LIMITS: dict[str, tuple[Any, int]] = {
    "httpx": (lambda: http_error(429, retry_after="7"), 7),
    "httpx without": (lambda: http_error(429), 30),
    "urllib": (lambda: url_error("9"), 9),
    "by status_code": (Odd, 11),
    "zero": (lambda: http_error(429, retry_after="0"), 0),
}


@pytest.mark.parametrize("disclosure", ["full", "meta"])
@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("results", [None, ResultPolicy(max_tokens=50)])
async def test_a_rate_limit_is_a_result(kind, disclosure, results, era):
    make, seconds = LIMITS[kind]

    def get() -> str:
        raise make()

    async with era_client(serving(get, results=results, disclosure=disclosure), era) as peer:
        asked: dict[str, Any] = {"operation": "get"} if disclosure == "meta" else {}
        result = await peer.use("execute" if asked else "get", **asked)
        limited = json.loads(first_text(result))
        assert limited["type"] == "rate_limited" and limited["retryAfterSeconds"] == seconds
        assert limited["upstream"] == "get"
        assert "secret" not in str(result) and not result.get("isError")


async def test_a_rate_limit_under_an_output_schema_does_not_break_it(era):
    def get() -> Listing:
        raise http_error(429, retry_after="7")

    async with era_client(serving(get), era) as peer:
        result = await peer.use("get")
        assert json.loads(first_text(result))["retryAfterSeconds"] == 7
        schema = (await peer.tools())["get"]["outputSchema"]
        if not result.get("isError"):
            jsonschema.validate(result["structuredContent"], schema)


@pytest.mark.parametrize("status", [400, 403, 500, 503])
async def test_other_answers_are_failures(status, era, caplog):
    def get() -> str:
        raise http_error(status, retry_after="7")

    async with era_client(serving(get), era) as peer:
        assert "rate_limited" not in await peer.refusal_of("get")


@pytest.mark.parametrize("budget", [50, 500])
@pytest.mark.parametrize(
    "fail",
    [
        lambda: (_ for _ in ()).throw(ToolError("boom " * 1000)),
        lambda: ToolResult([Text("boom " * 1000)], is_error=True),
        lambda: ToolResult([Text(json.dumps(USERS[:200])), Text("#a,b\n1,2")], is_error=True),
    ],
)
async def test_failures_are_never_shaped(fail, budget, era):
    def get() -> Any:
        made = fail()
        return made if isinstance(made, ToolResult) else next(made)

    async with era_client(serving(get), era) as peer:
        plain = await peer.use("get")
    async with era_client(serving(get, results=ResultPolicy(max_tokens=budget)), era) as peer:
        shaped = await peer.use("get")
        assert shaped["isError"] is True and shaped["content"] == plain["content"]
        assert "handle" not in result_meta(shaped)
