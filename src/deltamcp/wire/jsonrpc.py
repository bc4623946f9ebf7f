"""JSON-RPC 2.0: reads messages from a body and encodes messages to a body.

Rules:
1. Reading never raises: a message that cannot be read becomes a `Malformed`, with its id where it has one.
2. A body is decoded only if it is within the bounds of `message_bounds.py`, which every transport has.
3. A duplicate key is refused in the envelope; inside `params` and results the last one wins, as in most JSON readers.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from deltamcp.errors import FAULTS, Fault
from deltamcp.limits import Limits
from deltamcp.values import JSON, Failure, Malformed, Message, Notification, Request, RequestId, Response
from deltamcp.wire.message_bounds import MessageBoundError, check_json


class _Envelope(Struct, forbid_unknown_fields=True):
    jsonrpc: str
    method: str | UnsetType = UNSET
    id: Any = UNSET
    # JSON-RPC lets `params` be absent; several clients send `null` instead.
    params: dict[str, Any] | None = None
    result: Any = UNSET
    error: Any = UNSET


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_any = msgspec.json.Decoder().decode
_MAX_BATCH = 100
"""The most messages of a batch; each may be a call, and one message should not be thousands."""
MAX_SHOWN_CHARS = 100
"""The most characters of what a peer sent that an error repeats."""
_PACKED_INFINITY = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff].{3}\0{3}", re.DOTALL)
"""MessagePack's tag of a double and an exponent of all ones: an infinity, the NaN of a 64- or 32-bit float, or by
chance bytes of another value."""


def read(body: bytes, limits: Limits) -> Message | list[Message]:
    """Reads one body; a batch becomes a list, which the caller may accept or refuse."""
    if len(body) > 2 * limits.depth:
        try:
            check_json(body, limits)
        except MessageBoundError as error:
            return _refuse_excess(body, error, limits)
    try:
        envelope = _decode_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_irregular(body, limits)
    # A key that occurs twice anywhere, or is written with escapes, may be a duplicate in the envelope. `result` and
    # `error` are not counted, as they come under ids we chose.
    count = body.count
    if (
        count(b'"method"') > 1
        or count(b'"params"') > 1
        or count(b'"id"') > 1
        or count(b'"jsonrpc"') > 1
        or b"\\u00" in body
    ):
        return _find_repetition(body) or _classify(envelope, limits)
    id_, method = envelope.id, envelope.method
    if (
        type(id_) is int
        and type(method) is str
        and envelope.jsonrpc == "2.0"
        and id_.bit_length() <= 3 * limits.id_chars
    ):
        return Request(id_, method, envelope.params or {})  # nearly every message
    return _classify(envelope, limits)


def read_reply(body: bytes, limits: Limits) -> Message | list[Message]:
    """Reads a body from a server, within the same bounds; keys may be there twice."""
    if len(body) > 2 * limits.depth:
        try:
            check_json(body, limits)
        except MessageBoundError as error:
            return _refuse_excess(body, error, limits)
    try:
        message = _classify(_decode_envelope(body), limits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_irregular(body, limits)
    return Response(message.id, message.result, message.error, body) if type(message) is Response else message


class _ResultEnvelope(Struct):
    result: Raw


_decode_result_envelope = msgspec.json.Decoder(_ResultEnvelope).decode


def encoded_result(response: Response) -> bytes:
    """Returns the result of a response as its sender encoded it, or encoded anew if it came in another encoding.

    Line breaks become spaces: on stdio and in event streams they would end the message, and what follows could pass for
    another one. They stand between tokens only, as JSON has none in its strings.
    """
    if not response.body:
        return encode(response.result)
    encoded = bytes(_decode_result_envelope(response.body).result)
    if b"\n" in encoded or b"\r" in encoded:
        return encoded.replace(b"\n", b" ").replace(b"\r", b" ")
    return encoded


def _refuse_excess(body: bytes, error: MessageBoundError, limits: Limits) -> Malformed:
    return Malformed(error.fault, str(error), find_id(body, body, limits))


def _find_repetition(body: bytes) -> Malformed | None:
    repeated = repeated_key(body)
    if repeated is None:
        return None
    return Malformed(Fault.INVALID_REQUEST, f"The message has the key {repeated[:MAX_SHOWN_CHARS]!r} twice.")


EDGE_BYTES = 2048
"""How many bytes at each end of a message `find_id` looks at."""


_ID = rb'"(?:id|i)"\s*:\s*(-?\d+|"[^"\\]*")'
_TEXT_MEMBER = rb'"(?:jsonrpc|j|method|m)"\s*:\s*"[^"\\]*"'
"""The members that may be between the id and an end of the message; `i`, `j` and `m` are those of compact JSON."""
_ID_AT_START = re.compile(rb"\s*\{\s*(?:%b\s*,\s*)*%b\s*[,}]" % (_TEXT_MEMBER, _ID))
_ID_AT_END = re.compile(rb",\s*%b\s*(?:,\s*%b\s*)*\}\s*\Z" % (_ID, _TEXT_MEMBER))


def find_id(start: bytes, end: bytes, limits: Limits) -> RequestId | None:
    """Returns the id of a JSON message that is not decoded; None if it is neither at its start nor at its end."""
    match = _ID_AT_START.match(start[:EDGE_BYTES]) or _ID_AT_END.search(end[-EDGE_BYTES:])
    if match is None:
        return None
    try:
        return usable_id(_decode_any(match[1]), limits)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def usable_id(value: Any, limits: Limits) -> RequestId | None:
    """Returns a value if it can be the id of a response; None if it is of another type or too long."""
    return value if type(value) in (int, str) and not _is_id_too_long(value, limits) else None


def _is_id_too_long(id_: RequestId, limits: Limits) -> bool:
    return len(id_) > limits.id_chars if isinstance(id_, str) else id_.bit_length() > 3 * limits.id_chars


def _classify(envelope: _Envelope, limits: Limits) -> Message:
    id_ = envelope.id
    usable = id_ if type(id_) in (int, str) else None
    if usable is not None and _is_id_too_long(usable, limits):
        return Malformed(Fault.INVALID_REQUEST, f"The field id is longer than {limits.id_chars} characters.", None)
    if envelope.jsonrpc != "2.0":
        return Malformed(Fault.INVALID_REQUEST, 'The field jsonrpc must be "2.0".', usable)
    method = envelope.method
    if id_ is UNSET:
        if isinstance(method, UnsetType):
            return Malformed(Fault.INVALID_REQUEST, "The message has neither method nor id.", None)
        return Notification(method, envelope.params or {})
    if usable is None:
        return Malformed(Fault.INVALID_REQUEST, "The field id must be a string or an integer.", None)
    if not isinstance(method, UnsetType):
        return Request(id_, method, envelope.params or {})
    if envelope.error is not UNSET:
        if not isinstance(envelope.error, dict):
            return Malformed(Fault.INVALID_REQUEST, "The field error must be an object.", usable)
        return Response(id_, error=envelope.error)
    if envelope.result is not UNSET:
        return Response(id_, result=envelope.result)
    return Malformed(Fault.INVALID_REQUEST, "The message has an id but no method, result or error.", usable)


def _read_irregular(body: bytes, limits: Limits) -> Message | list[Message]:
    """Reads a body the fast path cannot read: a batch, a message with unknown fields, or one with a fault to report."""
    try:
        value = decode(body)
    except ValueError as error:
        return Malformed(Fault.PARSE, str(error))
    repetition = _find_repetition(body) if isinstance(value, dict) else None
    return read_value(value, limits) if repetition is None else repetition


def decode(body: bytes) -> JSON:
    """Decodes JSON.

    Raises:
        ValueError: the body is not JSON. The error's text is a sentence.
    """
    try:
        return _decode_any(body)
    except RecursionError:
        raise ValueError("The message is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(_parse_reason(body, error)) from None


def read_value(value: JSON, limits: Limits) -> Message | list[Message]:
    """Reads messages from a decoded body whose bounds and keys the caller has checked."""
    if isinstance(value, list):
        if not value:
            return Malformed(Fault.INVALID_REQUEST, "A batch must not be empty.")
        if len(value) > _MAX_BATCH:
            return Malformed(Fault.TOO_LARGE, f"A batch may have at most {_MAX_BATCH} messages.")
        return [_read_one(item, limits) for item in value]
    return _read_one(value, limits)


def _read_one(value: JSON, limits: Limits) -> Message:
    if not isinstance(value, dict):
        return Malformed(Fault.INVALID_REQUEST, "A message must be a JSON object.", None)
    try:
        # Unknown fields are ignored; their values were decoded, so they are valid JSON.
        known = {key: value[key] for key in _Envelope.__struct_fields__ if key in value}
        return _classify(msgspec.convert(known, _Envelope), limits)
    except msgspec.ValidationError:
        usable = usable_id(value.get("id"), limits)
        if not isinstance(value.get("jsonrpc"), str):
            reason = 'The field jsonrpc must be "2.0".'
        elif not isinstance(value.get("method", ""), str):
            reason = "The field method must be a string."
        else:
            reason = "The field params must be an object."
        return Malformed(Fault.INVALID_REQUEST, reason, usable)


def _parse_reason(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "The message is empty."
    if isinstance(error, UnicodeDecodeError):
        return "The message is not valid UTF-8."
    if isinstance(error, msgspec.ValidationError):
        return "The message has a number that is out of range."
    return "The message is not valid JSON."


class _Key:
    """A key that equals no other, so that a dict keeps both of two keys with the same text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_decode_members = msgspec.json.Decoder(dict[_Key, Raw], dec_hook=lambda _, text: _Key(text)).decode


def repeated_key(body: bytes) -> str | None:
    """Returns the first duplicate key of the outermost object of a body, which must be a valid JSON object."""
    seen: set[str] = set()
    for key in _decode_members(body):
        if key.text in seen:
            return key.text
        seen.add(key.text)
    return None


# Writing


def encode(value: Any) -> bytes:
    """Encodes a value as compact UTF-8 JSON, with keys in their own order.

    Raises:
        ValueError: the value contains something that JSON cannot express.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        raise ValueError("text with a lone surrogate") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("a value nested too deeply, or inside itself") from None


def encode_finite(value: Any) -> bytes:
    """Encodes an author's value; refuses NaN and the infinities, which `encode` writes as null.

    Raises:
        ValueError: as `encode` does, or a number is not finite; the error's text names its path.
    """
    data = encode(value)
    # The encoder writes such numbers as `null`, so without a null there are none.
    if b"null" in data and _may_hold_infinity(value):
        path = _find_non_finite(value)
        if path is not None:
            raise ValueError(f"${path} is not a finite number")
    return data


def _may_hold_infinity(value: Any) -> bool:
    """Returns whether `_find_non_finite`, which takes twenty times as long as this, may find a number."""
    try:
        packed = msgspec.msgpack.encode(value, enc_hook=_to_builtin)
    except (OverflowError, TypeError, ValueError, RecursionError):
        return True
    return _PACKED_INFINITY.search(packed) is not None


def _to_builtin(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", by_alias=True)
    raise TypeError(f"an object of type {type(value).__name__}, which is not JSON")


_encoder = msgspec.json.Encoder(enc_hook=_to_builtin)


def _find_non_finite(value: Any) -> str | None:
    """Returns the path from a value to the first number in it that is not finite; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    if isinstance(value, str | int | None):
        return None
    members: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        for index, child in enumerate(value):
            path = _find_non_finite(child)
            if path is not None:
                return f"[{index}]{path}"
    elif hasattr(value, "model_dump"):
        return _find_non_finite(value.model_dump())
    elif hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__"):
        names = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
        members = ((name, getattr(value, name)) for name in names)
    for name, child in members:
        path = _find_non_finite(child)
        if path is not None:
            return f".{str(name)[:MAX_SHOWN_CHARS]}{path}"
    return None


def encode_id(id_: RequestId | None) -> bytes:
    if type(id_) is int:
        return b"%d" % id_
    return msgspec.json.encode(id_)


def encode_result(id_: RequestId, encoded: bytes) -> bytes:
    """Encodes a result response around a result that is encoded already."""
    # Formatting would take fifty times as long for 300 kB.
    return b"".join((b'{"jsonrpc":"2.0","id":', encode_id(id_), b',"result":', encoded, b"}"))


def encode_error(id_: RequestId | None, code: int, failure: Failure) -> bytes:
    """Encodes an error response; `id_` is None where the request's id could not be read."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode_id(id_), msgspec.json.encode(error_object(code, failure)))


def error_object(code: int, failure: Failure) -> dict[str, JSON]:
    """Returns the `error` of an error response."""
    body: dict[str, JSON] = {"code": code, "message": failure.message}
    if failure.data is not UNSET:
        body["data"] = failure.data
    return body


def encode_notification(method: str, params: dict[str, JSON]) -> bytes:
    """Encodes a notification; leaves out empty `params`."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        body["params"] = params
    return encode_finite(body)


def encode_request(id_: RequestId, method: str, params: dict[str, JSON]) -> bytes:
    """Encodes a request to the peer; leaves out empty `params`."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
    if params:
        body["params"] = params
    return encode_finite(body)


def encode_malformed(message: Malformed) -> bytes:
    """Encodes the error response to a message that could not be read."""
    return encode_error(message.id, FAULTS[message.fault].handshake, Failure(message.fault, message.reason))
