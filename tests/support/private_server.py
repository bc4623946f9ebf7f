"""A server over HTTP where each user, known by its bearer token, is listed and told other things, each with a mark."""

import contextlib
from typing import Any

from tests.support.fake_http import META, Fake, FakeConnection, FakeRequest

ANY = {"type": "object"}


def mark(user: str) -> str:
    """A word in every name and URI of a user."""
    return f"mark{user}"


def secret(user: str) -> str:
    """A word in everything that the server says to a user; no request has it."""
    return f"secret{user}"


def own_lists(user: str) -> dict[str, list[dict[str, Any]]]:
    word, about = mark(user), f"Is for {secret(user)}."
    return {
        "tools": [
            {"name": "look", "description": "Looks.", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
            {"name": f"open_{word}", "description": about, "inputSchema": ANY},
            {"name": "fail", "description": "Fails.", "inputSchema": ANY},
        ],
        "resources": [
            {"uri": "vault://common", "name": "common"},
            {"uri": f"vault://{word}/listed", "name": word, "description": about},
        ],
        "resourceTemplates": [
            {"uriTemplate": "note://{id}", "name": "note"},
            {"uriTemplate": f"{word}://{{id}}", "name": word, "description": about},
        ],
        "prompts": [
            {"name": "plan", "arguments": [{"name": "topic"}]},
            {"name": f"plan_{word}", "description": about, "arguments": [{"name": "topic"}]},
        ],
    }


class PrivateServer(Fake):
    """`users` are their names by token; a request with another token, or none, is refused."""

    def __init__(self, users: dict[str, str]) -> None:
        capabilities: dict[str, Any] = {kind: {"listChanged": True} for kind in ("tools", "prompts")}
        capabilities |= {"resources": {"subscribe": True, "listChanged": True}, "completions": {}}
        super().__init__(handshake=False)
        self.capabilities = capabilities
        self.users = users
        self.lists = {user: own_lists(user) for user in users.values()}
        self._streams: list[tuple[str, dict[str, Any], Any, FakeConnection]] = []

    def user_of(self, asked: FakeRequest) -> str | None:
        return self.users.get(asked.headers.get("authorization", "").partition(" ")[2])

    async def answer(self, asked: FakeRequest, wire: FakeConnection) -> None:
        if self.user_of(asked) is None:
            await wire.answer(401, www_authenticate="Bearer")
            return
        await super().answer(asked, wire)

    def result(self, asked: FakeRequest) -> dict[str, Any]:
        user = self.user_of(asked)
        assert user is not None
        said, lists, params = secret(user), self.lists[user], asked.params
        hints = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "private"}
        link = {"type": "resource_link", "uri": f"linked://{mark(user)}", "name": "linked", "description": said}
        for method, key in (
            ("tools/list", "tools"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
            ("prompts/list", "prompts"),
        ):
            if asked.method == method:
                return {"result": {key: lists[key], **hints}}
        match asked.method:
            case "server/discover":
                found: dict[str, Any] = super().result(asked)
                found["result"]["instructions"] = f"Says {said}."
                return found
            case "tools/call" if params["name"] == "fail":
                return {"error": {"code": -32000, "message": f"It fails for {said}.", "data": {"for": said}}}
            case "tools/call":
                return {"result": {"resultType": "complete", "content": [{"type": "text", "text": said}, link]}}
            case "resources/read":
                return {"result": {"contents": [{"uri": params["uri"], "text": said}], **hints}}
            case "prompts/get":
                content = {"type": "text", "text": said}
                return {"result": {"resultType": "complete", "messages": [{"role": "user", "content": content}]}}
            case "completion/complete":
                return {"result": {"resultType": "complete", "completion": {"values": [said]}}}
            case _:
                return super().result(asked)

    # Changes

    async def _listen(self, asked: FakeRequest, wire: FakeConnection) -> None:
        user, wanted = self.user_of(asked), asked.params.get("notifications", {})
        assert user is not None
        stream = user, wanted, asked.id, wire
        self._streams.append(stream)
        try:
            await super()._listen(asked, wire)
        finally:
            self._streams.remove(stream)

    def watched(self, user: str) -> set[str]:
        """What a user is subscribed to."""
        found = (wanted.get("resourceSubscriptions", ()) for name, wanted, _, _ in self._streams if name == user)
        return {uri for uris in found for uri in uris}

    async def touch(self, user: str, uri: str) -> None:
        """Tells the streams of a user, if they watch it, that a resource has changed."""
        for name, wanted, id_, wire in list(self._streams):
            if name == user and uri in wanted.get("resourceSubscriptions", ()):
                await self._notify(wire, id_, "resources/updated", uri=uri)

    async def announce(self, user: str, kind: str) -> None:
        """Tells the streams of a user that a list of that user's has changed."""
        for name, _, id_, wire in list(self._streams):
            if name == user:
                await self._notify(wire, id_, f"{kind}/list_changed")

    async def _notify(self, wire: FakeConnection, id_: Any, method: str, **params: Any) -> None:
        meta = {META + "subscriptionId": id_}
        message = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {"_meta": meta, **params}}
        with contextlib.suppress(ConnectionError):  # the stream has just ended
            await wire.event(message)
