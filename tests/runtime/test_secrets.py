"""Secrets are removed in every spelling in which a service may repeat them."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import BlobResource, EmbeddedResource, Image, Text, ToolResult
from deltamcp.runtime.secrets import _PART_BYTES, Secrets, address_secrets, named_secrets, shell_words, variable_secrets
from deltamcp.work import Work, WorkLimitError, unlimited_work
from tests.support.secret_encodings import ENCODINGS

SECRET = 'p&/ss "wörd"+1<2>'
STEPS = 100_000
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_removed_in_the_encoding_of(encoding):
    @given(WORDS, WORDS)
    def check(before: str, after: str) -> None:
        encode = ENCODINGS[encoding]
        repeated = encode(before + SECRET + after)
        redacted = Secrets([SECRET]).redact(repeated)
        assert redacted != repeated and encode(SECRET).strip('"=') not in redacted

    check()


@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=30), st.binary(max_size=9), st.binary(max_size=9))
def test_any_secret_is_removed_from_base64_of_longer_data(secret, before, after):
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    assert Secrets([secret]).redact(encoded) != encoded


@pytest.mark.parametrize(
    ("result", "redacted"),
    [
        ("key=tok-12345678!", "key=...!"),
        ({"tok-12345678": ["a tok-12345678", 1, True, None]}, {"...": ["a ...", 1, True, None]}),
        ({"tok-12345678": 1, "...": 2, "x tok-12345678": 3}, {"......": 1, "...": 2, "x ...": 3}),
        ([123456789, 5, 1.5], ["...", 5, 1.5]),
        (Text("tok-12345678"), Text("...")),
        (Text("a", meta={"k": "tok-12345678"}), Text("a", meta={"k": "..."})),
        (Image(b"\x89tok-12345678\xff", "image/png"), Image(b"\x89...\xff", "image/png")),
        (
            EmbeddedResource(BlobResource("x://tok-12345678", b"1tok-12345678")),
            EmbeddedResource(BlobResource("x://...", b"1...")),
        ),
        (
            ToolResult([Text("tok-12345678")], {"a": "tok-12345678"}, True, {"m": "tok-12345678"}),
            ToolResult([Text("...")], {"a": "..."}, True, {"m": "..."}),
        ),
    ],
)
def test_secrets_are_removed_from_every_part_of_a_result(result, redacted):
    found = Secrets(["tok-12345678", "123456789"]).redact_result(result, Work(STEPS))
    assert found == redacted and type(found) is type(redacted)


def test_what_has_no_secret_is_returned_as_it_is():
    result = {"a": ["b", 1.0, 123456]}
    assert Secrets(["tok-12345678"]).redact_result(result, Work(STEPS)) is result


def test_the_work_grows_with_the_size_of_the_result_and_no_faster():
    def steps(rows: int) -> int:
        result = [{"name": "tok-12345678", "value": at} for at in range(rows)]
        budget = 1
        while True:
            try:
                Secrets(["tok-12345678"]).redact_result(result, Work(budget))
            except WorkLimitError:
                budget *= 2
            else:
                return budget

    assert steps(1_000) < steps(8_000) <= 16 * steps(1_000)


def test_the_end_of_a_beginning_may_be_a_part_of_a_secret_and_is_left_out():
    secret = "s" * 50 + "e" * 50
    for end in range(100):
        shown = Secrets([secret]).redact_excerpt("hello there, this is a text. " * 10 + secret[:end], False, 1_000)
        assert "s" * 10 not in shown and shown.startswith("hello")


def test_short_texts_are_no_secrets():
    assert Secrets(["12345"]).redact("12345 123456") == "12345 123456"


@pytest.mark.parametrize(
    ("value", "secrets"),
    [
        ("abcdefgh", {"abcdefgh"}),
        (" abcdefgh\n", {"abcdefgh"}),
        ("/", set()),
        ("/no/such/path", {"/no/such/path"}),
        ("https://api.example.com/v1", set()),
        ("https://u:pass%20word@api.example.com", {"pass%20word", "pass word"}),
        ("https://hooks.example.com/T00/0123456789abcdef", {"0123456789abcdef"}),
        ("https://example.com/?q=whatever", {"whatever"}),
        ("postgres://u:password@db", {"password"}),
    ],
)
def test_a_variable_is_a_secret_unless_it_is_a_path_or_an_address(value, secrets):
    assert set(variable_secrets([value])) == secrets


@pytest.mark.parametrize(
    ("found", "secrets"),
    [
        (named_secrets({"Authorization": "Bearer abc", "Accept": "text/html"}), {"abc"}),
        (
            named_secrets({"authorization": "Basic dTpwYXNzd29yZA=="}),
            {"dTpwYXNzd29yZA==", "u:password", "password"},
        ),
        (named_secrets({"authorization": "Basic not base64"}), {"not base64"}),
        (named_secrets({"X-Api-Key": "abc", "COOKIE": "a=b; c=d"}), {"abc", "b", "d"}),
        (address_secrets("https://example.com/?api_key=abc&page=2"), {"abc"}),
    ],
)
def test_names_and_addresses_tell_of_secrets(found: Any, secrets: set[str]):
    assert set(found) == secrets


@pytest.mark.parametrize("before", [0, 1, _PART_BYTES - 10, _PART_BYTES - 4, _PART_BYTES, 2 * _PART_BYTES - 7])
def test_a_secret_is_found_wherever_the_parts_that_are_searched_end(before: int) -> None:
    redacted = Secrets(["secret-123"]).redact_result(["a" * before + "secret-123" + "a" * 10], unlimited_work())
    assert redacted == ["a" * before + "..." + "a" * 10]


def test_a_large_value_is_searched_in_parts() -> None:
    class Part(bytes):
        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            sizes.append(len(found))
            return found

    sizes: list[int] = []
    assert not Secrets(["secret-123"])._is_in(Part(b"a" * 5 * _PART_BYTES))
    assert len(sizes) == 5 and max(sizes) < _PART_BYTES + 100


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_what_is_nested_too_deeply_to_be_searched_is_refused(wrap: Any) -> None:
    value: Any = "secret-123"
    for _ in range(850):
        value = wrap(value)
    with pytest.raises(WorkLimitError):
        Secrets(["secret-123"]).redact_result(value, unlimited_work())


def test_what_bash_writes_before_a_quotation_mark_is_no_part_of_a_word():
    words = shell_words("npx --token=$'abc def' $\"ghi\" 'costs 5$' \"5$\"")
    assert words == ["npx", "--token=abc def", "ghi", "costs 5$", "5$"]
