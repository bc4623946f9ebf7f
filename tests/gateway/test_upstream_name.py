"""Names of upstreams that nobody has named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.catalog.items.operation import is_id_segment
from deltamcp.gateway.item_names import name_address, name_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx -y @modelcontextprotocol/server-everything@1.2 stdio", "everything"),
        ("npx @playwright/mcp@latest", "playwright"),
        ("npx -y firecrawl-mcp", "firecrawl"),
        ("uvx mcp-server-git --repository x", "git"),
        ("uvx --from git+https://x.example/y some-tool", "some-tool"),
        ("uv --directory /a/b run weather", "weather"),
        ("/usr/bin/python3.11 -m mcp_server_time", "time"),
        ("node /home/me/filesystem/dist/index.js", "filesystem"),
        ("docker run -i --rm -e TOKEN mcp/github:latest", "github"),
        ("python -P -m deltamcp serve books.py", "books"),
        ("delta-mcp serve books.py", "books"),
        ("./weather-server --port 3", "weather"),
        (r"C:\tools\weather.exe", "weather"),
        ("server.py", "server"),
        ("npx числа-mcp", "числа"),
    ],
)
def test_a_command_line_names_its_server(command, name):
    assert name_command(command.split()) == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://mcp.linear.app/sse", "linear"),
        ("https://api.example.com/mcp/", "example"),
        ("https://mcp.example.co.uk/", "example"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1-8000"),
        ("http://localhost/mcp", "localhost"),
        ("http://[::1]:80/mcp", "1-80"),
        ("grpc://books:9000", "books"),
    ],
)
def test_an_address_names_its_server(url, name):
    assert name_address(url) == name


@given(st.lists(st.text(), min_size=1))
def test_every_command_line_has_a_name_that_ids_can_begin_with(words):
    assert is_id_segment(name_command(words))
