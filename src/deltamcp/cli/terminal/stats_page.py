"""Renders what the gateway saved as one HTML page."""

import datetime
from collections.abc import Iterable, Sequence

from deltamcp.cli.terminal import written_page
from deltamcp.dashboard.web.home_page import token_figures
from deltamcp.dashboard.web.layout import Html, element, join
from deltamcp.gateway import ledger_figures
from deltamcp.gateway.ledger_figures import GATEWAY, LedgerRows, Usage

_LEAST_DAYS = 14
_MAX_TOOLS = 50
_HEIGHT, _BASE, _BAR_SHARE, _LABELS = 250, 220, 0.4, 6
"""Of the chart: its height, where its bars stand, the part of a day's width that a bar has, how many days it names."""


def render_page(rows: LedgerRows, tokenizer: str) -> str:
    """Returns the HTML document. Names come from servers and files, so they are escaped."""
    totals = ledger_figures.total(rows)
    pays = ledger_figures.pays_from(totals)
    days = ledger_figures.days_until(rows, datetime.date.today(), _LEAST_DAYS)
    by_tool = sorted(ledger_figures.group(rows, "tool").items(), key=lambda pair: -pair[1].saved)
    by_server = sorted(ledger_figures.group(rows, "upstream").items(), key=lambda pair: -pair[1].saved)
    by_day = [((day,), usage) for day, usage in reversed(days) if usage != Usage()]
    more = len(by_tool) - _MAX_TOOLS
    body = join(
        element(
            "header",
            element("h1", "What the gateway saved"),
            element("p", f"{days[0][0]} to {days[-1][0]}. Tokens: {tokenizer}.", class_="soft"),
        ),
        token_figures(totals.as_json(), None if pays is None else pays.as_json()),
        element("h2", "Day by day, in tokens"),
        _chart(days),
        [element("p", sentence, class_="soft") for sentence in ledger_figures.sentences(totals)],
        element("h2", "Server by server"),
        _table(("Server",), by_server),
        element("h2", "Tool by tool"),
        _table(("Server", "Tool"), by_tool[:_MAX_TOOLS]),
        element("p", f"And {more:,} more: delta-mcp stats has all.", class_="soft") if more > 0 else None,
        element("details", element("summary", "The days"), element("div", _table(("Day",), by_day))),
        element("footer", element("p", "A list counts once for a conversation."), element("p", "delta-mcp stats")),
    )
    return written_page.render("What the gateway saved", body)


def _chart(days: Sequence[tuple[str, Usage]]) -> Html:
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
    drawing = element(
        "svg",
        element("title", "Tokens by day, without the gateway and with it", id="chart-title"),
        element("desc", said, id="chart-desc"),
        element("text", f"{largest:,}", x=0, y=14, class_="figure"),
        element("line", x1=0, x2="100%", y1=24, y2=24),
        element("line", x1=0, x2="100%", y1=_BASE, y2=_BASE),
        *bars,
        *labels,
        role="img",
        aria_labelledby="chart-title chart-desc",
        height=_HEIGHT,
    )
    caption = element(
        "figcaption",
        element("span", "without the gateway", class_="key now"),
        element("span", "with it", class_="key"),
    )
    return element("figure", caption, drawing)


def _short(day: datetime.date) -> str:
    return f"{day:%b} {day.day}"


def _table(headings: Sequence[str], rows: Iterable[tuple[tuple[str, ...], Usage]]) -> Html:
    figures = ("Calls", "Without", "With", "Saved")
    heads = [
        *(element("th", name, scope="col") for name in headings),
        *(element("th", name, scope="col", class_="number") for name in figures),
    ]
    shown = [
        element(
            "tr",
            *(element("td", "(gateway)" if name == GATEWAY else name) for name in key),
            *(
                element("td", f"{figure:,}", class_="number")
                for figure in (usage.calls, usage.before, usage.after, usage.saved)
            ),
        )
        for key, usage in rows
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *shown))
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=f"By {headings[-1].lower()}")
