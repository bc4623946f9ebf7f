"""The cases of the fuzzer for gRPC: messages to the methods, and bytes of whole connections."""

import random
from typing import Any, NamedTuple

from bench.fuzz.cases import make_chance
from bench.fuzz.lite_messages import valid_calls
from bench.fuzz.mutation import TEXTS, mutate_bytes, mutate_message
from bench.hostile import http2, protobuf
from bench.hostile.http2 import Flag, FrameType, Setting, write_frame

METHODS = ("/mcplite.MCPLite/GetTools", "/mcplite.MCPLite/CallTool", "/mcplite.MCPLite/CallToolStream")
_OTHER_METHODS = (
    "/mcplite.ext.Prompts/GetPrompts", "/grpc.health.v1.Health/Check", "/mcplite.MCPLite/", "/", "/x/y", "",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/mcplite.MCPLite/CallTool/x", "/é",
)  # fmt: skip
_METADATA = (
    ("mcplite-accept", "result-json"), ("mcplite-strict", "1"), ("x-request-id", "r1"), ("authorization", "Bearer x"),
    ("grpc-timeout", "1S"), ("grpc-timeout", "99999999999n"), ("grpc-encoding", "gzip"), ("x-long", "a" * 9_000),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
)  # fmt: skip
_CALL = METHODS[1]


class GrpcCase(NamedTuple):
    """A message for one of the methods."""

    method: str
    message: bytes
    metadata: tuple[tuple[str, str], ...]


def make_message_case(seed: int, number: int) -> GrpcCase:
    """A call of which values are changed, and sometimes bytes; about one in 20 is valid."""
    chance = make_chance(seed, "grpc", number)
    params: Any = chance.choice(valid_calls())
    changed = params if chance.random() < 0.05 else mutate_message(params, chance)
    message = write_call(changed)
    if chance.random() < 0.3:
        message = mutate_bytes(message, chance)
    metadata = chance.sample(_METADATA[:3], chance.choice((0, 0, 1, 2)))
    return GrpcCase(chance.choices(METHODS, (1, 6, 3))[0], message, tuple(metadata))


def write_call(params: Any) -> bytes:
    """Parameters as a message, as far as protobuf has words for what a mutation has made of them."""
    if not isinstance(params, dict):
        return protobuf.from_json(params)
    renamed = {"meta" if key == "_meta" else key: value for key, value in params.items()}
    return protobuf.call_request(renamed, {})


def make_connection_bytes(seed: int, number: int) -> bytes:
    """The bytes of a connection with a few calls, of which frames, headers or bytes are changed."""
    chance = make_chance(seed, "frames", number)
    frames = [http2.write_settings(_settings(chance))]
    for place in range(chance.choice((1, 1, 2, 4))):
        frames += _call_frames(2 * place + 1, make_message_case(seed, 4 * number + place), chance)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        _change_frames(frames, chance)
    data = http2.PREFACE + b"".join(frames)
    if chance.random() < 0.4:
        data = mutate_bytes(data, chance)
    return data


def _settings(chance: random.Random) -> list[tuple[int, int]]:
    values = (0, 1, 65_535, 2**31 - 1, 2**32 - 1, 16_384)
    return [(chance.choice((*Setting, 9, 0)), chance.choice(values)) for _ in range(chance.choice((0, 0, 1, 2)))]


def _call_frames(stream: int, case: GrpcCase, chance: random.Random) -> list[bytes]:
    method = case.method if chance.random() < 0.8 else chance.choice(_OTHER_METHODS)
    more = [*case.metadata, *chance.sample(_METADATA, chance.choice((0, 0, 1)))]
    headers = http2.grpc_headers(1, method.encode().decode("latin-1"), more)
    if chance.random() < 0.1:
        del headers[chance.randrange(len(headers))]
    if chance.random() < 0.1:
        headers.insert(chance.randint(0, len(headers)), (chance.choice(headers)[0], "x"))
    if chance.random() < 0.1:
        headers.append(("x", chance.choice(TEXTS).encode("utf-8", "replace").decode("latin-1")))
    message = http2.grpc_message(case.message[:16_000])
    opened = write_frame(FrameType.HEADERS, Flag.END_HEADERS, stream, http2.write_headers(headers))
    cut = chance.choice((0, 3, len(message)))
    parts = [part for part in (message[:cut], message[cut:]) if part]
    flags = [0] * (len(parts) - 1) + [Flag.END_STREAM]
    return [opened, *(write_frame(FrameType.DATA, flag, stream, part) for flag, part in zip(flags, parts, strict=True))]


def _change_frames(frames: list[bytes], chance: random.Random) -> None:
    """Adds, drops, doubles, moves or changes a frame."""
    at = chance.randrange(len(frames))
    match chance.randrange(6):
        case 0:
            frames.insert(at, _any_frame(chance))
        case 1 if len(frames) > 1:
            del frames[at]
        case 2:
            frames[at] = frames[at] * chance.choice((2, 50))
        case 3:
            frames.append(frames.pop(at))
        case 4:
            frame = bytearray(frames[at])
            frame[chance.randrange(9)] ^= 1 << chance.randrange(8)
            frames[at] = bytes(frame)
        case _:
            frames.insert(at, write_frame(FrameType.RST_STREAM, 0, chance.choice((1, 3, 5)), (8).to_bytes(4)))


def _any_frame(chance: random.Random) -> bytes:
    payload = bytes(chance.randrange(256) for _ in range(chance.choice((0, 1, 4, 5, 8, 6, 100))))
    return write_frame(
        chance.choice((*FrameType, 10, 255)), chance.randrange(256), chance.choice((0, 1, 2, 3)), payload
    )
