"""`since` at another replica than the one that replied, in both eras: what is another's is not a base."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deltamcp import DeltaClient, DeltaServer, Disclosure, ResultPolicy, StaticTokens
from deltamcp.auth.static_tokens import make_token
from deltamcp.client.reply import Reply
from tests.support.era_client import ERAS
from tests.support.http_server import serve_http

ROWS = [{"id": number, "name": f"thing {number * 37 % 101}", "stock": number % 23} for number in range(150)]


class Shop:
    """What all replicas read."""

    def __init__(self) -> None:
        self.rows = [dict(row) for row in ROWS]
        self.calls = 0


def replica(shop: Shop, store: Path) -> DeltaServer:
    server = DeltaServer(
        "shop",
        store=f"sqlite:///{store}",
        disclosure=Disclosure("meta", query=True),
        results=ResultPolicy(max_tokens=20_000),
    )

    @server.tool(annotations={"readOnlyHint": True})
    def stock() -> list[dict[str, Any]]:
        """List what there is."""
        shop.calls += 1
        return shop.rows

    @server.tool(annotations={"readOnlyHint": True})
    def twice() -> list[dict[str, Any]]:
        """List it twice."""
        return shop.rows * 2

    return server


class Pair:
    """Clients of two replicas, of which each call goes to the other one."""

    def __init__(self, clients: list[DeltaClient]) -> None:
        self._clients = clients
        self._calls = 0

    async def ask(self, tool: str, **arguments: Any) -> Reply:
        self._calls += 1
        return await self._clients[self._calls % 2].call_tool(tool, arguments)

    async def query(self, operation: str = "stock", **more: Any) -> Reply:
        return await self.ask("query", operation=operation, **more)


@contextlib.asynccontextmanager
async def pairs(shop: Shop, folder: Path, era: Any, *principals: str) -> AsyncIterator[list[Pair]]:
    """A pair of clients for each principal, or one that nobody authenticates."""
    made = [make_token(principal) for principal in principals]
    file, options = folder / "tokens", {}
    if made:
        file.write_text("\n".join(line for _, line in made))
        file.chmod(0o600)
        options = {"auth": StaticTokens(file)}
    async with contextlib.AsyncExitStack() as stack:
        served = [serve_http(replica(shop, folder / "store.db"), **options) for _ in range(2)]
        addresses = [await stack.enter_async_context(one) for one in served]
        found = []
        for token in [token for token, _ in made] or [""]:
            own: Any = {"speak": era, "progressive": False, **({"token": token} if token else {})}
            clients = [DeltaClient(address, **own) for address in addresses]
            found.append(Pair([await stack.enter_async_context(client) for client in clients]))
        yield found


@pytest.mark.parametrize("era", ERAS)
async def test_what_changed_is_said_at_the_other_replica(tmp_path, era):
    shop = Shop()
    async with pairs(shop, tmp_path, era) as [pair]:
        first = await pair.query()
        again = await pair.query(since=first.handle)
        assert again.text == f"Executed now: same 150 rows as {first.handle}"
        shop.rows[17]["stock"] = 99
        changed = await pair.query(since=first.handle)
        head, body, words = changed.text.split("\n")
        assert head == f"Changed since {first.handle}, now {changed.handle}:" and body == "[id] 17 stock=99"
        assert words.startswith("[Changes: ")
        assert (await pair.query(since=changed.handle)).text == f"Executed now: same 150 rows as {changed.handle}"
        assert shop.calls == 4
        between = await pair.ask("continue", handle=changed.handle, since=first.handle)
        assert "17 stock=99" in between.text and shop.calls == 4


@pytest.mark.parametrize("era", ERAS)
async def test_a_handle_that_is_no_base_gets_the_whole_and_a_word_why(tmp_path, era):
    shop = Shop()
    async with pairs(shop, tmp_path, era, "ann", "bob") as [ann, bob]:
        own, foreign = await ann.query(), await bob.query()
        other = await ann.query("twice")
        for since, why in (
            (foreign.handle, f'Nothing is kept under "{foreign.handle}" any more, so this is all.'),
            ("Rnone", 'Nothing is kept under "Rnone" any more, so this is all.'),
            (other.handle, f"{other.handle} is a result of another operation, so this is all."),
        ):
            reply = await ann.query(since=since)
            assert reply.value == ROWS and why in reply.text, reply.text
            assert f"[handle {reply.handle}. " in reply.text
        assert (await ann.query(since="")).value == ROWS
        assert (await ann.query(since=own.handle)).text == f"Executed now: same 150 rows as {own.handle}"
