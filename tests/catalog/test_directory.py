"""The tree of operations: its categories, and its texts for a model."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import Context, tokens
from deltamcp.catalog.directory import Directory
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation


async def nothing(arguments: dict[str, Any]) -> None: ...


def operation(id_: str) -> Operation:
    category, _, action = id_.rpartition(".")
    if not category:
        return FunctionOperation(nothing, Context, name=id_, input_schema={})
    return FunctionOperation(
        nothing, Context, name=id_.replace(".", "_"), category=category, action=action, input_schema={}
    )


def directory(*ids: str) -> Directory:
    return Directory([operation(id_) for id_ in ids])


def test_a_line_a_category():
    made = directory("posts.list", "posts.create", "members.list", "batch.posts.delete")
    assert made.overview == "posts: list create\nmembers: list\nbatch.posts: delete"


def test_names_that_begin_alike_are_written_once_where_that_is_needed():
    names = [f"{verb}_the_whole_{noun}_of_repository" for verb in ("get", "set") for noun in "abcdefghijklmno"]
    assert "get_{the_whole_a_of_repository,the_whole_b_of_repository," in directory(*names).overview


def test_a_category_is_found_by_dots_and_by_slashes():
    made = directory("batch.posts.delete", "posts.list")
    for path in ("batch.posts", "batch/posts", "/batch/posts/"):
        found = made.category_at(path)
        assert found is not None and list(found.operations) == ["delete"]
    assert made.category_at("batch.nothing") is None
    assert made.category_at("") is made.root


segments = st.text("abcdefgh_-", min_size=1, max_size=14).filter(lambda text: text[0].isalpha())
ids = st.lists(st.lists(segments, min_size=1, max_size=3).map(".".join), min_size=1, max_size=60, unique=True)


@given(ids)
def test_the_overview_keeps_its_budget(ids):
    made = Directory([operation(id_) for id_ in ids])
    assert tokens.count(made.overview) <= 200
    assert tokens.count(made.content_line(48)) <= 48 + 16  # one name alone may be longer


@pytest.mark.parametrize("size", [84, 100, 300, 301, 2500])
def test_the_overview_of_many_real_names(size):
    verbs = [
        "list",
        "get",
        "create",
        "update",
        "delete",
        "search",
        "archive",
        "restore",
        "export",
        "import_from",
        "sync",
        "validate",
    ]
    nouns = [
        "issue",
        "pull_request",
        "repository",
        "branch",
        "release",
        "workflow",
        "artifact",
        "comment",
        "label",
        "milestone",
        "team",
    ]
    random.seed(size)
    ids = {f"{random.choice(nouns)}s.{random.choice(verbs)}_{number}" for number in range(size)}
    text = Directory([operation(id_) for id_ in sorted(ids)]).overview
    assert tokens.count(text) <= (200 if size == 84 else 3 * size if size <= 300 else 900)
