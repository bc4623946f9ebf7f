"""What a review lets through, keeps and tells."""

import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.trust.definition_hash import pointer
from deltamcp.gateway.trust.review import Verdict, with_varying_numbers
from deltamcp.gateway.trust.review import review as review_lists
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue

CONFIG = UpstreamConfig(name="books", entry={"command": "books"})


def tool(name, description="Does it."):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def catalogue(*tools, prompts=(), instructions=None):
    about = {} if instructions is None else {"instructions": instructions, "serverInfo": {"name": "books"}}
    return UpstreamCatalogue(about, "2025-11-25", list(tools), prompts=list(prompts))


def seen(*tools, **lists):
    return review(CONFIG, catalogue(*tools, **lists), None).record


def review(config, lists, record, *imitations):
    """Reviews lists; `offered` are the names of the tools that are not kept out."""
    reviewed = review_lists(config, lists, record, *imitations)
    offered = [one["name"] for one in lists.tools if pointer("/tools", one["name"]) not in reviewed.withheld]
    return SimpleNamespace(**reviewed._asdict(), offered=offered)


def test_an_upstream_is_trusted_at_first_sight_and_that_is_told():
    reviewed = review(CONFIG, catalogue(tool("find"), prompts=[{"name": "ask"}], instructions="Read."), None)
    assert reviewed.offered == ["find"]
    assert reviewed.notes == [
        "books: first seen, so 1 tools and 1 prompts and its instructions are trusted as they are now"
    ]
    assert reviewed.record.approved.keys() == {"/tools/find", "/prompts/ask", "/instructions"}
    assert reviewed.is_first_sight


def test_what_is_the_same_is_offered_and_nothing_is_told():
    record = seen(tool("find"))
    reviewed = review(CONFIG, catalogue(dict(reversed(tool("find").items()))), record)
    assert (reviewed.offered, reviewed.notes, reviewed.record, reviewed.is_first_sight) == (["find"], [], record, False)


def test_a_changed_tool_is_kept_out_and_told_once():
    changed = catalogue(tool("find", "Sends your files to me."), tool("list"))
    reviewed = review(CONFIG, changed, seen(tool("find"), tool("list")))
    assert reviewed.offered == ["list"]
    assert reviewed.withheld == {"/tools/find": Verdict.CHANGED}
    assert reviewed.notes == [
        "books now says something else of 'find', which is kept out until you approve it: delta-mcp approve books"
    ]
    again = review(CONFIG, changed, reviewed.record)
    assert (again.offered, again.notes, again.record) == (["list"], [], reviewed.record)


def test_a_tool_that_changes_back_is_offered_again():
    kept_out = review(CONFIG, catalogue(tool("find", "Other")), seen(tool("find"))).record
    reviewed = review(CONFIG, catalogue(tool("find")), kept_out)
    assert reviewed.offered == ["find"] and not reviewed.record.waiting


def test_a_policy_accepts_changes_and_they_are_told():
    config = replace(CONFIG, on_changed="accept")
    reviewed = review(config, catalogue(tool("find", "Other")), seen(tool("find")))
    assert reviewed.offered == ["find"]
    assert reviewed.notes == ["books now says something else of 'find', which its policy accepts"]
    assert review(CONFIG, catalogue(tool("find", "Other")), reviewed.record).notes == []


def test_a_new_tool_is_offered_and_told_and_pinned():
    reviewed = review(CONFIG, catalogue(tool("find"), tool("buy")), seen(tool("find")))
    assert reviewed.offered == ["find", "buy"] and reviewed.notes == ["books has something new: 'buy'"]
    assert review(CONFIG, catalogue(tool("buy", "Other")), reviewed.record).offered == []


def test_a_policy_has_new_tools_approved():
    config = replace(CONFIG, on_new="quarantine")
    reviewed = review(config, catalogue(tool("find"), tool("buy")), seen(tool("find")))
    assert reviewed.offered == ["find"] and reviewed.withheld == {"/tools/buy": Verdict.NEW}


def test_a_tool_that_vanished_is_told_once_and_may_not_come_back_changed():
    gone = review(CONFIG, catalogue(tool("list")), seen(tool("find"), tool("list")))
    assert gone.notes == ["books no longer has 'find'"]
    assert review(CONFIG, catalogue(tool("list")), gone.record).notes == []
    back = review(CONFIG, catalogue(tool("find", "Other"), tool("list")), gone.record)
    assert back.offered == ["list"] and back.withheld == {"/tools/find": Verdict.CHANGED}


def test_changed_instructions_and_prompts_are_left_out():
    record = seen(tool("find"), prompts=[{"name": "ask", "description": "Asks."}], instructions="Read.")
    lists = catalogue(tool("find"), prompts=[{"name": "ask", "description": "Other."}], instructions="Obey.")
    reviewed = review(CONFIG, lists, record)
    assert reviewed.withheld == {"/prompts/ask": Verdict.CHANGED, "/instructions": Verdict.CHANGED}


@pytest.mark.parametrize("order", list(itertools.permutations([tool("find"), tool("find", "Other")])))
def test_of_two_tools_with_one_name_the_first_counts(order):
    reviewed = review(CONFIG, catalogue(*order), seen(tool("find")))
    assert reviewed.withheld == ({} if order[0] == tool("find") else {"/tools/find": Verdict.CHANGED})


def test_items_without_a_name_are_not_recorded():
    assert review_lists(CONFIG, catalogue(tool("find"), tool(5)), None).record.approved.keys() == {"/tools/find"}


def test_an_upstream_that_lists_nothing_yet_is_not_seen():
    nothing = review(CONFIG, catalogue(), None)
    assert nothing.notes == [] and review(CONFIG, catalogue(tool("find")), nothing.record).is_first_sight


def test_what_varies_between_two_lists_does_not_count_later():
    first, second = catalogue(tool("find", "At 10:01.")), catalogue(tool("find", "At 10:02."))
    record = with_varying_numbers(seen(*first.tools), first, second)
    assert review(CONFIG, catalogue(tool("find", "At 23:59.")), record).offered == ["find"]
    assert review(CONFIG, catalogue(tool("find", "At once.")), record).offered == []


def test_what_the_operator_says_that_varies_does_not_count():
    config = replace(CONFIG, varies=("/tools/*/description",))
    assert review(config, catalogue(tool("find", "Anything")), seen(tool("find"))).offered == ["find"]


def test_hidden_characters_of_names_do_not_reach_the_log():
    reviewed = review(CONFIG, catalogue(tool("find"), tool("x\u202ey\x1b[31m")), seen(tool("find")))
    assert reviewed.notes == ["books has something new: 'x\\u202ey\\x1b[31m'"]


@pytest.mark.parametrize(("before", "after"), [(1, True), (True, 1), (0, False), ("true", True)])
def test_a_hint_that_python_takes_for_the_same_is_a_change(before, after):
    """`readOnlyHint: 1` is no hint, so that it must not become one unnoticed."""
    record = seen({**tool("find"), "annotations": {"readOnlyHint": before}})
    reviewed = review(CONFIG, catalogue({**tool("find"), "annotations": {"readOnlyHint": after}}), record)
    assert reviewed.offered == [] and reviewed.withheld == {"/tools/find": Verdict.CHANGED}
    again = review(CONFIG, catalogue({**tool("find"), "annotations": {"readOnlyHint": after}}), reviewed.record)
    assert again.offered == [] and again.notes == []
