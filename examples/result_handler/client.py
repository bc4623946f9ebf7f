"""A client that asserts that each result fits, that nothing of it is lost, and that 429 is an answer and no error.

python -m examples.result_handler.client
"""

import asyncio
import json

from deltamcp import connect, count_tokens


async def main() -> None:
    async with connect("delta-mcp serve examples/result_handler/server.py") as client:
        for tool in ("read_log", "list_orders", "settings"):
            reply = await client.call_tool(tool)
            whole = await client.whole(reply)
            print(f"{tool}: {count_tokens(json.dumps(whole)):,} tokens, of which a model reads at most 300 first")
            assert reply.is_part and count_tokens(reply.text) <= 300
        assert len(whole) == 10 and whole["theme"]["theme_path"].startswith("theme path")

        unpaid = await client.call("list_orders", fields="[?!paid].id | length(@)")
        print("selected:", unpaid, "orders are not paid")
        assert unpaid == 125

        busy = await client.call("exchange_rate", currency="NOK")
        print("429:", busy)
        assert busy == {"type": "rate_limited", "retryAfterSeconds": 17, "upstream": "exchange_rate"}


if __name__ == "__main__":
    asyncio.run(main())
