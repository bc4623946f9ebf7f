"""The pages of the site: which there are, in which order, and their texts as the site has them.

A page is a file of the repository, or a text that `website/reference.py` makes from the code. On the site a link to a
file that is no page leads to the repository.
"""

import os
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from website import errors_reference, python_reference, reference

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
ADDRESS = PROJECT["urls"]["Documentation"]

REFERENCE: Mapping[str, Callable[[], str]] = {
    "docs/reference/python.md": python_reference.python_page,
    "docs/reference/commands.md": reference.commands_page,
    "docs/reference/gateway-keys.md": reference.gateway_page,
    "docs/reference/operations-keys.md": reference.operations_page,
    "docs/reference/errors.md": errors_reference.errors_page,
    "docs/reference/limits.md": reference.limits_page,
    "docs/reference/names.md": reference.names_page,
}
"""What makes the pages of the reference."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Start": ("README.md", "docs/tutorial-gateway.md", "docs/tutorial-server.md", "docs/glossary.md"),
    "Servers of others": ("docs/gateway.md", "docs/dashboard.md", "docs/command-line.md", "docs/client.md"),
    "A server of yours": (
        "docs/server.md",
        "docs/lifespan-and-threads.md",
        "docs/testing.md",
        "docs/results.md",
        "docs/deltas.md",
        "docs/disclosure.md",
        "docs/operations-file.md",
        "docs/openapi.md",
        "docs/promises.md",
        "docs/tasks.md",
        "docs/extensions.md",
        "examples/*/README.md",
    ),
    "In public": (
        "docs/authentication.md",
        "docs/deployment.md",
        "docs/monitoring.md",
        "docs/limits.md",
        "docs/threat-model.md",
        "SECURITY.md",
    ),
    "How it works": (
        "docs/how-it-saves.md",
        "docs/one-request.md",
        "docs/benchmarks.md",
        "docs/speed.md",
        "docs/mcp-lite.md",
        "docs/grpc.md",
        "docs/delta-mcp.md",
        "docs/protocol-extensions.md",
        "docs/formats.md",
        "docs/mcp-lite-requirements.md",
    ),
    "Coming from": ("docs/coming-from-fastmcp.md", "docs/coming-from-typescript.md"),
    "Reference": (*REFERENCE, "docs/troubleshooting.md"),
    "For maintainers": ("CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/decisions/*.md"),
}
"""The sections of the site with their pages; `*` stands for all files that fit, in the order of their names."""

_LINK = re.compile(r"(\]\(|(?:src|srcset|href)=\")([^)#\s\"]+)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_TABLE_CODE = re.compile(r"(?<=[ ,])`[^`\n]*\\\|[^`\n]*`")
_PICTURE = re.compile(r'<picture>.*?srcset="([^"]+)".*?src="([^"]+)" alt="([^"]+)".*?</picture>', re.DOTALL)


class SitePage(NamedTuple):
    source: str
    """Its file, as a path of the repository; where that would be, if the code makes it."""
    path: str
    """Where the site has it."""
    section: str
    text: str
    """As the source has it."""

    @property
    def title(self) -> str:
        return re.sub(r"`|\*", "", self.text.splitlines()[0].removeprefix("# "))

    @property
    def summary(self) -> str:
        """The first sentence of the page."""
        prose = _FENCE.sub("", self.text)
        paragraphs = (part.strip() for part in prose.split("\n\n")[1:])
        paragraph = next((part for part in paragraphs if re.match(r"[A-Z`\[]", part) and part.endswith(".")), "")
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
        return re.split(r"(?<=\.)\s", plain)[0]


def site_pages() -> list[SitePage]:
    """
    Raises:
        ValueError: a page of `docs/` is in no section.
    """
    found = [
        SitePage(source, _site_path(source), section, REFERENCE[source]() if source in REFERENCE else _read(source))
        for section, patterns in SECTIONS.items()
        for pattern in patterns
        for source in _expand(pattern)
    ]
    placed = {page.source for page in found}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if (source := path.relative_to(ROOT).as_posix()) not in placed:
            raise ValueError(f"{source} has no place in SECTIONS of website/pages.py.")
    return found


def _expand(pattern: str) -> Iterator[str]:
    if pattern in REFERENCE:
        yield pattern
    elif "*" in pattern:
        yield from sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
    else:
        yield pattern


def _read(source: str) -> str:
    return (ROOT / source).read_text()


def _site_path(source: str) -> str:
    if source == "README.md":
        return "index.md"
    if source.startswith("examples/"):
        return f"{Path(source).parent.as_posix()}.md"
    return source.removeprefix("docs/") if source.startswith("docs/") else source.lower()


def site_text(page: SitePage, pages: list[SitePage]) -> str:
    """The text of a page as the site has it: its links lead to pages of the site, or to the repository."""
    paths = {other.source: other.path for other in pages}
    folder = posixpath.dirname(page.source)

    def link(found: "re.Match[str]") -> str:
        before, target = found[1], found[2]
        if "://" in target or target.startswith(("mailto:", "#")):
            return found[0]
        source = posixpath.normpath(posixpath.join(folder, target))
        if source in paths:
            return before + _relative(paths[source], page.path)
        if source == "docs/decisions":
            return before + _relative("decisions/0001-server-core.md", page.path)
        if source.startswith("docs/") and not (ROOT / source).is_dir():
            return before + _relative(source.removeprefix("docs/"), page.path)
        kind = "tree" if (ROOT / source).is_dir() else "blob"
        return f"{before}{REPOSITORY}/{kind}/main/{source}"

    parts = _FENCE.split(page.text)
    text = "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)
    # GitHub wants a bar in the code of a table escaped; Markdown in Python shows the backslash.
    text = _TABLE_CODE.sub(lambda found: found[0].replace("\\|", "|"), text)
    # A theme of the site is chosen by its reader, and not by the system, which `<picture>` goes by.
    return _PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", text)


def _relative(target: str, path: str) -> str:
    return os.path.relpath(target, posixpath.dirname(path) or ".").replace(os.sep, "/")


def llms_text(pages: list[SitePage]) -> str:
    """The index of the site for models: https://llmstxt.org."""
    lines = [f"# {PROJECT['name']}", "", f"> {PROJECT['description']}"]
    for section in SECTIONS:
        lines += ["", f"## {section}", ""]
        for page in pages:
            if page.section == section:
                lines.append(f"- [{page.title}]({ADDRESS}{page.path}): {page.summary}".removesuffix(": "))
    return "\n".join(lines) + "\n"
