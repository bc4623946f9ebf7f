"""Sealed state: clients cannot read or change it, it is bound to its request, and it expires."""

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.runtime.seal import Seal

KEY = bytes(range(32))


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.binary())
def test_what_was_closed_opens_again_anywhere_with_the_key(value, bound):
    assert Seal(KEY, 60).open(Seal(KEY, 60).close(value, bound), bound) == value


@given(st.integers(min_value=0), st.sampled_from("ABab01_-!="))
def test_a_changed_character_closes_it_for_good(place, character):
    sealed = Seal(KEY, 60).close({"a": 1}, b"x")
    place %= len(sealed)
    changed = sealed[:place] + character + sealed[place + 1 :]

    assert changed == sealed or Seal(KEY, 60).open(changed, b"x") is None


@given(st.text())
def test_nothing_else_opens(text):
    assert Seal(KEY, 60).open(text, b"x") is None


def test_another_key_another_request_or_too_late_and_it_stays_closed():
    sealed = Seal(KEY, 60).close(1, b"x")

    assert Seal(None, 60).open(sealed, b"x") is None
    assert Seal(KEY, 60).open(sealed, b"y") is None
    assert Seal(KEY, 60).open(Seal(KEY, -1).close(1, b"x"), b"x") is None


def test_two_sealings_of_the_same_differ():
    seal = Seal(KEY, 60)

    assert seal.close(1, b"") != seal.close(1, b"")
