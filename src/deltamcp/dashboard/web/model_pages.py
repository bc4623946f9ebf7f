"""What the model sees of a gateway: the definitions with their tokens, a search, a tool, a call. Pure."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from deltamcp.dashboard.web.layout import (
    Child,
    Html,
    Look,
    cell,
    details,
    document,
    element,
    empty,
    field,
    filter_form,
    form,
    join,
    lines,
    milliseconds,
    notice,
    number,
    table,
    written_json,
)

PAGE_TOOLS = 100
_HOW = {"word": "has the word", "spelling": "has a word spelled like", "meaning": "has a word that means"}


def model_page(look: Look, surface: Any, query: str, found: Any) -> Html:
    """Returns the page of what the model reads first, and of a search; `found` is None before one."""
    return document(
        "What the model sees",
        element("h1", "What the model sees"),
        element("section", element("h2", "Try a search"), _search_form(look, query), _search_results(look, found)),
        element("section", element("h2", "What it reads in every conversation"), *_surface(look, surface)),
        tab="model",
        look=look,
    )


def _search_form(look: Look, query: str) -> Html:
    asked = field("Type what a model would", "query", query, autocomplete="off", placeholder="books by an author")
    return filter_form(look, "model", "Search", asked, role="search")


def _search_results(look: Look, found: Any) -> Child:
    if found is None:
        return element("p", element("a", "All tools, with what each costs", href=look.url("model/tools")))
    hits = [
        element(
            "tr",
            element(
                "th",
                element("a", hit["id"], href=_tool_url(look, hit["id"])),
                element("small", hit["summary"]),
                scope="row",
            ),
            cell(_shown_text(hit), label="Shown"),
            cell(_reasons(hit), label="Why"),
            cell(
                element(
                    "span",
                    element("meter", value=hit["score"], min=0, max=1, aria_label="Score"),
                    f" {hit['score']:.2f}",
                ),
                label="Score",
                is_number=True,
            ),
        )
        for hit in found["hits"]
    ]
    hidden = [
        element(
            "li",
            element("a", one["id"], href=_tool_url(look, one["id"])),
            element("p", f"Hidden: {one['reason']}.", class_="soft"),
        )
        for one in found["hidden"]
    ]
    reply = found["reply"]
    return join(
        table(("Tool", "Does the model see it", "Why it was found", "Score"), hits, "Hits", 1, class_="stack")
        if hits
        else empty("No tool has a word of this query."),
        element("p", f"No tool has the name {found['missing']!r}.", class_="soft") if found["missing"] else None,
        join(element("h3", "It would fit, and is hidden"), element("ul", *hidden, class_="cards")) if hidden else None,
        details(
            f"The reply that the model gets: {number(reply['tokens'])} tokens",
            lines([reply["text"]], "The reply of discover"),
        )
        if reply
        else None,
    )


def _shown_text(hit: Any) -> Html:
    if not hit["shown"]:
        return element("span", "no, too far behind", class_="state idle")
    return element("span", "yes, as a weak hit" if hit["weak"] else "yes", class_="state good")


def _reasons(hit: Any) -> str:
    said = ["the query names it"] if hit["named"] else []
    for kind, words in _HOW.items():
        found = [reason["word"] for reason in hit["reasons"] if reason["kind"] == kind]
        if found:
            said.append(f"{words} {', '.join(found)}")
    return "; ".join(said) or "a word of its server"


def _tool_url(look: Look, name: str) -> str:
    return look.url(f"model/tool?{urlencode({'name': name})}")


def _surface(look: Look, surface: Any) -> list[Child]:
    kinds = {
        "meta": "meta-tools, which find and run all others",
        "full": "every tool",
        "progressive": "names and summaries",
    }
    said = (
        f"{len(surface['definitions'])} definitions of {number(surface['tokens'])} tokens: {kinds[surface['surface']]}."
    )
    instructions = surface["instructions"]
    shown = [
        _text_with_cost(one["name"], one["tokens"], written_json(one["definition"]), f"The definition of {one['name']}")
        for one in surface["definitions"][:PAGE_TOOLS]
    ]
    rest = len(surface["definitions"]) - len(shown)
    return [
        element("p", f"{said} Behind them are {number(surface['tools'])} tools.", class_="soft"),
        *shown,
        element("p", element("a", f"And {rest:,} more", href=look.url("model/tools"))) if rest > 0 else None,
        _text_with_cost("Instructions", surface["instructionTokens"], instructions, "Instructions")
        if instructions
        else None,
    ]


def _text_with_cost(name: str, tokens: int, text: str, label: str) -> Html:
    """Returns a text that the model reads, below its name and its tokens."""
    cost = element("span", f"{number(tokens)} tokens", class_="cost")
    return details((element("span", name, class_="name"), cost), lines([text], label), class_="costed")


def tools_page(look: Look, found: Any, asked: Mapping[str, str]) -> Html:
    """Returns all tools, the hidden ones last."""
    after = int(asked.get("after") or 0)
    rows = [tool_row(look, one) for one in found["tools"]]
    query = {name: asked[name] for name in ("text", "server") if asked.get(name)}
    more: Child = None
    if after + len(rows) < found["total"]:
        address = look.url(f"model/tools?{urlencode({**query, 'after': after + len(rows)})}")
        more = element("p", element("a", "More tools", href=address, data_more="tools", class_="button"), class_="more")
    return document(
        "Tools",
        element("p", element("a", "What the model sees", href=look.url("model")), class_="back"),
        element("h1", f"Tools of {asked['server']}" if asked.get("server") else "All tools"),
        element(
            "p",
            f"{found['total']:,} tools; of all servers, {found['hidden']:,} are hidden from the model. "
            "Tokens are those of the plain definition.",
            class_="soft",
        ),
        filter_form(
            look,
            "model/tools",
            "Filter",
            field("Name", "text", asked.get("text", "")),
            element("input", type="hidden", name="server", value=asked["server"]) if asked.get("server") else None,
        ),
        table(("Tool", "Server", "Tokens"), rows, "Tools", 1, class_="stack tools", id="tools")
        if rows
        else empty("None has such a name."),
        more,
        tab="model",
        look=look,
    )


def tool_row(look: Look, one: Any) -> Html:
    summary = f"Hidden: {one['hidden']}." if one["hidden"] else one["summary"]
    return element(
        "tr",
        element(
            "th",
            element("a", one["id"], href=_tool_url(look, one["id"])),
            element("small", summary),
            scope="row",
            class_="off" if one["hidden"] else None,
        ),
        cell(one["server"], label="Server"),
        cell(number(one["tokens"]), label="Tokens", is_number=True),
    )


def tool_page(look: Look, tool: Any, arguments: str = "", tried: Any = None, fault: str = "") -> Html:
    """Returns one tool, and what came of a call of it."""
    facts = [
        ("Server", tool["server"] or "the gateway itself"),
        ("Definition", f"{number(tool['definitionTokens'])} tokens in every conversation without the gateway"),
    ]
    if not tool["hidden"]:
        facts.append(("Schema", f"{number(tool['schemaTokens'])} tokens when the model asks for it"))
        facts.append(("Runs by", tool["runs"]))
    return document(
        tool["id"],
        element("p", element("a", "What the model sees", href=look.url("model")), class_="back"),
        element("h1", tool["id"]),
        element("p", tool["summary"], class_="soft") if tool["summary"] else None,
        notice(f"Hidden from the model: {tool['hidden']}.", "bad") if tool["hidden"] else None,
        element("dl", *(join(element("dt", name), element("dd", value)) for name, value in facts), class_="facts"),
        None if tool["hidden"] else _try(look, tool, arguments, tried, fault),
        join(element("h2", "The schema as the model gets it"), lines([tool["schema"]], "Schema"))
        if tool["schema"]
        else None,
        details("The definition of the server", lines([written_json(tool["definition"])], "Definition")),
        tab="model",
        look=look,
    )


def _try(look: Look, tool: Any, arguments: str, tried: Any, fault: str) -> Html:
    heading = element("h2", "Call it")
    if not look.may_write:
        return join(
            heading,
            element("p", "Calls are made here when the dashboard was started with --dashboard-write.", class_="soft"),
        )
    return join(
        heading,
        notice(fault, "bad") if fault else None,
        form(
            look,
            "model/call",
            element("input", type="hidden", name="name", value=tool["id"]),
            element("label", "Arguments, as JSON", for_="arguments"),
            element(
                "textarea",
                arguments or written_json(tool["example"]),
                id="arguments",
                name="arguments",
                rows=6,
                spellcheck="false",
            ),
            element("button", "Call", type="submit", class_="main"),
            class_="try",
        ),
        None if tried is None else _call_reply(tried),
    )


def _call_reply(tried: Any) -> Html:
    kind = "good" if tried["outcome"] == "done" else "bad"
    saved = ""
    if tried["before"] and tried["after"] is not None:
        saved = (
            f", {(tried['before'] - tried['after']) / tried['before']:.0%} less"
            if tried["after"] < tried["before"]
            else ""
        )
    cost = f"{number(tried['before'])} tokens without the gateway, {number(tried['after'])} with it{saved}"
    return element(
        "section",
        element("h3", "The reply, as the model gets it"),
        element(
            "p", element("span", tried["outcome"], class_=f"state {kind}"), " ", f"{milliseconds(tried['ms'])}; {cost}."
        ),
        lines([tried["reply"]], "The reply"),
        element("p", "Only the beginning is shown.", class_="soft") if tried["isCut"] else None,
        details(f"What was sent to {tried['tool']}", lines([written_json(tried["arguments"])], "Arguments")),
        id="reply",
    )
