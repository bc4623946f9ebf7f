"""The token benchmark: counts what a catalog costs a model, up front and on demand, and checks that all is served."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean

import msgspec

from bench.corpora.tool_corpus import Entry, read
from deltamcp import tokens
from deltamcp.catalog import discovery
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import DetailLevel
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.view import View
from deltamcp.context import Context
from deltamcp.costs.audit import Figures
from deltamcp.errors import DeltaError
from deltamcp.gateway.item_names import id_segment
from deltamcp.limits import Limits
from deltamcp.values import JSON, Kind, Surface
from deltamcp.work import Work

SIZES = (10, 84, 300, 1000, 2500)
SEARCHED = 200
"""How many queries are searched to count the tokens of their five hits."""
META = Disclosure("meta")

METHOD = (
    "Tokens of o200k_base, counted. A tool as a model sees it is {name, description, input_schema} as compact JSON, "
    "each counted by itself; get_schema is compared with that. "
    "Index: the lines of discover(detail='brief'). Meta surface: the four meta-tools "
    f"as a model sees them, for {', '.join(map(str, SIZES))} operations drawn from all tools, each under its server as "
    "category; the largest is reported. Index, signature and get_schema show a tool under its own name, as its server "
    "alone would. A tool is rejected where it cannot be registered, listed, described, or found by its id. Demo: "
    "Delta-MCP's six tools as text; as JSON its own list of them is 90 tokens, ours by its protocol demo_progressive."
)


def run(data: Path, progress: Callable[[str], None] = lambda _: None) -> Figures:
    """Counts tokens over the tools in `data`, and over Delta-MCP's six demo tools if their file lies beside it."""
    entries = list(read(data).servers)
    random.Random(0).shuffle(entries)
    view, rejected = _make_catalog(entries)
    rejected |= _find_unserved(view)
    operations = list(view.operations.values())
    progress("counting")
    full = [definition_tokens(_own_definition(operation)) for operation in operations]
    surfaces = {size: _surface_tokens(entries, size) for size in SIZES}
    of_84 = _make_catalog(entries[:84])[0]
    hits = [tokens.count(_five_hits(view, operation)) for operation in operations[:SEARCHED]]
    summary: Figures = {
        "tools": len(entries),
        "rejected_tools": len(rejected),
        "full_tokens_per_tool": _mean(full),
        "index_tokens_per_tool": _mean([tokens.count(_index_line(view, operation)) for operation in operations]),
        "signature_tokens_per_tool": _mean([_tokens(tool_text.signature_line, operation) for operation in operations]),
        "get_schema_tokens_per_tool": _mean(
            [_tokens(tool_text.signature_with_notes, operation) for operation in operations]
        ),
        "get_schema_full_ratio": round(
            sum(_tokens(tool_text.full_text, operation) for operation in operations) / max(1, sum(full)), 4
        ),
        "meta_surface_tokens": max(surfaces.values(), default=0),
        "meta_surface_tokens_by_operations": {str(size): count for size, count in surfaces.items()},
        "discover_84_tokens": tokens.count(of_84.directory.overview),
        "five_hits_tokens": max(hits, default=0),
        "five_hits_tokens_mean": _mean(hits),
        **_demo_figures(data),
    }
    counted = "measured" if tokens.is_exact() else "estimated"
    computed = {"get_schema_full_ratio", "full_tokens_per_tool", "five_hits_tokens_mean"}
    return {
        "summary": summary,
        "provenance": {name: "computed" if name in computed or "per_tool" in name else counted for name in summary},
        "rejected": dict(sorted(rejected.items())),
        "servers": _server_figures(entries),
        "method": METHOD,
        "tokenizer": "o200k_base, exact" if tokens.is_exact() else "an estimate of o200k_base",
    }


async def _answer_nothing(arguments: dict[str, JSON]) -> None: ...


def _make_catalog(entries: Iterable[Entry]) -> tuple[View, dict[str, str]]:
    """Returns a server's catalog of these tools behind meta-tools, and the reasons for which it rejected tools."""
    catalog = Catalog("bench", disclosure=META)
    rejected: dict[str, str] = {}
    for entry in entries:
        try:
            catalog.add(make_operation(entry))
        except DeltaError as error:
            rejected[entry.id] = str(error)
    return catalog.view(), rejected


def make_operation(entry: Entry) -> Operation:
    """Returns a tool of the corpus as an operation, with its server as category."""
    tool, schema = entry.tool, entry.tool.get("inputSchema")
    return FunctionOperation(
        _answer_nothing,
        Context,
        name=entry.id.strip(),
        category=id_segment(entry.group) if entry.group else "none",
        # The catalog reads what stands before a dot as a category.
        action=tool["name"].replace(".", "_"),
        description=tool.get("description") or "",
        input_schema=schema if isinstance(schema, dict) else {},
    )


def _find_unserved(view: View) -> dict[str, str]:
    """Returns the operations of the catalog that cannot be listed, described or found, with which of these failed."""
    page = view.page(Kind.TOOLS, Surface.FULL, None)
    listed = {tool["name"] for tool in page.items} if page is not None else set()
    missing: dict[str, str] = {}
    for name, operation in view.operations.items():
        text = discovery.schemas_text(view, discovery.find_schemas(view, [operation.id]), DetailLevel.NOTES)
        definition = msgspec.json.decode(
            discovery.schemas_text(view, discovery.find_schemas(view, [operation.id]), DetailLevel.SCHEMA)
        )
        if name not in listed:
            missing[name] = "not listed"
        elif not text.startswith(operation.id) or definition["inputSchema"] != operation.tool["inputSchema"]:
            missing[name] = "not described"
        elif [found.operation for found in view.search(operation.id, 1, view.operations.keys())] != [operation]:
            missing[name] = "not found"
    return missing


def _own_definition(operation: Operation) -> dict[str, JSON]:
    """Returns the definition under the name that the tool has on its own server."""
    return {**operation.tool, "name": operation.name.partition("/")[2]}


def _tokens(text: Callable[[dict[str, JSON]], str], operation: Operation) -> int:
    return tokens.count(text(_own_definition(operation)))


def _index_line(view: View, operation: Operation) -> str:
    return f"{_own_definition(operation)['name']}: {view.directory.summary_of(operation)}\n"


def _five_hits(view: View, operation: Operation) -> str:
    arguments = discovery.parse_discover_arguments({"query": operation.summary})
    hits = view.search(operation.summary, discovery.MAX_HITS + 1, view.operations.keys())
    return discovery.hits_text(view, {operation.summary: hits}, arguments)


def _surface_tokens(entries: Sequence[Entry], size: int) -> int:
    view, _ = _make_catalog(_repeat(entries, size))
    page = view.page(Kind.TOOLS, Surface.META, None)
    return sum(map(definition_tokens, page.items)) if page is not None else 0


def _repeat(entries: Sequence[Entry], size: int) -> Iterator[Entry]:
    """Yields `size` entries; if there are fewer, repeats them under other names."""
    for index, entry in zip(range(size), cycle(entries), strict=False):
        repetition = index // len(entries)
        yield entry if not repetition else Entry(f"{entry.id}-{repetition}", f"{entry.group}-{repetition}", entry.tool)


def _server_figures(entries: Iterable[Entry]) -> dict[str, Figures]:
    """Returns each server's cost with all definitions and with meta-tools, and how many used operations break even."""
    by_server: dict[str, list[Entry]] = {}
    for entry in entries:
        by_server.setdefault(entry.group, []).append(entry)
    figures: dict[str, Figures] = {}
    for server, server_entries in sorted(by_server.items()):
        costs = _make_catalog(server_entries)[0].surface_costs
        figures[server] = {
            "tools": len(server_entries),
            "full": costs.full,
            "meta": costs.meta,
            "overview": costs.overview,
            "get_schema": round(costs.schema, 1),
            "break_even": costs.break_even,
            "auto": costs.cheaper.value,
        }
    return figures


def _demo_figures(data: Path) -> Figures:
    """Counts the original Delta-MCP's six demo tools; there the index cost 90 tokens, index and one describe 299."""
    file = data.parent / "fixtures" / "delta-mcp" / "demo-tools.json"
    if not file.is_file():
        return {}
    tools = msgspec.json.decode(file.read_bytes())["tools"]
    catalog = Catalog("demo", disclosure=META)
    for tool in tools:
        options = {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
        catalog.add(FunctionOperation(_answer_nothing, Context, **options))
    view = catalog.view()
    brief = discovery.parse_discover_arguments({"detail": "brief"})
    index = tokens.count(discovery.listing_text(view, brief, Work(Limits().work_steps)))
    description = tokens.count(
        discovery.schemas_text(view, discovery.find_schemas(view, [tools[0]["name"]]), DetailLevel.NOTES)
    )
    page = view.page(Kind.TOOLS, Surface.PROGRESSIVE, None)
    listed = msgspec.json.encode({"tools": page.items if page is not None else []}).decode()
    return {
        "demo_index_tokens": index,
        "demo_index_and_describe_tokens": index + description,
        "demo_progressive_tokens": tokens.count(listed),
    }


def _mean(counts: Sequence[int]) -> float:
    return round(fmean(counts), 2) if counts else 0.0


def table(report: Figures) -> str:
    """Formats a report for people."""
    lines = [report["tokenizer"], ""]
    for name, value in report["summary"].items():
        shown = ", ".join(f"{key}: {count}" for key, count in value.items()) if isinstance(value, dict) else str(value)
        lines.append(f"{name:<36} {shown:<44} {report['provenance'][name]}")
    lines += ["", f"{'server':<28}{'tools':>6}{'full':>8}{'meta':>6}{'schema':>8}{'break-even':>12}  auto"]
    for server, row in report["servers"].items():
        figures = f"{row['tools']:>6}{row['full']:>8}{row['meta']:>6}{row['get_schema']:>8}{row['break_even']:>12}"
        lines.append(f"{server[:27]:<28}{figures}  {row['auto']}")
    lines += ["", *(f"rejected {name}: {why}" for name, why in report["rejected"].items()), report["method"]]
    return "\n".join(lines)
