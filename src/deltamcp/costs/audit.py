"""Asks servers what they cost: those of hosts' files for their tools; or one, as its client, for what can be measured.

An audit counts what the tools cost a model; it reports no secrets of the entries. A measurement has the latency of one
server, its tokens for a model, and the size of its messages.
"""

import asyncio
import contextlib
import datetime
import gzip
import itertools
import os
import shlex
import statistics
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from deltamcp import tokens
from deltamcp.catalog.disclosure import Disclosure, definition_tokens
from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.client import DeltaClient
from deltamcp.costs.cost import (
    METHOD,
    Cost,
    ServerListing,
    ToolCost,
    count_costs,
    count_gateway,
    count_index_tokens,
    count_together,
)
from deltamcp.gateway.config import GatewayConfig, GatewayFile, SkippedServer
from deltamcp.gateway.trust.approvals import approval_hint
from deltamcp.hosts.files import ConfiguredServer
from deltamcp.hosts.hosts import host_id
from deltamcp.runtime.secrets import Secrets
from deltamcp.upstreams.secrets import entry_values
from deltamcp.values import JSON
from deltamcp.wire.codecs import CODECS

MAX_CONCURRENT = 4
_MAX_PROBLEM_CHARS = 300
_SECRET_OPTION_WORDS = ("key", "token", "secret", "password", "passwd", "auth", "credential", "header", "bearer")
"""If an option's name has one of these words, its value is a secret."""


class ServerAnswer(Struct, frozen=True):
    """A server's tools and instructions."""

    tools: list[dict[str, JSON]]
    instructions: str = ""
    operations: list[dict[str, JSON]] | None = None
    """What it tells a gateway, where that differs: see `ServerListing`."""

    def as_listing(self, name: str) -> ServerListing:
        return ServerListing(name, self.tools, self.instructions, self.operations)


AskServer: TypeAlias = Callable[[dict[str, Any]], Awaitable[ServerAnswer]]


class AuditedServer(Struct, frozen=True):
    """A server, the places that list it, and its cost or its problem; without anything that may be secret."""

    name: str
    runs: str
    """The program, or the host of the URL."""
    places: list[str]
    cost: Cost | None = None
    problem: str | None = None
    """Why the server could not be asked, as a sentence."""


class HostCost(Struct, frozen=True):
    """What a conversation in one host pays: the servers in the host's files, each once."""

    host: str
    servers: list[str]
    cost: Cost


class SkippedEntry(Struct, frozen=True):
    """A server that the audit did not ask, or a file that it could not read."""

    name: str
    place: str
    why: str


class ConfiguredGateway(Struct, frozen=True):
    """An entry of a file that starts the gateway, and what its configuration says."""

    server: ConfiguredServer
    config: GatewayConfig
    behind: list[ConfiguredServer]
    """The servers that it can start."""
    skipped: tuple[SkippedServer, ...] = ()
    problem: str = ""
    """Why there is no configuration, as a sentence."""


def configured_gateway(server: ConfiguredServer, found: GatewayFile) -> ConfiguredGateway:
    """Returns the gateway that an entry starts with a configuration."""
    path = found.paths[0] if found.paths else server.path
    behind = [
        ConfiguredServer(one.name, server.host, path, one.entry, filled=one.filled) for one in found.config.upstreams
    ]
    return ConfiguredGateway(server, found.config, behind, found.skipped)


class AuditedGateway(Struct, frozen=True):
    """A gateway that is in a host's file already, and the servers behind it."""

    name: str
    place: str
    now: int
    """What it costs a conversation before it begins."""
    together: Cost
    """The servers behind it; `now` is what they would cost without it."""
    servers: list[AuditedServer]
    skipped: list[SkippedEntry]
    problem: str | None = None
    """Why nothing is known of what is behind it, as a sentence."""


class AuditReport(Struct, frozen=True):
    """The report of `delta-mcp audit`; printed as a table, as JSON or as a page."""

    date: str
    """The day of the measurement, as 2026-11-16."""
    tokenizer: str
    together: Cost
    hosts: list[HostCost]
    """Sorted by what they cost, the most expensive first; a server of several hosts counts in each."""
    servers: list[AuditedServer]
    """Those that hosts start themselves; those behind a gateway are in `gateways`."""
    tools: list[ToolCost]
    skipped: list[SkippedEntry]
    refused: dict[str, str]
    next_steps: list[str]
    """What the user can do now, as sentences."""
    gateways: list[AuditedGateway] = []
    method: str = METHOD


async def audit(
    servers: Iterable[ConfiguredServer],
    ask: AskServer,
    seconds: float,
    on_answer: Callable[[str], None] = lambda _: None,
    model: str | float = "o200k",
    words: Sequence[str] = (),
    gateways: Sequence[ConfiguredGateway] = (),
) -> AuditReport:
    """Asks each server once, some concurrently, and counts the costs; reports an error of a server for that server.

    Args:
        seconds: the timeout of each server.
        model: whose tokens to count, as in `tokens.count`.
        on_answer: called with the name of each server that has answered or failed.
        words: those that name to `delta-mcp gateway` what the user named here; none for the files of all hosts.
        gateways: the gateways among the servers of the files, which are asked for what is behind them instead.
    """
    servers = list(servers)
    asked = unique_servers([*servers, *(server for gateway in gateways for server in gateway.behind)])
    entries = {name: listed[0].entry for name, listed in asked.items()}
    results = dict(zip(asked, await _ask_servers(entries, ask, seconds, on_answer), strict=True))
    problems = {name: result for name, result in results.items() if isinstance(result, str)}
    answered = {name: result.as_listing(name) for name, result in results.items() if isinstance(result, ServerAnswer)}
    all_costs = count_costs([*answered.values()], model)

    def audit_servers(found: Iterable[ConfiguredServer]) -> list[AuditedServer]:
        return [
            AuditedServer(
                name,
                _program_or_host(listed[0].entry),
                [_place(server) for server in listed],
                all_costs.servers.get(name),
                problems.get(name),
            )
            for name, listed in _by_name(asked, found).items()
        ]

    def list_servers(found: Iterable[ConfiguredServer]) -> list[ServerListing]:
        return [answered[name] for name in _by_name(asked, found) if name in answered]

    unique, listings, audited = _by_name(asked, servers), list_servers(servers), audit_servers(servers)
    costs = all_costs if not gateways else count_costs(listings, model)
    return AuditReport(
        date=datetime.datetime.now().astimezone().date().isoformat(),
        tokenizer=tokens.describe(model),
        together=costs.together,
        hosts=(hosts := _count_hosts(listings, unique, model)),
        servers=audited,
        tools=costs.tools,
        skipped=[
            SkippedEntry(server.name, _place(server), server.skip_reason)
            for server in servers
            if server.skip_reason is not None
        ],
        refused=costs.refused,
        next_steps=_next_steps(costs.together, audited, [host.host for host in hosts], words, bool(gateways)),
        gateways=[_audit_gateway(one, list_servers(one.behind), audit_servers(one.behind), model) for one in gateways],
    )


def _by_name(
    asked: Mapping[str, list[ConfiguredServer]], found: Iterable[ConfiguredServer]
) -> dict[str, list[ConfiguredServer]]:
    """Returns those of some servers that were asked, by the names under which they were."""
    some = {id(server) for server in found}
    found_by_name = {name: [server for server in listed if id(server) in some] for name, listed in asked.items()}
    return {name: listed for name, listed in found_by_name.items() if listed}


def _audit_gateway(
    gateway: ConfiguredGateway, listings: Sequence[ServerListing], servers: list[AuditedServer], model: str | float
) -> AuditedGateway:
    cost = count_gateway(gateway.config, listings, model)
    return AuditedGateway(
        gateway.server.name,
        _place(gateway.server),
        now=cost.now,
        together=cost.together,
        servers=servers,
        skipped=[SkippedEntry(one.name, one.place, one.reason) for one in gateway.skipped],
        problem=gateway.problem or None,
    )


async def _ask_servers(
    entries: Mapping[str, dict[str, Any]], ask: AskServer, seconds: float, on_answer: Callable[[str], None]
) -> list[ServerAnswer | str]:
    """Returns the answer of each server, or a sentence that says why it has none."""
    semaphore = asyncio.Semaphore(MAX_CONCURRENT)

    async def answer_or_problem(name: str, entry: dict[str, Any]) -> ServerAnswer | str:
        async with semaphore:
            try:
                async with asyncio.timeout(seconds):
                    return await ask(entry)
            except TimeoutError:
                return f"It did not answer within {seconds:g} seconds."
            except Exception as error:  # one server's error must not stop the audit of the others
                return _problem_text(error, entry)
            finally:
                on_answer(name)

    return await asyncio.gather(*itertools.starmap(answer_or_problem, entries.items()))


def _count_hosts(
    listings: Iterable[ServerListing], servers: Mapping[str, list[ConfiguredServer]], model: str | float
) -> list[HostCost]:
    """Counts what the servers of each host cost together, the most expensive host first."""
    hosts: dict[str, list[ServerListing]] = {}
    for listing in listings:
        for host in dict.fromkeys(server.host for server in servers[listing.name]):
            hosts.setdefault(host, []).append(listing)
    costs = [
        HostCost(host, [listing.name for listing in listed], count_together(listed, model))
        for host, listed in hosts.items()
    ]
    return sorted(costs, key=lambda host: -host.cost.now)


def unique_servers(servers: Iterable[ConfiguredServer]) -> dict[str, list[ConfiguredServer]]:
    """Groups the servers to ask by a unique name; equal entries are one server that several places list."""
    by_entry: dict[bytes, list[ConfiguredServer]] = {}
    for server in servers:
        if server.skip_reason is None:
            by_entry.setdefault(msgspec.json.encode(server.entry, order="sorted"), []).append(server)
    by_name: dict[str, list[ConfiguredServer]] = {}
    for listed in by_entry.values():
        name, host = listed[0].name, listed[0].host
        names = (name, f"{name} ({host})", *(f"{name} ({host} {n})" for n in range(2, len(by_entry) + 2)))
        by_name[next(name for name in names if name not in by_name)] = listed
    return by_name


def gateway_sentence(gateway: AuditedGateway) -> str:
    """Says what a gateway costs, and what the servers behind it would cost without it."""
    now, without = gateway.now, gateway.together.now
    less = f", {1 - now / without:.1%} less" if without > now else ""
    return f"The gateway costs {now:,} tokens before a conversation begins, instead of {without:,}{less}."


def uncounted_sentences(report: AuditReport) -> list[str]:
    """Returns a sentence for each server, file and tool that the figures leave out, with the reason."""
    behind = [server for gateway in report.gateways for server in gateway.servers]
    failed = [server for server in (*report.servers, *behind) if server.problem]
    skipped = [*report.skipped, *(entry for gateway in report.gateways for entry in gateway.skipped)]
    return [
        *(
            f"{gateway.name} ({gateway.place}) is a gateway. {gateway.problem}"
            for gateway in report.gateways
            if gateway.problem
        ),
        *(f"{server.name} ({server.runs}) was not counted. {server.problem}" for server in failed),
        *(
            f"{entry.name} ({entry.place}) was passed over: {entry.why}.{approval_hint(entry.name, entry.why)}"
            if entry.name
            else entry.why
            for entry in skipped
        ),
        *(f"{name} is not in the figures behind the gateway. {reason}" for name, reason in report.refused.items()),
    ]


def _next_steps(
    together: Cost, servers: list[AuditedServer], hosts: list[str], words: Sequence[str], has_gateway: bool
) -> list[str]:
    """Says what can be done about what the servers cost now; at last, the command that does it."""
    counted = [(server.cost.now, server) for server in servers if server.cost is not None]
    if not counted:
        return [
            "Nothing needs to be done: the servers are behind the gateway. delta-mcp stats tells what it saves."
        ] * has_gateway
    if together.now <= together.surface:
        return ["Nothing needs to be done: these tools cost no more than meta-tools would."]
    largest, server = max(counted, key=lambda pair: pair[0])
    most = (
        f"Switch off in your hosts what you do not use: {server.name} alone costs {largest:,} of {together.now:,} "
        f"tokens ({', '.join(server.places)})."
    )
    if words:
        commands = [f"Serve them through the gateway: delta-mcp gateway {shlex.join(words)}"]
    else:
        commands = [f"Put those of {host} behind the gateway: delta-mcp install {host_id(host)}" for host in hosts]
    return [*[most] * (len(counted) > 1), *commands]


def _place(server: ConfiguredServer) -> str:
    path, home = str(server.path), str(Path.home())
    return f"{server.host}: ~{path.removeprefix(home)}" if path.startswith(home + os.sep) else f"{server.host}: {path}"


def _program_or_host(entry: dict[str, Any]) -> str:
    if "openapi" in entry and "://" not in entry["openapi"]:
        return Path(entry["openapi"]).name
    if (url := entry.get("url", entry.get("openapi"))) is not None:
        with contextlib.suppress(ValueError):
            return urlsplit(url).hostname or "an address"
        return "an address"
    command: str = entry["command"]
    return command.replace("\\", "/").rpartition("/")[2]


def _problem_text(error: Exception, entry: dict[str, Any]) -> str:
    text = " ".join(Secrets(_possible_secrets(entry)).redact(str(error) or f"{type(error).__name__}.").split())
    return text if len(text) <= _MAX_PROBLEM_CHARS else f"{text[: _MAX_PROBLEM_CHARS - 1]}…"


def _possible_secrets(entry: dict[str, Any]) -> set[str]:
    """Returns all values of an entry but the program and its first argument, most often a package or a verb."""
    values = entry_values(entry)
    secrets = {*values.credentials, *values.settings, *entry.get("env", {}).values()}
    for value in entry.get("headers", {}).values():
        secrets |= {value, *value.split()}
    if "url" in entry:
        with contextlib.suppress(ValueError):
            parts = urlsplit(entry["url"])
            secrets |= {parts.netloc.rpartition("@")[0], parts.username or "", parts.password or "", parts.query}
            secrets |= {parts.path, *parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))}
    is_secret_value, is_first = False, True
    for word in entry.get("args", ()):
        option, _, value = word.partition("=")
        secrets.add(value)
        if word.startswith("-"):
            is_secret_value = any(part in option.casefold() for part in _SECRET_OPTION_WORDS)
            continue
        if is_secret_value or not is_first:
            secrets |= {word, *word.split()}
        is_secret_value, is_first = False, is_first and is_secret_value
    return secrets


# The measurement of one server

Figures: TypeAlias = dict[str, Any]
Connect: TypeAlias = Callable[..., DeltaClient]
"""Makes a client of the server; `progressive` says whether the client declares Delta-MCP's extension."""
OnStep: TypeAlias = Callable[[str], None]
"""Called with the name of each step of the measurement."""

_STARTS = 3


async def measure(
    connect: Connect, tool: str | None, arguments: dict[str, JSON], rounds: int, on_step: OnStep = lambda _: None
) -> Figures:
    """Connects to the server some times, then sends it each request `rounds` times.

    Args:
        tool: the tool to call; if None, one that declares itself read-only and needs no arguments.

    Raises:
        ClientError: the server cannot be measured.
    """
    starts = []
    for number in range(_STARTS):
        on_step(f"start {number + 1} of {_STARTS}")
        began = time.perf_counter()
        async with connect(progressive=False):
            starts.append(time.perf_counter() - began)
    async with connect(progressive=False) as client:
        definitions = await client.describe()
        name = tool or _find_read_only_tool(definitions)
        latency = {"start and introduction": _figures(starts)}
        on_step("tools/list")
        latency["tools/list"] = await _measure_time(lambda: client.request("tools/list"), rounds)
        if name is not None:
            on_step(f"tools/call of {name}")
            latency[f"tools/call {name}"] = await _measure_time(lambda: client.call_tool(name, arguments), rounds)
        server = client.server
    async with connect(progressive=True) as client:
        if client.server.progressive is not None and definitions:
            first = definitions[0]["name"]
            on_step("tools/describe")
            latency["tools/list, names and summaries"] = await _measure_time(
                lambda: client.request("tools/list"), rounds
            )
            latency["tools/describe"] = await _measure_time(
                lambda: client.request("tools/describe", {"names": [first]}), rounds
            )
        index = count_index_tokens((line.name, line.summary) for line in await client.tools())
    on_step("tokens")
    return {
        "server": {"name": server.name, "version": server.version, "protocol": server.protocol},
        "tools": len(definitions),
        "called": name,
        "latency_ms": latency,
        "tokens": _tokens(server.name, definitions, server.instructions or "", index, name),
        "bytes": _bytes(definitions),
    }


def _find_read_only_tool(definitions: list[dict[str, JSON]]) -> str | None:
    for raw in definitions:
        annotations, schema = raw.get("annotations"), raw.get("inputSchema")
        is_read_only = isinstance(annotations, dict) and annotations.get("readOnlyHint") is True
        if is_read_only and isinstance(schema, dict) and not schema.get("required"):
            return str(raw["name"])
    return None


async def _measure_time(send_request: Callable[[], Awaitable[Any]], rounds: int) -> Figures:
    await send_request()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await send_request()
        times.append(time.perf_counter() - began)
    return _figures(times)


def _figures(seconds: list[float]) -> Figures:
    return {
        "median": round(statistics.median(seconds) * 1e3, 3),
        "least": round(min(seconds) * 1e3, 3),
        "most": round(max(seconds) * 1e3, 3),
        "times": len(seconds),
    }


def _tokens(
    server: str, definitions: list[dict[str, JSON]], instructions: str, index: int, called: str | None
) -> Figures:
    """Counts tokens up front and for a conversation that uses one tool: with all definitions, with an index and one
    definition, and with the meta-tools."""
    cost = count_together([ServerListing(server, definitions, instructions)], disclosure=Disclosure("meta"))
    counts = [definition_tokens(raw) for raw in definitions]
    called_counts = [count for raw, count in zip(definitions, counts, strict=True) if raw.get("name") == called]
    definition = called_counts[0] if called_counts else round(statistics.mean(counts)) if counts else 0
    return {
        "all definitions": {"up front": cost.now, "one tool used": cost.now},
        "names and summaries": {"up front": index, "one tool used": index + definition},
        "meta-tools": {"up front": cost.surface, "one tool used": cost.one_tool},
        "instructions": cost.instructions,
    }


def _bytes(definitions: list[dict[str, JSON]]) -> Figures:
    """Returns the size of the response to `tools/list` in each encoding."""
    response = {"jsonrpc": "2.0", "id": 1, "result": {"tools": definitions}}
    bodies = {name: codec.encode(response) for name, codec in CODECS.items()}
    return {name: {"plain": len(body), "gzip": len(gzip.compress(body, mtime=0))} for name, body in bodies.items()}


def measurement_table(report: Figures) -> str:
    """Formats a report for people."""
    server = report["server"]
    title = f"{server['name']} {server['version']}, {server['protocol']}, {report['tools']} tools"
    rows = [visible_line(title), ""]
    rows += align(
        [
            ("latency, ms", "median", "least", "most", "times"),
            *(
                (
                    visible_line(name),
                    *(f"{figures[key]:,.2f}" for key in ("median", "least", "most")),
                    str(figures["times"]),
                )
                for name, figures in report["latency_ms"].items()
            ),
        ]
    )
    if report["called"] is None:
        rows.append("no tool says that it only reads and needs no arguments: name one by --tool NAME")
    counted = {name: figures for name, figures in report["tokens"].items() if isinstance(figures, dict)}
    rows += ["", *_count_table("tokens", ("up front", "one tool used"), counted)]
    rows += ["", *_count_table("bytes of tools/list", ("plain", "gzip"), report["bytes"])]
    return "\n".join(rows)


def _count_table(title: str, keys: tuple[str, ...], figures: Figures) -> list[str]:
    return align([(title, *keys), *((name, *(f"{counts[key]:,}" for key in keys)) for name, counts in figures.items())])


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lays cells out in columns, two spaces apart; the columns numbered in `left` are left-aligned, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
