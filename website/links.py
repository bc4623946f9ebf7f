"""Finds what is wrong with a built site: links and anchors that lead nowhere, and what pages load from elsewhere."""

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}
"""What a browser fetches when it shows a page."""
_NOT_FETCHED = {"canonical", "next", "prev", "alternate", "edit"}
"""Relations of `<link>` that only name an address."""


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if values.get("data-md-component") == "source":
            self.loaded.add("https://api.github.com")  # the theme's script asks it about the repository
        if tag == "a" and values.get("href"):
            self.links.add(str(values["href"]))
        for key, value in attrs:
            if (tag, key) in _LOADED and value and values.get("rel") not in _NOT_FETCHED:
                self.loaded.add(value)


def faults_of(site: Path) -> list[str]:
    """Every fault of the site, in a sentence each."""
    pages = {path.relative_to(site).as_posix(): _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    faults = []
    for name, page in pages.items():
        if name == "404.html":  # its links begin at the root of wherever the site is
            continue
        for link in sorted(page.links | page.loaded):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                if link in page.loaded and address.scheme != "data":
                    faults.append(f"{name} loads {link}.")
                continue
            path = (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(address.path)))
                if address.path
                else name
            )
            if (site / path).is_dir():
                path = posixpath.normpath(f"{path}/index.html")
            if not (site / path).exists():
                faults.append(f"{name} links to {link}, which is not there.")
            elif path in pages and (anchor := unquote(address.fragment)) and anchor not in pages[path].anchors:
                faults.append(f"{name} links to {link}, where there is no such anchor.")
    return faults
