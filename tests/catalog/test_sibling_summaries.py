"""Operations side by side never have the same summary, if anything about them differs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deltamcp import DeltaServer
from deltamcp.catalog.directory import Directory
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.context import Context
from tests.support.meta_tools import meta_tool_client


async def run(arguments: dict[str, Any]) -> None: ...


def operation(name, description, *parameters, **options):
    schema = {"type": "object", "properties": {name: {} for name in parameters}}
    return FunctionOperation(run, Context, name=name, description=description, input_schema=schema, **options)


def summaries(*operations):
    directory = Directory(operations)
    return [directory.summary_of(one) for one in operations]


def test_names_tell_apart_two_operations_with_one_description():
    assert summaries(
        operation("uptime-create", "Create a check"), operation("uptime-alert-create", "Create a check")
    ) == [
        "Create a check",
        "Create a check (alert)",
    ]


def test_a_sentence_that_three_operations_share_gives_way_to_the_next():
    shared = "Twilio - Api: This is the public Twilio REST API. "
    made = summaries(
        *(operation(f"{verb}Account", f"{shared}{verb} an account.") for verb in ("Create", "Fetch", "List"))
    )
    assert made == ["Create an account", "Fetch an account", "List an account"]


def test_what_is_cut_off_is_told_by_the_names():
    shared = "List the resource consumption of CPU and memory as recorded by the metrics server for "
    assert summaries(operation("nodes_top", f"{shared}nodes"), operation("pods_top", f"{shared}pods")) == [
        "List the resource consumption of CPU and memory as… (nodes)",
        "List the resource consumption of CPU and memory as… (pods)",
    ]


def test_parameters_tell_apart_what_names_do_not():
    assert summaries(operation("get_item", "Get an item", "id"), operation("get-item", "Get an item", "url", "id")) == [
        "Get an item",
        "Get an item (url)",
    ]


def test_the_authors_own_summary_is_never_changed():
    made = summaries(operation("a", "", summary="Do it"), operation("b", "", summary="Do it"), operation("c", "Do it"))
    assert made[:2] == ["Do it", "Do it"]


def test_an_operation_whose_id_is_taken_has_its_summary():
    assert (
        summaries(operation("a", "Do it", category="c", action="x"), operation("b", "Do it", category="c", action="x"))[
            0
        ]
        == "Do it"
    )


@given(
    st.lists(st.tuples(st.sampled_from(["get", "list", "drop"]), st.sampled_from(["tea", "cup"])), unique=True),
    st.sampled_from(["Work with things. It is slow.", "Do " + "it again and " * 8, "Thing"]),
)
def test_operations_with_other_words_in_their_names_have_other_summaries(names, description):
    made = summaries(*(operation("_".join(words), description) for words in names))
    assert len(set(made)) == len(made)
    assert all(len(text) <= 60 for text in made)


async def test_hits_listings_and_resources_show_what_differs(era):
    server = DeltaServer("checks", disclosure="meta")
    for name in ("create_check", "create_alert"):
        server.tool(name=name, category="uptime", description="Create a check of a site")(_empty())
    async with meta_tool_client(server, era) as peer:
        for arguments in ({"query": "create check"}, {"category": "uptime"}, {"category": "uptime", "detail": "full"}):
            assert "Create a check of a site (alert)" in await peer.text_of("discover", **arguments)


def _empty():
    async def do() -> None: ...

    return do
