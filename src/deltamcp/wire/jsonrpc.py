"""JSON-RPC 2.0: one body in, messages out; values in, one body out.

Rules:
1. Reading never raises: what cannot be read is a `Malformed`, with the id where there was one.
2. Numbers, nesting, ids and text are bounded here and nowhere else, the same for every transport.
3. A duplicate key is refused in the envelope and, as in most JSON readers, the last one wins inside it.
"""

import math
import re
from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from deltamcp.errors import FAULTS, Fault
from deltamcp.limits import Limits
from deltamcp.values import JSON, Failure, Malformed, Message, Notification, Request, RequestId, Response


class _Envelope(Struct, forbid_unknown_fields=True):
    jsonrpc: str
    method: str | UnsetType = UNSET
    id: Any = UNSET
    # Absent by the letter of JSON-RPC; `null` is what several clients send for "none".
    params: dict[str, Any] | None = None
    result: Any = UNSET
    error: Any = UNSET


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_any = msgspec.json.Decoder().decode
_json_decoder = JSONDecoder()
_NOT_SPACE = re.compile(r"\S")
_PACKED_INFINITY = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff].{3}\0{3}", re.DOTALL)
"""MessagePack's mark of a double, and an exponent of all ones: an infinity, a NaN as floats of 64 and 32 bits have it,
or by chance something else."""


def read(body: bytes, limits: Limits) -> Message | list[Message]:
    """One body; a list where it was a batch. Batches are for the caller to allow or refuse."""
    try:
        envelope = _decode_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_irregular(body, limits)
    # Looked at closely only where something might be wrong: a key that stands twice somewhere may stand twice
    # in the envelope, and so may one written with escapes. Answers to our own requests come under ids we
    # gave, and need no such care.
    count = body.count
    if (
        count(b'"method"') > 1
        or count(b'"params"') > 1
        or count(b'"id"') > 1
        or count(b'"jsonrpc"') > 1
        or b"\\u00" in body
        or count(b"[") + count(b"{") > limits.depth
    ):
        return _find_objection(body, envelope, limits) or _classify(envelope, limits)
    return _classify(envelope, limits)


def read_reply(body: bytes, limits: Limits) -> Message | list[Message]:
    """The same for what a server sends: results may be large and hold anything, so only the envelope is looked at."""
    try:
        return _classify(_decode_envelope(body), limits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_irregular(body, limits)


def _find_objection(body: bytes, value: Any, limits: Limits) -> Malformed | None:
    """What is wrong with a body although it is JSON."""
    if nesting_depth(value) > limits.depth:
        return Malformed(Fault.PARSE, f"The message is nested deeper than {limits.depth} levels.")
    repeated = None if isinstance(value, list) else repeated_key(body)
    if repeated is not None:
        return Malformed(Fault.INVALID_REQUEST, f"The message has the key {repeated!r} twice.")
    return None


def _classify(envelope: _Envelope, limits: Limits) -> Message:
    id_ = envelope.id
    usable = id_ if type(id_) in (int, str) else None
    if envelope.jsonrpc != "2.0":
        return Malformed(Fault.INVALID_REQUEST, 'The field jsonrpc must be "2.0".', usable)
    method = envelope.method
    if id_ is UNSET:
        if isinstance(method, UnsetType):
            return Malformed(Fault.INVALID_REQUEST, "The message has neither method nor id.", None)
        return Notification(method, envelope.params or {})
    if usable is None:
        return Malformed(Fault.INVALID_REQUEST, "The field id must be a string or an integer.", None)
    if len(id_) > limits.id_chars if isinstance(id_, str) else id_.bit_length() > 3 * limits.id_chars:
        return Malformed(Fault.INVALID_REQUEST, f"The field id is longer than {limits.id_chars} characters.", None)
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
    """Everything the fast path would not take: say precisely what is wrong with it."""
    try:
        value = decode(body)
    except ValueError as error:
        return Malformed(Fault.PARSE, str(error))
    objection = _find_objection(body, value, limits) if isinstance(value, dict | list) else None
    return read_value(value, limits) if objection is None else objection


def decode(body: bytes) -> JSON:
    """
    Raises:
        ValueError: it is not JSON. The text is a sentence.
    """
    try:
        return _decode_any(body)
    except RecursionError:
        raise ValueError("The message is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(_parse_reason(body, error)) from None


def read_value(value: JSON, limits: Limits) -> Message | list[Message]:
    """`read` for a body that is decoded, its depth and keys looked at already."""
    if isinstance(value, list):
        if not value:
            return Malformed(Fault.INVALID_REQUEST, "A batch must not be empty.")
        return [_read_one(item, limits) for item in value]
    return _read_one(value, limits)


def _read_one(value: JSON, limits: Limits) -> Message:
    if not isinstance(value, dict):
        return Malformed(Fault.INVALID_REQUEST, "A message must be a JSON object.", None)
    try:
        # Fields nobody knows are let be, here where their values have been read and found to be JSON.
        known = {key: value[key] for key in _Envelope.__struct_fields__ if key in value}
        return _classify(msgspec.convert(known, _Envelope), limits)
    except msgspec.ValidationError:
        id_ = value.get("id")
        usable = id_ if type(id_) is int or (type(id_) is str and len(id_) <= limits.id_chars) else None
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


def repeated_key(body: bytes) -> str | None:
    """The first key the outermost object has twice. The body is known to be a JSON object."""
    text = body.decode()
    seen: set[str] = set()
    key: str
    at = text.index("{") + 1
    while True:
        opening = text.find('"', at)
        if opening < 0:
            return None
        key, at = _json_decoder.raw_decode(text, opening)
        if key in seen:
            return key
        seen.add(key)
        _, at = _json_decoder.raw_decode(text, _NOT_SPACE.search(text, text.index(":", at) + 1).start())  # type: ignore[union-attr]


def nesting_depth(value: Any) -> int:
    if isinstance(value, _Envelope):
        value = [value.params, value.result, value.error]
    deepest, stack = 0, [(value, 1)]
    while stack:
        node, level = stack.pop()
        if isinstance(node, dict | list):
            deepest = max(deepest, level)
            stack.extend((child, level + 1) for child in (node.values() if isinstance(node, dict) else node))
    return deepest


# Writing


def encode(value: Any) -> bytes:
    """Compact UTF-8 JSON, keys in their own order.

    Raises:
        ValueError: the value holds something JSON cannot say.
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
    """The same for a value an author made: NaN and the infinities are refused, where `encode` writes null.

    Raises:
        ValueError: the text names the place.
    """
    data = encode(value)
    # They leave the encoder as `null`; where there is no null there were none.
    if b"null" in data and _may_hold_infinity(value):
        for path in _non_finite_paths(value, "$"):
            raise ValueError(f"{path} is not a finite number")
    return data


def _may_hold_infinity(value: Any) -> bool:
    """Whether it is worth looking at every number, which takes twenty times as long as this."""
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


def _non_finite_paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _non_finite_paths(child, f"{path}.{key}")
    elif isinstance(value, list | tuple | set | frozenset):
        for index, child in enumerate(value):
            yield from _non_finite_paths(child, f"{path}[{index}]")
    elif hasattr(value, "model_dump"):
        yield from _non_finite_paths(value.model_dump(), path)
    elif hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__"):
        names = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
        for name in names:
            yield from _non_finite_paths(getattr(value, name), f"{path}.{name}")


def encode_id(id_: RequestId | None) -> bytes:
    if type(id_) is int:
        return b"%d" % id_
    return msgspec.json.encode(id_)


def encode_result(id_: RequestId, encoded: bytes) -> bytes:
    """A result response around bytes that are already JSON."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_id(id_), encoded)


def encode_error(id_: RequestId | None, code: int, failure: Failure) -> bytes:
    """An error response; without an id where none could be read."""
    body: dict[str, Any] = {"code": code, "message": failure.message}
    if failure.data is not UNSET:
        body["data"] = failure.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode_id(id_), msgspec.json.encode(body))


def encode_notification(method: str, params: dict[str, JSON]) -> bytes:
    """A notification; `params` is left out when it is empty."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        body["params"] = params
    return encode_finite(body)


def encode_request(id_: RequestId, method: str, params: dict[str, JSON]) -> bytes:
    """A request of ours to the client."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": id_, "method": method}
    if params:
        body["params"] = params
    return encode_finite(body)


def encode_malformed(message: Malformed) -> bytes:
    """The answer to what could not be read."""
    return encode_error(message.id, FAULTS[message.fault].handshake, Failure(message.fault, message.reason))
