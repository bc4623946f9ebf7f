"""Canonical JSON: the samples of RFC 8785, and properties of any value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.wire.canonical import encode_canonical, sha256_digest

# RFC 8785, appendix B.
NUMBERS = [
    (5e-324, "5e-324"),
    (-5e-324, "-5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (9007199254740992.0, "9007199254740992"),
    (295147905179352830000.0, "295147905179352830000"),
    (9.999999999999997e22, "9.999999999999997e+22"),
    (1e23, "1e+23"),
    (1.0000000000000001e23, "1.0000000000000001e+23"),
    (999999999999999700000.0, "999999999999999700000"),
    (999999999999999900000.0, "999999999999999900000"),
    (1e21, "1e+21"),
    (9.999999999999997e-7, "9.999999999999997e-7"),
    (0.000001, "0.000001"),
    (333333333.3333332, "333333333.3333332"),
    (-0.0000033333333333333333, "-0.0000033333333333333333"),
    (1424953923781206.2, "1424953923781206.2"),
    (0.0, "0"),
    (-0.0, "0"),
    (4.5, "4.5"),
    (9223372036854775807, "9223372036854776000"),
]

# Above 2**53 a float and the integer it is written as are one number to JavaScript, two to Python.
floats = st.floats(min_value=-(2.0**53), max_value=2.0**53)
integers = st.integers(-(2**53), 2**53)
any_json = st.recursive(
    st.none() | st.booleans() | integers | floats | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(("number", "text"), NUMBERS)
def test_numbers_are_written_as_ecmascript_does(number, text):
    assert encode_canonical(number).decode() == text


def test_keys_are_ordered_by_utf_16_units():
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    assert list(json.loads(encode_canonical(dict.fromkeys(keys, 0)))) == [
        "\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33",
    ]  # fmt: skip


def test_what_json_lacks_is_refused():
    for value in (float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError, match=r"nan|inf|double"):
            encode_canonical([value])


@given(any_json)
def test_it_is_the_same_value(value):
    assert json.loads(encode_canonical(value)) == value


@given(st.dictionaries(st.text(), integers))
def test_the_order_of_keys_does_not_matter(value):
    assert sha256_digest(encode_canonical(value)) == sha256_digest(encode_canonical(dict(reversed(value.items()))))


@given(any_json, any_json)
def test_equal_digests_mean_equal_values(one, other):
    assert (sha256_digest(encode_canonical(one)) == sha256_digest(encode_canonical(other))) == (
        encode_canonical(one) == encode_canonical(other)
    )
    if encode_canonical(one) == encode_canonical(other):
        assert one == other
