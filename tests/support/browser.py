"""A browser with a user in front of it, who logs in and agrees to whatever a page asks."""

from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx2

from tests.support.conditions import HANG_SECONDS

MAX_PAGES = 20


class _Form(HTMLParser):
    """The first form of a page, with the values of its fields."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}
        self._is_open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: "list[tuple[str, str | None]]") -> None:
        given = dict(attrs)
        if tag == "form" and self.action is None:
            self.action, self._is_open = given.get("action") or "", True
        elif tag in ("input", "button") and self._is_open and (name := given.get("name")):
            self.fields.setdefault(name, given.get("value") or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_open = False


class Browser:
    """Follows redirects and submits forms, with the cookies of one user."""

    def __init__(self, user: str = "alice", cookies: httpx2.Cookies | None = None) -> None:
        self._user = user
        self._cookies = cookies or httpx2.Cookies()

    async def visit(self, url: str, until: str | None = None) -> dict[str, str]:
        """Returns the query of the first address that begins with `until`, or {} at the first page without a form."""
        async with httpx2.AsyncClient(cookies=self._cookies, trust_env=False, timeout=HANG_SECONDS) as http:
            answer = await http.get(url)
            for _ in range(MAX_PAGES):
                self._cookies = http.cookies
                if answer.has_redirect_location:
                    url = urljoin(str(answer.url), answer.headers["location"])
                    if until is not None and url.startswith(until):
                        return dict(httpx2.URL(url).params)
                    answer = await http.get(url)
                    continue
                assert answer.status_code == 200, answer.text
                form = _Form(answer.text)
                if form.action is None:
                    return {}
                filled = {name: value or self._user for name, value in form.fields.items() if name != "abort"}
                answer = await http.post(urljoin(str(answer.url), form.action), data=filled)
        raise AssertionError(f"there was always another page after {url}")
