"""Our client, whose user logs in to an authorization server."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from deltamcp import DeltaClient, OAuth, connect
from deltamcp.client.oauth.oauth import LoginPage
from deltamcp.client.oauth.token_storage import MemoryStorage, decode_record
from tests.support.browser import Browser


@dataclass
class ClientLogin:
    """A user with a browser, and where the client keeps the login."""

    user: str = "alice"
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    pages: list[LoginPage] = field(default_factory=list)
    """Those that the user was shown."""

    async def _visit(self, page: LoginPage) -> None:
        self.pages.append(page)
        await Browser(self.user).visit(page.full_url or page.url)

    def oauth(self, **options: Any) -> OAuth:
        return OAuth(**{"open_page": self._visit, "storage": self.storage, **options})

    def access_token(self, url: str) -> str:
        """The token that the client uses now."""
        login = decode_record(self.storage._records[url]).current
        assert login is not None and login.tokens is not None
        return login.tokens.access_token

    @contextlib.asynccontextmanager
    async def connect(self, url: str, era: str, **options: Any) -> AsyncIterator[DeltaClient]:
        async with connect(
            url, auth=self.oauth(**options), speak="handshake" if era == "handshake" else "auto"
        ) as client:
            yield client
