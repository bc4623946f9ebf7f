"""Faults over stdio, against a process of its own and over real pipes.

The client is a thread that reads and the test that writes, so that a test may leave either undone. Nothing measures
time: waits are bounded, and what must come first is asserted by order.
"""

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.conditions import HANG_SECONDS
from tests.support.fork_server import Start, start_forked
from tests.support.paths import MISBEHAVING_SERVER, PROGRAM
from tests.support.watched_process import WatchedProcess

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
SECRET = "hunter2-db-password"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory from /proc")


class Client(WatchedProcess):
    """The program at the other end of the pipes."""

    def __init__(self, place: Path, limits: dict[str, float]) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.trace, self.log = place / "trace", place / "log"
        self.numbers = itertools.count(1_000)
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.waiting: list[Any] = []
        self.reading: threading.Thread | None = None
        environment = {**os.environ, "FAULTS_TRACE": str(self.trace), "FAULTS_LIMITS": json.dumps(limits)}
        start = Start(["serve", str(MISBEHAVING_SERVER)], str(Path.cwd()), environment)
        with self.log.open("wb") as errors:
            self.process, self.stdin, self.stdout = start_forked(start, errors)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_SECONDS)
        with contextlib.suppress(OSError):
            self.stdin.close()
        if self.reading is not None:
            self.reading.join(HANG_SECONDS)
        self.stdout.close()

    # Writing

    def write(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def pour(self, pieces: Iterable[bytes]) -> "Pouring":
        return Pouring(self, pieces)

    def notify(self, method: str, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def request(self, method: str, params: dict[str, Any], id_: Any = None, meta: Any = META) -> Any:
        """Sends it and gives back its id; `meta` None is the handshake era."""
        id_ = next(self.numbers) if id_ is None else id_
        self.write(line(method, params, id_, meta))
        return id_

    def call(self, tool: str, id_: Any = None, meta: Any = META, **arguments: Any) -> Any:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, id_, meta)

    # Reading

    def read(self) -> None:
        """Begins to read, for good."""

        def run() -> None:
            for found in self.stdout:
                self.lines.put(found)
            self.lines.put(None)

        self.reading = threading.Thread(target=run, daemon=True)
        self.reading.start()

    def next(self) -> Any:
        """The next message; None at the end. Fails where a line is anything but one JSON-RPC message."""
        try:
            found = self.lines.get(timeout=HANG_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no message came; the log ends {self.log_text()[-1_000:]}") from None
        if found is None:
            self.lines.put(None)
            return None
        assert found.endswith(b"\n"), found[:200]
        message = json.loads(found, parse_constant=refuse)
        assert message["jsonrpc"] == "2.0", found[:200]
        assert ("method" in message) or (("result" in message) != ("error" in message)), found[:200]
        return message

    def answer(self, id_: Any) -> Any:
        """The answer with this id and this type of id; others are kept."""
        for message in self.waiting:
            if same(message, id_):
                self.waiting.remove(message)
                return message
        while message := self.next():
            if same(message, id_):
                return message
            self.waiting.append(message)
        raise AssertionError(f"the server left without answering {id_!r}; the log ends {self.log_text()[-1_000:]}")

    def rest(self) -> list[Any]:
        """Everything up to the end of the stream."""
        while message := self.next():
            self.waiting.append(message)
        return self.waiting

    def ask(self, tool: str, meta: Any = META, **arguments: Any) -> Any:
        return self.answer(self.call(tool, None, meta, **arguments))

    def still_serves(self) -> None:
        assert text(self.ask("add", a=2, b=3)) == "5"

    def alone(self, data: bytes) -> Any:
        """The one message that answers `data`, or None if a later request is answered first and nothing comes."""
        self.write(data)
        last = self.call("add", a=0, b=0)
        before = []
        while not same(message := self.next(), last):
            before.append(message)
        assert len(before) <= 1, before
        return before[0] if before else None

    def handshake(self, version: str = LEGACY) -> None:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "hostile", "version": "1"}}
        assert self.answer(self.request("initialize", params, meta=None))["result"]
        self.notify("notifications/initialized")

    # Watching

    def exit_code(self) -> int:
        try:
            return self.process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the process stays; the log ends {self.log_text()[-1_000:]}") from None


class Pouring:
    """A thread that writes until all is written or nobody takes it."""

    def __init__(self, client: Client, pieces: Iterable[bytes]) -> None:
        self.written = 0
        self.done = False

        def run() -> None:
            with contextlib.suppress(OSError, ValueError):
                for piece in pieces:
                    client.write(piece)
                    self.written += len(piece)
                self.done = True

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def settle(self) -> None:
        """Waits until it is done or gets no further."""
        before = -1
        while not self.done and before != self.written:
            before = self.written
            time.sleep(0.5)

    def join(self) -> None:
        self.thread.join(HANG_SECONDS)
        assert self.done


def refuse(word: str) -> None:
    raise AssertionError(f"{word} on the wire")


def same(message: Any, id_: Any) -> bool:
    return (
        message is not None
        and "method" not in message
        and message.get("id") == id_
        and type(message.get("id")) is type(id_)
    )


def line(method: str, params: dict[str, Any], id_: Any, meta: Any = META) -> bytes:
    if meta is not None:
        params = {**params, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode() + b"\n"


def text(message: Any) -> str:
    return "".join(item.get("text", "") for item in message["result"]["content"])


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def connected(place: Path, reading: bool = True, **limits: float) -> Iterator[Client]:
    client = Client(place, limits)
    try:
        if reading:
            client.read()
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The server most tests share; whatever one test does to it the next one feels."""
    with connected(tmp_path_factory.mktemp("stdio"), threads=8, stall_seconds=0.2) as found:
        yield found
        found.still_serves()


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The same for a client that began with a handshake."""
    with connected(tmp_path_factory.mktemp("handshake")) as found:
        found.handshake()
        yield found
        assert found.answer(found.request("ping", {}, meta=None))["result"] == {}


ERAS = {"modern": META, "handshake": None}


@pytest.fixture(params=ERAS)
def peer(request: pytest.FixtureRequest) -> tuple[Client, Any]:
    """A shared client and the `_meta` its requests carry, of either era."""
    name = "client" if request.param == "modern" else "legacy"
    return request.getfixturevalue(name), ERAS[request.param]


# Lines that are no message


def echo_line(value: bytes, id_: bytes = b"1") -> bytes:
    meta = json.dumps(META).encode()
    return (
        b'{"jsonrpc":"2.0","id":' + id_ + b',"method":"tools/call","params":{"name":"echo","arguments":{"value":'
        b"" + value + b'},"_meta":' + meta + b"}}"
    )


NOT_MESSAGES = {
    "words": (b"this is not JSON", -32700),
    "half a message": (b'{"jsonrpc":"2.0","id":1,"meth', -32700),
    "two messages": (echo_line(b"1") + b" " + echo_line(b"1"), -32700),
    "null bytes": (b"\x00" * 50, -32700),
    "UTF-16": ('{"jsonrpc":"2.0"}'.encode("utf-16-le"), -32700),
    "a header of another protocol": (b"Content-Length: 20\r", -32700),
    "nesting 129": (echo_line(b"[" * 126 + b"]" * 126), -32700),
    "nesting 10,000": (echo_line(b"[" * 10_000 + b"]" * 10_000), -32700),
    "nesting 50,000 that never closes": (b"[" * 50_000, -32700),
    "integer of 5,000 digits": (echo_line(b"9" * 5_000), -32700),
    "1e400": (echo_line(b"1e400"), -32700),
    "NaN": (echo_line(b"NaN"), -32700),
    "-Infinity": (echo_line(b"-Infinity"), -32700),
    "invalid UTF-8": (echo_line(b'"\xff\xfe"'), -32700),
    "invalid UTF-8 in a key, beside an escape": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","\x80":"\\u0041"}',
        -32700,
    ),
    "UTF-8 of a surrogate": (echo_line(b'"\xed\xa0\x80"'), -32700),
    "lone surrogate": (echo_line(rb'"\ud800"'), -32700),
    "a number": (b"7", -32600),
    "null": (b"null", -32600),
    "an empty object": (b"{}", -32600),
    "empty batch": (b"[]", -32600),
    "batch": (b"[" + echo_line(b"1") + b"," + echo_line(b"2", b"2") + b"]", -32600),
    "id null": (echo_line(b"1", b"null"), -32600),
    "id float": (echo_line(b"1", b"1.5"), -32600),
    "id true": (echo_line(b"1", b"true"), -32600),
    "id object": (echo_line(b"1", b'{"a":1}'), -32600),
    "id of 1 MB": (echo_line(b"1", b'"' + b"x" * 1_000_000 + b'"'), -32600),
    "id of 300 digits": (echo_line(b"1", b"1" * 300), -32600),
    "id twice": (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', -32600),
    "method twice": (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"tools/list"}', -32600),
    "no jsonrpc": (b'{"id":1,"method":"tools/list"}', -32600),
    "method a number": (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    "params an array": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32600),
}


@pytest.mark.parametrize("fault", NOT_MESSAGES)
def test_a_line_that_is_no_message_is_answered_with_the_right_code(client: Client, fault: str) -> None:
    data, code = NOT_MESSAGES[fault]
    found = client.alone(data + b"\n")
    assert found is not None, "a waiting client would hang"
    assert set(found) == {"jsonrpc", "id", "error"}
    assert found["id"] in {None, 1}
    assert found["error"]["code"] == code, found
    assert len(json.dumps(found)) < 1_000, "the fault is not sent back"


def test_a_batch_is_served_to_the_one_version_that_has_batches(tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        client.handshake("2025-03-26")
        ping, add = line("ping", {}, 1, None).strip(), line("tools/call", {"name": "add"}, 2, None).strip()
        client.write(b"[" + ping + b"," + add + b"]\n")
        found = client.lines.get(timeout=HANG_SECONDS)
        assert found is not None
        answers = json.loads(found)
        if isinstance(answers, dict):
            answers = [answers, client.next()]
        assert {answer["id"] for answer in answers} == {1, 2}


def test_what_needs_no_answer_gets_none(client: Client) -> None:
    for data in (
        b"\n\r\n  \n",
        b'{"jsonrpc":"2.0","method":"notifications/nonsense"}\n',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[1]}}}\n',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}\n',
        b'{"jsonrpc":"2.0","id":7,"result":{}}\n',
        b'{"jsonrpc":"2.0","id":"nobody","error":{"code":1,"message":"x"}}\n',
    ):
        assert client.alone(data) is None, data


# Framing


def test_a_message_may_come_a_byte_at_a_time_or_many_at_once(client: Client) -> None:
    for byte in line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "slowly"):
        client.write(bytes([byte]))
    assert text(client.answer("slowly")) == "3"
    many = [line("tools/call", {"name": "add", "arguments": {"a": n, "b": 0}}, n) for n in range(500)]
    client.write(b"".join(many))
    assert [text(client.answer(number)) for number in range(500)] == [str(number) for number in range(500)]


def test_lines_may_end_as_they_do_on_windows(client: Client) -> None:
    client.write(line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "windows")[:-1] + b"\r\n")
    assert text(client.answer("windows")) == "3"


def test_text_with_separators_of_other_kinds_stays_on_one_line(client: Client) -> None:
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\ni\x00j\U0001f600"
    assert json.loads(text(client.ask("echo", value=odd))) == {"value": odd}


def test_a_line_is_taken_up_to_the_limit_and_not_a_byte_further(tmp_path: Path) -> None:
    with connected(tmp_path, message_bytes=2_000) as client:
        frame = line("tools/call", {"name": "echo", "arguments": {"value": "?"}}, 1)[:-1]
        for size in (2_000, 2_001, 2_000, 5_000, 200_000, 2_000):
            data = frame.replace(b'"?"', b'"' + b"x" * (size - len(frame) + 1) + b'"')
            assert len(data) == size
            found = client.alone(data + b"\n")
            if size == 2_000:
                assert "result" in found
            else:
                assert found["error"]["code"] == -32600


SLACK = 24 * 1024 * 1024
LARGE = 100 * 1024 * 1024


def test_one_line_of_100_mb_is_refused_once_and_not_kept(client: Client) -> None:
    client.still_serves()
    before = client.memory()
    client.forget_peak()
    pieces = itertools.chain(
        [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"'],
        itertools.repeat(b"x" * 65_536, LARGE // 65_536),
        [b'"}}\n'],
    )
    client.pour(pieces).join()
    last = client.call("add", a=1, b=2)
    found = client.next()
    assert found["error"]["code"] == -32600
    assert found["id"] == 1
    assert same(client.next(), last)
    assert client.peak() - before < SLACK


def test_a_line_that_never_ends_is_refused_at_the_limit_and_its_end_is_no_message(tmp_path: Path) -> None:
    with connected(tmp_path, message_bytes=10_000) as client:
        client.write(b"x" * 300_000)
        assert client.next()["error"]["code"] == -32600, "without waiting for the end of the line"
        client.write(b"x" * 300_000 + b"\n")
        client.still_serves()
        assert client.waiting == []


# Calls


def test_a_slow_call_does_not_hold_up_a_fast_one(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    for tool in ("async_wait", "plain_wait"):
        tag = f"{tool}-{'handshake' if meta is None else 'modern'}"
        slow = client.call(tool, meta=meta, tag=tag)
        fast = client.call("add", meta=meta, a=1, b=2)
        assert same(client.next(), fast)
        client.release(tag)
        assert text(client.answer(slow)) == f"waited {tag}"


def test_60_waiting_threads_hold_up_no_other_call(client: Client) -> None:
    waiters = [client.call("plain_wait", tag=f"thread-{number}") for number in range(60)]
    until(lambda: any("started thread" in found for found in client.trace_lines()), "the pool")
    add = client.call("add", a=1, b=2)
    assert same(client.next(), add)
    for number in range(60):
        client.release(f"thread-{number}")
    for waiter in waiters:
        assert text(client.answer(waiter)).startswith("waited thread")


def test_the_second_of_two_calls_with_one_id_is_refused_and_the_first_answered(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    tag = f"first-{'handshake' if meta is None else 'modern'}"
    client.call("async_wait", "twice", meta, tag=tag)
    client.call("add", "twice", meta, a=1, b=2)
    refused = client.answer("twice")
    assert refused["error"]["code"] == -32600
    client.release(tag)
    assert text(client.answer("twice")) == f"waited {tag}"


def test_ids_that_only_look_the_same_are_both_answered(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    for id_ in (1, "1", 0, "0", ""):
        client.call("async_sleep", id_, meta, seconds=0.2, tag=repr(id_))
    for id_ in (1, "1", 0, "0", ""):
        assert text(client.answer(id_)) == f"slept {id_!r}"


def test_a_cancelled_call_is_cancelled_and_not_answered(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    id_ = client.call("async_sleep", meta=meta, seconds=60, tag="cancel-me")
    until(lambda: "started cancel-me" in client.trace_lines(), "the call")
    client.notify("notifications/cancelled", requestId=id_)
    until(lambda: "cancelled cancel-me" in client.trace_lines(), "its end")
    last = client.call("async_sleep", meta=meta, seconds=0.2)
    client.answer(last)
    assert not any(message.get("id") == id_ for message in client.waiting)


def test_a_call_is_cancelled_by_its_own_id_only(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    client.call("async_sleep", 1, meta, seconds=0.3, tag="safe")
    for odd in ("1", True, 1.5, None, [1], {"1": 1}, -1):
        client.notify("notifications/cancelled", requestId=odd)
    assert text(client.answer(1)) == "slept safe"


def test_a_call_cancelled_before_it_began_and_after_it_ended_harms_nothing(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    done = client.call("add", meta=meta, a=1, b=2)
    client.answer(done)
    client.notify("notifications/cancelled", requestId=done)
    call = line("tools/call", {"name": "async_sleep", "arguments": {"seconds": 60, "tag": "early"}}, "early", meta)
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"early"}}\n'
    client.write(call + cancel)
    client.answer(client.call("async_sleep", meta=meta, seconds=0.2))
    assert not any(message.get("id") == "early" for message in client.waiting)
    assert "started early" not in client.trace_lines() or "cancelled early" in client.trace_lines()


def test_a_cancelled_subscription_ends(client: Client) -> None:
    client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "sub")
    assert client.next()["method"] == "notifications/subscriptions/acknowledged"
    client.ask("announce")
    heard = [message for message in client.waiting if message.get("method") == "notifications/tools/list_changed"]
    if not heard:
        heard.append(client.next())
    assert heard[0]["params"]["_meta"][SUBSCRIPTION] == "sub"
    client.waiting.clear()
    client.notify("notifications/cancelled", requestId="sub")
    client.still_serves()
    client.ask("announce")
    client.answer(client.call("async_sleep", seconds=0.2))
    assert not any("list_changed" in message.get("method", "") for message in client.waiting)
    client.waiting.clear()


ANSWERS: dict[str, Any] = {
    "an error": {"error": {"code": -1, "message": "no user here"}},
    "a result that is none": {"result": 7},
    "an empty result": {"result": {}},
    "an unknown action": {"result": {"action": "explode"}},
    "content of another shape": {"result": {"action": "accept", "content": {"ok": "perhaps", "more": [1]}}},
}


def test_an_answer_that_is_none_fails_the_tool_and_not_the_server(tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        info = {"name": "hostile", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": info}
        client.answer(client.request("initialize", params, meta=None))
        client.notify("notifications/initialized")
        for case, answer in ANSWERS.items():
            client.call("ask", case, None)
            question = client.next()
            assert question["method"] == "elicitation/create"
            for id_ in ("nobody", True, None):
                client.write(json.dumps({"jsonrpc": "2.0", "id": id_, "result": {"action": "accept"}}).encode() + b"\n")
            client.write(json.dumps({"jsonrpc": "2.0", "id": question["id"], **answer}).encode() + b"\n")
            found = client.answer(case)
            assert "error" in found or found["result"].get("isError") is True, (case, found)
            client.waiting.clear()
        assert client.answer(client.request("ping", {}, meta=None))["result"] == {}


EXCEPTIONS = ["secret", "unprintable", "exit", "interrupt", "alien", "cancelled", "generator_exit", "stop", "recursion"]


@pytest.mark.parametrize("kind", EXCEPTIONS)
@pytest.mark.parametrize("tool", ["raise_async", "raise_async_later", "raise_plain"])
def test_whatever_a_tool_raises_the_model_is_told_and_the_log_knows_more(client: Client, tool: str, kind: str) -> None:
    failing = client.call(tool, kind=kind)
    client.answer(client.call("async_sleep", seconds=0.1))
    found = [message for message in client.waiting if same(message, failing)]
    client.waiting.clear()
    assert found, "a waiting client would hang"
    assert found[0]["result"]["isError"]
    assert SECRET not in json.dumps(found[0])
    assert text(found[0]).split("(error ")[1].split(")")[0] in client.log_text()


def test_a_program_that_ends_itself_does_not(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    assert client.ask("leave", meta)["result"]["isError"]
    assert client.answer(client.request("prompts/get", {"name": "exit_prompt"}, None, meta))["error"]["code"] == -32603
    assert (
        client.answer(client.request("resources/read", {"uri": "fault://exit"}, None, meta))["error"]["code"] == -32603
    )
    assert text(client.ask("add", meta, a=1, b=2)) == "3"


UNSENDABLE = {
    "nan": "finite",
    "infinity": "ratio",
    "surrogate": "surrogate",
    "surrogate_inside": "surrogate",
    "surrogate_key": "surrogate",
    "loop": "",
    "deep": "",
    "object": "object",
    "tuple_key": "tuple",
    "big_integer": "",
    "result_nan": "ratio",
    "result_surrogate": "surrogate",
}


@pytest.mark.parametrize("kind", UNSENDABLE)
def test_what_cannot_be_sent_is_a_failure_that_names_it(peer: tuple[Client, Any], kind: str) -> None:
    client, meta = peer
    for tool in ("give", "give_plain"):
        found = client.ask(tool, meta, kind=kind)
        assert found["result"]["isError"]
        assert UNSENDABLE[kind] in text(found)
        assert "structuredContent" not in found["result"]
    assert text(client.ask("add", meta, a=1, b=2)) == "3"


def test_5_mb_of_text_arrive_whole_and_once(client: Client) -> None:
    found = client.ask("give", kind="big")
    assert text(found) == "x" * 5_000_000
    assert len(json.dumps(found)) < 5_001_000


# Standard streams


def test_a_tool_that_prints_writes_to_no_client(peer: tuple[Client, Any]) -> None:
    client, meta = peer
    ids = [client.call("chatter", meta=meta) for _ in range(5)]
    for id_ in ids:
        assert text(client.answer(id_)) == "said", "and every line in between was a message, or `next` had failed"
    assert client.waiting == []
    for said in ("printed", "written without an end", "below python", "from a child"):
        assert said in client.log_text()


@pytest.mark.parametrize("tool", ["listens_to_stdin", "child_reads_stdin"])
def test_a_tool_that_reads_standard_input_finds_it_empty(client: Client, tool: str) -> None:
    """It would take the client's next message away from the server."""
    reader = client.call(tool)
    others = [client.call("add", a=number, b=0) for number in range(5)]
    assert text(client.answer(reader)) in {"''", "b''"}
    for number, id_ in enumerate(others):
        assert text(client.answer(id_)) == str(number)


# Pressure


def test_20000_calls_to_a_client_that_does_not_read_are_not_taken_and_then_all_answered(tmp_path: Path) -> None:
    with connected(tmp_path, reading=False) as client:
        padding = "x" * 2_000
        client.write(line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "first"))
        until(lambda: bool(client.trace_lines()), "the first call")
        before = client.memory()
        client.forget_peak()
        pouring = client.pour(
            line("tools/call", {"name": "echo", "arguments": {"value": padding}}, number) for number in range(20_000)
        )
        pouring.settle()
        assert not pouring.done, "the server stops reading"
        assert client.peak() - before < 2 * SLACK
        client.read()
        assert text(client.answer("first")) == "3"
        found = {client.next()["id"] for _ in range(20_000)}
        assert found == set(range(20_000))
        pouring.join()
        assert client.peak() - before < 2 * SLACK
        client.still_serves()


def test_a_tool_that_talks_to_a_client_that_does_not_read_fills_no_memory(tmp_path: Path) -> None:
    """100 MB of progress, and then all of it arrives."""
    with connected(tmp_path, reading=False) as client:
        meta = {**META, "progressToken": 1}
        client.write(line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "first"))
        until(lambda: bool(client.trace_lines()), "the first call")
        before = client.memory()
        client.forget_peak()
        arguments = {"count": 50_000, "size": 2_000, "tag": "deaf"}
        client.write(line("tools/call", {"name": "chatty", "arguments": arguments}, "talk", meta))
        time.sleep(1)
        assert client.peak() - before < SLACK
        client.read()
        steps = []
        client.answer("first")
        while not same(message := client.next(), "talk"):
            steps.append(message["params"]["progress"])
        assert steps == list(range(50_000))
        assert client.peak() - before < SLACK


def test_1000_calls_that_never_return_cost_little_hold_up_nobody_and_can_be_cancelled(tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        client.still_serves()
        before = client.memory()
        client.write(b"".join(line("tools/call", {"name": "never"}, number) for number in range(1_000)))
        client.still_serves()
        assert sum(found.startswith("started") for found in client.trace_lines()) == 1_000
        assert client.memory() - before < 1_000 * 35_000
        for number in range(1_000):
            client.notify("notifications/cancelled", requestId=number)
        client.still_serves()
        until(lambda: sum(found.startswith("ended") for found in client.trace_lines()) == 1_000, "their end")
        assert client.waiting == []


def test_5000_calls_that_never_return_are_bounded_and_others_are_served(tmp_path: Path) -> None:
    """Served, or refused as one too many: answered."""
    with connected(tmp_path) as client:
        client.still_serves()
        before = client.memory()
        calls = (line("tools/call", {"name": "never"}, number) for number in range(5_000))
        add = line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "other")
        pouring = client.pour(itertools.chain(calls, [add]))
        pouring.settle()
        assert client.memory() - before < 5_000 * 35_000
        client.answer("other")


def test_a_connection_with_all_the_calls_it_may_have_still_hears_a_cancellation(tmp_path: Path) -> None:
    with connected(tmp_path, in_flight=4) as client:
        for number in range(4):
            client.call("never", number, tag=f"n{number}")
        until(lambda: sum("started" in found for found in client.trace_lines()) == 4, "the calls")
        client.notify("notifications/cancelled", requestId=2)
        until(lambda: "ended n2" in client.trace_lines(), "the end of the cancelled call")
        client.still_serves()


def test_beyond_the_calls_it_may_have_a_connection_waits_and_loses_nothing(tmp_path: Path) -> None:
    with connected(tmp_path, in_flight=4) as client:
        ids = [client.call("async_sleep", seconds=0.05, tag=str(number)) for number in range(40)]
        for number, id_ in enumerate(ids):
            assert text(client.answer(id_)) == f"slept {number}"


# The end


@pytest.mark.parametrize("era", ERAS)
def test_when_the_client_leaves_an_idle_server_goes(tmp_path: Path, era: str) -> None:
    with connected(tmp_path) as client:
        if era == "handshake":
            client.handshake()
        client.ask("add", ERAS[era], a=1, b=2)
        client.stdin.close()
        assert client.exit_code() == 0
        assert client.rest() == []
        assert "Traceback" not in client.log_text()


def test_when_the_client_leaves_before_its_first_word_the_server_goes(tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        client.stdin.close()
        assert client.exit_code() == 0
        assert "Traceback" not in client.log_text()


def test_when_the_client_leaves_in_the_middle_of_a_line_the_server_goes(tmp_path: Path) -> None:
    with connected(tmp_path) as client:
        client.still_serves()
        client.write(b'{"jsonrpc":"2.0","id":1,"meth')
        client.stdin.close()
        assert client.exit_code() == 0
        assert "Traceback" not in client.log_text()


@pytest.mark.parametrize("tool", ["async_sleep", "never", "stubborn", "plain_sleep"])
def test_when_the_client_leaves_its_calls_are_cancelled(tmp_path: Path, tool: str) -> None:
    with connected(tmp_path, drain_seconds=1) as client:
        client.call(tool, tag="x", **({"seconds": 60} if "sleep" in tool else {}))
        client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "sub")
        until(lambda: "started x" in client.trace_lines(), "the call")
        client.stdin.close()
        assert client.exit_code() == 0
        if tool != "plain_sleep":
            assert client.trace_lines()[-1] in {"cancelled x", "ended x", "ignored x"}
        assert "Traceback" not in client.log_text()


def test_told_to_stop_it_answers_what_it_can_and_goes(tmp_path: Path) -> None:
    with connected(tmp_path, drain_seconds=60) as client:
        ids = [client.call(tool, seconds=0.7, tag=tool) for tool in ("async_sleep", "plain_sleep")]
        client.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "sub")
        until(lambda: len(client.trace_lines()) == 2, "the calls")
        client.process.send_signal(signal.SIGTERM)
        found = client.rest()
        for id_ in ids:
            (answer,) = [message for message in found if same(message, id_)]
            assert text(answer).startswith("slept")
        farewell = [
            message
            for message in found
            if same(message, "sub")
            or (message.get("method") == "notifications/cancelled" and message["params"]["requestId"] == "sub")
        ]
        assert farewell, "the subscription is ended, not dropped"
        assert client.exit_code() == 0
        assert "Traceback" not in client.log_text()


@pytest.mark.parametrize("tool", ["never", "stubborn", "plain_sleep"])
def test_told_to_stop_it_fails_what_does_not_end_and_goes(tmp_path: Path, tool: str) -> None:
    with connected(tmp_path, drain_seconds=0.5) as client:
        id_ = client.call(tool, tag="x", **({"seconds": 60} if "sleep" in tool else {}))
        until(lambda: "started x" in client.trace_lines(), "the call")
        client.process.send_signal(signal.SIGTERM)
        answer = client.answer(id_)
        assert "error" in answer or answer["result"].get("isError") or tool == "stubborn"
        assert client.exit_code() == 0


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_an_idle_server_goes(tmp_path: Path, stop: signal.Signals) -> None:
    with connected(tmp_path, drain_seconds=60) as client:
        client.still_serves()
        client.process.send_signal(stop)
        assert client.exit_code() == 0
        assert client.rest() == []
        assert "Traceback" not in client.log_text()


def test_a_blocked_reader_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with connected(tmp_path, reading=False, drain_seconds=0.5) as client:
        client.call("async_sleep", seconds=0, tag="before")
        client.call("give", kind="big")
        client.call("async_sleep", seconds=0, tag="after")  # it may wait until the client reads
        until(lambda: "finished before" in client.trace_lines(), "the calls")
        client.process.send_signal(signal.SIGTERM)
        client.exit_code()


@pytest.mark.parametrize("calls", [1, 200])
def test_when_the_client_closes_its_reading_end_the_server_goes_cleanly(tmp_path: Path, calls: int) -> None:
    with connected(tmp_path, reading=False) as client:
        client.call("add", a=1, b=2)
        until(lambda: bool(client.trace_lines()), "the call")
        client.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            for _ in range(calls):
                client.call("add", a=1, b=2)
        assert client.exit_code() == 0
        assert "Traceback" not in client.log_text()


def test_when_the_client_closes_its_reading_end_a_running_call_is_cancelled(tmp_path: Path) -> None:
    with connected(tmp_path, reading=False) as client:
        client.call("async_sleep", seconds=60, tag="x")
        until(lambda: "started x" in client.trace_lines(), "the call")
        client.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            client.call("add", a=1, b=2)
        assert client.exit_code() == 0
        assert "cancelled x" in client.trace_lines()


def test_a_closed_log_harms_nothing(tmp_path: Path) -> None:
    """The server writes its log to a pipe whose other end is gone."""
    reading, writing = os.pipe()
    with subprocess.Popen(
        [str(PROGRAM), "serve", str(MISBEHAVING_SERVER)],
        env={**os.environ, "FAULTS_TRACE": "", "FAULTS_LIMITS": "{}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writing,
    ) as process:
        os.close(writing)
        os.close(reading)
        assert process.stdin is not None
        requests = [
            line("tools/call", {"name": "raise_async", "arguments": {"kind": "secret"}}, 1),
            line("tools/call", {"name": "raise_plain", "arguments": {"kind": "exit"}}, 2),
            line("tools/call", {"name": "chatter", "arguments": {}}, 3),
        ]
        try:
            process.stdin.write(b"".join(requests))
            process.stdin.flush()
            assert process.stdout is not None
            answers = [json.loads(process.stdout.readline()) for _ in requests]
            assert {answer["id"] for answer in answers} == {1, 2, 3}
            process.stdin.write(line("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, 4))
            process.stdin.close()
            assert process.wait(HANG_SECONDS) == 0
        finally:
            process.kill()
