"""The line about the server above its lists: name, version and protocol."""

from typing import TYPE_CHECKING

from deltamcp.cli.output import printable_text
from deltamcp.client.client import DeltaClient
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console


def server_summary(client: DeltaClient) -> dict[str, JSON]:
    """Returns the server's name, version and protocol for `--json`."""
    server = client.server
    return {
        "name": server.name,
        "version": server.version,
        "protocol": server.protocol,
        "era": server.era.value,
        "encoding": server.encoding,
    }


def print_server_line(summary: dict[str, JSON], console: "Console") -> None:
    name, protocol = f"{summary['name']} {summary['version']}".strip(), summary["protocol"]
    console.print(printable_text(name), style="bold", end=" ")
    console.print(printable_text(f"speaks {'' if protocol.startswith('delta') else 'MCP '}{protocol}"))
