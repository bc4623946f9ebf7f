"""`/metrics`: what is counted, by few labels, and what a Prometheus server reads."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from deltamcp import ConfigurationError, DeltaServer, HostAuth, Limits, Principal, ToolError, connect
from deltamcp.transports import metrics
from deltamcp.transports.http.server import make_server
from deltamcp.transports.metrics import METRICS, PAGE_SECONDS, Metrics
from deltamcp.transports.sockets import bind_sockets
from tests.support.conditions import wait_until
from tests.support.http_server import serve_uvicorn

Samples = Mapping[tuple[str, ...], float]


def make() -> DeltaServer:
    server = DeltaServer("shelf", limits=Limits(drain_seconds=1))

    @server.tool
    async def find(title: str) -> str:
        return f"{title} is here."

    @server.tool
    async def fail() -> str:
        raise ToolError("no")

    return server


def samples(text: str) -> Samples:
    """The values of a page, by the name and the values of the labels, these in the order of the labels' names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def read_page(address: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient() as web:
        return await web.get(f"{address}/metrics", headers=headers)


async def test_calls_are_counted_by_operation_and_outcome():
    async with serve_uvicorn(make_server(make().engine, port=0, metrics=True)) as address:
        async with connect(f"{address}/mcp") as client:
            for _ in range(3):
                await client.call_tool("find", {"title": "Emma"})
            await client.call_tool("fail")
            for name in ("nothing", "secret-token-1", "secret-token-2"):
                with pytest.raises(Exception, match=r"nothing|secret"):
                    await client.request("tools/call", {"name": name, "arguments": {}})
        page = await read_page(address)
        found = samples(page.text)
    assert page.headers["content-type"].startswith("text/plain")
    assert found["delta_mcp_calls_total", "find", "done"] == 3
    assert found["delta_mcp_calls_total", "fail", "error"] == 1
    assert found["delta_mcp_calls_total", "(unknown)", "not_found"] == 3
    assert found["delta_mcp_call_seconds_count", "find"] == 3
    assert found["delta_mcp_call_seconds_bucket", "+Inf", "find"] == 3
    assert found["delta_mcp_processes",] == found["delta_mcp_build_info", *versions()] == 1
    assert not any(name[0] == "delta_mcp_result_tokens_total" for name in found), "nobody counted tokens"
    assert "secret" not in page.text and "Emma" not in page.text


def versions() -> tuple[str, str]:
    import importlib.metadata
    import platform

    return platform.python_version(), importlib.metadata.version("delta-mcp")


async def test_a_page_has_every_metric_of_the_table_in_both_formats():
    async with serve_uvicorn(make_server(make().engine, port=0, metrics=True)) as address:
        plain = (await read_page(address)).text
        modern = await read_page(address, accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(plain)}
    assert {f"{name}_total" if family.type == "counter" else name for name, family in families.items()} == set(METRICS)
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert {family.name for family in parse_openmetrics(modern.text)} == set(families)


async def test_responses_are_counted_by_status_and_refusals_by_reason():
    def find_principal(scope: Any) -> Principal | None:
        return Principal("ada") if (b"authorization", b"Bearer t0ken") in scope["headers"] else None

    auth = HostAuth(find_principal)
    async with serve_uvicorn(make_server(make().engine, port=0, metrics=True, auth=auth)) as address:
        async with connect(f"{address}/mcp", token="t0ken") as client:
            await client.call_tool("find", {"title": "Emma"})
        async with httpx2.AsyncClient() as web:
            for headers in (
                {"authorization": "Bearer wr0ng"},
                {"host": "evil.example"},
                {"origin": "https://evil.example"},
            ):
                await web.post(f"{address}/mcp", json={}, headers=headers)
            await web.get(f"{address}/nowhere")
        text = (await read_page(address)).text
        found = samples(text)
    reasons = {name[1]: value for name, value in found.items() if name[0] == "delta_mcp_http_refusals_total"}
    assert reasons == {"unauthorized": 1, "wrong_host": 1, "wrong_origin": 1, "wrong_path": 1}
    assert found["delta_mcp_http_responses_total", "4xx"] == 4
    assert found["delta_mcp_http_responses_total", "2xx"] >= 2
    assert not any(word in text for word in ("t0ken", "wr0ng", "ada", "evil"))


async def test_what_is_in_progress_is_shown_while_it_is():
    server, now = make(), [0.0]
    begun, end = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        await end.wait()

    shown = Metrics(clock=lambda: now[0])
    async with serve_uvicorn(make_server(server.engine, port=0, metrics=shown)) as address:
        async with connect(f"{address}/mcp", speak="handshake") as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await wait_until(begun.is_set)
            try:
                busy = samples((await read_page(address)).text)
            finally:
                end.set()
            await call
        now[0] += PAGE_SECONDS
        idle = samples((await read_page(address)).text)
    assert busy["delta_mcp_requests_in_flight",] == 1 and busy["delta_mcp_sessions",] == 1
    assert idle["delta_mcp_requests_in_flight",] == 0 and idle["delta_mcp_sessions",] == 0


async def test_pages_are_written_once_a_second_whatever_format_clients_ask_for(monkeypatch):
    now: list[float] = [0.0]
    begun: list[str] = []
    begin = Metrics._begin_page

    def counted(self: Metrics, accept: str) -> Any:
        begun.append(accept)
        return begin(self, accept)

    monkeypatch.setattr(Metrics, "_begin_page", counted)
    shown = Metrics(clock=lambda: now[0])
    async with serve_uvicorn(make_server(make().engine, port=0, metrics=shown)) as address:
        for number in range(20):
            accept = f"application/openmetrics-text; version=1.0.{number}; escaping=allow-utf-8"
            page = await read_page(address, accept=accept)
            assert page.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
            await read_page(address, accept=f"text/plain; version=1.0.{number}; escaping=dots")
        assert sorted(begun) == ["", "application/openmetrics-text"]
        now[0] += PAGE_SECONDS
        await read_page(address)
    assert sorted(begun) == ["", "", "application/openmetrics-text"]


async def test_tokens_are_counted_where_somebody_asks():
    class Meter:
        is_active = True

        def call_started(self, call: Any) -> None: ...

        def call_finished(self, call: Any) -> None:
            assert call.tokens_before == call.tokens_after

    for server, options in (
        (DeltaServer("x"), Metrics(counts_tokens=True)),
        (DeltaServer("x", observers=[Meter()]), Metrics()),
    ):

        @server.tool
        async def speak() -> str:
            return "one two three"

        async with serve_uvicorn(make_server(server.engine, port=0, metrics=options)) as address:
            async with connect(f"{address}/mcp") as client:
                await client.call_tool("speak")
            found = samples((await read_page(address)).text)
        tokens = {name[1]: value for name, value in found.items() if name[0] == "delta_mcp_result_tokens_total"}
        assert tokens["before"] == tokens["after"] > 0


async def test_operations_beyond_a_number_count_together(monkeypatch):
    monkeypatch.setattr(metrics, "_MAX_OPERATIONS", 2)
    server = make()
    server.tool(lambda: 1, name="third", description="")
    async with serve_uvicorn(make_server(server.engine, port=0, metrics=True)) as address:
        async with connect(f"{address}/mcp") as client:
            for name, arguments in (("find", {"title": "x"}), ("fail", {}), ("third", {}), ("find", {"title": "x"})):
                await client.call_tool(name, arguments)
        found = samples((await read_page(address)).text)
    calls = {name[1]: value for name, value in found.items() if name[0] == "delta_mcp_calls_total"}
    assert calls == {"find": 2, "fail": 1, "(other)": 1}


async def test_the_page_is_there_only_for_who_asks_and_by_an_allowed_host():
    async with serve_uvicorn(make_server(make().engine, port=0)) as address:
        assert (await read_page(address)).status_code == 404
    async with serve_uvicorn(make_server(make().engine, port=0, metrics=True)) as address:
        assert (await read_page(address, host="evil.example")).status_code == 421
        async with httpx2.AsyncClient() as web:
            refused = await web.post(f"{address}/metrics")
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_an_address_of_its_own_has_the_page_and_nothing_else():
    shown = Metrics(on_main_port=False)
    server = make_server(make().engine, port=0, metrics=shown)
    sockets = bind_sockets("127.0.0.1", 0)
    server.add_application(shown, sockets)
    own = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    async with serve_uvicorn(server) as address:
        await wait_until(lambda: server.started)
        assert (await read_page(address)).status_code == 404
        page = await read_page(own, host="10.0.0.7")
        async with httpx2.AsyncClient() as web:
            elsewhere = await web.post(f"{own}/mcp", json={})
    assert page.status_code == 200 and "delta_mcp_build_info" in page.text
    assert elsewhere.status_code == 404


async def test_a_store_that_fails_is_seen(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    server = DeltaServer("x", store=f"sqlite:///{folder}/store.db")
    folder.rmdir()
    async with serve_uvicorn(make_server(server.engine, port=0, metrics=True)) as address:
        async with httpx2.AsyncClient() as web:
            assert (await web.get(f"{address}/readyz")).status_code == 503
        found = samples((await read_page(address)).text)
    assert found["delta_mcp_store_errors_total",] >= 1


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.exposition", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delta-mcp\[metrics\]'"):
        make().asgi(metrics=True)


def test_a_page_of_the_authors_own_at_its_path_is_refused():
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="/metrics is a page of the server's own"):
        make().asgi(metrics=True, routes={"/metrics": app})
