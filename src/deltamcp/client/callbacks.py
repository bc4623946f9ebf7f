"""What a server may ask its client: elicitation, sampling, roots. Answered by the program's callbacks, in both eras."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias

from deltamcp.context import Elicited
from deltamcp.errors import FAULTS, Fault, PeerError
from deltamcp.values import JSON

OnElicitation: TypeAlias = Callable[[dict[str, JSON]], "Elicited | dict[str, JSON] | Awaitable[Any] | None"]
"""Takes the question as it was asked (`message`, `requestedSchema`, or `mode: "url"` and `url`) and gives what the user
made of it: an `Elicited`, the filled-in form as a dict, or None where the user declined."""
OnSampling: TypeAlias = Callable[[dict[str, JSON]], "dict[str, JSON] | str | Awaitable[Any]"]
"""Takes a `sampling/createMessage` and gives its result, or just the text the model wrote."""

_UNKNOWN_METHOD = FAULTS[Fault.UNKNOWN_METHOD].handshake


class ClientCallbacks:
    """The callbacks a client was given."""

    def __init__(
        self,
        elicitation: OnElicitation | None,
        sampling: OnSampling | None,
        roots: Sequence[str | dict[str, JSON]] | None,
    ) -> None:
        self.elicitation = elicitation
        self.sampling = sampling
        self.roots = roots

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        """The result of a server's request.

        Raises:
            PeerError: what the server is to be told instead.
        """
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
        """What a request is sent again with (MCP 2026-07-28, "Multi Round-Trip Requests").

        Raises:
            PeerError: a question that this client never said it could answer.
        """
        asked: Any = result.get("inputRequests")
        made: dict[str, JSON] = {}
        if isinstance(asked, dict):
            answers = await asyncio.gather(*(self._answer_input(question) for question in asked.values()))
            made["inputResponses"] = dict(zip(asked, answers, strict=True))
        if "requestState" in result:
            made["requestState"] = result["requestState"]
        return made

    async def _answer_input(self, question: Any) -> dict[str, JSON]:
        if not isinstance(question, dict) or not isinstance(question.get("method"), str):
            raise PeerError(0, "The server asked something that is no question.")
        params = question.get("params")
        return await self.answer(question["method"], params if isinstance(params, dict) else {})


async def _await_if_needed(given: Any) -> Any:
    return await given if isawaitable(given) else given


def _elicitation_result(params: dict[str, JSON], given: Any) -> dict[str, JSON]:
    if given is None:
        return {"action": "decline"}
    if not isinstance(given, Elicited):
        given = Elicited("accept", given)
    if not given.accepted:
        return {"action": given.action}
    if params.get("mode") == "url":
        return {"action": "accept"}
    return {"action": "accept", "content": {**_form_defaults(params.get("requestedSchema")), **(given.content or {})}}


def _form_defaults(schema: Any) -> dict[str, JSON]:
    """SEP-1034: what a form says where its user says nothing."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {
        name: field["default"] for name, field in properties.items() if isinstance(field, dict) and "default" in field
    }


def _sampling_result(given: Any) -> dict[str, JSON]:
    if isinstance(given, str):
        content = {"type": "text", "text": given}
        return {"role": "assistant", "content": content, "model": "unknown", "stopReason": "endTurn"}
    made: dict[str, JSON] = given
    return made
