"""Parameters in every style, to the byte: what a server on a socket receives, and what others read in it."""

from http.cookies import SimpleCookie
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from openapi_core.deserializing.styles import util as openapi_core
from starlette.datastructures import QueryParams

from deltamcp import ApiSettings, DeltaServer, connect
from tests.support.http_peer import Heard, listening

VALUES: dict[str, Any] = {
    "empty": "",
    "string": "blue",
    "array": ["blue", "black", "brown"],
    "object": {"R": 100, "G": 200, "B": 150},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "empty": {"type": "string"},
    "string": {"type": "string"},
    "array": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object", "additionalProperties": {"type": "integer"}},
}

# OpenAPI 3.1.1, 4.8.12.3 (Style Examples), and for `cookie` 3.2.0, 4.12.4; None is not applicable.
TABLE: dict[tuple[str, bool], tuple[str | None, str | None, str | None, str | None]] = {
    ("matrix", False): (";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
    ("matrix", True): (";color", ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200;B=150"),
    ("label", False): (".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
    ("label", True): (".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
    ("simple", False): ("", "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("simple", True): ("", "blue", "blue,black,brown", "R=100,G=200,B=150"),
    ("form", False): ("color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("form", True): ("color=", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"),
    ("spaceDelimited", False): (None, None, "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"),
    ("pipeDelimited", False): (None, None, "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"),
    ("deepObject", True): (None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
    ("cookie", False): ("color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    ("cookie", True): ("color=", "color=blue", "color=blue; color=black; color=brown", "R=100; G=200; B=150"),
}
PLACES = {
    "path": ("matrix", "label", "simple"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}


class Case(NamedTuple):
    place: str
    style: str
    explode: bool
    kind: str
    expected: str

    @property
    def name(self) -> str:
        return f"{self.place}_{self.style}_{self.explode}_{self.kind}"


def cases() -> list[Case]:
    found = []
    for place, styles in PLACES.items():
        for (style, explode), row in TABLE.items():
            for kind, expected in zip(VALUES, row, strict=True):
                # A step of a path that is empty or `.` leads elsewhere; `form` cannot join exploded cookies.
                is_empty_path = place == "path" and expected in ("", ".")
                joined = place == "cookie" and style == "form" and explode and kind in ("array", "object")
                if style in styles and expected is not None and not is_empty_path and not joined:
                    found.append(Case(place, style, explode, kind, expected))
    return found


def parameter(case: Case) -> dict[str, Any]:
    return {
        "name": "color",
        "in": case.place,
        "required": case.place == "path",
        "style": case.style,
        "explode": case.explode,
        "schema": SCHEMAS[case.kind],
    }


def document(rows: list[Case]) -> dict[str, Any]:
    return {
        "openapi": "3.2.0",
        "info": {"title": "Colours", "version": "1"},
        "paths": {
            f"/{one.name}/{'{color}' if one.place == 'path' else ''}": {
                "get": {"operationId": one.name, "parameters": [parameter(one)]}
            }
            for one in rows
        },
    }


def piece(heard: Heard, case: Case) -> str:
    """The part of a request that has the parameter, as it was sent."""
    match case.place:
        case "path":
            return heard.target.split("/")[-1]
        case "query":
            return heard.target.partition("?")[2]
        case _:
            return heard.headers["color" if case.place == "header" else "cookie"]


def decoded(text: str, case: Case) -> Any:
    """What a decoder of others reads in the part of a request, as texts."""
    kind = "string" if case.kind == "empty" else case.kind
    match case.style, case.explode:
        case ("matrix" | "label" as style, _):
            loads = openapi_core.matrix_loads if style == "matrix" else openapi_core.label_loads
            mark = (";" if style == "matrix" else ".") + "color" + ("*" if case.explode else "")
            return loads(case.explode, "color", kind, {mark: text})
        case ("simple", _):
            return openapi_core.simple_loads(case.explode, "color", kind, {"color": text})
        case ("spaceDelimited", _):
            return openapi_core.space_delimited_loads(False, "color", kind, {"color": text.partition("=")[2]})
        case ("pipeDelimited", _):
            return openapi_core.pipe_delimited_loads(False, "color", kind, dict(QueryParams(text)))
        case ("deepObject", _):
            return openapi_core.deep_object_loads(True, "color", kind, dict(QueryParams(text)))
        case ("cookie", True) if case.kind == "array":
            return [pair.partition("=")[2] for pair in text.split("; ")]  # no jar keeps two of a name
        case ("cookie", True) if case.kind == "object":
            return {name: morsel.value for name, morsel in SimpleCookie(text).items()}
        case (_, True) if case.kind == "object":
            return dict(QueryParams(text))
        case (_, True) if case.kind == "array":
            return QueryParams(text).getlist("color")
        case _:
            return openapi_core.form_loads(case.explode, "color", kind, {"color": unquote(text.partition("=")[2])})


async def test_every_style_is_sent_as_the_specification_tabulates_it_and_read_back_by_others():
    rows = cases()
    assert len(rows) == 55
    async with listening() as peer:
        server = DeltaServer("colours")
        api = server.add_openapi(document(rows), ApiSettings(base_url=peer.url))
        assert not api.faults
        async with connect(server) as client:
            for case in rows:
                await client.call(case.name, color=VALUES[case.kind])
                sent = piece(peer.heard[-1], case)
                assert sent == case.expected, case
                texts = VALUES[case.kind]
                if isinstance(texts, dict):
                    texts = {name: str(value) for name, value in texts.items()}
                if not (case.kind == "empty" and case.style in ("matrix",)):
                    assert decoded(sent, case) == texts, case


@pytest.mark.parametrize(("style", "value"), [("simple", ""), ("label", ""), ("simple", ".."), ("label", ".")])
async def test_a_path_parameter_that_leads_elsewhere_is_refused(style, value):
    row = Case("path", style, False, "string", "")
    async with listening() as peer:
        server = DeltaServer("colours")
        server.add_openapi(document([row]), ApiSettings(base_url=peer.url))
        async with connect(server) as client:
            reply = await client.call_tool(row.name, {"color": value})
    assert reply.is_error and not peer.heard


# Swagger 2.0, Parameter Object, `collectionFormat`.
COLLECTIONS = {
    ("path", "csv"): "blue,a%2Cb",
    ("path", "ssv"): "blue%20a%2Cb",
    ("path", "tsv"): "blue%09a%2Cb",
    ("path", "pipes"): "blue%7Ca%2Cb",
    ("query", None): "color=blue,a%2Cb",
    ("query", "csv"): "color=blue,a%2Cb",
    ("query", "ssv"): "color=blue%20a%2Cb",
    ("query", "tsv"): "color=blue%09a%2Cb",
    ("query", "pipes"): "color=blue%7Ca%2Cb",
    ("query", "multi"): "color=blue&color=a%2Cb",
    ("header", "csv"): "blue,a,b",
    ("header", "ssv"): "blue a,b",
    ("header", "tsv"): "blue\ta,b",
    ("header", "pipes"): "blue|a,b",
    ("formData", "csv"): "color=blue,a%2Cb",
    ("formData", "ssv"): "color=blue%20a%2Cb",
    ("formData", "tsv"): "color=blue%09a%2Cb",
    ("formData", "pipes"): "color=blue%7Ca%2Cb",
    ("formData", "multi"): "color=blue&color=a%2Cb",
}


@pytest.mark.parametrize(("place", "collection"), COLLECTIONS)
async def test_collections_of_swagger_are_sent_as_it_says(place, collection):
    one = {"name": "color", "in": place, "type": "array", "items": {"type": "string"}, "required": True}
    if collection is not None:
        one["collectionFormat"] = collection
    path = "/c/{color}" if place == "path" else "/c"
    swagger = {
        "swagger": "2.0",
        "info": {"title": "Colours", "version": "1"},
        "host": "example.com",
        "paths": {path: {"post": {"operationId": "paint", "parameters": [one]}}},
    }
    async with listening() as peer:
        server = DeltaServer("colours")
        server.add_openapi(swagger, ApiSettings(base_url=peer.url))
        async with connect(server) as client:
            await client.call("paint", color=["blue", "a,b"])
    (heard,) = peer.heard
    sent = {
        "path": heard.target.split("/")[-1],
        "query": heard.target.partition("?")[2],
        "header": heard.headers.get("color"),
        "formData": heard.body.decode(),
    }
    assert sent[place] == COLLECTIONS[place, collection]


RESERVED = ":/?#[]@!$&'()*+,;="


@pytest.mark.parametrize(
    ("place", "allow", "expected"),
    [
        ("query", False, "color=%3A%2F%3F%23%5B%5D%40%21%24%26%27%28%29%2A%2B%2C%3B%3D"),
        # What is sent as it is must not end the query or change what servers read: `#`, `&`, `=` and `+`.
        ("query", True, "color=:/?%23[]@!$%26'()*%2B,;%3D"),
        ("path", False, "%3A%2F%3F%23%5B%5D%40%21%24%26%27%28%29%2A%2B%2C%3B%3D"),
    ],
)
async def test_reserved_characters_are_encoded_unless_the_document_allows_them(place, allow, expected):
    row = Case(place, "form" if place == "query" else "simple", False, "string", "")
    given = document([row])
    ((_, item),) = given["paths"].items()
    item["get"]["parameters"][0]["allowReserved"] = allow
    async with listening() as peer:
        server = DeltaServer("colours")
        server.add_openapi(given, ApiSettings(base_url=peer.url))
        async with connect(server) as client:
            await client.call(row.name, color=RESERVED)
    assert piece(peer.heard[0], row) == expected
    if place == "query":
        assert QueryParams(expected)["color"] == RESERVED


async def test_a_parameter_with_content_is_sent_as_its_media_type_says():
    content = {"application/json": {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}
    places = ("query", "header", "cookie", "path")
    given = {
        "openapi": "3.1.1",
        "info": {"title": "Filters", "version": "1"},
        "paths": {
            "/find/{in_path}": {
                "get": {
                    "operationId": "find",
                    "parameters": [
                        {"name": f"in_{one}", "in": one, "required": one == "path", "content": content}
                        for one in places
                    ],
                }
            },
            "/whole": {
                "get": {
                    "operationId": "whole",
                    "parameters": [
                        {
                            "name": "all",
                            "in": "querystring",
                            "content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}},
                        }
                    ],
                }
            },
        },
    }
    async with listening() as peer:
        server = DeltaServer("filters")
        api = server.add_openapi(given, ApiSettings(base_url=peer.url))
        assert not api.faults
        async with connect(server) as client:
            await client.call("find", **{f"in_{one}": {"a": 1} for one in places})
            await client.call("whole", all={"x": ["1", "2"], "y": "a b"})
    found, whole = peer.heard
    assert found.target == "/find/%7B%22a%22%3A1%7D?in_query=%7B%22a%22%3A1%7D"
    assert found.headers["in_header"] == '{"a":1}'
    assert found.headers["cookie"] == "in_cookie=%7B%22a%22%3A1%7D"
    assert QueryParams(whole.target.partition("?")[2]).multi_items() == [("x", "1"), ("x", "2"), ("y", "a b")]


async def test_arguments_of_one_name_in_several_places_are_kept_apart():
    given = {
        "openapi": "3.0.4",
        "info": {"title": "Collisions", "version": "1"},
        "paths": {
            "/x/{id}": {
                "post": {
                    "operationId": "collide",
                    "parameters": [
                        {"name": "id", "in": place, "required": place == "path", "schema": {"type": "string"}}
                        for place in ("cookie", "header", "query", "path")
                    ],
                    "requestBody": {
                        "content": {
                            "application/json": {"schema": {"type": "object", "properties": {"id": {"type": "string"}}}}
                        }
                    },
                }
            }
        },
    }
    async with listening() as peer:
        server = DeltaServer("collisions")
        server.add_openapi(given, ApiSettings(base_url=peer.url))
        async with connect(server) as client:
            await client.call("collide", id="p", query_id="q", header_id="h", cookie_id="c", body_id="b")
    (heard,) = peer.heard
    assert (heard.target, heard.headers["id"], heard.headers["cookie"], heard.body) == (
        "/x/p?id=q",
        "h",
        "id=c",
        b'{"id":"b"}',
    )


@pytest.mark.parametrize("place", ["header", "cookie"])
async def test_a_value_that_would_begin_another_header_is_refused(place):
    row = Case(place, "simple" if place == "header" else "cookie", False, "string", "")
    async with listening() as peer:
        server = DeltaServer("colours")
        server.add_openapi(document([row]), ApiSettings(base_url=peer.url))
        async with connect(server) as client:
            reply = await client.call_tool(row.name, {"color": "a\r\nx-admin: 1"})
    assert reply.is_error and not peer.heard


async def test_a_parameter_that_cannot_be_sent_is_reported_with_its_place_and_the_others_serve():
    given = document([Case("query", "form", True, "string", "")])
    given["paths"]["/bad"] = {
        "get": {
            "operationId": "bad",
            "parameters": [{"name": "color", "in": "query", "style": "matrix", "schema": {"type": "string"}}],
        }
    }
    server = DeltaServer("colours")
    api = server.add_openapi(given, ApiSettings(base_url="http://127.0.0.1:1"))
    assert [str(fault) for fault in api.faults] == [
        "#/paths/~1bad/get: the parameter color has the style 'matrix', which the query does not have."
    ]
    assert [one.name for one in api.operations] == ["query_form_True_string"]
