"""Pages of a dashboard in this process, and a browser of them that sends what a test says."""

import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx2

from deltamcp.dashboard.api import AskedGateway
from deltamcp.dashboard.web.app import DashboardApp, Logins, pages_served

ORIGIN = "http://127.0.0.1:8765"


class DashboardPages:
    """The pages of some gateways, and the codes that were shown."""

    def __init__(self, *gateways: AskedGateway, may_write: bool = False, origin: str = ORIGIN, **options: Any) -> None:
        self.origin = origin
        self.codes: list[str] = []

        async def find() -> Sequence[AskedGateway]:
            return gateways

        logins = Logins(self.codes.append)
        self.app = DashboardApp(find, logins, [origin.removeprefix("http://")], may_write=may_write, **options)
        logins.make_code()

    @property
    def login(self) -> str:
        """The address that lets in the next browser."""
        return f"{self.origin}/login?code={self.codes[-1]}"

    def browser(self) -> "PageBrowser":
        return PageBrowser(self)

    async def logged_in(self) -> "PageBrowser":
        browser = self.browser()
        assert (await browser.get(f"/login?code={self.codes[-1]}")).status_code == 303
        return browser


class PageBrowser:
    """Sends requests as a browser of one user does, unless a test has it send other headers."""

    def __init__(self, pages: DashboardPages) -> None:
        self.web = httpx2.AsyncClient(transport=httpx2.ASGITransport(pages.app), base_url=ORIGIN)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.web.get(path, headers=sent)

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        sent = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.web.post(
            path, content=urlencode(fields), headers={name: value for name, value in sent.items() if value}
        )

    async def csrf(self, path: str) -> str:
        """Returns the token of the forms of a page."""
        page = (await self.get(path)).text
        return page.partition('name="csrf" value="')[2].partition('"')[0]


@contextlib.asynccontextmanager
async def served_pages(*gateways: AskedGateway, may_write: bool = False) -> AsyncIterator[DashboardPages]:
    """Serves pages at an address of this machine, for browsers of others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        pages = DashboardPages(*gateways, may_write=may_write, origin=origin)
        async with pages_served(pages.app, [listener]):
            yield pages
