"""Every option is documented: those of commands, the keys of `HttpServerOptions`, those of a gateway's file."""

import argparse
import re

from deltamcp.cli.verbs import gateway, serve
from deltamcp.gateway.api_server import api_keys
from deltamcp.gateway.config import ENTRY_KEYS, GatewayConfig, UpstreamConfig
from deltamcp.transports.options import HttpServerOptions
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


def test_every_option_of_the_gateway_is_in_the_docs():
    verb = argparse.ArgumentParser(add_help=False)
    gateway.set_up(verb)
    names = [name for action in verb._actions for name in action.option_strings]
    assert "--check" in names
    assert [name for name in names if not re.search(rf"{name}(?![a-z-])", PAGES)] == []


def test_every_key_of_a_gateways_file_is_in_its_page():
    page = (ROOT / "docs" / "gateway.md").read_text()
    keys = {*GatewayConfig.__struct_fields__, *UpstreamConfig.__struct_fields__, *ENTRY_KEYS, *api_keys()}
    keys = keys - {"upstreams", "entry", "filled"} | {"servers", "defaults", "include"}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_messages_of_troubleshooting_are_those_of_the_code():
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    texts = "".join(path.read_text() for path in sorted((ROOT / "src" / "deltamcp").rglob("*.py")))
    code = re.sub(r'"\s*\n\s*f?"', "", texts)
    messages = re.findall(r"^\| `([^`|]*[a-z] [^`|]*)`", page, re.MULTILINE)
    ours = [message for message in messages if not message.startswith(("error: externally", "delta-mcp: command"))]
    assert len(ours) >= 15
    parts = {part.strip(" '[].;?") for message in ours for part in message.split("…")}
    assert [part for part in sorted(parts) if part and part not in code] == []
