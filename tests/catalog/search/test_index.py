"""The search index: which words find which tools, and properties of any tools and any query."""

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deltamcp.catalog.search import index as search
from deltamcp.catalog.search import words
from deltamcp.catalog.search.index import Hit, SearchIndex


def tool(name, description="", **parameters):
    properties = {name: {"type": "string", "description": text} for name, text in parameters.items()}
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


SERVERS = {
    "github": [
        tool("create_issue", "Open a new issue in a repository.", title="What it is about", body="Markdown"),
        tool("list_pull_requests", "List pull requests of a repository.", state="open, closed or all"),
        tool("merge_pull_request", "Merge a pull request.", method="squash, rebase or merge"),
    ],
    "browser": [
        tool("takeScreenshot", "Capture the visible page as an image.", selector="The element to capture"),
        tool("navigate", "Open an address.", url="Where to go"),
    ],
    "weather": [
        tool("forecast", "The weather of the coming days.", latitude="North is positive", longitude="East is positive"),
        tool("search", "Places by name.", text="Part of a name"),
    ],
    "bing": [tool("bing_search", "使用必应搜索指定的关键词，并返回搜索结果列表", query="搜索关键词")],
}


def build(servers=SERVERS):
    index = SearchIndex()
    for server, tools in servers.items():
        for each in tools:
            index.put(f"{server}/{each['name']}", each, server)
    return index


def first(query):
    return build().search(query)[0].id


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("create issue", "github/create_issue"),
        ("creating issues", "github/create_issue"),
        ("merging of a pull request", "github/merge_pull_request"),
        ("latitude and longitude", "weather/forecast"),
        ("what is the weather going to be?", "weather/forecast"),
    ],
)
def test_a_tool_is_found_by_the_words_of_its_definition(query, expected):
    assert first(query) == expected


def test_a_tool_is_found_by_other_words_for_the_same():
    assert first("a picture of the site") == "browser/takeScreenshot"


def test_words_written_apart_find_what_is_written_together():
    assert first("screen shot") == "browser/takeScreenshot"


def test_a_misspelt_word_finds_what_was_meant():
    assert first("wether forcast") == "weather/forecast"


def test_scripts_without_spaces_are_found_by_their_characters():
    assert first("用关键词搜索") == "bing/bing_search"


@pytest.mark.parametrize(
    "query", ["merge_pull_request", "mergePullRequest", "github/merge_pull_request", "Merge-Pull-Request"]
)
def test_a_tool_called_by_name_comes_first(query):
    assert first(query) == "github/merge_pull_request"


LISTS = [
    tool("list-sharepoint-site-lists", "List the lists of a site."),
    tool("list-sharepoint-site-list-items", "Get the items of a list."),
    tool("create-sharepoint-list-item", "Create a list item in a list of a SharePoint site: list the items to create."),
    tool("update-sharepoint-list-item", "Update a list item in a list of a SharePoint site: list the items to update."),
    tool("list_items", "List the items of a list of a SharePoint site."),
]


@pytest.mark.parametrize(
    "query",
    [
        "list-sharepoint-site-list-items",
        "list sharepoint site list items",
        "List SharePoint Site List Items",
        "ms365.list-sharepoint-site-list-items",
        "ms365/list_sharepoint_site_list_items",
        " ms365_list-sharepoint-site-list-items ",
    ],
)
def test_an_exact_name_comes_first_whatever_words_it_contains(query):
    index = SearchIndex()
    for each in LISTS:
        index.put(f"ms365_{each['name']}", each | {"name": f"ms365_{each['name']}"}, "ms365", f"ms365.{each['name']}")
    assert index.search(query)[0].id == "ms365_list-sharepoint-site-list-items"


@pytest.mark.parametrize("namespace", ["TwilioApiV2010--", "mcp__twilio__", "api.", "twilio/", "twilio:"])
@pytest.mark.parametrize("query", ["list sip credential list", "List SIP credential lists", "ListSipCredentialList"])
def test_a_name_is_exact_without_its_namespace_and_with_other_endings(namespace, query):
    index = SearchIndex()
    for verb in ("Create", "Update", "Delete", "Fetch", "List"):
        name = f"{namespace}{verb}SipCredentialList"
        index.put(name, tool(name, f"{verb} a credential list. Lists have credentials; list them."))
    assert index.search(query)[0] == Hit(f"{namespace}ListSipCredentialList", 1.0, 1.0, 1.0, is_named=True)


@pytest.mark.parametrize("name", ["userList", "user_list", "user-list"])
def test_of_names_that_differ_in_separators_the_one_that_is_spelled_comes_first(name):
    index = build({"": [tool("userList"), tool("user_list"), tool("user-list")]})
    assert index.search(name)[0].id == f"/{name}"


def test_a_path_is_a_name_even_where_its_words_say_nothing():
    index = build()
    index.put("x", tool("forecast_of_the_tides"), "the", "the.use")
    assert [hit.id for hit in index.search("the.use")] == ["x"]
    assert [hit.id for hit in index.search("the/use", allowed_ids={"x", "github/create_issue"})] == ["x"]
    assert index.search("the.use", allowed_ids={"github/create_issue"}) == []
    index.drop("x")
    assert index.search("the.use") == []


def test_a_name_within_a_request_comes_first():
    assert first("The forecast is bad, so call list_pull_requests and see the weather.") == "github/list_pull_requests"


def test_a_name_that_is_a_mere_word_is_no_call_for_the_tool():
    assert first("search for issues to create in a repository") == "github/create_issue"


def test_each_intent_of_a_long_request_is_served():
    found = build().search(
        "I need the weather of next week. Then take a screenshot of the page. Finally, create an issue.", 3
    )
    assert {hit.id for hit in found} == {"weather/forecast", "browser/takeScreenshot", "github/create_issue"}


def test_scores_fall_and_begin_at_one():
    scores = [hit.score for hit in build().search("pull requests of the repository")]
    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)


def test_coverage_is_the_share_of_the_words_that_a_tool_has():
    index = build()
    known, unknown = index.search("create an issue")[0], index.search("create an issue in sourceforge")[0]
    assert known.coverage == known.fit == 1
    assert unknown.id == known.id and 0 < unknown.coverage < 1
    two = index.search("Create an issue. What will the weather be?")
    assert {hit.id: hit.fit for hit in two}["weather/forecast"] == 1
    assert max(hit.coverage for hit in two) < 1


@pytest.mark.parametrize(
    "query", ["", " ", "please could you", "what is this and how do I use the tool", "xyzzy 12345", "…"]
)
def test_what_says_nothing_finds_nothing(query):
    assert build().search(query) == []


@pytest.mark.parametrize("query", ["???", "how do I", "please", "1", "🙂"])
def test_what_says_nothing_is_no_name_that_says_nothing(query):
    index = build()
    for action in ("do", "me", "all"):
        index.put(action, tool("forecast_of_the_tides"), "jobs", f"jobs.{action}")
    assert index.search(query) == []


def test_no_tools_and_no_places_find_nothing():
    assert build().search("issue", 0) == []
    assert SearchIndex().search("issue") == []


def test_nested_parameters_are_searched():
    schema = {"properties": {"who": {"anyOf": [{"items": {"properties": {"passport": {}}}}, {"type": "null"}]}}}
    index = build()
    index.put("x", {"name": "travel", "inputSchema": schema})
    assert index.search("passport") == [Hit("x", 1.0, 1.0, 1.0)]


def test_a_schema_may_be_deep():
    schema: dict[str, Any] = {}
    for _ in range(10_000):
        schema = {"properties": {"inner": schema}}
    index = SearchIndex()
    index.put("x", {"name": "deep", "inputSchema": schema})
    assert index.search("inner")[0].id == "x"


def test_a_replaced_tool_is_no_longer_found_by_its_old_words():
    index = build()
    index.put("browser/navigate", tool("tides"), "browser")
    assert index.search("address") == []
    assert [hit.id for hit in index.search("tides")] == ["browser/navigate"]


def test_each_group_of_synonyms_has_a_name_of_its_own():
    """The index identifies a group by its first word."""
    names = [group[0] for group in words.SYNONYMS]
    assert len(set(names)) == len(names)


def test_synonyms_are_single_words_that_are_searched_by():
    for word in itertools.chain.from_iterable(words.SYNONYMS):
        assert words.terms(word) == [words.stem(word)]


@pytest.mark.parametrize(
    "forms",
    [
        ["movie", "movies"],
        ["query", "queries"],
        ["plan", "plans", "planned", "planning"],
        ["create", "creates", "created", "creating"],
        ["address", "addresses"],
        ["run", "runs"],
    ],
)
def test_forms_of_a_word_are_one_term(forms):
    assert len({words.stem(form) for form in forms}) == 1


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("getUserID", ["get", "user", "id"]),
        ("S3Bucket", ["s3", "bucket"]),
        ("k8s on K8s", ["k8s", "k8s"]),
        ("HTTP2Stream", ["http2", "stream"]),
        ("HTTPServerError", ["http", "error"]),
        ("GitHub", ["git", "hub", "github"]),
        ("ＧｉｔＨｕｂ", ["git", "hub", "github"]),
        ("Straße", ["strasse"]),
        ("東京", ["東京"]),
        ("東京都の天気", ["東京", "京都", "都の", "の天", "天気"]),
        ("MCP天気API", ["天気"]),
        ("in 2024 the 3 users", ["user"]),
    ],
)
def test_text_becomes_terms(text, terms):
    assert words.terms(text) == terms


# Laws

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
vocabulary = st.sampled_from(
    ["get", "list", "create", "issue", "weather", "user", "file", "天気予報", "pullRequest", "search", "the", "K8s"]
)
phrases = st.lists(vocabulary, max_size=6).map(" ".join)
schemas = st.recursive(
    json_values,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(phrases, inner, max_size=3) | json_values,
            "items": inner,
            "anyOf": st.lists(inner, max_size=2) | json_values,
            "$defs": st.dictionaries(st.text(max_size=3), inner, max_size=2) | json_values,
            "description": phrases | json_values,
            "$ref": json_values,
        },
    ),
    max_leaves=8,
)
definitions = st.fixed_dictionaries(
    {},
    optional={
        "name": phrases | json_values,
        "description": phrases | json_values,
        "title": phrases,
        "inputSchema": schemas,
    },
)
ids = st.sampled_from([f"tool {number}" for number in range(8)])
groups = st.sampled_from(["", "github", "weather"])
changes = st.lists(st.tuples(ids, st.none() | st.tuples(definitions, groups)), max_size=20)


@given(definitions, st.text() | phrases)
def test_anything_can_be_indexed_and_asked(definition, query):
    index = SearchIndex()
    index.put("x", definition)
    assert {hit.id for hit in index.search(query)} <= {"x"}


def same_as_built_anew(changes, query):
    changed = SearchIndex()
    content: dict[str, Any] = {}
    for name, what in changes:
        content.pop(name, None)
        if what is None:
            changed.drop(name)
        else:
            changed.put(name, *what)
            content[name] = what
    fresh = SearchIndex()
    for name, what in sorted(content.items()):
        fresh.put(name, *what)
    assert len(changed) == len(fresh) == len(content)
    assert changed.search(query, 2) == fresh.search(query, 2)
    return True


questions = phrases | st.text(max_size=20)


@given(changes, questions)
def test_an_index_that_grew_and_shrank_is_one_built_anew(changes, query):
    assert same_as_built_anew(changes, query)


@given(changes, questions, st.integers(1, 6), st.integers(1, 3))
def test_that_holds_where_there_is_more_than_is_looked_at(changes, query, scanned, candidates):
    with pytest.MonkeyPatch.context() as few:
        few.setattr(search, "_MAX_SCANNED_POSTINGS", scanned)
        few.setattr(search, "_MIN_CANDIDATES", candidates)
        few.setattr(search, "_REFINED_FACTOR", 1)
        assert same_as_built_anew(changes, query)


@given(st.lists(phrases | st.text(), min_size=1, max_size=6, unique_by=words.name_key), st.data())
def test_a_tool_is_first_under_its_exact_name(names, data):
    """Whatever words the name has: of every tool, of none, repeated."""
    names = [name for name in names if words.name_key(name).strip()]
    assume(names)
    index = SearchIndex()
    for number, name in enumerate(names):
        index.put(f"{number}/", {"name": name})
    number = data.draw(st.integers(0, len(names) - 1))
    assert index.search(names[number])[0] == Hit(f"{number}/", 1.0, 1.0, 1.0, is_named=True)


@given(st.lists(phrases, min_size=1, max_size=5), st.data())
def test_a_dropped_tool_is_gone(names, data):
    index = SearchIndex()
    for number, name in enumerate(names):
        index.put(str(number), {"name": name})
    gone = str(data.draw(st.integers(0, len(names) - 1)))
    index.drop(gone)
    index.drop(gone)
    assert gone not in index
    assert len(index) == len(names) - 1
    assert gone not in [hit.id for name in names for hit in index.search(name)]
