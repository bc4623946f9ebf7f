"""The reader of `operations.json`: the documents it returns and the faults it reports."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp.catalog.operations_file import (
    Document,
    HandlerByName,
    HttpHandler,
    McpHandler,
    OperationEntry,
    ParameterPlace,
    PythonHandler,
    ServiceEntry,
    UpstreamEntry,
)
from deltamcp.catalog.operations_file_reader import read_document
from tests.support.properties import examples
from website.operations_schema import PUBLISHED, operations_schema

SCHEMA = operations_schema()
POST = {"type": "object", "properties": {"space_id": {"type": "integer"}, "body": {"type": "string"}}}
NONE = {"type": "object"}


def document(value: Any) -> Document:
    found, problems = read_document(json.dumps(value).encode())
    assert problems == []
    assert found is not None
    return found


def leaf(node: dict[str, Any], **top: Any) -> OperationEntry:
    (only,) = document({"operations": {"posts": {"create": node}}, **top}).operations
    return only


# What is read

GOOD: dict[str, Any] = {
    "budget": {
        "operations": {"posts": {"list": {"inputSchema": NONE}}},
        "query": True,
        "results": {
            "max_tokens": 50,
            "page_size": 1,
            "preview_above": 0,
            "tables": False,
            "queries": True,
            "deltas": True,
            "keys": ["id"],
            "volatile": ["at"],
        },
    },
    "published": {
        "operations": {
            "posts": {
                "create": {"name": "circle_create_post", "description": "Create a new post", "inputSchema": POST},
                "list": {"description": "List posts", "inputSchema": NONE},
            },
            "batch": {"posts": {"delete": {"description": "Delete many", "parameters": {"ids": {"type": "array"}}}}},
        }
    },
    "companion": {
        "categories": {
            "posts": {
                "description": "What people wrote",
                "operations": {
                    "create": {
                        "description": "Create",
                        "parameters": {"space_id": {"type": "integer"}},
                        "required": ["space_id"],
                    },
                    "count": {"description": "How many there are"},
                },
                "categories": {"drafts": {"operations": {"list": {"description": "Drafts", "parameters": {}}}}},
            }
        }
    },
    "both, with comments": {
        "_comment": "ours",
        "$schema": "./operations.schema.json",
        "title": "Circle",
        "description": "A community",
        "version": "1",
        "operations": {"posts": {"_description": "Posts", "get": {"_todo": [1], "inputSchema": NONE}}},
        "categories": {"posts": {"operations": {"list": {"description": "List"}}}, "_off": 3},
    },
    "handlers": {
        "http": {
            "base_url": "https://example.com/api",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
            "timeout": 5,
            "services": {"other": {"base_url": "${OTHER}/v2"}},
        },
        "mcpServers": {
            "github": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${GITHUB}"}, "cwd": "/tmp"},
            "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "${KEY}"}},
        },
        "operations": {
            "posts": {
                "list": {
                    "inputSchema": {"type": "object", "properties": {"space_id": {}, "q": {}}},
                    "handler": {
                        "kind": "http",
                        "method": "GET",
                        "path": "/spaces/{space_id}/posts",
                        "param_map": {"space_id": "path", "q": {"in": "query", "name": "search"}},
                    },
                },
                "put": {
                    "parameters": {"raw": {}},
                    "handler": {
                        "kind": "http",
                        "method": "PUT",
                        "path": "/raw",
                        "service": "other",
                        "param_map": {"raw": {"in": "body", "name": ""}},
                    },
                },
            },
            "issues": {"list": {"handler": {"kind": "mcp", "server": "github", "tool": "list_issues"}}},
            "local": {"run": {"handler": {"kind": "python", "ref": "app.jobs:Job.run"}}},
        },
    },
    "every field": {
        "operations": {
            "ping": {
                "name": "ping_it",
                "title": "Ping",
                "summary": "Pings",
                "description": "Pings it",
                "inputSchema": NONE,
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True, "title": "P"},
                "tags": ["a"],
                "policy": "confirm",
                "pinned": True,
                "deprecated": "use pong",
                "examples": [{}],
                "scopes": ["read"],
                "fields": ["a.b"],
                "timeout": 1.5,
                "promise": "auto",
                "sync_seconds": 2,
                "on_redelivery": "rerun",
            }
        }
    },
    "kinds said outright": {
        "operations": {
            "tools": {"_kind": "category", "handler": {"inputSchema": NONE}},
            "noop": {"_kind": "operation", "description": "Nothing"},
        }
    },
    "nothing yet": {"operations": {}},
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_read_without_a_fault_satisfies_the_schema_of_the_file(name):
    document(GOOD[name])
    jsonschema.Draft202012Validator(SCHEMA).validate(GOOD[name])


def test_the_schema_of_the_file_is_a_schema_and_is_published():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema_rs.validator_for(SCHEMA)
    assert json.loads(PUBLISHED.read_text()) == SCHEMA, "write it anew: python -m website.operations_schema"


def test_keys_may_have_letters_of_any_script_and_names_may_not():
    node = {"description": "Suma", "inputSchema": NONE, "name": "sumar"}
    (entry,) = document({"operations": {"Nu\u0301meros": {"añadir": node}}}).operations
    assert (entry.category, entry.action, entry.name) == (("Números",), "añadir", "sumar")
    del node["name"]
    _, problems = read_document(json.dumps({"operations": {"Números": {"añadir": node}}}).encode())
    assert [problem.sentence for problem in problems] == [
        "Names of tools have no letters but a to z; give the operation a 'name'."
    ]


def test_both_forms_give_the_same_leaves():
    ours = {"description": "Create", "inputSchema": {**POST, "required": ["body"]}}
    theirs = {"description": "Create", "parameters": POST["properties"], "required": ["body"]}
    first = document({"operations": {"posts": {"_description": "Posts", "create": ours}}})
    second = document({"categories": {"posts": {"description": "Posts", "operations": {"create": theirs}}}})
    assert first == second
    assert first.categories == {"posts": "Posts"}


def test_both_forms_in_one_file_fill_the_same_category():
    found = document(GOOD["both, with comments"])
    assert [one.id for one in found.operations] == ["posts.get", "posts.list"]
    assert found.categories == {"posts": "Posts"}
    assert (found.title, found.description, found.version) == ("Circle", "A community", "1")


def test_categories_nest_and_ids_are_dotted():
    found = document(GOOD["published"])
    assert [(one.id, one.name) for one in found.operations] == [
        ("posts.create", "circle_create_post"),
        ("posts.list", "posts.list"),
        ("batch.posts.delete", "batch.posts.delete"),
    ]
    assert list(found.categories) == ["posts", "batch", "batch.posts"]
    assert found.operations[2].category == ("batch", "posts")


def test_an_operation_may_lie_outside_every_category():
    (only,) = document(GOOD["every field"]).operations
    assert only == OperationEntry(
        category=(),
        action="ping",
        name="ping_it",
        description="Pings it",
        input_schema=NONE,
        handler=HandlerByName("ping_it"),
        title="Ping",
        output_schema={"type": "object"},
        annotations={"readOnlyHint": True, "title": "P"},
        tags=["a"],
        policy="confirm",
        pinned=True,
        deprecated="use pong",
        examples=[{}],
        scopes=["read"],
        fields=["a.b"],
        summary="Pings",
        timeout=1.5,
        promise="auto",
        sync_seconds=2,
        on_redelivery="rerun",
    )


def test_a_kind_said_outright_decides():
    found = document(GOOD["kinds said outright"])
    assert [one.id for one in found.operations] == ["tools.handler", "noop"]


def test_handlers_services_and_servers_are_read_with_their_variables_untouched():
    found = document(GOOD["handlers"])
    assert [one.handler for one in found.operations] == [
        HttpHandler(
            "GET",
            "/spaces/{space_id}/posts",
            {"space_id": ParameterPlace("path", "space_id"), "q": ParameterPlace("query", "search")},
        ),
        HttpHandler("PUT", "/raw", {"raw": ParameterPlace("body", "*")}, "other"),
        McpHandler("github", "list_issues"),
        PythonHandler("app.jobs:Job.run"),
    ]
    assert found.services == {
        "": ServiceEntry(base_url="https://example.com/api", headers={"Authorization": "Bearer ${TOKEN}"}, timeout=5),
        "other": ServiceEntry(base_url="${OTHER}/v2"),
    }
    assert found.upstreams == {
        "github": UpstreamEntry(command="npx", args=["-y", "server"], env={"TOKEN": "${GITHUB}"}, cwd="/tmp"),
        "docs": UpstreamEntry(url="https://example.com/mcp", headers={"X-Key": "${KEY}"}),
    }


@pytest.mark.parametrize(
    ("method", "param_map", "parameter", "expected"),
    [
        ("GET", {}, "id", ParameterPlace("path", "id")),
        ("GET", {}, "q", ParameterPlace("query", "q")),
        ("DELETE", {}, "q", ParameterPlace("query", "q")),
        ("POST", {}, "id", ParameterPlace("path", "id")),
        ("POST", {}, "q", ParameterPlace("body", "q")),
        ("POST", {"q": ParameterPlace("query", "s")}, "q", ParameterPlace("query", "s")),
        ("POST", {"f": ParameterPlace("form", "f")}, "q", ParameterPlace("form", "q")),
    ],
)
def test_a_parameter_goes_where_the_map_says_or_where_it_usually_goes(method, param_map, parameter, expected):
    assert HttpHandler(method, "/things/{id}", param_map).place_of(parameter) == expected


def test_parameters_that_are_a_whole_schema_are_taken_as_one():
    assert leaf({"parameters": POST, "required": ["body"]}).input_schema == {**POST, "required": ["body"]}


def test_a_byte_order_mark_is_no_fault():
    assert read_document(b'\xef\xbb\xbf{"operations":{}}')[1] == []


# Schemas of the world


@pytest.mark.parametrize(
    ("schema", "dialect"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "draft-07"),
        ({"type": "object", "properties": {"pair": {"type": "array", "items": [{"type": "string"}]}}}, "draft-07"),
        ({"type": "object", "properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}}, "draft-04"),
        ({"$schema": "https://example.com/never/fetched", "type": "object"}, None),
        ({"type": "object", "properties": {"a": {"type": "string", "format": "int32", "nullable": True}}}, None),
        ({"type": ["object", "null"]}, None),
    ],
)
def test_a_schema_is_kept_under_a_draft_it_compiles_by(schema, dialect):
    kept = leaf({"inputSchema": schema}).input_schema
    jsonschema_rs.validator_for(kept)
    assert {**kept, "$schema": 0} == {**schema, "$schema": 0}
    assert (dialect in kept["$schema"]) if dialect else ("$schema" not in kept)


def test_a_schema_without_a_type_is_an_objects():
    assert leaf({"inputSchema": {"properties": {}}}).input_schema == {"type": "object", "properties": {}}


# Faults


def operation(**node: Any) -> dict[str, Any]:
    return {"operations": {"a": {"b": {"inputSchema": NONE, **node}}}}


def http(schema: Any = NONE, **handler: Any) -> dict[str, Any]:
    handler = {"kind": "http", "method": "GET", "path": "/x", **handler}
    node = {"inputSchema": schema, "handler": handler}
    return {"http": {"base_url": "https://example.com"}, "operations": {"a": {"b": node}}}


def nested(depth: int) -> dict[str, Any]:
    node: dict[str, Any] = {"leaf": {"inputSchema": NONE}}
    for _ in range(depth):
        node = {"c": node}
    return {"operations": node}


OP = "/operations/a/b"
HANDLER = f"{OP}/handler"

FAULTS: list[tuple[Any, str, str]] = [
    # the file
    ([], "", "one JSON object"),
    ({}, "", "neither 'operations' nor 'categories'"),
    ({"operations": {}, "catgories": {}}, "/catgories", "did you mean 'categories'?"),
    ({"operations": []}, "/operations", "'operations' must be an object"),
    ({"operations": {}, "version": 1}, "/version", "'version' must be text"),
    ({"operations": {}, "query": "yes"}, "/query", "'query' must be true or false"),
    ({"operations": {}, "results": 500}, "/results", "'results' must be an object"),
    ({"operations": {}, "results": {"max_tokens": 49}}, "/results/max_tokens", "a whole number from 50"),
    ({"operations": {}, "results": {"max_token": 50}}, "/results/max_token", "did you mean 'max_tokens'?"),
    ({"operations": {}, "results": {"volatile": ["a"] * 2000}}, "/results", "volatile"),
    # the tree
    ({"operations": {"a": 1}}, "/operations/a", "must be an object"),
    ({"operations": {"a": {"description": "x", "b": {"inputSchema": {}}}}}, "/operations/a", "_description"),
    ({"operations": {"a": {"b": {"description": "x"}}}}, OP, "needs 'inputSchema'"),
    ({"operations": {"a b": {}}}, "/operations/a b", "letters, digits"),
    ({"operations": {"a": {"b/~c": {"inputSchema": {}}}}}, "/operations/a/b~1~0c", "letters, digits"),
    ({"operations": {"x" * 65: {}}}, f"/operations/{'x' * 65}", "1 to 64"),
    ({"operations": {"index": {}}}, "/operations/index", "whole tree"),
    ({"categories": {"index": {}}}, "/categories/index", "whole tree"),
    ({"operations": {"a": {"_kind": "leaf"}}}, "/operations/a/_kind", "operation or category"),
    ({"operations": {"a": {"_description": 1}}}, "/operations/a/_description", "text"),
    ({"categories": {"a": 1}}, "/categories/a", "must be an object"),
    ({"categories": {"a": {"operations": {"b": 1}}}}, "/categories/a/operations/b", "must be an object"),
    ({"categories": {"a": {"operation": {}}}}, "/categories/a/operation", "did you mean 'operations'?"),
    (nested(9), "/operations" + "/c" * 9, "8 deep"),
    # names
    (
        {"operations": {"a": {"b": {"name": "n", "inputSchema": {}}, "c": {"name": "n", "inputSchema": {}}}}},
        "/operations/a/c/name",
        "'n' is already an id or a name of the operation at /operations/a/b",
    ),
    (
        {"operations": {"a": {"b": {"name": "a.c", "inputSchema": {}}, "c": {"inputSchema": {}}}}},
        "/operations/a/c",
        "already",
    ),
    (
        {"operations": {"a": {"b": {"inputSchema": {}}}}, "categories": {"a": {"operations": {"b": {}}}}},
        "/categories/a/operations/b",
        "already",
    ),
    (
        {"operations": {"a": {"inputSchema": {}}}, "categories": {"a": {"operations": {"b": {}}}}},
        "/operations/a",
        "an operation here and a category elsewhere",
    ),
    ({"operations": {"x" * 64: {"y" * 64: {"inputSchema": {}}}}}, f"/operations/{'x' * 64}/{'y' * 64}", "'name'"),
    (operation(name="two words"), f"{OP}/name", "letters, digits"),
    # fields
    (operation(desciption="x"), f"{OP}/desciption", "did you mean 'description'?"),
    (operation(zzz=1), f"{OP}/zzz", "there are name, title"),
    (operation(description=1), f"{OP}/description", "text"),
    (operation(annotations={"readOnlyHint": "yes"}), f"{OP}/annotations/readOnlyHint", "true or false"),
    (operation(tags="a"), f"{OP}/tags", "a list of texts"),
    (operation(policy="ask"), f"{OP}/policy", "allow, confirm, deny"),
    (operation(pinned=1), f"{OP}/pinned", "true or false"),
    (operation(deprecated=1), f"{OP}/deprecated", "instead"),
    (operation(examples={}), f"{OP}/examples", "a list"),
    (operation(timeout=0), f"{OP}/timeout", "above 0"),
    (operation(timeout=True), f"{OP}/timeout", "above 0"),
    # schemas
    (operation(inputSchema=True), f"{OP}/inputSchema", "an object"),
    (operation(parameters={}), f"{OP}/parameters", "not both"),
    (operation(required=["x"]), f"{OP}/required", "belongs to 'parameters'"),
    (operation(inputSchema={"properties": {"x": {"type": "text"}}}), f"{OP}/inputSchema/properties/x/type", "no type"),
    (operation(inputSchema={"properties": {"x": {"pattern": "("}}}), f"{OP}/inputSchema/properties/x/pattern", "regex"),
    (operation(inputSchema={"$ref": "#/$defs/none"}), f"{OP}/inputSchema", "does not exist"),
    (operation(inputSchema={"$ref": "https://example.com/a.json"}), f"{OP}/inputSchema", "nothing is fetched"),
    (operation(inputSchema={"$ref": "file:///etc/passwd"}), f"{OP}/inputSchema", "nothing is fetched"),
    (operation(outputSchema={"type": 3}), f"{OP}/outputSchema/type", "not JSON Schema"),
    ({"operations": {"a": {"b": {"parameters": {"x": "text"}}}}}, f"{OP}/parameters/x", "not JSON Schema"),
    (
        {"operations": {"a": {"b": {"parameters": {"page": {}}, "required": ["pages"]}}}},
        f"{OP}/required/0",
        "did you mean 'page'?",
    ),
    # handlers
    (operation(handler="app:f"), HANDLER, "an object"),
    (operation(handler={}), HANDLER, "python, http, mcp"),
    (operation(handler={"kind": "grpc"}), f"{HANDLER}/kind", "python, http, mcp"),
    (operation(handler={"kind": ["http"]}), f"{HANDLER}/kind", "python, http, mcp"),
    (operation(handler={"kind": "python"}), HANDLER, "needs the key 'ref'"),
    (operation(handler={"kind": "python", "ref": "app.f"}), f"{HANDLER}/ref", "package.module:function"),
    (operation(handler={"kind": "python", "ref": "a:b", "module": "c"}), f"{HANDLER}/module", "has no key"),
    (operation(handler={"kind": "mcp", "server": "gh", "tool": "t"}), f"{HANDLER}/server", "no server 'gh'"),
    (operation(handler={"kind": "http", "method": "GET", "path": "/x"}), HANDLER, "add 'base_url'"),
    (http(service="othr"), f"{HANDLER}/service", "no service 'othr'"),
    (http(method="get"), f"{HANDLER}/method", "one of GET"),
    (http(path="https://evil.example/x"), f"{HANDLER}/path", "begins with '/'"),
    (http(path="/a/{b"), f"{HANDLER}/path", "brace"),
    (http(path="/a/{b}"), f"{HANDLER}/path", "No parameter goes into {b}"),
    (
        http({"properties": {"b": {}}}, path="/a/{b}", param_map={"b": "query"}),
        f"{HANDLER}/path",
        "No parameter goes into {b}",
    ),
    (http({"properties": {"b": {}}}, param_map={"b": "path"}), f"{HANDLER}/param_map/b", "no {b}"),
    (http({"properties": {"b": {}}}, param_map={"b": "url"}), f"{HANDLER}/param_map/b", "one of path"),
    (http({"properties": {"b": {}}}, param_map={"b": {"in": "url"}}), f"{HANDLER}/param_map/b/in", "one of path"),
    (http({"properties": {"b": {}}}, param_map={"b": {"name": "c"}}), f"{HANDLER}/param_map/b", "needs the key 'in'"),
    (http({"properties": {"b": {}}}, param_map={"c": "query"}), f"{HANDLER}/param_map/c", "no parameter 'c'"),
    (
        http({"properties": {"b": {}}}, param_map={"b": {"in": "query", "name": ""}}),
        f"{HANDLER}/param_map/b",
        "without a name",
    ),
    (
        http({"properties": {"b": {}}}, param_map={"b": {"in": "header", "name": "Host"}}),
        f"{HANDLER}/param_map/b",
        "sets the header 'Host' itself",
    ),
    (
        http({"properties": {"b": {}}}, param_map={"b": {"in": "header", "name": "a b"}}),
        f"{HANDLER}/param_map/b",
        "cannot be the name of a header",
    ),
    (
        http({"properties": {"b": {}, "c": {}}}, method="POST", param_map={"b": {"in": "body", "name": "*"}}),
        f"{HANDLER}/param_map",
        "so c must go elsewhere",
    ),
    (
        http({"properties": {"b": {}, "c": {}}}, method="POST", param_map={"b": "body", "c": "form"}),
        f"{HANDLER}/param_map",
        "not both",
    ),
    # services and servers
    ({"operations": {}, "http": {}}, "/http", "needs the key 'base_url'"),
    ({"operations": {}, "http": {"base_url": "ftp://x"}}, "/http/base_url", "http:// or https://"),
    ({"operations": {}, "http": {"base_url": "https://x", "headers": {"a": 1}}}, "/http/headers", "one-line"),
    ({"operations": {}, "http": {"base_url": "https://x", "headers": {"a": "1\n2"}}}, "/http/headers", "one-line"),
    ({"operations": {}, "http": {"services": {"a": 1}}}, "/http/services/a", "must be an object"),
    ({"operations": {}, "http": {"services": {"a": {}}}}, "/http/services/a", "needs the key 'base_url'"),
    ({"operations": {}, "http": {"services": {}, "timeout": 1}}, "/http", "move them"),
    ({"operations": {}, "mcpServers": {"a": 1}}, "/mcpServers/a", "'command' or 'url'"),
    ({"operations": {}, "mcpServers": {"a": {}}}, "/mcpServers/a", "either 'command'"),
    (
        {"operations": {}, "mcpServers": {"a": {"command": "x", "url": "https://x"}}},
        "/mcpServers/a",
        "either 'command'",
    ),
    ({"operations": {}, "mcpServers": {"a": {"command": "x", "arg": []}}}, "/mcpServers/a/arg", "did you mean 'args'?"),
    ({"operations": {}, "mcpServers": {"a": {"url": "https://x", "type": "sse"}}}, "/mcpServers/a/type", "one of"),
]


@pytest.mark.parametrize(
    ("value", "pointer", "part"), FAULTS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_fault_is_told_where_it_is(value, pointer, part):
    found, problems = read_document(json.dumps(value).encode())
    assert found is None
    assert [problem.pointer for problem in problems] == [pointer]
    assert part in problems[0].sentence


@pytest.mark.parametrize(
    ("body", "pointer", "part"),
    [
        (b"", "", "line 1, column 1"),
        (b'{"operations": {\n  "a": nope}}', "", "line 2, column 8"),
        (b'{"operations": {},}', "", "line 1"),
        (b'{"operations": {"a\xff": 1}}', "", "byte 19"),
        (b'{"operations": NaN}', "", "no number NaN"),
        (b'{"version": ' + b"1" * 5000 + b"}", "", "1000 digits"),
        (b'{"_x": 1e999, "operations": {}}', "/_x", "double"),
        (b'{"_x": "\\ud800", "operations": {}}', "/_x", "surrogate"),
        (b'{"_x": {"\\ud800": 1}, "operations": {}}', "/_x", "surrogate"),
        (b"[" * 100_000, "", "128 levels"),
        (b"[" * 200 + b"]" * 200, "", "128 levels"),
        (b'{"operations": {"a": {}, "b": {}, "a": {}}}', "/operations/a", "twice"),
        (b'{"operations": {"a": {"b": {"inputSchema": {"a": 1, "a": 2}}}}}', "/operations/a/b/inputSchema/a", "twice"),
    ],
)
def test_text_that_is_not_sound_json_is_told_where(body, pointer, part):
    found, problems = read_document(body)
    assert found is None
    assert [problem.pointer for problem in problems] == [pointer]
    assert part in problems[0].sentence


def test_every_fault_is_told_not_only_the_first():
    _, problems = read_document(
        json.dumps(
            {
                "operations": {"a": {"b": {"inputSchema": {"type": "objct"}, "pinnd": True, "handler": {"kind": "x"}}}},
                "categories": {"index": {"operations": {"c": {"parameters": 1}}}},
                "mcpServers": {"s": {}},
            }
        ).encode()
    )
    assert {problem.pointer for problem in problems} == {
        "/operations/a/b/inputSchema/type",
        "/operations/a/b/pinnd",
        "/operations/a/b/handler/kind",
        "/categories/index",
        "/categories/index/operations/c/parameters",
        "/mcpServers/s",
    }


# Anything at all

VOCABULARY = (
    "operations categories a b _kind _description name description inputSchema parameters required handler kind http "
    "mcp python ref method path param_map service services base_url headers mcpServers command url args in type $ref "
    "properties timeout annotations readOnlyHint GET body /x/{a} object operation category policy"
)
WORDS = st.sampled_from(VOCABULARY.split())
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5),
    max_leaves=30,
)
PROBING = settings(max_examples=examples(400))


@PROBING
@given(st.binary(max_size=200))
def test_reading_never_raises_on_bytes(body):
    found, problems = read_document(body)
    assert (found is None) == bool(problems)


@PROBING
@given(JSON_VALUES, st.sampled_from(["", "operations", "categories", "http", "mcpServers", "leaf", "handler"]))
def test_reading_never_raises_on_json_and_points_into_the_document(value, place):
    root = value
    if place in ("operations", "categories", "http", "mcpServers"):
        root = {"operations": {}, place: value}
    elif place == "leaf":
        root = {"operations": {"a": {"b": value}}, "http": {"base_url": "https://x"}}
    elif place == "handler":
        root = {"operations": {"a": {"b": {"inputSchema": {}, "handler": value}}}, "http": {"base_url": "https://x"}}
    found, problems = read_document(json.dumps(root).encode())
    assert (found is None) == bool(problems)
    for problem in problems:
        assert problem.sentence[-1] in ".?"
        node = root
        for part in problem.pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            node = node[int(part)] if isinstance(node, list) else node[part]
    if not problems:
        jsonschema_rs.validator_for(SCHEMA).validate(root)
