"""Messages of a server over gRPC that is broken or means harm: they are read, or malformed, and raise nothing else."""

from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2

from deltamcp import Limits
from deltamcp.client.links import grpc
from deltamcp.transports.grpc.requests import lite_messages
from deltamcp.values import Response

MESSAGES = lite_messages()


def read_result(message: Any) -> Any:
    found = grpc.read_response(message.SerializeToString(), 1, Limits())
    assert isinstance(found, Response)
    return found.result


@pytest.mark.parametrize("pointers", [5, [5], [None], "/a", {"a": 1}, ["/a/b/c"]])
def test_pointers_that_are_none_are_skipped(pointers):
    message = MESSAGES.ToolResponse()
    message.result.update({"a": "12"})
    message.meta.extra.update({"stringified": pointers})
    assert read_result(message)["a"] == "12"


@pytest.mark.parametrize("meta", [5, [1], "x"])
def test_a_meta_that_is_no_object_is_none(meta):
    message = MESSAGES.ToolResponse()
    message.result.update({"_meta": meta})
    message.meta.promise_token = "prom_x"
    assert read_result(message)["_meta"] == {"response_type": "answer", "promise_token": "prom_x"}


def error_data(*details: tuple[str, bytes]) -> Any:
    status = status_pb2.Status(code=3)
    for name, value in details:
        status.details.add(type_url=f"type.googleapis.com/google.rpc.{name}", value=value)
    return grpc._error_data(status)


@pytest.mark.parametrize("name", ["ErrorInfo", "BadRequest", "RetryInfo"])
def test_malformed_details_of_an_error_say_nothing(name):
    assert error_data((name, b"\xff\xff"))["retryable"] in (False, True)


def test_texts_do_not_stand_for_numbers_in_an_errors_data():
    info = error_details_pb2.ErrorInfo(reason="OVERLOADED", metadata={"retry_after_ms": "soon", "retryable": "yes"})
    assert error_data(("ErrorInfo", info.SerializeToString())) == {"reason": "OVERLOADED", "retryable": False}
