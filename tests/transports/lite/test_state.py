"""What MCP-lite's endpoint does not keep: no session, no conversation, nothing that another replica would not know."""

from pathlib import Path
from typing import Any

from deltamcp import Context, DeltaServer, ResultPolicy
from tests.support.lite_client import lite_client

KEY = bytes(range(32))


def replica(store: Path) -> DeltaServer:
    """A server as each replica makes it, and as it is made again after a restart."""
    server = DeltaServer(
        "replicated", store=f"sqlite:///{store}", state_key=KEY, results=ResultPolicy(max_tokens=200, page_size=5)
    )

    @server.tool
    async def order(ctx: Context) -> str:
        """Ask, then order."""
        answer = await ctx.elicit("Which city?", ["Oslo", "Rome"])
        return f"to {answer.content}"

    @server.tool
    async def list_rows() -> list[dict[str, Any]]:
        """List rows."""
        return [{"row": number, "text": "a few words of text"} for number in range(100)]

    return server


async def test_ml_60_questions_and_rests_of_results_go_on_at_another_replica(tmp_path):
    store = tmp_path / "store"
    async with lite_client(replica(store)) as first:
        asked = (await first.call("order")).result()
        shown = (await first.call("list_rows")).result()
    state = asked["_meta"]["request_state"]
    handle = shown["_meta"]["io.github.delta-mcp/result"]["handle"]
    async with lite_client(replica(store)) as second:
        answered = await second.call("order", _meta={"request_state": state, "answers": {"value": "Rome"}})
        assert answered.result()["content"][0]["text"] == "to Rome"
        more = (await second.call("continue", {"handle": handle, "offset": 99})).result()
        assert more["_meta"]["response_type"] == "answer" and '"row":99' in more["content"][0]["text"]


async def test_ml_61_an_order_number_is_content(tmp_path):
    server = replica(tmp_path / "store")

    @server.tool
    async def place(item: str) -> dict[str, str]:
        """Place an order."""
        return {"order_id": f"order of {item}"}

    async with lite_client(server) as client:
        result = (await client.call("place", {"item": "tea"})).result()
    assert result["_meta"].keys() == {"response_type", "timestamp", "processing_time_ms", "server_version"}
    assert "order of tea" in result["content"][0]["text"]


async def test_a_caller_whose_context_names_its_conversation_is_told_unasked_what_changed(tmp_path):
    def server() -> DeltaServer:
        made = DeltaServer("stock", store=f"sqlite:///{tmp_path / 'store'}", results=ResultPolicy(deltas=True))
        made.tool(lambda: rows, name="stock")
        return made

    rows = [{"id": number, "name": f"thing {number}", "stock": number} for number in range(60)]

    async def text(client: Any, name: str | None) -> str:
        meta = {} if name is None else {"session_context": {"conversation_id": name}}
        return str((await client.call("stock", _meta=meta)).result()["content"][0]["text"])

    async with lite_client(server()) as first, lite_client(server()) as second:
        one, other = "the first conversation", "the second conversation"
        whole = await text(first, one)
        assert (await text(second, one)).startswith("Executed now: same 60 rows")
        rows[4]["stock"] = 99
        assert " 4 stock=99" in (await text(first, one))
        for name in (other, None, "short"):  # a name that others can guess is none
            told = await text(first, name)
            assert told.startswith("#60 ") and len(told) > len(whole) - 40
