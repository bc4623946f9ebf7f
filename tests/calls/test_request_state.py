"""The sealed state of requests that take several rounds."""

from deltamcp.calls.request_context import RequestState
from deltamcp.context import InputPending
from deltamcp.runtime.seal import Seal
from deltamcp.values import ANONYMOUS_CALLER, Failure, InputRequest, InputRequired, Inputs

REQUEST = ["tools/call", "ask", {}]
PENDING = InputPending({"q": InputRequest("roots/list", {})})


def state_after(answers: dict[str, str]) -> InputRequired | Failure:
    state = RequestState(Seal([b"k" * 32], 60), 60)
    read = state.read_answers(Inputs(answers), ANONYMOUS_CALLER, REQUEST)
    assert not isinstance(read, Failure)
    return state.ask(PENDING, ANONYMOUS_CALLER, REQUEST, read)


def test_answers_are_sealed_up_to_a_size_and_the_state_of_that_size_opens():
    largest = {"a": "x" * (256 * 1024 - 8)}
    asked = state_after(largest)
    assert isinstance(asked, InputRequired) and asked.state is not None
    read = RequestState(Seal([b"k" * 32], 60), 60).read_answers(Inputs({}, asked.state), ANONYMOUS_CALLER, REQUEST)
    assert not isinstance(read, Failure) and read.by_key == largest

    refused = state_after({"a": "x" * (256 * 1024 - 7)})
    assert isinstance(refused, Failure) and "262,144 bytes" in refused.message


def test_a_longer_state_than_the_server_seals_is_not_decoded(monkeypatch):
    monkeypatch.setattr(Seal, "open", lambda *_: 1 / 0)
    state = RequestState(Seal([b"k" * 32], 60), 60)
    refused = state.read_answers(Inputs({}, "A" * 1_000_000), ANONYMOUS_CALLER, REQUEST)
    assert isinstance(refused, Failure) and "requestState" in refused.message
