"""The files that pages load. The styles in `look.css` are also those of the pages that commands write."""

import importlib.resources
from collections.abc import Mapping
from types import MappingProxyType

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
"""What each file is, by its name."""


def read_static(name: str) -> bytes:
    """Returns a file; there is one for each name in `STATIC_TYPES`."""
    return importlib.resources.files("deltamcp.dashboard.web").joinpath("static", name).read_bytes()
