"""Reads the results of MCP-lite as those of MCP 2026-07-28, which the rest of the client understands. Pure: no I/O."""

from typing import Any

from deltamcp.errors import ClientError, ResourceNeededError, ResponseTypeError
from deltamcp.values import JSON

_MAX_SHOWN_CHARS = 200


def read_result(result: dict[str, JSON]) -> dict[str, JSON]:
    """Returns an answer or a failure as it is, a question as `input_required`, a promise as a task.

    Raises:
        ResponseTypeError: the result is of a type that this client does not know.
        ResourceNeededError: the call needs more of a resource.
    """
    meta = _object(result.get("_meta"))
    kind = meta.get("response_type", "answer")
    # NLWeb, which MCP-lite comes from, writes the types in lower case and with a capital.
    match kind.lower() if isinstance(kind, str) else kind:
        case "answer":
            return result
        case "failure":
            return _read_failure(result)
        case "promise":
            return _read_promise(result, meta)
        case "elicitation" if "promise_token" in meta:
            return {**_read_promise(result, meta), "inputRequests": _questions(result), "status": "input_required"}
        case "elicitation":
            asked: dict[str, JSON] = {"resultType": "input_required", "inputRequests": _questions(result)}
            return asked | ({"requestState": meta["request_state"]} if "request_state" in meta else {})
        case "request-for-more-resource":
            raise _resource_needed_error(result, meta)
        case _:
            raise ResponseTypeError(kind)


def _read_failure(result: dict[str, JSON]) -> dict[str, JSON]:
    message = _object(result.get("error")).get("message")
    content = result.get("content") or ([{"type": "text", "text": message}] if isinstance(message, str) else [])
    return {**result, "content": content, "isError": True}


def _read_promise(result: dict[str, JSON], meta: dict[str, JSON]) -> dict[str, JSON]:
    promise = _object(result.get("promise"))
    token = meta.get("promise_token", promise.get("token"))
    if not isinstance(token, str) or not token:
        raise ClientError("The server promises a result, and gives no token to redeem.")
    task = {
        "resultType": "task",
        "taskId": token,
        "status": promise.get("status", "working"),
        "statusMessage": promise.get("message"),
        "progress": promise.get("progress"),
        "total": 1 if "progress" in promise else None,
        "pollIntervalMs": meta.get("retry_after_ms"),
    }
    return {key: value for key, value in task.items() if value is not None}


def _questions(result: dict[str, JSON]) -> dict[str, JSON]:
    elicitation = _object(result.get("elicitation"))
    requests = elicitation.get("requests")
    if not isinstance(requests, dict) or not requests:
        text = elicitation.get("text") or _text(result) or "something"
        raise ClientError(f"The server asks, in a form that this client does not know: {str(text)[:_MAX_SHOWN_CHARS]}")
    return requests


def _resource_needed_error(result: dict[str, JSON], meta: dict[str, JSON]) -> ResourceNeededError:
    request = _object(result.get("resource_request"))
    message, resources, state = request.get("message"), request.get("resources"), meta.get("request_state")
    return ResourceNeededError(
        message if isinstance(message, str) else _text(result) or "The call needs more of a resource.",
        [item for item in resources if isinstance(item, dict)] if isinstance(resources, list) else [],
        state if isinstance(state, str) else None,
    )


def _text(result: dict[str, JSON]) -> str:
    blocks: Any = result.get("content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


def _object(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}
