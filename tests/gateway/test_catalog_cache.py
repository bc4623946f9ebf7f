"""Catalogs on disk: what was stored comes back; what is broken, foreign or another upstream's does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.gateway.gateway_catalog import StoredContentLines
from deltamcp.gateway.gateway_upstream import ListingCache
from deltamcp.upstreams.listing import UpstreamListing

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ENTRY = {"command": "npx", "args": ["server"], "env": {"TOKEN": "secret-1"}, "headers": {"X-Key": "secret-2"}}
CATALOG = UpstreamListing({"serverInfo": {"name": "x"}}, "2025-11-25", [{"name": "b", "a": {"z": 1, "y": 2}}])


@pytest.fixture
def cache(tmp_path):
    return ListingCache(tmp_path / "catalogs")


def test_what_was_stored_comes_back_in_the_same_order(cache):
    cache.store("one", ENTRY, CATALOG)
    found = cache.load("one", ENTRY)
    assert json.dumps(found.listing.tools) == json.dumps(CATALOG.tools)
    assert found.listing == CATALOG and 0 <= found.age < 1000


@given(JSON_VALUES)
def test_any_definition_comes_back(tmp_path_factory, value):
    cache = ListingCache(tmp_path_factory.mktemp("catalogs"))
    cache.store("one", {}, UpstreamListing({}, "", [{"name": "x", "inputSchema": value}]))
    found = cache.load("one", {})
    assert found is not None and found.listing is not None
    assert found.listing.tools == [{"name": "x", "inputSchema": value}]


@pytest.mark.parametrize("change", [{"command": "node"}, {"args": []}, {"cwd": "/"}, {"env": {}}, {"url": "http://x"}])
def test_another_upstream_has_another_file(cache, change):
    cache.store("one", ENTRY, CATALOG)
    assert cache.load("one", ENTRY | change) is None
    assert cache.load("two", ENTRY) is None


def test_other_secrets_make_no_other_upstream_and_are_not_written(cache, tmp_path):
    cache.store("one", ENTRY, CATALOG)
    assert cache.load("one", ENTRY | {"env": {"TOKEN": "secret-3"}}) is not None
    (file,) = (tmp_path / "catalogs").iterdir()
    assert b"secret" not in file.read_bytes() + file.name.encode()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"{", b"[1", b'[99,0,"",null]', b"\xff\xfe", b'[1,0,"",{"about":1}]'])
def test_a_damaged_or_foreign_file_is_none(cache, tmp_path, damage):
    cache.store("one", ENTRY, CATALOG)
    (file,) = (tmp_path / "catalogs").iterdir()
    file.write_bytes(damage)
    assert cache.load("one", ENTRY) is None


def test_a_folder_that_cannot_be_written_is_told_and_no_failure(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    ListingCache(tmp_path / "file").store("one", ENTRY, CATALOG)
    assert "the list of one is not kept" in caplog.text


def test_content_lines_outlive_the_process(tmp_path):
    lines = StoredContentLines(tmp_path)
    for number in range(20):
        lines[f"key {number}"] = "a line"
    again = StoredContentLines(tmp_path)
    assert again["key 19"] == "a line" and len(again) < 20 and lines == again
    (tmp_path / "content-lines.json").write_text("no JSON")
    assert StoredContentLines(tmp_path) == {}
