"""Resource templates: the URIs they match and the URIs they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import ConfigurationError, Context
from deltamcp.catalog.resource import Resource, UriTemplate


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("repo://{id}/readme", "repo://7/readme", {"id": "7"}),
        ("repo://{id}/readme", "repo://a%20b/readme", {"id": "a b"}),
        ("repo://{owner}/{name}", "repo://x/y", {"owner": "x", "name": "y"}),
        ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
        ("find://all{?q,limit}", "find://all?q=x%26y&limit=3&other=1", {"q": "x&y", "limit": "3"}),
        ("find://all{?q}", "find://all", {}),
        ("a.b://{x}", "a.b://1", {"x": "1"}),
    ],
)
def test_a_template_gives_the_variables_of_an_address(template, uri, values):
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("repo://{id}/readme", "repo://7/8/readme"),
        ("repo://{id}/readme", "repo:///readme"),
        ("repo://{id}/readme", "repo://7/readme/more"),
        ("repo://{id}", "repo://.."),
        ("repo://{id}", "repo://%2e%2e"),
        ("repo://{id}", "repo://a%2fb"),
        ("file:///{+path}", "file:///a/../../etc/passwd"),
        ("file:///{+path}", "file:///a/%2e%2e/b"),
        ("a.b://{x}", "axb://1"),
    ],
)
def test_what_does_not_fit_or_would_escape_is_not_matched(template, uri):
    assert UriTemplate(template).match(uri) is None


@given(st.text(st.characters(exclude_characters="/?#%.", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_plain_segment_always_matches(segment):
    assert UriTemplate("x://{a}").match(f"x://{segment}") == {"a": segment}


def test_an_address_and_its_function_must_belong_together():
    def takes(a: str) -> str:
        return a

    for uri in ("x://fixed", "x://{b}", "x://{a}/{b}"):
        with pytest.raises(ConfigurationError):
            Resource(takes, Context, uri)
    assert Resource(takes, Context, "x://{a}").list_item["uriTemplate"] == "x://{a}"


def test_a_template_of_a_form_we_lack_is_told():
    with pytest.raises(ConfigurationError):
        UriTemplate("x://{a")
