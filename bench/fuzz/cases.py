"""The cases of the fuzzer: each is made from a seed and a number, so that what was found can be made again."""

import dataclasses
import json
import random
from collections.abc import Mapping
from typing import Any

from bench import messages
from bench.fuzz.lite_messages import valid_bodies
from bench.fuzz.mutation import ENCODINGS, TEXTS, encode, mutate_bytes, mutate_message
from bench.fuzz.valid_messages import SESSION, TOKEN, valid_messages
from deltamcp.values import Era

_VALID = {era: valid_messages(era) for era in Era}
_LITE_BODIES = valid_bodies()
_LITE_SHARE = 0.3
"""The part of the cases that are for MCP-lite."""
HttpHeaders = list[tuple[str, str]]

_VERBS = ("GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH", "TRACE", "CONNECT", "post", "POST\t", "BREW", "", "PRI")
_TARGETS = (
    "/", "/mcp/", "//mcp", "/mcp?x=1", "/mcp#x", "*", "http://evil.example/mcp", "/%6d%63%70", "/mcp/../mcp",
    "/mcp-lite/v1", "/mcp-lite/v1/", "/mcp-lite/v1/rpc/x", "/rpc", "/mcp-lite/v2/rpc", "/metrics", "/healthz",
    "/readyz", "/.well-known/oauth-protected-resource", "/é",
    "/.well-known/oauth-protected-resource/mcp", "/" + "a" * 9_000, "/mcp\x00", "mcp", "",
)  # fmt: skip
_VERSIONS = ("HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "http/1.1", "HTTP/1.1 x", "", "ICY/1.1")
HEADER_VALUES: dict[str, tuple[str, ...]] = {
    "Host": ("evil.example", "localhost:1", "", "127.0.0.1, evil.example", "[::1]", "a" * 400, "localhost:9999999"),
    "Origin": ("null", "https://evil.example", "http://localhost:3000", "", "http://[", "chrome-extension://x"),
    "Authorization": (
        f"Bearer {TOKEN}x", f"Bearer x{TOKEN}", f"Bearer {TOKEN}.", f"bearer {TOKEN}", f"Bearer  {TOKEN}", TOKEN,
         "Bearer", "Bearer ", "bearer a.b.c", "Basic dXNlcjpwYXNz", f"Bearer {TOKEN} {TOKEN}",
        "Bearer é", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", "Bearer " + "a" * 9_000, "Bearer a.b.c.d.e",
        "Bearer ..", "DPoP x", "Bearer eyJhbGciOiJIUzI1NiIsImtpZCI6Ii4uLy4uL3gifQ.e30.AAAA",
    ),
    "Forwarded": ("for=1.2.3.4", 'for="[::1]:x";proto=https', "for=", ";;;,,,", "for=_x, " * 40, "for=\x01"),
    "X-Forwarded-For": ("1.2.3.4", "::1", "x, y, z", "", "999.1.1.1", ", " * 200, "1.2.3.4:80, [::1]:1"),
    "X-Forwarded-Proto": ("https", "javascript", ""),
    "X-Forwarded-Host": ("evil.example",),
    "X-Request-Id": ("x", "a" * 5_000, "\x01\x02", "é", ""),
    "Last-Event-ID": ("0", "-1", "1-1", "a" * 2_000, "99999999999999999999", "x:y:z", "", "../1", "é"),
    "Mcp-Session-Id": (SESSION, "x", "", "0" * 32, "é", "a" * 5_000, SESSION + "x"),
    "MCP-Protocol-Version": ("2025-11-25", "2026-07-28", "2025-03-26", "1", "", "9" * 500, "2026-07-28, 2025-11-25"),
    "Mcp-Method": ("tools/list", "tools/call", "", "é", "=?base64?dG9vbHM=?=", "a" * 3_000),
    "Mcp-Name": ("add", "", "=?base64?YWRk?=", "=?base64?!!!?=", "é", "a" * 3_000),
    "Mcp-Param-Region": ("x", "", "=?base64?//8=?="),
    "Accept": ("", "*/*", "text/html", "application/json;q=0", "text/event-stream", ",,,;q=x", "a/b," * 300),
    "Content-Type": (*ENCODINGS.values(), "", "text/plain", "application/json; charset=utf-16", "é"),
    "Content-Encoding": ("gzip", "br", "identity", "gzip, gzip", ""),
    "Content-Length": ("0", "-1", "1", "99999999999999999999", "1e3", "+5", " 5", "5, 5", "0x10", "", "abc", "4194305"),
    "Transfer-Encoding": ("chunked", "gzip, chunked", "chunked, chunked", "identity", "xchunked", "Chunked", ""),
    "Expect": ("100-continue", "200-ok", ""),
    "Connection": ("close", "keep-alive", "upgrade", "close, keep-alive", "x" * 200),
    "Upgrade": ("websocket", "h2c", "TLS/1.3"),
    "HTTP2-Settings": ("AAMAAABkAAQAAP__",),
    "Sec-WebSocket-Key": ("x3JJHMbDL1EzLkh9GBhXDw==",),
    "TE": ("trailers", "x"),
    "Trailer": ("Content-Length",),
    "Cookie": ("a=b; c=d", "a" * 3_000),
    "traceparent": ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x", "ff-" + "0" * 60, ""),
    "tracestate": ("a=b", "=" * 600),
    "Access-Control-Request-Method": ("POST", "x"),
    "Access-Control-Request-Headers": ("mcp-session-id, x", "é"),
    "X-" + "a" * 500: ("x",),
    "Bad Name": ("x",),
    "": ("x",),
    "X-Long": ("a" * 40_000,),
    "X-Control": ("a\x0bb", "a\rb", "a\nb: c", "\x7f", " folded\r\n more"),
}  # fmt: skip
"""Values of headers that are wrong, unusual, or right elsewhere."""


@dataclasses.dataclass(frozen=True)
class HttpCase:
    """A request as its parts. `SESSION` and the like in it stand for what the running server gave."""

    verb: str
    target: str
    version: str
    headers: HttpHeaders
    body: bytes
    chunked: bool = False

    def fill_in(self, known: Mapping[str, str]) -> "HttpCase":
        """Replaces what stands for a session, a handle, a state and a token."""
        headers, body = list(self.headers), self.body
        for place, value in known.items():
            headers = [(name, text.replace(place, value)) for name, text in headers]
            body = body.replace(place.encode(), value.encode())
        return dataclasses.replace(self, headers=headers, body=body)

    def write(self, chance: random.Random) -> bytes:
        """The bytes of the request, its body framed as the headers say, or nearly."""
        head = f"{self.verb} {self.target} {self.version}\r\n"
        names = {name.lower() for name, _ in self.headers}
        headers = list(self.headers)
        if self.chunked:
            headers.append(("Transfer-Encoding", "chunked"))
        elif "content-length" not in names and (self.body or self.verb == "POST"):
            headers.append(("Content-Length", str(len(self.body))))
        head += "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
        return head.encode("utf-8", "replace") + (_write_chunks(self.body, chance) if self.chunked else self.body)


def make_chance(seed: int, kind: str, number: int) -> random.Random:
    return random.Random(f"{seed}:{kind}:{number}")


def make_body_case(seed: int, number: int) -> HttpCase:
    """A request whose headers are right and whose message is mutated; about one in 20 is valid."""
    chance = make_chance(seed, "body", number)
    if chance.random() < _LITE_SHARE:
        path, body = chance.choice(_LITE_BODIES)
        changed = body if chance.random() < 0.05 else mutate_message(body, chance)
        return _lite_case(path, changed, chance, is_mutated=chance.random() < 0.15)
    era = chance.choice(list(Era))
    message = chance.choice(_VALID[era])
    changed = message if chance.random() < 0.05 else mutate_message(message, chance)
    encoding = chance.choices(list(ENCODINGS), (6, 2, 2))[0]
    body = encode(changed, encoding)
    if chance.random() < 0.15:
        body = mutate_bytes(body, chance)
    # Half of the messages keep headers that agree with them, so that the parameters are looked at.
    shown = changed if chance.random() < 0.5 else message
    return HttpCase("POST", "/mcp", "HTTP/1.1", _headers(era, shown, encoding, chance), body)


def make_http_case(seed: int, number: int) -> HttpCase:
    """A valid request of which the verb, the target, headers or the message are changed."""
    chance = make_chance(seed, "http", number)
    verb, target, version, encoding = "POST", "/mcp", "HTTP/1.1", "json"
    message: Any
    if chance.random() < _LITE_SHARE:
        target, message = chance.choice(_LITE_BODIES)
        headers = _lite_headers(chance)
    else:
        era = chance.choice(list(Era))
        message = chance.choice(_VALID[era])
        encoding = chance.choices(list(ENCODINGS), (8, 1, 1))[0]
        headers = _headers(era, message, encoding, chance)
    if chance.random() < 0.15:
        verb = chance.choice(_VERBS)
    if chance.random() < 0.1:
        target = chance.choice(_TARGETS)
    if chance.random() < 0.05:
        version = chance.choice(_VERSIONS)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        name = chance.choice(list(HEADER_VALUES))
        value = chance.choice(HEADER_VALUES[name]) if chance.random() < 0.8 else chance.choice(TEXTS)
        if chance.random() < 0.7:
            headers = [one for one in headers if one[0].lower() != name.lower()]
        headers.append((name, value))
    if chance.random() < 0.1:
        del headers[chance.randrange(len(headers))]
    if chance.random() < 0.1:
        headers.append(chance.choice(headers))
    if chance.random() < 0.1:
        chance.shuffle(headers)
    changed = mutate_message(message, chance) if chance.random() < 0.2 else message
    body = encode(changed, encoding) if verb == "POST" or chance.random() < 0.3 else b""
    return HttpCase(verb, target, version, headers, body, chunked=chance.random() < 0.2)


def make_http_bytes(seed: int, number: int, known: Mapping[str, str]) -> bytes:
    """The bytes of one to four requests in a row, of which some bytes may be changed."""
    chance = make_chance(seed, "bytes", number)
    count = chance.choices((1, 2, 4), (8, 1, 1))[0]
    made = (make_http_case(seed, number * 4 + place).fill_in(known) for place in range(count))
    data = b"".join(one.write(chance) for one in made)
    if chance.random() < 0.4:
        data = mutate_bytes(data, chance)
    if chance.random() < 0.02:
        data = bytes(chance.randrange(256) for _ in range(chance.choice((1, 40, 2_000))))
    return data


def _lite_case(path: str, body: Any, chance: random.Random, is_mutated: bool) -> HttpCase:
    data = encode(body, "json")
    if is_mutated:
        data = mutate_bytes(data, chance)
    return HttpCase("POST", path, "HTTP/1.1", _lite_headers(chance), data)


def _lite_headers(chance: random.Random) -> HttpHeaders:
    accept = chance.choices(
        ("application/json", "text/event-stream", "*/*", "text/event-stream;q=0.1, */*"), (6, 3, 1, 1)
    )
    headers = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Accept": accept[0],
        "Authorization": f"Bearer {TOKEN}",
    }
    if chance.random() < 0.1:
        headers["Prefer"] = chance.choice(("wait=1", "wait=x", "respond-async, wait=0", "wait=99999999999"))
    return list(headers.items())


def _headers(era: Era, message: Any, encoding: str, chance: random.Random) -> HttpHeaders:
    headers = {
        "Host": "localhost",
        "Content-Type": ENCODINGS[encoding],
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {TOKEN}",
    }
    method = message.get("method") if isinstance(message, dict) else None
    if era is Era.HANDSHAKE:
        if method != "initialize":
            headers |= {"Mcp-Session-Id": SESSION, "MCP-Protocol-Version": messages.REVISIONS[era]}
        return list(headers.items())
    headers["MCP-Protocol-Version"] = messages.REVISIONS[era]
    if isinstance(method, str) and _fits(method):
        headers["Mcp-Method"] = method
    params = message.get("params") if isinstance(message, dict) else None
    name = (params.get("name") or params.get("uri")) if isinstance(params, dict) else None
    if isinstance(name, str) and _fits(name):
        headers["Mcp-Name"] = name
    if chance.random() < 0.1:
        headers["Accept"] = chance.choice(
            ("application/json", "text/event-stream", "application/cbor, text/event-stream")
        )
    return list(headers.items())


def _fits(value: str) -> bool:
    return value.isascii() and value.isprintable() and 0 < len(value) < 2_000


def _write_chunks(body: bytes, chance: random.Random) -> bytes:
    """A body in chunks: usually right, sometimes with sizes, extensions or ends that are not."""
    written, at = b"", 0
    while at < len(body):
        size = chance.choice((1, 7, 64, len(body)))
        piece = body[at : at + size]
        at += size
        extension = chance.choice((b"",) * 8 + (b";x=y", b";" + b"x" * 3_000))
        length = chance.choice(
            (b"%x" % len(piece),) * 12 + (b"%X" % len(piece), b"0%x" % len(piece), b"-1", b"fffffffff")
        )
        written += length + extension + b"\r\n" + piece + chance.choice((b"\r\n",) * 20 + (b"\n", b"", b"xx"))
    end = chance.choice(
        (b"0\r\n\r\n",) * 12 + (b"0\r\nX-Trailer: y\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\n", b"")
    )
    return written + end


def describe(case: HttpCase) -> str:
    """A case in one line, for a report."""
    return json.dumps([case.verb, case.target[:60], dict(case.headers), case.body[:300].decode("latin-1")])
