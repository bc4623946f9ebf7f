"""A gateway whose dashboard is looked at: servers that list, change, fail and hang as a test says."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp import connect
from deltamcp.dashboard.api import GatewayApi
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.ledger_figures import LedgerFile
from tests.support.listing_upstream import ListingUpstream, tool

READS = {"annotations": {"readOnlyHint": True}}


class Scene(NamedTuple):
    """A gateway that runs, a client of it, and what answers about it."""

    gateway: Gateway
    client: Any
    api: GatewayApi
    ledger: Ledger


@contextlib.asynccontextmanager
async def dashboard_scene(folder: Path, *upstreams: UpstreamConfig, **options: Any) -> AsyncIterator[Scene]:
    """Runs a gateway behind meta-tools, whose calls are counted."""
    config = GatewayConfig(upstreams=list(upstreams), **{"disclosure": "meta", **options})
    ledger = Ledger(LedgerFile())
    made = Gateway(config, cache_folder=folder / "catalogs", ledger=ledger)
    api = GatewayApi(made, "gateway.toml", 0.0)
    async with connect(made.server, progressive=False) as client:
        await api.ask("about")
        yield Scene(made, client, api, ledger)


def book_upstream(folder: Path) -> ListingUpstream:
    """A server of a bookshop: two tools that only read, one that does not, one of another kind."""
    return ListingUpstream(
        folder,
        "books",
        tools=[
            tool("find_book", description="Finds books by their title or author.", **READS),
            tool("list_orders", description="Lists the orders of a customer.", **READS),
            tool("cancel_order", description="Cancels an order.", annotations={"destructiveHint": True}),
            tool("send_invoice", description="Sends an invoice by mail."),
        ],
    )
