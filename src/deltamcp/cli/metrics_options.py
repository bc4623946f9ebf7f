"""The options of `delta-mcp serve` for metrics, and the sockets of the page where it has an address of its own."""

import argparse
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deltamcp.cli import log
from deltamcp.cli.address import parse_address
from deltamcp.cli.log import LogOptions

if TYPE_CHECKING:
    from deltamcp.transports.metrics import Metrics


class MetricsOptions(Struct, frozen=True):
    """Where the metrics are shown, if at all, and what they count."""

    shown: bool = False
    address: tuple[str, int] | None = None
    """An address of their own; None for that of the server."""
    counts_tokens: bool = False

    def bind(self, log_options: LogOptions) -> list[socket.socket]:
        """Binds the address that is the metrics' own, and says where they are.

        Raises:
            ConfigurationError: nobody can listen at this address.
        """
        if self.address is None:
            return []
        from deltamcp.transports.sockets import bind_sockets

        sockets = bind_sockets(*self.address)
        host, port = self.address[0], sockets[0].getsockname()[1]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        log.tell(f"Metrics at {url}", log_options)
        return sockets

    def make(self, folder: Path | None = None) -> "Metrics | bool":
        """Returns the metrics, which processes share by a folder; False if nobody asked for any.

        Raises:
            ConfigurationError: they need a package that is not installed.
        """
        if not self.shown:
            return False
        from deltamcp.transports.metrics import Metrics

        return Metrics(on_main_port=self.address is None, counts_tokens=self.counts_tokens, folder=folder)


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--metrics",
        nargs="?",
        const="",
        metavar="HOST:PORT",
        help="with --http: show Prometheus metrics at /metrics, or at an address of their own",
    )
    verb.add_argument(
        "--metrics-tokens", action="store_true", help="with --metrics: count the tokens of every result too"
    )


def read_options(args: argparse.Namespace) -> MetricsOptions:
    """
    Raises:
        ConfigurationError: the address is not one.
    """
    address = parse_address("--metrics", args.metrics) if args.metrics else None
    return MetricsOptions(args.metrics is not None, address, args.metrics_tokens)
