"""The rounds of one modern request: a client brings its answers, and the state that the server sealed for it."""

import hashlib
from collections.abc import Mapping

import msgspec

from deltamcp.context import InputPending
from deltamcp.errors import Fault
from deltamcp.runtime.seal import Seal
from deltamcp.values import JSON, NO_INPUTS, Caller, Failure, InputRequired, Inputs

_NO_ANSWERS: Mapping[str, JSON] = {}


class RequestState:
    """Opens and seals `requestState`, bound to its caller and its request."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def read_answers(self, inputs: Inputs, caller: Caller, request: list[JSON]) -> Mapping[str, JSON] | Failure:
        """What the client has answered so far: in this round, and in the rounds that the sealed state tells of."""
        if inputs is NO_INPUTS:
            return _NO_ANSWERS
        if inputs.state is None:
            return inputs.responses
        earlier = self._seal.open(inputs.state, _binding(caller, request))
        if earlier is None:
            return Failure(Fault.INVALID_PARAMS, "params.requestState is not valid for this request; send it anew.")
        return {**earlier, **inputs.responses}

    def ask(
        self, pending: InputPending, caller: Caller, request: list[JSON], answers: Mapping[str, JSON]
    ) -> InputRequired:
        """The outcome that has the client send its request again, with answers to these questions."""
        return InputRequired(pending.requests, self._seal.close(dict(answers), _binding(caller, request)))


def _binding(caller: Caller, request: list[JSON]) -> bytes:
    whole = msgspec.json.encode([caller.principal.id, *request], order="deterministic")
    return hashlib.sha256(whole).digest()
