"""The addresses at which the HTTP server listens."""

import asyncio
import socket

import pytest

from deltamcp import DeltaServer
from deltamcp.errors import ConfigurationError
from deltamcp.transports.http.server import make_server
from deltamcp.transports.sockets import bind_sockets
from tests.support.conditions import wait_until


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def close(sockets: list[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def test_every_address_of_a_name_gets_the_same_free_port(monkeypatch):
    addresses = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.2")]

    def resolve(host: str, port: int, type: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(family, type, 0, "", (address, port)) for family, address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    sockets = bind_sockets("localhost", 0)
    names = [bound.getsockname() for bound in sockets]
    close(sockets)
    assert len({name[1] for name in names}) == 1 and names[0][1] != 0
    assert {name[0] for name in names} >= {"127.0.0.1", "127.0.0.2"}
    assert ("::1" in {name[0] for name in names}) == has_ipv6()


@pytest.mark.parametrize(
    ("host", "reason"),
    [("no.such.name.invalid", "not known|No address|failure"), ("203.0.113.7", "Cannot assign requested address")],
)
def test_a_host_that_is_not_here_is_told(host, reason):
    with pytest.raises(ConfigurationError, match=rf"^Cannot listen at {host}:8000: .*({reason}).*; name another\.$"):
        bind_sockets(host, 8000)


async def test_a_port_that_another_takes_after_it_was_bound_is_told():
    """Linux lets two sockets bind a port as long as neither listens."""
    [mine] = bind_sockets("127.0.0.1", 0)
    port = mine.getsockname()[1]
    [other] = bind_sockets("127.0.0.1", port)
    other.listen()
    with pytest.raises(ConfigurationError, match=f"Cannot listen at 127.0.0.1:{port}: Address already in use"):
        await make_server(DeltaServer("late").engine, port=port).serve([mine])
    other.close()


async def test_the_lifespan_is_left_when_the_server_cannot_listen():
    steps: list[str] = []

    class Lifespan:
        async def __aenter__(self) -> None:
            steps.append("entered")

        async def __aexit__(self, *error: object) -> None:
            steps.append("left")

    [mine] = bind_sockets("127.0.0.1", 0)
    [other] = bind_sockets("127.0.0.1", mine.getsockname()[1])
    other.listen()
    server = DeltaServer("late", lifespan=lambda server: Lifespan())
    with pytest.raises(ConfigurationError):
        await make_server(server.engine).serve([mine])
    other.close()
    assert steps == ["entered", "left"]
    assert mine.fileno() == -1


async def test_an_address_of_ipv6_is_said_in_brackets(capsys):
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = make_server(DeltaServer("six").engine, "::1", 0, "/tools")
    serving = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started, "the server")
    server.should_exit = True
    await serving
    port = capsys.readouterr().err.partition("[::1]:")[2].partition("/")[0]
    assert int(port) > 0
