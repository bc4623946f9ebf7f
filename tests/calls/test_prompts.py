"""Prompts: arguments that a client leaves out by null."""

import pytest

from deltamcp import DeltaServer
from tests.support.era_client import ERAS, era_client


def greeter() -> DeltaServer:
    server = DeltaServer("greeter")

    @server.prompt
    def greet(name: str, title: str = "Dr", suffix: str | None = "Esq") -> str:
        return f"{title} {name} {suffix}"

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_null_is_absent_where_it_is_not_admitted(era):
    async with era_client(greeter(), era) as peer:
        arguments = {"name": "Ada", "title": None, "suffix": None}
        answer = await peer.ask("prompts/get", name="greet", arguments=arguments)
        assert answer["result"]["messages"][0]["content"]["text"] == "Dr Ada None"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("arguments", [{"name": None}, {"name": "Ada", "nick": None}, {"name": 7}])
async def test_null_does_not_excuse_what_is_required_or_unknown(arguments, era):
    async with era_client(greeter(), era) as peer:
        assert (await peer.ask("prompts/get", name="greet", arguments=arguments))["error"]["code"] == -32602
