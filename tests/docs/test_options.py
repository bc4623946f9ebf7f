"""Every option is documented: those of `delta-mcp serve`, and the keys of `HttpOptions` and `HttpServerOptions`."""

import argparse
import re

from deltamcp.cli import serve
from deltamcp.transports.http_options import HttpServerOptions
from tests.support.paths import ROOT

PAGES = "\n".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))


def test_every_option_of_serve_is_in_the_docs():
    verb = argparse.ArgumentParser(add_help=False)
    serve.set_up(verb)
    names = [name for action in verb._actions for name in action.option_strings]
    assert "--http" in names
    assert [name for name in names if not re.search(rf"{name}(?![a-z-])", PAGES)] == []


def test_every_option_of_http_is_in_the_docs():
    names = list(HttpServerOptions.__annotations__)
    assert "tls_cert" in names
    assert [name for name in names if not re.search(rf"\b{name}=", PAGES)] == []
