"""A client that logs in to `examples.http_oauth.server`, and checks what it gets.

    python -m examples.http_oauth.client          # after examples.http_oauth.server was started

It types the user's name into the page itself. Without `open_page`, `OAuth()` opens the page in the user's browser, and
without `storage` it remembers the login.
"""

import asyncio
import re
import sys
from urllib.parse import urljoin

import httpx2

from deltamcp import OAuth, UnauthorizedError, connect
from deltamcp.client.oauth.oauth import LoginPage
from deltamcp.client.oauth.token_storage import MemoryStorage
from examples.http_oauth.server import PORT

FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


async def allow(page: LoginPage, user: str = "alice") -> None:
    """Does what a user does at the page: types a name, and allows what the client asks for."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        shown = await browser.get(page.url)
        form = {name: value.replace("&amp;", "&") for name, value in FIELD.findall(shown.text)}
        await browser.post(urljoin(page.url, "/authorize"), data={**form, "user": user})


async def main(url: str) -> None:
    pages: list[LoginPage] = []

    async def log_in(page: LoginPage) -> None:
        pages.append(page)
        await allow(page)

    async with connect(url, auth=OAuth(open_page=log_in, storage=MemoryStorage())) as client:
        told = await client.call("whoami")
        print("logged in as", told["subject"], "with", *told["scopes"])
        assert told["subject"] == "alice" and told["scopes"] == ["notes:read"], told
        assert len(pages) == 1, pages

        count = await client.call("write_note", text="buy milk")
        print("wrote note", count, "after asking for more")
        assert count == 1 and len(pages) == 2, (count, pages)
        told = await client.call("whoami")
        assert told["scopes"] == ["notes:read", "notes:write"], told

    try:
        async with connect(url) as stranger:
            await stranger.call("whoami")
    except UnauthorizedError as error:
        print("a stranger is refused:", error)
    else:
        raise AssertionError("a stranger was let in")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"http://127.0.0.1:{PORT}/mcp"))
