"""Progress, log messages, cancellation and changed roots pass between callers and upstreams of both eras."""

from pathlib import Path
from typing import Any

import pytest

from deltamcp.gateway.config import GatewayConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.runtime.secrets import Secrets
from deltamcp.upstreams.relayed_messages import RelayedMessages
from tests.support import fake_stdio
from tests.support.conditions import wait_until
from tests.support.era_client import ERAS
from tests.support.fake_upstream import FrontClient, fake_gateway, front_client, fronted, upstream_config
from tests.support.raw_client import META

LOG_LEVEL = "io.modelcontextprotocol/logLevel"


async def call(client: FrontClient, tool: str, meta: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    about = {**META, **meta} if client.era == "modern" else meta
    return await client.raw.call("tools/call", name=tool, arguments=arguments, _meta=about)


# Progress


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize("token", [7, "a text"])
async def test_progress_passes_with_the_callers_token(front: str, behind: str, token: int | str) -> None:
    async with fronted(front, behind) as client:
        await call(client, "progress", {"progressToken": token})
    assert [message["params"] for message in client.raw.heard] == [
        {"progressToken": token, "progress": step, "total": 3, "message": f"fake: step {step}"} for step in (1, 2, 3)
    ]


@pytest.mark.parametrize("behind", ERAS)
async def test_an_upstream_is_asked_for_progress_only_if_the_caller_asks(behind: str) -> None:
    async with fronted("modern", behind) as client:
        response = await call(client, "progress", {})
    assert client.raw.heard == []
    assert response["result"]["structuredContent"] == {"token": False}


# Logs


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize(("level", "count"), [("debug", 1), ("warning", 1), ("error", 0)])
async def test_a_session_gets_what_its_upstream_logs_at_its_level(behind: str, level: str, count: int) -> None:
    async with fronted("handshake", behind) as client:
        await client.raw.call("logging/setLevel", level=level)
        await call(client, "log", {})
    params = {"level": "warning", "data": {"n": 1}, "logger": "fake"}
    assert client.raw.heard == [{"jsonrpc": "2.0", "method": "notifications/message", "params": params}] * count


@pytest.mark.parametrize("behind", ERAS)
async def test_a_modern_caller_gets_logs_if_it_asks_for_them(behind: str) -> None:
    async with fronted("modern", behind) as client:
        await call(client, "log", {})
        assert client.raw.heard == []
        await call(client, "log", {LOG_LEVEL: "info"})
    assert [message["params"]["level"] for message in client.raw.heard] == ["warning"]


async def test_a_handshake_upstream_is_asked_for_the_lowest_level_that_anybody_wants(tmp_path: Path) -> None:
    log = tmp_path / "log"
    gateway = fake_gateway("handshake", log)
    async with front_client(gateway, "handshake") as one, front_client(gateway, "handshake") as other:
        for level in ("warning", "error"):
            await one.raw.call("logging/setLevel", level=level)
            await one.call("echo", {})
        await other.raw.call("logging/setLevel", level="debug")
        await other.call("echo", {})
        await one.call("echo", {})
    levels = [message["params"]["level"] for message in fake_stdio.messages(log, "logging/setLevel")]
    assert levels == ["warning", "debug"]


async def test_a_handshake_upstream_hears_at_once_what_the_local_user_wants(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("handshake", "handshake", log) as client:
        await client.call("echo", {})
        await client.raw.call("logging/setLevel", level="debug")
        await wait_until(lambda: len(fake_stdio.messages(log, "logging/setLevel")) == 2, "the level")
    levels = [message["params"]["level"] for message in fake_stdio.messages(log, "logging/setLevel")]
    assert levels == ["info", "debug"]
    assert len(fake_stdio.messages(log, "tools/call")) == 1


async def test_a_modern_upstream_is_asked_in_every_request(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("handshake", "modern", log) as client:
        await client.raw.call("logging/setLevel", level="error")
        await client.call("echo", {})
    [request] = fake_stdio.messages(log, "tools/call")
    assert request["params"]["_meta"][LOG_LEVEL] == "error"


async def test_an_upstream_that_does_not_log_is_not_asked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted("handshake", "handshake", log, capabilities={}) as client:
        await client.call("echo", {})
        assert len(fake_stdio.messages(log, "logging/setLevel")) == 1
    quiet = tmp_path / "quiet"
    gateway = fake_gateway("handshake", quiet, capabilities={"tools": {}})
    async with front_client(gateway, "handshake") as client:
        await client.call("echo", {})
    assert fake_stdio.messages(quiet, "logging/setLevel") == []


async def test_what_is_logged_outside_of_requests_reaches_the_local_user() -> None:
    gateway = fake_gateway("handshake", tools=[{"name": "murmur", "inputSchema": {"type": "object"}}])
    async with front_client(gateway, "handshake") as client:
        await client.call("murmur", {"then": {"method": "notifications/message", "level": "alert"}})
        heard = client.raw.heard or [await client.raw.receive()]
    assert heard[0]["params"] == {"level": "alert", "data": "later", "logger": "fake"}


# Cancellation


@pytest.mark.parametrize("front", ERAS)
@pytest.mark.parametrize("behind", ERAS)
async def test_a_cancelled_call_is_cancelled_at_the_upstream(front: str, behind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with fronted(front, behind, log) as client:
        meta = META if front == "modern" else {}
        client.raw.send(id=5, method="tools/call", params={"name": "hang", "arguments": {}, "_meta": meta})
        await wait_until(lambda: "hang" in fake_stdio.tools_run(log), "the call")
        client.raw.send(method="notifications/cancelled", params={"requestId": 5})
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")
    [request] = fake_stdio.messages(log, "tools/call")
    [cancelled] = fake_stdio.messages(log, "notifications/cancelled")
    assert cancelled["params"]["requestId"] == request["id"]


@pytest.mark.parametrize("front", ERAS)
async def test_a_client_that_leaves_cancels_its_calls(front: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    gateway = fake_gateway("handshake", log)
    async with front_client(gateway, "modern") as stays:
        async with front_client(gateway, front) as client:
            meta = META if front == "modern" else {}
            client.raw.send(id=5, method="tools/call", params={"name": "hang", "arguments": {}, "_meta": meta})
            await wait_until(lambda: "hang" in fake_stdio.tools_run(log), "the call")
        await wait_until(lambda: bool(fake_stdio.messages(log, "notifications/cancelled")), "the cancellation")
        assert "result" in await stays.call("echo", {})


# Roots


async def test_a_sessions_roots_and_their_changes_reach_handshake_upstreams_that_then_ask_for_them(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    gateway = fake_gateway("handshake", log, asks_roots=True)
    async with front_client(gateway, "handshake") as client:
        for uris in (["file:///a"], ["file:///a", "file:///b"]):
            question = await client.raw.receive()
            assert question["method"] == "roots/list"
            roots = [{"uri": uri} for uri in uris]
            client.raw.send(id=question["id"], result={"roots": roots})
            await wait_until(lambda roots=roots: {"roots": roots} in _roots_heard(log), "the roots")  # type: ignore[misc]
            client.raw.send(method="notifications/roots/list_changed")


@pytest.mark.parametrize(("roots", "found"), [(("file:///b",), {"roots": [{"uri": "file:///b"}]}), ((), {"roots": []})])
async def test_without_one_client_to_ask_the_operators_roots_are_told(
    tmp_path: Path, roots: tuple[str, ...], found: Any
) -> None:
    log = tmp_path / "log"
    config = GatewayConfig(
        upstreams=[upstream_config("handshake", log=log, asks_roots=True)], disclosure="full", roots=roots
    )
    gateway = Gateway(config)
    async with front_client(gateway, "handshake", {}) as client:
        await client.call("echo", {})
        client.raw.send(method="notifications/roots/list_changed")
        await wait_until(lambda: bool(_roots_heard(log)), "an answer")
    assert _roots_heard(log) == [found]


def _roots_heard(log: Path) -> list[Any]:
    answers = [message for message in fake_stdio.messages(log) if message.get("id") == "roots"]
    return [message.get("result") for message in answers]


def test_a_log_message_is_cut_or_left_out_although_no_secret_is_searched_for() -> None:
    messages = RelayedMessages("fake", Secrets([]))
    shown = messages.log({"level": "error", "data": "é\ufe0f" * 1_000_000, "logger": "a" * 1_000})
    assert shown is not None and len(str(shown["data"])) == 32_000 and len(str(shown["logger"])) < 100
    assert messages.log({"level": "error", "data": ["a" * 2_000_000]}) is None


def test_a_log_message_that_is_cut_shows_no_beginning_of_a_secret() -> None:
    shown = RelayedMessages("fake", Secrets(["secret-123"])).log(
        {"level": "error", "data": "a" * 31_995 + "secret-123"}
    )
    assert shown is not None and "sec" not in str(shown["data"])
