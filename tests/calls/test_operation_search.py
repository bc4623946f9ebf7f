"""The search with an embedder: its hits, the texts that the embedder gets, and its failures."""

import asyncio
import logging

import pytest

from deltamcp import DeltaServer, Principal
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.runtime.threads import Computations
from tests.support.operations import make_operation
from tests.support.raw_client import answer_text, raw_client

MEANINGS = {"automobile": 0, "car": 0, "vehicle": 0, "loaf": 1, "bread": 1, "bake": 1}


class Fake:
    """Texts to vectors by the meaning of their words."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        return [self.vector(one) for one in texts]

    def vector(self, one: str) -> list[float]:
        found = [0.0, 0.0, 0.1]
        for word in one.lower().replace("_", " ").split():
            if word in MEANINGS:
                found[MEANINGS[word]] += 1
        return found

    async def later(self, texts: list[str]) -> list[list[float]]:
        return self(texts)


def server(embedder) -> DeltaServer:
    made = DeltaServer("x", disclosure="meta", embedder=embedder)

    @made.tool
    async def repair_car() -> None:
        """Mend it."""

    @made.tool
    async def bake_bread() -> None:
        """In the oven."""

    return made


async def discovered(made: DeltaServer, *queries: str) -> str:
    async with raw_client(made) as client:
        await client.handshake()
        return answer_text(await client.call("tools/call", name="discover", arguments={"query": list(queries)}))


@pytest.mark.parametrize("how", ["plain", "async"])
async def test_meaning_is_found_where_no_word_fits(how):
    fake = Fake()
    shown = await discovered(server(fake if how == "plain" else fake.later), "my vehicle")
    assert shown.startswith("repair_car()")


async def test_each_query_has_its_best_first():
    shown = await discovered(server(Fake()), "a loaf", "an automobile")
    lines = [line.partition("(")[0] for line in shown.splitlines()]
    assert lines[lines.index('"a loaf":') + 1] == "bake_bread"
    assert lines[lines.index('"an automobile":') + 1] == "repair_car"


@pytest.mark.parametrize("query", ["repair_car", "Repair Car", "repair-car"])
async def test_an_exact_name_comes_first_whatever_is_nearer_in_meaning(query):
    def contrary(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "bake" in text or text == query else [0.0, 1.0] for text in texts]

    assert (await discovered(server(contrary), query)).startswith("repair_car()")


async def test_only_what_is_new_is_embedded():
    fake = Fake()
    made = server(fake)
    await discovered(made, "car")
    assert [len(texts) for texts in fake.asked] == [2, 1]
    await discovered(made, "bread")

    @made.tool
    async def wash_car() -> None: ...

    made.remove_tool("bake_bread")
    shown = await discovered(made, "automobile")
    assert [len(texts) for texts in fake.asked] == [2, 1, 1, 1, 1]
    assert "wash_car" in shown and "bake_bread" not in shown


async def test_auto_says_what_it_chose_and_when_that_stops_paying(caplog):
    made = DeltaServer("x", disclosure="auto")
    for number in range(30):

        @made.tool(name=f"tool_{number}")
        async def tool(first: str, second: int = 2) -> None:
            """Do one thing with the first and another with the second, as often as it takes."""

    with caplog.at_level(logging.INFO, "deltamcp"):
        async with raw_client(made) as client:
            await client.handshake()
    assert f"disclosure meta: {made.costs}" in caplog.text
    assert f"cheaper up to {made.costs.break_even} operations" in caplog.text


async def test_a_broken_embedder_leaves_the_words(caplog):
    def broken(texts: list[str]) -> list[list[float]]:
        raise RuntimeError("no model")

    with caplog.at_level(logging.ERROR, "deltamcp"):
        shown = await discovered(server(broken), "bread")
    assert shown.startswith("bake_bread()")
    assert "searched by words only" in caplog.text


async def test_vectors_that_do_not_fit_are_a_broken_embedder():
    shown = await discovered(server(lambda texts: [[1.0]]), "bread")
    assert shown.startswith("bake_bread()")


@pytest.fixture
def large() -> Catalog:
    catalog = Catalog("x", disclosure=Disclosure("meta"))
    for number in range(3000):
        catalog.add(make_operation(f"create_issue_{number}", scopes=["all"] if number > 20 else []))
    return catalog


def test_a_long_query_over_hidden_operations_is_no_attack(large):
    view = large.view()
    # It took 5 s, and takes hundredths of one.
    assert len(view.search("create issue in the repository with words. " * 450, 5, view.operations.keys())) == 5


async def test_a_search_whose_first_caller_leaves_is_still_whole(large):
    operation_search = OperationSearch(large, None, 0.7, Computations(1000))
    view = large.view(Principal("ada", frozenset({"all"})))

    query = "create issue in repository"

    def search():
        return operation_search.find(view, [query], 5, view.operations.keys(), "ada")

    first = asyncio.create_task(search())
    await asyncio.sleep(0.01)
    first.cancel()
    assert len((await search())[query]) == 5
    assert large.unindexed_count == 0


async def test_a_hanging_embedder_does_not_hang_the_search(monkeypatch):
    monkeypatch.setattr("deltamcp.calls.operation_search._EMBEDDER_SECONDS", 0.05)

    async def hangs(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(60)
        return []

    catalog = Catalog("x")
    catalog.add(make_operation("create_issue"))
    view = catalog.view()
    operation_search = OperationSearch(catalog, hangs, 0.7, Computations(1000))
    found = await operation_search.find(view, ["create issue"], 5, view.operations.keys(), "ada")
    assert [hit.operation.name for hit in found["create issue"]] == ["create_issue"]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
