"""`Mcp-Param-*` headers: the table of SEP-2243 and properties of its encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import ConfigurationError
from deltamcp.catalog import param_headers
from tests.support.call_count import count_calls


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_a_header(value):
    assert param_headers.decode(param_headers.encode(value).encode()) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_header_is_always_printable_ascii(value):
    assert all(32 <= byte <= 126 for byte in param_headers.encode(value).encode())


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_the_specifications_examples(value, encoded):
    """MCP 2026-07-28, "Value Encoding"."""
    assert param_headers.encode(value) == encoded


@pytest.mark.parametrize(
    "sent", [b"=?base64?SGVsbG8?=", b"=?base64?SGVs!!!bG8=?=", b"\xc3\xa4", b"a\x01b", b"=?base64?/w==?="]
)
def test_a_malformed_value_is_none(sent):
    assert param_headers.decode(sent) is None


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("42", 42, True),
        ("42.0", 42, True),
        ("43", 42, False),
        ("x", 42, False),
        ("true", True, True),
        ("True", True, False),
        ("1", True, False),
        ("a", "a", True),
        ("A", "a", False),
        ("1", "1", True),
        ("x", [], False),
    ],
)
def test_a_header_and_a_body_are_compared_by_meaning(text, value, same):
    assert param_headers.is_same_value(text, value) is same


def test_nested_properties_are_found_by_their_path():
    schema = {"properties": {"a": {"properties": {"b": {"type": "integer", "x-mcp-header": "Deep"}}}}}

    (found,) = param_headers.declared_headers("tool", schema)

    assert (found.header, found.path) == (b"mcp-param-deep", ("a", "b"))
    assert param_headers.value_at({"a": {"b": 3}}, found.path) == 3
    assert param_headers.value_at({"a": []}, found.path) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "two words"}}},
        {"properties": {"a": {"type": "number", "x-mcp-header": "N"}}},
        {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "I"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "O"}}}]},
        {"type": "string", "x-mcp-header": "Root"},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}},
    ],
)
def test_an_annotation_clients_would_reject_is_told_at_registration(schema):
    with pytest.raises(ConfigurationError):
        param_headers.declared_headers("tool", schema)


def test_data_that_looks_like_an_annotation_is_none():
    assert (
        param_headers.declared_headers(
            "tool", {"properties": {"a": {"default": {"x-mcp-header": 3}, "type": "object"}}}
        )
        == ()
    )


@given(st.text(" \t=?x\xe9\0", max_size=6) | st.text(st.characters(exclude_categories=["Cs"])))
def test_a_verbatim_header_means_its_text(value):
    for sent in (value.encode(), param_headers.encode(value).encode(), value.encode() + b" "):
        if param_headers.is_verbatim(sent, value):
            assert param_headers.decode(sent) == value


def test_a_plain_header_is_verbatim():
    assert param_headers.is_verbatim(b"tools/call", "tools/call")
    assert not param_headers.is_verbatim(b"tools/call ", "tools/call")


def test_the_work_of_many_headers_grows_with_their_number():
    def declare(count: int) -> int:
        properties = {f"p{number}": {"type": "string", "x-mcp-header": f"h{number}"} for number in range(count)}
        return count_calls(lambda: param_headers.declared_headers("t", {"properties": properties}))

    assert declare(2_000) < 2.5 * declare(1_000)


def test_an_error_about_a_header_is_short():
    schema = {"properties": {"p": {"type": "string", "x-mcp-header": " " * 100_000}}}
    with pytest.raises(ConfigurationError) as refused:
        param_headers.declared_headers("t" * 100_000, schema)
    assert len(str(refused.value)) < 300
