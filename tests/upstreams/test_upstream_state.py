"""The table of the phases of an upstream is complete: each has a row, can be reached, and can be left."""

import pytest

from deltamcp.upstreams.client import NEXT, Event, Phase


def test_every_phase_has_a_row_and_every_event_changes_one():
    assert set(NEXT) == set(Phase)
    assert {event for row in NEXT.values() for event in row} == set(Event)


def test_every_phase_is_reached_from_the_first():
    reached = {Phase.STOPPED}
    while new := {phase for known in reached for phase in NEXT[known].values()} - reached:
        reached |= new
    assert reached == set(Phase)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.CLOSED])
def test_the_end_of_the_server_closes_any_phase_until_it_begins_again(phase):
    assert NEXT[phase][Event.CLOSE] is Phase.CLOSED
    assert NEXT[Phase.CLOSED] == {Event.OPEN: Phase.STOPPED}


@pytest.mark.parametrize("phase", Phase)
def test_from_any_phase_it_can_become_ready_again(phase):
    reached = {phase}
    while new := {following for known in reached for following in NEXT[known].values()} - reached:
        reached |= new
    assert Phase.READY in reached
