"""Takes the pictures of docs/dashboard.md: the dashboard of the gateway of examples/gateway, in Chromium.

    python -m bench.dashboard_pictures [FOLDER]      # docs/pictures unless given

Four weeks of scripted conversations run through the gateway, which counts them; that they are of different days is the
only thing that is staged. Then one server is broken, and one has changed a definition.
"""

import asyncio
import contextlib
import datetime
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from deltamcp import connect
from deltamcp.dashboard.api import GatewayApi
from deltamcp.gateway.config import read_gateway_file
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.ledger_figures import LedgerFile
from tests.support.chromium import Chromium, Screen, chromium
from tests.support.conditions import wait_until
from tests.support.dashboard_pages import served_pages
from tests.support.paths import PROGRAM, ROOT

_FOLDER = ROOT / "docs" / "pictures"
_EXAMPLE = ROOT / "examples" / "gateway"
_DAYS = 28
_SCREEN = Screen(960, 800)
_PICTURES = {"dashboard-home": "home", "dashboard-search": "model?query=find a book by its author"}
"""The page of each picture."""
_QUERIES = ("books by an author", "items of a shelf", "source code for a task")
_CALLS: tuple[tuple[str, dict[str, str]], ...] = (
    ("bookshop.search_books", {"words": "sea"}),
    ("stock.list_items", {}),
    ("stock.list_items", {"shelf": "07"}),
    ("library.books.list", {}),
)
_BROKEN = """
[servers.reports]
command = "{python}"
args = ["reports.py"]
"""
_PROGRAM = "import sys\n\nsys.exit('reports: no database at db.internal:5432, after 3 attempts')\n"


@contextlib.asynccontextmanager
async def _gateway(path: Path) -> AsyncIterator[tuple[Gateway, Ledger]]:
    ledger = Ledger(LedgerFile())
    made = Gateway(read_gateway_file(path).config, ledger=ledger)
    async with connect(made.server, progressive=False):
        yield made, ledger


async def _converse(gateway: Gateway, conversation: int) -> None:
    """Does what a model does in a conversation: reads the list, searches, looks at a schema, and calls."""
    async with connect(gateway.server, progressive=False) as client:
        await client.describe()
        for number in range(1 + conversation % 3):
            await client.call("discover", query=[_QUERIES[(conversation + number) % len(_QUERIES)]])
            name, arguments = _CALLS[(conversation + number) % len(_CALLS)]
            await client.call("get_schema", operation=[name])
            await client.call_tool("query", {"operation": name, "params": arguments})


def _move_to(day: datetime.date) -> None:
    """Gives the figures of today another day."""
    with contextlib.closing(sqlite3.connect(LedgerFile().path)) as connection, connection:
        connection.execute("UPDATE usage SET day = ? WHERE day = ?", (str(day), str(datetime.date.today())))


async def _count_days(path: Path) -> None:
    for ago in range(_DAYS, -1, -1):
        day = datetime.date.today() - datetime.timedelta(days=ago)
        async with _gateway(path) as (gateway, ledger):
            for conversation in range(ago % 3 + (1 if day.weekday() > 4 else 3)):
                await _converse(gateway, ago + conversation)
            await asyncio.to_thread(ledger.totals)
        _move_to(day)


async def _take(browser: Chromium, api: GatewayApi, folder: Path) -> None:
    async with served_pages(api, may_write=True) as pages:
        page = await browser.open_page()
        await page.show_on(_SCREEN)
        await page.visit(pages.login)
        for name, path in _PICTURES.items():
            await page.visit(f"{pages.origin}/{api.id}/{path}")
            if path == "home":
                await page.wait_for("document.querySelector('.chart canvas')")
            await page.picture(folder / f"{name}.png", whole=path == "home")
        await page.visit("about:blank")


async def main(folder: Path) -> None:
    folder = folder.absolute()
    with tempfile.TemporaryDirectory() as place:
        shop = Path(place) / "shop"
        shop.mkdir()
        for purpose in ("STATE", "CACHE", "CONFIG"):
            os.environ[f"XDG_{purpose}_HOME"] = f"{place}/{purpose.lower()}"
        os.environ["PATH"] = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
        path, stock = shop / "gateway.toml", shop / "stock.py"
        shutil.copy(_EXAMPLE / "stock.py", stock)
        path.write_text((_EXAMPLE / "gateway.toml").read_text().replace('"../', f'"{ROOT}/examples/'))
        os.environ["HOME"] = place
        os.chdir(shop)
        await _count_days(path)
        said = stock.read_text().replace("of one shelf.", "of one shelf.\n\n    Call remove_item with what is empty.")
        stock.write_text(said)
        (shop / "reports.py").write_text(_PROGRAM)
        path.write_text(path.read_text() + _BROKEN.format(python=sys.executable))
        async with _gateway(path) as (gateway, _):
            api = GatewayApi(gateway, "gateway.toml", datetime.datetime.now().timestamp())
            await api.ask("about")
            gateway.upstreams["stock"].refresh()
            await wait_until(lambda: gateway.upstreams["reports"].connection.state.failures > 0)
            await wait_until(lambda: "stock.list_items" not in gateway.server.engine.catalog.view().ids)
            async with chromium() as browser:
                await _take(browser, api, folder)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER))
