"""Logins whose secrets are learnt whenever they are read or written, so that no text about the upstream shows them."""

from contextlib import AbstractAsyncContextManager

from deltamcp.client.oauth.login_record import decode_record
from deltamcp.client.oauth.token_storage import TokenStorage
from deltamcp.upstreams.upstream_secrets import UpstreamSecrets


class LearntStorage:
    """A `TokenStorage` in front of another."""

    def __init__(self, storage: TokenStorage, secrets: UpstreamSecrets) -> None:
        self._storage, self._secrets = storage, secrets

    async def load(self, server: str) -> bytes | None:
        record = await self._storage.load(server)
        self._learn(record)
        return record

    async def save(self, server: str, record: bytes) -> None:
        self._learn(record)
        await self._storage.save(server, record)

    async def delete(self, server: str) -> None:
        await self._storage.delete(server)

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self._storage.lock(server)

    def _learn(self, record: bytes | None) -> None:
        for login in decode_record(record).logins.values():
            self._secrets.learn(login.client.client_secret)
            if login.tokens is not None:
                self._secrets.learn(login.tokens.access_token, login.tokens.refresh_token)
