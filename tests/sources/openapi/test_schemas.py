"""Schemas of documents as arguments have them, judged by validators of JSON Schema and of OpenAPI 3.0."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator

from deltamcp import ApiSettings, DeltaServer, connect
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.document import OpenApiDocument
from deltamcp.sources.openapi.schema import Schemas

TEXT = {"type": "string"}


def api_of(schema: Any, schemas: dict[str, Any] | None = None, version: str = "3.0.4") -> Api:
    return Api(
        OpenApiDocument(
            {
                "openapi": version,
                "info": {"title": "Schemas", "version": "1"},
                "servers": [{"url": "https://api.example"}],
                "paths": {
                    "/send": {
                        "post": {
                            "operationId": "send",
                            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
                        }
                    }
                },
                "components": {"schemas": schemas or {}},
            }
        )
    )


def body_schema(schema: Any, schemas: dict[str, Any] | None = None, version: str = "3.0.4") -> dict[str, Any]:
    """The schema of all arguments of an operation that takes a body."""
    api = api_of(schema, schemas, version)
    assert not api.faults
    made = api.operations[0].input_schema
    Draft202012Validator.check_schema(made)
    return made


def is_valid(made: dict[str, Any], arguments: Any) -> bool:
    return bool(Draft202012Validator(made).is_valid(arguments))


@pytest.mark.parametrize(
    ("version", "schema"),
    [
        ("3.0.4", {"type": "string", "nullable": True, "enum": ["a"]}),
        ("3.1.1", {"type": ["string", "null"], "enum": ["a", None]}),
        ("3.0.4", {"allOf": [{"type": "string", "enum": ["a"]}], "nullable": True}),
        ("3.1.1", {"anyOf": [{"const": "a"}, {"type": "null"}]}),
    ],
)
def test_null_is_admitted_in_every_form_that_says_so(version, schema):
    made = body_schema({"type": "object", "properties": {"x": schema}}, version=version)
    assert [is_valid(made, {"x": value}) for value in ("a", None, "b", 1)] == [True, True, False, False]


def test_a_reference_that_may_be_null():
    made = body_schema(
        {"type": "object", "properties": {"x": {"$ref": "#/components/schemas/X", "nullable": True}}}, {"X": TEXT}
    )
    assert [is_valid(made, {"x": value}) for value in ("a", None, 1)] == [True, True, False]


def test_what_is_only_read_is_no_argument_and_not_required():
    made = body_schema(
        {
            "type": "object",
            "required": ["id", "name"],
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "name": TEXT,
                "inner": {"$ref": "#/components/schemas/Inner"},
                "stamp": {"$ref": "#/components/schemas/Stamp"},
            },
        },
        {
            "Inner": {
                "type": "object",
                "required": ["at"],
                "properties": {"at": {**TEXT, "readOnly": True}, "by": TEXT},
            },
            "Stamp": {"type": "string", "readOnly": True},
        },
    )
    assert list(made["properties"]) == ["name", "inner"] and made["required"] == ["name"]
    assert is_valid(made, {"name": "a", "inner": {"by": "b"}})
    assert "at" not in json.dumps(made)


def test_the_parts_of_allof_become_arguments_and_their_required_ones_are_required():
    made = body_schema(
        {
            "allOf": [{"$ref": "#/components/schemas/Base"}, {"type": "object", "properties": {"b": TEXT}}],
            "required": ["b"],
        },
        {"Base": {"type": "object", "required": ["a"], "properties": {"a": TEXT}}},
    )
    assert sorted(made["properties"]) == ["a", "b"] and sorted(made["required"]) == ["a", "b"]


CAT_OR_DOG = {
    "Pet": {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"meow": "#/components/schemas/Cat", "woof": "Dog"}},
    },
    "Cat": {"type": "object", "required": ["kind"], "properties": {"kind": TEXT, "lives": {"type": "integer"}}},
    "Dog": {"type": "object", "required": ["kind"], "properties": {"kind": TEXT, "tricks": {"type": "integer"}}},
}


def test_a_discriminator_says_which_branch_is_meant():
    made = body_schema({"$ref": "#/components/schemas/Pet"}, CAT_OR_DOG)
    values = [{"kind": "meow", "lives": 9}, {"kind": "woof"}, {"kind": "Cat"}, {"lives": 9}]
    assert [is_valid(made, {"body": value}) for value in values] == [True, True, False, False]


def test_defaults_are_shown_and_short_examples_kept():
    made = body_schema({"type": "object", "properties": {"n": {"type": "integer", "default": 5, "example": 7}}})
    assert made["properties"]["n"] == {"type": "integer", "default": 5, "examples": [7]}


def test_a_schema_that_contains_itself_admits_values_of_any_depth():
    node = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}},
    }
    made = body_schema(
        {"type": "object", "properties": {"root": {"$ref": "#/components/schemas/Node"}}}, {"Node": node}
    )
    value: dict[str, Any] = {"name": "leaf"}
    for _ in range(50):
        value = {"name": "branch", "children": [value]}
    assert is_valid(made, {"root": value})
    assert not is_valid(made, {"root": {"name": "a", "children": [{"name": 1}]}})


@pytest.mark.parametrize(
    ("schemas", "problem"),
    [
        ({"A": {"$ref": "#/components/schemas/B"}, "B": {"$ref": "#/components/schemas/A"}}, "leads in a circle"),
        ({"A": {"$ref": "#/components/schemas/A"}}, "leads in a circle"),
        ({}, "leads nowhere"),
        ({"A": {"$ref": "https://example.com/a.json"}}, "leads to a document that is not read"),
        ({"A": {"$ref": "file:///etc/passwd"}}, "leads to a document that is not read"),
        ({"A": {"$ref": "../../etc/passwd#/x"}}, "leads to a document that is not read"),
    ],
)
def test_a_reference_that_cannot_be_followed_is_a_fault_of_its_operation(schemas, problem):
    api = api_of({"$ref": "#/components/schemas/A"}, schemas)
    (fault,) = api.faults
    assert fault.place == "#/paths/~1send/post" and problem in fault.problem and not api.operations


def test_references_lead_into_files_of_the_documents_folder_and_nowhere_else(tmp_path):
    folder = tmp_path / "api"
    (folder / "parts").mkdir(parents=True)
    (tmp_path / "secret.json").write_text(json.dumps({"S": {"type": "object", "properties": {"key": TEXT}}}))
    (folder / "parts" / "pet.yaml").write_text(
        "Pet:\n  type: object\n  required: [name]\n  properties:\n    name: {$ref: 'name.json#/Name'}\n"
    )
    (folder / "parts" / "name.json").write_text(json.dumps({"Name": {"type": "string", "maxLength": 5}}))
    main = {
        "openapi": "3.1.1",
        "info": {"title": "Parts", "version": "1"},
        "servers": [{"url": "https://api.example"}],
        "paths": {
            "/good": {"post": {"operationId": "good", "requestBody": body("parts/pet.yaml#/Pet")}},
            "/bad": {"post": {"operationId": "bad", "requestBody": body("../secret.json#/S")}},
        },
    }
    (folder / "main.json").write_text(json.dumps(main))
    api = DeltaServer("parts").add_openapi(folder / "main.json")
    (operation,) = api.operations
    assert operation.name == "good" and api.faults[0].place == "#/paths/~1bad/post"
    made = operation.input_schema
    assert is_valid(made, {"name": "Rex"}) and not is_valid(made, {"name": "Rexington"}) and not is_valid(made, {})
    named = ApiSettings(references=(str(tmp_path / "secret.json"),))
    assert len(DeltaServer("parts").add_openapi(folder / "main.json", named).operations) == 2


def body(reference: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": reference}}}}


async def test_the_model_reads_required_nested_fields_in_the_signature():
    address = {"type": "object", "required": ["street"], "properties": {"street": TEXT, "zip": TEXT}}
    server = DeltaServer("people", disclosure="meta")
    server.add_openapi(api_of({"type": "object", "required": ["home"], "properties": {"home": address}}))
    async with connect(server) as client:
        described = str(await client.call("get_schema", operation=["send"]))
    assert "home:{street" in described.replace(" ", "")


# A law: what a schema of OpenAPI 3.0 admits, and nothing else, is what its conversion admits.

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "abcd"]) | st.floats(-3, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def _schemas(depth: int) -> st.SearchStrategy[dict[str, Any]]:
    simple = st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
        optional={
            "nullable": st.booleans(),
            "minimum": st.integers(-2, 2),
            "exclusiveMinimum": st.booleans(),
            "maximum": st.integers(-2, 2),
            "exclusiveMaximum": st.booleans(),
            "maxLength": st.integers(0, 3),
        },
    )
    if depth == 0:
        return simple
    inner = _schemas(depth - 1)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        simple,
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"nullable": st.booleans()}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)},
            optional={
                "required": st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True),
                "additionalProperties": st.booleans() | inner,
                "nullable": st.booleans(),
            },
        ),
        st.fixed_dictionaries({"anyOf": some}),
        st.fixed_dictionaries({"oneOf": some}),
        st.fixed_dictionaries({"allOf": some}),
        st.fixed_dictionaries({"not": inner}),
    )


@given(_schemas(2), st.lists(_VALUES, min_size=1, max_size=5), st.booleans())
def test_a_schema_of_openapi_3_0_admits_what_its_conversion_admits(schema, values, is_request):
    document = OpenApiDocument({"openapi": "3.0.4", "paths": {}})
    converted = Schemas(document, is_request).convert(schema, "").schema
    judge = (OAS30WriteValidator if is_request else OAS30ReadValidator)(schema)
    ours = Draft202012Validator(converted)
    for value in values:
        assert ours.is_valid(value) == judge.is_valid(value), (value, converted)
