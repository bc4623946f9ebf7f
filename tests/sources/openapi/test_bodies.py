"""Request bodies of every media type: what a server on a socket receives, and what Starlette reads in it."""

import base64
import json
from typing import Any, NamedTuple

import pytest
from starlette.requests import Request

from deltamcp import ApiSettings, DeltaServer, connect
from tests.support.http_peer import Heard, listening

TEXT = {"type": "string"}


def document(content: dict[str, Any], version: str = "3.1.1", required: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "openapi": version,
        "info": {"title": "Bodies", "version": "1"},
        "paths": {
            "/send": {"post": {"operationId": "send", "requestBody": {"required": required, "content": content}}}
        },
        **more,
    }


async def sent(given: dict[str, Any], arguments: dict[str, Any], **settings: Any) -> Heard:
    """The request for the arguments, as it reached the server."""
    async with listening() as peer:
        server = DeltaServer("bodies")
        api = server.add_openapi(given, ApiSettings(base_url=peer.url, **settings))
        assert not api.faults
        async with connect(server) as client:
            await client.call("send", **arguments)
    (heard,) = peer.heard
    return heard


async def refusal(given: dict[str, Any], arguments: dict[str, Any], **settings: Any) -> str:
    """What the model is told of a call that sends nothing."""
    async with listening() as peer:
        server = DeltaServer("bodies")
        server.add_openapi(given, ApiSettings(base_url=peer.url, **settings))
        async with connect(server) as client:
            reply = await client.call_tool("send", arguments)
    assert reply.is_error and not peer.heard
    return reply.text


class Upload(NamedTuple):
    filename: str | None
    content_type: str | None
    data: bytes


async def form_of(heard: Heard) -> list[tuple[str, str | Upload]]:
    """The fields of a form, as Starlette reads them."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": heard.body, "more_body": False}

    headers = [(name.encode(), value.encode()) for name, value in heard.headers.items()]
    async with Request({"type": "http", "headers": headers}, receive).form() as form:
        return [
            (name, one if isinstance(one, str) else Upload(one.filename, one.content_type, await one.read()))
            for name, one in form.multi_items()
        ]


def properties(**given: Any) -> dict[str, Any]:
    return {"type": "object", "properties": given}


# JSON


async def test_json_comes_before_all_other_types_and_its_properties_are_arguments():
    schema = properties(name=TEXT, tags={"type": "array", "items": TEXT})
    content = {
        "text/plain": {"schema": TEXT},
        "multipart/form-data": {"schema": schema},
        "application/json": {"schema": schema},
    }
    heard = await sent(document(content), {"name": "é", "tags": ["a"]})
    assert heard.headers["content-type"] == "application/json"
    assert heard.body == '{"name":"é","tags":["a"]}'.encode()


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        (TEXT, "a"),
        ({"type": "integer"}, 5),
        ({"oneOf": [{**properties(a=TEXT), "required": ["a"]}, {**properties(b=TEXT), "required": ["b"]}]}, {"b": "x"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1}),
        ({}, {"anything": [None]}),
    ],
)
async def test_a_body_that_is_more_than_properties_is_one_argument(schema, body):
    heard = await sent(document({"application/json": {"schema": schema}}), {"body": body})
    assert json.loads(heard.body) == body


async def test_an_optional_body_is_left_out_and_a_required_one_without_arguments_is_an_empty_object():
    content = {"application/json": {"schema": properties(name=TEXT)}}
    assert (await sent(document(content, required=False), {})).body == b""
    assert (await sent(document(content), {})).body == b"{}"


async def test_a_vendors_json_type_is_sent_as_the_document_writes_it():
    heard = await sent(document({"application/merge-patch+json": {"schema": properties(a=TEXT)}}), {"a": "x"})
    assert heard.headers["content-type"] == "application/merge-patch+json" and heard.body == b'{"a":"x"}'


async def test_lines_of_json_are_one_value_each():
    heard = await sent(
        document({"application/jsonl": {"itemSchema": properties(a=TEXT)}}, "3.2.0"), {"body": [{"a": "x"}, {"a": "y"}]}
    )
    assert heard.body == b'{"a":"x"}\n{"a":"y"}\n'


# Forms


async def test_a_form_is_read_by_starlette_as_it_was_meant():
    schema = properties(
        q=TEXT,
        n={"type": "integer"},
        on={"type": "boolean"},
        tags={"type": "array", "items": TEXT},
        deep=properties(a=TEXT),
    )
    heard = await sent(
        document({"application/x-www-form-urlencoded": {"schema": schema}}),
        {"q": "a&b=ü +", "n": 3, "on": True, "tags": ["x", "y,z"], "deep": {"a": "1"}},
    )
    assert heard.body == b"q=a%26b%3D%C3%BC%20%2B&n=3&on=true&tags=x&tags=y%2Cz&deep=%7B%22a%22%3A%221%22%7D"
    assert await form_of(heard) == [
        ("q", "a&b=ü +"),
        ("n", "3"),
        ("on", "true"),
        ("tags", "x"),
        ("tags", "y,z"),
        ("deep", '{"a":"1"}'),
    ]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ({"style": "form", "explode": False}, b"color=blue,black"),
        ({"style": "form", "explode": True}, b"color=blue&color=black"),
        ({"style": "spaceDelimited", "explode": False}, b"color=blue%20black"),
        ({"style": "pipeDelimited", "explode": False}, b"color=blue%7Cblack"),
        ({"contentType": "application/json"}, b"color=%5B%22blue%22%2C%22black%22%5D"),
    ],
)
async def test_a_field_of_a_form_is_written_as_its_encoding_says(encoding, body):
    schema = properties(color={"type": "array", "items": TEXT})
    content = {"application/x-www-form-urlencoded": {"schema": schema, "encoding": {"color": encoding}}}
    assert (await sent(document(content), {"color": ["blue", "black"]})).body == body


async def test_an_object_of_a_form_may_be_deep():
    schema = properties(color={"type": "object"})
    content = {
        "application/x-www-form-urlencoded": {
            "schema": schema,
            "encoding": {"color": {"style": "deepObject", "explode": True}},
        }
    }
    assert (
        await sent(document(content), {"color": {"R": 1, "G": {"x": 2}}})
    ).body == b"color%5BR%5D=1&color%5BG%5D%5Bx%5D=2"


# Multipart

UPLOAD = properties(
    title=TEXT,
    meta=properties(a={"type": "integer"}),
    file={"type": "string", "format": "binary"},
    more={"type": "array", "items": {"type": "string", "format": "binary"}},
)


@pytest.mark.parametrize("version", ["3.0.4", "3.1.1", "3.2.0"])
async def test_files_are_sent_from_base64_and_read_by_starlette(version):
    data = bytes(range(256))
    encoded = base64.b64encode(data).decode()
    heard = await sent(
        document(
            {"multipart/form-data": {"schema": UPLOAD, "encoding": {"file": {"contentType": "image/png"}}}}, version
        ),
        {"title": 'a "b"\r\n', "meta": {"a": 1}, "file": encoded, "more": [encoded, base64.b64encode(b"2").decode()]},
    )
    assert await form_of(heard) == [
        ("title", 'a "b"\r\n'),
        ("meta", '{"a":1}'),
        ("file", Upload("file", "image/png", data)),
        ("more", Upload("file", "application/octet-stream", data)),
        ("more", Upload("file", "application/octet-stream", b"2")),
    ]


async def test_a_field_of_json_schema_with_a_media_type_is_a_file():
    schema = properties(
        file={"type": "string", "contentMediaType": "image/png"}, key={"type": "string", "contentEncoding": "base64"}
    )
    heard = await sent(
        document({"multipart/form-data": {"schema": schema}}), {"file": base64.b64encode(b"\x89").decode()}
    )
    assert await form_of(heard) == [("file", Upload("file", "image/png", b"\x89"))]


async def test_a_media_type_of_the_document_begins_no_other_header():
    schema = properties(file={"type": "string", "contentMediaType": "image/png\r\nX-Admin: 1"}, note=TEXT)
    encoding = {"note": {"contentType": "text/plain\r\n\r\nforged"}}
    given = document({"multipart/form-data": {"schema": schema, "encoding": encoding}})
    heard = await sent(given, {"file": "AA==", "note": "n"})
    assert b"X-Admin" not in heard.body and b"forged" not in heard.body


async def test_files_by_path_come_only_from_folders_that_are_allowed(tmp_path):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "a.txt").write_bytes(b"contents")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (allowed / "link.txt").symlink_to(tmp_path / "secret.txt")
    given = document({"multipart/form-data": {"schema": UPLOAD}})
    for name in ("file:a.txt", f"file:{allowed}/a.txt"):
        heard = await sent(given, {"file": name}, file_folders=(str(allowed),))
        assert await form_of(heard) == [("file", Upload("a.txt", "application/octet-stream", b"contents"))]
    for name in ("file:../secret.txt", f"file:{tmp_path}/secret.txt", "file:link.txt", "file:none.txt", "file:"):
        assert "no folder that files may be sent from" in await refusal(
            given, {"file": name}, file_folders=(str(allowed),)
        )
    assert "no folder" in await refusal(given, {"file": f"file:{allowed}/a.txt"})


async def test_what_is_no_base64_is_refused():
    assert "must be base64" in await refusal(document({"multipart/form-data": {"schema": UPLOAD}}), {"file": "ä!"})


# Texts and bytes


async def test_a_text_is_sent_as_it_is():
    heard = await sent(document({"text/plain": {"schema": TEXT}}), {"body": "é\n"})
    assert heard.headers["content-type"] == "text/plain" and heard.body == "é\n".encode()


async def test_bytes_are_sent_from_base64_under_the_type_that_the_caller_chooses():
    data = bytes(range(256))
    heard = await sent(document({"application/octet-stream": {}}), {"body": base64.b64encode(data).decode()})
    assert heard.headers["content-type"] == "application/octet-stream" and heard.body == data
    given = document({"image/*": {}})
    heard = await sent(given, {"body": base64.b64encode(data).decode(), "content_type": "image/gif"})
    assert heard.headers["content-type"] == "image/gif" and heard.body == data
    assert "media type" in await refusal(given, {"body": "AA==", "content_type": "image/gif\r\nx: 1"})


async def test_of_several_text_types_the_caller_chooses():
    content = {"application/xml": {"schema": TEXT}, "text/csv": {"schema": TEXT}}
    heard = await sent(document(content), {"body": "a,b", "content_type": "text/csv"})
    assert heard.headers["content-type"] == "text/csv" and heard.body == b"a,b"


async def test_the_files_of_swagger_are_multipart():
    given = {
        "swagger": "2.0",
        "info": {"title": "Bodies", "version": "1"},
        "host": "example.com",
        "consumes": ["application/json"],
        "paths": {
            "/send": {
                "post": {
                    "operationId": "send",
                    "consumes": ["application/x-www-form-urlencoded", "multipart/form-data"],
                    "parameters": [
                        {"name": "file", "in": "formData", "type": "file", "required": True},
                        {"name": "note", "in": "formData", "type": "string"},
                    ],
                }
            }
        },
    }
    heard = await sent(given, {"file": base64.b64encode(b"x").decode(), "note": "n"})
    assert await form_of(heard) == [("file", Upload("file", "application/octet-stream", b"x")), ("note", "n")]
