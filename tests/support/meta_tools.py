"""Servers behind meta-tools, and a client that calls them as a model does."""

import contextlib
import functools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from deltamcp import DeltaServer, Disclosure, ResultPolicy
from deltamcp.tokens import count
from tests.support.era_client import texts
from tests.support.raw_client import RawClient, raw_client

META_TOOLS = ["discover", "get_schema", "execute", "continue"]
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


# Talking to a server in either era


@dataclass
class MetaToolClient:
    raw: RawClient
    era: str

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        send = self.raw.call if self.era == "handshake" else self.raw.modern
        return await send(method, **params)

    async def use(self, tool: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """A tool's result; a JSON-RPC error fails the test."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments or {})
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def text_of(self, tool: str, **arguments: Any) -> str:
        """The text of a success."""
        result = await self.use(tool, arguments)
        assert not result.get("isError"), result
        return first_block_text(result)

    async def refusal_of(self, tool: str, **arguments: Any) -> str:
        """The text of a failure that the model is told of."""
        result = await self.use(tool, arguments)
        assert result.get("isError") is True, result
        return first_block_text(result)

    async def tools(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("tools/list"))["result"]["tools"]
        return found

    async def names(self) -> list[str]:
        return [tool["name"] for tool in await self.tools()]

    async def read(self, uri: str) -> Any:
        answer = await self.ask("resources/read", uri=uri)
        assert "result" in answer, answer
        [content] = answer["result"]["contents"]
        assert content["uri"] == uri and content["mimeType"] == "application/json"
        return json.loads(content["text"])

    async def answer_question(self, action: str, tool: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """What the user was asked, and the result after such an answer."""
        answer = {"action": action, "content": {}} if action == "accept" else {"action": action}
        if self.era == "handshake":
            self.raw.send(id="asking", method="tools/call", params={"name": tool, "arguments": arguments})
            question = await self.raw.receive()
            assert question["method"] == "elicitation/create", question
            self.raw.send(id=question["id"], result=answer)
            return question["params"]["message"], (await self.raw.receive())["result"]
        round_one = (await self.ask("tools/call", name=tool, arguments=arguments))["result"]
        assert round_one["resultType"] == "input_required", round_one
        [(key, request)] = round_one["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        round_two = await self.ask(
            "tools/call",
            name=tool,
            arguments=arguments,
            inputResponses={key: answer},
            requestState=round_one["requestState"],
        )
        return request["params"]["message"], round_two["result"]


def first_block_text(result: dict[str, Any]) -> str:
    return texts(result)[0]


@contextlib.asynccontextmanager
async def meta_tool_client(
    server: DeltaServer, era: str = "modern", version: str = "2025-11-25"
) -> AsyncIterator[MetaToolClient]:
    async with raw_client(server) as raw:
        if era == "handshake":
            await raw.handshake(version, elicitation={})
        yield MetaToolClient(raw, era)


def definition_tokens(tools: list[dict[str, Any]]) -> int:
    """What the definitions cost a model, in o200k tokens."""
    shown = [{"name": t["name"], "description": t["description"], "input_schema": t["inputSchema"]} for t in tools]
    return count(json.dumps(shown, separators=(",", ":"), ensure_ascii=False))


# Servers

VERBS = ["list", "create", "get", "update", "delete", "search", "archive"]
NOUNS = [
    *("posts", "members", "events", "spaces", "comments", "topics"),
    *("tags", "messages", "invites", "courses", "files", "forms"),
]


def community_server(**disclosure: Any) -> DeltaServer:
    """A small server of every sort of operation; `ran` of it is what was run."""
    server = DeltaServer("circle", disclosure=Disclosure("meta", **disclosure))
    ran: list[Any] = []
    server.ran = ran  # type: ignore[attr-defined]

    @server.tool(
        category="posts",
        action="list",
        summary="List posts",
        annotations={"readOnlyHint": True},
        examples=[{"space_id": 7}],
    )
    async def list_posts(space_id: int, page: int = 1, per_page: int = 10) -> dict[str, int]:
        """List posts in a space, newest first."""
        ran.append("posts.list")
        return {"space": space_id, "page": page, "per_page": per_page}

    @server.tool(category="posts", action="create")
    async def create_post(space_id: int, name: str, body: str = "", state: Literal["draft", "live"] = "draft") -> str:
        """Create a new post"""
        ran.append("posts.create")
        return json.dumps([space_id, name, body, state])

    @server.tool(category="posts", action="delete", policy="confirm", annotations={"destructiveHint": True})
    async def delete_post(id: int) -> str:
        """Delete a post"""
        ran.append(("posts.delete", id))
        return f"deleted {id}"

    @server.tool(category="batch.posts", action="delete")
    async def delete_posts(ids: list[int]) -> int:
        """Delete many posts"""
        ran.append("batch.posts.delete")
        return len(ids)

    class Member(BaseModel):
        name: str
        age: int = 0

    @server.tool(category="members", action="search", pinned=True)
    async def search_members(q: str) -> Member:
        """Search members by their name"""
        ran.append("members.search")
        return Member(name=q)

    @server.tool(category="members", action="add")
    async def add_member(member: Member, notify: bool = False) -> str:
        """Add a member"""
        ran.append("members.add")
        return json.dumps([member.name, member.age, notify])

    @server.tool
    async def uptime() -> str:
        """How long the service has run"""
        ran.append("uptime")
        return "long"

    return server


COMMUNITY_IDS = [
    "posts.list",
    "posts.create",
    "posts.delete",
    "batch.posts.delete",
    "members.search",
    "members.add",
    "uptime",
]


def large_server(operations: int, categories: int = 12, **options: Any) -> DeltaServer:
    """So many operations, evenly in so many categories."""
    options.setdefault("disclosure", "meta")
    server = DeltaServer("big", **options)

    async def run(space_id: int, name: str = "") -> str:
        return f"{space_id}{name}"

    for number in range(operations):
        noun = NOUNS[number % categories % len(NOUNS)]
        series = number % categories // len(NOUNS)
        verb = VERBS[number // categories % len(VERBS)]
        version = number // categories // len(VERBS)
        category, action = f"{noun}{series or ''}", f"{verb}{version or ''}"
        server.tool(name=f"{action}_{category}", category=category, action=action, summary=f"{verb} {noun} of a space")(
            run
        )
    return server


@functools.cache
def large_ids(operations: int, categories: int = 12) -> set[str]:
    """What `big` registers."""
    catalog = large_server(operations, categories).engine.catalog.operations
    return {f"{name.partition('_')[2]}.{name.partition('_')[0]}" for name in catalog}


def result_text(result: dict[str, Any]) -> str:
    return "\n".join(block.get("text", json.dumps(block)) for block in result["content"])


def paging_server(**policy: Any) -> DeltaServer:
    server = DeltaServer("x", disclosure="meta", results=ResultPolicy(**policy) if policy else None)

    @server.tool(category="texts", action="make", input_schema={"type": "object"})
    async def make(arguments: dict[str, Any]) -> str:
        return str(arguments["text"]) * int(arguments.get("times", 1))

    @server.tool(category="texts", action="rows")
    async def rows(number: int) -> dict[str, Any]:
        return {"data": [{"id": index, "title": f"title {index}"} for index in range(number)], "total": number}

    return server


def scoped_server() -> DeltaServer:
    server = DeltaServer("sec", disclosure=Disclosure("meta", query=True))
    hints = {"readOnlyHint": True}

    @server.tool(category="doors", action="open", annotations=hints)
    async def open_door() -> str:
        return "opened"

    @server.tool(category="doors", action="lock", scopes=["a"], annotations=hints)
    async def lock_door() -> str:
        return "locked"

    @server.tool(category="vault", action="open", scopes=["a", "b"], pinned=True, annotations=hints)
    async def open_vault() -> str:
        return "the vault"

    return server
