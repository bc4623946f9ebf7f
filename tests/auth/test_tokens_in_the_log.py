"""What the log has of tokens, at its most talkative: nothing."""

import logging
import time
from typing import Any

import grpc
import httpx2
import pytest

from deltamcp import Context, DeltaServer, Introspection, ResourceServer
from tests.support.fake_issuer import RESOURCE, FakeIssuer, serve_issuer
from tests.support.grpc_peer import serve_grpc
from tests.support.http_server import serve_http
from tests.support.raw_client import META

OUTAGE = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def make_server() -> DeltaServer:
    server = DeltaServer("guarded")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return ctx.principal.id

    return server


def make_auth(issuer: FakeIssuer, kind: str) -> ResourceServer:
    if kind == "signed":
        return ResourceServer(RESOURCE, issuer.url)
    asked = Introspection(url=f"{issuer.url}/introspect", client_id="tools", client_secret="introspection-secret")
    return ResourceServer(RESOURCE, issuer.url, introspection=asked)


async def call_over_http(auth: ResourceServer, tokens: list[str]) -> list[bool]:
    """Whether a call with each of the tokens is served."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "whoami", "_meta": META}}
    mirrored = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "whoami"}
    headers = {"accept": "application/json, text/event-stream", **mirrored}
    async with serve_http(make_server(), auth=auth) as url, httpx2.AsyncClient(headers=headers) as http:
        answers = [await http.post(url, json=body, headers={"authorization": f"Bearer {one}"}) for one in tokens]
    return [answer.status_code == 200 for answer in answers]


async def call_over_grpc(auth: ResourceServer, tokens: list[str]) -> list[bool]:
    served = []
    async with serve_grpc(make_server(), auth=auth) as peer:
        for token in tokens:
            try:
                await peer.call("whoami", metadata=(("authorization", f"Bearer {token}"),))
                served.append(True)
            except grpc.aio.AioRpcError:
                served.append(False)
    return served


@pytest.mark.parametrize("kind", ["signed", "introspected"])
@pytest.mark.parametrize("call", [call_over_http, call_over_grpc])
async def test_no_record_has_a_token(call: Any, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "deltamcp.calls")
    async with serve_issuer() as issuer:
        good, expired = issuer.token(), issuer.token(exp=int(time.time()) - 600)
        tokens = [good, expired, "forged-and-opaque", f"{good[:-8]}AAAAAAAA"]
        issuer.active[good] = {"active": True, **issuer.claims()}
        assert await call(make_auth(issuer, kind), tokens) == [True, False, False, False]
        for path in ("/jwks", "/introspect"):
            issuer.always(path, OUTAGE)
        assert await call(make_auth(issuer, kind), tokens) == [False] * 4
    assert "operation=whoami principal=" in caplog.text and "the status 503" in caplog.text, "so it is talkative"
    written = caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    for part in {*tokens, *(token.rpartition(".")[2] for token in tokens), "introspection-secret"}:
        assert part not in written
