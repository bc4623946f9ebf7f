"""Failures as gRPC reports them: a status code, a text and `google.rpc` details, by the table of MCP-lite's faults."""

from typing import NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from deltamcp.dialects.mcp_lite_faults import LITE_FAULTS
from deltamcp.errors import Fault
from deltamcp.values import JSON, Failure

DOMAIN = "mcplite"
"""The domain of the reasons in `google.rpc.ErrorInfo`."""

# Trailing metadata of more than 8 kB is refused by clients. A text is there twice, once with three bytes for each of
# its bytes that is not ASCII.
_TEXT_BYTES = 800
_VALUE_BYTES = 2000
_MAX_VIOLATIONS = 8
_VIOLATION_BYTES = 150
_KEYWORD_BYTES = 40
_RETRY_SECONDS = 1.0
"""When to try again what may succeed later, where nothing says so."""
_ELSEWHERE = frozenset({"reason", "retryable", "errors", "retry_after_ms"})
"""Keys of an error's data that are in other fields of the details."""


class GrpcError(NamedTuple):
    """The status of a response that reports a failure."""

    code: grpc.StatusCode
    text: str
    details: bytes
    """A serialized `google.rpc.Status`, which clients read under `grpc_messages.DETAILS_KEY`."""


def grpc_error(failure: Failure) -> GrpcError:
    """Returns what a client is told of a failure."""
    row = LITE_FAULTS[failure.fault]
    data = failure.data if isinstance(failure.data, dict) else {}
    code = getattr(grpc.StatusCode, row.grpc_status)
    text = _flat(_text(failure, data), _TEXT_BYTES)
    status = status_pb2.Status(code=code.value[0], message=text)
    metadata = {key: _flat(value) for key, value in data.items() if key not in _ELSEWHERE}
    if data.get("reason", row.reason) != row.reason:
        metadata["detail"] = _flat(data["reason"])  # such as what is wrong with a token
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=metadata))
    if errors := data.get("errors"):
        status.details.add().Pack(_bad_request(errors))
    if failure.fault is Fault.NOT_FOUND:
        name = _flat(data.get("requested_tool", ""))
        status.details.add().Pack(error_details_pb2.ResourceInfo(resource_type="tool", resource_name=name))
    if failure.fault in (Fault.RATE_LIMITED, Fault.TOO_LARGE):
        subject = _flat(data.get("limit", "message size" if failure.fault is Fault.TOO_LARGE else "rate"))
        violation = error_details_pb2.QuotaFailure.Violation(subject=subject, description=text)
        status.details.add().Pack(error_details_pb2.QuotaFailure(violations=[violation]))
    if row.retryable:
        delay = Duration()
        delay.FromMilliseconds(round((failure.retry_seconds or _RETRY_SECONDS) * 1000))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return GrpcError(code, text, status.SerializeToString())


def _text(failure: Failure, data: dict[str, JSON]) -> str:
    if failure.fault is Fault.NOT_FOUND and "requested_tool" in data:
        return f"Tool not found: {data['requested_tool']}"  # MCP-lite, A.5
    return failure.message


def _bad_request(errors: list[dict[str, JSON]]) -> error_details_pb2.BadRequest:
    violations = [
        error_details_pb2.BadRequest.FieldViolation(
            field=_flat(error.get("pointer", ""), _VIOLATION_BYTES),
            description=_flat(error.get("message", ""), _VIOLATION_BYTES),
            reason=_flat(error.get("keyword", ""), _KEYWORD_BYTES),
        )
        for error in errors[:_MAX_VIOLATIONS]
        if isinstance(error, dict)
    ]
    return error_details_pb2.BadRequest(field_violations=violations)


def _flat(value: JSON, max_bytes: int = _VALUE_BYTES) -> str:
    """Returns a value of an error's data as a text of limited length."""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return str(value)[:max_bytes].encode(errors="replace")[:max_bytes].decode(errors="ignore")
