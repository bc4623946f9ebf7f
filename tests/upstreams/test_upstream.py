"""The life of an upstream: started when needed, once for all; started again after a crash; stopped when idle."""

import asyncio
import contextlib
import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deltamcp.errors import RemoteError, UpstreamError
from deltamcp.upstreams import client
from deltamcp.upstreams.client import Phase, UpstreamSettings
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, Kind, Principal
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS, advance_clock, wait_until
from tests.support.forwarded_call import call, context_of


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Listener:
    """Takes note of changes, and lets all requests pass."""

    def __init__(self, heard: list[Kind | str]) -> None:
        self._heard = heard

    def receive_change(self, principal: Principal, change: Kind | str) -> None:
        self._heard.append(change)

    def receive_announcement(self, kind: Kind) -> None:
        pass

    async def compare(self, principal: Principal, method: str, params: Mapping[str, JSON]) -> bool:
        return True


@contextlib.asynccontextmanager
async def fake(
    log: Path, settings: UpstreamSettings | None = None, heard: list[Kind | str] | None = None, **script: Any
) -> AsyncIterator[Upstream]:
    command, *args = fake_stdio.command(log=log, **script)
    entry = {"command": command, "args": args}
    upstream = Upstream(
        "fake", entry, settings or UpstreamSettings(), listener=None if heard is None else Listener(heard)
    )
    try:
        yield upstream
    finally:
        await upstream.close()


def starts(log: Path) -> list[int]:
    """The processes that were started, in order."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line["started"] for line in lines if "started" in line]


async def kill(upstream: Upstream) -> None:
    pid = upstream.state.pid
    assert pid is not None
    os.kill(pid, 9)
    await wait_until(lambda: upstream.state.phase is not Phase.READY, "the loss is noticed")


# Starts


async def test_nothing_is_started_before_the_first_request(log):
    async with fake(log) as upstream:
        assert upstream.state.phase is Phase.STOPPED
        assert starts(log) == []


async def test_one_start_serves_all_who_wait_for_it(log):
    async with fake(log, start=0.2) as upstream:
        answers = await asyncio.gather(*(call(upstream, "echo", n=n) for n in range(30)))
        assert [answer["given"]["n"] for answer in answers] == [*range(30)]
        assert upstream.state.phase is Phase.READY
        assert [upstream.state.pid] == starts(log)


async def test_one_caller_who_gives_up_does_not_end_the_start_for_others(log):
    async with fake(log, start=0.2) as upstream:
        impatient = asyncio.create_task(call(upstream, "echo"))
        patient = asyncio.create_task(call(upstream, "echo", n=1))
        await wait_until(lambda: upstream.state.phase is Phase.STARTING)
        impatient.cancel()
        assert (await patient)["life"] == 0
        assert len(starts(log)) == 1


async def test_it_can_be_started_ahead_and_started_again_by_itself(log):
    async with fake(log, UpstreamSettings(start="ahead")) as upstream:
        upstream.start()
        await wait_until(lambda: upstream.state.phase is Phase.READY)
        await kill(upstream)
        await wait_until(lambda: upstream.state.starts == 2 and upstream.state.phase is Phase.READY)
        assert upstream.state.restarts == 1


async def test_a_server_that_hangs_at_its_start_is_given_up(log):
    async with fake(log, UpstreamSettings(start_seconds=0.5), discover="silent", initialize="silent") as upstream:
        with pytest.raises(
            UpstreamError, match=r"cannot be used: did not introduce itself within 0\.5 s; try"
        ) as caught:
            await call(upstream, "echo")
        assert caught.value.retryable
        assert upstream.state.phase is Phase.BACKING_OFF


async def test_a_call_waits_no_longer_for_a_start_than_it_may_take(log):
    async with fake(log, UpstreamSettings(timeout=0.1), discover="silent", initialize="silent") as upstream:
        with pytest.raises(UpstreamError, match="is still starting; try again later") as caught:
            await call(upstream, "echo")
        assert caught.value.retryable
        assert upstream.state.phase is Phase.STARTING


async def test_a_restart_does_not_probe_again(log):
    async with fake(log, discover=-32601) as upstream:
        await call(upstream, "echo")
        await kill(upstream)
        await call(upstream, "echo")
    assert len(fake_stdio.messages(log, "server/discover")) == 1
    assert len(fake_stdio.messages(log, "initialize")) == 2


# Losses


async def test_what_was_killed_serves_the_next_call(log):
    async with fake(log) as upstream:
        for life in range(3):
            assert (await call(upstream, "echo"))["life"] == life
            await kill(upstream)
        assert upstream.state.last_error == f"The server '{Path(sys.executable).name}' ended by signal 9."


async def test_a_call_in_flight_is_not_repeated_and_its_caller_is_told(log):
    async with fake(log) as upstream:
        with pytest.raises(UpstreamError) as caught:
            await call(upstream, "buy", deaths=1)
        assert str(caught.value) == (
            "The server fake behind this operation ended before it answered; "
            "check whether the call took effect before you try again."
        )
        assert caught.value.retryable
        assert fake_stdio.tools_run(log) == ["buy"]
        assert (await call(upstream, "buy"))["life"] == 1


async def test_a_call_that_may_be_repeated_is_sent_again(log):
    async with fake(log) as upstream:
        assert await call(upstream, "look", repeatable=True, deaths=1) == {"ran": 2, "life": 1}


async def test_a_call_that_kills_every_time_is_not_repeated_for_ever(log):
    async with fake(log) as upstream:
        with pytest.raises(UpstreamError, match="ended before it answered; try again later"):
            await call(upstream, "look", repeatable=True, deaths=1000)
    assert len(fake_stdio.tools_run(log)) == 3


async def test_a_crash_loop_is_slowed_down_and_callers_are_told_at_once(log):
    async with fake(log, discover="exit", initialize="exit") as upstream:
        while (state := upstream.state).failures < 5:
            with pytest.raises(UpstreamError, match="cannot be used: ended with exit code 3"):
                await call(upstream, "echo")
            advance_clock(120)
        assert state.phase is Phase.BACKING_OFF
        with pytest.raises(UpstreamError, match="cannot be used: ended with exit code 3"):
            await call(upstream, "echo")
        count = len(starts(log))
        with pytest.raises(
            UpstreamError, match=r"again after failures: ended with exit code 3; try again in \d+ s\."
        ) as caught:
            await call(upstream, "echo")
        assert caught.value.retryable
        assert len(starts(log)) == count
        advance_clock(120)
        with pytest.raises(UpstreamError, match="cannot be used: ended with exit code 3"):
            await call(upstream, "echo")
        assert len(starts(log)) > count


async def test_who_ran_well_is_not_held_to_earlier_failures(log):
    async with fake(log) as upstream:
        for _ in range(2):
            await call(upstream, "echo")
            await kill(upstream)
        assert upstream.state.failures == 2
        await call(upstream, "echo")
        advance_clock(60)
        await kill(upstream)
        assert upstream.state.failures == 1


async def test_a_program_that_is_not_there_is_told_without_its_name():
    upstream = Upstream("ghost", {"command": "/no/such/program", "args": ["--token", "hunter2-hunter2"]})
    with pytest.raises(UpstreamError) as caught:
        await call(upstream, "echo")
    assert str(caught.value) == (
        "The server ghost behind this operation cannot be used: cannot be started; try again later."
    )
    await upstream.close()


async def test_after_its_end_nobody_starts_it_before_it_is_opened_again(log):
    async with fake(log, discover="silent", initialize="silent") as upstream:
        waiting = asyncio.create_task(call(upstream, "echo"))
        await wait_until(lambda: upstream.state.phase is Phase.STARTING)
        await upstream.close()
        for late in (waiting, call(upstream, "echo")):
            with pytest.raises(UpstreamError):
                await late
        phases = [upstream.state.phase]
        upstream.open()
        phases.append(upstream.state.phase)
        assert phases == [Phase.CLOSED, Phase.STOPPED]


# Idleness


async def test_it_is_stopped_when_idle_and_started_again_when_needed(log):
    async with fake(log, UpstreamSettings(idle_seconds=60)) as upstream:
        await call(upstream, "echo")
        advance_clock(61)
        await wait_until(lambda: upstream.state.phase is Phase.STOPPED)
        assert upstream.state.pid is None
        assert (await call(upstream, "echo"))["life"] == 1


async def test_it_is_not_stopped_while_a_call_is_open(log):
    async with fake(log, UpstreamSettings(idle_seconds=60)) as upstream:
        late = asyncio.create_task(call(upstream, "late", n=1))
        await wait_until(lambda: fake_stdio.tools_run(log) == ["late"])
        for _ in range(3):
            advance_clock(61)
            await asyncio.sleep(0)
        await call(upstream, "release")
        assert (await late)["given"] == {"n": 1}
        assert len(starts(log)) == 1


# Turns


async def test_only_so_many_calls_run_at_once_and_callers_take_turns(log):
    async with fake(log, UpstreamSettings(concurrency=1)) as upstream:
        await call(upstream, "echo")
        params = {"name": "echo", "arguments": {}}
        order: list[str] = []

        async def ask(account: str) -> None:
            await upstream.forward("tools/call", params, context_of(account=account))
            order.append(account)

        calls = [asyncio.create_task(ask("many")) for _ in range(4)]
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(ask("one")))
        await asyncio.gather(*calls)
        assert order.index("one") < 3
        assert upstream.state.open_calls == 0


async def test_more_calls_than_may_wait_are_refused(log):
    async with fake(log, UpstreamSettings(concurrency=1, max_waiting=1)) as upstream:
        late = asyncio.create_task(call(upstream, "hang"))
        await wait_until(lambda: fake_stdio.tools_run(log) == ["hang"])
        waiting = asyncio.create_task(call(upstream, "echo"))
        await wait_until(lambda: upstream.state.waiting_calls == 1)
        with pytest.raises(UpstreamError, match="is busy; try again later") as caught:
            await call(upstream, "echo")
        assert caught.value.retryable
        late.cancel()
        assert await waiting


async def test_a_turn_that_does_not_come_in_time_is_told(log):
    async with fake(log, UpstreamSettings(concurrency=1, timeout=0.5)) as upstream:
        async with asyncio.timeout(HANG_SECONDS):
            while upstream.state.phase is not Phase.READY:
                with contextlib.suppress(UpstreamError):
                    await call(upstream, "echo")
        calls = await asyncio.gather(call(upstream, "hang"), call(upstream, "echo"), return_exceptions=True)
        assert [str(error).partition("operation ")[2] for error in calls] == [
            "took longer than 0.5 s; check whether the call took effect before you try again.",
            "is busy; try again later.",
        ]


# Changes


async def test_changed_lists_and_restarts_are_told(log):
    changes: list[Kind | str] = []
    async with fake(log, heard=changes) as upstream:
        await upstream.fetch_listing()
        assert changes == []
        await call(upstream, "change")
        await wait_until(lambda: changes == [Kind.TOOLS])
        await kill(upstream)
        await call(upstream, "echo")
        assert changes == [Kind.TOOLS, Kind.TOOLS]


async def test_lists_whose_time_has_passed_are_told_once_while_it_runs_which_does_not_keep_it_running(log):
    settings = UpstreamSettings(idle_seconds=600)
    changes: list[Kind | str] = []
    async with fake(log, settings, changes, ttl=120_000, capabilities={"tools": {}}) as upstream:
        await upstream.fetch_listing()
        advance_clock(119)
        await upstream.fetch_listing()
        advance_clock(119)
        await asyncio.sleep(0)
        assert changes == []
        advance_clock(2)
        await wait_until(lambda: changes == [Kind.TOOLS])
        await upstream.fetch_listing()
        advance_clock(361)
        await wait_until(lambda: upstream.state.phase is Phase.STOPPED)


@pytest.mark.parametrize("script", [{"capabilities": {"tools": {"listChanged": True}}}, {"discover": -32601}])
async def test_lists_of_a_server_that_notifies_or_of_the_handshake_era_have_no_end(log, script):
    changes: list[Kind | str] = []
    async with fake(log, heard=changes, ttl=1, **script) as upstream:
        await upstream.fetch_listing()
        advance_clock(1000)
        await call(upstream, "echo")
        assert changes == []


async def test_who_is_subscribed_to_is_not_stopped_and_comes_back_by_itself(log):
    capabilities = {"tools": {}, "resources": {"subscribe": True}}
    changes: list[Kind | str] = []
    async with fake(log, UpstreamSettings(idle_seconds=60), changes, capabilities=capabilities) as upstream:
        await upstream.subscribe("memo://1")
        await wait_until(lambda: subscribed_uris(log) == [["memo://1"]])
        for _ in range(3):
            advance_clock(61)
            await asyncio.sleep(0)
        assert (upstream.state.phase, upstream.state.subscriptions) == (Phase.READY, 1)
        changes.clear()
        await kill(upstream)
        await wait_until(lambda: subscribed_uris(log) == [["memo://1"], ["memo://1"]])
        await wait_until(lambda: "memo://1" in changes, "what may have been missed is told")
        await upstream.unsubscribe("memo://1")
        advance_clock(121)
        await wait_until(lambda: upstream.state.phase is Phase.STOPPED)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_subscription_leaves_nothing_for_the_end_of_the_process(is_closed, log, monkeypatch):
    """At SIGTERM a use that nobody had ended raised "no running event loop" in the garbage collector."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)

    async def run() -> None:
        command, *args = fake_stdio.command(log=log, capabilities={"tools": {}, "resources": {"subscribe": True}})
        upstream = Upstream("fake", {"command": command, "args": args}, UpstreamSettings())
        await upstream.subscribe("memo://1")
        await (upstream.close() if is_closed else upstream._clients.close())

    asyncio.run(run())
    gc.collect()
    assert ignored == []


@pytest.mark.parametrize("discover", ["answer", -32601], ids=["modern", "handshake"])
async def test_a_subscription_that_ends_while_the_server_is_away_is_not_begun_again(log, monkeypatch, discover):
    monkeypatch.setattr(client, "wait_seconds", lambda failures, chance: 60.0)
    capabilities = {"tools": {}, "resources": {"subscribe": True}}
    async with fake(log, capabilities=capabilities, discover=discover) as upstream:
        await upstream.subscribe("memo://1")
        await upstream.subscribe("memo://2")
        await wait_until(lambda: "memo://2" in str(subscriptions(log)))
        await kill(upstream)
        assert upstream.state.phase is Phase.BACKING_OFF
        before = len(subscriptions(log))
        await upstream.unsubscribe("memo://2")
        assert (len(starts(log)), upstream.state.subscriptions) == (1, 1)
        advance_clock(61)
        await call(upstream, "echo")
        await wait_until(lambda: "memo://1" in str(subscriptions(log)[before:]))
        assert "memo://2" not in str(subscriptions(log)[before:])
        await upstream.unsubscribe("memo://1")


def subscriptions(log: Path) -> list[Any]:
    methods = ("subscriptions/listen", "resources/subscribe")
    return [message["params"] for method in methods for message in fake_stdio.messages(log, method)]


def subscribed_uris(log: Path) -> list[Any]:
    asked = [message["params"]["notifications"] for message in fake_stdio.messages(log, "subscriptions/listen")]
    return [one["resourceSubscriptions"] for one in asked if "resourceSubscriptions" in one]


# Secrets and floods


async def test_secrets_are_in_no_log_and_no_state(log, caplog):
    caplog.set_level("INFO", "deltamcp")
    secret = "s3cret-0123456789"
    command, *args = fake_stdio.command(log=log, stderr=f"Error: the key is {secret}", initialize="exit", discover=1)
    upstream = Upstream("fake", {"command": command, "args": [*args, f"--api-key={secret}"], "env": {"TOKEN": secret}})
    with pytest.raises(UpstreamError) as caught:
        await call(upstream, "echo")
    assert "the key is ..." in caplog.text
    assert upstream.state.last_error is not None
    assert secret not in f"{caplog.text} {upstream.state} {caught.value}"
    await upstream.close()


async def test_a_refusal_passes_with_its_code_and_data_and_without_secrets(log):
    command, *args = fake_stdio.command(log=log)
    upstream = Upstream("fake", {"command": command, "args": args, "env": {"API_KEY": "s3cret-0123456789"}})
    error = {"code": -31999, "message": "Not with s3cret-0123456789.", "data": {"key": "s3cret-0123456789", "n": 1}}
    with pytest.raises(RemoteError) as caught:
        await call(upstream, "raw", answer={"error": error})
    assert (caught.value.code, str(caught.value), caught.value.data) == (
        -31999,
        "Not with ....",
        {"key": "...", "n": 1},
    )
    await upstream.close()


async def test_the_message_of_a_refusal_is_bounded_and_its_data_left_out_if_a_search_would_take_long(log):
    command, *args = fake_stdio.command(log=log)
    upstream = Upstream("fake", {"command": command, "args": args, "env": {"API_KEY": "s3cret-0123456789"}})
    error = {"code": 1, "message": "s3cret-0123456789 " * 100_000, "data": ["x" * 8_000_000]}
    with pytest.raises(RemoteError) as caught:
        await call(upstream, "raw", answer={"error": error})
    assert len(str(caught.value)) <= 32_000 and "s3cret" not in str(caught.value)
    assert caught.value.data is None
    await upstream.close()


async def test_a_result_that_says_it_is_an_error_has_no_secrets_and_another_passes_to_the_byte(log):
    command, *args = fake_stdio.command(log=log)
    upstream = Upstream("fake", {"command": command, "args": args, "env": {"API_KEY": "s3cret-0123456789"}})
    content = [{"type": "text", "text": "s3cret-0123456789"}]
    for is_error, text in ((True, "..."), (False, "s3cret-0123456789")):
        result = {"structuredContent": {"text": "s3cret-0123456789"}, "content": content, "isError": is_error}
        assert await call(upstream, "raw", answer={"result": result}) == {"text": text}
    await upstream.close()


async def test_a_flood_on_stderr_is_not_logged_whole_and_delays_nobody(log, caplog):
    caplog.set_level("INFO", "deltamcp")
    async with fake(log, stderr="line\n" * 20_000) as upstream:
        assert await call(upstream, "echo")
    assert len([record for record in caplog.records if "line" in record.message]) < 1000


async def test_what_a_server_prints_beside_its_messages_is_ignored(log):
    async with fake(log, garbage=["Listening...", "{", '{"level": "info"}']) as upstream:
        assert (await call(upstream, "echo", n=1))["given"] == {"n": 1}
