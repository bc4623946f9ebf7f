"""Nothing that is said about a login shows a token of it, or a secret in the upstream's address."""

import pytest

from deltamcp.client.oauth.server_access import server_key
from deltamcp.client.oauth.token_storage import (
    ClientIdentity,
    IssuedTokens,
    IssuerLogin,
    LoginRecord,
    MemoryStorage,
    encode_record,
)
from deltamcp.errors import UpstreamError
from deltamcp.upstreams.secrets import UpstreamSecrets, entry_values
from deltamcp.upstreams.user_login import LearntStorage, ThisMachine, UserLogin
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.forwarded_call import promised_context
from tests.support.processes import free_port

TOKENS = IssuedTokens("access-1234", "refresh-5678")
LOGIN = IssuerLogin(ClientIdentity("client", "client_secret_basic", "client-secret-9"), TOKENS)
RECORD = encode_record(LoginRecord("https://issuer.example", {"https://issuer.example": LOGIN}))
TEXT = "access-1234 refresh-5678 client-secret-9"


def make_secrets(url: str) -> UpstreamSecrets:
    return UpstreamSecrets(entry_values({"url": url}), ["notes"])


@pytest.mark.parametrize("way", ["load", "save"])
async def test_the_secrets_of_a_login_are_learnt(way: str) -> None:
    memory, secrets = MemoryStorage(), make_secrets("https://notes.example/mcp")
    storage = LearntStorage(memory, secrets)
    assert secrets.redact(TEXT) == TEXT
    if way == "load":
        await memory.save("x", RECORD)
        assert await storage.load("x") == RECORD
    else:
        await storage.save("x", RECORD)
        assert await memory.load("x") == RECORD
    assert secrets.redact(TEXT) == secrets.credentials.redact(TEXT) == "... ... ..."


async def test_a_login_that_fails_does_not_show_the_secrets_of_the_address() -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp?api_key=key-1234567"
    login = UserLogin("notes", url, MemoryStorage(), ThisMachine(), make_secrets(url))
    with pytest.raises(UpstreamError) as failed:
        await login.ensure(promised_context())
    assert "key-1234567" not in str(failed.value)


async def test_what_an_authorization_server_repeats_does_not_reach_the_caller() -> None:
    async def refuse(asked: FakeRequest, wire: FakeConnection) -> None:
        await wire.answer(500, b"refused: refresh-5678 key-1234567", content_type="text/plain")

    async with serve_fake(Fake()) as fake:
        fake.always("GET", refuse)
        url = f"{fake.url}?api_key=key-1234567"
        storage = MemoryStorage()
        await storage.save(server_key(url), RECORD)
        login = UserLogin("notes", url, storage, ThisMachine(), make_secrets(url))
        login.refuse("access-1234", 'Bearer error_description="access-1234 key-1234567"')
        with pytest.raises(UpstreamError) as failed:
            await login.ensure(promised_context())
    assert not any(secret in str(failed.value) for secret in (*TEXT.split(), "key-1234567"))
