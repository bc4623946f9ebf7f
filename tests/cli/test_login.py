"""`delta-mcp login` and `logout`, and what the other verbs do at a server that wants a login."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from deltamcp import DeltaServer
from deltamcp.auth.static_tokens import StaticTokens, make_token
from tests.support.command_line import PipedRun, TerminalRun, assert_one_sentence, run, run_on_terminal
from tests.support.fake_http import Fake, serve_fake
from tests.support.http_server import serve_http
from tests.support.login_issuer import serve_login_issuer
from tests.support.paths import FORKED_PYTHON

BROWSER = """
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=60).read()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own, no keyring, and a browser whose user agrees at once."""
    browser = tmp_path / "browser.py"
    browser.write_text(BROWSER)
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "BROWSER": f"{FORKED_PYTHON} {browser} %s",
        "DELTA_MCP_TOKEN": "",
    }


async def say(*words: str, tmp_path: Path, **environment: str) -> PipedRun:
    return await asyncio.to_thread(lambda: run(*words, cwd=tmp_path, stdin=b"", **environment))


async def type_in(*words: str, typed: bytes, tmp_path: Path, **environment: str) -> TerminalRun:
    return await asyncio.to_thread(run_on_terminal, *words, cwd=tmp_path, typed=typed, **environment)


def stored_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state" / "delta-mcp" / "logins").glob("*.json"))


async def test_a_login_serves_the_other_verbs_until_the_logout(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        done = await say("login", fake.url, tmp_path=tmp_path, **environment)
        assert (done.code, done.out) == (0, f"Logged in to {fake.url}\n"), done.err
        assert f"{issuer.url}/authorize?" in done.err
        (file,) = stored_files(tmp_path)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        called = await say("call", fake.url, "echo", tmp_path=tmp_path, **environment)
        assert called.code == 0, called.err
        issuer.accepted.clear()
        assert (await say("list", fake.url, tmp_path=tmp_path, **environment)).code == 0, "it is refreshed"
        again = await say("login", "--json", fake.url, tmp_path=tmp_path, **environment)
        assert json.loads(again.out) == {"server": fake.url}
        assert len(issuer.of("/authorize")) == 1

        ended = await say("logout", fake.url, tmp_path=tmp_path, **environment)
        assert (ended.code, ended.out) == (0, f"Logged out of {fake.url}\n")
        assert stored_files(tmp_path) == []
        ended = await say("logout", fake.url, tmp_path=tmp_path, **environment)
        assert ended.out == f"There was no login at {fake.url}\n"
        assert_one_sentence(await say("list", fake.url, tmp_path=tmp_path, **environment), 3)


async def test_a_logout_that_the_issuer_does_not_hear_of_says_so(tmp_path, environment):
    async with serve_fake(Fake()) as fake:
        async with serve_login_issuer() as issuer:
            issuer.protect(fake, scope="read")
            assert (await say("login", fake.url, tmp_path=tmp_path, **environment)).code == 0
        ended = await say("logout", fake.url, tmp_path=tmp_path, **environment)
    assert (ended.code, ended.out) == (0, f"Logged out of {fake.url}\n")
    assert ended.err.startswith("delta-mcp: The login is forgotten here, and may still work:")
    assert stored_files(tmp_path) == []


@pytest.mark.parametrize("words", [("call", "{url}", "buy"), ("list", "{url}"), ("bench", "{url}")])
async def test_without_a_terminal_one_sentence_says_what_to_do(tmp_path, environment, words):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        done = await say(*(word.format(url=fake.url) for word in words), tmp_path=tmp_path, **environment)
        assert_one_sentence(done, 3)
        assert f"delta-mcp login {fake.url}" in done.err
        assert issuer.of("/register") == [] and fake.runs("buy") == 0


async def test_a_server_that_has_only_static_tokens_is_said_to_want_one(tmp_path, environment):
    token, line = make_token("ann")
    (tmp_path / "tokens").write_text(line)
    async with serve_http(DeltaServer("guarded"), auth=StaticTokens(tmp_path / "tokens")) as url:
        done = await say("list", url, tmp_path=tmp_path, **environment)
        assert_one_sentence(done, 3)
        assert "give one by --token or DELTA_MCP_TOKEN" in done.err
        typed = await type_in("list", url, typed=b"y\n", tmp_path=tmp_path, **environment)
        assert typed.code == 3 and "Log in now?" not in typed.text
        assert (await say("list", url, "--token", token, tmp_path=tmp_path, **environment)).code == 0


async def test_at_a_terminal_the_login_is_offered_and_the_verb_run_afterwards(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read", call_scope="write")
        done = await type_in("call", fake.url, "buy", typed=b"n\n", tmp_path=tmp_path, **environment)
        assert done.code == 3 and issuer.of("/authorize") == []
        done = await type_in("call", fake.url, "buy", typed=b"y\n", tmp_path=tmp_path, **environment)
        assert done.code == 3 and "asks for the scopes read." in done.text, "the server wants more for the tool"
        assert f"delta-mcp login {fake.url} --scope=write" in done.text and len(issuer.of("/authorize")) == 1
        done = await type_in("call", fake.url, "buy", typed=b"y\n", tmp_path=tmp_path, **environment)
        assert done.code == 0 and "asks for the scopes write." in done.text, done.text
        assert fake.runs("buy") == 1
        assert [asked.query["scope"] for asked in issuer.of("/authorize")] == ["read", "read write"]


@pytest.mark.parametrize("verb", ["list", "login"])
async def test_one_command_opens_one_page_whatever_the_server_wants(tmp_path, environment, verb):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        wanted = iter(range(100))

        async def want_more(asked, wire) -> None:
            where = next(path for path in issuer.routes if path.startswith("/resource"))
            scope = f'scope="more{next(wanted)}", resource_metadata="{issuer.url}{where}"'
            await wire.answer(403, www_authenticate=f'Bearer error="insufficient_scope", {scope}')

        fake.always("tools/list", want_more)
        done = await type_in(verb, fake.url, typed=b"y\ny\ny\n", tmp_path=tmp_path, **environment)
        assert done.code == 3 and "delta-mcp login" in done.text, done.text
        assert len(issuer.of("/authorize")) == 1


async def test_an_audit_opens_no_page_and_names_the_servers_that_want_a_login(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as notes, serve_fake(Fake()) as mail:
        for fake in (notes, mail):
            issuer.protect(fake, scope="read")
        entries = {"mcpServers": {"notes": {"url": notes.url}, "mail": {"url": mail.url}}}
        (tmp_path / "mcp.json").write_text(json.dumps(entries))
        done = await type_in("audit", "mcp.json", typed=b"y\ny\n", tmp_path=tmp_path, **environment)
        said = " ".join(done.text.split())
        assert all(f"delta-mcp login {fake.url} --scope=read" in said for fake in (notes, mail)), done.text
        assert issuer.asked == []


async def test_a_client_with_a_secret_names_its_issuer(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        secret = {**environment, "DELTA_MCP_CLIENT_SECRET": "s3cret"}
        done = await say("login", fake.url, "--client-id", "mine", tmp_path=tmp_path, **secret)
        assert_one_sentence(done, 2)
        assert "--issuer" in done.err and issuer.asked == []


async def test_a_resource_above_the_server_is_named_once(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        above = fake.url.removesuffix("/mcp")
        issuer.protect(fake, resource=above)
        done = await say("login", fake.url, tmp_path=tmp_path, **environment)
        assert_one_sentence(done, 3)
        assert "--resource" in done.err and issuer.of("/authorize") == []
        other = await say("login", fake.url, "--resource", "https://other.example", tmp_path=tmp_path, **environment)
        assert_one_sentence(other, 2)
        done = await say("login", fake.url, "--resource", above, tmp_path=tmp_path, **environment)
        assert done.code == 0, done.err
        issuer.accepted.clear()
        assert (await say("list", fake.url, tmp_path=tmp_path, **environment)).code == 0
        assert [form["resource"] for form in issuer.grants("refresh_token")] == [above]


async def test_a_login_at_the_terminal_keeps_the_headers_of_an_entry(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        entry = {"mcpServers": {"shop": {"url": fake.url, "headers": {"X-Team": "blue"}}}}
        (tmp_path / "mcp.json").write_text(json.dumps(entry))
        done = await type_in("list", "mcp.json#shop", typed=b"y\n", tmp_path=tmp_path, **environment)
        assert done.code == 0, done.text
        posted = [asked for asked in fake.asked if asked.verb == "POST"]
        assert len(posted) > 2
        assert {asked.headers.get("x-team") for asked in posted} == {"blue"}


async def test_a_token_that_is_given_is_used_instead(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.accepted["given"] = ""
        assert (await say("list", fake.url, "--token", "given", tmp_path=tmp_path, **environment)).code == 0
        wrong = await say("list", fake.url, "--token", "wr0ng", tmp_path=tmp_path, **environment)
        assert_one_sentence(wrong, 3)
        header = await say("list", fake.url, "--header", "Authorization: x", tmp_path=tmp_path, **environment)
        assert_one_sentence(header, 3)
        assert issuer.asked == []


async def test_a_server_that_wants_no_login_says_so(tmp_path, environment):
    async with serve_fake(Fake()) as fake:
        done = await say("login", fake.url, tmp_path=tmp_path, **environment)
        assert_one_sentence(done, 2)
        assert "wants no login" in done.err


async def test_a_login_needs_a_server(tmp_path, environment):
    assert_one_sentence(await say("login", tmp_path=tmp_path, **environment), 2)


async def test_a_password_in_the_address_is_not_shown(tmp_path, environment):
    async with serve_fake(Fake()) as fake:
        url = fake.url.replace("//", "//me:s3cret@")
        for verb in ("login", "logout"):
            done = await say(verb, url, tmp_path=tmp_path, **environment)
            assert fake.url in done.out + done.err and "s3cret" not in done.out + done.err


@pytest.mark.parametrize("verb", ["login", "logout"])
async def test_a_program_has_no_logins(tmp_path, environment, verb):
    done = await say(verb, "cat", tmp_path=tmp_path, **environment)
    assert_one_sentence(done, 2)


async def test_a_client_that_is_registered_already_logs_in_with_its_secret(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        environment["DELTA_MCP_CLIENT_SECRET"] = "s3cret"
        issuer.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        words = ("login", fake.url, "--client-id", "mine", "--issuer", issuer.url, "--scope", "a", "--scope", "b")
        done = await say(*words, tmp_path=tmp_path, **environment)
        assert done.code == 0 and "s3cret" not in done.out + done.err
        (asked,) = issuer.of("/authorize")
        assert (asked.query["client_id"], asked.query["scope"]) == ("mine", "a b")
        del environment["DELTA_MCP_CLIENT_SECRET"]
        issuer.accepted.clear()
        assert (await say("list", fake.url, tmp_path=tmp_path, **environment)).code == 0
        assert issuer.grants("refresh_token")[0]["client_secret"] == "s3cret"


async def test_a_login_on_another_device(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["device_authorization_endpoint"] = f"{issuer.url}/device"
        done = await say("login", "--device", fake.url, tmp_path=tmp_path, **environment)
        assert done.code == 0, done.err
        assert f"Log in at {issuer.url}/activate with the code WDJB-MJHT" in done.err


async def test_without_a_browser_the_device_is_used_if_the_issuer_offers_it(tmp_path, environment):
    headless = {**environment, "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["device_authorization_endpoint"] = f"{issuer.url}/device"
        done = await say("login", fake.url, tmp_path=tmp_path, **headless)
        assert done.code == 0 and "WDJB-MJHT" in done.err
        assert issuer.of("/authorize") == []


async def test_a_hostile_server_cannot_write_to_the_terminal(tmp_path, environment):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        for fields in (
            {"authorization_endpoint": "javascript:\x1b[31malert(1)"},
            {"authorization_endpoint": "https://as.example/\u202e"},
            {"issuer": "\x1b]0;title\x07"},
        ):
            issuer.metadata = fields
            done = await say("login", fake.url, tmp_path=tmp_path, **environment)
            assert_one_sentence(done, 3)
            assert "\x1b" not in done.err and "\u202e" not in done.err
