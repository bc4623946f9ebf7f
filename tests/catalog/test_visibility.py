"""Rules of visibility: the last one that fits decides, and what a later rule makes meaningless is not kept."""

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.catalog.catalog import Rules, VisibilityRule, add_rule, is_shown

_texts = st.frozensets(st.sampled_from("abc"), max_size=2)
_rules = st.builds(VisibilityRule, st.booleans(), st.none() | _texts, st.none() | _texts)


def is_shown_by_all(rules: list[VisibilityRule], names: frozenset[str], tags: frozenset[str]) -> bool:
    shown = True
    for rule in rules:
        if (rule.names is None or rule.names & names) and (rule.tags is None or rule.tags & tags):
            shown = rule.is_shown
    return shown


@given(st.lists(_rules, max_size=8), _texts, _texts)
def test_what_is_kept_of_rules_decides_as_all_of_them(given_rules, names, tags):
    kept: Rules = ()
    for rule in given_rules:
        kept = add_rule(kept, rule)
    assert is_shown(kept, names, tags) == is_shown_by_all(given_rules, names, tags)


@given(
    st.lists(st.sampled_from([VisibilityRule(shown, frozenset(tag), None) for shown in (True, False) for tag in "ab"]))
)
def test_rules_do_not_pile_up(given_rules):
    kept: Rules = ()
    for rule in given_rules:
        kept = add_rule(kept, rule)
    assert len(kept) <= 2


def test_an_empty_set_fits_nothing():
    assert is_shown((VisibilityRule(False, frozenset(), None),), ["a"], frozenset("b"))
