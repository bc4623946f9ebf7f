"""Mutated OpenAPI documents, and what the reader does with each: it offers what can be offered and reports the rest."""

import copy
import json
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench.fuzz.mutation import mutate_bytes, mutate_message
from deltamcp import ApiSettings, ConfigurationError, DeltaServer, ToolError
from deltamcp.sources.openapi.api import Api
from deltamcp.sources.openapi.document import OpenApiDocument, parse_document

MAX_SECONDS = 10
MAX_MB = 64.0
"""What reading one document may take beyond the document."""

_NODE: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 9},
        "parent": {"$ref": "#/components/schemas/Node"},
        "kind": {"type": "string", "enum": ["leaf", "branch"], "default": "leaf"},
        "at": {"type": "string", "format": "date-time", "readOnly": True},
    },
}
_MODERN: dict[str, Any] = {
    "openapi": "3.0.4",
    "info": {"title": "Nodes", "version": "1", "description": "All that a document may have"},
    "servers": [{"url": "https://{region}.api.example/v1", "variables": {"region": {"default": "eu", "enum": ["eu"]}}}],
    "tags": [{"name": "nodes", "description": "Nodes of a tree"}],
    "security": [{"key": []}, {"robot": ["read"]}],
    "paths": {
        "/nodes": {
            "parameters": [{"$ref": "#/components/parameters/Trace"}],
            "get": {
                "operationId": "listNodes",
                "tags": ["nodes"],
                "parameters": [
                    {"name": "page", "in": "query", "schema": {"type": "integer", "default": 1}},
                    {
                        "name": "tag",
                        "in": "query",
                        "style": "pipeDelimited",
                        "explode": False,
                        "schema": {"type": "array"},
                    },
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "deep", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
                    {"name": "lang", "in": "cookie", "schema": {"type": "string"}},
                ],
                "responses": {
                    "200": {
                        "description": "Nodes",
                        "content": {
                            "application/json": {
                                "schema": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}
                            }
                        },
                    }
                },
            },
            "post": {
                "summary": "Adds a node",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Any"}},
                        "application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Node"}},
                    },
                },
            },
        },
        "/nodes/{id}/photo": {
            "put": {
                "operationId": "setPhoto",
                "deprecated": True,
                "servers": [{"url": "https://photos.example"}],
                "parameters": [{"name": "id", "in": "path", "required": True, "style": "matrix", "schema": {}}],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "allOf": [
                                    {"$ref": "#/components/schemas/Node"},
                                    {"properties": {"file": {"type": "string", "format": "binary"}}},
                                ]
                            },
                            "encoding": {"file": {"contentType": "image/png"}},
                        }
                    }
                },
            }
        },
    },
    "components": {
        "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": {"type": "string", "nullable": True}}},
        "schemas": {
            "Node": _NODE,
            "Any": {
                "oneOf": [{"$ref": "#/components/schemas/Node"}, {"$ref": "#/components/schemas/Other"}],
                "discriminator": {"propertyName": "kind", "mapping": {"leaf": "#/components/schemas/Node"}},
            },
            "Other": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Any"}},
        },
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "query", "name": "key"},
            "robot": {
                "type": "oauth2",
                "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {"read": "to read"}}},
            },
        },
    },
}
_OLD: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Nodes", "version": "1"},
    "host": "api.example",
    "basePath": "/v1",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "securityDefinitions": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    "paths": {
        "/nodes/{id}": {
            "post": {
                "operationId": "addNode",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "integer"},
                    {
                        "name": "tags",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "string"},
                        "collectionFormat": "ssv",
                    },
                    {"name": "node", "in": "body", "schema": {"$ref": "#/definitions/Node"}},
                ],
                "responses": {"200": {"description": "It", "schema": {"$ref": "#/definitions/Node"}}},
            },
            "put": {
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "string"},
                    {"name": "f", "in": "formData", "type": "file"},
                ],
            },
        }
    },
    "definitions": {
        "Node": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/definitions/Node"}}},
        }
    },
}
BASES: tuple[dict[str, Any], ...] = (_MODERN, {**_MODERN, "openapi": "3.1.1"}, {**_MODERN, "openapi": "3.2.0"}, _OLD)
_SAMPLES: tuple[Any, ...] = ("a", "", 1, -1.5, True, None, ["a", 1], {"a": {"b": [1]}}, "../..", "é\r\n;")


def make_document(seed: int, number: int) -> bytes:
    """A document, the same for the same numbers: with changed values, references that lead elsewhere, changed bytes."""
    chance = random.Random(f"{seed}/{number}")
    document = copy.deepcopy(chance.choice(BASES))
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        _move(document, chance)
    document = mutate_message(document, chance)
    text = json.dumps(document, indent=chance.choice((None, 1)))
    if chance.random() < 0.3:
        text = _as_yaml(document)
    data = text.encode(errors="surrogatepass")
    return mutate_bytes(data, chance) if chance.random() < 0.2 else data


def _move(document: dict[str, Any], chance: random.Random) -> None:
    """Puts a reference, or another part of the document, in the place of one of its parts."""
    places = [*_places(document, "#")]
    holder, key, _ = chance.choice(places)
    other, other_key, pointer = chance.choice(places)
    replacement: Any = {"$ref": pointer} if chance.random() < 0.6 else copy.deepcopy(other[other_key])
    holder[key] = replacement


def _places(value: Any, pointer: str) -> Iterator[tuple[Any, Any, str]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        here = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield value, key, here
        yield from _places(member, here)


def _as_yaml(document: Any) -> str:
    """YAML whose names are plain and whose values are JSON, which is YAML, too."""
    if not isinstance(document, dict):
        return json.dumps(document)
    return "".join(f"{json.dumps(key)}: {json.dumps(value)}\n" for key, value in document.items())


def read_document(data: bytes) -> int:
    """Reads a document as a server does, and drafts a request of each operation; returns how many there are.

    Raises:
        Exception: anything that is not told to the user in a sentence is a finding.
    """
    try:
        api = Api(OpenApiDocument(parse_document(data)), ApiSettings(include_deprecated=True))
        server = DeltaServer("fuzz")
        try:
            server.add_openapi(api)
        except ConfigurationError:
            api = Api(api.document, ApiSettings(include_deprecated=True, base_url="https://api.example"))
            server.add_openapi(api)
    except ConfigurationError as error:
        assert "\n" not in str(error), error
        return 0
    for operation in api.operations:
        names = [*operation.plan.parameters, *(operation.plan.body.fields if operation.plan.body else ())]
        names += [operation.plan.body.whole] if operation.plan.body and operation.plan.body.whole else []
        for sample in _SAMPLES:
            try:
                draft = operation.draft(dict.fromkeys(names, sample), _refuse_file)
                assert "\r" not in draft.path + draft.query + "".join(draft.headers.values())
            except ToolError:
                continue
        for value in _SAMPLES:
            operation.response_problem(200, "application/json", value)
        assert operation.pages is not None and operation.requirements is not None
    tools = server.engine.catalog.view().operations.values()
    assert all(tool.summary is not None for tool in tools)
    return len(api.operations)


def _refuse_file(path: str) -> bytes:
    raise ToolError("no files here")


class DocumentTally(NamedTuple):
    """What came of some documents."""

    read: int
    operations: int
    findings: list[str]
    slowest: float
    """In seconds."""
    grown_mb: float
    """How much larger the process was at most."""


def read_documents(seed: int, numbers: Iterable[int]) -> DocumentTally:
    """Reads mutated documents one after the other."""
    findings: list[str] = []
    operations = read = 0
    slowest = 0.0
    for base in BASES:
        read_document(json.dumps(base).encode())  # what is imported is not a document's
    before = _peak_mb()
    for number in numbers:
        data = make_document(seed, number)
        began = time.monotonic()
        signal.signal(signal.SIGALRM, _stop)
        signal.alarm(MAX_SECONDS)
        try:
            operations += read_document(data)
        except Exception:
            findings.append(f"document {number}: {traceback.format_exc(limit=-3)}")
        finally:
            signal.alarm(0)
        read += 1
        slowest = max(slowest, time.monotonic() - began)
    grown = _peak_mb() - before
    if grown > MAX_MB:
        findings.append(f"the process grew by {grown:.0f} MB")
    return DocumentTally(read, operations, findings, slowest, grown)


def _stop(number: int, frame: object) -> None:
    raise TimeoutError(f"a document took more than {MAX_SECONDS} s")


def _peak_mb() -> float:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1e6 if sys.platform == "darwin" else 1e3)
