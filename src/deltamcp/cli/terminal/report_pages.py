"""The pages that `audit` and `stats` write into files: they load no other files and run no scripts.

They look like the dashboard. Names in them come from servers and files, and are texts there.
"""

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

from deltamcp.cli.terminal import output
from deltamcp.costs.audit import (
    AuditedGateway,
    AuditedServer,
    AuditReport,
    HostCost,
    gateway_sentence,
    uncounted_sentences,
)
from deltamcp.costs.cost import Cost, ToolCost
from deltamcp.dashboard.web.home_page import token_figures
from deltamcp.dashboard.web.layout import (
    Child,
    Html,
    count_text,
    details,
    element,
    figure_tiles,
    join,
    number,
    read_static,
    table,
)
from deltamcp.errors import ConfigurationError
from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LedgerRows, Usage

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
svg { display: block; width: 100%; overflow: visible; }
svg text { fill: var(--ink); font-size: .88rem; }
svg .figure { fill: var(--soft); }
svg .all { font-weight: 650; }
svg rect.now { fill: var(--now); }
svg rect.behind { fill: var(--behind); }
svg line { stroke: var(--line); }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; font-size: .85rem;
  color: var(--soft); }
summary span { color: var(--soft); margin-left: .5rem; }
.scroll { overflow-x: auto; }
.scroll :is(th, td):first-child { min-width: 5.5rem; }
.scroll:focus-visible { outline: 2px solid var(--behind); outline-offset: 2px; }
details > div { padding: 0 0 1.25rem 1.1rem; }
@media print { :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; }
  body { print-color-adjust: exact; -webkit-print-color-adjust: exact; font-size: 10pt; } main { padding: 0; }
  details::details-content { content-visibility: visible; block-size: auto; }
  tr, svg, .figures div { break-inside: avoid; } h2 { break-after: avoid; } }
"""


def write(path: Path, page: str) -> None:
    """
    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    output.print_notice(f"Written to {path}")


def _document(title: str, *body: Child) -> Html:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Html(f"{read_static('look.css').decode()}{_STYLE}")),
    )
    page = element("html", head, element("body", element("main", *body)), lang="en")
    return join(Html("<!doctype html>\n"), page, Html("\n"))


def _key(before: str, after: str, note: str = "") -> Html:
    """Returns the caption of a chart of two kinds of bars."""
    return element(
        "figcaption",
        element("span", before, class_="key now"),
        element("span", after, class_="key"),
        element("small", note) if note else None,
    )


def _drawing(title: str, description: str, height: int, *shapes: Child) -> Html:
    return element(
        "svg",
        element("title", title, id="chart-title"),
        element("desc", description, id="chart-desc"),
        *shapes,
        role="img",
        aria_labelledby="chart-title chart-desc",
        height=height,
    )


def _row(*texts: Child, figures: Iterable[Child]) -> Html:
    """Returns a row of a table, whose figures are its last columns."""
    return element(
        "tr",
        *(element("td", text) for text in texts),
        *(element("td", figure, class_="number") for figure in figures),
    )


# What servers cost

LARGEST_TOOLS = 15
_NONE = "No server could be asked."
_ROW_HEIGHT, _BAR_HEIGHT, _LABEL_CHARS = 62, 11, 26


def audit_page(report: AuditReport) -> Html:
    """Returns the page of an audit."""
    counted = [server for server in report.servers if server.cost]
    together = report.together
    counts = f"{count_text(len(counted), 'server')}, {count_text(together.tools, 'tool')}. Tokens: {report.tokenizer}."
    summary = counts if counted else _NONE * (not report.gateways)
    parts: list[Child] = [
        element(
            "header",
            element("h1", "What your MCP servers cost"),
            element("p", f"{summary} Measured on {report.date}.", class_="soft"),
        )
    ]
    if counted:
        parts += [_cost_figures(together), element("h2", "Up front, in tokens"), _cost_chart(report, counted)]
    if report.next_steps:
        parts += [element("h2", "What you can do now"), _list(report.next_steps)]
    if len(report.hosts) > 1:
        parts += [element("h2", "In each host"), _hosts_table(report.hosts)]
    if counted:
        parts += [element("h2", "The largest tools"), _tools_table(report.tools[:LARGEST_TOOLS], with_server=True)]
        parts += [element("h2", "Server by server"), *(_details(server, report.tools) for server in counted)]
    parts += [_gateway(gateway) for gateway in report.gateways if any(server.cost for server in gateway.servers)]
    if uncounted := uncounted_sentences(report):
        parts += [element("h2", "Not counted"), _list(uncounted)]
    footer = element("footer", element("p", report.method), element("p", "delta-mcp audit"))
    return _document("What your MCP servers cost", *parts, footer)


def _list(sentences: Iterable[str]) -> Html:
    return element("ul", *(element("li", sentence) for sentence in sentences))


def _cost_figures(cost: Cost) -> Html:
    prompts = f"and {cost.instructions:,} of instructions" if cost.instructions else "in every conversation"
    share = f"{cost.surface / cost.now:.1%} of that" if cost.now > cost.surface else "these tools are too few to gain"
    parts = f"{cost.overview:,} for discover, {cost.schema:,} for get_schema"
    return figure_tiles(
        (
            ("Tool definitions now", number(cost.now), prompts, "now"),
            ("Behind the gateway", number(cost.surface), share, "behind"),
            ("Using one tool there", number(cost.one_tool), parts, "behind"),
        )
    )


def _cost_chart(report: AuditReport, servers: list[AuditedServer]) -> Html:
    """Draws two bars for each server; widths are percentages and texts keep their size, for small screens."""
    rows = sorted(((server.name, server.cost) for server in servers if server.cost), key=lambda row: -row[1].now)
    if len(servers) > 1:
        rows.insert(0, ("All together", report.together))
    largest = max(max(cost.now, cost.surface) for _, cost in rows) or 1
    drawing = _drawing(
        "Tokens up front, now and behind the gateway",
        "; ".join(f"{name}: {cost.now:,} now, {cost.surface:,} behind the gateway" for name, cost in rows),
        len(rows) * _ROW_HEIGHT,
        *(_bars(place * _ROW_HEIGHT, name, cost, largest) for place, (name, cost) in enumerate(rows)),
    )
    note = "Each server by itself; all would share one gateway." if len(servers) > 1 else ""
    return element("figure", _key("now", "behind the gateway", note), drawing)


def _bars(top: int, name: str, cost: Cost, largest: int) -> Html:
    label = name if len(name) <= _LABEL_CHARS else f"{name[: _LABEL_CHARS - 1]}…"
    bars = [
        element(
            "rect",
            x=0,
            y=top + offset,
            width=f"{max(0.4, 100 * figure / largest):.2f}%",
            height=_BAR_HEIGHT,
            rx=3,
            class_=kind,
        )
        for kind, figure, offset in (("now", cost.now, 22), ("behind", cost.surface, 22 + _BAR_HEIGHT + 2))
    ]
    figures = f"{cost.now:,} → {cost.surface:,}"
    return join(
        element("text", label, x=0, y=top + 14, class_="all" if name == "All together" else None),
        element("text", figures, x="100%", y=top + 14, text_anchor="end", class_="figure"),
        bars,
    )


def _hosts_table(hosts: Iterable[HostCost]) -> Html:
    """Returns what a conversation in each host pays; a server of several hosts counts in each."""
    rows = [
        _row(
            (host.host, element("small", ", ".join(host.servers))),
            figures=map(number, (host.cost.tools, host.cost.now, host.cost.surface, host.cost.one_tool)),
        )
        for host in hosts
    ]
    return table(("Host", "Tools", "Now", "Planned gateway", "Using one tool"), rows, "By host", 4)


def _tools_table(tools: Iterable[ToolCost], with_server: bool) -> Html:
    rows = [
        _row(
            (_breakable(tool.name), element("small", tool.server) if with_server else None),
            figures=(number(tool.now), number(tool.schema)),
        )
        for tool in tools
    ]
    return table(("Tool", "Now", "When used"), rows, "By tool", 2)


def _breakable(name: str) -> Html:
    """Returns a name that a narrow column may break after underscores."""
    first, *others = name.split("_")
    return join(first, *(("_", element("wbr"), part) for part in others))


def _details(server: AuditedServer, tools: Iterable[ToolCost]) -> Html:
    cost = server.cost
    assert cost is not None, "only servers with a cost have details"
    figures = f"{count_text(cost.tools, 'tool')}, {cost.now:,} → {cost.surface:,}"
    notes = [*server.places, f"runs {server.runs}"]
    if cost.instructions:
        notes.append(f"{count_text(cost.instructions, 'token')} of instructions")
    own = [tool for tool in tools if tool.server == server.name]
    return details(
        (server.name, element("span", figures)),
        element("div", *(element("small", note) for note in notes), _tools_table(own, with_server=False)),
    )


def _gateway(gateway: AuditedGateway) -> Html:
    """Returns what a gateway costs that is in a host's file already, and what the servers behind it would."""
    rows = [
        _row(server.name, figures=(number(server.cost.tools), number(server.cost.now)))
        for server in gateway.servers
        if server.cost
    ]
    return join(
        element("h2", f"Behind the gateway {gateway.name}"),
        element("p", gateway_sentence(gateway), element("small", gateway.place)),
        table(("Server", "Tools", "Without it"), rows, "By server", 2),
    )


# What the gateway saved

_LEAST_DAYS = 14
_MAX_TOOLS = 50
_HEIGHT, _BASE, _BAR_SHARE, _LABELS = 250, 220, 0.4, 6
"""Of the chart: its height, where its bars stand, the part of a day's width that a bar has, how many days it names."""


def stats_page(rows: LedgerRows, tokenizer: str) -> Html:
    """Returns the page of a ledger."""
    totals = ledger_figures.total(rows)
    pays = ledger_figures.pays_from(totals)
    days = ledger_figures.days_until(rows, datetime.date.today(), _LEAST_DAYS)
    by_tool = sorted(ledger_figures.group(rows, "tool").items(), key=lambda pair: -pair[1].saved)
    by_server = sorted(ledger_figures.group(rows, "upstream").items(), key=lambda pair: -pair[1].saved)
    by_day = [((day,), usage) for day, usage in reversed(days) if usage != Usage()]
    more = len(by_tool) - _MAX_TOOLS
    return _document(
        "What the gateway saved",
        element(
            "header",
            element("h1", "What the gateway saved"),
            element("p", f"{days[0][0]} to {days[-1][0]}. Tokens: {tokenizer}.", class_="soft"),
        ),
        token_figures(totals.as_json(), None if pays is None else pays.as_json()),
        element("h2", "Day by day, in tokens"),
        _day_chart(days),
        [element("p", sentence, class_="soft") for sentence in ledger_figures.sentences(totals)],
        element("h2", "Server by server"),
        _usage_table(("Server",), by_server),
        element("h2", "Tool by tool"),
        _usage_table(("Server", "Tool"), by_tool[:_MAX_TOOLS]),
        element("p", f"And {more:,} more: delta-mcp stats has all.", class_="soft") if more > 0 else None,
        details("The days", element("div", _usage_table(("Day",), by_day))),
        element("footer", element("p", "A list counts once for a conversation."), element("p", "delta-mcp stats")),
    )


def _day_chart(days: Sequence[tuple[str, Usage]]) -> Html:
    """Draws two bars for each day; widths are percentages and texts keep their size, for small screens."""
    largest = max(max(usage.before, usage.after) for _, usage in days) or 1
    width = 100 / len(days)
    bars = [
        element(
            "rect",
            x=f"{width * (number + 0.1 + _BAR_SHARE * place):.2f}%",
            y=f"{_BASE - height:.1f}",
            width=f"{width * _BAR_SHARE:.2f}%",
            height=f"{height:.1f}",
            class_=kind,
        )
        for number, (_, usage) in enumerate(days)
        for place, (kind, figure) in enumerate((("now", usage.before), ("behind", usage.after)))
        if (height := (_BASE - 24) * figure / largest) > 0
    ]
    step = -(-len(days) // _LABELS)
    named = range((len(days) - 1) % step, len(days), step)  # the last day among them
    labels = [
        element(
            "text",
            _short(datetime.date.fromisoformat(days[number][0])),
            x=f"{width * (number + 1):.2f}%",
            y=_BASE + 20,
            text_anchor="end",
            class_="figure",
        )
        for number in named
    ]
    said = "; ".join(f"{day}: {usage.before:,} without, {usage.after:,} with" for day, usage in days if usage.calls)
    drawing = _drawing(
        "Tokens by day, without the gateway and with it",
        said,
        _HEIGHT,
        element("text", f"{largest:,}", x=0, y=14, class_="figure"),
        element("line", x1=0, x2="100%", y1=24, y2=24),
        element("line", x1=0, x2="100%", y1=_BASE, y2=_BASE),
        *bars,
        *labels,
    )
    return element("figure", _key("without the gateway", "with it"), drawing)


def _short(day: datetime.date) -> str:
    return f"{day:%b} {day.day}"


def _usage_table(headings: Sequence[str], rows: Iterable[tuple[tuple[str, ...], Usage]]) -> Html:
    shown = [
        _row(
            *("(gateway)" if name == GATEWAY else name for name in key),
            figures=map(number, (usage.calls, usage.before, usage.after, usage.saved)),
        )
        for key, usage in rows
    ]
    return table((*headings, "Calls", "Without", "With", "Saved"), shown, f"By {headings[-1].lower()}", 4)
