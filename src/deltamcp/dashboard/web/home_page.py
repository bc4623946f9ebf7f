"""The first pages: gateways to choose from, the login, and the home of one gateway. Pure."""

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
    count_text,
    details,
    document,
    duration,
    element,
    empty,
    figure_tiles,
    lines,
    notice,
    number,
    table,
)

_WORDS = {1: "broken", 2: "waiting", 3: "costly"}


def gateways_page(found: Sequence[tuple[str, Any]]) -> Html:
    """Returns the list of gateways; `found` has each with its id and what it says of itself."""
    if not found:
        text = "No gateway of yours runs on this machine. Start one with delta-mcp gateway; this page notices it."
        return document("Gateways", element("h1", "Your gateways"), empty(text))
    items = [
        element(
            "li",
            element("a", about["label"], href=f"/{id_}/home"),
            element("p", _about_text(about)),
        )
        for id_, about in found
    ]
    return document("Gateways", element("h1", "Your gateways"), element("ul", *items, class_="cards"))


def message_page(title: str, text: str) -> Html:
    """Returns a page of one sentence."""
    return document(title, element("h1", title), element("p", text))


def login_page(wants_token: bool, fault: str = "", code: str = "") -> Html:
    """Returns the page for whoever is not logged in."""
    fields: list[Child] = [
        element("label", "Code", for_="code"),
        element("input", id="code", name="code", value=code, autocomplete="off", required=True),
    ]
    if wants_token:
        fields += [
            element("label", "Token of yours for this gateway", for_="token"),
            element("input", id="token", name="token", type="password", autocomplete="off", required=True),
        ]
    fields.append(element("button", "Log in", type="submit"))
    return document(
        "Log in",
        element("h1", "Log in"),
        notice(fault, "bad") if fault else None,
        element(
            "p",
            "A code was printed at the terminal in which the gateway, or delta-mcp dashboard, was started. It lets in "
            "one browser, and then another one is printed there.",
        ),
        element("form", *fields, method="post", action="/login", class_="login"),
    )


# Home


def home_page(look: Look, home: Any) -> Html:
    needs = home["attention"]
    return document(
        "Home",
        element("h1", look.about["label"]),
        element("p", _about_text(look.about), class_="soft"),
        element("section", element("h2", "Needs attention"), _attention(look, needs), id="attention", data_live=True),
        element("section", element("h2", "Tokens"), *_tokens(look, home), id="tokens"),
        tab="home",
        look=look,
        events=look.url("events"),
    )


def _about_text(about: Any) -> str:
    servers, since = count_text(about["servers"], "server"), duration(time.time() - about["began"])
    return f"{servers}, runs for {since} in {about['folder']}. Tokens are those of {about['tokenizer']}."


def _attention(look: Look, needs: Sequence[Any]) -> Html:
    if not needs:
        return empty("Nothing. All servers answer, and nothing waits for you.")
    return element("ol", *(_need(look, need) for need in needs), class_="needs")


def _need(look: Look, need: Any) -> Html:
    page = f"{need['page']}?{urlencode({'name': need['server']})}" if need["page"] == "servers" else need["page"]
    actions: list[Child] = [element("a", _link_text(need), href=look.url(page), class_="button") if page else None]
    if need["kind"] in ("down", "unlisted"):
        actions.append(
            button(look, "servers/restart", "Restart", label=f"Restart {need['server']}", server=need["server"])
        )
    return element(
        "li",
        element("h3", element("span", _WORDS[need["urgency"]], class_="mark"), " ", need["title"]),
        element("p", need["advice"]),
        element("p", element("code", need["command"])) if need["command"] else None,
        lines(need["details"], f"Details: {need['title']}") if need["details"] else None,
        element("div", *actions, class_="actions"),
        class_=_WORDS[need["urgency"]],
    )


def _link_text(need: Any) -> str:
    words = {"servers": f"Look at {need['server']}", "review": "Read what changed"}
    return words.get(need["page"], "Show these calls")


def _tokens(look: Look, home: Any) -> list[Child]:
    days = home["days"]
    if not days:
        why = "Nothing is counted yet: call a tool through the gateway, and look again."
        return [
            empty(why if look.about["counts"] else "This gateway was started with --no-ledger, and counts nothing.")
        ]
    chart = element(
        "figure",
        element(
            "figcaption",
            element("span", "without the gateway", class_="key now"),
            element("span", "with it", class_="key"),
            element("span", "of that, the gateway itself", class_="key own"),
            element(
                "span",
                "Tokens that models read on each day, all gateways of yours together.",
                class_="soft readout",
            ),
        ),
        element(
            "div",
            class_="chart",
            data_chart=look.url("chart.json"),
            role="img",
            aria_label="Tokens by day; the table below has the figures",
        ),
    )
    rows = [
        element(
            "tr",
            element("th", day["day"], scope="row"),
            *(cell(number(day[name]), label=name, is_number=True) for name in ("calls", "before", "after", "saved")),
        )
        for day in reversed(days)
        if day["calls"]
    ]
    listed = details(
        "The figures, day by day",
        table(("Day", "Calls and lists", "Without", "With", "Saved"), rows, "Tokens by day", 4),
    )
    said = [element("p", sentence, class_="soft") for sentence in home["sentences"]]
    return [
        token_figures(home["totals"], home["pays"]),
        chart,
        listed,
        *said,
    ]


def token_figures(totals: Any, pays: Any) -> Html:
    """Returns what was saved, what the gateway itself cost, and from which turn on it pays, if that is known."""
    saved = totals["tokens"]["saved"]
    cost = totals["definitions"]["after"] + totals["metaTools"]["after"]
    own = (
        f"{number(totals['definitions']['after'])} for its own lists, "
        f"{number(totals['metaTools']['after'])} for discover, get_schema and continue"
    )
    tiles = [
        (
            "Saved" if saved >= 0 else "Lost",
            number(abs(saved)),
            f"of {number(totals['tokens']['before'])} tokens",
            "behind" if saved >= 0 else "now",
        ),
        (
            "The gateway itself cost",
            number(cost),
            own,
            "now",
        ),
    ]
    if pays is not None:
        turns = pays["turns"]
        value = "no turn" if turns is None else f"turn {turns:,}"
        tiles.append(("Pays from", value, _pays_text(pays), "behind" if turns is not None else "now"))
    return figure_tiles(tiles)


def _pays_text(pays: Any) -> str:
    conversations = count_text(pays["conversations"], "conversation")
    measured = (
        f"On average over {conversations}: {number(pays['plain'])} tokens of definitions in each turn without it; "
        f"{number(pays['here'])} with it, {number(pays['replies'])} for replies of discover, get_schema and continue, "
        f"{number(pays['more_turns'], 1)} more turns."
    )
    return f"{measured} What people and models say is not counted."
