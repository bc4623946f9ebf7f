"""Whom the engine takes the sender of a request for, and whose account its stored data counts towards."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltamcp import DeltaServer, Principal
from deltamcp.values import ANONYMOUS, LOCAL


@pytest.mark.parametrize(
    ("principal", "connection", "address", "opener", "account"),
    [
        (Principal("ann"), None, "10.0.0.1", "", "principal ann"),
        (Principal("ann"), "session", "", "principal ann", "principal ann"),
        (ANONYMOUS, "session", "", "address 10.0.0.1", "address 10.0.0.1"),
        (ANONYMOUS, None, "10.0.0.1", "", "address 10.0.0.1"),
        (ANONYMOUS, None, "2001:db8::/64", "", "address 2001:db8::/64"),
        (Principal("anonymous", scopes=frozenset({"read"})), None, "10.0.0.1", "", "address 10.0.0.1"),
        (LOCAL, "connection", "", "", "connection connection"),
    ],
)
def test_data_counts_towards_the_principal_or_else_the_address_or_else_the_connection(
    principal, connection, address, opener, account
):
    caller = DeltaServer("x").engine.identify(principal, connection, address, opener)
    assert (caller.principal, caller.connection, caller.account) == (principal, connection, account)


def test_an_address_of_any_length_is_kept_at_a_few_characters():
    engine = DeltaServer("x").engine
    first, second = (engine.identify(ANONYMOUS, None, "1" * 100_000 + end) for end in "ab")
    assert first.account != second.account
    assert max(len(caller.account) for caller in (first, second)) < 100


NAMES = st.text("ab %2", max_size=6)


@given(NAMES, NAMES, NAMES, NAMES)
@example("", "google 1", "google", "1")
@example("a", "b c", "a b", "c")
@example("a%20b", "c", "a b", "c")
def test_principals_with_other_issuers_or_ids_have_other_keys(issuer, id_, other_issuer, other_id):
    one, other = Principal(id_, issuer=issuer), Principal(other_id, issuer=other_issuer)
    assert (one.key == other.key) == (one == other)
