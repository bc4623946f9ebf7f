"""The stdio link: how a server process starts, what it writes, and how it ends."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from deltamcp.client.client import GatewayClient, connect
from deltamcp.errors import ClientError, ConnectionLostError, DeltaError, PeerError, UnreachableError
from tests.support import fake_stdio
from tests.support.conditions import HANG_SECONDS, wait_until


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["answer", -32601], ids=["modern", "handshake"])
def discover(request: Any) -> Any:
    return request.param


def alive(log: Path) -> list[int]:
    """The processes of a fake server that have not ended."""
    pids = [json.loads(line)["started"] for line in log.read_text().splitlines() if "started" in line]
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def test_the_process_ends_with_the_client(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        await client.call("echo")
        assert len(alive(log)) == 1
    assert not alive(log)
    assert '"ended"' in log.read_text(), "it was not let end by itself"


async def test_a_process_that_will_not_end_is_ended(log, monkeypatch):
    async with connect(fake_stdio.command(log=log, stubborn=True)) as client:
        await client.call("echo")
    assert not alive(log)


async def test_the_process_ends_where_the_body_of_the_with_fails(log):
    with pytest.raises(ZeroDivisionError):
        async with connect(fake_stdio.command(log=log)) as client:
            await client.call("echo")
            raise ZeroDivisionError
    assert not alive(log)


async def test_the_process_ends_where_connecting_is_cancelled(log):
    client = connect(fake_stdio.command(log=log, discover="silent", mute=True))
    entering = asyncio.create_task(client.__aenter__())
    await wait_until(lambda: log.exists() and '"heard"' in log.read_text())
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not alive(log)


async def test_the_process_ends_where_introductions_fail(log):
    with pytest.raises(DeltaError):
        async with connect(fake_stdio.command(log=log, discover=-32601, initialize=-32600)):
            pass
    assert not alive(log)


async def test_lines_that_are_not_messages_are_passed_over(log, discover):
    garbage = [
        "Listening on stdio!",
        "",
        "{",
        "[]",
        "[1]",
        "null",
        "42",
        '"text"',
        "{}",
        '{"jsonrpc": "2.0"}',
        "\x07 ü",
    ]
    async with connect(fake_stdio.command(log=log, discover=discover, garbage=garbage)) as client:
        assert len(await client.tools()) == 4
        assert (await client.call("echo", a="ü"))["given"] == {"a": "ü"}


async def test_answers_that_nobody_asked_for_are_passed_over(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover, tools=[{"name": "twice"}])) as client:
        assert await client.call("twice") == {"answer": 1}
        assert await client.call("twice") == {"answer": 1}


async def test_answers_come_in_any_order(log, discover):
    tools = [{"name": "late", "inputSchema": {"type": "object"}}, {"name": "release"}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        calls = [asyncio.create_task(client.call("late", n=n)) for n in range(20)]
        await wait_until(lambda: not (len([name for name in fake_stdio.tools_run(log) if name == "late"]) < 20))
        await client.call("release")
        assert [value["given"]["n"] for value in await asyncio.gather(*calls)] == list(range(20))


@pytest.mark.parametrize(
    "answer",
    [
        {"result": None},
        {"result": 7},
        {"result": []},
        {"error": {"code": "x", "message": 7}},
        {"error": {}},
        {"error": "no"},
        {"error": None},
        {},
    ],
    ids=str,
)
async def test_an_answer_that_makes_no_sense_is_told_at_once(log, discover, answer):
    tools = [{"name": "raw", "inputSchema": {"type": "object"}}, {"name": "echo"}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        with pytest.raises(PeerError):
            await client.call_tool("raw", {"answer": answer}, timeout=HANG_SECONDS)
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_odd_contents_come_through_as_they_are(log, discover):
    tools = [{"name": "raw", "inputSchema": {"type": "object"}}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        odd: list[Any] = [
            {"content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "t", "y": 2}, {"type": "resource"}, 3]},
            {"content": []},
            {"content": [{"type": "text"}]},
            {"content": [{"type": "text", "text": 7}]},
            {"content": "words"},
            {"content": None},
            {"structuredContent": [1, None, {"a": 1.5}], "vendor": {"x": 1}},
            {},
        ]
        for result in odd:
            reply = await client.call_tool("raw", {"answer": {"result": result}})
            assert reply.raw == result
            _ = (reply.text, reply.texts, reply.value, reply.is_error, reply.handle, reply.delta_meta, reply.content)


async def test_a_command_that_does_not_exist_is_told_in_one_sentence():
    with pytest.raises(UnreachableError, match="no-such-program-anywhere") as caught:
        async with connect(["no-such-program-anywhere", "--token", "hunter2"]):
            pass
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_command_that_may_not_be_run(tmp_path):
    file = tmp_path / "not-a-program"
    file.write_text("x")
    with pytest.raises(UnreachableError, match="not-a-program"):
        async with connect([str(file)]):
            pass


async def test_a_process_that_ends_at_once_is_told_with_its_last_words():
    words = [sys.executable, "-c", "import sys; sys.exit('no database there')"]
    with pytest.raises(UnreachableError, match="no database there"):
        async with connect(words, quiet=True):
            pass


async def test_stderr_is_not_mistaken_for_anything(log, discover):
    script = fake_stdio.command(log=log, discover=discover, stderr='{"jsonrpc":"2.0","id":1,"result":{}}')
    async with connect(script, quiet=True) as client:
        assert len(await client.tools()) == 4


async def test_much_stderr_does_not_stop_the_server():
    code = "import sys; sys.stderr.write('x' * 3_000_000); sys.stderr.flush(); import runpy; sys.argv = ['f', '{}']; "
    code += f"runpy.run_path({str(Path(fake_stdio.__file__))!r}, run_name='__main__')"
    async with connect([sys.executable, "-c", code], quiet=True) as client:
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


async def test_large_messages_both_ways(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        text = "ü\n\u2028" * 500_000
        assert (await client.call("echo", a=text))["given"] == {"a": text}


async def test_a_process_that_ended_is_started_again_for_the_next_call(log, discover):
    tools = [*fake_stdio.TOOLS, {"name": "last", "inputSchema": {"type": "object"}}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        assert await client.call("last") == {"life": 0}
        connection: Any = client._connector.connection
        await wait_until(lambda: connection.link.ended)
        assert (await client.call("echo"))["life"] == 1
        assert (await client.call("echo"))["life"] == 1
    assert not alive(log)


async def test_a_process_that_will_not_start_again_is_told_and_not_tried_forever(log):
    initialize = ["answer", "exit"]
    script = fake_stdio.command(log=log, discover=-32601, initialize=initialize)
    async with connect(script, start_timeout=HANG_SECONDS) as client:
        with pytest.raises(ClientError):
            await client.call_tool("look", {"deaths": 99}, timeout=HANG_SECONDS)
        assert fake_stdio.tools_run(log) == ["look"]


async def test_every_call_in_flight_hears_of_the_end(log, discover):
    tools = [*fake_stdio.TOOLS, {"name": "hang", "inputSchema": {"type": "object"}}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        await client.tools()
        calls = [asyncio.create_task(client.call("hang")) for _ in range(50)]
        await wait_until(lambda: not (len(fake_stdio.tools_run(log)) < 50))
        os.kill(alive(log)[0], 9)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLostError)
            assert outcome.maybe_done is True
    assert len(fake_stdio.tools_run(log)) == 50


async def test_a_server_may_refuse_notifications(log):
    """Its error has no id, and came while the first requests waited."""
    async with GatewayClient(fake_stdio.command(log=log, discover=-32601, refuses_notifications=True)) as client:
        for _ in range(3):
            await client.notify("notifications/roots/list_changed")
            assert (await client.request("tools/list"))["tools"] == fake_stdio.TOOLS


async def test_any_request_can_be_sent(log, discover):
    async with connect(fake_stdio.command(log=log, discover=discover)) as client:
        assert (await client.request("tools/list"))["tools"] == fake_stdio.TOOLS
        with pytest.raises(PeerError) as caught:
            await client.request("vendor/thing", {"x": 1, "_meta": {"vendor/wish": 2}})
        assert caught.value.code == -32601
    (sent,) = fake_stdio.messages(log, "vendor/thing")
    assert sent["params"]["x"] == 1
    assert sent["params"]["_meta"]["vendor/wish"] == 2


async def test_a_client_is_closed_to_calls_before_and_after_its_with(log):
    client = connect(fake_stdio.command(log=log))
    with pytest.raises(DeltaError):
        await client.tools()
    async with client:
        await client.tools()
    with pytest.raises(DeltaError):
        await client.tools()
    with pytest.raises(DeltaError):
        await client.call("echo")
    assert not alive(log)


async def test_calls_in_flight_when_the_with_ends_are_told(log, discover):
    tools = [{"name": "hang", "inputSchema": {"type": "object"}}]
    async with connect(fake_stdio.command(log=log, discover=discover, tools=tools)) as client:
        call = asyncio.create_task(client.call("hang"))
        await wait_until(lambda: bool(fake_stdio.tools_run(log)))
    with pytest.raises((ClientError, asyncio.CancelledError)):
        await asyncio.wait_for(call, HANG_SECONDS)
    assert not alive(log)


async def test_what_the_server_logs_is_told(log, discover):
    told: list[Any] = []
    tools = [{"name": "log", "inputSchema": {"type": "object"}}]
    script = fake_stdio.command(log=log, discover=discover, tools=tools)
    async with connect(script, on_log=lambda *entry: told.append(entry)) as client:
        await client.call("log")
    assert ("warning", {"n": 1}, "fake") in told


async def test_a_callback_that_fails_harms_nothing_else(log, discover):
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("log", "change", "progress", "echo")]
    script = fake_stdio.command(log=log, discover=discover, tools=tools, later=tools)
    async with connect(script, on_log=fails, on_change=fails) as client:
        await client.call("log")
        await client.call("change")
        await client.call_tool("progress", progress=fails)
        assert (await client.call("echo", a=1))["given"] == {"a": 1}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes by /proc")
@pytest.mark.parametrize("when", ["entering", "leaving"])
async def test_a_server_is_gone_however_its_client_was_cancelled(tmp_path, when):
    log = tmp_path / "log"
    says_nothing = {"discover": "silent", "mute": True} if when == "entering" else {}
    client = connect(fake_stdio.command(log=log, stubborn=True, **says_nothing))
    entering: asyncio.Task[Any] = asyncio.create_task(client.__aenter__())
    if when == "leaving":
        await entering
        entering = asyncio.create_task(client.__aexit__(None, None, None))
    await wait_until(lambda: bool(log.exists() and log.read_text()))
    [server] = alive(log)
    for _ in range(10):
        await asyncio.sleep(0)
    entering.cancel()
    await asyncio.wait([entering])
    await wait_until(lambda: not Path(f"/proc/{server}").exists())


async def test_a_log_line_that_looks_like_an_answer_is_none(tmp_path):
    lines = [json.dumps({"level": "info", "id": number}) for number in range(1, 9)]
    async with connect(fake_stdio.command(log=tmp_path / "log", garbage=lines)) as client:
        assert await client.call("echo", a=1) is not None
