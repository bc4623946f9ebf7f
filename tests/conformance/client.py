"""What the official suite starts as "the client": `DeltaClient`, doing what each scenario asks for.

The suite appends its server's address; the scenario and what it needs to know come by environment.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from deltamcp import Elicited, OAuth
from deltamcp.client import negotiation
from deltamcp.client.client import DeltaClient, connect
from deltamcp.client.oauth.oauth import LoginPage
from deltamcp.client.oauth.token_storage import MemoryStorage
from deltamcp.client.options import ClientOptions
from deltamcp.errors import ClientError, PeerError

MODERN = "2026-07-28"
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The suite accepts this address, and fetches nothing from it."""


WHOLE_HOSTS = {"auth/metadata-var2"}
"""Scenarios whose server wants tokens for its whole host, which a program has to allow."""


async def lists(client: DeltaClient) -> None:
    await client.tools()


async def adds(client: DeltaClient) -> None:
    await client.tools()
    await client.call("add_numbers", a=5, b=3)


async def calls_everything(client: DeltaClient) -> None:
    """Every tool there is, without arguments."""
    for tool in await client.tools():
        await client.call_tool(tool.name)


async def uses_everything(client: DeltaClient) -> None:
    for tool in await client.tools():
        await client.call_tool(tool.name)
    for resource in await client.list_resources():
        await client.read_resource(resource["uri"])
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt["name"])


async def calls_as_told(client: DeltaClient) -> None:
    for call in CONTEXT.get("toolCalls", ()):
        await client.call_tool(call["name"], call["arguments"])


async def calls_what_is_listed(client: DeltaClient) -> None:
    """The tools that are left when those a client must refuse are left out."""
    for tool in await client.tools():
        definition: Any = (await client.describe(tool.name))[0]
        properties = definition["inputSchema"].get("properties", {})
        await client.call_tool(tool.name, {name: _some(schema) for name, schema in properties.items()})


async def echoes_a_schema(client: DeltaClient) -> None:
    """A definition comes back as it came."""
    schemas = {definition["name"]: definition["inputSchema"] for definition in await client.describe()}
    await client.call("json_schema_echo", schema=schemas["json_schema_2020_12_tool"])


async def lists_and_calls(client: DeltaClient) -> None:
    """What every scenario of the OAuth flow asks for."""
    await client.tools()
    await client.call_tool("test-tool")


async def browses(page: LoginPage) -> None:
    """What a browser does whose user agrees at once: it goes where it is sent, to the listener in the end."""

    def follow() -> None:
        with urllib.request.urlopen(page.url, timeout=30) as answer:
            answer.read()

    await asyncio.to_thread(follow)


def finds_issuer(url: str) -> str:
    """What somebody knows who has a secret: the authorization server that gave it. Some scenarios do not say."""
    place = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    with urllib.request.urlopen(place, timeout=30) as answer:
        issuer: str = json.load(answer)["authorization_servers"][0]
    return issuer


def makes_auth(scenario: str, url: str) -> OAuth:
    is_service = scenario.startswith("auth/client-credentials")
    return OAuth(
        grant="client_credentials" if is_service else "authorization_code",
        issuer=CONTEXT.get("issuer") or (finds_issuer(url) if is_service else None),
        resource=url.removesuffix("/mcp") if scenario in WHOLE_HOSTS else None,
        client_id=CONTEXT.get("client_id"),
        client_secret=CONTEXT.get("client_secret"),
        client_key=CONTEXT.get("private_key_pem"),
        client_metadata_url=CLIENT_DOCUMENT,
        open_page=browses,
        storage=MemoryStorage(),
        login_seconds=60,
    )


def _some(schema: dict[str, Any]) -> Any:
    return {"integer": 1, "number": 1.5, "boolean": True}.get(schema.get("type", ""), "test")


SCENARIOS: dict[str, Callable[[DeltaClient], Awaitable[None]]] = {
    "tools_call": adds,
    "elicitation-sep1034-client-defaults": calls_everything,
    "sse-retry": calls_everything,
    "sep-2322-client-request-state": calls_everything,
    "http-standard-headers": uses_everything,
    "http-custom-headers": calls_as_told,
    "http-invalid-tool-headers": calls_what_is_listed,
    "json-schema-2020-12-preservation": echoes_a_schema,
}
"""What a scenario needs beyond being connected to and listed."""


negotiation._PROBE_SECONDS = 60.0  # the suite starts some forty of these at once


async def main(url: str) -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") == MODERN
    options: ClientOptions = {
        "speak": "auto" if modern else "handshake",
        "on_elicitation": lambda question: Elicited("accept", _filled(question)),
        "start_timeout": 100.0,
    }
    if scenario.startswith("auth/"):
        options["auth"] = makes_auth(scenario, url)
    async with connect(url, **options) as client:
        await SCENARIOS.get(scenario, lists_and_calls if scenario.startswith("auth/") else lists)(client)


def _filled(question: dict[str, Any]) -> dict[str, Any]:
    """What has no default is filled in, what has one is left to it."""
    properties = question.get("requestedSchema", {}).get("properties", {})
    return {name: _some(schema) for name, schema in properties.items() if "default" not in schema}


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[-1]))
    except (ClientError, PeerError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
