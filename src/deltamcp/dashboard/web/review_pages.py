"""The definitions that wait to be approved, and what changed in one. Pure."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from deltamcp.dashboard.web.layout import (
    Look,
    button,
    document,
    empty,
    notice,
)
from deltamcp.dashboard.web.markup import Child, Html, element


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
