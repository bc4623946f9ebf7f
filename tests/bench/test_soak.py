"""The verdicts of the soak: what grows is told."""

import pytest

from bench.soak.__main__ import SoakedServer, judge
from bench.soak.server_state import ServerState
from bench.soak.tally import Tally

AT_REST = ServerState(0.0, 100.0, 2, 8, 4, 0, {"Engine": 1})


def states(memory: list[float]) -> list[ServerState]:
    return [AT_REST._replace(memory_mb=megabytes) for megabytes in memory]


def missed(server: SoakedServer, after: ServerState) -> list[str]:
    return [verdict.what for verdict in judge(server, AT_REST, after) if not verdict.met]


def soaked(memory: list[float]) -> SoakedServer:
    return SoakedServer("s", None, None, None, Tally(), states(memory))


def test_a_flat_server_is_told_so():
    assert missed(soaked([90, 95, 100, 101, 102, 103]), AT_REST) == []


def test_memory_that_goes_on_growing_is_told():
    assert missed(soaked([90, 95, 100, 104, 109, 114]), AT_REST) == ["s, memory in the last third"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tasks": 5}, "tasks"),
        ({"threads": 5}, "threads"),
        ({"descriptors": 9}, "descriptors"),
        ({"stored": 1}, "stored entries"),
        ({"classes": {"Engine": 1, "HttpSession": 1}}, "sessions and streams"),
        ({"classes": {"Engine": 1, "Leaked": 6}}, "classes with more instances"),
    ],
)
def test_what_is_left_after_a_rest_is_told(change, what):
    assert missed(soaked([100.0] * 6), AT_REST._replace(**change)) == [f"s, {what} after"]


def test_an_outcome_that_nobody_expects_is_told():
    server = soaked([100.0] * 6)
    server.tally.surprise("session", "status 500")
    assert missed(server, AT_REST) == ["s, unexpected outcomes"]


def test_percentiles_are_of_the_calls_in_a_span():
    tally = Tally()
    tally.latencies = [(at, at / 1e3) for at in range(200)]
    assert tally.percentiles(0, 100) == (49.5, 99.0)
    assert tally.percentiles(500, 600) == (0.0, 0.0)
