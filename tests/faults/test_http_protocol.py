"""What HTTP itself asks of a server: media types, hosts, origins, methods, paths and pipelines."""

import asyncio
import base64
import gzip

import pytest

from tests.support.conditions import wait_until
from tests.support.http_faults import (
    LEGACY,
    MODERN,
    FaultServer,
    HttpEra,
    HttpWire,
    both_eras,
    call_params,
    in_modern,
    message,
    modern_headers,
    open_session,
    request_bytes,
    run_beside,
    send_http,
    still_serves,
)

# What HTTP itself says


@both_eras
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"])
async def test_a_compressed_body_gets_415(served: FaultServer, era: HttpEra, coding: str) -> None:
    body = gzip.compress(era.body("tools/list", {}))
    headers = {**await era.headers(served.port, "tools/list", {}), "Content-Encoding": coding}
    reply = await send_http(served.port, body, headers)
    assert reply.status == 415
    assert reply.error()


MEDIA_TYPES = {
    "application/json": 200,
    "application/json; charset=utf-8": 200,
    "Application/JSON": 200,
    "application/json;charset=UTF-8": 200,
    "text/plain": 415,
    "application/jsonx": 415,
    "application/x-www-form-urlencoded": 415,
    "multipart/form-data; boundary=application/json": 415,
    "text/plain; application/json": 415,
    "": 415,
    None: 415,
}


@both_eras
@pytest.mark.parametrize("media_type", MEDIA_TYPES)
async def test_only_json_is_a_body(served: FaultServer, era: HttpEra, media_type: str | None) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Content-Type": media_type}
    reply = await send_http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == MEDIA_TYPES[media_type], reply
    if reply.status == 415:
        assert reply.error()


ACCEPTS = {
    "application/json, text/event-stream": 200,
    "text/event-stream, application/json": 200,
    "application/json;q=0.9, text/event-stream;q=0.1": 200,
    "*/*": 200,
    "APPLICATION/JSON, TEXT/EVENT-STREAM": 200,
    "text/html": 406,
    "image/png, text/plain": 406,
}


@both_eras
@pytest.mark.parametrize("accept", ACCEPTS)
async def test_a_client_that_takes_neither_json_nor_events_gets_406(
    served: FaultServer, era: HttpEra, accept: str
) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Accept": accept}
    reply = await send_http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == ACCEPTS[accept], reply
    if reply.status == 406:
        assert reply.error()
    else:
        assert reply.result()["tools"]


@both_eras
async def test_a_client_that_takes_only_json_gets_no_events(served: FaultServer, era: HttpEra) -> None:
    params = {**call_params("speak", seconds=0.1, tag="json"), "_meta": {"progressToken": 1}}
    headers = {**await era.headers(served.port, "tools/call", params), "Accept": "application/json"}
    reply = await send_http(served.port, era.body("tools/call", params), headers)
    assert reply.headers["content-type"] == "application/json"
    assert reply.status == 406 or reply.text() == "spoke json"


@both_eras
async def test_a_client_that_takes_only_events_gets_no_json(served: FaultServer, era: HttpEra) -> None:
    headers = {**await era.headers(served.port, "tools/list", {}), "Accept": "text/event-stream"}
    reply = await send_http(served.port, era.body("tools/list", {}), headers)
    assert reply.status == 406 or reply.headers["content-type"].startswith("text/event-stream")


@both_eras
async def test_a_stream_is_not_for_those_who_take_no_events(served: FaultServer, era: HttpEra) -> None:
    if era.modern:
        body = era.body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        headers = {**modern_headers("subscriptions/listen", {}), "Accept": "application/json"}
        request = request_bytes(served.port, body, headers)
    else:
        request = request_bytes(
            served.port, None, {**await open_session(served.port), "Accept": "application/json"}, "GET"
        )
    async with HttpWire.open(served.port) as wire:
        await wire.send(request)
        assert (await wire.head())[0] == 406


FOREIGN_HOSTS = [
    "evil.example.com",
    "evil.example.com:%PORT%",
    "localhost.evil.example.com",
    "127.0.0.1.evil.example.com:%PORT%",
    "evil.example.com#localhost",
    "evil.example.com/127.0.0.1",
    "127.0.0.1@evil.example.com",
    "localhost\tevil.example.com",
    "",
]


@both_eras
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_foreign_host_gets_421(served: FaultServer, era: HttpEra, host: str) -> None:
    headers = {**await era.headers(served.port), "Host": host.replace("%PORT%", str(served.port))}
    reply = await send_http(served.port, era.body("tools/call", call_params("add", a=666, b=1)), headers)
    assert reply.status == 421, reply
    assert reply.error()
    assert "add 666 1" not in served.trace_lines()


async def test_a_foreign_host_cannot_open_or_use_a_session_in_any_way(served: FaultServer) -> None:
    headers = {**await open_session(served.port), "Host": "evil.example.com"}
    for verb, body in (("POST", message("ping", {})), ("GET", None), ("DELETE", None), ("OPTIONS", None)):
        accept = {"Accept": "text/event-stream"} if verb == "GET" else {}
        assert (await send_http(served.port, body, {**headers, **accept}, verb)).status == 421, verb
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    refused = await send_http(served.port, message("initialize", params), {"Host": "evil.example.com"})
    assert refused.status == 421
    assert "mcp-session-id" not in refused.headers


async def test_a_request_with_two_hosts_or_none_is_not_served(served: FaultServer) -> None:
    body = in_modern.body("tools/call", call_params("add", a=667, b=1))
    request = request_bytes(served.port, body, modern_headers("tools/call", call_params("add")))
    first, host, rest = request.split(b"\r\n", 2)
    assert host.startswith(b"Host:")
    for hosts in (b"", host + b"\r\nHost: evil.example.com\r\n", b"Host: evil.example.com\r\n" + host + b"\r\n"):
        async with HttpWire.open(served.port) as wire:
            await wire.send(first + b"\r\n" + hosts + rest)
            assert (await wire.reply()).status in {400, 421}, hosts
    assert "add 667 1" not in served.trace_lines()


FOREIGN_ORIGINS = [
    "http://evil.example.com",
    "https://localhost.evil.example.com",
    "http://127.0.0.1.evil.example.com",
    "http://evil.example.com:%PORT%",
    "http://127.0.0.1:%PORT%@evil.example.com",
    "null",
    "http://",
    "file://",
    "localhost",
]


@both_eras
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
async def test_a_foreign_origin_gets_403(served: FaultServer, era: HttpEra, origin: str) -> None:
    headers = {**await era.headers(served.port), "Origin": origin.replace("%PORT%", str(served.port))}
    reply = await send_http(served.port, era.body("tools/call", call_params("add", a=666, b=2)), headers)
    assert reply.status == 403, reply
    assert reply.error()
    assert "add 666 2" not in served.trace_lines()


@both_eras
@pytest.mark.parametrize("host", ["127.0.0.1:%PORT%", "localhost:%PORT%", "LOCALHOST:%PORT%", "[::1]:%PORT%"])
async def test_every_name_of_this_machine_is_a_good_host_and_origin(
    served: FaultServer, era: HttpEra, host: str
) -> None:
    host = host.replace("%PORT%", str(served.port))
    headers = {**await era.headers(served.port, "tools/list", {}), "Host": host, "Origin": f"http://{host.lower()}"}
    assert (await send_http(served.port, era.body("tools/list", {}), headers)).status == 200


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "OPTIONS", "HEAD", "GET", "DELETE"])
async def test_modern_clients_have_one_http_method(served: FaultServer, verb: str) -> None:
    headers: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Accept": "text/event-stream"}
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, None, headers, verb))
        status, found = await wire.head()
    assert status == 405
    assert "POST" in found["allow"]


@pytest.mark.parametrize("verb", ["PUT", "PATCH", "OPTIONS", "HEAD"])
async def test_sessions_have_three_http_methods(served: FaultServer, verb: str) -> None:
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, None, await open_session(served.port), verb))
        status, found = await wire.head()
    assert status == 405
    assert {word.strip() for word in found["allow"].split(",")} >= {"GET", "POST", "DELETE"}


@both_eras
@pytest.mark.parametrize("path", ["/", "/mcp2", "/mcp/deeper", "/MCP", "//mcp", "/.well-known/x", "*"])
async def test_another_path_gets_404(served: FaultServer, era: HttpEra, path: str) -> None:
    reply = await send_http(
        served.port,
        era.body("tools/list", {}),
        await era.headers(served.port, "tools/list", {}),
        path=path,
    )
    assert reply.status in ({400, 404} if path == "*" else {404}), reply


NO_HTTP = {
    "words": b"hello there\r\n\r\n",
    "nulls": b"\x00" * 100 + b"\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + b"\x01" * 160 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version of its own": b"POST /mcp HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "a length that is no number": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
    "a negative length": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "a length beyond 64 bits": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "two lengths": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a chunk of no size": (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"
    ),
    "a header without a colon": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n",
    "a space before the colon": b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-A : b\r\n\r\n",
}


@pytest.mark.parametrize("case", NO_HTTP)
async def test_what_is_not_http_gets_400_at_most(served: FaultServer, case: str) -> None:
    async with HttpWire.open(served.port) as wire:
        await wire.send(NO_HTTP[case])
        answer = await wire.ended()
    status = answer.split(b" ", 2)[1] if answer else b"hung up"
    assert status in {b"hung up", b"400", b"413", b"501", b"505"}, answer
    assert b"Traceback" not in answer
    await still_serves(served.port)


async def test_websockets_are_refused(served: FaultServer) -> None:
    headers: dict[str, str | None] = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(b"x" * 16).decode(),
        "Sec-WebSocket-Version": "13",
    }
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, None, headers, "GET"))
        status, _ = await wire.head()
    assert 400 <= status < 500
    assert "Traceback" not in served.log_text()[-5_000:]
    await still_serves(served.port)


@both_eras
async def test_requests_sent_without_waiting_are_answered_in_order(served: FaultServer, era: HttpEra) -> None:
    headers = await era.headers(served.port, "tools/call", call_params("add"))
    requests = [
        request_bytes(served.port, era.body("tools/call", call_params("add", a=number, b=0), number), headers)
        for number in range(20)
    ]
    async with HttpWire.open(served.port) as wire:
        await wire.send(b"".join(requests))
        assert [(await wire.reply()).json()["id"] for _ in requests] == list(range(20))


@pytest.mark.parametrize("ahead", ["many small requests", "one large request"])
async def test_the_limit_on_headers_is_for_one_request_and_not_for_what_came_before_it(
    served: FaultServer, ahead: str
) -> None:
    """The last request is cut in its headers, so that these arrive with everything before them."""
    request = request_bytes(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    params = call_params("echo", value="x" * 100_000)
    large = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
    before = [large] if ahead == "one large request" else [request] * (100_000 // len(request))
    async with HttpWire.open(served.port) as wire:
        async with run_beside(wire.pour([b"".join(before) + request[:50]])):
            await asyncio.sleep(0.2)
            async with run_beside(wire.pour([request[50:]])):
                statuses = [(await wire.reply()).status for _ in [*before, request]]
    assert statuses == [200] * len(statuses)


async def test_a_connection_goes_on_after_a_refusal(served: FaultServer) -> None:
    good = request_bytes(served.port, in_modern.body("tools/list", {}), modern_headers("tools/list", {}))
    bad = request_bytes(served.port, b"no JSON", modern_headers("tools/list", {}))
    async with HttpWire.open(served.port) as wire:
        for request, status in ((good, 200), (bad, 400), (good, 200), (bad, 400), (good, 200)):
            await wire.send(request)
            assert (await wire.reply()).status == status


@pytest.mark.parametrize("end", ["what is not HTTP", "the client leaves"])
async def test_the_running_one_of_several_requests_hears_that_its_connection_ends(
    served: FaultServer, end: str
) -> None:
    """uvicorn tells the last request, which does not run yet."""
    tag = f"pipelined-{end.split()[0]}"
    params, later = call_params("async_wait", tag=tag), call_params("add", a=777, b=len(tag))
    waits = request_bytes(served.port, in_modern.body("tools/call", params), modern_headers("tools/call", params))
    added = request_bytes(served.port, in_modern.body("tools/call", later), modern_headers("tools/call", later))
    logged = len(served.log_text())
    async with HttpWire.open(served.port) as wire:
        await wire.send(waits + added * 3)
        await wait_until(lambda: f"started {tag}" in served.trace_lines(), "the call")
        if end == "what is not HTTP":
            await wire.send(b"hello there\r\n\r\n")
            assert (await wire.reply()).status == 400
            await wait_until(lambda: f"cancelled {tag}" in served.trace_lines(), "its cancellation")
    await wait_until(lambda: f"cancelled {tag}" in served.trace_lines(), "its cancellation")
    await still_serves(served.port)
    assert f"add 777 {len(tag)}" not in served.trace_lines(), "the others do not run"
    assert "Traceback" not in served.log_text()[logged:]


async def test_a_client_that_asks_first_and_then_sends_what_is_not_http_leaves_no_error(served: FaultServer) -> None:
    headers = {**modern_headers("tools/list", {}), "Expect": "100-continue", "Transfer-Encoding": "chunked"}
    logged = len(served.log_text())
    async with HttpWire.open(served.port) as wire:
        await wire.send(request_bytes(served.port, b"", {**headers, "Content-Length": None}) + b"no size\r\n")
        assert b" 400 " in await wire.ended()
    await still_serves(served.port)
    assert "Traceback" not in served.log_text()[logged:]
