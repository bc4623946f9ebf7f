"""Finds the most rows of a list, or members of an object, that fit a reply.

Of a single row or member that does not fit, the reply has a summary.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from deltamcp.results import document, summary
from deltamcp.results.budget import find_largest
from deltamcp.results.document import RawJSON
from deltamcp.results.pointer import pointer
from deltamcp.results.window import Frame, Window
from deltamcp.values import JSON

_MEMBERS_PER_STEP = 8
_BYTES_PER_TOKEN = 3
"""A first guess of the size of JSON that fits; the search corrects it."""
_MAX_PAIR_BYTES_PER_TOKEN = 200
"""Two rows of more JSON are not tried as a table."""


class Envelope(Struct, frozen=True):
    """What is around the rows of a result: at each level an object, and the name under which it has the rows."""

    levels: tuple[tuple[str, dict[str, JSON]], ...] = ()
    path: tuple[str, ...] = ()
    """The path to the rows."""

    def around(self, rows: JSON) -> JSON:
        """Return the value with the rows in it."""
        for name, members in reversed(self.levels):
            rows = {**members, name: rows}
        return rows


BARE_ROWS = Envelope()
"""The envelope of rows that are the whole value."""


def rows_window(units: Sequence[RawJSON], start: int, envelope: Envelope, frame: Frame) -> Window | None:
    """Return a window with as many rows as fit, at least one; None where not even a summary of the first row fits."""
    decoded: list[JSON] = []

    def first(count: int) -> Window:
        further = units[start + len(decoded) : start + count]
        decoded.extend(document.decode_counted(unit, frame.work) for unit in further)
        return frame.make_window("rows", envelope.around(decoded[:count]), start, start + count, len(units))

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = tuple(pointer(*envelope.path, start) + cut for cut in cuts)
        return frame.make_window("rows", envelope.around([value]), start, start + 1, len(units), inside)

    max_count = min(len(units) - start, frame.policy.page_size or len(units))
    if max_count <= 0:
        return first(0)
    return _largest_window(
        max_count, (units[at] for at in range(start, len(units))), first, frame
    ) or summary.summary_window(units[start], window_of_part, frame)


def members_window(units: Mapping[str, RawJSON], start: int, frame: Frame) -> Window | None:
    """Return a window with as many members of an object as fit; None where a key by itself is too long."""
    frame.work.spend(start // _MEMBERS_PER_STEP)
    keys: list[str] = []
    further_keys = islice(units, start, None)
    max_count = max(0, len(units) - start)

    def key_at(place: int) -> str:
        keys.extend(islice(further_keys, max(0, place + 1 - len(keys))))
        return keys[place]

    def first(count: int) -> Window:
        chosen = map(key_at, range(count))
        value = {key: document.decode_counted(units[key], frame.work) for key in chosen}
        return frame.make_window("keys", value, start, start + count, len(units))

    def window_of_part(frame: Frame, value: JSON, cuts: tuple[str, ...]) -> Window:
        inside = tuple(pointer(keys[0]) + cut for cut in cuts)
        return frame.make_window("keys", {keys[0]: value}, start, start + 1, len(units), inside)

    if not max_count:
        return first(0)
    sized = (units[key_at(place)] for place in range(max_count))
    return _largest_window(max_count, sized, first, frame) or summary.summary_window(
        units[keys[0]], window_of_part, frame
    )


def _largest_window(
    max_count: int, units: Iterable[RawJSON], first: Callable[[int], Window], frame: Frame
) -> Window | None:
    windows: dict[int, Window] = {}

    def cost(count: int) -> int:
        windows[count] = first(count)
        return frame.cost(windows[count])

    tokens, size, guess, pair_size = frame.budget.tokens, 0, 0, 0
    for index, unit in enumerate(units):
        frame.work.spend()
        size += len(unit) + 1
        pair_size = size if index < 2 else pair_size
        if size <= tokens * _BYTES_PER_TOKEN:
            guess = index + 1
        elif index:
            break
    # One row is JSON and often costs more than a table of two, so that a search from one row on would find none.
    lower = 2 if frame.has_tables and max_count > 1 and pair_size <= tokens * _MAX_PAIR_BYTES_PER_TOKEN else 1
    count = find_largest(max_count, guess, cost, tokens, lower=lower)
    if count is None and lower > 1 and cost(1) <= tokens:
        count = 1
    return None if count is None else windows[count]
