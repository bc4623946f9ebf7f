"""The table of handshake sessions: its limits and expiry consider every session, and accounts do not end others'."""

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import Limits, Principal
from deltamcp.runtime.change_hub import ChangeHub
from deltamcp.runtime.quota import HttpQuotas
from deltamcp.transports.sessions.directory import HttpSession, HttpSessions
from deltamcp.values import ANONYMOUS, Caller, Failure, Watch
from tests.support.conditions import wait_until

IDLE_SECONDS = 1_000.0


@contextlib.contextmanager
def clock(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    with monkeypatch.context() as patch:
        patch.setattr("deltamcp.transports.sessions.directory.time.monotonic", lambda: now[0])
        yield now


def make_sessions(**limits: Any) -> HttpSessions:
    bounds = Limits(**{"session_idle_seconds": IDLE_SECONDS, **limits})
    return HttpSessions(bounds, HttpQuotas(bounds), ChangeHub(), lambda principal, id_, *_: Caller(principal, id_))


def open_one(sessions: HttpSessions, account: str = "a", principal: Principal = ANONYMOUS) -> Any:
    opened = sessions.open(None, None, principal, account)  # type: ignore[arg-type]
    return None if isinstance(opened, Failure) else opened


def is_open(sessions: HttpSessions, opened: HttpSession) -> bool:
    return sessions.find(opened.id.encode(), opened.session.caller.principal) is opened


async def test_busy_sessions_at_the_front_do_not_keep_idle_ones_open():
    sessions = make_sessions(sessions=100, account_share=1)
    busy = [open_one(sessions) for _ in range(64)]
    for opened in busy:
        assert opened is not None
        sessions.begin_use(opened)
    idle = [open_one(sessions) for _ in range(1_000)]
    alive = [opened for opened in idle if opened is not None and is_open(sessions, opened)]
    assert alive == idle[-36:], "the limit counts all, and those idle the longest go"
    assert all(opened is not None and is_open(sessions, opened) for opened in busy)


async def test_only_idle_sessions_end_for_a_new_one():
    sessions = make_sessions(sessions=2, account_share=1)
    for _ in range(2):
        opened = open_one(sessions)
        assert opened is not None
        sessions.begin_use(opened)
    assert open_one(sessions) is None
    sessions.end_use(opened)
    assert open_one(sessions) is not None
    assert not is_open(sessions, opened)


async def test_an_account_at_its_share_ends_its_own_sessions_only():
    sessions = make_sessions(sessions=80)
    others = [open_one(sessions, account) for account in "bcdefgh"]
    own = [open_one(sessions, "a") for _ in range(1_000)]
    assert [opened for opened in own if opened and is_open(sessions, opened)] == own[-10:]
    assert all(opened and is_open(sessions, opened) for opened in others)


async def test_accounts_that_filled_the_table_make_room_for_one_that_has_less():
    sessions = make_sessions(sessions=80)
    greedy = {account: [open_one(sessions, account) for _ in range(10)] for account in "abcdefgh"}
    newcomers = [open_one(sessions, f"new {number}") for number in range(16)]
    assert None not in newcomers
    left = [sum(bool(one) and is_open(sessions, one) for one in opened) for opened in greedy.values()]
    assert left == [8] * 8, "each gave as much as the others"
    assert all(opened and is_open(sessions, opened) for opened in newcomers)


async def test_sessions_expire_though_no_request_comes():
    sessions = make_sessions(session_idle_seconds=0.01)
    opened = [open_one(sessions) for _ in range(250)]
    sessions.begin_use(opened[0])
    await wait_until(lambda: len(sessions._open) == 1, "the expiry of the idle ones")
    sessions.end_use(opened[0])
    await wait_until(lambda: not sessions._open and sessions._expiry is None, "the expiry of the last")


async def test_what_sessions_watch_counts_for_their_account():
    sessions = make_sessions(account_share=1 / 32)  # a MiB of URIs
    uris = [f"a://{number}{'x' * 2_000}" for number in range(300)]
    watching = []
    for _ in range(10):
        opened = open_one(sessions)
        assert opened is not None
        watching += [opened for uri in uris if not isinstance(opened.apply(Watch(uri, on=True)), Failure)]
    assert len(watching) == 1024 * 1024 // (len(uris[-1]) + 500)
    stranger = open_one(sessions, "b")
    assert stranger is not None
    assert not isinstance(stranger.apply(Watch(uris[0], on=True)), Failure)
    first, last = watching[0], watching[-1]
    assert not isinstance(first.apply(Watch(uris[0], on=False)), Failure)
    assert not isinstance(last.apply(Watch(uris[-1], on=True)), Failure), "there is room for one again"
    for opened in watching:
        sessions.forget(opened)
    opened = open_one(sessions)
    assert opened is not None
    assert not any(isinstance(opened.apply(Watch(uri, on=True)), Failure) for uri in uris)


OWNERS = "abcd"
STEPS = st.one_of(
    st.tuples(st.just("open"), st.sampled_from(OWNERS)),
    st.tuples(st.sampled_from(["begin", "end", "find", "forget"]), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 1_001])),
)


@given(st.integers(1, 12), st.sampled_from([0.25, 0.5, 1]), st.lists(STEPS, max_size=60))
def test_whatever_happens_the_table_keeps_its_laws(monkeypatch, limit, account_share, steps):
    """No account has more than its share, none of those in use ends by itself, and a refusal has a reason."""

    async def run() -> None:
        sessions = make_sessions(sessions=limit, account_share=account_share)
        share = max(1, int(limit * account_share))
        made: list[HttpSession] = []
        forgotten: set[str] = set()
        for what, value in steps:
            opened = made[value % len(made)] if made and isinstance(value, int) else None
            in_use = [one for one in made if one.uses and one.id not in forgotten]
            if what == "open":
                before = dict(sessions._open)
                new = open_one(sessions, value)
                ended = [one for id_, one in before.items() if id_ not in sessions._open]
                assert len(ended) <= 1
                assert all(not one.uses for one in ended)
                mine = [one for one in before.values() if one.account == value]
                if new is None:
                    assert not ended
                    assert len(before) == limit or len(mine) == share
                    assert all(one.uses for one in mine)
                else:
                    made.append(new)
                for one in ended:
                    idle = [two for two in before.values() if two.account == one.account and not two.uses]
                    assert one.account == value or len(idle) > len(mine), "from one that has more"
                    assert one.last_used == min(two.last_used for two in idle)
            elif what == "wait":
                now[0] += value
                sessions._expire()
            elif opened is not None and opened.id not in forgotten:
                if what == "begin" and opened.id in sessions._open:
                    sessions.begin_use(opened)
                elif what == "end" and opened.uses:
                    sessions.end_use(opened)
                elif what == "find":
                    sessions.find(opened.id.encode(), ANONYMOUS)
                elif what == "forget":
                    forgotten.add(opened.id)
                    sessions.forget(opened)
            check(sessions, share, limit)
            assert all(one.id in sessions._open for one in in_use if one.id not in forgotten)

    def check(sessions: HttpSessions, share: int, limit: int) -> None:
        alive = list(sessions._open.values())
        assert len(alive) <= limit
        assert set(sessions._idle) == {one.id for one in alive if not one.uses}
        assert [one.last_used for one in sessions._idle.values()] == sorted(
            one.last_used for one in sessions._idle.values()
        )
        for account, own in sessions._accounts.items():
            mine = [one for one in alive if one.account == account]
            assert 0 < len(mine) == own.count <= share
            assert set(own.idle) == {one.id for one in mine if not one.uses}
        most_idle = sessions._by_idle.with_most()
        most = max((len(own.idle) for own in sessions._accounts.values()), default=0)
        assert (len(sessions._accounts[most_idle].idle) if most_idle is not None else 0) == most

    with clock(monkeypatch) as now:
        asyncio.run(run())


async def test_one_session_watches_a_thousand_resources_at_most():
    sessions = make_sessions(account_share=1)
    opened = open_one(sessions)
    outcomes = [opened.apply(Watch(f"a://{number}", on=True)) for number in range(1_001)]
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False] * 1_000 + [True]
    assert not isinstance(opened.apply(Watch("a://0", on=True)), Failure), "it is subscribed to already"
    sessions.forget(opened)
    assert not sessions._quotas.watched._held
