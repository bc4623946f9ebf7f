"""The state of a request that takes several rounds (2026-07-28): the client's answers, sealed between the rounds."""

import hashlib
from collections.abc import Mapping

import msgspec

from deltamcp.context import InputPending
from deltamcp.errors import Fault
from deltamcp.runtime.seal import Seal
from deltamcp.values import JSON, NO_INPUTS, Caller, Failure, InputRequired, Inputs

_NO_ANSWERS: Mapping[str, JSON] = {}


class RequestState:
    """Opens and seals `requestState`, which is valid only for its caller and its request."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read_answers(self, inputs: Inputs, caller: Caller, request: list[JSON]) -> Mapping[str, JSON] | Failure:
        """Returns the client's answers by key, those of this round and those of earlier rounds in the sealed state."""
        if inputs is NO_INPUTS:
            return _NO_ANSWERS
        if inputs.state is None:
            return inputs.responses
        earlier = self._seal.open(inputs.state, _binding(caller, request))
        if earlier is None:
            return Failure(
                Fault.INVALID_PARAMS, "params.requestState is not valid for this request; send the request without it."
            )
        return {**earlier, **inputs.responses}

    def ask(
        self, pending: InputPending, caller: Caller, request: list[JSON], answers: Mapping[str, JSON]
    ) -> InputRequired:
        """Returns the outcome that makes the client send its request again, with answers to the pending questions."""
        return InputRequired(pending.requests, self._seal.close(dict(answers), _binding(caller, request)))


def _binding(caller: Caller, request: list[JSON]) -> bytes:
    return hashlib.sha256(msgspec.json.encode([caller.principal.id, *request], order="deterministic")).digest()
