"""The parts of an HTTP request that the server reads by itself."""

import pytest

from deltamcp.transports.http.asgi import client_address


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("10.1.2.3", 5000), "10.1.2.3"),
        (("2001:db8:1:2:3:4:5:6", 5000), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 5000), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5000), "fe80::/64"),
        (("::ffff:10.1.2.3", 5000), "10.1.2.3"),
        (("unix:x", 0), "unix:x"),
        (None, ""),
    ],
)
def test_clients_count_by_their_address_and_ipv6_networks_as_one(client: object, address: str) -> None:
    assert client_address({"client": client}) == address


def test_a_scope_without_a_client_has_an_empty_address() -> None:
    assert client_address({}) == ""
