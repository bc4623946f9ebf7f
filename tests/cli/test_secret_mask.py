"""What a user is shown of a file: no text that may be a secret, wherever an entry has it and however it is quoted."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.terminal.file_change import MASK, mask_secrets

SECRET = 's3cr3t/\u00fc"x'
PLACES: list[Any] = [
    {"env": {"KEY": SECRET}},
    {"headers": {"X-Any": SECRET}},
    {"http_headers": {"X-Any": SECRET}},
    {"environment": {"A": SECRET}},
    {"args": ["--api-key", SECRET]},
    {"args": [f"--token={SECRET}"]},
    {"url": f"https://x.example/mcp?k={SECRET}"},
    {"url": "https://user:s3cr3t@x.example/mcp"},
    {"url": "https://x.example/s/s3cr3t0123456789/mcp"},
    {"apiToken": SECRET},
    {"oauth": {"clientSecret": SECRET}},
    {"args": ["-c", "TOKEN=s3cr3t npx server --api-key=s3cr3t"]},
    {"args": ["-c", "cd x && PLAIN=s3cr3t npx server"]},
    {"args": ["-c", 'npx server --header "Authorization: Bearer s3cr3t"']},
    {"args": ["--header", "X-Any: s3cr3t"]},
    {"args": ["--header=Authorization: Bearer s3cr3t"]},
    {"args": ["-H", "Authorization: Bearer s3cr3t"]},
    {"args": ["Authorization:s3cr3t"]},
    {"args": ["Bearer", "s3cr3t"]},
    {"args": ["run", "-e", "PLAIN=s3cr3t", "image"]},
    {"args": ["run", "--env=PLAIN=s3cr3t", "image"]},
    {"args": ["-c", "docker run -e plain=s3cr3t image"]},
    {"args": ["mcp-remote", "https://me:s3cr3t@x.example/mcp"]},
    {"args": ["-c", "npx mcp-remote 'https://x.example/mcp?plain=s3cr3t'"]},
    {"args": ["--config", '{"apiKey": "s3cr3t"}']},
    {"args": ["-c", "bash -c \"sh -c 'TOKEN=s3cr3t npx server'\""]},
    {"args": ["-c", 'TOKEN=s3c"r3t" npx \'un', "TOKEN='s3cr3t"]},
    {"args": ["-c", "$env:TOKEN='s3cr3t'; npx server"]},
    {"args": ["-c", "export TOKEN=s3cr3t;npx server"]},
    {"args": ["-c", "x=$(TOKEN=s3cr3t cat y) `TOKEN=s3cr3t cat y`"]},
    {"args": ["-c", "npx server --api-key=$'s3cr3t' --token $\"s3cr3t\""]},
    {"args": ["mcp-remote", "https://me:s3cr3t@x.example/mcp?token=s3cr3t"]},
    {"args": ["-c", "npx mcp-remote https://me:s3cr3t@x.example/mcp?token=s3cr3t"]},
    {"command": "env TOKEN=s3cr3t npx server"},
    {"env": {"TOKEN": "s3cr3t"}, "args": ["--plain", "a-s3cr3t-b"]},
    {"headers": {"Authorization": "Bearer ${TOKEN:-s3cr3t}"}},
]


def shown_of(document: Any, suffix: str) -> str:
    written = tomlkit.dumps(document) if suffix == ".toml" else json.dumps(document)
    return mask_secrets(Path(f"x{suffix}"), written.encode())


@pytest.mark.parametrize("entry", PLACES, ids=lambda entry: json.dumps(entry)[:60])
@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_secrets_are_masked_wherever_entries_have_them(entry, suffix):
    shown = shown_of({"mcp_servers": {"a": {"command": "x", **entry, "cwd": "y"}}}, suffix)
    assert "s3cr3t" not in shown and "r3t" not in shown
    assert '"y"' in shown


@pytest.mark.parametrize(
    "args",
    [
        ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/Documents"],
        ["run", "-i", "--rm", "-p", "8080:80", "ghcr.io/github/github-mcp-server:1.2"],
        ["-c", "cd /srv && npx server --port=8080 | tee log"],
        ["mcp-remote", "https://x.example/mcp"],
        ["--api-key", "${API_KEY}", "--header", "Authorization: Bearer ${TOKEN}"],
    ],
)
def test_arguments_without_secrets_are_shown_as_they_are(args):
    assert shown_of({"args": args}, ".json") == json.dumps({"args": args})


def in_lists(words: list[str]) -> list[str]:
    return words


def in_a_shell(words: list[str]) -> list[str]:
    return ["-c", shlex.join(words)]


def in_two_shells(words: list[str]) -> list[str]:
    return ["-c", shlex.join(["sh", "-c", shlex.join(words)])]


def in_double_quotes(words: list[str]) -> list[str]:
    return ["-c", " ".join('"' + "".join(f"\\{c}" if c in '"\\$`' else c for c in word) + '"' for word in words)]


def with_backslashes(words: list[str]) -> list[str]:
    return ["-c", " ".join("".join(c if c.isalnum() else f"\\{c}" for c in word) for word in words)]


@given(
    # Letters and digits, so that what is left of a secret is found in what is shown; begun and ended by a mark.
    st.text(st.sampled_from("Zz9 \"'\\/&;$"), max_size=8).map(lambda text: f"Qq7{text}Qq7"),
    st.sampled_from(
        [
            lambda secret: ["--api-key", secret],
            lambda secret: [f"--api-key={secret}"],
            lambda secret: ["env", f"GITHUB_TOKEN={secret}", "npx"],
            lambda secret: ["docker", "run", "-e", f"plain={secret}", "image"],
            lambda secret: ["--header", f"Authorization: Bearer {secret}"],
            lambda secret: ["-H", f"X-Any: {secret}"],
        ]
    ),
    st.sampled_from([in_lists, in_a_shell, in_two_shells, in_double_quotes, with_backslashes]),
    st.sampled_from([".json", ".toml"]),
)
def test_no_secret_of_an_argument_is_shown_in_any_quoting(secret, place, quote, suffix):
    shown = shown_of({"s": {"a": {"command": "x", "args": [*quote(place(secret)), "last"]}}}, suffix)
    assert "Qq7" not in shown and MASK in shown and '"last"' in shown


def test_a_text_of_several_lines_is_masked():
    text = 'args = ["-c", """\nTOKEN=s3cr3t\nnpx server""", \'\'\'TOKEN=s3cr3t\nnpx\'\'\']\n'
    shown = mask_secrets(Path("x.toml"), text.encode())
    assert "s3cr3t" not in shown and "npx server" in shown


@given(st.text(min_size=3), st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_a_value_of_the_environment_is_masked_however_it_is_escaped(secret, ascii, indent):
    written = json.dumps({"s": {"a": {"env": {"K": secret}}}}, ensure_ascii=ascii, indent=indent)
    shown = mask_secrets(Path("x.json"), written.encode())
    assert shown == written.replace(json.dumps(secret, ensure_ascii=ascii), f'"{MASK}"')


@pytest.mark.parametrize("reference", ["${TOKEN}", "Bearer ${env:TOKEN}", "$TOKEN"])
def test_variables_are_shown(reference):
    written = json.dumps({"headers": {"Authorization": reference}})
    assert reference in mask_secrets(Path("x.json"), written.encode())


@pytest.mark.parametrize(
    "comment", ['"GITHUB_TOKEN": "ghp_abcdef",', '"args": ["--api-key=ghp_abcdef"]', "TOKEN=ghp_abcdef npx server"]
)
def test_secrets_in_comments_are_masked(comment):
    assert "ghp_abcdef" not in mask_secrets(Path("x.json"), f'{{\n  // {comment}\n  "a": 1\n}}'.encode())
