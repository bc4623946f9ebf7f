"""Principals with a process or a connection of their own: no request of one ever goes over that of another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp.errors import UpstreamError
from deltamcp.upstreams.client import UpstreamSettings
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import ANONYMOUS, LOCAL, Principal
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.fake_http import Fake, serve_fake
from tests.support.forwarded_call import call
from tests.support.marked_processes import find_marked, needs_proc, new_mark

USERS = [Principal(f"user-{n}", issuer="https://issuer.example") for n in range(12)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@contextlib.asynccontextmanager
async def upstream_of(log: Path, mark: str = "", **settings: Any) -> AsyncIterator[Upstream]:
    command, *args = fake_stdio.command(log=log)
    entry = {"command": command, "args": args, "env": {"MARK": mark}}
    upstream = Upstream("fake", entry, UpstreamSettings(process_for="principal", **settings))
    try:
        yield upstream
    finally:
        await upstream.close()


async def life_of(upstream: Upstream, principal: Principal) -> int:
    """The number of the process that serves a principal."""
    life: int = (await call(upstream, "echo", principal=principal))["life"]
    return life


async def test_each_principal_has_one_process_and_keeps_it(log):
    async with upstream_of(log) as upstream:
        everybody = [LOCAL, ANONYMOUS, USERS[0], Principal(USERS[0].id, issuer="https://other.example")]
        first = [await life_of(upstream, one) for one in everybody]
        assert first == [0, 1, 2, 3]
        assert [await life_of(upstream, one) for one in reversed(everybody)] == [3, 2, 1, 0]
        assert upstream.state.principals == 3
        assert upstream.state.restarts == 0


async def test_users_who_are_called_local_or_anonymous_are_not_those(log):
    async with upstream_of(log) as upstream:
        everybody = [LOCAL, ANONYMOUS, Principal("local", frozenset({"a"})), Principal("anonymous", frozenset({"a"}))]
        assert [await life_of(upstream, one) for one in everybody] == [0, 1, 2, 3]


async def test_without_that_all_share_one(log):
    command, *args = fake_stdio.command(log=log)
    upstream = Upstream("fake", {"command": command, "args": args})
    assert {await life_of(upstream, one) for one in (LOCAL, ANONYMOUS, *USERS)} == {0}
    await upstream.close()


async def test_each_request_has_the_credentials_of_its_own_principal():
    async with serve_fake(Fake()) as fake:
        upstream = Upstream("fake", {"url": fake.url}, options_for=lambda one: {"headers": {"x-user": one.id}})
        await asyncio.gather(
            *(call(upstream, "echo", principal=one, user=one.id, n=n) for n in range(10) for one in USERS)
        )
        await upstream.close()
        asked = fake.of("tools/call")
        assert len(asked) == 10 * len(USERS)
        assert all(one.headers["x-user"] == one.params["arguments"]["user"] for one in asked)


@needs_proc
async def test_the_one_that_was_idle_longest_makes_room(log):
    mark = new_mark()
    async with upstream_of(log, mark, max_principals=2) as upstream:
        assert [await life_of(upstream, one) for one in USERS[:2]] == [0, 1]
        assert await life_of(upstream, USERS[0]) == 0
        assert await life_of(upstream, USERS[2]) == 2
        assert await life_of(upstream, USERS[0]) == 0, "the other one was stopped"
        await wait_until(lambda: len(find_marked(mark)) == 2)
        assert await life_of(upstream, USERS[1]) == 3
    assert not find_marked(mark)


async def test_with_all_in_use_another_principal_is_told(log):
    async with upstream_of(log, max_principals=1) as upstream:
        busy = asyncio.create_task(call(upstream, "hang", principal=USERS[0]))
        await wait_until(lambda: fake_stdio.tools_run(log) == ["hang"])
        with pytest.raises(UpstreamError, match="serves as many users as it can; try again later") as caught:
            await call(upstream, "echo", principal=USERS[1])
        assert caught.value.retryable
        assert await life_of(upstream, LOCAL) == 1, "the local user has a place of its own"
        busy.cancel()
        await asyncio.wait([busy])
        assert await life_of(upstream, USERS[1]) == 2
