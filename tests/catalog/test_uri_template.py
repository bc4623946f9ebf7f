"""URI templates: the URIs they match and the URIs they refuse, with regular expressions as the oracle."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import ConfigurationError
from deltamcp.catalog.items.resource import UriTemplate
from deltamcp.work import Work, WorkLimitError


def match(template: str, uri: str, steps: int = 10_000) -> dict[str, str] | None:
    return UriTemplate(template).match(uri, Work(steps))


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
    assert match(template, uri) == values


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
    assert match(template, uri) is None


@given(st.text(st.characters(exclude_characters="/?#%.", exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_plain_segment_always_matches(segment):
    assert match("x://{a}", f"x://{segment}") == {"a": segment}


@given(
    st.lists(st.tuples(st.sampled_from(["", "-", "--", "/", "/x/", "?", "a"]), st.booleans()), min_size=1, max_size=4),
    st.sampled_from(["", "-", "!", "/", "a-"]),
    st.text("-/a?#\n!", max_size=14),
)
def test_a_template_matches_as_its_regular_expression_does(parts, end, rest):
    template = "x:" + "".join(f"{text}{{{'+' * crosses}v{n}}}" for n, (text, crosses) in enumerate(parts)) + end
    pattern = "x:" + "".join(
        f"{re.escape(text)}(?P<v{n}>{'.+' if crosses else '[^/?#]+'})" for n, (text, crosses) in enumerate(parts)
    )
    expected = re.fullmatch(pattern + re.escape(end), f"x:{rest}")
    assert match(template, f"x:{rest}") == (None if expected is None else expected.groupdict())


@pytest.mark.parametrize(
    "uri", ["y://" + "-" * 8000, "y://" + "-a" * 4000, "y://" + "-" * 8000 + "!", "y://" + "/-" * 4000]
)
@pytest.mark.parametrize(
    "template", ["y://{a}-{b}-{c}-{d}!", "y://{+a}-{+b}-{+c}-{+d}!", "y://{a}{b}{c}{d}", "y://{+a}/-{b}"]
)
def test_the_work_is_that_of_the_variables_times_the_length_of_the_address(template, uri):
    match(template, uri, steps=5 * 8100)


def test_work_beyond_the_limit_is_refused():
    with pytest.raises(WorkLimitError):
        match("y://{a}-{b}", "y://" + "-" * 8000, steps=1000)


def test_a_template_that_begins_or_ends_otherwise_takes_one_step():
    assert match("z://{a}-{b}", "y://" + "-" * 8000, steps=1) is None
    assert match("y://{a}-{b}!", "y://" + "-" * 8000, steps=1) is None


def test_a_template_of_a_form_we_lack_is_told():
    with pytest.raises(ConfigurationError):
        UriTemplate("x://{a")
