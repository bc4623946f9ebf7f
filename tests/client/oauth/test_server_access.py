"""The whole flow, between the client and an authorization server that misbehaves on demand."""

import asyncio
import base64
import io
import traceback
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from rich.console import Console

from deltamcp import ConfigurationError, OAuth, UnauthorizedError, connect
from deltamcp.client.oauth import grants
from deltamcp.client.oauth.oauth import LoginPage, LoginRequiredError
from deltamcp.client.oauth.server_access import ServerAccess, server_key
from deltamcp.client.oauth.token_storage import MemoryStorage, TokenStorage, UserStorage, decode_record
from tests.support.fake_http import Fake, serve_fake
from tests.support.login_issuer import METHODS, IssuerRequest, LoginIssuer, as_json, serve_login_issuer


def make_oauth(fake_issuer: LoginIssuer, storage: TokenStorage | None = None, **options: Any) -> OAuth:
    usual = {"open_page": fake_issuer.browse, "storage": storage or MemoryStorage(), "login_seconds": 30}
    return OAuth(**{**usual, **options})


@pytest.mark.parametrize("modern", [True, False])
async def test_a_call_that_is_refused_is_made_after_the_login(modern):
    async with serve_login_issuer() as issuer, serve_fake(Fake(modern=modern)) as fake:
        issuer.protect(fake, scope="read")
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("buy")
        assert fake.runs("buy") == 1
        assert [asked.query["scope"] for asked in issuer.of("/authorize")] == ["read"]
        assert [asked.query["resource"] for asked in issuer.of("/authorize")] == [fake.url]
        assert [form["resource"] for form in issuer.grants("authorization_code")] == [fake.url]
        assert len(issuer.of("/register")) == 1


async def test_a_login_is_stored_and_used_by_the_next_client():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        for asks_user in (True, False):
            async with connect(fake.url, auth=make_oauth(issuer, storage, asks_user=asks_user)) as client:
                await client.call("echo")
        assert len(issuer.of("/authorize")) == 1


async def test_a_program_that_asks_no_user_is_told_what_is_missing():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        with pytest.raises(LoginRequiredError) as caught:
            async with connect(fake.url, auth=make_oauth(issuer, asks_user=False)):
                pass
        assert caught.value.server_url == fake.url and 'scope="read"' in caught.value.challenge
        assert issuer.asked == [], "nobody is registered, and nothing fetched"


async def test_a_header_of_the_callers_own_is_sent_instead_of_any_token():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        with pytest.raises(UnauthorizedError):
            async with connect(fake.url, auth=make_oauth(issuer), headers={"Authorization": "Basic x"}):
                pass
        assert issuer.asked == []
        assert {asked.headers["authorization"] for asked in fake.asked} == {"Basic x"}


# Refresh


async def test_many_calls_that_are_refused_at_once_refresh_once():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("echo")
            issuer.accepted.clear()
            await asyncio.gather(*(client.call("buy") for _ in range(20)))
        assert fake.runs("buy") == 20
        assert len(issuer.grants("refresh_token")) == 1
        assert len(issuer.of("/authorize")) == 1


async def test_many_calls_that_need_the_user_ask_once():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.token_fields = {"refresh_token": None}
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("echo")
            issuer.accepted.clear()
            await asyncio.gather(*(client.call("buy") for _ in range(20)))
        assert fake.runs("buy") == 20
        assert len(issuer.of("/authorize")) == 2


async def test_two_clients_never_use_a_refresh_token_twice():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with (
            connect(fake.url, auth=make_oauth(issuer, storage)) as one,
            connect(fake.url, auth=make_oauth(issuer, storage)) as other,
        ):
            for _ in range(3):
                issuer.accepted.clear()
                await asyncio.gather(one.call("echo"), other.call("echo"), one.call("echo"), other.call("echo"))
        used = [form["refresh_token"] for form in issuer.grants("refresh_token")]
        assert len(used) == len(set(used)) == 3
        assert len(issuer.of("/authorize")) == 1


async def test_a_call_that_is_cancelled_while_it_refreshes_does_not_lose_the_login():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            given, asked_for = asyncio.Event(), asyncio.Event()
            usual = issuer.routes["/token"]

            async def hold_back(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
                answer = await usual(asked)
                asked_for.set()
                await given.wait()
                return answer

            issuer.routes["/token"] = hold_back
            issuer.accepted.clear()
            call = asyncio.create_task(client.call("buy"))
            await asked_for.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            given.set()
            await client.call("buy")
        assert len(issuer.grants("refresh_token")) == 1 == len(issuer.of("/authorize"))


async def test_a_refresh_without_a_new_refresh_token_keeps_the_old_one():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            (kept,) = issuer.refresh_tokens
            issuer.token_fields = {"refresh_token": None}
            for _ in range(2):
                issuer.accepted.clear()
                issuer.refresh_tokens[kept] = ""
                await client.call("echo")
        assert [form["refresh_token"] for form in issuer.grants("refresh_token")] == [kept, kept]
        assert all(form["resource"] == fake.url for form in issuer.grants("refresh_token"))


async def test_a_refresh_that_is_refused_leads_to_the_login():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            issuer.accepted.clear()
            issuer.refresh_tokens.clear()
            await client.call("buy")
        assert fake.runs("buy") == 1
        assert len(issuer.of("/authorize")) == 2
        assert len(issuer.of("/register")) == 1, "the registration is used again"


async def test_a_client_that_the_issuer_has_forgotten_registers_again():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            issuer.accepted.clear()
            usual = issuer.routes["/token"]

            async def forget(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
                issuer.routes["/token"] = usual
                return as_json({"error": "invalid_client"}, 401)

            issuer.routes["/token"] = forget
            await client.call("echo")
        assert len(issuer.of("/register")) == 2


async def test_a_registration_that_the_issuer_has_forgotten_is_not_tried_again():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        usual = issuer.routes["/token"]

        async def forget(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            return as_json({"error": "invalid_client"}, 401)

        async with connect(fake.url, auth=make_oauth(issuer, storage)):
            issuer.accepted.clear()
            issuer.refresh_tokens.clear()
        issuer.routes["/token"] = forget
        with pytest.raises(UnauthorizedError, match="invalid_client"):
            async with connect(fake.url, auth=make_oauth(issuer, storage)):
                pass
        issuer.routes["/token"] = usual
        async with connect(fake.url, auth=make_oauth(issuer, storage)) as client:
            await client.call("echo")
        assert len({asked.query["client_id"] for asked in issuer.of("/authorize")}) > 1


async def test_an_issuer_that_is_down_does_not_cost_the_login():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer, storage)) as client:
            issuer.accepted.clear()
            usual = issuer.routes["/token"]

            async def fail(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
                return 503, {}, b""

            issuer.routes["/token"] = fail
            with pytest.raises(UnauthorizedError, match="HTTP 503"):
                await client.call("echo")
            issuer.routes["/token"] = usual
            await client.call("echo")
        assert len(issuer.of("/authorize")) == 1


async def test_a_server_that_refuses_only_the_stream_of_messages_is_used_without_it():
    async with serve_login_issuer() as issuer, serve_fake(Fake(modern=False)) as fake:
        issuer.protect(fake)
        for method in METHODS:
            if method != "GET":
                fake.always(method, fake.answer)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("echo")
        assert issuer.asked == [] and fake.of("GET")


async def test_a_server_that_names_nobody_to_log_in_at_is_told():
    async with serve_fake(Fake()) as fake:

        async def refuse(asked, wire) -> None:
            await wire.answer(404 if asked.path != "/mcp" else 401)

        for method in METHODS:
            fake.always(method, refuse)
        with pytest.raises(UnauthorizedError, match="does not say where to log in"):
            async with connect(fake.url, auth=OAuth(storage=MemoryStorage())):
                pass


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_server_of_an_earlier_revision_is_its_own_authorization_server(slash):
    async with serve_login_issuer() as issuer, serve_fake(Fake(modern=False)) as fake:
        base = fake.url.removesuffix("/mcp")
        issuer.metadata["issuer"] = base + slash
        issuer.redirect_with["iss"] = base + slash
        issuer.protect(fake)
        usual = fake._always["tools/list"]

        async def answer(asked, wire) -> None:
            if asked.path == "/mcp":
                token = asked.headers.get("authorization", "").removeprefix("Bearer ")
                await (usual(asked, wire) if token in issuer.accepted else wire.answer(401))
            elif asked.path == "/.well-known/oauth-authorization-server":
                status, _, body = await issuer.routes[asked.path](IssuerRequest("GET", asked.path, {}, {}, b""))
                await wire.answer(status, body)
            else:
                await wire.answer(404)

        for method in METHODS:
            fake.always(method, answer)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("echo")


# Scopes


async def test_a_step_up_keeps_what_was_granted_before():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read", call_scope="write")
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            await client.call("buy")
            await client.call("buy")
        assert fake.runs("buy") == 2
        assert [asked.query["scope"] for asked in issuer.of("/authorize")] == ["read", "read write"]
        assert len(issuer.of("/register")) == 2, "the first registration is for the first scope only"


async def test_a_step_up_that_does_not_help_ends():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, call_scope="admin")
        issuer.token_fields = {"scope": "less"}
        usual = issuer.routes["/token"]

        async def grant_less(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            answer = await usual(asked)
            issuer.accepted = dict.fromkeys(issuer.accepted, "less")
            return answer

        issuer.routes["/token"] = grant_less
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            for _ in range(3):
                with pytest.raises(UnauthorizedError, match="allows more"):
                    await client.call("buy")
        assert fake.runs("buy") == 0
        assert len(issuer.of("/authorize")) == 2, "one for the token, one for the scope"


async def test_a_server_that_always_wants_something_else_ends():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        async with connect(fake.url, auth=make_oauth(issuer)) as client:
            count = 0

            async def want_more(asked, wire) -> None:
                nonlocal count
                count += 1
                challenge = f'Bearer error="insufficient_scope", scope="s{count}"'
                await wire.answer(403, www_authenticate=challenge + f', resource_metadata="{issuer.url}{place}"')

            place = next(path for path in issuer.routes if path.startswith("/resource"))
            fake.always("tools/call", want_more)
            with pytest.raises(UnauthorizedError):
                await client.call("buy")
        assert len(issuer.of("/authorize")) == 3, "the token, and two more"


async def test_a_server_that_refuses_every_token_asks_the_user_once():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.token_fields = {"refresh_token": None}
        usual = issuer.routes["/token"]

        async def give_a_wrong_one(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            answer = await usual(asked)
            issuer.accepted.clear()
            return answer

        issuer.routes["/token"] = give_a_wrong_one
        with pytest.raises(UnauthorizedError):
            async with connect(fake.url, auth=make_oauth(issuer)):
                pass
        assert len(issuer.of("/authorize")) == 1


@pytest.mark.parametrize(
    ("scope", "resource", "own", "known", "expected"),
    [
        ("a", {"scopes_supported": ["b", "c"]}, [], None, "a"),
        (None, {"scopes_supported": ["b", "c"]}, [], None, "b c"),
        (None, {}, [], None, None),
        (None, {}, [], ["offline_access"], None),
        ("a", {}, ["x"], ["offline_access", "a"], "a x offline_access"),
        ("a", {}, [], ["a"], "a"),
    ],
)
async def test_scopes_are_chosen_as_the_specification_says(scope, resource, own, known, expected):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope, **resource)
        issuer.metadata["scopes_supported"] = known
        async with connect(fake.url, auth=make_oauth(issuer, scopes=own)):
            pass
        assert [asked.query.get("scope") for asked in issuer.of("/authorize")] == [expected]


async def test_a_stored_login_for_less_is_not_enough_for_a_program_that_wants_more():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, "a")
        for own in ([], ["b"], ["a"]):
            async with connect(fake.url, auth=make_oauth(issuer, storage, scopes=own)):
                pass
        assert [asked.query["scope"] for asked in issuer.of("/authorize")] == ["a", "a b"]


# Who the client is


async def test_the_order_of_registration():
    document = "https://app.example/client.json"
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        rows: list[tuple[bool | None, dict[str, Any], str]] = [
            (True, {"client_id": "given", "client_metadata_url": document}, "given"),
            (True, {"client_metadata_url": document}, document),
            (None, {"client_metadata_url": document}, "client-"),
            (True, {}, "client-"),
        ]
        for known, options, expected in rows:
            issuer.metadata["client_id_metadata_document_supported"] = known
            async with connect(fake.url, auth=make_oauth(issuer, **options)):
                pass
            assert issuer.of("/authorize")[-1].query["client_id"].startswith(expected)
        assert len(issuer.of("/register")) == 2
        asked = issuer.of("/register")[0].json
        assert asked["application_type"] == "native" and "refresh_token" in asked["grant_types"]


async def test_an_issuer_at_which_nobody_can_register_is_told():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["registration_endpoint"] = None
        with pytest.raises(UnauthorizedError, match="client id"):
            async with connect(fake.url, auth=make_oauth(issuer)):
                pass


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        (None, "basic"),
        (["client_secret_post"], "post"),
        (["none", "client_secret_post", "client_secret_basic"], "post"),
        (["client_secret_basic", "client_secret_post"], "basic"),
        (["none"], "basic"),
    ],
)
async def test_a_secret_is_sent_as_the_issuer_wants_it(methods, expected):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["token_endpoint_auth_methods_supported"] = methods
        async with connect(fake.url, auth=make_oauth(issuer, client_id="a:b", client_secret="c d", issuer=issuer.url)):
            pass
        (asked,) = issuer.of("/token")
        pair = base64.b64encode(b"a%3Ab:c%20d").decode()
        assert asked.headers.get("authorization") == (f"Basic {pair}" if expected == "basic" else None)
        assert ("client_secret" in asked.form) is (expected == "post")


@pytest.mark.parametrize("method", ["private_key_jwt", "tls_client_auth", ["none"], None])
async def test_a_registration_by_a_method_that_the_client_does_not_have_is_of_a_public_client(method):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)

        async def register(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            return as_json({"client_id": "x", "client_secret": "no key", "token_endpoint_auth_method": method}, 201)

        issuer.routes["/register"] = register
        async with connect(fake.url, auth=make_oauth(issuer)):
            pass
        (asked,) = issuer.of("/token")
        assert asked.form["client_id"] == "x" and not {"client_secret", "client_assertion"} & set(asked.form)
        assert "authorization" not in asked.headers


async def test_a_key_that_is_none_is_told_without_showing_it():
    key = "-".join("s3cret")
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        with pytest.raises(ConfigurationError, match="private key in PEM") as caught:
            async with connect(fake.url, auth=make_oauth(issuer, client_id="x", client_key=key, issuer=issuer.url)):
                pass
        assert key not in "".join(traceback.format_exception(caught.value))


async def test_a_client_id_is_used_at_its_own_issuer_only():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        auth = make_oauth(issuer, client_id="x", issuer="https://as.example")
        with pytest.raises(UnauthorizedError, match="does not trust"):
            async with connect(fake.url, auth=auth):
                pass
        assert issuer.of("/authorize") == []


async def test_when_the_issuer_changes_nothing_of_the_old_one_goes_to_the_new_one():
    async with serve_login_issuer() as old, serve_login_issuer() as new, serve_fake(Fake()) as fake:
        old.protect(fake)
        async with connect(fake.url, auth=make_oauth(old, open_page=new.browse)) as client:
            await client.call("echo")
            new.protect(fake)
            await client.call("buy")
        assert fake.runs("buy") == 1
        assert old.grants("refresh_token") == []
        sent = "".join(f"{asked.query} {asked.body!r} {asked.headers}" for asked in new.asked)
        assert len(new.of("/register")) == 1 and "refresh-" not in sent and "access-" not in sent


@pytest.mark.parametrize("grant", [None, "client_credentials"])
async def test_when_the_issuer_changes_the_new_one_gets_no_secret_of_the_program(grant):
    async with serve_login_issuer() as old, serve_login_issuer() as new, serve_fake(Fake()) as fake:
        old.protect(fake)
        auth = make_oauth(old, grant=grant, client_id="mine", client_secret="s3cret", issuer=old.url)
        async with connect(fake.url, auth=auth) as client:
            new.protect(fake)
            with pytest.raises(UnauthorizedError, match="does not trust"):
                await client.call("buy")
        assert fake.runs("buy") == 0
        assert [asked.path for asked in new.asked if asked.verb == "POST" or asked.path == "/authorize"] == []


@pytest.mark.parametrize("ending", [None, "invalid_client"])
async def test_where_a_client_id_was_used_is_known_after_a_restart(tmp_path, ending):
    """Also after the authorization server has forgotten the client."""
    async with serve_login_issuer() as old, serve_login_issuer() as new, serve_fake(Fake()) as fake:
        old.protect(fake)
        storage = UserStorage(tmp_path, uses_keyring=False)
        async with connect(fake.url, auth=make_oauth(old, storage, client_id="mine")) as client:
            if ending is not None:
                old.accepted.clear()
                old.routes["/token"] = lambda asked: _answer({"error": ending}, 401)
                with pytest.raises(UnauthorizedError):
                    await client.call("buy")
        new.protect(fake)
        storage = UserStorage(tmp_path, uses_keyring=False)
        with pytest.raises(UnauthorizedError, match="name the issuer that knows it"):
            async with connect(fake.url, auth=make_oauth(new, storage, client_id="mine")):
                pass
        assert [asked.path for asked in new.asked if asked.verb == "POST" or asked.path == "/authorize"] == []


async def test_a_program_that_names_its_issuer_uses_no_login_at_another():
    storage = MemoryStorage()
    async with serve_login_issuer() as old, serve_login_issuer() as new, serve_fake(Fake()) as fake:
        old.protect(fake)
        async with connect(fake.url, auth=make_oauth(old, storage)):
            pass
        auth = make_oauth(new, storage, issuer=new.url)
        assert await auth.token_source(fake.url).token() is None


async def _answer(value: Any, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return as_json(value, status)


# What the user reads beside the page


async def test_the_page_names_the_scopes_that_are_asked_for():
    shown: list[LoginPage] = []
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")

        async def open_page(page: LoginPage) -> None:
            shown.append(page)
            await issuer.browse(page)

        async with connect(fake.url, auth=make_oauth(issuer, open_page=open_page, scopes=["write"])):
            pass
        assert [(page.scopes, page.warnings) for page in shown] == [(("read", "write"), ())]
        assert shown[0].notice == "It asks for the scopes read, write."


async def test_the_user_is_warned_of_a_page_at_another_host_than_the_authorization_server(caplog):
    shown: list[LoginPage] = []
    async with serve_login_issuer() as issuer, serve_login_issuer() as other, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["authorization_endpoint"] = f"{other.url}/authorize"
        auth = make_oauth(issuer, open_page=shown.append, login_seconds=0.1)
        with pytest.raises(UnauthorizedError, match="Nobody logged in"):
            async with connect(fake.url, auth=auth):
                pass
        (page,) = shown
        assert other.url.removeprefix("http://") in page.notice and issuer.url in page.notice
        assert "belong together" in page.notice and "belong together" in caplog.text


async def test_the_user_is_warned_when_the_server_has_another_authorization_server_than_before():
    shown: list[LoginPage] = []
    async with serve_login_issuer() as old, serve_login_issuer() as new, serve_fake(Fake()) as fake:
        old.protect(fake)

        async def open_page(page: LoginPage) -> None:
            shown.append(page)
            await old.browse(page)

        async with connect(fake.url, auth=make_oauth(old, open_page=open_page)) as client:
            new.protect(fake)
            await client.call("buy")
        assert [len(page.warnings) for page in shown] == [0, 1]
        assert old.url in shown[1].warnings[0] and new.url in shown[1].warnings[0]


# A resource above the server


async def test_a_token_for_an_address_above_the_servers_is_for_programs_that_say_so():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        above = fake.url.removesuffix("/mcp")
        issuer.protect(fake, resource=above)
        with pytest.raises(UnauthorizedError, match="--resource") as caught:
            async with connect(fake.url, auth=make_oauth(issuer)):
                pass
        assert above in str(caught.value) and issuer.of("/authorize") == []
        storage = MemoryStorage()
        async with connect(fake.url, auth=make_oauth(issuer, storage, resource=above)) as client:
            await client.call("buy")
        assert [asked.query["resource"] for asked in issuer.of("/authorize")] == [above]
        issuer.accepted.clear()
        async with connect(fake.url, auth=make_oauth(issuer, storage, asks_user=False)) as client:
            await client.call("buy")
        assert [form["resource"] for form in issuer.grants("refresh_token")] == [above], "it is stored with the login"


async def test_a_server_that_is_above_itself_no_more_gets_tokens_for_itself():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        above = fake.url.removesuffix("/mcp")
        issuer.protect(fake, resource=above)
        async with connect(fake.url, auth=make_oauth(issuer, storage, resource=above)):
            pass
        issuer.protect(fake)
        issuer.accepted.clear()
        issuer.refresh_tokens.clear()
        async with connect(fake.url, auth=make_oauth(issuer, storage)):
            pass
        assert issuer.of("/authorize")[-1].query["resource"] == fake.url
        assert decode_record(await storage.load(fake.url)).resource == ""


# Hostile servers


@pytest.mark.parametrize(
    "metadata",
    [
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "http://as.example/authorize"},
        {"token_endpoint": "http://as.example/token"},
        {"token_endpoint": None},
        {"issuer": "https://evil.example"},
        {"code_challenge_methods_supported": None},
    ],
)
async def test_a_hostile_issuer_gets_no_code_and_opens_no_page(metadata):
    opened: list[LoginPage] = []
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata = metadata

        async def open_page(page: LoginPage) -> None:
            opened.append(page)
            await issuer.browse(page)

        with pytest.raises(UnauthorizedError):
            async with connect(fake.url, auth=make_oauth(issuer, open_page=open_page)):
                pass
        assert all(page.url.startswith(f"{issuer.url}/authorize?") for page in opened)
        assert issuer.of("/token") == []


@pytest.mark.parametrize(
    "fields",
    [
        {"access_token": None},
        {"access_token": 3},
        {"access_token": ""},
        {"access_token": "a\r\nx: y"},
        {"access_token": "x" * 100_000},
        {"token_type": "DPoP"},
        {"token_type": None},
    ],
)
async def test_a_token_that_is_none_is_refused(fields):
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)

        async def give(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            return as_json({"access_token": "t", "token_type": "Bearer", **fields})

        issuer.routes["/token"] = give
        with pytest.raises(UnauthorizedError, match="token"):
            async with connect(fake.url, auth=make_oauth(issuer)):
                pass
        assert all("authorization" not in asked.headers for asked in fake.asked)


async def test_no_secret_is_in_errors_and_representations():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        auth = make_oauth(issuer, storage, client_id="id", client_secret="s3cret", issuer=issuer.url)

        async def echo(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            return as_json({"error": "invalid_grant", "error_description": asked.body.decode()}, 400)

        usual, issuer.routes["/token"] = issuer.routes["/token"], echo
        with pytest.raises(UnauthorizedError) as caught:
            async with connect(fake.url, auth=auth):
                pass
        told = "".join(traceback.format_exception(caught.value))
        issuer.routes["/token"] = usual
        access = ServerAccess(auth, fake.url)
        async with connect(fake.url, auth=auth) as client:
            console = Console(file=io.StringIO())
            record = decode_record(await storage.load(server_key(fake.url)))
            console.print(record, record.current)
            told += f"{client!r} {auth!r} {access!r} {vars(client)!r} {console.file.getvalue()}"  # type: ignore[attr-defined]
        for secret in ("s3cret", "code-", *issuer.accepted, *issuer.refresh_tokens):
            assert secret not in told


# Other grants


async def test_a_program_gets_tokens_for_itself():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read", call_scope="write")
        auth = OAuth(grant="client_credentials", client_id="me", client_secret="s3cret", issuer=issuer.url)
        async with connect(fake.url, auth=auth) as client:
            await client.call("buy")
            issuer.accepted.clear()
            await client.call("buy")
        assert fake.runs("buy") == 2
        assert [form["scope"] for form in issuer.grants("client_credentials")] == ["read", "read write", "read write"]
        assert issuer.of("/authorize") == [] == issuer.of("/register")


async def test_a_user_logs_in_on_another_device(monkeypatch):
    monkeypatch.setattr(grants, "_MIN_INTERVAL_SECONDS", 0.01)
    shown: list[LoginPage] = []
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        issuer.metadata["device_authorization_endpoint"] = f"{issuer.url}/device"
        issuer.pending_polls = 3
        auth = make_oauth(issuer, grant="device_code", open_page=shown.append)
        async with connect(fake.url, auth=auth) as client:
            await client.call("buy")
        assert [(page.url, page.user_code) for page in shown] == [(f"{issuer.url}/activate", "WDJB-MJHT")]
        assert len(issuer.grants("device_code")) == 4
        (asked,) = issuer.of("/device")
        assert (asked.form["scope"], asked.form["resource"]) == ("read", fake.url)


@pytest.mark.parametrize(
    "fields",
    [
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://as.example/"},
        {"verification_uri_complete": "file:///x"},
        {"user_code": "\x1b[31m"},
        {"user_code": None},
        {"device_code": 3},
    ],
)
async def test_a_hostile_issuer_shows_no_page_for_devices(fields):
    shown: list[LoginPage] = []
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        issuer.metadata["device_authorization_endpoint"] = f"{issuer.url}/device"

        async def start(asked: IssuerRequest) -> tuple[int, dict[str, str], bytes]:
            page = {"verification_uri": f"{issuer.url}/a", "user_code": "x", "device_code": "y"}
            return as_json({**page, **fields})

        issuer.routes["/device"] = start
        with pytest.raises(UnauthorizedError):
            async with connect(fake.url, auth=make_oauth(issuer, grant="device_code", open_page=shown.append)):
                pass
        assert shown == []


async def test_a_program_with_an_address_of_its_own_brings_the_answer_itself():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)

        async def open_page(page: LoginPage) -> str:
            query = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
            asked = IssuerRequest("GET", "/authorize", query, {}, b"")
            _, headers, _ = await issuer.routes["/authorize"](asked)
            assert urlencode({"redirect_uri": "https://app.example/back"}) in page.url
            return headers["location"]

        auth = make_oauth(issuer, open_page=open_page, redirect_uri="https://app.example/back")
        async with connect(fake.url, auth=auth) as client:
            await client.call("buy")
        assert issuer.of("/register")[0].json["application_type"] == "web"


# Time, and the end of a login


async def test_no_deadline_runs_while_the_user_logs_in(monkeypatch):
    loop = asyncio.get_running_loop()
    clock, minutes = loop.time, 0

    async def take_time(page: LoginPage) -> None:
        nonlocal minutes
        minutes += 10
        await asyncio.sleep(0.05)  # a deadline that ran would end now
        await issuer.browse(page)

    monkeypatch.setattr(loop, "time", lambda: clock() + 60 * minutes)
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, call_scope="write")
        auth = make_oauth(issuer, open_page=take_time)
        async with connect(fake.url, auth=auth, start_timeout=60.0, timeout=60.0) as client:
            await client.call("buy")
        assert fake.runs("buy") == 1 and minutes == 20


async def test_a_user_who_never_comes_back_is_given_up():
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake)
        auth = make_oauth(issuer, open_page=lambda page: None, login_seconds=0.1)
        with pytest.raises(UnauthorizedError, match="Nobody logged in"):
            async with connect(fake.url, auth=auth):
                pass


async def test_a_login_that_is_forgotten_is_ended_at_the_issuer_too():
    storage = MemoryStorage()
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        # Without a challenge, the server's metadata is looked for at its well-known address.
        auth = make_oauth(issuer, storage)
        issuer.protect(fake)
        fake.always("GET", issuer_metadata(fake, issuer))
        async with connect(fake.url, auth=auth):
            pass
        assert issuer.refresh_tokens
        assert (await ServerAccess(auth, fake.url).forget()).was_stored is True
        assert issuer.refresh_tokens == {} and await storage.load(server_key(fake.url)) is None
        assert (await ServerAccess(auth, fake.url).forget()).was_stored is False


def issuer_metadata(fake: Fake, issuer: LoginIssuer):
    async def answer(asked, wire) -> None:
        if asked.path == "/.well-known/oauth-protected-resource/mcp":
            await wire.json({"resource": fake.url, "authorization_servers": [issuer.url]})
        else:
            await wire.answer(404)

    return answer


@pytest.mark.parametrize(
    "options",
    [
        {"client_secret": "x"},
        {"client_key": "x"},
        {"client_id": "x", "client_secret": "x"},
        {"client_id": "x", "client_key": "x"},
        {"grant": "client_credentials", "client_id": "x", "client_secret": "x"},
        {"grant": "client_credentials"},
        {"grant": "client_credentials", "client_id": "x"},
        {"client_metadata_url": "http://app.example/client.json"},
        {"client_metadata_url": "https://app.example"},
        {"redirect_uri": "https://app.example/back"},
        {"redirect_uri": "https://localhost:7777/back"},
        {"redirect_uri": "localhost:7777/back"},
        {"redirect_uri": "http://0.0.0.0:7777/back"},
        {"redirect_uri": "http://localhost:99999/back"},
        {"redirect_uri": "http://127.0.0.1:0/back"},
        {"redirect_uri": "http://["},
    ],
)
def test_options_that_do_not_fit_are_told(options):
    with pytest.raises(ConfigurationError):
        OAuth(**options)


def test_a_client_takes_auth_or_token():
    with pytest.raises(ConfigurationError, match="not both"):
        connect("https://mcp.example/mcp", auth=OAuth(), token="x")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("HTTPS://User:Secret@MCP.Example:8443/Path?q=1#x", "https://mcp.example:8443/Path?q=1"),
        ("http://127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp"),
    ],
)
def test_a_login_is_stored_under_the_servers_address(url, expected):
    assert server_key(url) == expected
