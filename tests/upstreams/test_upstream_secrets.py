"""Which parts of an entry are secret, for logs and errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.upstreams.upstream_secrets import entry_secrets

SECRET = "s3cret-0123456789"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"GITHUB_TOKEN": SECRET}},
        {"command": "x", "args": ["--api-key", SECRET]},
        {"command": "x", "args": ["--api-key", SECRET, "--verbose"]},
        {"command": "x", "args": [f"--api-key={SECRET}"]},
        {"command": "x", "args": [f"postgresql://me:{SECRET}@host/db"]},
        {"url": "http://host/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {"url": f"http://host/mcp?api_key={SECRET}"},
        {"url": f"http://me:{SECRET}@host/mcp"},
    ],
)
def test_secrets_are_found(entry):
    assert SECRET in set(entry_secrets(entry))


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x"},
        {"url": "http://host/mcp"},
        {"command": "x", "args": ["--folder", SECRET, "-v"], "env": {"HOME": SECRET}},
        {"command": "x", "args": ["--api-key"]},
    ],
)
def test_what_is_no_secret_is_left_alone(entry):
    assert SECRET not in set(entry_secrets(entry))


@given(st.dictionaries(st.sampled_from(["args", "env", "headers", "url", "command"]), st.text() | st.lists(st.text())))
def test_an_entry_of_any_shape_is_read(entry: dict[str, Any]):
    list(entry_secrets(entry))
