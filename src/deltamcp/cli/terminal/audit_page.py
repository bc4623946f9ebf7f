"""Renders an audit report as one HTML page that loads no other files and runs no scripts."""

import html
from collections.abc import Iterable

from deltamcp.cli.terminal import written_page
from deltamcp.cli.terminal.output import printable_text
from deltamcp.costs.audit import (
    AuditedGateway,
    AuditedServer,
    AuditReport,
    HostCost,
    gateway_sentence,
    uncounted_sentences,
)
from deltamcp.costs.cost import Cost, ToolCost

LARGEST_TOOLS = 15
_NONE = "No server could be asked."
_ROW_HEIGHT, _BAR_HEIGHT, _LABEL_CHARS = 62, 11, 26


def render_page(report: AuditReport) -> str:
    """Returns the HTML document. Names come from servers and files, so they are escaped."""
    counted = [server for server in report.servers if server.cost]
    uncounted = uncounted_sentences(report)
    parts = [_header(report, len(counted)), *([_figures(report.together), _chart(report, counted)] if counted else [])]
    if report.next_steps:
        parts.append(f"<h2>What you can do now</h2>{_list(report.next_steps)}")
    if len(report.hosts) > 1:
        parts.append(f"<h2>In each host</h2>{_hosts_table(report.hosts)}")
    if counted:
        largest = report.tools[:LARGEST_TOOLS]
        parts += [f"<h2>The largest tools</h2>{_tools_table(largest, with_server=True)}", "<h2>Server by server</h2>"]
        parts += [_details(server, report.tools) for server in counted]
    parts += [_gateway(gateway) for gateway in report.gateways if any(server.cost for server in gateway.servers)]
    if uncounted:
        parts.append(f"<h2>Not counted</h2>{_list(uncounted)}")
    parts.append(f"<footer><p>{_escape(report.method)}</p><p>delta-mcp audit</p></footer>")
    return written_page.render("What your MCP servers cost", "\n".join(parts))


def _gateway(gateway: AuditedGateway) -> str:
    """Renders what a gateway costs that is in a host's file already, and what the servers behind it would."""
    rows = "".join(
        f'<tr><td>{_escape(server.name)}</td><td class="number">{server.cost.tools:,}</td>'
        f'<td class="number">{server.cost.now:,}</td></tr>'
        for server in gateway.servers
        if server.cost
    )
    heads = '<th scope="col">Server</th><th scope="col" class="number">Tools</th>'
    return (
        f"<h2>Behind the gateway {_escape(gateway.name)}</h2><p>{_escape(gateway_sentence(gateway))}"
        f"<small>{_escape(gateway.place)}</small></p><table><thead><tr>{heads}"
        f'<th scope="col" class="number">Without it</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _escape(text: str) -> str:
    return html.escape(printable_text(text))


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _header(report: AuditReport, servers: int) -> str:
    tools = _count_text(report.together.tools, "tool")
    counts = f"{_count_text(servers, 'server')}, {tools}. Tokens: {_escape(report.tokenizer)}."
    summary = f"{counts if servers else _NONE * (not report.gateways)} Measured on {report.date}."
    return f'<header><h1>What your MCP servers cost</h1><p class="soft">{summary}</p></header>'


def _figures(cost: Cost) -> str:
    prompts = f"and {cost.instructions:,} of instructions" if cost.instructions else "in every conversation"
    share = f"{cost.surface / cost.now:.1%} of that" if cost.now > cost.surface else "these tools are too few to gain"
    breakdown = f"{cost.overview:,} for discover, {cost.schema:,} for get_schema"
    tiles = (
        ("now", "Tool definitions now", cost.now, prompts),
        ("behind", "Behind the gateway", cost.surface, share),
        ("behind", "Using one tool there", cost.one_tool, breakdown),
    )
    tiles_html = (
        f'<div class="{kind}"><dt>{name}</dt><dd>{figure:,}</dd><dd><small>{note}</small></dd></div>'
        for kind, name, figure, note in tiles
    )
    return f'<dl class="figures">{"".join(tiles_html)}</dl>'


def _chart(report: AuditReport, servers: list[AuditedServer]) -> str:
    """Draws two bars per server; widths are percentages and texts keep their size, for small screens."""
    rows = [("All together", report.together), *((server.name, server.cost) for server in servers if server.cost)]
    rows[1:] = sorted(rows[1:], key=lambda row: -row[1].now)
    rows = rows if len(servers) > 1 else rows[1:]
    largest = max(max(cost.now, cost.surface) for _, cost in rows) or 1
    bars = [_bars(row, name, cost, largest) for row, (name, cost) in enumerate(rows)]
    description = "; ".join(f"{name}: {cost.now:,} now, {cost.surface:,} behind the gateway" for name, cost in rows)
    return (
        "<h2>Up front, in tokens</h2><figure><figcaption>"
        '<span class="key now">now</span><span class="key">behind the gateway</span>'
        f"{'<small>Each server by itself; all would share one gateway.</small>' * (len(servers) > 1)}</figcaption>"
        f'<svg role="img" aria-labelledby="chart-title chart-desc" height="{len(rows) * _ROW_HEIGHT}">'
        f'<title id="chart-title">Tokens up front, now and behind the gateway</title>'
        f'<desc id="chart-desc">{_escape(description)}</desc>{"".join(bars)}</svg></figure>'
    )


def _bars(row: int, name: str, cost: Cost, largest: int) -> str:
    top = row * _ROW_HEIGHT
    label = name if len(name) <= _LABEL_CHARS else f"{name[: _LABEL_CHARS - 1]}…"
    weight = ' class="all"' if name == "All together" else ""
    bars = (
        f'<rect class="{kind}" x="0" y="{top + y}" width="{max(0.4, 100 * figure / largest):.2f}%" '
        f'height="{_BAR_HEIGHT}" rx="3"/>'
        for kind, figure, y in (("now", cost.now, 22), ("behind", cost.surface, 22 + _BAR_HEIGHT + 2))
    )
    figures = f'<text class="figure" x="100%" y="{top + 14}" text-anchor="end">{cost.now:,} → {cost.surface:,}</text>'
    return f'<text{weight} x="0" y="{top + 14}">{_escape(label)}</text>{figures}{"".join(bars)}'


def _hosts_table(hosts: Iterable[HostCost]) -> str:
    """Renders what a conversation in each host pays; a server of several hosts counts in each."""
    rows = []
    for host in hosts:
        servers = f"<small>{_escape(', '.join(host.servers))}</small>"
        figures = (host.cost.tools, host.cost.now, host.cost.surface, host.cost.one_tool)
        cells = "".join(f'<td class="number">{figure:,}</td>' for figure in figures)
        rows.append(f"<tr><td>{_escape(host.host)}{servers}</td>{cells}</tr>")
    heads = "".join(
        f'<th scope="col" class="number">{name}</th>' for name in ("Tools", "Now", "Planned gateway", "Using one tool")
    )
    return f'<table><thead><tr><th scope="col">Host</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _tools_table(tools: Iterable[ToolCost], with_server: bool) -> str:
    rows = []
    for tool in tools:
        server = f"<small>{_escape(tool.server)}</small>" if with_server else ""
        schema = "–" if tool.schema is None else f"{tool.schema:,}"
        name = _escape(tool.name).replace("_", "_<wbr>")
        rows.append(
            f'<tr><td>{name}{server}</td><td class="number">{tool.now:,}</td><td class="number">{schema}</td></tr>'
        )
    return (
        '<table><thead><tr><th scope="col">Tool</th><th scope="col" class="number">Now</th>'
        f'<th scope="col" class="number">When used</th></tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _details(server: AuditedServer, tools: Iterable[ToolCost]) -> str:
    cost = server.cost
    assert cost is not None, "only servers with a cost have details"
    own_tools = [tool for tool in tools if tool.server == server.name]
    places = "".join(f"<small>{_escape(place)}</small>" for place in server.places)
    prompts = f"<small>{_count_text(cost.instructions, 'token')} of instructions</small>" if cost.instructions else ""
    return (
        f"<details><summary>{_escape(server.name)}<span>{_count_text(cost.tools, 'tool')}, "
        f"{cost.now:,} → {cost.surface:,}"
        f"</span></summary><div>{places}<small>runs {_escape(server.runs)}</small>{prompts}"
        f"{_tools_table(own_tools, with_server=False)}</div></details>"
    )
