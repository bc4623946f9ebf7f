"""A gateway in a process of its own, whose files are edited at random while clients of every protocol call its servers.

No call is lost and none comes to another server, one that was begun ends where it was begun, every mistake is told with
its line, and no process is left.
"""

import asyncio
import contextlib
import json
import signal
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from deltamcp import connect
from deltamcp.dashboard.gateway_socket import find_gateways
from deltamcp.errors import DeltaError
from deltamcp.gateway.gateway_upstream import CONFIGURATION_URI
from deltamcp.gateway.upstream_items import STATUS_URI
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.edited_configuration import NAMES, Edited, EditedConfiguration
from tests.support.marked_processes import find_marked, needs_proc, new_mark
from tests.support.paths import PROGRAM
from tests.support.processes import free_port, wait_until_it_answers, wait_until_it_listens

EDITS = [8, pytest.param(200, marks=pytest.mark.deep)]
STATUS_SECONDS, CALL_SECONDS = 0.02, 0.005
"""Between looks and between the calls of a client, so that the gateway has some of the machine."""


class EditedGateway:
    """A gateway that serves, and what its clients see of it."""

    def __init__(self, configuration: EditedConfiguration, process: Any, log: Path) -> None:
        self.configuration = configuration
        self.process = process
        self.log = log
        self.settled = 0
        """The version of the configuration that the gateway is known to have."""
        self.calls = 0
        self.is_over = False

    def read_again(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    async def status(self, client: Any) -> dict[str, Any]:
        contents = {one["uri"]: json.loads(one["text"]) for one in await client.read_resource(STATUS_URI)}
        return dict(contents[CONFIGURATION_URI])

    async def tools(self, client: Any) -> list[str]:
        listed = (await client.request("tools/list"))["tools"]
        return [tool["name"] for tool in listed if tool["name"] != "continue"]

    async def until_told(self, told: list[str], since: int) -> None:
        """Waits until the log tells of a mistake, and checks that the status does."""
        await wait_until(lambda: all(one in self.log.read_text()[since:] for one in told), f"{told} in the log")
        (behind,) = await find_gateways()
        needs = (await behind.ask("home"))["attention"]
        (fault,) = [line for need in needs if need["kind"] == "configuration" for line in need["details"]]
        assert all(one in fault for one in told)

    async def until_settled(self, client: Any) -> None:
        """Waits until the gateway offers the last version, and no process of a former one runs."""
        listed, fault, expected = ["nothing yet"], "", self.configuration.tools()
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while sorted(listed) != sorted(expected) or fault or not await self._has_marks(client):
                    await asyncio.sleep(STATUS_SECONDS)
                    fault = (await self.status(client)).get("fault", "")
                    listed = await self.tools(client)
        except TimeoutError:
            raise AssertionError(f"it lists {listed}, not {expected}; {fault}") from None
        self.settled = len(self.configuration.versions) - 1

    async def _has_marks(self, client: Any) -> bool:
        for name, one in self.configuration.servers.items():
            with contextlib.suppress(DeltaError):
                if (await who(client, f"{name}_who"))["mark"] == one.mark:
                    continue
            return False
        return True

    async def load(self, client: Any, random: Random) -> None:
        """Calls servers, one after the other, and checks who answers."""
        versions = self.configuration.versions
        while not self.is_over:
            name, first = random.choice(NAMES), self.settled
            found, error = None, None
            try:
                found = await who(client, f"{name}_who")
            except DeltaError as failure:
                error = failure
            self.calls += 1
            await asyncio.sleep(CALL_SECONDS)
            possible = [one.get(name) for one in versions[first:]]
            if found is not None:
                assert found["server"] == name, f"{found} answers for {name}"
                assert found["mark"] in [one.mark for one in possible if one], f"{found} is none of {possible}"
            else:
                assert None in possible, f"a call of {name} was lost: {error}"
                assert f"{name}_who" in str(error), error


async def who(client: Any, tool: str, **arguments: Any) -> Any:
    """Calls a tool as any client does that has not looked at the list again."""
    return await client.call(tool, **arguments)


@contextlib.contextmanager
def edited_gateway(tmp_path: Path, seed: int):
    random = Random(seed)
    configuration = EditedConfiguration(tmp_path, new_mark(), random, [{}])
    for _ in range(4):
        configuration.next_version()
    configuration.versions[:-1] = []
    configuration.write()
    port, grpc_port, log = free_port(), free_port(), tmp_path / "log"
    addresses = ["--http", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{grpc_port}"]
    command = [str(PROGRAM), "gateway", *addresses, "--no-ledger", str(configuration.toml)]
    with log.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            yield EditedGateway(configuration, process, log), port, grpc_port
            process.terminate()
            assert process.wait(HANG_SECONDS) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
    assert find_marked(configuration.mark) == []


@needs_proc
@pytest.mark.parametrize("edits", EDITS)
async def test_no_call_is_lost_or_misled_no_process_is_left_and_mistakes_are_told_with_their_line(tmp_path, edits):
    async with contextlib.AsyncExitStack() as stack:
        gateway, port, grpc_port = stack.enter_context(edited_gateway(tmp_path, edits))
        configuration, random, told = gateway.configuration, gateway.configuration.random, list[str]()
        url = f"http://127.0.0.1:{port}/mcp"
        await asyncio.to_thread(wait_until_it_answers, gateway.process, url)
        await asyncio.to_thread(wait_until_it_listens, gateway.process, grpc_port)
        heard = list[Any]()
        options: dict[str, Any] = {"progressive": False, "cache_seconds": 0}
        dialects: list[tuple[str, Any]] = [
            (url, {"speak": "modern"}),
            (url, {"speak": "handshake"}),
            (f"grpc://127.0.0.1:{grpc_port}", {}),
        ]
        watcher = await stack.enter_async_context(connect(url, on_change=heard.append, **options))
        clients = [await stack.enter_async_context(connect(target, **options, **more)) for target, more in dialects]
        await gateway.until_settled(watcher)
        async with asyncio.TaskGroup() as group:
            for index, client in enumerate(clients):
                group.create_task(gateway.load(client, Random(index)))
            for number in range(edits):
                if number % 3 == 2:
                    end, mistake = len(gateway.log.read_text()), configuration.write_mistake()
                    gateway.read_again()
                    await gateway.until_told(mistake, end)
                    assert sorted(await gateway.tools(watcher)) == sorted(configuration.tools()), (
                        "what was before stays"
                    )
                    told += mistake
                    continue
                before, tools = configuration.servers, configuration.tools()
                lost = configuration.next_version()
                begun = await begin_calls(clients, {name: before[name] for name in lost}, tmp_path / f"gate-{number}")
                heard.clear()
                configuration.write()
                if random.random() < 0.8:  # else it looks by itself
                    gateway.read_again()
                await gateway.until_settled(watcher)
                if sorted(configuration.tools()) != sorted(tools):
                    await wait_until(lambda: bool(heard), "a notice that the list changed")
                for gate, call, mark in begun:
                    assert not call.done()
                    gate.touch()
                    assert (await call)["mark"] == mark
                for name in lost:
                    await until_ended(before[name].mark)
            gateway.is_over = True
        assert gateway.calls > edits
        text = gateway.log.read_text()
        assert told and all(one in text for one in told)


async def until_ended(mark: str) -> None:
    await wait_until(lambda: not find_marked(mark), "the end of a process")


async def begin_calls(clients: list[Any], servers: dict[str, Edited], gate: Path) -> list[tuple[Path, Any, str]]:
    """Begins a call at each of some servers, which ends when the file is there."""
    begun: list[tuple[Path, Any, str]] = []
    for name, one in servers.items():
        if not one.denies_wait:
            call = asyncio.create_task(who(clients[len(begun) % 2], f"{name}_wait", path=str(gate)))
            await wait_until(gate.with_suffix(".begun").exists, f"a call of {name}")
            begun.append((gate, call, one.mark))
    return begun
