"""The page of the reference about errors: what is refused, what fails, what programs catch."""

from collections.abc import Iterable

from deltamcp import errors
from deltamcp.auth.bearer import TOKEN_FAULTS
from deltamcp.dialects.mcp_lite_bodies import LITE_FAULTS
from deltamcp.errors import FAULTS, Fault, ToolErrorCode
from website.python_reference import cell, field_documents, first_paragraph


def errors_page() -> str:
    meanings = field_documents(Fault)
    refusals = (
        (
            f"`{fault.name}`",
            meanings[fault.name],
            f"{row.handshake}, {row.modern}",
            f"{row.handshake_http}, {row.modern_http}",
        )
        for fault, row in FAULTS.items()
    )
    lite = (
        (
            f"`{fault.name}`",
            f"`{row.reason}`",
            row.code,
            row.http_status,
            f"`{row.grpc_status}`",
            "yes" if row.retryable else "no",
        )
        for fault, row in LITE_FAULTS.items()
    )
    failures = field_documents(ToolErrorCode)
    parts = (
        "# Errors",
        "What a request can be refused with, what a tool can fail with, and what programs can catch."
        " [Troubleshooting](../troubleshooting.md) has the texts, by what one sees.",
        "## Refusals",
        "A request that is refused gets a JSON-RPC error with a code and, over HTTP, a status. The first number of each"
        " pair is for MCP up to 2025-11-25, the second from 2026-07-28 on.",
        table(("fault", "is", "code", "HTTP"), refusals),
        "## Refused tokens",
        "A token that is refused gets `UNAUTHORIZED`, with one of these as `error.data.reason`.",
        table(("reason", "text"), ((f"`{fault.value}`", text) for fault, text in TOKEN_FAULTS.items())),
        "## Failures of tools",
        "A call that fails gets a result with `isError: true`. Its code is in `_meta`. These are the server's own;"
        " authors choose others with `ToolFailure`.",
        table(("code", "is"), ((f"`{code.value}`", failures[code.name]) for code in ToolErrorCode)),
        "## MCP-lite and gRPC",
        "The same refusals in the words of MCP-lite, which is experimental. Programs read `error.data.reason`, and over"
        " gRPC the status.",
        table(("fault", "reason", "code", "HTTP", "gRPC", "retry"), lite),
        "## Exceptions",
        table(
            ("exception", "is a", ""),
            ((f"`{kind.__name__}`", f"`{kind.__bases__[0].__name__}`", first_paragraph(kind)) for kind in exceptions()),
        ),
    )
    return "\n\n".join(parts) + "\n"


def table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell(str(value)) for value in line)} |" for line in lines)


def exceptions() -> list[type[Exception]]:
    return [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, Exception) and one.__module__ == errors.__name__
    ]
