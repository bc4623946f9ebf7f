"""A hundred tools as real servers list them, from the corpus beside the project if it is there."""

import json
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS

COUNT = 100


def write_tools(to: Path) -> str:
    """Writes the tools as a JSON file and says where they come from."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((CORPUS / "mcp_tools").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            if len(found) < COUNT:
                found.setdefault(tool["name"], _select_members(tool))
    origin = f"the first {COUNT} tools of the corpus"
    if len(found) < COUNT:
        found = {tool["name"]: tool for tool in map(_make_tool, range(COUNT))}
        origin = f"{COUNT} generated tools, the corpus not being there"
    to.write_text(json.dumps(list(found.values())))
    return origin


def _select_members(tool: dict[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "inputSchema": tool["inputSchema"]}


def _make_tool(place: int) -> dict[str, Any]:
    def text(about: str, **more: Any) -> dict[str, Any]:
        return {"type": "string", "description": f"{about} of the records in collection {place}"} | more

    properties = {
        "query": text("What to look for in the titles and bodies", minLength=1),
        "state": text("Which state", enum=["open", "closed", "all"], default="open"),
        "labels": {"type": "array", "items": {"type": "string"}, "description": "Only records with all of these"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 30, "description": "Most to give"},
        "range": {"type": "object", "properties": {"since": text("Start"), "until": text("End")}},
    }
    schema = {"type": "object", "properties": properties, "required": ["query"], "additionalProperties": False}
    described = f"Searches the records of collection {place}, newest first, and gives their titles and addresses."
    return {"name": f"search_collection_{place}", "description": described, "inputSchema": schema}
