"""Sealed state: clients cannot read or change it, it is bound to its request, and it expires."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import ConfigurationError
from deltamcp.runtime.seal import Seal, check_keys

KEY = bytes(range(32))
OTHER = bytes(32)


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.binary())
def test_what_was_closed_opens_again_anywhere_with_the_key(value, bound):
    assert Seal([KEY], 60).open(Seal([KEY], 60).close(value, bound), bound) == value


@given(st.integers(min_value=0), st.sampled_from("ABab01_-!="))
def test_a_changed_character_closes_it_for_good(place, character):
    sealed = Seal([KEY], 60).close({"a": 1}, b"x")
    place %= len(sealed)
    changed = sealed[:place] + character + sealed[place + 1 :]

    assert changed == sealed or Seal([KEY], 60).open(changed, b"x") is None


@given(st.text())
def test_nothing_else_opens(text):
    assert Seal([KEY], 60).open(text, b"x") is None


def test_another_key_another_request_or_too_late_and_it_stays_closed():
    sealed = Seal([KEY], 60).close(1, b"x")

    assert Seal([], 60).open(sealed, b"x") is None
    assert Seal([KEY], 60).open(sealed, b"y") is None
    assert Seal([KEY], 60).open(Seal([KEY], -1).close(1, b"x"), b"x") is None


def test_two_sealings_of_the_same_differ():
    seal = Seal([KEY], 60)

    assert seal.close(1, b"") != seal.close(1, b"")


def test_of_several_keys_the_first_seals_and_all_open():
    of_old, of_new = Seal([KEY], 60).close(1, b"x"), Seal([OTHER], 60).close(1, b"x")

    assert Seal([OTHER, KEY], 60).open(of_old, b"x") == 1
    assert Seal([OTHER, KEY], 60).open(of_new, b"x") == 1
    assert Seal([OTHER], 60).open(Seal([OTHER, KEY], 60).close(1, b"x"), b"x") == 1
    assert Seal([KEY], 60).open(Seal([OTHER, KEY], 60).close(1, b"x"), b"x") is None
    assert Seal([OTHER], 60).open(of_old, b"x") is None, "a key that was removed opens nothing"


@given(st.integers(min_value=0), st.sampled_from("ABab01_-!="))
def test_a_changed_character_closes_it_for_every_key(place, character):
    sealed = Seal([KEY], 60).close({"a": 1}, b"x")
    place %= len(sealed)
    changed = sealed[:place] + character + sealed[place + 1 :]

    assert changed == sealed or Seal([OTHER, KEY], 60).open(changed, b"x") is None


@pytest.mark.parametrize("keys", [b"secret", "s" * 32, [], [KEY, b"secret"], [KEY, None], [7] * 32])
def test_what_is_no_key_is_refused_and_not_shown(keys):
    with pytest.raises(ConfigurationError) as refusal:
        check_keys(keys)
    assert str(refusal.value) == "state_key must be 32 bytes, or a list of such keys."


def test_keys_are_one_several_or_none():
    assert check_keys(None) == ()
    assert check_keys(KEY) == (KEY,)
    assert check_keys([OTHER, KEY]) == (OTHER, KEY)
