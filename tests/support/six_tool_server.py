"""The server that the scenarios of Delta-MCP talk to: six tools with the names and parameters of the original's.

It runs on stdio as a program: `python tests/support/six_tool_server.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from deltamcp import DeltaServer, ResultPolicy, ToolError

SIX_TOOLS = ["search", "read_file", "write_file", "list_dir", "fail", "run_command"]
HITS = [
    {"title": "Volume One", "url": "https://shelf.example/1", "score": 0.9},
    {"title": "Volume Two", "url": "https://shelf.example/2", "score": 0.7},
    {"title": "Volume Three", "url": "https://shelf.example/3", "score": 0.4},
]


class Filters(BaseModel):
    """What the hits of a search must have."""

    dateRange: Literal["day", "week", "month", "year", "all"] = Field("all", description="How recent a hit must be.")
    language: str | None = Field(None, description="The language of the hits, as its two-letter code.")
    tags: list[str] = Field([], description="The tags of which a hit must have every one.")


def six_tool_server(**options: Any) -> DeltaServer:
    server = DeltaServer(
        "six-tools", "0.2.1", results=ResultPolicy(compat=True, max_tokens=500, page_size=50), **options
    )

    @server.tool(description="Find the volumes that a query matches")
    async def search(
        query: Annotated[str, Field(description="Words to find; put a phrase in quotes, and join words by AND or OR.")],
        limit: Annotated[int, Field(description="The most hits that come back, from 1 to 100.")] = 10,
        page: Annotated[int, Field(description="The page of the hits, from 1 on.")] = 1,
        filters: Annotated[Filters | None, Field(description="Leaves out hits that do not fit.")] = None,
    ) -> Any:
        return HITS[:limit]

    @server.tool(description="Read a file of the workspace")
    async def read_file(
        path: Annotated[
            str, Field(description="Where the file is, from the root of the workspace; links are followed.")
        ],
        encoding: Annotated[
            Literal["utf8", "base64", "hex"], Field(description="How the contents are written as text.")
        ] = "utf8",
        startLine: Annotated[int | None, Field(description="The first line to read, from 1 on; at first all.")] = None,
        endLine: Annotated[int | None, Field(description="The last line to read, itself included.")] = None,
    ) -> Any:
        return f"What {path} says"

    @server.tool(description="Write a file into the workspace")
    async def write_file(
        path: Annotated[
            str, Field(description="Where the file goes; its folder must exist unless createDirs is true.")
        ],
        content: Annotated[str, Field(description="What the file says from now on, in place of what it said.")],
        encoding: Annotated[Literal["utf8", "base64"], Field(description="How the content is written.")] = "utf8",
        createDirs: Annotated[bool, Field(description="Whether folders that are missing are made first.")] = False,
        mode: Annotated[int | None, Field(description="The permissions of the file, as a number of Unix.")] = None,
    ) -> Any:
        return {"written": True, "path": path, "bytes": len(content.encode())}

    @server.tool(description="List the files of a folder")
    async def list_dir(
        path: Annotated[str, Field(description="The folder, from the root of the workspace.")] = ".",
        recursive: Annotated[
            bool, Field(description="Whether folders in it are listed too, which may be much.")
        ] = False,
        include: Annotated[list[str] | None, Field(description="Patterns of the files to list, as '*.py'.")] = None,
        exclude: Annotated[list[str] | None, Field(description="Patterns of the files to leave out.")] = None,
    ) -> Any:
        return ["docs/", "src/", "README.md"]

    @server.tool(description="Fail — to see what a failure looks like")
    async def fail() -> Any:
        raise ToolError("failed as it should")

    @server.tool(description="Run a command in the sandbox")
    async def run_command(
        command: Annotated[str, Field(description="What the shell runs; it must not wait for somebody to type.")],
        cwd: Annotated[str | None, Field(description="The folder in which it runs; the root of the workspace.")] = None,
        timeout: Annotated[int, Field(description="After how many milliseconds it is stopped.")] = 30_000,
        env: Annotated[dict[str, str] | None, Field(description="Variables besides those of the sandbox.")] = None,
        stdin: Annotated[str | None, Field(description="What the command can read.")] = None,
    ) -> Any:
        return {"stdout": f"ran {command}", "stderr": "", "exitCode": 0}

    return server


if __name__ == "__main__":
    six_tool_server().run()
