"""The two ways to verify nothing: by name only, and with a warning."""

import logging

import pytest

from deltamcp import ConfigurationError, DeltaServer, OpenAccess, PresenceOnly
from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.safe_url import is_loopback
from deltamcp.errors import Fault
from deltamcp.transports.http.server import make_server
from deltamcp.values import ANONYMOUS, Failure


async def test_open_access_admits_everybody_as_anonymous_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    auth = OpenAccess()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    for header in (None, "Bearer anything", "nonsense"):
        assert await auth.authenticate(Credentials(header, {})) is ANONYMOUS
    assert auth.challenge(Failure(Fault.UNAUTHORIZED, "no")) is None
    await auth.close()


async def test_presence_only_wants_a_token_trusts_none_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    auth = PresenceOnly()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert await auth.authenticate(Credentials("Bearer anything", {})) is ANONYMOUS
    for header in (None, "", "Bearer ", "Basic YTpi"):
        refused = await auth.authenticate(Credentials(header, {}))
        assert isinstance(refused, Failure)
        assert refused.fault is Fault.UNAUTHORIZED
        assert str(auth.challenge(refused)).startswith("Bearer")
    await auth.close()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "0", "::", "", "192.168.0.1", "tools.example", "localhost.evil.example", "127.evil.example"]
)
def test_an_address_that_other_machines_reach_needs_auth(host: str) -> None:
    engine = DeltaServer("notes").engine
    with pytest.raises(ConfigurationError, match=r"auth=OpenAccess\(\)\.$"):
        make_server(engine, host, 0)
    with pytest.raises(ConfigurationError, match=r"auth=OpenAccess\(\)\.$"):
        DeltaServer("notes").run("http", host=host, port=0)
    assert make_server(engine, host, 0, auth=OpenAccess())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "127.1", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback_addresses_are_open_by_default(host: str) -> None:
    assert is_loopback(host)
    assert make_server(DeltaServer("notes").engine, host, 0)
