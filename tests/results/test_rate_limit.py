"""Too many requests: the shapes that HTTP libraries give it, and what is never taken for it."""

import email.utils
import io
import urllib.response
import warnings
from http import HTTPStatus
from http.client import HTTPMessage
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.calls.rate_limits import original_rate_limit_result, rate_limit_result
from deltamcp.errors import PeerError, ToolError
from tests.support.strategies import any_json

NOW = 1_800_000_000.0
WEEK = 604_800


def waited(error: object) -> Any:
    result = rate_limit_result(error, "search", NOW)
    return None if result is None else result["retryAfterSeconds"]


def limit(**headers: Any) -> dict[str, Any]:
    return {"status": 429, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}


def answer(status: int = 429, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=named, request=httpx2.Request("GET", "https://example.com/?key=secret"))


def raised(response: httpx2.Response) -> httpx2.HTTPStatusError:
    with pytest.raises(httpx2.HTTPStatusError) as caught:
        response.raise_for_status()
    return caught.value


def refused(code: int, **headers: str) -> urllib.error.HTTPError:
    message = HTTPMessage()
    for name, text in headers.items():
        message[name.replace("_", "-")] = text
    return urllib.error.HTTPError("https://example.com/?key=secret", code, "No", message, io.BytesIO())


def caught(raising: Any) -> Exception:
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError


# Delta-MCP's own checks.


def test_cs_04_09_the_fields_are_in_order_and_there_is_no_empty_message():
    result = rate_limit_result({"status": 429, "headers": {"retry-after": "60"}}, "search", NOW)
    assert result is not None
    assert list(result.items()) == [("type", "rate_limited"), ("retryAfterSeconds", 60), ("upstream", "search")]


def test_cs_04_10_status_429_with_retry_after_60_converts():
    assert waited(limit(retry_after="60")) == 60


@pytest.mark.parametrize("error", [{"status": 500}, SimpleNamespace(status=500), None])
def test_cs_04_11_status_500_and_null_are_none(error):
    assert rate_limit_result(error, "search", NOW) is None


def test_cs_04_12_without_retry_after_it_is_30():
    assert waited({"status": 429}) == 30


@pytest.mark.parametrize(
    "error",
    [
        SimpleNamespace(response=SimpleNamespace(status=429, headers={"retry-after": "7"})),
        {"status": "429", "headers": {"retry-after": "7"}},
        {"status": 429, "headers": httpx2.Headers({"Retry-After": "7"})},
        {"status": 429, "headers": {"Retry-After": "7"}},
        {"status": 429, "headers": {"retry-after": email.utils.formatdate(NOW + 7, usegmt=True)}},
    ],
)
def test_what_delta_mcp_misses_is_found(error):
    assert waited(error) == 7


# Libraries.


def test_a_response_of_httpx_counts_and_so_does_what_it_raises():
    response = answer(retry_after="12")
    assert waited(response) == 12
    assert waited(raised(response)) == 12


def test_an_error_of_urllib_counts():
    assert waited(refused(429, Retry_After="12")) == 12
    assert waited(refused(500, Retry_After="12")) is None


def test_a_response_of_urllib_counts():
    message = HTTPMessage()
    message["RETRY-AFTER"] = "3"
    assert waited(urllib.response.addinfourl(io.BytesIO(), message, "https://example.com", 429)) == 3


def test_an_error_of_requests_counts():
    try:
        import requests  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        # Like the real one, false where the status is an error.
        kind = type("Response", (), {"__bool__": lambda self: False, "status_code": 429})
        response: Any = kind()
        error: Any = OSError("429 Client Error")
        error.response = response
    else:
        response = requests.Response()
        response.status_code = 429
        error = requests.HTTPError("429 Client Error", response=response)
    response.headers = {"Retry-After": "9"}
    assert waited(response) == 9
    assert waited(error) == 9


class ClientResponseError(Exception):
    """As aiohttp's."""

    def __init__(self, status: int, headers: Any) -> None:
        super().__init__(status)
        self.status, self.headers = status, headers

    @property
    def code(self) -> int:
        warnings.warn("code property is deprecated, use status instead", DeprecationWarning, stacklevel=2)
        return self.status


def test_an_error_of_aiohttp_counts_and_its_deprecated_code_is_not_read():
    assert waited(ClientResponseError(429, {"Retry-After": "4"})) == 4
    assert waited(ClientResponseError(429, None)) == 30
    assert waited(ClientResponseError(502, {"Retry-After": "4"})) is None


@pytest.mark.parametrize("name", ["status", "status_code", "statusCode", "code"])
@pytest.mark.parametrize("value", [429, "429", " 429 ", "429 Too Many Requests", HTTPStatus.TOO_MANY_REQUESTS, 429.0])
def test_the_status_has_many_names_and_forms(name, value):
    assert waited({name: value}) == 30
    assert waited(SimpleNamespace(**{name: value})) == 30
    assert waited(SimpleNamespace(response={name: value})) == 30
    assert waited(SimpleNamespace(response=SimpleNamespace(response=SimpleNamespace(**{name: value})))) == 30


@pytest.mark.parametrize(
    "value", [428, "4290", "429x", "٤٢٩", True, None, 429.5e3, [429], {"429": 1}, b"", "", lambda: 429, float("nan")]
)
def test_anything_else_is_no_status(value):
    assert waited(SimpleNamespace(status=value, code=value)) is None


def test_a_503_with_retry_after_is_no_rate_limit():
    assert waited(answer(503, retry_after="5")) is None
    assert waited(raised(answer(503, retry_after="5"))) is None


@pytest.mark.parametrize("error", [ValueError("429"), "429", 429, {"message": "429"}, PeerError(-32000, "no"), [], {}])
def test_what_tells_no_status_is_none(error):
    assert rate_limit_result(error, "search", NOW) is None


# What stands behind an exception.


def test_the_cause_and_the_context_count():
    def from_cause() -> None:
        raise RuntimeError("no luck") from raised(answer(retry_after="5"))

    def in_context() -> None:
        try:
            raise raised(answer(retry_after="6"))
        except httpx2.HTTPError:
            raise RuntimeError("no luck")  # noqa: B904

    assert waited(caught(from_cause)) == 5
    assert waited(caught(in_context)) == 6


def test_a_context_that_the_author_hid_stays_hidden():
    def hiding() -> None:
        try:
            raise raised(answer())
        except httpx2.HTTPError:
            raise ToolError("Nothing found.") from None

    assert waited(caught(hiding)) is None


def test_the_nearest_status_decides():
    def retrying() -> None:
        try:
            raise raised(answer(429))
        except httpx2.HTTPError:
            raise raised(answer(503))  # noqa: B904

    assert waited(caught(retrying)) is None


def test_a_code_of_another_kind_decides_nothing():
    error = PeerError(-32000, "upstream failed")
    error.__cause__ = raised(answer(retry_after="8"))
    assert waited(error) == 8
    error.code = 200
    assert waited(error) == 8


def test_the_only_error_of_a_group_counts():
    assert waited(ExceptionGroup("tasks", [raised(answer(retry_after="5"))])) == 5
    assert waited(ExceptionGroup("tasks", [raised(answer()), ValueError()])) is None


def test_chains_are_followed_so_far_and_no_further_even_in_a_circle():
    def behind(count: int) -> Exception:
        error: Exception = raised(answer())
        for _ in range(count):
            outer = RuntimeError()
            outer.__cause__ = error
            error = outer
        return error

    assert waited(behind(15)) == 30
    assert waited(behind(16)) is None
    one, other = RuntimeError(), RuntimeError()
    one.__cause__, other.__cause__ = other, one
    assert waited(one) is None


def test_a_wait_told_by_a_wrapper_counts():
    error: Any = ToolError("The service is busy.")
    error.retry_after = 11
    error.__cause__ = raised(answer())
    assert waited(error) == 11
    error.__cause__ = raised(answer(retry_after="3"))
    assert waited(error) == 3


def test_headers_of_the_response_count_where_the_error_has_the_status():
    assert waited(SimpleNamespace(status=429, response=answer(retry_after="13"))) == 13


# How long.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1", 1),
        (" 60 ", 60),
        ("1.2", 2),
        ("2.", 2),
        ("60s", 60),
        ("60 seconds", 60),
        (b"17", 17),
        (17, 17),
        (1.5, 2),
        (["21"], 21),
        ("604800", WEEK),
        ("604801", WEEK),
        ("1000000000", WEEK),
        ("9" * 400, WEEK),
        (10**400, WEEK),
        (1e308, WEEK),
        ("-5", 30),
        (-5, 30),
        ("nan", 30),
        (float("nan"), 30),
        (float("inf"), 30),
        ("", 30),
        ("soon", 30),
        ("٣", 30),
        ("2h", 30),
        (True, 30),
        (None, 30),
        ({}, 30),
    ],
)
def test_seconds(text, seconds):
    assert waited(limit(retry_after=text)) == seconds


@pytest.mark.parametrize("name", ["retry_after", "retryAfter"])
def test_attributes_tell_the_wait(name):
    assert waited(SimpleNamespace(status=429, **{name: 2.5})) == 3
    assert waited({"status": 429, name: "14"}) == 14
    assert waited({"status": 429, name: None}) == 30


@pytest.mark.parametrize(
    "date",
    # RFC 9110, 5.6.7: one moment in its three forms.
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_dates(date):
    moment = 784_111_777
    error = limit(retry_after=date)
    for now, seconds in ((moment - 90, 90), (moment - 0.5, 1), (moment, 0), (moment + 90, 0), (0, WEEK)):
        assert rate_limit_result(error, "search", now) == {
            "type": "rate_limited",
            "retryAfterSeconds": seconds,
            "upstream": "search",
        }


def test_a_date_out_of_range_is_not_readable():
    assert waited(limit(retry_after="Sun, 06 Nov 99999 08:49:37 GMT")) == 30


@pytest.mark.parametrize("name", ["x-ratelimit-reset", "ratelimit-reset", "X-RateLimit-Reset", "RateLimit-Reset"])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("25", 25),
        (str(int(NOW) + 25), 25),
        (str((int(NOW) + 25) * 1000), 25),
        (NOW + 25.5, 26),
        (str(int(NOW) - 25), 0),
        (10**400, WEEK),
        (email.utils.formatdate(NOW + 25, usegmt=True), 25),
        ("soon", 30),
    ],
)
def test_the_reset_counts_where_retry_after_does_not(name, text, seconds):
    assert waited({"status": 429, "headers": {name: text}}) == seconds
    assert waited({"status": 429, "headers": {name: text, "Retry-After": "2"}}) == 2
    assert waited({"status": 429, "headers": {name: text, "Retry-After": "soon"}}) == seconds


def test_headers_come_in_many_kinds():
    message = email.message.Message()
    message["rEtry-aFter"] = "5"

    class OnlyGet:
        def get(self, name: str) -> str | None:
            return {"Retry-After": "5"}.get(name)

    for headers in (
        {"retry-after": "5"},
        {"RETRY-AFTER": "5"},
        {b"Retry-After": b"5"},
        {"Retry-After": ["5"]},
        {1: 2, "Retry-After": "5"},
        [("Host", "x"), ("Retry-After", "5")],
        ((b"retry-after", b"5"),),
        httpx2.Headers([("retry-after", "5")]),
        httpx2.Headers([("retry-after", "5")]).raw,
        message,
        OnlyGet(),
    ):
        assert waited({"status": 429, "headers": headers}) == 5
    for odd in (None, 5, "retry-after: 5", [1, 2], [("Retry-After",)], object()):
        assert waited({"status": 429, "headers": odd}) == 30


# The message.


def test_text_meant_for_the_model_is_the_message():
    error: Any = ToolError("The search service is busy. \ud800")
    error.status = 429
    assert rate_limit_result(error, "search", NOW) == {
        "type": "rate_limited",
        "retryAfterSeconds": 30,
        "upstream": "search",
        "message": "The search service is busy. ?",
    }
    empty: Any = ToolError(" ")
    empty.status = 429
    assert "message" not in (rate_limit_result(empty, "search", NOW) or {"message": 0})


def test_the_text_of_other_exceptions_stays_here():
    for error in (raised(answer()), refused(429), {"status": 429, "message": "https://example.com/?key=secret"}):
        assert "secret" not in str(rate_limit_result(error, "search", NOW))


# Objects that misbehave.


def _boom(*arguments: Any) -> Any:
    raise RuntimeError("boom")


class Evil:
    __getattr__ = _boom
    __eq__ = _boom
    __hash__ = _boom
    __bool__ = _boom
    __iter__ = _boom
    __str__ = _boom


class Selfish:
    def __getattr__(self, name: str) -> "Selfish":
        return self


class Two(Selfish):
    status = 429


class EvilError(Exception):
    status = 429
    headers = property(_boom)
    response = property(_boom)
    retry_after = property(_boom)


class Liar:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("boom")


class EvilToolError(ToolError):
    status = 429
    __str__ = _boom


# Made in the tests: pytest looks at its parameters too.


def test_whatever_an_object_does_nothing_is_raised():
    for error in (Evil(), Selfish(), Liar(), EvilToolError("x"), MagicMock(), Mock(spec=httpx2.Response)):
        assert rate_limit_result(error, "search", NOW) is None


def test_a_status_is_found_on_what_can_hardly_be_read():
    for error in (
        EvilError(),
        Two(),
        MagicMock(status=429),
        SimpleNamespace(status=429, headers=Evil(), retry_after=Evil()),
        SimpleNamespace(status=429, headers={"Retry-After": Evil()}),
        SimpleNamespace(status=429, headers=[(Evil(), "5")]),
        SimpleNamespace(status=429, headers=Liar(), retry_after=Mock(spec=int)),
        SimpleNamespace(status=429, response=Evil(), retry_after=Liar()),
    ):
        assert waited(error) == 30


@given(any_json, any_json, st.floats())
def test_anything_at_all_gives_a_result_or_none(status, headers, now):
    for error in (status, {"status": status}, {"code": 429, "headers": headers}, SimpleNamespace(response=status)):
        result = rate_limit_result(error, "search", now)
        assert result is None or 0 <= result["retryAfterSeconds"] <= WEEK


@given(st.text() | st.integers() | st.floats() | st.binary(), st.floats(0, 4e9))
def test_any_wait_comes_to_something_between_0_and_a_week(wait, now):
    for error in (limit(retry_after=wait), limit(ratelimit_reset=wait), {"status": 429, "retry_after": wait}):
        result = rate_limit_result(error, "search", now)
        assert result is not None
        assert 0 <= result["retryAfterSeconds"] <= WEEK
        assert type(result["retryAfterSeconds"]) is int


# As Delta-MCP 0.2 writes it


class Limited(Exception):
    """What its example throws."""

    status = 429

    def __init__(self, message: str, **headers: Any) -> None:
        super().__init__(message)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


ORIGINAL_WAITS = [
    ("1.5", 1),
    ("17 seconds", 17),
    ("abc", 30),
    ("-5", 30),
    ("0", 0),
    (" 12", 12),
    ("+7", 7),
    ("Wed, 21 Oct 2026 07:28:00 GMT", 30),
    (1.9, 1),
    (None, 30),
    ("99999999999999999999", 100000000000000000000),
    ("1e3", 1),
    ("", 30),
]
"""What Delta-MCP 0.2.1 made of these, run under Node 20."""


@pytest.mark.parametrize(("stated", "wait"), ORIGINAL_WAITS)
def test_the_originals_waits(stated, wait):
    assert original_rate_limit_result(Limited("Too many", retry_after=stated), "u") == {
        "type": "rate_limited",
        "retryAfterSeconds": wait,
        "upstream": "u",
        "message": "Too many",
    }


def test_the_originals_message_is_that_of_any_error():
    result = original_rate_limit_result(raised(answer(retry_after="60")), "search")
    assert result is not None and "https://example.com/?key=secret" in str(result["message"])
    assert original_rate_limit_result(Limited(""), "u") == {
        "type": "rate_limited",
        "retryAfterSeconds": 30,
        "upstream": "u",
    }


@pytest.mark.parametrize("error", [ValueError("no"), raised(answer(503, retry_after="9"))])
def test_the_original_takes_nothing_else_for_it_either(error):
    assert original_rate_limit_result(error, "u") is None
