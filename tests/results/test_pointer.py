"""Paths inside a JSON value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import UsageError
from deltamcp.results.document import parse_path, pointer


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8))
def test_a_pointer_leads_to_the_names_it_was_written_from(names):
    assert parse_path(pointer(*names)) == names


@pytest.mark.parametrize("path", ["/items/3/body", "items.3.body", "items[3].body", "$.items[3].body"])
def test_the_ways_to_write_a_path(path):
    assert parse_path(path) == ["items", "3", "body"]


@pytest.mark.parametrize("path", ["/0" * 5_001, "a." * 5_001, "x" * 10_001])
def test_a_long_path_is_refused(path):
    with pytest.raises(UsageError, match="at most 10,000 characters"):
        parse_path(path)
