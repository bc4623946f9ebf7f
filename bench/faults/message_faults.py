"""Requests over HTTP that are wrong in themselves: bodies that are no message, wrong values, headers, names."""

import dataclasses
import gzip
import re
from collections.abc import Callable

from bench import messages
from bench.faults.fault_server import FaultServer
from bench.faults.outcome import Grade, Outcome, harmed, right, safe, worst
from bench.faults.servers.tools import SECRET
from bench.hostile import payloads
from bench.hostile.attacked_server import HttpReply
from deltamcp.values import Era

BOTH = (Era.MODERN, Era.HANDSHAKE)
MAX_SENTENCE = 400


@dataclasses.dataclass(frozen=True)
class HttpFault:
    """One row of the table of faults over HTTP."""

    name: str
    title: str
    run: Callable[[FaultServer, Era], Outcome]
    eras: tuple[Era, ...] = BOTH
    own_process: bool = False
    """Whether the fault may end the server, or needs one that nobody else has used."""


def judge(reply: HttpReply, codes: tuple[int, ...], accepted: Grade = Grade.HARMED) -> Outcome:
    """Judges the reply to a request that must be refused with one of these codes; `accepted` is to take it as it is."""
    if reply.status in (0, 202) or reply.status >= 500:
        return harmed("never answered" if reply.status in (0, 202) else str(reply.status))
    try:
        said = messages.parse_reply(reply.body)
        error = said.get("error")
    except (ValueError, AttributeError):
        return safe(f"{reply.status} without a JSON-RPC error")
    if error is None:
        return Outcome(accepted, "accepted")
    if error["code"] not in codes:
        return safe(str(error["code"]))
    if "\n" in error["message"] or len(error["message"]) > MAX_SENTENCE:
        return safe(f"{error['code']} with a dump of the validator")
    return right(str(error["code"]))


def _echo(value: bytes, id: bytes = b"1") -> Callable[[Era], bytes]:
    """A call of `echo` with a value that is JSON already, or nearly."""

    def make(era: Era) -> bytes:
        body = payloads.call("echo", b'{"value":' + value + b"}", era=era)
        return body.replace(b'"id":1', b'"id":' + id, 1)

    return make


def _refused(
    *makes: Callable[[Era], bytes], codes: tuple[int, ...] = (-32700,), accepted: Grade = Grade.HARMED
) -> Callable[[FaultServer, Era], Outcome]:
    """Bodies that must be refused."""

    def run(server: FaultServer, era: Era) -> Outcome:
        return worst(
            judge(server.caller.post(make(era), server.headers(era, name="echo")), codes, accepted) for make in makes
        )

    return run


def _plain(body: bytes) -> Callable[[Era], bytes]:
    return lambda era: body


def _nested(levels: int) -> Callable[[Era], bytes]:
    return _echo(b"[" * levels + b"]" * levels)


def _batch(era: Era) -> bytes:
    return b"[" + messages.call(era, "echo", {"value": 1}) + b"," + messages.call(era, "echo", {"value": 2}, 2) + b"]"


def _twice(era: Era) -> bytes:
    return messages.call(era, "echo", {"value": 1}).replace(b'"method":', b'"method":"tools/list","method":', 1)


def _large_integer(server: FaultServer, era: Era) -> Outcome:
    reply = server.caller.post(_echo(b"18446744073709551617")(era), server.headers(era, name="echo"))
    return right("kept") if b"18446744073709551617" in reply.body else harmed(f"{reply.sentence}: not kept")


def _long_header(server: FaultServer, era: Era) -> Outcome:
    headers = server.headers(era, name="echo") | {"X-Long": "x" * 100_000}
    status = server.caller.post(_echo(b"1")(era), headers).status
    return right("431") if status == 431 else Outcome(Grade.SAFE, "accepted" if status == 200 else str(status))


def _gzip(server: FaultServer, era: Era) -> Outcome:
    headers = server.headers(era, name="echo") | {"Content-Encoding": "gzip"}
    reply = server.caller.post(gzip.compress(_echo(b"1")(era)), headers)
    return right(str(reply.status)) if reply.status in (200, 415) else judge(reply, (), Grade.HARMED)


def _foreign(header: str, value: str, status: int) -> Callable[[FaultServer, Era], Outcome]:
    def run(server: FaultServer, era: Era) -> Outcome:
        reply = server.caller.post(_echo(b"1")(era), server.headers(era, name="echo") | {header: value})
        if reply.status == 200:
            return harmed("served")
        return right(str(reply.status)) if reply.status == status else safe(str(reply.status))

    return run


def _unknown_session(server: FaultServer, era: Era) -> Outcome:
    headers = messages.headers(Era.HANDSHAKE, "tools/call", session="0" * 32)
    status = server.caller.post(_echo(b"1")(era), headers).status
    return right("404") if status == 404 else harmed(str(status))


def _unknown_tool(server: FaultServer, era: Era) -> Outcome:
    reply = server.call(era, "ecko", {"value": 1})
    found = judge(reply, (-32602,), Grade.SAFE)
    if found.grade is Grade.RIGHT:
        return right("−32602 with the nearest name") if b"echo" in reply.body else safe("−32602")
    return safe("a result with isError") if found.text == "accepted" else found


def _wrong_argument(server: FaultServer, era: Era) -> Outcome:
    reply = server.call(era, "add", {"a": "two", "b": 3})
    try:
        said = messages.parse_reply(reply.body)
        text = said["error"]["message"] if "error" in said else said["result"]["content"][0]["text"]
    except (ValueError, KeyError, IndexError):
        return harmed(reply.sentence)
    if "\n" in text.strip() and re.search(r"https?://|validation error", text):
        return safe("a dump of the validator")
    return right("one sentence") if "a" in re.findall(r"\w+", text) else safe("does not name the argument")


def _secret(server: FaultServer, era: Era) -> Outcome:
    reply = server.call(era, "fail", {})
    return harmed("the secret is told") if SECRET.encode() in reply.body else right("hidden")


MESSAGE_FAULTS = (
    HttpFault(
        "nesting",
        "nesting of 10,000 · 900",
        _refused(_nested(10_000), _nested(900), accepted=Grade.SAFE),
    ),
    HttpFault(
        "utf-8",
        "invalid UTF-8 · lone surrogate",
        _refused(_echo(b'"\xff\xfe"'), _echo(rb'"\ud800"'), accepted=Grade.SAFE),
    ),
    HttpFault(
        "numbers",
        "integer of 5,000 digits · 1e400 · NaN",
        _refused(_echo(b"9" * 5_000), _echo(b"1e400"), _echo(b"NaN")),
    ),
    HttpFault("integer", "2^64+1", _large_integer),
    HttpFault("key-twice", "`method` twice", _refused(_twice, codes=(-32600,), accepted=Grade.SAFE)),
    HttpFault("not-json", "not JSON · empty", _refused(_plain(b"not JSON"), _plain(b""))),
    HttpFault("batch", "a batch", _refused(_batch, codes=(-32600,), accepted=Grade.SAFE)),
    HttpFault(
        "id",
        "id null · 1.5 · of 1 MB",
        _refused(
            _echo(b"1", b"null"),
            _echo(b"1", b"1.5"),
            _echo(b"1", b'"' + b"x" * 1_000_000 + b'"'),
            codes=(-32600,),
            accepted=Grade.SAFE,
        ),
    ),
    HttpFault("header", "a header of 100 kB", _long_header),
    HttpFault("gzip", "a compressed body", _gzip),
    HttpFault("host", "a foreign Host", _foreign("Host", "evil.example.com", 421)),
    HttpFault("origin", "a foreign Origin", _foreign("Origin", "https://evil.example.com", 403)),
    HttpFault("session", "an unknown session", _unknown_session, eras=(Era.HANDSHAKE,)),
    HttpFault("tool", "an unknown tool", _unknown_tool),
    HttpFault("argument", "an argument of the wrong type", _wrong_argument),
    HttpFault("secret", "a tool raises with a secret in the text", _secret),
)
