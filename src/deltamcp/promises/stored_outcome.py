"""The outcome of a call behind a promise, as the store has it: every redemption returns the same."""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from deltamcp.errors import Fault
from deltamcp.values import (
    JSON,
    Annotations,
    Answer,
    Audio,
    BlobResource,
    Content,
    EmbeddedResource,
    ErrorInfo,
    Failure,
    Image,
    NeededResource,
    Outcome,
    RawResult,
    ResourceLink,
    ResourceRequired,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc


class _Block(Struct):
    type: str
    resource: Raw = Raw(b"")


class _EmbeddedText(Struct):
    resource: TextResource
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = msgspec.field(default=None, name="_meta")


class _EmbeddedBlob(Struct):
    resource: BlobResource
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = msgspec.field(default=None, name="_meta")


class _Result(Struct, tag="result", omit_defaults=True):
    content: list[Raw]
    structured: JSON | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, JSON] | None = None
    error: ErrorInfo | None = None


class _Failure(Struct, tag="failure", omit_defaults=True):
    fault: str
    message: str
    data: JSON | UnsetType = UNSET
    retry_seconds: float = 0.0
    missing_scopes: list[str] = []
    granted_scopes: list[str] = []
    code: int = 0


class _NeedsResource(Struct, tag="resource", omit_defaults=True):
    message: str
    resources: list[NeededResource]
    state: str | None = None


class _Raw(Struct, tag="raw"):
    encoded: Raw
    """The bytes of another server's result, which stay as they are."""


_decoder: msgspec.json.Decoder[_Result | _Raw | _Failure | _NeedsResource] = msgspec.json.Decoder(
    _Result | _Raw | _Failure | _NeedsResource
)
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_text = msgspec.json.Decoder(_EmbeddedText).decode
_decode_blob = msgspec.json.Decoder(_EmbeddedBlob).decode
_plain_decoder: msgspec.json.Decoder[Text | Image | Audio | ResourceLink] = msgspec.json.Decoder(
    Text | Image | Audio | ResourceLink
)


def encode(outcome: Outcome) -> bytes:
    """
    Raises:
        ValueError: the outcome contains something that JSON cannot express.
    """
    match outcome:
        case Answer(ToolResult(content, structured, is_error, meta, error)):
            blocks = [Raw(jsonrpc.encode(block)) for block in content]
            return jsonrpc.encode(_Result(blocks, structured, is_error, meta, error))
        case Answer(RawResult(encoded)):
            return jsonrpc.encode(_Raw(Raw(encoded)))
        case Failure(fault, message, data, retry_seconds, missing, granted, code):
            failure = _Failure(fault.name, message, data, retry_seconds, sorted(missing), sorted(granted), code)
            return jsonrpc.encode(failure)
        case ResourceRequired(message, resources, state):
            return jsonrpc.encode(_NeedsResource(message, resources, state))
        case _:
            raise AssertionError(f"{type(outcome).__name__} is not the outcome of a call that has ended")


def decode(data: bytes) -> Outcome:
    """
    Raises:
        ValueError: another version of this library wrote it.
    """
    try:
        stored = _decoder.decode(data)
        match stored:
            case _Result():
                content = [_read_block(block) for block in stored.content]
                return Answer(ToolResult(content, stored.structured, stored.is_error, stored.meta, stored.error))
            case _Raw():
                return Answer(RawResult(bytes(stored.encoded), msgspec.json.decode(stored.encoded)))
            case _Failure():
                return Failure(
                    Fault[stored.fault],
                    stored.message,
                    stored.data,
                    stored.retry_seconds,
                    frozenset(stored.missing_scopes),
                    frozenset(stored.granted_scopes),
                    stored.code,
                )
            case _NeedsResource():
                return ResourceRequired(stored.message, stored.resources, stored.state)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise ValueError(str(error)) from None


def _read_block(data: Raw) -> Content:
    block = _decode_block(data)
    if block.type != "resource":
        return _plain_decoder.decode(data)
    is_text = "text" in msgspec.json.decode(block.resource)
    embedded = _decode_text(data) if is_text else _decode_blob(data)
    return EmbeddedResource(embedded.resource, embedded.annotations, embedded.meta)
