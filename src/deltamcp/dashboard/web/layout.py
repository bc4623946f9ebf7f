"""What all pages have: HTML as values, the head and the navigation, figures and times, the files that pages load.

Texts are escaped, so that no text of a server can become markup. Hidden characters, such as those of ANSI and those
that reorder text, are written as escapes that a reader sees.
"""

import datetime
import html
import importlib.resources
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, Union

from deltamcp.catalog.text.clean_text import visible
from deltamcp.values import JSON


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = Union[str, int, float, Html, Iterable["Child"], None]  # noqa: UP007 - it names itself
"""What an element may contain; a plain text is escaped, and None is nothing."""
_VOID = frozenset({"br", "hr", "input", "link", "meta", "wbr"})


def escape(text: str) -> Html:
    """Returns a text as HTML, which shows what of it would be hidden."""
    return Html(html.escape(visible(text)))


def element(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Returns an element. An underscore at the end of an attribute's name is left out, others are hyphens.

    An attribute that is True has no value, and one that is False or None is not there.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(f" {written}" if value is True else f' {written}="{html.escape(visible(str(value)))}"')
    parts.append(">")
    if name not in _VOID:
        parts += _children(children)
        parts.append(f"</{name}>")
    return Html("".join(parts))


def join(*children: Child) -> Html:
    """Returns children without an element around them."""
    return Html("".join(_children(children)))


def _children(children: Iterable[Child]) -> Iterator[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield escape(child)
        elif isinstance(child, int | float):
            yield str(child)
        else:
            yield from _children(child)


TABS = (
    ("home", "Home"),
    ("servers", "Servers"),
    ("model", "What the model sees"),
    ("calls", "Calls"),
    ("review", "Review"),
)
"""The pages of a gateway: the last part of the address, and the name."""


class Look(NamedTuple):
    """What a page is drawn for: a gateway, a browser's form token, and what its user may do."""

    gateway: str
    about: Any
    csrf: str
    may_write: bool
    others: Sequence[tuple[str, str]] = ()
    """Other gateways, by their ids and names."""

    def url(self, path: str = "") -> str:
        return f"/{self.gateway}/{path}"


def document(title: str, *body: Child, tab: str = "", look: Look | None = None, events: str = "") -> Html:
    """Returns a whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · delta-mcp"),
        element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/static/look.css"),
        element("link", rel="stylesheet", href="/static/uplot.min.css"),
        element("link", rel="stylesheet", href="/static/dashboard.css"),
        element("script", type="module", src="/static/dashboard.js"),
    )
    inner = (
        element("a", "Skip to the page", href="#main", class_="skip"),
        None if look is None else _header(look, tab),
        element("main", *body, id="main", tabindex="-1"),
    )
    return join(
        Html("<!doctype html>\n"), element("html", head, element("body", *inner, data_events=events), lang="en")
    )


def _header(look: Look, tab: str) -> Html:
    links = [
        element("a", name, href=look.url(path), aria_current="page" if path == tab else None) for path, name in TABS
    ]
    chooser = (
        element(
            "details",
            element("summary", "Other gateways"),
            element("ul", *(element("li", element("a", name, href=f"/{id_}/home")) for id_, name in look.others)),
            class_="others",
        )
        if look.others
        else None
    )
    return element(
        "header",
        element(
            "div",
            element("span", "delta-mcp", class_="brand"),
            element("span", look.about["label"], class_="gateway"),
            chooser,
            element("span", "looking only" if not look.may_write else "can change things", class_="rights"),
            class_="bar",
        ),
        element("nav", *links, aria_label="Pages"),
        class_="top",
    )


def form(look: Look, path: str, *children: Child, **attributes: str | bool | None) -> Html:
    """Returns a form that changes something."""
    token = element("input", type="hidden", name="csrf", value=look.csrf)
    return element("form", token, *children, method="post", action=look.url(path), **attributes)


def filter_form(look: Look, path: str, submit: str, *fields: Child, **attributes: str) -> Html:
    """Returns a form that reads a page again, with other parameters."""
    sent = element("button", submit, type="submit")
    return element("form", *fields, sent, method="get", action=look.url(path), class_="filter", **attributes)


def field(label: str, name: str, value: str = "", options: Sequence[Html] | None = None, **attributes: str) -> Html:
    """Returns a named text of a form, or a choice among options."""
    control = (
        element("input", id=name, name=name, type="search", value=value, **attributes)
        if options is None
        else element("select", *options, id=name, name=name)
    )
    return element("div", element("label", label, for_=name), control, class_="field")


def details(summary: Child, *content: Child, **attributes: str) -> Html:
    """Returns what is shown when its summary is clicked."""
    return element("details", element("summary", summary), *content, **attributes)


def button(look: Look, path: str, text: str, kind: str = "", label: str | None = None, **fields: str) -> Html:
    """Returns a form of one button; without the right to change things, nothing."""
    if not look.may_write:
        return Html("")
    hidden = [element("input", type="hidden", name=name, value=value) for name, value in fields.items()]
    pressed = element("button", text, type="submit", class_=kind or None, aria_label=label)
    return form(look, path, *hidden, pressed, class_="one")


def number(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:,.1f} s" if value >= 1000 else f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def time_of(at: float) -> Html:
    """Returns a time of day, which also says the day."""
    moment = datetime.datetime.fromtimestamp(at).astimezone()
    text = moment.strftime("%H:%M:%S")
    return element(
        "time", text, datetime=moment.isoformat(timespec="seconds"), title=moment.strftime("%Y-%m-%d %H:%M:%S")
    )


def duration(seconds: float) -> str:
    """Returns a duration in one unit or two."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    if whole < 5_400:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} days"


def lines(texts: Sequence[str], label: str) -> Html:
    """Returns lines that a program wrote; a reader can scroll them by keys."""
    return element("pre", "\n".join(texts), class_="lines", tabindex="0", role="region", aria_label=label)


def table(headings: Sequence[str], rows: Sequence[Html], caption: str, numbers: int = 0, **attributes: str) -> Html:
    """Returns a table whose last columns, so many, are numbers."""
    texts = len(headings) - numbers
    heads = [
        element("th", name, scope="col", class_="number" if place >= texts else None)
        for place, name in enumerate(headings)
    ]
    inner = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        **attributes,
    )
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def cell(*children: Child, label: str, is_number: bool = False) -> Html:
    """Returns a cell, which on narrow screens has its heading beside it."""
    return element("td", *children, data_label=label, class_="number" if is_number else None)


def figure_tiles(tiles: Iterable[tuple[str, str, str, str]]) -> Html:
    """Returns large figures beside each other; each has a name, the figure, a note and a kind: `now` or `behind`."""
    shown = (
        element("div", element("dt", name), element("dd", value), element("dd", element("small", note)), class_=kind)
        for name, value, note, kind in tiles
    )
    return element("dl", *shown, class_="figures")


def empty(text: str) -> Html:
    """Returns what stands in place of a list that is empty."""
    return element("p", text, class_="empty")


def notice(text: str, kind: str = "good") -> Html:
    return element("p", text, class_=f"notice {kind}", role="status")


def written_json(value: JSON) -> str:
    """Returns a value as a person reads it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


STATIC_TYPES: Mapping[str, bytes] = MappingProxyType(
    {
        "look.css": b"text/css; charset=utf-8",
        "dashboard.css": b"text/css; charset=utf-8",
        "dashboard.js": b"text/javascript; charset=utf-8",
        "uplot.esm.js": b"text/javascript; charset=utf-8",
        "uplot.min.css": b"text/css; charset=utf-8",
        "icon.svg": b"image/svg+xml",
    }
)
"""What each file is, by its name. The styles in `look.css` are also those of the pages that commands write."""


def read_static(name: str) -> bytes:
    """Returns a file; there is one for each name in `STATIC_TYPES`."""
    return importlib.resources.files("deltamcp.dashboard.web").joinpath("static", name).read_bytes()
