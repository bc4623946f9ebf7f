"""What a model reads of the same servers by plain MCP and by Delta-MCP, counted in tokens of o200k.

python examples/savings.py
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where `examples` is, however this file is started

from deltamcp import DeltaServer, ResultPolicy, connect, count_tokens
from examples.everything import server as everything

TITLES = ["Crash on start", "Slow search", "Wrong link in the manual"]
ISSUES = [
    {"id": n, "url": f"https://tracker.example/docs/{n}", "title": TITLES[n % 3], "open": n % 7 > 0}
    for n in range(1, 1001)
]
server = DeltaServer("tracker", results=ResultPolicy(deltas=True), conversation="process")


@server.tool(annotations={"readOnlyHint": True})
async def list_issues() -> list[dict[str, Any]]:
    """List the issues."""
    return ISSUES


async def main() -> None:
    compact_json = count_tokens(json.dumps(ISSUES, separators=(",", ":")))
    async with connect(server, progressive=False) as client:
        whole = (await client.call_tool("list_issues")).text
        again = (await client.call_tool("list_issues")).text
        ISSUES[16]["open"] = False
        changed = (await client.call_tool("list_issues")).text
    async with connect(server, progressive=False) as client:  # another caller, who holds nothing yet
        part = (await client.call_tool("list_issues", want=ResultPolicy(max_tokens=2000))).text
    print(f"{'tokens a model reads':<42}{'plain MCP':>11}{'Delta-MCP':>11}")
    rows = [
        ("35 tool definitions, as four meta-tools", everything.costs.full, everything.costs.meta),
        ("1,000 rows, whole, as a table", compact_json, count_tokens(whole)),
        ("1,000 rows within max_tokens=2000", compact_json, count_tokens(part)),
        ("the same rows again, unchanged", compact_json, count_tokens(again)),
        ("the same rows again, one changed", compact_json, count_tokens(changed)),
    ]
    for name, plain, ours in rows:
        print(f"{name:<42}{plain:>11,}{ours:>11,}")


if __name__ == "__main__":
    asyncio.run(main())
