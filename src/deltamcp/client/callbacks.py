"""Answers a server's requests to the client (elicitation, sampling, roots) with the program's callbacks."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias

from deltamcp.context import Elicited
from deltamcp.errors import FAULTS, Fault, PeerError
from deltamcp.values import JSON

OnElicitation: TypeAlias = Callable[[dict[str, JSON]], "Elicited | dict[str, JSON] | Awaitable[Any] | None"]
"""Takes the params of `elicitation/create` (`message` and `requestedSchema`, or `mode: "url"` and `url`) and returns
the user's answer: an `Elicited`, the filled-in form as a dict, or None if the user declined."""
OnSampling: TypeAlias = Callable[[dict[str, JSON]], "dict[str, JSON] | str | Awaitable[Any]"]
"""Takes the params of `sampling/createMessage` and returns its result, or only the text that the model wrote."""

_MAX_INPUT_REQUESTS = 64
"""How many inputs a server may ask for at once; the client answers them concurrently."""
_UNKNOWN_METHOD = FAULTS[Fault.UNKNOWN_METHOD].handshake


class RequestSender(Protocol):
    """Whoever a request is sent for: answers what the server asks while it performs it, and takes what it logs."""

    @property
    def owner(self) -> Hashable:
        """Who it is: a question that names no request is passed on only if all open requests have one owner."""
        ...

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        """Returns the result of the server's request.

        Raises:
            PeerError: there is none; the connection sends this error to the server.
        """
        ...

    def log(self, params: dict[str, JSON]) -> Awaitable[None] | None:
        """Takes the params of `notifications/message`."""
        ...

    async def detach(self) -> None:
        """Learns that the server has closed the request's stream early, and that the client reconnects later."""
        ...


class ClientCallbacks:
    """The callbacks that the program gave its client."""

    def __init__(
        self,
        elicitation: OnElicitation | None,
        sampling: OnSampling | None,
        roots: Sequence[str | dict[str, JSON]] | None,
        sender: RequestSender | None = None,
    ) -> None:
        """`sender` answers instead of them: the client forwards its requests."""
        self.elicitation = elicitation
        self.sampling = sampling
        self.roots = roots
        self._sender = sender

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        """Returns the result of a server's request.

        Raises:
            PeerError: the client cannot answer; the connection sends this error to the server.
        """
        if self._sender is not None and method != "ping":
            return await self._sender.answer(method, params)
        match method:
            case "ping":
                return {}
            case "elicitation/create" if self.elicitation is not None:
                return _elicitation_result(params, await _await_if_needed(self.elicitation(params)))
            case "sampling/createMessage" if self.sampling is not None:
                return _sampling_result(await _await_if_needed(self.sampling(params)))
            case "roots/list" if self.roots is not None:
                return {"roots": [{"uri": root} if isinstance(root, str) else root for root in self.roots]}
            case _:
                raise PeerError(_UNKNOWN_METHOD, f"This client does not answer {method[:100]}.")

    async def retry_params(self, result: Mapping[str, JSON]) -> dict[str, JSON]:
        """Returns the params to add when the client sends a request again after an `input_required` result.

        MCP 2026-07-28, "Multi Round-Trip Requests".

        Raises:
            PeerError: the server asks for an input that this client did not declare.
        """
        input_requests: Any = result.get("inputRequests")
        params: dict[str, JSON] = {}
        if isinstance(input_requests, dict) and len(input_requests) > _MAX_INPUT_REQUESTS:
            raise PeerError(0, f"The server asks for more than {_MAX_INPUT_REQUESTS} inputs at once.")
        if isinstance(input_requests, dict):
            answers = await asyncio.gather(*(self._answer_input(request) for request in input_requests.values()))
            params["inputResponses"] = dict(zip(input_requests, answers, strict=True))
        if "requestState" in result:
            params["requestState"] = result["requestState"]
        return params

    async def _answer_input(self, request: Any) -> dict[str, JSON]:
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            raise PeerError(0, "The server sent an input request without a method.")
        params = request.get("params")
        return await self.answer(request["method"], params if isinstance(params, dict) else {})


async def _await_if_needed(answer: Any) -> Any:
    return await answer if isawaitable(answer) else answer


def _elicitation_result(params: dict[str, JSON], answer: Any) -> dict[str, JSON]:
    if answer is None:
        return {"action": "decline"}
    if not isinstance(answer, Elicited):
        answer = Elicited("accept", answer)
    if not answer.accepted:
        return {"action": answer.action}
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": {**_form_defaults(params.get("requestedSchema")), **(answer.content or {})}}


def _form_defaults(schema: Any) -> dict[str, JSON]:
    """Returns the default of each field that has one (SEP-1034)."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {
        name: field["default"] for name, field in properties.items() if isinstance(field, dict) and "default" in field
    }


def _sampling_result(answer: Any) -> dict[str, JSON]:
    if isinstance(answer, str):
        content = {"type": "text", "text": answer}
        return {"role": "assistant", "content": content, "model": "unknown", "stopReason": "endTurn"}
    result: dict[str, JSON] = answer
    return result
