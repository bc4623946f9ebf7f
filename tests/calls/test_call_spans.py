"""Spans of calls: their attributes, their parents, and that they are current while the function runs."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deltamcp import CallSpans, ConfigurationError, Context, DeltaServer, Depends, PeerError, ToolError, connect
from tests.support.http_server import serve_http
from tests.support.raw_client import META, answer_text, raw_client

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Traced:
    """A server whose spans are kept."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")
        self.server = server = DeltaServer("traced", observers=[CallSpans(self.provider)])

        def work(name: str) -> str:
            with self.tracer.start_as_current_span(name):
                return str(baggage.get_baggage("tenant"))

        def depend() -> Iterator[str]:
            with self.tracer.start_as_current_span("dependency"):
                yield "x"

        @server.tool
        async def on_loop() -> str:
            await asyncio.sleep(0)
            return work("inner")

        @server.tool
        def in_thread() -> str:
            return work("inner")

        @server.tool
        async def dependent(value: str = Depends(depend)) -> str:
            return work("inner")

        @server.tool
        async def fail() -> str:
            raise ToolError("no")

        @server.tool
        async def ask(ctx: Context) -> str:
            return str(await ctx.elicit("Who?", str))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        [found] = self.spans(name)
        return found


@pytest.fixture
def traced() -> Traced:
    return Traced()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("tool", ["on_loop", "in_thread", "dependent"])
async def test_the_span_is_current_while_the_function_runs(traced, tool):
    async with connect(traced.server) as client:
        await client.call_tool(tool)
    span, inner = traced.span(f"tools/call {tool}"), traced.span("inner")
    assert span.kind is SpanKind.SERVER and span.status.status_code is StatusCode.UNSET
    assert inner.parent.span_id == span.context.span_id
    assert trace.get_current_span().get_span_context().is_valid is False, "nothing stays current"


async def test_its_attributes_are_those_of_the_conventions(traced):
    async with serve_http(traced.server) as url:
        async with connect(url, speak="handshake") as client:
            await client.call_tool("on_loop")
            link: Any = client._connector._connection.link  # type: ignore[union-attr]
            session = link._session_id
        async with connect(url, speak="modern") as client:
            await client.call_tool("on_loop")
    first, second = map(attributes, traced.spans("tools/call on_loop"))
    common = {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "on_loop",
        "network.transport": "tcp",
        "network.protocol.name": "http",
    }
    assert first.items() >= {**common, "mcp.protocol.version": "2025-11-25"}.items()
    assert second.items() >= {**common, "mcp.protocol.version": "2026-07-28"}.items()
    assert len(first["mcp.session.id"]) == 32 and "mcp.session.id" not in second
    assert session and session not in str(first), "whoever has the id may use the session"


async def test_errors_have_their_type(traced):
    async with connect(traced.server) as client:
        await client.call_tool("fail")
        with pytest.raises(PeerError):
            await client.request("tools/call", {"name": "nothing", "arguments": {}})
        with pytest.raises(PeerError):
            await client.request("tools/call", {"name": "ask", "arguments": {}})
    failed = traced.span("tools/call fail")
    assert attributes(failed)["error.type"] == "tool_error" and failed.status.status_code is StatusCode.ERROR
    unknown = traced.span("tools/call")
    assert attributes(unknown)["error.type"] == attributes(unknown)["rpc.response.status_code"] == "-32602"
    assert "nothing" not in str(attributes(unknown)), "names that a peer makes up are no attributes"
    assert attributes(traced.span("tools/call ask"))["error.type"] == "-32021"


async def test_a_cancelled_call_says_so(traced):
    begun = asyncio.Event()

    @traced.server.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with connect(traced.server) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await client.call_tool("on_loop")
    assert attributes(traced.span("tools/call wait"))["error.type"] == "cancelled"


@pytest.mark.parametrize("tool", ["on_loop", "in_thread"])
async def test_meta_names_the_parent_and_the_baggage(traced, tool):
    meta = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "tenant=acme"}
    async with raw_client(traced.server) as client:
        answer = await client.call("tools/call", name=tool, arguments={}, _meta={**META, **meta})
    span = traced.span(f"tools/call {tool}")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7" and span.parent.is_remote
    assert span.context.trace_state["vendor"] == "1"
    assert answer_text(answer) == "acme"


async def test_headers_name_the_parent_unless_meta_does(traced):
    async with serve_http(traced.server) as url:
        async with connect(url, headers={"traceparent": PARENT}) as client:
            await client.call_tool("on_loop")
            with traced.tracer.start_as_current_span("outer") as outer:
                await client.call_tool("in_thread")
    by_header, by_meta = traced.span("tools/call on_loop"), traced.span("tools/call in_thread")
    assert f"{by_header.context.trace_id:032x}" == TRACE and not by_header.links
    assert by_meta.parent.span_id == outer.get_span_context().span_id
    [link] = by_meta.links
    assert f"{link.context.trace_id:032x}" == TRACE


@pytest.mark.parametrize("value", ["", "nonsense", 7, None, ["x"], "00-0-0-00", "x" * 10_000])
async def test_what_is_no_trace_context_begins_a_new_trace(traced, value):
    async with raw_client(traced.server) as client:
        meta = {**META, "traceparent": value, "baggage": value}
        assert answer_text(await client.call("tools/call", name="on_loop", arguments={}, _meta=meta)) == "None"
    assert traced.span("tools/call on_loop").parent is None


async def test_the_client_passes_its_trace_context_on(traced):
    async with connect(traced.server) as client:
        with traced.tracer.start_as_current_span("outer") as outer:
            await client.call_tool("on_loop")
        await client.call_tool("in_thread")
    assert traced.span("tools/call on_loop").parent.span_id == outer.get_span_context().span_id
    assert traced.span("tools/call on_loop").parent.is_remote, "by _meta, not because both are in one process"
    assert traced.span("tools/call in_thread").parent is None


def test_without_a_provider_it_is_not_active():
    assert not CallSpans().is_active
    assert CallSpans(TracerProvider()).is_active


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delta-mcp\[tracing\]'"):
        CallSpans()
