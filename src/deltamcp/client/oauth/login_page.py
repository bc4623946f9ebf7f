"""The page at which the user logs in, and how it is opened by default."""

import os
import sys
import threading
from urllib.parse import urlsplit

from msgspec import Struct


class LoginPage(Struct, frozen=True):
    """A page that the user is to open. Its addresses have printable ASCII characters only, and are https or local."""

    url: str
    user_code: str | None = None
    """The code to type in there, if the user logs in on another device."""
    full_url: str | None = None
    """An address that has the code in it already, if there is one."""

    redirect_uri: str | None = None
    """Where the browser comes back to, if the client listens there."""

    def __repr__(self) -> str:
        return f"<LoginPage at {self.url.partition('?')[0]}>"

    @property
    def sentence(self) -> str:
        """What to tell the user."""
        if self.user_code is None:
            return f"Log in at this page: {self.url}"
        return f"Log in at {self.url} with the code {self.user_code}"

    @property
    def hint(self) -> str:
        """What a user needs to know who opens the page without our help; a line, or nothing."""
        if self.redirect_uri is None:
            return ""
        port = urlsplit(self.redirect_uri).port
        return (
            f"Open it in a browser on this machine, to which it comes back at port {port}. If yours is on another "
            f"machine, forward the port first, as by ssh -L {port}:127.0.0.1:{port}\n"
        )


def can_open_browser() -> bool:
    """Whether a browser with a window can be started: not over SSH, and not without a display."""
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


async def open_in_browser(page: LoginPage) -> None:
    """Writes the page's address to stderr, and opens it in the user's browser if there is one."""
    is_opened = page.user_code is None and can_open_browser()
    sys.stderr.write(f"{page.sentence}\n{'' if is_opened else page.hint}")
    sys.stderr.flush()
    if is_opened:
        import webbrowser  # imported late: few programs open a page

        # Not awaited: some browsers are started in the foreground, and end when the user closes them.
        threading.Thread(target=webbrowser.open, args=(page.url,), daemon=True).start()
