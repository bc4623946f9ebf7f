"""What the protocol itself must cost: a call decoded, made and answered straight on ASGI, nothing checked."""

import sys
from typing import Any

import msgspec

from .tools import add
from .uvicorn_settings import serve


class ThinParams(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


class ThinRequest(msgspec.Struct):
    id: int
    params: ThinParams


class ThinText(msgspec.Struct):
    text: str
    type: str = "text"


class ThinResult(msgspec.Struct):
    content: list[ThinText]


class ThinResponse(msgspec.Struct):
    id: int
    result: ThinResult
    jsonrpc: str = "2.0"


TOOLS = {"add": add}
decode = msgspec.json.Decoder(ThinRequest).decode
encode = msgspec.json.Encoder().encode


async def answer_call(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    event = await receive()
    body = event["body"]
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    request = decode(body)
    value = await TOOLS[request.params.name](**request.params.arguments)
    answer = encode(ThinResponse(request.id, ThinResult([ThinText(str(value))])))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(answer_call, int(sys.argv[1]))
