"""Points in time as RFC 3339 texts in UTC, from seconds since 1970 and without a clock."""

import functools

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
