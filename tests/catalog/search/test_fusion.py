"""Rankings blended from words and vectors, with vectors small enough to check by hand."""

import sys

import pytest

from deltamcp.catalog.search.fusion import Fusion, embedding_text
from deltamcp.catalog.search.index import Hit


@pytest.fixture(params=["numpy", "plain Python"])
def fusion(request, monkeypatch):
    """Three tools on a plane, with and without numpy."""
    if request.param == "numpy":
        pytest.importorskip("numpy")
    else:
        monkeypatch.setitem(sys.modules, "numpy", None)
    made = Fusion()
    made.put([("north", "n"), ("east", "e"), ("south", "s")], [(0, 2), (3, 0), (0, -1)])
    return made


def by_words(tool_id: str, score: float, named: bool = False) -> Hit:
    return Hit(tool_id, score, score, score, named)


def test_what_is_embedded_and_unchanged_is_not_missing(fusion):
    assert fusion.missing_texts({"north": "n", "east": "other", "west": "w"}) == [("east", "other"), ("west", "w")]


def test_the_nearest_comes_first_without_hits_by_words(fusion):
    assert [hit.id for hit in fusion.blend([], (1, 10))] == ["north", "east", "south"]


def test_words_decide_between_neighbours(fusion):
    assert fusion.blend([by_words("east", 1.0)], (1, 1.01))[0].id == "east"


def test_weights_are_what_they_say(fusion):
    fusion.weight = 0.25
    found = fusion.blend([by_words("south", 1.0), by_words("elsewhere", 0.5)], (0, 1))
    assert [hit.id for hit in found] == ["south", "elsewhere", "north", "east"]
    assert [hit.score for hit in found] == pytest.approx([1, 0.375 / 0.75, 0.25 / 0.75, 0.125 / 0.75])


def test_a_tool_that_the_query_names_stays_first(fusion):
    hits = [by_words("south", 1.0, named=True), by_words("east", 1.0, named=True), by_words("north", 0.9)]
    found = fusion.blend(hits, (0, 1))
    assert [hit.id for hit in found] == ["south", "east", "north"]
    assert [hit.score for hit in found] == [1, 1, 1]


def test_a_near_tool_fits_without_words_and_a_far_one_does_not(fusion):
    fits = {hit.id: hit.fit for hit in fusion.blend([by_words("south", 0.3)], (0, 1))}
    assert fits == {"north": 0.5, "east": 0, "south": 0.3}
    assert all(hit.fit == 0 for hit in fusion.blend([], (0, 0)))


def test_only_so_many_are_given(fusion):
    assert len(fusion.blend([], (1, 0), 2)) == 2
    assert fusion.blend([], (1, 0), 0) == []


def test_a_dropped_tool_is_gone_and_missing_again(fusion):
    fusion.blend([], (1, 0))
    fusion.drop("east")
    fusion.drop("east")
    assert [hit.id for hit in fusion.blend([], (1, 1))] == ["north", "south"]
    assert fusion.missing_texts({"east": "e"}) == [("east", "e")]


def test_without_vectors_words_are_all_there_is():
    assert [hit.id for hit in Fusion().blend([by_words("a", 1.0), by_words("b", 0.5)], (1, 0))] == ["a", "b"]


def test_a_vector_of_nothing_is_near_to_all_alike(fusion):
    assert {hit.score for hit in fusion.blend([], (0, 0))} == {1.0}


@pytest.mark.parametrize("vectors", [[(1, 2)], [(1, 2), (1, 2, 3)], [(1, 2, 3), (1, 2, 3)]])
def test_an_embedder_that_miscounts_is_told(fusion, vectors):
    with pytest.raises(ValueError, match="2 texts gave"):
        fusion.put([("a", "a"), ("b", "b")], vectors)
    assert len(fusion) == 3


def test_a_tools_text_says_where_it_is_from_and_what_it_does():
    assert (
        embedding_text({"name": "send", "title": None, "description": "Sends mail."}, "post") == "post send Sends mail."
    )
