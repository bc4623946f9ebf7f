"""A server behind meta-tools whose results do not fit their budget, for the client libraries."""

from typing import Any

from deltamcp import DeltaServer, ResultPolicy

BUDGET = 500
ROWS = 1000

server = DeltaServer("budgeted", disclosure="meta", results=ResultPolicy(max_tokens=BUDGET))


@server.tool(category="issues", action="list", annotations={"readOnlyHint": True})
async def list_issues(project: str = "docs", limit: int = ROWS) -> list[dict[str, Any]]:
    """List the issues of a project, which come as a table."""
    return [
        {"id": n, "title": f"Issue {n} of {project}", "open": n % 3 > 0, "notes": "word " * (n % 7)}
        for n in range(limit)
    ]


@server.tool(category="issues", action="export", results=ResultPolicy(tables=False))
async def export_issues() -> list[dict[str, Any]]:
    """Export the issues, which come as JSON."""
    return [{"id": n, "title": f'Issue "{n}"', "url": f"https://tracker.example/{n}"} for n in range(ROWS)]


@server.tool(category="issues", action="log")
async def read_log() -> str:
    """Read the log, which comes as text."""
    return "".join(f'12:00:{n % 60:02d} worker "{n % 9}" opened C:\\issues\\{n}.txt\n' for n in range(ROWS))


@server.tool(category="issues", action="get")
async def get_issue() -> dict[str, Any]:
    """Get one issue, which comes as an abridged object."""
    return {"id": 7, "title": "Crash on start", **{f"field {n}": f"value {n} " * 40 for n in range(30)}}
