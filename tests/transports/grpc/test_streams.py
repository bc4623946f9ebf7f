"""Streams and promises over gRPC: parts, updates, flow control, deadlines, cancelling, shutting down."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from deltamcp import Context, DeltaServer, Limits, ToolError
from deltamcp.transports.grpc.admission import GrpcRequest
from deltamcp.transports.grpc.responses import GrpcEncoder, ResponseForm
from deltamcp.transports.grpc.service import GrpcStreamReply
from deltamcp.values import ANONYMOUS, Caller, PromiseStatus
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.grpc_peer import GrpcPeer, as_dict, refusal, serve_grpc
from tests.support.lite_client import lite_client
from tests.support.promise_queue import queue_for

PROMISE = 1


class Work:
    """A server whose tools wait for the test, and what has become of them."""

    def __init__(self, **options: Any) -> None:
        self.server = DeltaServer("work", **options)
        self.steps: asyncio.Queue[str] = asyncio.Queue()
        self.started = 0
        self.cancelled = 0
        self.produced = 0
        self.server.tool(self.report, promise="auto", sync_seconds=0.05)
        self.server.tool(self.question, promise="always")
        for function in (self.tell, self.flood, self.wait, self.mixed):
            self.server.tool(function)
        queue_for(self.server)

    async def report(self, ctx: Context) -> str:
        """Write a report, whose steps the test gives."""
        count = 0
        while (step := await self.steps.get()) != "end":
            count += 1
            await ctx.report_progress(count, 10, step)
        return "The report."

    async def question(self, ctx: Context) -> str:
        """Ask for a city."""
        answer = await ctx.elicit("Which city?", {"type": "object", "properties": {"city": {"type": "string"}}})
        return f"Going to {answer.content['city']}."

    async def tell(self, words: list[str]) -> AsyncIterator[str]:
        """Tell words one by one."""
        for word in words:
            yield word

    async def mixed(self, ctx: Context) -> AsyncIterator[Any]:
        """Report progress, and yield objects."""
        await ctx.report_progress(1, 2, "half")
        yield {"row": 1}
        yield {"row": 2}

    async def flood(self, parts: int) -> AsyncIterator[str]:
        """Make many large parts."""
        for _ in range(parts):
            self.produced += 1
            yield "x" * 64 * 1024

    async def wait(self) -> str:
        """Wait for ever."""
        self.started += 1
        try:
            await asyncio.sleep(math.inf)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ""


async def read_all(stream: Any) -> list[Any]:
    found = []
    while (response := await stream.read()) is not grpc.aio.EOF:
        found.append(response)
    return found


# Parts


async def test_ml_106_only_the_last_response_has_meta():
    async with serve_grpc(Work().server) as peer:
        *parts, last = await read_all(peer.stream("tell", {"words": ["one ", "two ", "three"]}))
    assert [as_dict(part.result) for part in parts] == [{"partial": "one "}, {"partial": "two "}, {"partial": "three"}]
    assert not any(part.HasField("meta") for part in parts)
    assert last.HasField("meta") and last.meta.response_type == 0
    assert as_dict(last.result)["content"][0]["text"] == "one two three"


async def test_ml_53_the_last_response_has_all_parts():
    async with serve_grpc(Work().server) as peer:
        *parts, last = await read_all(peer.stream("mixed"))
        unary = await peer.call("mixed")
    assert [as_dict(part.result) for part in parts] == [
        {"progress": {"progress": 1.0, "total": 2.0, "message": "half"}},
        {"partial": {"row": 1.0}},
        {"partial": {"row": 2.0}},
    ]
    assert as_dict(last.result) == as_dict(unary.result)


async def test_parts_may_be_json():
    async with serve_grpc(Work().server) as peer:
        first, *_ = await read_all(peer.stream("tell", {"words": ["a"]}, metadata=(("mcplite-accept", "result-json"),)))
    assert first.result_json == b'{"partial":"a"}' and not first.HasField("result")


async def test_a_stream_of_a_plain_tool_is_one_response():
    async with serve_grpc(Work().server) as peer:
        [error] = [await stream_error(peer, "nothing")]
        assert (error.code, error.reason) == ("NOT_FOUND", "TOOL_NOT_FOUND")


async def stream_error(peer: GrpcPeer, name: str, *arguments: Any, **options: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_all(peer.stream(name, *arguments, **options))
    return refusal(caught.value)


async def test_ml_107_a_slow_reader_makes_the_tool_wait():
    work = Work()
    # Without probes of the bandwidth the client's window stays at 64 kB.
    async with serve_grpc(work.server, [("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", -1)]) as peer:
        stream = peer.stream("flood", {"parts": 400})
        for count in range(1, 21):
            await stream.read()
            for _ in range(20):  # in which a tool that nobody stops makes hundreds
                await asyncio.sleep(0.001)
            assert work.produced <= count + 20
        stream.cancel()


async def test_ml_107_a_stream_that_is_read_goes_on_to_its_end():
    work = Work(limits=Limits(message_bytes=16 * 1024 * 1024))
    async with serve_grpc(work.server, [("grpc.max_receive_message_length", -1)]) as peer:
        responses = await read_all(peer.stream("flood", {"parts": 100}))
    assert work.produced == 100 and len(responses) == 101


class UnreadContext:
    """What gRPC gives a call whose client does not read until the test says so."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.is_writing = asyncio.Event()

    async def write(self, message: bytes) -> None:
        self.is_writing.set()
        await self.may_read.wait()


async def test_large_parts_that_nobody_reads_count_for_their_caller():
    encoder = GrpcEncoder(Limits(response_bytes=100_000, account_share=1.0))
    quota = encoder.unsent
    request = GrpcRequest({"headers": []}, {}, "", Caller(ANONYMOUS, account="ada"))
    contexts = [UnreadContext(), UnreadContext()]
    first, second = (GrpcStreamReply(request, context, ResponseForm(), encoder, 0.01) for context in contexts)
    sending = asyncio.ensure_future(first.send_part("x" * 80_000))
    await contexts[0].is_writing.wait()
    assert quota.held > 80_000
    with pytest.raises(ToolError, match="unread"):
        await second.send_part("x" * 80_000)
    contexts[0].may_read.set()
    await sending
    assert quota.held == 0


async def test_a_client_that_leaves_while_parts_are_sent_leaves_no_trace_in_the_log(caplog):
    work = Work()
    async with serve_grpc(work.server, [("grpc.http2.bdp_probe", 0)]) as peer:
        stream = peer.stream("flood", {"parts": 10_000})
        await stream.read()
        await wait_until(lambda: work.produced > 2, "the tool makes parts")
        stream.cancel()
        await wait_until(lambda: not peer.server._service._running._calls, "the call ends")
        assert work.produced < 10_000
        assert as_dict((await peer.call("tell", {"words": ["on"]})).result)["content"][0]["text"] == "on"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# Promises


async def test_ml_103_a_promise_has_a_token_and_an_empty_result():
    work = Work()
    async with serve_grpc(work.server) as peer:
        response = await peer.call("report")
        work.steps.put_nowait("end")
    assert response.meta.response_type == PROMISE
    assert response.meta.promise_token.startswith("prom_")
    assert response.HasField("result") and as_dict(response.result) == {}
    assert response.meta.expires_at_ms > response.meta.timestamp
    assert response.meta.retry_after_ms > 0
    assert as_dict(response.meta.extra)["status"] in ("queued", "working")


async def test_ml_104_a_promise_is_redeemed_by_a_call_of_redeem():
    work = Work()
    async with serve_grpc(work.server) as peer:
        token = (await peer.call("report")).meta.promise_token
        work.steps.put_nowait("first")
        work.steps.put_nowait("end")
        response = await peer.call("redeem", {"promise": token, "wait_ms": 30_000})
        again = await peer.call("redeem", {"promise": token})
    assert response.meta.response_type == 0
    assert as_dict(response.result)["content"][0]["text"] == "The report."
    assert response.result == again.result


async def test_a_promise_is_cancelled_by_redeem():
    work = Work()
    async with serve_grpc(work.server) as peer:
        token = (await peer.call("report")).meta.promise_token
        await peer.call("redeem", {"promise": token, "action": "cancel"})
        response = await peer.call("redeem", {"promise": token, "wait_ms": 30_000})
    assert response.meta.response_type == 3
    assert as_dict(response.result)["error"]["code"] == "CANCELLED"


async def test_an_unknown_promise_is_not_found():
    async with serve_grpc(Work().server) as peer:
        unary = await peer.refused("redeem", {"promise": f"prom_{'0' * 26}"})
        stream = await stream_error(peer, "redeem", {"promise": f"prom_{'0' * 26}"})
    for found in (unary, stream):
        assert (found.code, found.reason) == ("NOT_FOUND", "PROMISE_UNKNOWN")


async def test_ml_120_a_promise_of_one_binding_is_redeemed_on_the_other():
    work = Work()
    async with serve_grpc(work.server) as peer, lite_client(work.server) as http:
        over_http = (await http.call("report")).result()["_meta"]["promise_token"]
        over_grpc = (await peer.call("report")).meta.promise_token
        for _ in range(2):
            work.steps.put_nowait("end")
        response = await peer.call("redeem", {"promise": over_http, "wait_ms": 30_000})
        reply = (await http.call("redeem", {"promise": over_grpc, "wait_ms": 30_000})).result()
    assert as_dict(response.result)["content"] == reply["content"] == [{"type": "text", "text": "The report."}]


@pytest.mark.parametrize("starts_as", ["call", "redeem"])
async def test_ml_105_a_stream_pushes_updates_until_the_end(starts_as):
    work = Work()
    async with serve_grpc(work.server) as peer:
        if starts_as == "redeem":
            token = (await peer.call("report")).meta.promise_token
            stream = peer.stream("redeem", {"promise": token})
        else:
            stream = peer.stream("report")
        seen: list[Any] = []
        while "promise" not in (seen[-1] if seen else {}):
            seen.append(as_dict((await stream.read()).result))
        for number, step in enumerate(("reading", "writing"), start=1):
            work.steps.put_nowait(step)
            while seen[-1].get("promise", {}).get("message") != step:
                response = await stream.read()
                assert not response.HasField("meta")
                seen.append(as_dict(response.result))
            assert seen[-1]["promise"]["progress"] == number / 10
        work.steps.put_nowait("end")
        *_, last = await read_all(stream)
    assert last.HasField("meta") and last.meta.response_type == 0
    assert as_dict(last.result)["content"][0]["text"] == "The report."


async def test_a_stream_ends_with_the_question_of_a_promise():
    async with serve_grpc(Work().server) as peer:
        *_, last = await read_all(peer.stream("question"))
        assert last.meta.response_type == 2
        asked = as_dict(last.result)
        [key] = asked["elicitation"]["requests"]
        answers = {key: {"action": "accept", "content": {"city": "Oslo"}}}
        token = asked["promise"]["token"]
        *_, answered = await read_all(peer.stream("redeem", {"promise": token, "input": answers}))
    assert as_dict(answered.result)["content"][0]["text"] == "Going to Oslo."


async def test_a_stream_whose_deadline_is_near_ends_with_the_promise():
    work = Work()
    async with serve_grpc(work.server) as peer:
        *_, last = await read_all(peer.stream("report", timeout=2))
        work.steps.put_nowait("end")
    assert last.meta.response_type == PROMISE and last.meta.promise_token


async def test_a_stream_that_the_client_cancels_leaves_the_promise():
    work = Work()
    async with serve_grpc(work.server) as peer:
        token = (await peer.call("report")).meta.promise_token
        stream = peer.stream("redeem", {"promise": token})
        await stream.read()
        stream.cancel()
        work.steps.put_nowait("end")
        response = await peer.call("redeem", {"promise": token, "wait_ms": 30_000})
    assert response.meta.response_type == 0


# Deadlines and cancelling


async def test_ml_110_a_deadline_that_passes_before_a_promise_is_exceeded_and_cancels_the_tool():
    work = Work()
    async with serve_grpc(work.server) as peer:
        found = await peer.refused("wait", timeout=0.3)
        assert found.code == "DEADLINE_EXCEEDED"
        await wait_until(lambda: work.cancelled == work.started, "the tool is cancelled")


async def test_ml_30_a_deadline_shorter_than_the_sync_budget_gives_a_promise_before_it():
    work = Work()
    work.server.remove_tool("report")
    work.server.tool(work.report, promise="auto", sync_seconds=600)
    async with serve_grpc(work.server) as peer:
        response = await peer.call("report", timeout=3)
        token = response.meta.promise_token
        still = await peer.call("redeem", {"promise": token, "wait_ms": 30_000}, timeout=2)
        work.steps.put_nowait("end")
    assert response.meta.response_type == still.meta.response_type == PROMISE


@pytest.mark.parametrize("method", ["call", "stream"])
async def test_ml_52_a_client_that_cancels_cancels_the_tool(method):
    work = Work()
    async with serve_grpc(work.server) as peer:
        call = getattr(peer, method)("wait")
        reading = asyncio.ensure_future(read_all(call) if method == "stream" else call_of(call))
        await wait_until(lambda: work.started == 1, "the tool runs")
        call.cancel()
        await wait_until(lambda: work.cancelled == 1, "the tool is cancelled")
        with pytest.raises(asyncio.CancelledError):
            await reading


async def call_of(call: Any) -> Any:
    return await call


# Shutting down


async def test_ml_52_calls_that_do_not_end_in_time_are_unavailable():
    work = Work(limits=Limits(drain_seconds=0.2))
    async with serve_grpc(work.server) as peer:
        calls = [asyncio.ensure_future(peer.refused("wait")), asyncio.ensure_future(stream_error(peer, "wait"))]
        await wait_until(lambda: work.started == 2, "the tools run")
        async with asyncio.timeout(HANG_SECONDS):
            await peer.server.stop()
            for found in await asyncio.gather(*calls):
                assert (found.code, found.reason) == ("UNAVAILABLE", "SERVER_SHUTDOWN")
                assert "RetryInfo" in found.details
        assert work.cancelled == 2


async def test_ml_52_a_call_that_ends_in_time_is_answered():
    work = Work(limits=Limits(drain_seconds=HANG_SECONDS))
    waiter = Waiter()
    work.server.tool(waiter.answer)
    async with serve_grpc(work.server) as peer:
        call = asyncio.ensure_future(call_of(peer.call("answer")))
        await wait_until(lambda: waiter.is_running, "the tool runs")
        stopping = asyncio.ensure_future(peer.server.stop())
        await asyncio.sleep(0.05)
        waiter.release.set()
        assert as_dict((await call).result)["content"][0]["text"] == "in time"
        await stopping


class Waiter:
    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.is_running = False

    async def answer(self) -> str:
        """Answer once the test says so."""
        self.is_running = True
        await self.release.wait()
        return "in time"


async def test_ml_52_a_stream_of_a_promise_ends_with_the_promise():
    work = Work(limits=Limits(drain_seconds=HANG_SECONDS))
    async with serve_grpc(work.server) as peer:
        stream = peer.stream("report")
        while "promise" not in as_dict((await stream.read()).result):
            pass
        stopping = asyncio.ensure_future(peer.server.stop())
        *_, last = await read_all(stream)
        await stopping
        work.steps.put_nowait("end")
    assert last.meta.response_type == PROMISE and last.meta.promise_token
    assert as_dict(last.meta.extra)["status"] == PromiseStatus.WORKING


async def test_health_says_that_the_server_drains():
    work = Work(limits=Limits(drain_seconds=0.2))
    async with serve_grpc(work.server) as peer:
        watch = peer.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )(health_pb2.HealthCheckRequest(service="mcplite.MCPLite"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.ensure_future(peer.server.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        async with asyncio.timeout(HANG_SECONDS):
            await stopping
