"""Ranges of addresses: an IPv4 address in IPv6 is in no wider range than it is itself."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.auth.safe_url import AddressRange, range_of

_EMBEDDED = st.sampled_from(
    [
        lambda v4: IPv6Address(int(v4)),
        lambda v4: IPv6Address((0x64FF9B << 96) | int(v4)),
        lambda v4: IPv6Address((0x2002 << 112) | int(v4) << 80),
        lambda v4: IPv6Address((0x20010000 << 96) | (int(v4) ^ 0xFFFFFFFF)),
    ]
)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", AddressRange.THIS_MACHINE),
        ("127.255.0.9", AddressRange.THIS_MACHINE),
        ("::1", AddressRange.THIS_MACHINE),
        ("::ffff:127.0.0.1", AddressRange.THIS_MACHINE),
        ("10.0.0.1", AddressRange.PRIVATE),
        ("172.31.0.1", AddressRange.PRIVATE),
        ("192.168.0.1", AddressRange.PRIVATE),
        ("100.64.0.1", AddressRange.PRIVATE),
        ("fd00:ec2::254", AddressRange.PRIVATE),
        ("::ffff:10.0.0.1", AddressRange.PRIVATE),
        ("8.8.8.8", AddressRange.PUBLIC),
        ("2606:4700::1111", AddressRange.PUBLIC),
        ("64:ff9b::8.8.8.8", AddressRange.PUBLIC),
        ("0.0.0.0", AddressRange.OTHER),
        ("0.1.2.3", AddressRange.OTHER),
        ("::", AddressRange.OTHER),
        ("169.254.169.254", AddressRange.OTHER),
        ("fe80::1", AddressRange.OTHER),
        ("fec0::1", AddressRange.OTHER),
        ("224.0.0.1", AddressRange.OTHER),
        ("ff02::1", AddressRange.OTHER),
        ("240.0.0.1", AddressRange.OTHER),
        ("64:ff9b:1::1", AddressRange.OTHER),
    ],
)
def test_who_is_reached_at_an_address(address: str, expected: AddressRange) -> None:
    assert range_of(ip_address(address)) is expected


@given(st.integers(0, 2**32 - 1).map(IPv4Address), _EMBEDDED)
def test_an_address_that_leads_to_ipv4_is_public_only_if_that_is(v4: IPv4Address, embed) -> None:
    address = embed(v4)
    assert (range_of(address) is AddressRange.PUBLIC) == (range_of(v4) is AddressRange.PUBLIC) or int(v4) <= 1


@given(st.integers(0, 2**32 - 1).map(IPv4Address))
def test_a_mapped_address_is_the_address(v4: IPv4Address) -> None:
    assert range_of(IPv6Address(f"::ffff:{v4}")) is range_of(v4)
