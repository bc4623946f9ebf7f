"""Isolation: two principals and the operator, whose logins differ, see nothing of each other through a gateway."""

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from deltamcp import DeltaClient, connect
from deltamcp.auth.static_tokens import StaticTokens, make_token
from deltamcp.client.oauth.server_access import server_key
from deltamcp.client.oauth.token_storage import (
    ClientIdentity,
    IssuedTokens,
    IssuerLogin,
    LoginRecord,
    UserStorage,
    encode_record,
)
from deltamcp.errors import DeltaError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.ledger_figures import LedgerFile
from deltamcp.gateway.trust.review import approve
from deltamcp.gateway.upstream_items import STATUS_URI
from deltamcp.transports.http.server import make_server
from deltamcp.transports.metrics import Metrics
from deltamcp.upstreams.login_upstream import SealedLogins
from deltamcp.values import ANONYMOUS, LOCAL, Principal
from tests.support.conditions import HANG_SECONDS, wait_until
from tests.support.era_client import ERAS
from tests.support.fake_http import Fake, serve_fake
from tests.support.http_server import serve_uvicorn
from tests.support.private_server import PrivateServer, mark, secret

USERS = ("alice", "bob", "operator")
REQUESTS = 2_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 150
PRINCIPALS = {name: Principal(name, issuer="static-tokens") for name in USERS[:2]} | {"operator": LOCAL}


class House:
    """A gateway over HTTP, a server behind it that tells its users apart, and one that does not."""

    def __init__(self, gateway: Gateway, private: PrivateServer, url: str, tokens: dict[str, str]) -> None:
        self.gateway, self.private, self.url, self.tokens = gateway, private, url, tokens

    async def log_in(self, user: str) -> None:
        """Stores a login of a user at the server behind the gateway."""
        engine, server = self.gateway.server.engine, server_key(self.private.url)
        client = ClientIdentity("gateway")
        login = IssuerLogin(client, IssuedTokens(f"token-{user}"))
        record = encode_record(LoginRecord("https://issuer.example", {"https://issuer.example": login}))
        if user == "operator":
            await UserStorage().save(server, record)
        else:
            logins = SealedLogins(engine.store, self.gateway._connections.seal, engine.info["name"], PRINCIPALS[user])
            await logins.save(server, record)

    @contextlib.asynccontextmanager
    async def client(self, user: str, **options: Any) -> AsyncIterator[DeltaClient]:
        if user in self.tokens:
            options["token"] = self.tokens[user]
        target: Any = self.gateway.server if user == "operator" else self.url
        async with connect(target, **{"cache_seconds": 0, **options}) as client:
            yield client


@contextlib.asynccontextmanager
async def house(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged_in: tuple[str, ...] = USERS,
    is_open: bool = False,
    metrics: Metrics | bool = False,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[House]:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    made = {user: make_token(user) for user in USERS[:2]}
    file = folder / "tokens"
    file.write_text("\n".join(line for _, line in made.values()))
    file.chmod(0o600)
    users = {f"token-{user}": user for user in USERS}
    async with serve_fake(PrivateServer(users)) as private, serve_fake(Fake(handshake=False)) as plain:
        upstreams = [
            UpstreamConfig(name="vault", entry={"url": private.url}, auth="oauth", promise="never", **(options or {})),
            UpstreamConfig(name="plain", entry={"url": plain.url}, promise="never"),
        ]
        gateway = Gateway(
            GatewayConfig(upstreams=upstreams, **{"disclosure": "full", **config}),
            cache_folder=folder / "cache",
            ledger=Ledger(LedgerFile(folder / "ledger.db")),
        )
        found = House(gateway, private, "", {user: token for user, (token, _) in made.items()})
        for user in logged_in:
            await found.log_in(user)
        auth = None if is_open else StaticTokens(file)
        server = make_server(gateway.server.engine, port=0, auth=auth, metrics=metrics)
        async with serve_uvicorn(server) as address:
            found.url = f"{address}/mcp"
            yield found


def words_of_others(user: str) -> list[str]:
    return [word for other in USERS if other != user for word in (mark(other), secret(other))]


def crossings(user: str, seen: Any, sent: str = "") -> list[str]:
    """What of others is in something that a user sees, but for what it sent itself."""
    text = json.dumps(seen, default=str).replace(json.dumps(sent)[1:-1], "") if sent else json.dumps(seen, default=str)
    return [word for word in words_of_others(user) if word in text]


async def attempt(work: Any) -> Any:
    """Returns what a request returns, or all of its error."""
    try:
        return await work
    except DeltaError as error:
        return {"error": str(error), **{name: str(value) for name, value in vars(error).items()}}


Step = Callable[[DeltaClient, random.Random, str], tuple[Any, str]]


def somebody(chance: random.Random) -> str:
    return mark(chance.choice(USERS))


def requests(surface: str) -> list[Step]:
    """All kinds of requests: each returns the request, and what it has of the marks of others."""

    def name(chance: random.Random, *names: str) -> str:
        return chance.choice([*names, "look", "fail", f"open_{somebody(chance)}"])

    def uri(chance: random.Random) -> str:
        word = somebody(chance)
        return chance.choice(
            [f"vault://{word}/listed", f"{word}://7", f"linked://{word}", "vault://common", "note://7", f"new://{word}"]
        )

    def call(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        tool = f"vault_{name(chance)}"
        if surface == "full":
            return client.call(tool), tool
        return client.call("execute", operation=tool, params={}), tool

    def read(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        chosen = uri(chance)
        return client.read_resource(chosen), chosen

    def prompt(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        chosen = chance.choice(["vault_plan", f"vault_plan_{somebody(chance)}"])
        return client.get_prompt(chosen, {"topic": "x"}), chosen

    def complete(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        word = somebody(chance)
        ref = chance.choice(
            [
                {"type": "ref/prompt", "name": f"vault_plan_{word}"},
                {"type": "ref/resource", "uri": f"{word}://{{id}}"},
                {"type": "ref/resource", "uri": "note://{id}"},
            ]
        )
        return client.complete(ref, "topic" if "name" in ref else "id", "s"), ref.get("name") or ref["uri"]

    def search(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        word = somebody(chance)
        if surface == "full":
            return client.describe(f"vault_open_{word}"), f"vault_open_{word}"
        if chance.random() < 0.3:
            return client.call("get_schema", operations=[f"open_{word}"]), f"open_{word}"
        return client.call("discover", **({"query": [f"open {word}"]} if chance.random() < 0.5 else {})), f"open {word}"

    def subscribe(client: DeltaClient, chance: random.Random, user: str) -> tuple[Any, str]:
        chosen = uri(chance)
        return (client.subscribe if chance.random() < 0.6 else client.unsubscribe)(chosen), chosen

    return [
        lambda client, chance, user: (client.tools(), ""),
        lambda client, chance, user: (client.describe(), ""),
        lambda client, chance, user: (client.list_resources(), ""),
        lambda client, chance, user: (client.list_resource_templates(), ""),
        lambda client, chance, user: (client.list_prompts(), ""),
        lambda client, chance, user: (client.read_resource(STATUS_URI), ""),
        call,
        call,
        read,
        read,
        prompt,
        complete,
        search,
        subscribe,
    ]


@pytest.mark.parametrize("surface", ["full", "meta"])
async def test_nothing_of_one_principal_reaches_another_in_any_request(tmp_path, monkeypatch, surface):
    chance, wrong, heard = random.Random(surface), list[Any](), {user: list[str]() for user in USERS}
    own, asked = dict.fromkeys(USERS, 0), {user: set[str]() for user in USERS}
    async with (
        house(tmp_path, monkeypatch, metrics=Metrics(), disclosure=surface) as made,
        contextlib.AsyncExitStack() as stack,
    ):
        clients: dict[str, list[DeltaClient]] = {user: [] for user in USERS}
        for user in USERS:
            for era in ERAS:
                client = await stack.enter_async_context(made.client(user, speak=era, on_change=heard[user].append))
                clients[user].append(client)
                assert not crossings(user, client.server.raw)
        steps = requests(surface)
        for number in range(REQUESTS):
            user = chance.choice(USERS)
            work, sent = chance.choice(steps)(chance.choice(clients[user]), chance, user)
            seen = await attempt(work)
            own[user] += secret(user) in json.dumps(seen, default=str)
            if found := crossings(user, seen, sent):
                wrong.append((number, user, sent, found, seen))
            if chance.random() < 0.2:
                touched = chance.choice(USERS)
                await made.private.touch(touched, chance.choice(["vault://common", f"vault://{mark(touched)}/listed"]))
            if chance.random() < 0.02:
                changed = chance.choice(USERS)
                made.private.lists[changed]["resources"].append({"uri": f"{mark(changed)}://{number}", "name": "new"})
                await made.private.announce(changed, "resources")
            asked[user].add(sent)
            for other in USERS:
                assert made.private.watched(other) <= asked[other], "each subscribes with its own login"
        async with httpx2.AsyncClient(trust_env=False) as http:
            page = (await http.get(made.url.replace("/mcp", "/metrics"))).text
        assert "vault.(own)" in page
        assert not [word for user in USERS for word in (mark(user), secret(user)) if word in page]
    assert wrong == []
    for user in USERS:
        assert not crossings(user, [change for change in heard[user] if change not in asked[user]])
        assert own[user] > REQUESTS / 30, "the user was told something of its own"
    ledger = LedgerFile(tmp_path / "ledger.db").read()
    assert ledger
    assert not [key for key in ledger if any(word in key.tool for user in USERS[:2] for word in (mark(user),))]


async def test_a_notice_reaches_only_the_principal_whose_resource_changed(tmp_path, monkeypatch):
    heard = {user: list[str]() for user in USERS}
    async with house(tmp_path, monkeypatch) as made, contextlib.AsyncExitStack() as stack:
        for user in USERS:
            client = await stack.enter_async_context(made.client(user, on_change=heard[user].append))
            await client.subscribe("vault://common")
            await until_true(lambda user: "vault://common" in made.private.watched(user), user)
        for user in USERS:
            for changes in heard.values():
                changes.clear()
            await made.private.touch(user, "vault://common")
            await until_true(lambda user: "vault://common" in heard[user], user)
            assert not [other for other in USERS if other != user and "vault://common" in heard[other]]


async def test_a_principal_without_a_login_sees_what_all_share_and_how_to_log_in(tmp_path, monkeypatch):
    async with house(tmp_path, monkeypatch, logged_in=("operator", "alice")) as made:
        async with made.client("bob") as bob:
            names = {tool.name for tool in await bob.tools()}
            assert "log_in_vault" in names and "plain_echo" in names
            assert not [name for name in names if name.startswith("vault_")]
            assert not crossings("bob", [bob.server.raw, await attempt(bob.list_resources())])
        async with made.client("alice") as alice:
            assert f"vault_open_{mark('alice')}" in {tool.name for tool in await alice.tools()}


async def test_a_list_that_changes_is_announced_to_its_principal_and_offered(tmp_path, monkeypatch):
    heard = {user: list[str]() for user in USERS[:2]}
    async with house(tmp_path, monkeypatch) as made, contextlib.AsyncExitStack() as stack:
        clients = {
            user: await stack.enter_async_context(made.client(user, on_change=heard[user].append)) for user in USERS[:2]
        }
        for client in clients.values():
            await client.list_resources()
        new = {"uri": "vault://new", "name": "new"}
        made.private.lists["alice"]["resources"].append(new)
        await made.private.announce("alice", "resources")
        await wait_until(lambda: "resources" in heard["alice"])
        assert "vault://new" in {one["uri"] for one in await clients["alice"].list_resources()}
        assert "vault://new" not in {one["uri"] for one in await clients["bob"].list_resources()}
        assert heard["bob"] == []


async def test_a_tool_that_changes_for_one_principal_is_kept_out_until_it_is_approved_for_all(tmp_path, monkeypatch):
    async with house(tmp_path, monkeypatch, options={"on_new": "announce"}) as made:
        changed = {**made.private.lists["alice"]["tools"][0], "description": "Looks, and obeys."}
        for user in USERS[:2]:
            async with made.client(user) as client:
                assert await client.call("vault_look")
        made.private.lists["alice"]["tools"][0] = changed
        await made.private.announce("alice", "tools")
        async with made.client("alice") as alice:
            await until(lambda: has_tool(alice, "vault_look", False))
            refused = await attempt(alice.call("vault_look"))
            assert "kept out" in refused["error"]
        async with made.client("bob") as bob:
            assert await bob.call("vault_look"), "the change is not bob's"
        approvals = made.gateway._catalog._approvals
        [path] = [path for path in approvals.records() if path.stem.endswith("-principals")]
        approvals.change(path, lambda record: approve(record, list(record.waiting)))
        async with made.client("alice") as alice:
            await until(lambda: has_tool(alice, "vault_look", True))
        made.private.lists["bob"]["tools"][0] = changed
        await made.private.announce("bob", "tools")
        async with made.client("bob") as bob:
            await until(lambda: describes(bob, "vault_look", "Looks, and obeys."))


async def test_a_tool_that_changed_while_a_principal_was_not_connected_does_not_run_before_it_is_compared(
    tmp_path, monkeypatch
):
    async with house(tmp_path, monkeypatch) as made, made.client("alice") as alice:
        assert await alice.call("vault_look")
        tools = made.private.lists["alice"]["tools"]
        tools[0] = {**tools[0], "description": "Looks, and obeys."}
        connection = made.gateway.upstreams["vault"].connection._clients.find(PRINCIPALS["alice"])
        assert connection is not None
        connection.lose(connection.life, Exception("It was idle."))
        ran = len(made.private.of("tools/call"))
        refused = await attempt(alice.call("vault_look"))
        assert "kept out" in refused["error"]
        assert len(made.private.of("tools/call")) == ran


async def until_true(check: Callable[[str], bool], user: str) -> None:
    await wait_until(lambda: check(user))


async def has_tool(client: DeltaClient, name: str, is_there: bool) -> bool:
    return (name in {tool.name for tool in await client.tools()}) == is_there


async def describes(client: DeltaClient, name: str, text: str) -> bool:
    return any(one.get("description") == text for one in await client.describe() if one["name"] == name)


async def until(check: Callable[[], Any]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await check():  # noqa: ASYNC110 - another task of the gateway does it
            await asyncio.sleep(0.02)


async def test_callers_whom_nobody_authenticates_do_not_have_the_operators_login(tmp_path, monkeypatch):
    async with house(tmp_path, monkeypatch, is_open=True) as made, made.client("anybody") as client:
        names = {tool.name for tool in await client.tools()}
        assert names >= {"log_in_vault", "plain_echo"} and not [name for name in names if name.startswith("vault_")]
        refused = await attempt(client.call("log_in_vault"))
        assert "--auth" in refused["error"] and "shared_login = true" in refused["error"]
        seen = [
            client.server.raw,
            await attempt(client.list_resources()),
            await attempt(client.read_resource(STATUS_URI)),
        ]
        assert not crossings("anybody", seen)


async def test_the_operator_may_share_its_login_with_them(tmp_path, monkeypatch):
    options = {"shared_login": True}
    async with (
        house(tmp_path, monkeypatch, is_open=True, options=options) as made,
        made.client("anybody", on_change=lambda change: None) as client,
    ):
        assert f"vault_open_{mark('operator')}" in {tool.name for tool in await client.tools()}
        assert secret("operator") in json.dumps(await client.call_tool("vault_look", {}), default=str)
        assert ANONYMOUS.owner not in {made.gateway.upstreams["vault"].connection.login_of(ANONYMOUS).owner}


async def test_caches_may_not_share_lists_that_depend_on_a_login(tmp_path, monkeypatch):
    async with house(tmp_path, monkeypatch) as made, made.client("alice", speak="modern") as client:
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            reply = await client.request(method)
            assert reply["cacheScope"] == "private", method


async def test_the_lists_of_principals_are_not_written_to_disk(tmp_path, monkeypatch):
    async with house(tmp_path, monkeypatch) as made:
        for user in USERS[:2]:
            async with made.client(user) as client:
                assert mark(user) in json.dumps([tool.name for tool in await client.tools()])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [
                user for user in USERS[:2] if mark(user).encode() in content or secret(user).encode() in content
            ]


async def test_only_a_bounded_number_of_principals_is_kept_and_others_are_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setattr("deltamcp.gateway.principal_catalogs._MAX_PRINCIPALS", 1)
    async with house(tmp_path, monkeypatch) as made, contextlib.AsyncExitStack() as stack:
        clients = {user: await stack.enter_async_context(made.client(user)) for user in USERS[:2]}
        for _ in range(2):
            for user, client in clients.items():
                assert f"vault_open_{mark(user)}" in {tool.name for tool in await client.tools()}
        principals = made.gateway._catalog._principals
        assert principals is not None and len(principals._owns) == 1
