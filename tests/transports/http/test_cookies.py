"""Cookies of requests, by the grammar of RFC 6265."""

from http.cookies import SimpleCookie

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.transports.http.asgi import read_cookie

NAME = "delta-mcp-login"
_TOKEN = "!#$%&'*+-.^_`|~0123456789abcXYZ"
_OCTETS = "".join(map(chr, (0x21, *range(0x23, 0x2C), *range(0x2D, 0x3B), *range(0x3C, 0x5C), *range(0x5D, 0x7F))))
_VALUES = st.text(_OCTETS, max_size=20)
_PAIRS = st.tuples(st.text(_TOKEN, min_size=1, max_size=20), st.one_of(_VALUES, _VALUES.map('"{}"'.format)))
_OTHERS = st.lists(_PAIRS.filter(lambda pair: pair[0] != NAME), max_size=8)


def headers_of(*cookie_strings: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), *((b"cookie", one.encode("latin-1")) for one in cookie_strings)]


def cookie_string(pairs: list[tuple[str, str]]) -> str:
    return "; ".join(f"{name}={value}" for name, value in pairs)


@given(_OTHERS, _OTHERS, _VALUES)
def test_a_cookie_is_found_wherever_it_is(before: list[tuple[str, str]], after: list[tuple[str, str]], value: str):
    whole = cookie_string([*before, (NAME, value), *after])
    assert read_cookie(headers_of(whole), NAME) == value
    assert read_cookie(headers_of(cookie_string(before), cookie_string([(NAME, value), *after])), NAME) == value
    assert read_cookie(headers_of(cookie_string([*before, *after])), NAME) is None


@given(_OTHERS.map(lambda pairs: [("n" + name.replace("$", ""), value) for name, value in pairs]), st.text("aZ09-_"))
def test_what_a_browser_sends_is_read_as_python_reads_it(others: list[tuple[str, str]], value: str):
    sent = cookie_string([*others, (NAME, value)])
    peer = SimpleCookie(sent)
    assert NAME not in peer or peer[NAME].value == read_cookie(headers_of(sent), NAME)


@given(st.binary(max_size=200))
def test_any_bytes_are_read(value: bytes):
    found = read_cookie([(b"cookie", value)], NAME)
    assert found is None or found.encode("latin-1") in value


def test_of_two_that_differ_none_counts():
    assert read_cookie(headers_of(f"{NAME}=a; {NAME}=a"), NAME) == "a"
    assert read_cookie(headers_of(f"{NAME}=a; {NAME}=b"), NAME) is None
    assert read_cookie(headers_of(f"{NAME}=a", f"{NAME}=b"), NAME) is None
