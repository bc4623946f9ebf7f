"""Which values of an entry are secret, for errors, logs and our own texts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.upstreams.secrets import UpstreamSecrets, entry_values

SECRET = "s3cret-0123456789"


def secrets(entry: dict[str, Any], *not_secret: str, **filled: str) -> frozenset[str]:
    values = entry_values(entry, filled, not_secret)
    return values.credentials | values.settings


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"GITHUB_TOKEN": SECRET}},
        {"command": "x", "env": {"GITHUB_PAT": SECRET}},
        {"command": "x", "env": {"DB_PASS": SECRET}},
        {"command": "x", "env": {"WHATEVER": SECRET}},
        {"command": "x", "env": {"DATABASE_URL": f"postgres://me:{SECRET}@host/db"}},
        {"command": "x", "env": {"HOOK": f"https://host/?sig={SECRET}"}},
        {"command": "x", "env": {"HEADERS": json.dumps({"Authorization": f"Bearer {SECRET}", "Version": "1"})}},
        {"command": "x", "env": {"DSN": f"Server=db;User ID=me;Password={SECRET};"}},
        {"command": "x", "env": {"API_KEYS": f"{'0' * 20},{SECRET}"}},
        {"command": "x", "args": ["--api-key", SECRET]},
        {"command": "x", "args": ["--api-key", SECRET, "--verbose"]},
        {"command": "x", "args": [f"--api-key={SECRET}"]},
        {"command": "x", "args": [f"postgresql://me:{SECRET}@host/db"]},
        {"command": "x", "args": [f"--url=https://host/mcp?key={SECRET}"]},
        {"command": "sh", "args": ["-c", f"TOKEN={SECRET} npx server"]},
        {"command": "sh", "args": ["-c", f"cd x;npx server --api-key='{SECRET}'"]},
        {"command": "sh", "args": ["-c", f"bash -c 'npx server --header \"Authorization: Bearer {SECRET}\"'"]},
        {"command": "docker", "args": ["run", "-e", f"SOME_VARIABLE={SECRET}", "image"]},
        {"command": "npx", "args": ["mcp-remote", "https://host/mcp", "--header", f"Authorization: Bearer {SECRET}"]},
        {"url": "http://host/mcp", "headers": {"Authorization": f"Bearer {SECRET}"}},
        {"url": "http://host/mcp", "headers": {"X-Tenant": SECRET}},
        {"url": "http://host/mcp", "headers": {"Cookie": f"a=b; session={SECRET}"}},
        {"url": f"http://host/mcp?api_key={SECRET}"},
        {"url": f"http://host/mcp?tenant={SECRET}"},
        {"url": f"http://me:{SECRET}@host/mcp"},
        {"url": f"http://{SECRET}@host/mcp"},
        {"url": f"http://host/{SECRET}/mcp"},
    ],
)
def test_secrets_are_found(entry: dict[str, Any]) -> None:
    assert SECRET in secrets(entry)


def test_a_value_is_a_secret_as_a_whole_as_well() -> None:
    whole = f"postgres://me:{SECRET}@host/db?option=parameter"
    assert {whole, SECRET, "parameter"} <= secrets({"command": "x", "env": {"DATABASE_URL": whole}})
    assert f"Bearer {SECRET}" in secrets({"url": "http://host", "headers": {"Authorization": f"Bearer {SECRET}"}})


def test_a_variable_that_is_filled_in_is_a_secret_wherever_it_stands() -> None:
    entry = {"command": "x", "args": [SECRET]}
    assert SECRET not in secrets(entry)
    assert SECRET in secrets(entry, VARIABLE=SECRET)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x"},
        {"url": "http://host/mcp"},
        {"command": "x", "args": ["--folder", SECRET, "-v"], "env": {"HOME": SECRET, "LC_ALL": SECRET}},
        {"command": "x", "args": ["--api-key"]},
        {"url": "http://host/mcp", "headers": {"Accept": SECRET, "user-agent": SECRET}},
    ],
)
def test_what_is_no_secret_is_left_alone(entry: dict[str, Any]) -> None:
    assert SECRET not in secrets(entry)


@pytest.mark.parametrize(
    "value",
    ["production", "Staging", "localhost", "true", "utf-8", "8080", "https://api.example.com", str(Path(__file__))],
)
def test_ordinary_values_are_no_secrets(value: str) -> None:
    assert secrets({"command": "x", "env": {"ANY": value}}) == frozenset()


def test_the_operator_names_what_is_no_secret() -> None:
    entry = {
        "url": "http://host/mcp?tenant=tenant-7777&key=key-88888",
        "headers": {"X-Org": "org-99999"},
        "env": {"APP_REGION": "region-1111", "APP_ZONE": "zone-22222", "OTHER": "other-3333"},
    }
    assert secrets(entry, "tenant", "x-org", "APP_*") == {"key-88888", "other-3333"}


def test_what_is_filled_into_a_value_that_is_no_secret_is_none() -> None:
    assert secrets({"command": "x", "env": {"REGION": "region-1111"}}, "REGION", SHELL_REGION="region-1111") == set()


@pytest.mark.parametrize(
    ("name", "value", "is_credential"),
    [
        ("PASSWORD", "hunter", True),
        ("DB_PASS", "hunter", True),
        ("API_KEY", "abc-12345", True),
        ("keyring:x", "hunter", True),
        ("ANY", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", True),
        ("ANY", "x7&kQ+2!", True),
        ("GITHUB_TOOLSETS", "issues", False),
        ("AUTH_MODE", "browser", False),
        ("TOKEN_TYPE", "opaque", False),
        ("AWS_REGION", "eu-central-1", False),
    ],
)
def test_credentials_are_told_from_settings(name: str, value: str, is_credential: bool) -> None:
    values = entry_values({"command": "x"}, {name: value})
    assert (value in values.credentials, value in values.settings) == (is_credential, not is_credential)


def test_a_setting_that_is_a_word_is_removed_where_it_stands_alone() -> None:
    found = UpstreamSecrets(entry_values({"command": "x", "env": {"TOOLSETS": "issues"}}))
    assert found.redact("list_issues, github.issues: toolset 'issues' failed") == (
        "list_issues, github.issues: toolset '...' failed"
    )
    assert found.credentials.redact("All about issues") == "All about issues"


def test_the_names_of_servers_are_never_destroyed() -> None:
    entry = {"command": "x", "env": {"SERVICE_TOKEN": "github", "OTHER": "notes-1"}}
    found = UpstreamSecrets(entry_values(entry), ["GitHub", "my-notes-1"])
    assert found.redact("github and my-notes-1 failed") == "github and my-notes-1 failed"


def test_learnt_tokens_are_secrets_and_the_oldest_are_forgotten() -> None:
    found = UpstreamSecrets(entry_values({"command": "x"}))
    found.learn("first-token-0", None, "")
    assert found.redact("first-token-0") == found.credentials.redact("first-token-0") == "..."
    for at in range(256):
        found.learn(f"token-{at:04}")
    assert found.redact("first-token-0 token-0255") == "first-token-0 ..."


TEXTS = st.text(max_size=30) | st.just("a://b:c@[d") | st.just('{"a": [{"b": 1}]}')
VALUES = TEXTS | st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS)


@given(st.dictionaries(st.sampled_from(["args", "env", "headers", "url", "command"]), VALUES))
def test_an_entry_of_any_shape_is_read(entry: dict[str, Any]) -> None:
    entry_values(entry)


@given(st.from_regex(r"[a-z0-9]{3,20}-[0-9]{3,9}", fullmatch=True), st.sampled_from(["ANY", "X_KEY", "a b"]))
def test_every_value_from_six_characters_on_is_taken_out(value: str, name: str) -> None:
    for entry in ({"env": {name: value}}, {"headers": {name: value}}, {"url": f"https://host/?{name}={value}"}):
        assert UpstreamSecrets(entry_values(entry)).redact(f"a{value}b {value}") == "a...b ..."
