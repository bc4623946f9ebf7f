"""`delta-mcp call --detach` and `delta-mcp redeem`, at a server that goes on with calls, over each protocol."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import assert_one_sentence, run
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import FORKED_PROGRAM
from tests.support.processes import free_port

pytest.importorskip("docket")

SLOW = """
import asyncio
from pathlib import Path
from deltamcp import Context, DeltaServer, NeedsResource

server = DeltaServer("slow", "1")


@server.tool(promise="always")
async def work(number: int, ctx: Context) -> dict:
    "Work until there is a file."
    await ctx.report_progress(1, 2, "half")
    while not Path("may_end").exists():
        await asyncio.sleep(0.02)
    return {"number": number}


@server.tool(promise="always")
async def wait(mark: str) -> None:
    "Wait for ever, and leave a file when cancelled."
    Path(f"{mark}-begun").touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path(f"{mark}-ended").touch()


@server.tool
def think() -> str:
    "Need more."
    raise NeedsResource("Needs more tokens", kind="tokens", required=60_000)


@server.tool(promise="always")
async def ask(ctx: Context) -> str:
    "Ask."
    answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"Hello {(answer.content or {}).get('name')}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("slow")
    (made / "slow.py").write_text(SLOW)
    return made


@pytest.fixture(scope="module")
def ports(folder: Path) -> Iterator[tuple[int, int]]:
    """A server over HTTP and gRPC."""
    http, grpc = free_port(), free_port()
    words = [FORKED_PROGRAM, "serve", "slow.py", "--http", f"127.0.0.1:{http}", "--grpc", f"127.0.0.1:{grpc}"]
    with subprocess.Popen([str(word) for word in words], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while said.count("Serving") < 2:
            said += process.stderr.readline()
            assert process.poll() is None, said
        yield http, grpc
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=HANG_SECONDS)


@pytest.fixture(params=["lite", "grpc", "mcp"])
def target(request: pytest.FixtureRequest, ports: tuple[int, int]) -> str:
    http, grpc = ports
    addresses = {
        "lite": f"mcplite+http://127.0.0.1:{http}",
        "grpc": f"grpc://127.0.0.1:{grpc}",
        "mcp": f"http://127.0.0.1:{http}/mcp",
    }
    return addresses[request.param]


def test_a_detached_call_is_redeemed_by_its_token(target, folder):
    detached = run("call", target, "work", "number=3", "--detach", cwd=folder)
    assert detached.code == 0, detached.err
    token = detached.out.strip()
    assert token.startswith("prom_")
    status = run("redeem", target, token, "--status", cwd=folder)
    assert status.out.startswith("working")
    assert_one_sentence(run("redeem", target, token, "--wait", "0.2", cwd=folder), 3)
    (folder / "may_end").touch()
    try:
        assert json.loads(run("redeem", target, token, cwd=folder).out) == {"number": 3}
        whole = run("redeem", target, token, "--all", "--json", cwd=folder)
        assert json.loads(whole.out) == {"number": 3}
    finally:
        (folder / "may_end").unlink()


def test_a_detached_call_is_cancelled(target, folder):
    told = json.loads(run("call", target, "work", "number=4", "--detach", "--json", cwd=folder).out)
    run("redeem", target, told["token"], "--cancel", cwd=folder)
    ended = run("redeem", target, told["token"], cwd=folder)
    assert ended.code == 1
    assert "cancelled" in ended.err


def test_the_question_of_a_detached_call_is_answered_when_it_is_redeemed(target, folder):
    token = run("call", target, "ask", "--detach", cwd=folder).out.strip()
    answered = run("redeem", target, token, "--answer", '{"name": "Ada"}', cwd=folder)
    assert answered.out == "Hello Ada", answered.err


def test_lists_and_definitions_are_printed(target, folder):
    assert " work" in run("list", target, cwd=folder).out
    assert "work(number:int)" in run("describe", target, "work", cwd=folder).out


def test_a_program_cannot_be_detached_from(folder):
    assert_one_sentence(run("call", "slow.py", "work", "number=1", "--detach", cwd=folder), 2)
    assert_one_sentence(run("redeem", "slow.py", "prom_x", cwd=folder), 2)


@pytest.mark.parametrize("words", [("--page", "2"), ("--all",), ("--fields", "number")])
def test_a_detached_call_prints_no_part_of_a_result(folder, words):
    done = run("call", "http://127.0.0.1:1/mcp", "work", "number=1", "--detach", *words, cwd=folder)
    assert_one_sentence(done, 2)


def test_redeem_says_how_it_is_used(folder):
    assert "Usage: delta-mcp redeem TARGET TOKEN" in run("redeem", "http://127.0.0.1:1/mcp", cwd=folder).err
    both = run("redeem", "http://127.0.0.1:1/mcp", "prom_x", "--status", "--cancel", cwd=folder)
    assert_one_sentence(both, 2)


def test_a_call_that_is_interrupted_is_cancelled(target, folder):
    mark = target.partition(":")[0]
    words = [str(FORKED_PROGRAM), "call", target, "wait", f"mark={mark}"]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_file(folder / f"{mark}-begun")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, *said) == (130, "", "")
    wait_for_file(folder / f"{mark}-ended")


def wait_for_file(file: Path) -> None:
    ends_at = time.monotonic() + HANG_SECONDS
    while not file.exists():
        assert time.monotonic() < ends_at, f"there is no {file.name}"
        time.sleep(0.02)


def test_a_call_that_needs_more_of_a_resource_fails(ports, folder):
    assert_one_sentence(run("call", f"grpc://127.0.0.1:{ports[1]}", "think", cwd=folder), 1)


def test_a_server_without_tls_is_told_in_one_sentence(ports, folder):
    assert_one_sentence(run("list", f"grpcs://127.0.0.1:{ports[1]}", cwd=folder), 3)


def test_an_unknown_token_is_refused(target, folder):
    assert_one_sentence(run("redeem", target, "prom_" + "0" * 26, cwd=folder), 1)
