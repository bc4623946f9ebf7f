"""The servers behind a gateway, one of them, and the definitions of theirs that wait to be approved. Pure."""

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from deltamcp.dashboard.web.layout import (
    Child,
    Html,
    Look,
    button,
    cell,
    document,
    duration,
    element,
    empty,
    join,
    lines,
    milliseconds,
    notice,
    number,
    table,
    time_of,
)


def servers_page(look: Look, servers: Sequence[Any], done: str = "") -> Html:
    rows = [_server_row(look, row) for row in servers]
    headings = (
        "Server",
        "State",
        "Protocol",
        "Tools",
        "Tokens plain",
        "Tokens here",
        "Calls",
        "Failed",
        "Median",
        "95 %",
        "",
    )
    watched = time_of(look.about["watchedSince"])
    return document(
        "Servers",
        element("h1", "Servers"),
        notice(done) if done else None,
        element(
            "p",
            "Tokens plain are those of its tools in every conversation without the gateway, tokens here those that "
            "the gateway lists of them. Calls, failures and times, of which 95 % are below the last, are those since ",
            watched,
            ".",
            class_="soft",
        ),
        element("div", table(headings, rows, "Servers", 8, class_="stack servers"), id="servers", data_live=True)
        if rows
        else empty("This gateway has no servers."),
        tab="servers",
        look=look,
        events=look.url("events"),
    )


def _state(row: Any) -> tuple[str, str]:
    if row["wantsLogin"]:
        return "needs a login", "bad"
    if row["isDown"]:
        return "down", "bad"
    if row["fault"]:
        return "lists nothing", "bad"
    kinds = {"ready": "good", "stopped": "idle", "starting": "busy", "stopping": "idle", "closed": "idle"}
    words = {"ready": "ready", "stopped": "stopped, starts when used"}
    return words.get(row["state"], row["state"]), kinds.get(row["state"], "idle")


def _server_row(look: Look, row: Any) -> Html:
    word, kind = _state(row)
    name = row["name"]
    return element(
        "tr",
        element("th", element("a", name, href=look.url(f"servers?{urlencode({'name': name})}")), scope="row"),
        cell(element("span", word, class_=f"state {kind}"), label="State"),
        cell(row["protocol"] or "–", label="Protocol"),
        cell(number(row["tools"]), label="Tools", is_number=True),
        cell(number(row["plain"]), label="Tokens plain", is_number=True),
        cell(number(row["here"]), label="Tokens here", is_number=True),
        cell(number(row["calls"]), label="Calls", is_number=True),
        cell(number(row["failed"]), label="Failed", is_number=True),
        cell(milliseconds(row["p50"]), label="Median", is_number=True),
        cell(milliseconds(row["p95"]), label="95 %", is_number=True),
        cell(
            button(look, "servers/restart", "Restart", label=f"Restart {name}", server=name), label="", is_number=True
        ),
    )


def server_page(look: Look, row: Any, done: str = "") -> Html:
    word, kind = _state(row)
    facts = [
        ("State", join(element("span", word, class_=f"state {kind}"), " for ", duration(time.time() - row["since"]))),
        ("Protocol", row["protocol"] or "–"),
        ("Tools", f"{number(row['tools'])} offered{_withheld_text(row)}"),
        ("Tokens", f"{number(row['plain'])} plain, {number(row['here'])} here"),
        ("Calls", f"{number(row['calls'])}, {number(row['failed'])} failed, {number(row['openCalls'])} now"),
        ("Latency", f"{milliseconds(row['p50'])} median, {milliseconds(row['p95'])} for 95 %"),
        ("Started anew", number(row["restarts"])),
    ]
    stderr = [f"{_clock(line['at'])}  {line['text']}" for line in row["stderr"]]
    return document(
        row["name"],
        element("p", element("a", "Servers", href=look.url("servers")), class_="back"),
        element("h1", row["name"]),
        notice(done) if done else None,
        element(
            "div",
            notice(f"{row['error'] or row['fault']}", "bad") if row["error"] or row["fault"] else None,
            element("dl", *(join(element("dt", name), element("dd", value)) for name, value in facts), class_="facts"),
            element(
                "div",
                button(look, "servers/restart", "Restart", server=row["name"], back="server"),
                element(
                    "a",
                    "Its tools",
                    href=look.url(f"model/tools?{urlencode({'server': row['name']})}"),
                    class_="button",
                ),
                element(
                    "a", "Its calls", href=look.url(f"calls?{urlencode({'text': row['name'] + '.'})}"), class_="button"
                ),
                class_="actions",
            ),
            element("h2", "What it wrote to stderr"),
            lines(stderr, "stderr") if stderr else empty("Nothing, since the gateway started it."),
            id="server",
            data_live=True,
        ),
        tab="servers",
        look=look,
        events=look.url("events"),
    )


def _withheld_text(row: Any) -> str:
    if row["listed"] is None:
        return ""
    hidden = row["listed"] - row["tools"]
    return f", {hidden:,} hidden" if hidden > 0 else ""


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


def review_page(look: Look, waiting: Sequence[Any], done: str = "") -> Html:
    items = [
        element(
            "li",
            element("a", f"{one['server']}: {one['kind']} {one['name']}", href=_diff_url(look, one)),
            element("span", one["change"], class_="state busy"),
            element("p", one["imitates"], class_="soft") if one["imitates"] else None,
        )
        for one in waiting
    ]
    return document(
        "Review",
        element("h1", "Review"),
        notice(done) if done else None,
        element(
            "p",
            "What servers say of their tools is read by the model, and what a project's file says of a server is run. "
            "What changed, or is new, is kept out until you approve it.",
            class_="soft",
        ),
        element(
            "div",
            element("ul", *items, class_="cards") if items else empty("Nothing waits for you."),
            id="waiting",
            data_live=True,
        ),
        tab="review",
        look=look,
        events=look.url("events"),
    )


def _diff_url(look: Look, one: Any) -> str:
    return look.url(f"review/diff?{urlencode({'server': one['server'], 'place': one['place']})}")


def diff_page(look: Look, shown: Any) -> Html:
    kinds = {"+": "added", "-": "removed"}
    names = {"added": "now", "removed": "before"}
    rows = [
        element(
            "div",
            element("span", f"{names[kind]}: ", class_="hidden") if (kind := kinds.get(line[:1], "")) else None,
            line,
            class_=kind or None,
        )
        for line in shown["lines"]
    ]
    fields = {"server": shown["server"], "place": shown["place"], "seen": shown["seen"]}
    decide: Child = None
    if shown["fault"]:
        decide = notice(shown["fault"], "bad")
    elif look.may_write:
        decide = element(
            "div",
            button(look, "review/approve", "Approve what is above", "main", **fields),
            button(look, "review/reject", "Reject it", **fields),
            class_="actions",
        )
    else:
        decide = element(
            "p",
            "To approve it here, start with --dashboard-write; or at a terminal: ",
            element("code", f"delta-mcp approve {shown['server']}"),
            class_="soft",
        )
    return document(
        shown["name"],
        element("p", element("a", "Review", href=look.url("review")), class_="back"),
        element("h1", f"{shown['server']}: {shown['name']}"),
        element(
            "p",
            f"This {shown['kind']} is {'new' if shown['change'] == 'new' else 'not what was approved'}. "
            "Lines with + are what the server says now, with - what it said before.",
            class_="soft",
        ),
        element("p", shown["hint"], class_="soft") if shown["hint"] else None,
        element("div", *rows, class_="diff", tabindex="0", role="region", aria_label="What changed") if rows else None,
        decide,
        tab="review",
        look=look,
    )
