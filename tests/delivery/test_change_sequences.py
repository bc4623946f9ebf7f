"""Property tests: a client that stores the replies it gets can rebuild every result of the server."""

import asyncio
import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import ResultPolicy
from deltamcp.deltas.root import root_of
from tests.support.change_reader import change_reader
from tests.support.changing_server import LOG_LINES, changing_server
from tests.support.equality import is_same
from tests.support.era_client import ERAS
from tests.support.properties import examples
from tests.support.strategies import any_json

# Any sequence

cells = st.one_of(
    st.sampled_from([0, 1, 1.0, True, False, None, "", "a", "0", -0.0, 0.0, 2**60, 'x,y\n"z"', "-1", "#", "[", "… +3"]),
    any_json,
)
rows = st.dictionaries(st.sampled_from(["name", "a", "b.c", "", "$seen", "é"]), cells, max_size=4)
Edit = tuple[str, int, Any]
edits: st.SearchStrategy[Edit] = st.one_of(
    st.tuples(st.just("same"), st.just(0), st.none()),
    st.tuples(st.just("volatile"), st.integers(0, 3), st.none()),
    st.tuples(st.just("cell"), st.integers(0, 40), cells),
    st.tuples(st.just("drop"), st.integers(0, 40), st.none()),
    st.tuples(st.just("add"), st.integers(0, 40), rows),
    st.tuples(st.just("move"), st.integers(0, 40), st.none()),
    st.tuples(st.just("head"), st.just(0), cells),
    st.tuples(st.just("twin"), st.integers(0, 40), st.none()),
    st.tuples(st.just("all"), st.just(0), any_json.filter(lambda value: not isinstance(value, str))),
    st.tuples(st.just("text"), st.integers(0, 3), st.text(max_size=60)),
    st.tuples(st.just("back"), st.just(0), st.none()),
)
asking = st.sampled_from(["none", "none", "none", "last", "older", "prefix", "meta", "empty", "unknown", "reset"])


def edited(now: Any, start: Any, edit: Edit) -> Any:
    kind, number, new = edit
    if kind == "all":
        return new
    if kind == "text":
        return LOG_LINES[: 500 * number] + new + LOG_LINES[500 * number : 2500]
    if kind == "back" or not (isinstance(now, dict) and isinstance(now.get("items"), list)):
        return copy.deepcopy(start)
    value = copy.deepcopy(now)
    found = value["items"]
    if kind == "volatile":
        value["took_ms"] = number
        for row in found:
            row["age"] = number
    elif kind == "head":
        value["head"] = new
    elif kind == "add":
        found.insert(number % (len(found) + 1), {"id": 1000 + len(found), "age": 0, **new})
    elif found and kind == "cell":
        found[number % len(found)]["a"] = new
    elif found and kind == "drop":
        found.pop(number % len(found))
    elif found and kind == "move":
        found.append(found.pop(number % len(found)))
    elif found and kind == "twin":
        found.append(copy.deepcopy(found[number % len(found)]))
    return value


def stable(value: Any) -> Any:
    """The value without what is volatile."""
    if not isinstance(value, dict):
        return value
    left = {key: item for key, item in value.items() if key != "took_ms"}
    if isinstance(left.get("items"), list):
        left["items"] = [
            {key: item for key, item in row.items() if key != "age"} if isinstance(row, dict) else row
            for row in left["items"]
        ]
    return left


@given(
    st.lists(rows, min_size=1, max_size=25),
    st.lists(st.tuples(edits, asking), min_size=2, max_size=20),
    st.booleans(),
    st.sampled_from(ERAS),
    st.sampled_from([None, ["id"], ["name"]]),
)
@settings(max_examples=examples(200))
def test_a_client_that_keeps_what_it_is_sent_always_has_the_servers_value(some, steps, volatile, era, keys):
    start = {"took_ms": 0, "head": "x", "items": [{"id": n, "age": 0, **row} for n, row in enumerate(some)]}
    paths = ["took_ms", "items.age"] if volatile else None

    async def run() -> None:
        server, current = changing_server(start, ResultPolicy(deltas=True, volatile=paths, keys=keys))
        async with change_reader(server, era) as reader:
            sent: list[str] = []
            for edit, way in steps:
                current.value = edited(current.value, start, edit)
                last = sent[-1] if sent else ""
                root = {
                    "none": None,
                    "last": last[7:19],
                    "older": sent[len(sent) // 2][7:19] if sent else "",
                    "prefix": last[7:15],
                    "meta": last,
                    "empty": "",
                    "unknown": "0123456789ab",
                    "reset": "reset",
                }[way]
                if isinstance(current.value, type(None)):
                    current.value = {}
                got = await (reader.by_meta(last) if way == "meta" else reader.get(root))
                if way in ("empty", "unknown", "reset"):
                    assert got.outcome == "full"
                if got.outcome == "unchanged" and volatile:
                    assert is_same(stable(got.value), stable(current.value))
                else:
                    assert is_same(got.value, current.value)
                assert got.root in (root_of(got.value), root_of(got.value, paths or ()))
                sent = [*([] if way == "reset" else sent), got.root]

    asyncio.run(run())
