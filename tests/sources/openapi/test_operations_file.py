"""Operations files that are written from documents send what the document's own requests are, to the byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from deltamcp.catalog.operations_file import HttpHandler
from deltamcp.limits import Limits
from deltamcp.sources.http import RequestDraft, draft_request
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.operations_file import draft_operations_file
from deltamcp.sources.openapi.settings import ApiSettings
from deltamcp.sources.operations_loader import OperationsFile, read_document

SAMPLES = {"string": "a b/é", "integer": 3, "number": 2.5, "boolean": True, "null": None}


def parameter(name: str, place: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": schema, "required": place == "path", **more}


TEXT, LIST = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
EITHER = {"anyOf": [{"type": "integer"}, {"$ref": "#/components/schemas/Names"}]}
SENT = [
    parameter("q", "query", TEXT),
    parameter("each", "query", LIST),
    parameter("either", "query", EITHER),
    parameter("X-Trace", "header", LIST),
    parameter("seen", "cookie", {"type": "boolean"}),
]
NOT_SENT = [
    parameter("together", "query", LIST, explode=False),
    parameter("piped", "query", LIST, style="pipeDelimited"),
    parameter("deep", "query", {"type": "object"}, style="deepObject"),
    parameter("any", "query", {}),
    parameter("json", "query", {}, content={"application/json": {"schema": TEXT}}),
    parameter("raw", "query", TEXT, allowReserved=True),
    parameter("crumbs", "cookie", LIST),
]


def document(**operations: dict[str, Any]) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "2"},
        "servers": [{"url": "https://shop.example/v2"}],
        "security": [{"key": []}],
        "tags": [{"name": "orders", "description": "What was bought"}],
        "components": {
            "schemas": {"Names": LIST},
            "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        },
        "paths": {
            f"/{name}/{{id}}": {
                "parameters": [parameter("id", "path", LIST if name == "many" else TEXT)],
                one.pop("method", "get"): {"operationId": name, "responses": {}, **one},
            }
            for name, one in operations.items()
        },
    }


def body(kind: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"required": True, "content": {kind: {"schema": schema, **more}}}


FIELDS = {"type": "object", "properties": {"id": TEXT, "count": {"type": "integer"}}, "required": ["id"]}
WHOLE = document(
    read={"tags": ["orders"], "parameters": [*SENT, *NOT_SENT], "summary": "Reads"},
    many={"tags": ["orders"]},
    orders={"method": "delete"},
    change={"method": "patch", "requestBody": body("application/json", FIELDS)},
    replace={"method": "put", "requestBody": body("application/json", LIST)},
    fill={"method": "post", "requestBody": body("application/x-www-form-urlencoded", FIELDS)},
    nested={
        "method": "post",
        "requestBody": body("application/x-www-form-urlencoded", {"type": "object", "properties": {"a": {}}}),
    },
    merge={"method": "patch", "requestBody": body("application/merge-patch+json", FIELDS)},
    upload={"method": "post", "requestBody": body("multipart/form-data", FIELDS)},
    note={"method": "post", "requestBody": body("text/plain", TEXT)},
    trace={"method": "trace"},
)


def sample(schema: Any, root: dict[str, Any], depth: int = 0) -> Any:
    """A value that a schema may mean; what it is otherwise does not matter to a request."""
    if not isinstance(schema, dict) or depth > 8:
        return "x"
    if "$ref" in schema:
        return sample(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, depth + 1)
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return schema[key][0] if key == "enum" else sample(schema[key][-1], root, depth + 1)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        return [sample(schema.get("items"), root, depth + 1), "z&"]
    return {"k": [1]} if kind == "object" else SAMPLES[kind]


def comparable(draft: RequestDraft) -> Any:
    kind = draft.headers.get("content-type", "")
    headers = {name: text.replace(", ", ",") for name, text in draft.headers.items()}
    content = json.loads(draft.body) if draft.body and "json" in kind else draft.body
    return draft.method, draft.path, draft.query, headers, content


def assert_sends_the_same(api: Api, path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Checks that the file is right and each of its operations drafts the same request; returns how many it has."""
    drafted = draft_operations_file(api)
    path.write_text(json.dumps(drafted.content))
    monkeypatch.setenv("SHOP_KEY", "a-k3y-0f-the-shop")
    OperationsFile(path, None, {"SHOP_KEY": "a-k3y-0f-the-shop"}, Limits()).load()
    by_name = {one.name: one for one in api.operations}
    entries = read_document(path).operations
    for entry in entries:
        operation = by_name[entry.name]
        schema: dict[str, Any] = entry.input_schema
        arguments = {name: sample(one, schema) for name, one in schema["properties"].items()}
        assert isinstance(entry.handler, HttpHandler)
        own = draft_request(entry.handler, arguments, "application/json")
        assert comparable(own) == comparable(operation.draft(arguments, lambda path: b"")), entry.name
    assert drafted.count == len(entries)
    return len(entries)


def test_what_the_file_has_is_sent_as_the_document_says(tmp_path, monkeypatch):
    api = Api(OpenApiDocument(WHOLE), ApiSettings())
    assert assert_sends_the_same(api, tmp_path / "operations.json", monkeypatch) == 6


def test_what_the_file_cannot_express_is_listed_and_not_sent_otherwise():
    drafted = draft_operations_file(Api(OpenApiDocument(WHOLE), ApiSettings()))
    read = drafted.content["operations"]["orders"]["read"]
    assert {*read["inputSchema"]["properties"]} == {"id", "q", "each", "either", "X-Trace", "seen"}
    told = [str(loss) for loss in drafted.losses]
    faults = {
        "together in the query": "is a list that is not repeated",
        "piped in the query": "has the style pipeDelimited",
        "deep in the query": "has the style deepObject",
        "any in the query": "may be an object, or a list of such",
        "json in the query": "is written as application/json",
        "raw in the query": "keeps reserved characters",
        "crumbs in the cookie": "is a list in a cookie",
    }
    end = "which an operations file cannot send, so that argument is left out."
    expected = [f"GET /read/{{id}}: the argument {name} {fault}, {end}" for name, fault in faults.items()]
    assert [text for text in told if text.startswith("GET /read")] == expected
    left_out = {text.partition("/")[2].partition("/")[0] for text in told if "operation is left out" in text}
    assert left_out == {"merge", "upload", "note", "trace", "nested"}
    assert "Set SHOP_KEY to the key or token of the security scheme key." in told


def test_an_operation_and_a_category_of_one_name_are_both_there():
    drafted = draft_operations_file(Api(OpenApiDocument(WHOLE), ApiSettings()))
    orders: Any = drafted.content["operations"]["orders"]
    assert orders["_description"] == "What was bought"
    assert orders["orders"]["handler"]["method"] == "DELETE" and orders["read"]["handler"]["method"] == "GET"


def test_all_of_githubs_document_is_sent_as_the_document_says(shared, tmp_path, monkeypatch):
    content = json.loads((shared / "corpus" / "openapi" / "github-ghes-3.6.json").read_bytes())
    api = Api(OpenApiDocument(content), ApiSettings(include_deprecated=True))
    assert assert_sends_the_same(api, tmp_path / "operations.json", monkeypatch) > 790
