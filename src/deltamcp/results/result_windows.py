"""Makes the windows of further replies, which read on in a stored result."""

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from deltamcp.results import document, pagination, truncation
from deltamcp.results.document import Units
from deltamcp.results.notes import ContinuationNote
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.results.window import Frame, Window
from deltamcp.wire import jsonrpc
from deltamcp.work import Work


def read_window(
    units: Units, start: int, policy: ResolvedPolicy, path: str, work: Work, until: int | None = None, problem: str = ""
) -> Window:
    """Return a window of the units at `path`, from `start` to at most `until`; its note begins with the problem.

    Where not even one unit fits, or the value is a scalar, the window shows the JSON as characters from the beginning.
    """
    frame = _continuation_frame(policy, path, problem, work)
    if isinstance(units, str):
        return truncation.text_window(units, start, "characters", frame, until=until)
    if until is not None:
        frame = replace(frame, policy=replace(policy, page_size=until - start))
    window: Window | None = None
    if isinstance(units, Mapping):
        window = pagination.members_window(units, start, frame)
    elif not isinstance(units, bytes):
        window = pagination.rows_window(units, start, pagination.BARE_ROWS, frame)
    return window or read_raw_window(units_json(units).decode(), 0, policy, path, work, problem)


def read_raw_window(text: str, start: int, policy: ResolvedPolicy, path: str, work: Work, problem: str = "") -> Window:
    """Return a window of the JSON at `path` as characters, from the character at `start` on."""
    return truncation.text_window(text, start, "JSON characters", _continuation_frame(policy, path, problem, work))


def _continuation_frame(policy: ResolvedPolicy, path: str, problem: str, work: Work) -> Frame:
    return Frame(policy, ContinuationNote(path, policy.max_tokens, problem), work)


def units_json(units: Units) -> bytes:
    """Encode units as JSON."""
    if isinstance(units, bytes):
        return units
    if isinstance(units, document.PackedItems):
        return units.json
    if isinstance(units, Mapping):
        return jsonrpc.encode({key: Raw(memoryview(unit)) for key, unit in units.items()})
    return jsonrpc.encode(units if isinstance(units, str) else [Raw(memoryview(unit)) for unit in units])
