"""The page at which the user logs in, and how it is opened by default."""

import os
import sys
import threading
from urllib.parse import urlsplit

from msgspec import Struct

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.client.links.http1 import origin

_MAX_SCOPE_CHARS = 500


class LoginPage(Struct, frozen=True):
    """A page that the user is to open. Its addresses have printable ASCII characters only, and are https or local."""

    url: str
    user_code: str | None = None
    """The code to type in there, if the user logs in on another device."""
    full_url: str | None = None
    """An address that has the code in it already, if there is one."""

    redirect_uri: str | None = None
    """Where the browser comes back to, if the client listens there."""
    scopes: tuple[str, ...] = ()
    """What the user is asked to allow; empty if the authorization server decides that."""
    warnings: tuple[str, ...] = ()
    """Sentences that the user needs to read before logging in."""

    def __repr__(self) -> str:
        return f"<LoginPage at {self.url.partition('?')[0]}>"

    @property
    def sentence(self) -> str:
        """What to tell the user."""
        if self.user_code is None:
            return f"Log in at this page: {self.url}"
        return f"Log in at {self.url} with the code {self.user_code}"

    @property
    def notice(self) -> str:
        """What the user is asked to allow, and what to be careful of; one line, or nothing."""
        named = ", ".join(self.scopes)
        if len(named) > _MAX_SCOPE_CHARS:
            named = f"{named[:_MAX_SCOPE_CHARS]}... ({len(self.scopes)} in all)"
        asked = [f"It asks for the scopes {named}."] if self.scopes else []
        return " ".join([*asked, *(f"Careful: {warning}" for warning in self.warnings)])

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


def find_warnings(page: LoginPage, issuer: str, earlier_issuer: str) -> tuple[str, ...]:
    """Returns what a user needs to know of a page that an authorization server names.

    Args:
        issuer: the authorization server. Its address is one that `JsonHttp.check_url` lets pass, as are the page's.
        earlier_issuer: the one of the user's last login at the same server; empty if there was none.
    """
    # RFC 9207, 1: a page elsewhere can be another's, whose code or consent this authorization server would get.
    found = [
        f"The page is at {urlsplit(url).netloc}, and the authorization server that gets what you allow there is "
        f"{issuer[:200]}; log in only if you know that they belong together."
        for url in dict.fromkeys((page.url, page.full_url or page.url))
        if origin(url) != origin(issuer)
    ]
    if earlier_issuer and earlier_issuer != issuer:
        found.append(
            f"The server had you log in at {earlier_issuer[:200]} before, and now at {issuer[:200]}; log in only if "
            "you know that it moved."
        )
    return tuple(found)


def can_open_browser() -> bool:
    """Whether a browser with a window can be started: not over SSH, and not without a display."""
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


async def open_in_browser(page: LoginPage) -> None:
    """Writes the page's address to stderr, and opens it in the user's browser if there is one."""
    is_opened = page.user_code is None and can_open_browser()
    notice = f"{visible_line(page.notice)}\n" if page.notice else ""
    sys.stderr.write(f"{visible_line(page.sentence)}\n{notice}{'' if is_opened else page.hint}")
    sys.stderr.flush()
    if is_opened:
        import webbrowser  # imported late: few programs open a page

        # Not awaited: some browsers are started in the foreground, and end when the user closes them.
        threading.Thread(target=webbrowser.open, args=(page.url,), daemon=True).start()
