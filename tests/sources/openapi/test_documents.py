"""Whole documents: those that strangers published, all of which load, and what a document may be and may not."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]

from deltamcp import ApiSettings, ConfigurationError, DeltaServer, connect
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.document import OpenApiDocument, parse_document
from deltamcp.sources.openapi.location import DocumentCopies, load_document
from tests.sources.openapi.documents import PACKAGES, Package
from tests.support.http_peer import Heard, listening, reply

ALL = ApiSettings(include_deprecated=True, base_url="https://api.example")
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
# How many documents each package has, and of which versions.
EXPECTED = {
    "@readme/oas-examples": (119, {"2.0", "3.0", "3.1"}),
    "@scalar/galaxy": (2, {"3.1"}),
    "@directus/specs": (1, {"3.0"}),
    "jupyter-server": (1, {"2.0"}),
    "jupyterlab-server": (1, {"3.0"}),
    "apache-airflow-core": (1, {"3.1"}),
}


def load(path: Path) -> Api:
    return Api(asyncio.run(load_document(path, ALL, {})), ALL)


def written_operations(document: dict[str, Any]) -> int:
    """The operations that a document writes into its own paths, counted without the reader."""
    items = [item for item in document.get("paths", {}).values() if isinstance(item, dict)]
    return sum(1 for item in items for key in item if key in METHODS)


def check_whole(api: Api) -> None:
    """Checks that every operation is offered or reported, with a schema that a validator takes."""
    reported = [fault.place for fault in api.faults]
    assert len(api.operations) + len(reported) >= written_operations(api.document.content), reported
    assert all(place.startswith("#/") for place in reported) and api.left_out == 0
    for operation in api.operations:
        schema = operation.input_schema
        assert jsonschema_rs.meta.is_valid(schema), operation.name
        jsonschema_rs.validator_for(schema)  # its references and patterns, too
        assert operation.description


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_published_documents_load_whole(package: Package):
    if not package.files:
        pytest.skip("the document is not in .tools/openapi: make test puts it there")
    count, versions = EXPECTED[package.name]
    apis = [load(path) for path in package.files]
    assert len(apis) == count
    assert {".".join(api.document.version.text.split(".")[:2]) for api in apis} == versions
    for api in apis:
        assert not api.faults
        check_whole(api)


def test_yaml_is_read_as_the_same_document_in_json():
    files = {path for package in PACKAGES for path in package.files}
    pairs = [
        (path, twin)
        for path in files
        if path.suffix == ".json"
        for twin in (path.parent.parent / "yaml" / f"{path.stem}.yaml", path.with_suffix(".yaml"))
        if twin in files
    ]
    if not pairs:
        pytest.skip("the documents are not in .tools/openapi: make test puts them there")
    differing = [twin for path, twin in pairs if load_json(path) != load_json(twin)]
    assert len(pairs) == 60 and len(differing) == 5  # those were not written from each other
    assert all(load_json(twin) == yaml.safe_load(twin.read_bytes()) for twin in differing)


def load_json(path: Path) -> Any:
    return parse_document(path.read_bytes())


def test_githubs_document_loads_whole(shared: Path):
    api = load(shared / "corpus" / "openapi" / "github-ghes-3.6.json")
    assert len(api.operations) == 809 and not api.faults
    check_whole(api)
    assert max(len(operation.name) for operation in api.operations) <= 64


LATEST: dict[str, Any] = {
    "openapi": "3.2.0",
    "$self": "https://api.example/v2/openapi",
    "info": {"title": "Newest", "version": "1"},
    "servers": [{"url": "https://{region}.api.example", "name": "main", "variables": {"region": {"default": "eu"}}}],
    "tags": [{"name": "books", "kind": "nav", "parent": "media"}, {"name": "media"}],
    "paths": {
        "/books": {
            "query": {
                "tags": ["books"],
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"author": {"type": "string"}}}}
                    }
                },
            },
            "additionalOperations": {"COPY": {"operationId": "copyBook"}, "LINK": {"operationId": "linkBook"}},
        },
        "/log": {
            "post": {
                "operationId": "writeLog",
                "requestBody": {"$ref": "#/components/requestBodies/Lines"},
            }
        },
    },
    "components": {
        "requestBodies": {
            "Lines": {"content": {"application/jsonl": {"$ref": "#/components/mediaTypes/Lines"}}},
        },
        "mediaTypes": {"Lines": {"itemSchema": {"type": "object", "properties": {"at": {"type": "string"}}}}},
    },
}


async def test_what_only_openapi_3_2_has_is_offered_and_sent():
    async with listening() as peer:
        server = DeltaServer("newest")
        api = server.add_openapi(LATEST, ApiSettings(base_url=peer.url))
        assert not api.faults
        assert {one.method: one.name for one in api.operations} == {
            "QUERY": "query_books",
            "COPY": "copyBook",
            "LINK": "linkBook",
            "POST": "writeLog",
        }
        assert [one.is_read_only for one in server.engine.catalog.operations.values()] == [True, False, False, False]
        async with connect(server) as client:
            await client.call("query_books", author="Le Guin")
            await client.call("writeLog", body=[{"at": "x"}])
    assert [(one.method, one.target, one.body) for one in peer.heard] == [
        ("QUERY", "/books", b'{"author":"Le Guin"}'),
        ("POST", "/log", b'{"at":"x"}\n'),
    ]
    newest = Api(OpenApiDocument(LATEST))
    assert newest.base_url == "https://eu.api.example"


# What is wrong with a document or a part of it


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"{", "is no JSON"),
        (b"a: b: c", "is no YAML"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b"[]", "must be an object with openapi or swagger"),
        (b"{}", "must have openapi or swagger with its version"),
        (b'{"openapi": "4.0.0"}', "of version '4.0.0'; the versions that can be read are 2.0, 3.0, 3.1, 3.2"),
        (b'{"swagger": "1.2"}', "of version '1.2'"),
        (b'{"openapi": "3.0.0"}' + b" " * (65 << 20), "more than 64 MiB"),
        (b'{"openapi": "3.0.0", "paths": ' + b"[" * 100_000, "too many levels"),
    ],
)
def test_a_document_that_cannot_be_used_is_told_in_one_sentence(data, part):
    with pytest.raises(ConfigurationError) as told:
        Api(OpenApiDocument(parse_document(data)))
    assert part in str(told.value) and str(told.value).count("\n") == 0


def test_an_operation_that_cannot_be_offered_is_reported_with_its_place_and_the_others_serve():
    good = {"operationId": "good"}
    document = {
        "openapi": "3.0.4",
        "servers": [{"url": "https://api.example"}],
        "paths": {
            "/a": {"get": good, "post": 5, "put": {"parameters": [{"in": "query"}]}},
            "/b": {"$ref": "#/components/none"},
            "c": {"get": good},
            "/d": {"get": {"requestBody": {"$ref": "#/x"}}, "patch": {"parameters": [{"name": "x", "in": "moon"}]}},
            "/e": [],
        },
    }
    api = Api(OpenApiDocument(document))
    assert [operation.name for operation in api.operations] == ["good"]
    assert sorted(map(str, api.faults)) == [
        "#/paths/c: a path must begin with a slash.",
        "#/paths/~1a/post: an operation must be an object.",
        "#/paths/~1a/put: a parameter has no name or no place.",
        "#/paths/~1b: the reference '#/components/none' leads nowhere.",
        "#/paths/~1d/get: the reference '#/x' leads nowhere.",
        "#/paths/~1d/patch: the parameter x is in 'moon', which is no place of a request.",
        "#/paths/~1e: a path must be an object.",
    ]


def test_aliases_of_yaml_are_shared_and_not_copied():
    bomb = "openapi: 3.0.0\nx-a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"x-{chr(98 + level)}: &{chr(98 + level)} [{', '.join([f'*{chr(97 + level)}'] * 10)}]\n" for level in range(8)
    )
    with pytest.raises(ConfigurationError, match="too many values"):
        parse_document(bomb.encode())
    merged = "  /a: &item\n    get: {operationId: a}\n  /b:\n    <<: *item\n    put: {operationId: c}\n"
    text = f"openapi: 3.0.0\npaths:\n{merged}"
    assert parse_document(text.encode())["paths"]["/b"] == {"get": {"operationId": "a"}, "put": {"operationId": "c"}}


# Documents at an address


async def test_a_document_at_an_address_is_kept_and_asked_for_by_its_etag(tmp_path):
    document = json.dumps({"openapi": "3.0.4", "servers": [{"url": "/v1"}], "paths": {"/a": {"get": {}}}})
    is_away = False

    def answer(heard: Heard) -> bytes:
        if is_away:
            return reply(503)
        if heard.headers.get("if-none-match") == '"one"':
            return reply(304, kind="")
        return reply(200, document, "application/json", 'etag: "one"')

    copies = DocumentCopies(tmp_path)
    async with listening(answer) as peer:
        url = f"{peer.url}/api/openapi.json"
        apis = [Api(await load_document(url, ApiSettings(), {}, copies)) for _ in range(2)]
        is_away = True
        apis.append(Api(await load_document(url, ApiSettings(), {}, copies)))
        assert [api.base_url for api in apis] == [f"{peer.url}/v1"] * 3
        with pytest.raises(ConfigurationError, match="answered HTTP 503"):
            await load_document(f"{peer.url}/other.json", ApiSettings(), {}, copies)
    assert [one.headers.get("if-none-match") for one in peer.heard] == [None, '"one"', '"one"', None]


async def test_a_document_that_redirects_to_another_origin_is_not_followed():
    async with listening(reply(302, "", "", "location: http://127.0.0.1:1/openapi.json")) as peer:
        with pytest.raises(ConfigurationError, match=r"redirects to http://127\.0\.0\.1:1/openapi\.json, which is not"):
            await load_document(f"{peer.url}/openapi.json", ApiSettings(), {})


async def test_headers_of_the_api_are_sent_for_a_document_at_its_origin_only():
    async with listening(reply(200, '{"openapi":"3.0.4"}')) as peer:
        for base_url in (peer.url, "https://api.example"):
            settings = ApiSettings(headers={"X-Key": "${KEY}"}, base_url=base_url)
            await load_document(f"{peer.url}/a.json", settings, {"KEY": "secret"})
    assert [one.headers.get("x-key") for one in peer.heard] == ["secret", None]
