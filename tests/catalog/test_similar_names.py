"""Names that are like an unknown one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.catalog.search.words import MIN_SIMILARITY, SimilarNames

NAMES = SimilarNames(["search_documents", "list-issues", "Create.Order", "weather"])


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("searchDocument", "search_documents"),
        ("SEARCH-DOCUMENTS", "search_documents"),
        ("list_issue", "list-issues"),
        ("create_orders", "Create.Order"),
        ("wether", "weather"),
    ],
)
def test_a_name_is_found_by_another_spelling(unknown, meant):
    name, similarity = NAMES.rank(unknown, 3)[0]
    assert (name, similarity > MIN_SIMILARITY) == (meant, True)


@pytest.mark.parametrize("unknown", ["nonexistent_tool", "", "x", "s\n\ns"])
def test_another_word_is_not_taken_for_it(unknown):
    assert all(similarity <= MIN_SIMILARITY for _, similarity in NAMES.rank(unknown, 4))


@given(st.lists(st.from_regex(r"[A-Za-z0-9_.-]{2,12}", fullmatch=True), min_size=1))
def test_a_known_name_is_most_like_itself(names):
    ranked = SimilarNames(names)
    for name in names:
        best = ranked.rank(name, len(names))
        assert name in {found for found, similarity in best if similarity == 1.0}


def test_where_there_are_no_names_none_is_similar():
    assert SimilarNames([]).rank("search", 5) == []
