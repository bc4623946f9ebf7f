"""A map of a Python repository for the task at hand: the symbols that matter, ranked, and who calls whom.

    python examples/code_context/server.py /path/to/repository          # stdio, as hosts start it
    CODE_CONTEXT_REPO=/path/to/repository delta-mcp serve examples/code_context/server.py --http 127.0.0.1:8000

Without a path it is the repository of the working directory. Asked again after edits, `context_for_task` answers with
what changed, to callers that send the `pack_root` of the last answer and to those whose connection lasts. Read on in
this folder: `source`, `graph`, `ranking`, `work_tree`.
"""

import os
import sys
import urllib.parse
from pathlib import Path
from typing import Annotated

from pydantic import Field

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `examples` is, however this file is started

from deltamcp import DeltaServer, ResultPolicy, ToolError
from deltamcp.gcf import Edge, Payload, Symbol
from examples.code_context.graph import Graph
from examples.code_context.ranking import ranked
from examples.code_context.work_tree import WorkTree

server = DeltaServer(
    "code-context",
    "1.0",
    instructions="Ask context_for_task first, then read with source_of what it names. After edits ask again.",
)
given = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else os.environ.get("CODE_CONTEXT_REPO", ".")
repository = WorkTree(given)


@server.tool(
    summary="The symbols a task is about, ranked, and their calls",
    annotations={"readOnlyHint": True},
    results=ResultPolicy(deltas=True),
)
def context_for_task(
    task: Annotated[str, Field(description="What is to be done, in words the code would use", max_length=2000)],
    limit: Annotated[int, Field(description="Most symbols", ge=1, le=200)] = 40,
    path: Annotated[str, Field(description="Only what is below this folder or file")] = "",
) -> Payload:
    """The symbols of this Python repository that a task is about, ranked, and how they call each other.

    `@3 method app.cart.Cart.total 0.85 rwr` is a symbol: its number, kind, qualified name (module, class, name), score,
    and whether the task's words match it (match) or edges lead to it (rwr). Under `targets` are the matches, under
    `related` what is one edge away from them, under `extended` what is two away. `@3<@7 calls` means that 7 calls 3;
    uses, inherits, overrides and imports read the same way. What contains what is in the names.
    """
    return pack(repository.graph(), task, limit, path)


@server.tool(summary="The source code of a symbol", annotations={"readOnlyHint": True})
def source_of(name: Annotated[str, Field(description="A qualified name, as context_for_task has it")]) -> str:
    """The source code of a symbol as it is now, below its file and line."""
    scope = repository.graph().symbols.get(urllib.parse.unquote(name))
    if scope is None:
        raise ToolError(f"There is no symbol {name}; context_for_task tells the names.")
    return repository.source(scope)


def pack(graph: Graph, task: str, limit: int = 40, path: str = "") -> Payload:
    """
    Raises:
        ToolError: no symbol has any of the task's words.
    """
    found = ranked(graph, task, path.strip("/"))[:limit]
    if not found:
        raise ToolError("No name, docstring or path here has any of these words; try words the code would use.")
    names = {one.scope.name for one in found}
    return Payload(
        tool="context_for_task",
        symbols=[
            Symbol(_token(one.scope.name), one.scope.kind, one.score, "rwr" if one.distance else "match", one.distance)
            for one in found
        ],
        edges=[
            Edge(_token(source), _token(target), kind)
            for (source, target), kind in graph.edges.items()
            if kind != "contains" and source in names and target in names
        ],
    )


def _token(name: str) -> str:
    """GCF quotes nothing in graphs: what is not ASCII, and a space in a path, is percent-encoded."""
    return urllib.parse.quote(name)


if __name__ == "__main__":
    server.run()
