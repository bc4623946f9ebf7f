"""What the protocol itself must cost: a call decoded, made and answered straight on ASGI, nothing checked."""

import sys
from typing import Any

import msgspec

from .door import serve
from .tools import add


class Params(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class Request(msgspec.Struct):
    id: int
    params: Params


class Text(msgspec.Struct):
    text: str
    type: str = "text"


class Result(msgspec.Struct):
    content: list[Text]


class Response(msgspec.Struct):
    id: int
    result: Result
    jsonrpc: str = "2.0"


TOOLS = {"add": add}
decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    event = await receive()
    body = event["body"]
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    request = decode(body)
    value = await TOOLS[request.params.name](**request.params.arguments)
    answer = encode(Response(request.id, Result([Text(str(value))])))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(app, int(sys.argv[1]))
