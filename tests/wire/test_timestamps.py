"""RFC 3339 timestamps: the standard library reads them as the same point in time."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.wire.canonical import format_time


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_a_time_reads_as_the_same_millisecond(milliseconds):
    read = datetime.fromisoformat(format_time(milliseconds / 1000))
    assert round((read - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == milliseconds


def test_the_form():
    assert format_time(0) == "1970-01-01T00:00:00.000Z"
    assert format_time(951_782_400.25) == "2000-02-29T00:00:00.250Z"
