"""Where relevance stops, on rankings made by hand and on real definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.catalog.search.index import Hit, SearchIndex, is_weak, relevant_hits


def ranking(coverage: float, *scores: float) -> list[Hit]:
    return [Hit(str(place), score, coverage, coverage) for place, score in enumerate(scores)]


def test_where_the_best_has_every_word_a_much_lower_score_is_left_out():
    assert [hit.score for hit in relevant_hits(ranking(1, 1, 0.9, 0.5, 0.3))] == [1, 0.9]


def test_where_the_best_has_few_words_the_others_may_be_meant():
    assert [hit.score for hit in relevant_hits(ranking(0.4, 1, 0.9, 0.5, 0.3))] == [1, 0.9, 0.5, 0.3]


def test_where_the_query_is_a_name_others_must_have_its_words():
    hits = [
        Hit("create_gist", 1, 1, 1, is_named=True),
        Hit("create_gists", 0.8, 0.95, 0.9),
        Hit("get_gist", 0.9, 0.7, 0.4),
    ]
    assert [hit.id for hit in relevant_hits(hits)] == ["create_gist", "create_gists"]


def test_no_hits_stay_none():
    assert relevant_hits([]) == []


@pytest.mark.parametrize(
    ("score", "fit", "weak"), [(1, 1, False), (1, 0.05, True), (0.05, 1, True), (0.6, 0.6, False), (0.3, 0.3, True)]
)
def test_a_hit_that_scores_low_or_has_little_of_the_query_is_weak(score, fit, weak):
    assert is_weak(Hit("x", score, fit, fit)) is weak


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1))
def test_what_is_shown_is_the_beginning_of_the_ranking(scores, coverage):
    hits = ranking(coverage, *sorted([1.0, *scores], reverse=True))
    shown = relevant_hits(hits)
    assert shown == hits[: len(shown)] and shown


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_the_more_words_the_best_has_the_fewer_others_are_shown(scores, one, other):
    scores = sorted([1.0, *scores], reverse=True)
    more, fewer = sorted([one, other])
    assert len(relevant_hits(ranking(more, *scores))) >= len(relevant_hits(ranking(fewer, *scores)))


GISTS = {
    "create_gist": "Create a new gist",
    "get_gist": "Get the content of a gist",
    "list_gists": "List gists of a user",
    "list_issues": "List issues of a repository",
    "create_issue": "Open a new issue in a repository",
    "list_branches": "List branches of a repository",
    "search_code": "Search for code across repositories",
}


@pytest.fixture
def index() -> SearchIndex:
    index = SearchIndex()
    for name, description in GISTS.items():
        index.put(name, {"name": name, "description": description}, "github")
    return index


def test_one_good_hit_is_one_hit(index):
    assert [hit.id for hit in relevant_hits(index.search("search code"))] == ["search_code"]
    assert [hit.id for hit in relevant_hits(index.search("create gist"))] == ["create_gist"]
    assert [hit.id for hit in relevant_hits(index.search("list the branches of a repository"))] == ["list_branches"]


def test_equally_good_hits_are_all_shown(index):
    assert {hit.id for hit in relevant_hits(index.search("gists"))} == {"create_gist", "get_gist", "list_gists"}


@pytest.mark.parametrize("query", ["salesforce opportunity pipeline forecast user", "a new refund", "gist ferry"])
def test_a_query_about_something_else_has_only_weak_hits(index, query):
    """One of its words in a tool is chance."""
    found = index.search(query)
    assert found and all(map(is_weak, found))
