"""Cookies of HTTP requests. Python's own reader takes a time that grows with the square of the header's length."""

from collections.abc import Iterable


def read_cookie(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """Returns the value of a cookie; None if the request has no such cookie, or several that differ.

    A page of a neighbouring host can add a cookie of the same name, and its place among them says nothing
    (RFC 6265, 4.2.2).
    """
    wanted, found = name.encode(), set()
    for header, value in headers:
        if header == b"cookie":
            for pair in value.split(b";"):
                cookie, equals, text = pair.partition(b"=")
                if equals and cookie.strip(b" \t") == wanted:
                    found.add(text.strip(b" \t"))
    return found.pop().decode("latin-1") if len(found) == 1 else None
