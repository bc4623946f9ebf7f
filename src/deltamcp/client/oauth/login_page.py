"""The page at which the user logs in, and how it is opened by default."""

import asyncio
import os
import sys

from msgspec import Struct


class LoginPage(Struct, frozen=True):
    """A page that the user is to open. Its addresses have printable ASCII characters only, and are https or local."""

    url: str
    user_code: str | None = None
    """The code to type in there, if the user logs in on another device."""
    full_url: str | None = None
    """An address that has the code in it already, if there is one."""

    def __repr__(self) -> str:
        return f"<LoginPage at {self.url.partition('?')[0]}>"

    @property
    def sentence(self) -> str:
        """What to tell the user."""
        if self.user_code is None:
            return f"Log in at this page: {self.url}"
        return f"Log in at {self.url} with the code {self.user_code}"


def can_open_browser() -> bool:
    """Whether a browser with a window can be started: not over SSH, and not without a display."""
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


async def open_in_browser(page: LoginPage) -> None:
    """Writes the page's address to stderr, and opens it in the user's browser if there is one."""
    sys.stderr.write(f"{page.sentence}\n")
    sys.stderr.flush()
    if page.user_code is None and can_open_browser():
        import webbrowser  # imported late: few programs open a page

        await asyncio.to_thread(webbrowser.open, page.url)
