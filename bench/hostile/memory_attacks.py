"""Attacks that have a server hold what nobody reads or needs."""

import contextlib
import http.client
import time

from bench import messages
from bench.hostile import payloads
from bench.hostile.attack import (
    EVENTS,
    Answered,
    Attack,
    Prepared,
    attacker,
    held_open,
    is_accepted,
    open_session,
    summarize,
)
from bench.hostile.attacked_server import (
    MEGABYTE,
    AttackedServer,
    HttpReply,
    discover_request,
    modern_headers,
)
from bench.hostile.payloads import MESSAGE_BYTES, sizes
from deltamcp.values import Era


def _introductions(server: AttackedServer, _: Prepared) -> Answered:
    """Ten `initialize`, at the largest size that the server accepts."""
    caller = attacker(server)
    reply = HttpReply(0, b"")
    for size in sizes():
        client = b'{"name":"x","version":"1","x":' + payloads.items(b"[]", size) + b"}"
        reply = caller.open_session(client)
        if is_accepted(reply):
            for _ in range(9):
                caller.open_session(client)
            return Answered(f"10 of {size / MEGABYTE:.1f} MB are accepted")
    return Answered(reply.sentence)


def _method_names(server: AttackedServer, session: Prepared) -> Answered:
    """Names in a session, and names that a request without a session repeats in a header, or should."""
    caller = attacker(server)
    replies = []
    for place in range(30):
        name = f"m{place}" + "m" * (MESSAGE_BYTES - 100)
        replies += [
            caller.post(messages.request(Era.HANDSHAKE, name), modern_headers("ping", session=session)),
            caller.post(messages.request(Era.MODERN, name), modern_headers(name[:1_000])),
        ]
    return Answered(summarize(replies))


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
    caller = attacker(server)
    for place in range(60):
        uri = f"y://{place}".ljust(size - 300, "u")
        body = messages.request(Era.HANDSHAKE, "resources/subscribe", {"uri": uri})
        if not is_accepted(caller.post(body, modern_headers("resources/subscribe", session=session))):
            return place
    return 60


def _listen(server: AttackedServer, _: str, size: int) -> int:
    """How many of 60 streams with a subscription were opened."""
    caller, headers = attacker(server), modern_headers("subscriptions/listen")
    with held_open() as opened, contextlib.suppress(OSError):
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
    caller, said = attacker(server), []
    for era, headers in (
        (Era.MODERN, modern_headers("tools/call", "chatter")),
        (Era.HANDSHAKE, modern_headers("tools/call", session=session)),
    ):
        status = ""
        for size in sizes(2 * MEGABYTE, 1_000):
            body = payloads.call("chatter", b"{}", {"progressToken": "t" * size}, era)
            with held_open() as opened:
                opened.append(caller.send(body, headers | EVENTS))
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
    headers = modern_headers("tools/call", "chatter") | EVENTS
    first = _leave_unread(server, body, headers, 50)
    body = payloads.call("chatter", b"{}", {"progressToken": "t"}, Era.HANDSHAKE)
    bodies = [body.replace(b'"id":1', b'"id":%d' % number) for number in range(50)]
    then = _leave_unread(server, bodies, modern_headers("tools/call", session=session) | EVENTS, 50)
    return Answered(f"{first.text}; in a session {then.text}")


def _unread_replies(server: AttackedServer, _: Prepared) -> Answered:
    body = messages.call(Era.MODERN, "read_large_text", {})
    return _leave_unread(server, body, modern_headers("tools/call", "read_large_text"), 50)


def _leave_unread(server: AttackedServer, body: bytes | list[bytes], headers: dict[str, str], count: int) -> Answered:
    caller, begun = attacker(server), 0
    with held_open() as opened:
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
    caller = attacker(server)
    body = messages.call(Era.HANDSHAKE, "read_large_text", {})
    headers = modern_headers("tools/call", session=session) | EVENTS
    replies = [caller.post(body, headers) for _ in range(16)]
    return Answered(f"16 replies of {len(replies[-1].body) / MEGABYTE:.0f} MB")


def _pipelined(server: AttackedServer, _: Prepared) -> Answered:
    """Requests without end on one connection, whose replies nobody reads."""
    body, headers = discover_request()
    sent = {"Host": f"127.0.0.1:{server.port}", "Content-Length": str(len(body)), **headers}
    one = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in sent.items()), "", ""]).encode() + body
    total = 0
    with attacker(server).connect() as stream:
        stream.settimeout(2)
        with contextlib.suppress(OSError):
            for _ in range(1_000):
                stream.sendall(one * 1_000)
                total += 1_000
    return Answered(f"{total:,} requests were taken")


_SESSIONS = 5_000


def _idle_listeners(server: AttackedServer, _: Prepared) -> Answered:
    """64 sessions with a listener each, then many sessions more."""
    caller, ids = attacker(server), []
    with held_open() as opened:
        for _ in range(64):
            session = open_session(server)
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


def _large_body(server: AttackedServer, _: Prepared) -> Answered:
    """100 MB with a Content-Length; the reply is read after the body was sent, as most clients do."""
    status, sent = "no reply", 0
    size = 100 * MEGABYTE
    headers = modern_headers("tools/call", "echo") | {"Host": "127.0.0.1", "Content-Length": str(size)}
    head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]).encode()
    with attacker(server).connect() as stream:
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


MEMORY_ATTACKS: tuple[Attack, ...] = (
    Attack("initialize", "ten `initialize` with 4 MB of clientInfo", _introductions, for_peers=True, keeps=True),
    Attack("methods", "60 method names of 4 MB", _method_names, open_session, for_peers=True, keeps=True),
    Attack("subscriptions", "60 subscriptions of 4 MB", _subscriptions, open_session, for_peers=True, keeps=True),
    Attack(
        "progress-token", "a progressToken of 2 MB and 2,000 messages", _progress_token, open_session, for_peers=True
    ),
    Attack("unread-events", "100 event streams that nobody reads", _unread_events, open_session, for_peers=True),
    Attack("unread-replies", "50 replies of 20 MB that nobody reads", _unread_replies, for_peers=True),
    Attack(
        "resumable",
        "16 replies of 20 MB as events of one session",
        _resumable_replies,
        open_session,
        for_peers=True,
        keeps=True,
    ),
    Attack("pipelined", "requests without end on one connection, replies unread", _pipelined, for_peers=True),
    Attack("sessions", f"64 idle listeners, then {_SESSIONS:,} sessions", _idle_listeners, for_peers=True, keeps=True),
    Attack("body", "a body of 100 MB with Content-Length", _large_body, for_peers=True),
)
