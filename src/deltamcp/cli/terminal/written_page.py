"""HTML pages that commands write into files: they look like the dashboard, load no other files and run no scripts."""

import html
from pathlib import Path

from deltamcp.cli.terminal import output
from deltamcp.dashboard.web.layout import read_static
from deltamcp.errors import ConfigurationError

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


def render(title: str, body: str) -> str:
    """Returns the document; `body` is HTML."""
    style = f"{read_static('look.css').decode()}{_STYLE}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main>\n{body}</main></body></html>\n"
    )


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
