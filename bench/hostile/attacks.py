"""The attacks on servers over HTTP: what is prepared, what is sent, and which other callers wait meanwhile."""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bench import messages
from bench.hostile import payloads, stores
from bench.hostile.attacked_server import (
    ATTACKER,
    MEGABYTE,
    OTHER,
    AttackedServer,
    HttpCaller,
    HttpReply,
    call_request,
    discover_request,
    modern_headers,
)
from bench.hostile.payloads import MESSAGE_BYTES, sizes
from bench.hostile.servers.tools import ServerOptions
from bench.hostile.stores import AttackedStore
from deltamcp.values import Era

_RESULT_KEY = "io.github.delta-mcp/result"
_CBOR = {"Content-Type": "application/cbor"}
_EVENTS = {"Accept": "text/event-stream, application/json"}

Prepared = Any
RequestParts = tuple[bytes, dict[str, str]]


class Answered(NamedTuple):
    """What came of an attack."""

    text: str
    broken: str = ""
    """What went wrong beside waiting and memory, as a sentence; empty if nothing did."""
    stored_mb: float = 0.0
    """The stored data that the attack made, or refers to."""


def _nothing(server: AttackedServer) -> Prepared:
    return None


def _only_discover(server: AttackedServer, prepared: Prepared) -> dict[str, RequestParts]:
    return {"server/discover": discover_request()}


_USUAL = ServerOptions()


@dataclasses.dataclass(frozen=True)
class Attack:
    """One row of the table."""

    name: str
    title: str
    run: Callable[[AttackedServer, Prepared], Answered]
    prepare: Callable[[AttackedServer], Prepared] = _nothing
    for_peers: bool = False
    """Whether the attack is on something that the peers have too."""
    others: Callable[[AttackedServer, Prepared], dict[str, RequestParts]] = _only_discover
    """The requests of others whose waits count."""
    keeps: bool = False
    """Whether the server stores something for a time, so that it is also measured after that time."""
    options: ServerOptions = _USUAL
    store: Callable[[], contextlib.AbstractContextManager[AttackedStore]] | None = None
    """Opens the store that the server uses; what is prepared is then how to keep it from answering."""


# What attacks have in common


def _attacker(server: AttackedServer) -> HttpCaller:
    return HttpCaller(server.port, ATTACKER, 300)


def _summarize(replies: Iterable[HttpReply]) -> str:
    """The different answers, in the order in which they came."""
    return "; ".join(list(dict.fromkeys(reply.sentence for reply in replies))[:3])


def _is_accepted(reply: HttpReply) -> bool:
    return reply.status in (200, 202) and b'"error"' not in reply.body[:2_000]


def _send_sizes(server: AttackedServer, make: Callable[[int], bytes], headers: dict[str, str]) -> Answered:
    """Posts the same attack at every size."""
    caller = _attacker(server)
    return Answered(_summarize([caller.post(make(size), headers) for size in sizes()]))


def _send_together(server: AttackedServer, bodies: list[bytes], headers: dict[str, str]) -> list[HttpReply]:
    """Posts several requests at the same time."""
    caller = _attacker(server)
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: caller.post(body, headers), bodies))


def _open_session(server: AttackedServer) -> str:
    session = _attacker(server).open_session().session
    if session is None:
        raise RuntimeError("no session")
    return session


def _store(tool: str) -> Callable[[AttackedServer], Prepared]:
    return lambda server: _attacker(server).store(tool)


def _calls(server: AttackedServer, tool: str, arguments: list[dict[str, Any]]) -> Answered:
    """Makes calls one after the other."""
    caller = _attacker(server)
    return Answered(_summarize([caller.call(tool, given) for given in arguments]))


@contextlib.contextmanager
def _held_open() -> Iterator[list[socket.socket]]:
    """Sockets that stay open until the end of the block."""
    opened: list[socket.socket] = []
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


# Validation and decoding


def _validation_json(server: AttackedServer, _: Prepared) -> Answered:
    return _send_sizes(
        server,
        lambda size: payloads.call("total", b'{"values":' + payloads.items(b"[]", size) + b"}"),
        modern_headers("tools/call", "total"),
    )


def _validation_cbor(server: AttackedServer, _: Prepared) -> Answered:
    def make(size: int) -> bytes:
        params = {"name": "total", "arguments": {"values": "@@@"}}
        return payloads.cbor_request("tools/call", params, payloads.cbor_array(b"\x80", size))

    return _send_sizes(server, make, modern_headers("tools/call", "total") | _CBOR)


def _parse(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    return lambda server, _: _send_sizes(
        server,
        lambda size: payloads.request("server/discover", {"x": "@@@"}, payloads.items(item, size)),
        modern_headers("server/discover"),
    )


def _parse_cbor(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    return lambda server, _: _send_sizes(
        server,
        lambda size: payloads.cbor_request("server/discover", {"x": "@@@"}, payloads.cbor_array(item, size)),
        modern_headers("server/discover") | _CBOR,
    )


def _parse_together(server: AttackedServer, _: Prepared) -> Answered:
    replies: list[HttpReply] = []
    for size in sizes():
        body = payloads.request("server/discover", {"x": "@@@"}, payloads.items(b"[]", size))
        replies += _send_together(server, [body] * 8, modern_headers("server/discover"))
    return Answered(_summarize(replies))


def _parse_cbor_together(server: AttackedServer, _: Prepared) -> Answered:
    replies: list[HttpReply] = []
    nested = b"\x81" * 100 + b"\x00"
    for size in sizes():
        body = payloads.cbor_request("server/discover", {"x": "@@@"}, payloads.cbor_array(nested, size))
        replies += _send_together(server, [body] * 8, modern_headers("server/discover") | _CBOR)
    return Answered(_summarize(replies))


def _batch(item: bytes) -> Callable[[AttackedServer, Prepared], Answered]:
    """Batches, which only sessions of one revision have."""

    def run(server: AttackedServer, session: Prepared) -> Answered:
        headers = messages.headers(Era.HANDSHAKE, "ping", session=session) | {"MCP-Protocol-Version": "2025-03-26"}
        return _send_sizes(server, lambda size: payloads.items(item, size), headers)

    return run


def _open_batch_session(server: AttackedServer) -> Prepared:
    params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = messages.request(Era.HANDSHAKE, "initialize", params)
    return _attacker(server).post(body, messages.headers(None, "initialize")).session


# Programs and patterns


def _others_continue(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    """Another caller who reads on in a result of its own."""
    handle = HttpCaller(server.port, OTHER).store("list_rows_in_parts")
    return {
        "server/discover": discover_request(),
        "continue": call_request("continue", {"handle": handle, "offset": 50}),
    }


def _grep(server: AttackedServer, handle: Prepared) -> Answered:
    bodies = [
        messages.call(Era.MODERN, "continue", {"handle": handle, "grep": payloads.words(count) + f"|v{place}"})
        for place, count in enumerate((10_000, 10_000, 3_000, 1_000))
    ]
    return Answered(_summarize(_send_together(server, bodies, modern_headers("tools/call", "continue"))))


_EXPRESSIONS = (
    "[?" + "&&".join(["@>=`0`"] * 200) + "]",
    "|".join(["sort(@)"] * 200),
    "map(&[" + ",".join(["@"] * 15) + "], @)",
    "[*].to_string(@)|join('',@)",
)
_ROW_EXPRESSIONS = ("|".join(["sort_by(@,&email)"] * 90), "[?" + "||".join(["contains(email,'zz')"] * 70) + "]")


def _jmespath(server: AttackedServer, handles: Prepared) -> Answered:
    numbers, rows = handles
    given = [{"handle": numbers, "fields": expression} for expression in _EXPRESSIONS]
    given += [{"handle": rows, "fields": expression} for expression in _ROW_EXPRESSIONS]
    return _calls(server, "continue", given)


def _store_both(server: AttackedServer) -> Prepared:
    caller = _attacker(server)
    return caller.store("list_numbers_in_parts"), caller.store("list_rows_in_parts")


_FIELD_PATHS = (
    ",".join(f"name.x{number}" for number in range(3_000)),
    ",".join(f"tags.x{number}" for number in range(3_000)),
    ",".join(f"x{number}" for number in range(3_000)),
    ".".join(["tags"] * 3_000),
    ",".join(["id", *(f"y{number}.z" for number in range(100_000))]),
)


def _field_paths(server: AttackedServer, handle: Prepared) -> Answered:
    return _calls(server, "continue", [{"handle": handle, "fields": paths} for paths in _FIELD_PATHS])


def _long_paths(server: AttackedServer, handle: Prepared) -> Answered:
    """Long paths into a stored result; the search found them."""
    size = MESSAGE_BYTES - 1_000
    paths = [unit * (size // len(unit)) for unit in ("a.", "/0", "[?a]|", "~", "-")]
    replies = [_calls(server, "continue", [{"handle": handle, "path": path}]) for path in paths]
    replies += [_calls(server, "count", [{"items": [{"$result": handle, "path": path}]}]) for path in paths]
    return Answered("; ".join(dict.fromkeys(reply.text for reply in replies)))


def _meta_fields(server: AttackedServer, _: Prepared) -> Answered:
    """Expressions and paths in `_meta`, for tools without a policy."""
    caller, replies = _attacker(server), []
    for tool, fields in [("list_numbers", one) for one in _EXPRESSIONS] + [
        ("list_rows", one) for one in (*_ROW_EXPRESSIONS, *_FIELD_PATHS)
    ]:
        body = payloads.call(tool, b"{}", {_RESULT_KEY: {"fields": fields}})
        replies.append(caller.post(body, modern_headers("tools/call", tool)))
    return Answered(_summarize(replies))


def _references(server: AttackedServer, handle: Prepared) -> Answered:
    return _calls(
        server,
        "count",
        [
            {"items": [{"$result": handle, "path": f"/k{number:05}"} for number in range(3_000)]},
            {"items": [{"$result": handle, "path": "/k03199"}] * 3_000},
            {"items": [{"$result": handle, "path": f"/none{number}"} for number in range(3_000)]},
            {"items": [{"$result": handle}] * 3_000},
        ],
    )


def _edits(server: AttackedServer, handles: Prepared) -> Answered:
    text, numbers = handles
    swaps = [{"find": ("lorem", "l0rem")[n % 2], "replace": ("l0rem", "lorem")[n % 2], "all": True} for n in range(999)]
    front = [{"op": "add", "path": "/0", "value": 1}] * 999
    moves = [{"op": "move", "from": "/0", "path": "/400000"}] * 999
    caller = _attacker(server)
    replies = [caller.call("shorten", {"text": {"$result": text, "patch": swaps}})]
    replies += [caller.call("count", {"items": {"$result": numbers, "patch": patch}}) for patch in (front, moves)]
    return Answered(_summarize(replies))


def _store_text_and_numbers(server: AttackedServer) -> Prepared:
    caller = _attacker(server)
    return caller.store("read_text_in_parts"), caller.store("list_numbers_in_parts")


def _template(server: AttackedServer, session: Prepared) -> Answered:
    caller, replies = _attacker(server), []
    for count in (300, 1_000, 10_000, 100_000, 1_000_000):
        body = messages.request(Era.HANDSHAKE, "resources/read", {"uri": "y://" + "-" * count})
        replies.append(caller.post(body, modern_headers("resources/read", session=session)))
    return Answered(_summarize(replies))


def _hard_tokens(server: AttackedServer, _: Prepared) -> Answered:
    """Texts that tokenisers find hard, echoed by a tool whose results are counted."""
    caller, replies = _attacker(server), []
    for filler in ("a", " ", "\t", "aB", "\u0301", "👩‍👩‍👧‍👦", "東", "0", "'s", "{[("):
        length = len(json.dumps(filler, ensure_ascii=False).encode()) - 2
        text = json.dumps({"text": filler * (3 * MEGABYTE // length)}, ensure_ascii=False)
        replies.append(caller.post(payloads.call("echo_in_parts", text.encode()), _ECHO_HEADERS))
    return Answered(_summarize(replies), stored_mb=3.0 * len(replies))


_ECHO_HEADERS = modern_headers("tools/call", "echo_in_parts")


def _unknown_names(server: AttackedServer, session: Prepared) -> Answered:
    """Long names, for which servers look for similar ones."""
    caller, replies = _attacker(server), []
    for size in sizes():
        name = ("list_rows_in_parts " * (size // 19 + 1))[:size]
        for method, params in (
            ("tools/call", {"name": name}),
            ("tools/describe", {"names": name.split()[:10_000]}),
            ("prompts/get", {"name": name}),
            ("resources/read", {"uri": name}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": name}},
            ),
        ):
            body = messages.request(Era.HANDSHAKE, method, params)
            replies.append(caller.post(body, modern_headers(method, session=session)))
    return Answered(_summarize(replies))


def _search_words(server: AttackedServer, _: Prepared) -> Answered:
    """Long queries and names to the meta-tools."""
    caller, replies = _attacker(server), []
    for size in sizes():
        text = " ".join(f"list{number} user rows" for number in range(size // 20))
        for tool, arguments in (
            ("discover", {"query": text}),
            ("discover", {"query": [text[: size // 10]] * 10}),
            ("discover", {"category": text}),
            ("get_schema", {"operation": [text[: size // 10]] * 10}),
            ("execute", {"operation": text, "params": {}}),
            ("execute", {"operation": "echo", "params": text}),
        ):
            replies.append(caller.call(tool, arguments))
    return Answered(_summarize(replies))


# Memory


def _introductions(server: AttackedServer, _: Prepared) -> Answered:
    """Ten `initialize`, at the largest size that the server accepts."""
    caller = _attacker(server)
    reply = HttpReply(0, b"")
    for size in sizes():
        client = b'{"name":"x","version":"1","x":' + payloads.items(b"[]", size) + b"}"
        reply = caller.open_session(client)
        if _is_accepted(reply):
            for _ in range(9):
                caller.open_session(client)
            return Answered(f"10 of {size / MEGABYTE:.1f} MB are accepted")
    return Answered(reply.sentence)


def _method_names(server: AttackedServer, session: Prepared) -> Answered:
    """Names in a session, and names that a request without a session repeats in a header, or should."""
    caller = _attacker(server)
    replies = []
    for place in range(30):
        name = f"m{place}" + "m" * (MESSAGE_BYTES - 100)
        replies += [
            caller.post(messages.request(Era.HANDSHAKE, name), modern_headers("ping", session=session)),
            caller.post(messages.request(Era.MODERN, name), modern_headers(name[:1_000])),
        ]
    return Answered(_summarize(replies))


def _subscriptions(server: AttackedServer, session: Prepared) -> Answered:
    """60 subscriptions in a session and 60 streams with subscriptions, at the largest size that is accepted."""
    said = []
    for method, subscribe in (("subscribe", _subscribe), ("listen", _listen)):
        for size in (*sizes(), 2_000):
            accepted = subscribe(server, session, size)
            if accepted:
                break
        said.append(f"{method}: {accepted} of {size:,} bytes are accepted")
    return Answered("; ".join(said))


def _subscribe(server: AttackedServer, session: str, size: int) -> int:
    """How many of 60 subscriptions of a session were accepted."""
    caller = _attacker(server)
    for place in range(60):
        uri = f"y://{place}".ljust(size - 300, "u")
        body = messages.request(Era.HANDSHAKE, "resources/subscribe", {"uri": uri})
        if not _is_accepted(caller.post(body, modern_headers("resources/subscribe", session=session))):
            return place
    return 60


def _listen(server: AttackedServer, _: str, size: int) -> int:
    """How many of 60 streams with a subscription were opened."""
    caller, headers = _attacker(server), modern_headers("subscriptions/listen")
    with _held_open() as opened, contextlib.suppress(OSError):
        for place in range(60):
            uris = [f"y://{place}".ljust(size - 400, "u")]
            body = messages.request(
                Era.MODERN, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
            )
            opened.append(caller.send(body, headers))
            if b"200 OK" not in opened[-1].recv(64):
                return place
        time.sleep(0.5)
    return 60


def _progress_token(server: AttackedServer, session: Prepared) -> Answered:
    """A long token that every progress message repeats; nobody reads the reply."""
    caller, said = _attacker(server), []
    for era, headers in (
        (Era.MODERN, modern_headers("tools/call", "chatter")),
        (Era.HANDSHAKE, modern_headers("tools/call", session=session)),
    ):
        status = ""
        for size in sizes(2 * MEGABYTE, 1_000):
            body = payloads.call("chatter", b"{}", {"progressToken": "t" * size}, era)
            with _held_open() as opened:
                opened.append(caller.send(body, headers | _EVENTS))
                began = opened[0].recv(1_000)
                time.sleep(0.2)
                opened[0].settimeout(0.1)
                with contextlib.suppress(OSError):  # the body may come after the head
                    began += opened[0].recv(1_000)
                status = began.split(b"\r\n")[0].decode()
                if "200" in status and b'"error"' not in began:
                    time.sleep(2)
                    status = f"{size:,} bytes are accepted"
                    break
        said.append(f"{era.value}: {status}")
    return Answered("; ".join(said))


def _unread_events(server: AttackedServer, session: Prepared) -> Answered:
    """A hundred replies as events, which nobody reads: without a session and in one."""
    meta = {"progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    body = payloads.call("chatter", b"{}", meta)
    headers = modern_headers("tools/call", "chatter") | _EVENTS
    first = _leave_unread(server, body, headers, 50)
    body = payloads.call("chatter", b"{}", {"progressToken": "t"}, Era.HANDSHAKE)
    bodies = [body.replace(b'"id":1', b'"id":%d' % number) for number in range(50)]
    then = _leave_unread(server, bodies, modern_headers("tools/call", session=session) | _EVENTS, 50)
    return Answered(f"{first.text}; in a session {then.text}")


def _unread_replies(server: AttackedServer, _: Prepared) -> Answered:
    body = messages.call(Era.MODERN, "read_large_text", {})
    return _leave_unread(server, body, modern_headers("tools/call", "read_large_text"), 50)


def _leave_unread(server: AttackedServer, body: bytes | list[bytes], headers: dict[str, str], count: int) -> Answered:
    caller, begun = _attacker(server), 0
    with _held_open() as opened:
        for place in range(count):
            try:
                opened.append(caller.send(body if isinstance(body, bytes) else body[place], headers))
            except OSError:
                break
        time.sleep(3)
        for one in opened:
            one.settimeout(0.01)
            with contextlib.suppress(OSError):
                begun += one.recv(12).startswith(b"HTTP/1.1 200")
    return Answered(f"{begun} of {count} replies have begun")


def _resumable_replies(server: AttackedServer, session: Prepared) -> Answered:
    """Replies of 20 MB as events, read whole, which the server keeps for a client that reconnects."""
    caller = _attacker(server)
    body = messages.call(Era.HANDSHAKE, "read_large_text", {})
    headers = modern_headers("tools/call", session=session) | _EVENTS
    replies = [caller.post(body, headers) for _ in range(16)]
    return Answered(f"16 replies of {len(replies[-1].body) / MEGABYTE:.0f} MB")


def _pipelined(server: AttackedServer, _: Prepared) -> Answered:
    """Requests without end on one connection, whose replies nobody reads."""
    body, headers = discover_request()
    sent = {"Host": f"127.0.0.1:{server.port}", "Content-Length": str(len(body)), **headers}
    one = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items()), "", ""]).encode() + body
    total = 0
    with _attacker(server).connect() as stream:
        stream.settimeout(2)
        with contextlib.suppress(OSError):
            for _ in range(1_000):
                stream.sendall(one * 1_000)
                total += 1_000
    return Answered(f"{total:,} requests were taken")


_SESSIONS = 5_000


def _idle_listeners(server: AttackedServer, _: Prepared) -> Answered:
    """64 sessions with a listener each, then many sessions more."""
    caller, ids = _attacker(server), []
    with _held_open() as opened:
        for _ in range(64):
            session = _open_session(server)
            headers = messages.headers(Era.HANDSHAKE, "", session=session) | {"Accept": "text/event-stream"}
            with contextlib.suppress(OSError):
                opened.append(caller.send(b"", headers, "GET"))
        body = messages.initialize()
        headers = messages.headers(None, "initialize")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        status = 200
        for _ in range(_SESSIONS):
            connection.request("POST", "/mcp", body, headers)
            reply = connection.getresponse()
            reply.read()
            status = reply.status
            if reply.headers.get("Mcp-Session-Id"):
                ids.append(reply.headers["Mcp-Session-Id"])
            else:
                break
        alive = sum(
            caller.post(messages.request(Era.HANDSHAKE, "ping"), modern_headers("ping", session=one)).status == 200
            for one in ids[:: max(1, len(ids) // 100)]
        )
        connection.close()
    return Answered(f"{len(ids):,} sessions opened, the last answer {status}; {alive} of 100 tried are open")


def _views(server: AttackedServer, handle: Prepared) -> Answered:
    given: list[dict[str, Any]] = [
        {"handle": handle, "grep": "|".join("0123456789"[: place + 2])} for place in range(8)
    ]
    given += [{"handle": handle, "fields": "@" + "|@" * place} for place in range(4)]
    given += [{"handle": handle, "path": "", "offset": 1_000_000 + place} for place in range(4)]
    return _calls(server, "continue", given)


def _changes(server: AttackedServer, session: Prepared) -> Answered:
    """The same large result again and again, of which the server sends what changed, and rows that were sent before."""
    caller = _attacker(server)
    replies = [caller.call("list_rows_as_changes", {}, session) for _ in range(5)]
    roots = ({"pack_root": root} for root in ("", "reset", "0" * 64, "f" * 100_000))
    replies += [caller.call("list_rows_as_changes", given, session) for given in roots]
    return Answered(_summarize(replies))


def _delta_mcp_pages(server: AttackedServer, session: Prepared) -> Answered:
    """Pages of lists, by the arguments that clients of Delta-MCP send."""
    caller, replies = _attacker(server), []
    for tool in ("list_numbers", "list_rows", "list_more_in_parts"):
        for page, size in ((1, 1), (10**9, 1), (1, 10**9), (2, 1_000), (400, 1_000), (-1, 0)):
            replies.append(caller.call(tool, {"page": page, "pageSize": size}, session))
    stored = sum(b'"handle"' in reply.body for reply in replies)
    return Answered(_summarize(replies), stored_mb=4.0 * stored)


def _open_delta_mcp_session(server: AttackedServer) -> Prepared:
    params = {"protocolVersion": "delta-mcp/0.2.0", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = messages.request(Era.HANDSHAKE, "initialize", params)
    return _attacker(server).post(body, messages.headers(None, "initialize")).session


def _result_resources(server: AttackedServer, handles: Prepared) -> Answered:
    """Stored results read as resources, whole and in part."""
    caller, replies = _attacker(server), []
    text, numbers = handles
    for uri in (f"{text}", f"{numbers}", f"{numbers}/470000", f"{numbers}" + "/0" * 2_000, f"{numbers}/" + "9" * 4_000):
        replies += [caller.request("resources/read", {"uri": f"attacked://results/{uri}"}) for _ in range(3)]
    return Answered(_summarize(replies))


# Other callers' data, stores and transport


def _evictions(server: AttackedServer, handle: Prepared) -> Answered:
    """Many results of one caller; another caller's is read afterwards."""
    caller, handles, last = _attacker(server), [], ""
    for _ in range(80):
        result = caller.call("list_more_in_parts", {}).result
        handles.append(result.get("_meta", {}).get(_RESULT_KEY, {}).get("handle"))
        last = result["content"][0]["text"].rpartition("\n")[2]
    read = HttpCaller(server.port, OTHER).call("continue", {"handle": handle, "offset": 60})
    broken = f"another caller's result is gone: {read.sentence}" if read.result.get("isError") else ""
    kept = sum(
        not caller.call("continue", {"handle": one, "path": "/0"}).result.get("isError") for one in handles if one
    )
    return Answered(f"{kept} of 80 are stored at the end; the last reply: {last[:120]}", broken, 4.0 * kept)


def _store_for_other(server: AttackedServer) -> Prepared:
    return HttpCaller(server.port, OTHER).store("list_rows_in_parts")


def _hung_store(server: AttackedServer, hang: Prepared) -> Answered:
    """Callers whose results go to a store that does not answer."""
    caller = _attacker(server)
    with hang():

        def timed(_: int) -> float:
            began = time.perf_counter()
            caller.call("list_rows_in_parts", {})
            return time.perf_counter() - began

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            first = list(threads.map(timed, range(8)))
        later = [timed(place) for place in range(5)]
        reply = caller.call("list_rows_in_parts", {})
    said = messages.parse_reply(reply.body)["result"]["content"][0]["text"].rpartition("\n")[2]
    waits = f"eight callers at once waited up to {max(first):.1f} s, five later ones up to {max(later) * 1e3:.0f} ms"
    broken = []
    if max(first) > 3:
        broken.append(f"the first callers waited {max(first):.1f} s for the store")
    if max(later) > 0.5:
        broken.append(f"later callers waited {max(later):.1f} s for the store")
    return Answered(f"{waits}: {said[:160]}", "; ".join(broken))


def _others_call(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    return {"server/discover": discover_request(), "tools/call": call_request("echo", {"text": "x"})}


def _large_body(server: AttackedServer, _: Prepared) -> Answered:
    """100 MB with a Content-Length; the reply is read after the body was sent, as most clients do."""
    status, sent = "no reply", 0
    size = 100 * MEGABYTE
    headers = modern_headers("tools/call", "echo") | {"Host": "127.0.0.1", "Content-Length": str(size)}
    head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode()
    with _attacker(server).connect() as stream:
        stream.settimeout(20)
        try:
            stream.sendall(head)
            while sent < size:
                stream.sendall(b"x" * 65_536)
                sent += 65_536
        except OSError as error:
            status = type(error).__name__
        try:
            status = stream.recv(64).split(b"\r\n")[0].decode() or status
        except OSError as error:
            status = type(error).__name__
    broken = "" if "413" in status else f"the client reads {status} instead of 413"
    return Answered(f"{status} after {sent / MEGABYTE:.0f} MB", broken)


ATTACKS: tuple[Attack, ...] = (
    Attack("validation", "`total(values: list[int])` with 4 MB of `[]`", _validation_json, for_peers=True),
    Attack("validation-cbor", "the same in CBOR", _validation_cbor),
    Attack("parse", "4 MB of `[]` in JSON, only decoded", _parse(b"[]"), for_peers=True),
    Attack("parse-objects", 'the same of `{"a":0}`', _parse(b'{"a":0}')),
    Attack("parse-cbor", "4 MB of `[]` in CBOR", _parse_cbor(b"\x80")),
    Attack("parse-dates", "4 MB of CBOR dates", _parse_cbor(b"\xc1\x00")),
    Attack("parse-at-once", "4 MB of `[]` in JSON, eight at once", _parse_together, for_peers=True),
    Attack("parse-cbor-at-once", "4 MB of nested lists in CBOR, eight at once", _parse_cbor_together),
    Attack(
        "batch", "a batch of 4 MB of pings", _batch(b'{"jsonrpc":"2.0","id":1,"method":"ping"}'), _open_batch_session
    ),
    Attack("batch-invalid", "a batch of 4 MB of `1`", _batch(b"1"), _open_batch_session),
    Attack(
        "grep",
        "`continue(grep=…)` with 10,000 words on 1 MB, four at once",
        _grep,
        _store("list_rows_in_parts"),
        others=_others_continue,
    ),
    Attack("jmespath", "JMESPath of 1.6 kB on 960 kB", _jmespath, _store_both, others=_others_continue),
    Attack("field-paths", "3,000 field paths on 960 kB", _field_paths, _store("list_rows_in_parts")),
    Attack("paths", "`continue(path=…)` and `$result` paths of 4 MB", _long_paths, _store("list_rows_in_parts")),
    Attack("meta-fields", "the two above in `_meta`, for tools without a policy", _meta_fields),
    Attack("references", "3,000 `$result` references into 2.9 MB", _references, _store("get_settings_in_parts")),
    Attack("edits", "1,000 edits of a stored text, and of a stored list", _edits, _store_text_and_numbers),
    Attack("changes", "a result of 1 MB as changes, nine times", _changes, _open_session, others=_others_continue),
    Attack(
        "pages", "pages of 1 MB and 4 MB lists, as Delta-MCP clients ask", _delta_mcp_pages, _open_delta_mcp_session
    ),
    Attack("resources", "stored results as resources", _result_resources, _store_text_and_numbers),
    Attack("template", "a resource template and up to 1,000,000 dashes", _template, _open_session, for_peers=True),
    Attack("tokens", "3 MB that a tokenizer finds hard, counted", _hard_tokens),
    Attack("names", "4 MB names of tools, prompts, resources", _unknown_names, _open_session, for_peers=True),
    Attack(
        "search", "4 MB queries to `discover` and `get_schema`", _search_words, options=ServerOptions(disclosure="meta")
    ),
    Attack("initialize", "ten `initialize` with 4 MB of clientInfo", _introductions, for_peers=True, keeps=True),
    Attack("methods", "60 method names of 4 MB", _method_names, _open_session, for_peers=True, keeps=True),
    Attack("subscriptions", "60 subscriptions of 4 MB", _subscriptions, _open_session, for_peers=True, keeps=True),
    Attack(
        "progress-token", "a progressToken of 2 MB and 2,000 messages", _progress_token, _open_session, for_peers=True
    ),
    Attack("unread-events", "100 event streams that nobody reads", _unread_events, _open_session, for_peers=True),
    Attack("unread-replies", "50 replies of 20 MB that nobody reads", _unread_replies, for_peers=True),
    Attack(
        "resumable",
        "16 replies of 20 MB as events of one session",
        _resumable_replies,
        _open_session,
        for_peers=True,
        keeps=True,
    ),
    Attack("pipelined", "requests without end on one connection, replies unread", _pipelined, for_peers=True),
    Attack("sessions", f"64 idle listeners, then {_SESSIONS:,} sessions", _idle_listeners, for_peers=True, keeps=True),
    Attack(
        "views",
        "16 different `continue` on one 4 MB list",
        _views,
        _store("list_more_in_parts"),
        others=_others_continue,
        keeps=True,
    ),
    Attack(
        "evictions",
        "80 results of 4 MB of one caller; another caller's result",
        _evictions,
        _store_for_other,
        keeps=True,
    ),
    Attack("redis", "a hung Redis", _hung_store, others=_others_call, store=stores.redis),
    Attack("sqlite", "a locked SQLite file", _hung_store, others=_others_call, store=stores.sqlite),
    Attack("body", "a body of 100 MB with Content-Length", _large_body, for_peers=True),
)
