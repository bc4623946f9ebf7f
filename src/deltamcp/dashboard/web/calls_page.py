"""The calls of a gateway: those under way, those that were, and the results that it stores. Pure."""

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from deltamcp.dashboard.call_records import DONE
from deltamcp.dashboard.web.layout import (
    Html,
    Look,
    button,
    cell,
    details,
    document,
    duration,
    element,
    empty,
    field,
    filter_form,
    form,
    lines,
    milliseconds,
    notice,
    number,
    table,
    time_of,
)

PAGE_CALLS = 100


def calls_page(
    look: Look, found: Any, pending: Any, asked: Mapping[str, str], shows_content: bool, done: str = ""
) -> Html:
    query = {name: asked.get(name, "") for name in ("text", "outcome") if asked.get(name)}
    rows = [call_row(call) for call in found["calls"]]
    events = look.url("events") + (f"?{urlencode({**query, 'calls': found['seq']})}")
    return document(
        "Calls",
        element("h1", "Calls"),
        notice(done) if done else None,
        _pending(look, pending),
        element("h2", "What was called"),
        _call_filter(look, asked),
        _content_switch(look, shows_content),
        table(
            ("Time", "Tool", "By", "Outcome", "Took", "Tokens without", "With"),
            rows,
            "Calls, the newest first",
            3,
            class_="stack calls",
            id="calls",
        ),
        empty("No call yet, as far as somebody looked. They appear here as they come.") if not rows else None,
        _more(look.url("calls"), query, found["calls"]),
        tab="calls",
        look=look,
        events=events,
    )


def _more(path: str, query: Mapping[str, str], calls: Sequence[Any]) -> Html | None:
    if len(calls) < PAGE_CALLS:
        return None
    address = f"{path}?{urlencode({**query, 'before': calls[-1]['seq']})}"
    return element("p", element("a", "Older calls", href=address, data_more="calls", class_="button"), class_="more")


def _call_filter(look: Look, asked: Mapping[str, str]) -> Html:
    outcomes = (("", "all"), ("failed", "failed"), ("cut", "cut"))
    chosen = asked.get("outcome", "")
    options = [element("option", word, value=value, selected=chosen == value) for value, word in outcomes]
    return filter_form(
        look,
        "calls",
        "Filter",
        field("Server, tool or client", "text", asked.get("text", "")),
        field("Outcome", "outcome", options=options),
    )


def _content_switch(look: Look, shows_content: bool) -> Html:
    text = (
        "Arguments and results of new calls are shown in this browser."
        if shows_content
        else "Arguments and results are not shown."
    )
    word = "Hide them" if shows_content else "Show those of new calls"
    hidden = element("input", type="hidden", name="content", value="" if shows_content else "yes")
    return form(
        look,
        "calls/content",
        hidden,
        element("span", text, class_="soft"),
        " ",
        element("button", word, type="submit"),
        class_="switch",
    )


def call_row(call: Any) -> Html:
    """Returns the row of one call."""
    name = f"{call['server']}.{call['tool']}" if call["server"] else call["tool"]
    outcome = call["outcome"]
    content = None
    if "reply" in call:
        content = details(
            "content",
            lines([call["arguments"] or ""], "Arguments"),
            lines([call["reply"]], "Result"),
        )
    return element(
        "tr",
        cell(time_of(call["at"]), label="Time"),
        cell(name, content, label="Tool"),
        cell(call["client"], label="By"),
        cell(
            element("span", outcome, class_=f"state {'good' if outcome in DONE else 'bad'}"),
            element("span", "cut", class_="state idle") if call["cut"] else None,
            label="Outcome",
        ),
        cell(milliseconds(call["ms"]), label="Took", is_number=True),
        cell(number(call["before"]), label="Tokens without", is_number=True),
        cell(number(call["after"]), label="With", is_number=True),
        data_seq=call["seq"],
    )


def _pending(look: Look, pending: Any) -> Html:
    now = time.time()
    running = [
        _running_row(look, f"{one['server']} {one['name']}", one["name"], "runs", now - one["since"], one["id"])
        for one in pending["calls"]
    ]
    running += [
        _running_row(look, one["tool"], one["tool"], _promise_text(one), now - one["since"], one["id"])
        for one in pending["promises"]
    ]
    stored = [
        element(
            "tr",
            element("th", one["handle"], scope="row"),
            cell(one["tool"], label="Of"),
            cell(one["client"], label="For"),
            cell(f"{number(one['bytes'] / 1000, 1)} kB", label="Size", is_number=True),
            cell(duration(one["secondsLeft"]), label="Time left", is_number=True),
        )
        for one in pending["results"]
    ]
    return element(
        "div",
        element("h2", "Under way"),
        table(("Call", "State", "For", ""), running, "Calls and promises under way", 2, class_="stack")
        if running
        else empty("No call and no promise is under way."),
        details(
            f"Stored results: {len(stored):,}",
            table(("Handle", "Of", "For", "Size", "Time left, at most"), stored, "Stored results", 2, class_="stack"),
        )
        if stored
        else None,
        id="pending",
        data_live=True,
    )


def _running_row(look: Look, title: str, name: str, state: str, seconds: float, id_: str) -> Html:
    return element(
        "tr",
        element("th", title, scope="row"),
        cell(state, label="State"),
        cell(duration(seconds), label="For", is_number=True),
        cell(button(look, "calls/cancel", "Cancel", label=f"Cancel {name}", id=id_), label="", is_number=True),
    )


def _promise_text(one: Any) -> str:
    progress = ""
    if one["progress"] is not None:
        progress = f", {number(one['progress'])}{' of ' + number(one['total']) if one['total'] is not None else ''}"
    return f"promise, {one['status'].replace('_', ' ')}{progress}"
