"""How many connections the descriptors of a process allow."""

import resource

import pytest

from deltamcp.transports.sockets import allowed_connections


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        (1_024, 1_048_576, 8_000, 10_667),
        (1_024, 4_096, 3_072, 4_096),
        (256, 256, 192, None),
        (20_000, 20_000, 8_000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 8_000, None),
    ],
)
def test_connections_leave_descriptors_for_files(monkeypatch, soft, hard, allowed, raised):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    assert allowed_connections(8_000, 3 / 4) == allowed
    assert [limits for limits in set_to if limits[0] != soft] == ([] if raised is None else [(raised, hard)])


def test_a_connection_may_need_several_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2_400, 2_400))
    assert allowed_connections(8_000, 1 / 8, each=3) == 100
