"""Canonical forms: JSON (RFC 8785), by which equal values are equal bytes, with digests; and times (RFC 3339)."""

import functools
import hashlib
import math
from decimal import Decimal

from msgspec.json import encode as _encode

from deltamcp.values import JSON

_MAX_EXACT_INTEGER = 1 << 53


def encode_canonical(value: JSON) -> bytes:
    """Encodes a value as canonical JSON.

    Raises:
        ValueError: a number is not finite, or is larger than a double can be.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: JSON, parts: list[bytes]) -> None:
    if isinstance(value, dict):
        separator = b"{"
        # §3.2.3: keys are sorted by UTF-16 code units.
        for key in sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass")):
            parts += (separator, _encode(key), b":")
            _write(value[key], parts)
            separator = b","
        parts.append(b"}" if value else b"{}")
    elif isinstance(value, list | tuple):
        separator = b"["
        for item in value:
            parts.append(separator)
            _write(item, parts)
            separator = b","
        parts.append(b"]" if value else b"[]")
    elif isinstance(value, float):
        parts.append(_number_bytes(value))
    elif isinstance(value, int) and not isinstance(value, bool):
        # §3.2.2.3: a number is a double, so an integer beyond 2**53 is rounded to one.
        parts.append(b"%d" % value if abs(value) <= _MAX_EXACT_INTEGER else _number_bytes(_to_double(value)))
    else:
        parts.append(_encode(value))


def _number_bytes(value: float) -> bytes:
    """Writes a number as ECMAScript does (§3.2.2.3)."""
    if not math.isfinite(value):
        raise ValueError(f"JSON has no number {value}")
    shortest = repr(value)
    magnitude = abs(value)
    if magnitude and not 1e-6 <= magnitude < 1e21:
        mantissa, _, exponent = shortest.partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}".encode()
    plain = f"{Decimal(shortest):f}" if "e" in shortest else shortest
    return b"0" if not magnitude else plain.removesuffix(".0").encode()


def _to_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError("an integer is larger than a double can be") from None


def sha256_digest(form: bytes) -> str:
    """Returns the digest of bytes from `encode_canonical`: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(form).hexdigest()}"


_DAY = 86_400


def format_time(seconds: float) -> str:
    """Returns a point in time to the millisecond, as in `2026-07-28T12:00:00.250Z`."""
    milliseconds = round(seconds * 1000)
    whole, fraction = divmod(milliseconds, 1000)
    days, second = divmod(whole, _DAY)
    return f"{_date(days)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{fraction:03}Z"


@functools.lru_cache(maxsize=8)
def _date(days: int) -> str:
    """Returns the date that is so many days after 1970-01-01.

    Years are counted from March, so that the leap day is the last of a year, and in eras of 400, which are all alike.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return f"{era * 400 + year + (month <= 2):04}-{month:02}-{day:02}"
