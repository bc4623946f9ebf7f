"""`serve --auth`: each form makes what it says, and a mistake is one sentence."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from deltamcp import ConfigurationError, OpenAccess, PresenceOnly, ResourceServer, StaticTokens
from deltamcp.auth.introspection import IntrospectionVerifier
from deltamcp.auth.jwt_verifier import JwtVerifier
from deltamcp.auth.static_tokens import make_token
from deltamcp.cli.serving import network_options
from tests.support.command_line import assert_one_sentence, run

RESOURCE = ["--resource", "https://tools.example/mcp"]
JWT = ["--auth", "https://issuer.example", *RESOURCE]
ASKING = ["--auth", "introspect:https://issuer.example/i", *RESOURCE, "--issuer", "https://issuer.example"]


def make(*words: str, host: str | None = "0.0.0.0") -> Any:
    hosts = () if host is None else (host,)
    parser = argparse.ArgumentParser()
    network_options.add_auth_options(parser)
    return network_options.make_authenticator(network_options.read_auth_options(parser.parse_args(words), *hosts))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DELTA_MCP_INTROSPECTION_CLIENT_ID", "tools")
    monkeypatch.setenv("DELTA_MCP_INTROSPECTION_CLIENT_SECRET", "secret")
    monkeypatch.setenv("DELTA_MCP_TOKENS", make_token("robot")[1])
    (tmp_path / "tokens").write_text(make_token("robot")[1])
    (tmp_path / "tokens").chmod(0o600)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["--auth", "open"], OpenAccess),
        (["--auth", "presence"], PresenceOnly),
        (["--auth", "tokens"], StaticTokens),
        (["--auth", "tokens:tokens"], StaticTokens),
        (JWT, ResourceServer),
        (["--auth", "http://localhost:9000", *RESOURCE], ResourceServer),
        (ASKING, ResourceServer),
    ],
)
def test_each_form_makes_its_authenticator(words: list[str], kind: type) -> None:
    assert type(make(*words)) is kind


def test_loopback_needs_none() -> None:
    assert make(host="127.0.0.1") is None


def test_options_reach_the_resource_server() -> None:
    words = ["--jwks-url", "https://issuer.example/k", "--scope", "read", "--step-up", "write", "--algorithm", "ES256"]
    auth = make(*JWT, *words, "--audience", "api://a", "--audience", "api://b")
    document = json.loads(auth.documents["/.well-known/oauth-protected-resource/mcp"])
    assert document["scopes_supported"] == ["read", "write"]
    assert document["authorization_servers"] == ["https://issuer.example"]
    verifier = auth._verifier
    assert isinstance(verifier, JwtVerifier)
    assert verifier._algorithms == {"ES256"}
    assert verifier._keys._jwks_url == "https://issuer.example/k"
    assert verifier._rules._step_up == {"write"}
    assert verifier._rules._audiences == {"api://a", "api://b"}
    asking = make(*ASKING, "--only-for-this-resource")._verifier
    assert isinstance(asking, IntrospectionVerifier)
    assert asking._options.only_for_this_resource


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--auth"),
        (["--auth", "closed"], "--auth takes"),
        (["--auth", "introspect:"], "--auth takes"),
        (["--auth", "issuer.example"], "--auth takes"),
        (["--auth", "tokens:nowhere"], "nowhere"),
        (["--auth", "open", "--scope", "read"], "need --auth https"),
        (["--auth", "tokens", *RESOURCE], "need --auth https"),
        (["--auth", "https://issuer.example"], "--resource URL"),
        (["--auth", "http://issuer.example", *RESOURCE], "issuer must be an https URL"),
        ([*JWT, "--algorithm", "HS256"], "HS256"),
        ([*JWT, "--issuer", "https://issuer.example"], "introspect"),
        ([*JWT, "--only-for-this-resource"], "introspect"),
        ([*ASKING[:2], *RESOURCE], "--issuer URL"),
        (ASKING[:2] + ASKING[4:], "--resource URL"),
        ([*ASKING, "--jwks-url", "https://issuer.example/k"], "belong to --auth https"),
        ([*ASKING, "--algorithm", "ES256"], "belong to --auth https"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as refused:
        make(*words)
    assert "\n" not in str(refused.value)


def test_stdio_has_no_auth() -> None:
    assert make(host=None) is None
    with pytest.raises(ConfigurationError, match="--auth needs --http"):
        make("--auth", "open", host=None)


def test_introspection_needs_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELTA_MCP_INTROSPECTION_CLIENT_SECRET")
    with pytest.raises(ConfigurationError, match="DELTA_MCP_INTROSPECTION_CLIENT_SECRET"):
        make(*ASKING)


def test_serve_refuses_an_open_port_that_nobody_asked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.py").write_text("from deltamcp import DeltaServer\nserver = DeltaServer('notes')\n")
    for words in ([], ["--reload"], ["--auth", "nobody"]):
        done = run("serve", "notes.py", "--http", "0.0.0.0:0", *words, cwd=tmp_path)
        assert_one_sentence(done, 2)
        assert "--auth" in done.err
