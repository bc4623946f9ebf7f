"""Other MCP servers whose tools perform operations."""

from collections.abc import Mapping
from typing import Any

from deltamcp.catalog.operations_file import UpstreamEntry
from deltamcp.client.links.process import ProcessGuard
from deltamcp.context import Context
from deltamcp.errors import RemoteError, UpstreamError
from deltamcp.results.content import parse_tool_result
from deltamcp.runtime.secrets import Secrets, address_secrets, named_secrets, variable_secrets
from deltamcp.runtime.threads import Computations
from deltamcp.sources.http import fill_variables, variable_values
from deltamcp.upstreams.client import UpstreamSettings
from deltamcp.upstreams.secrets import UpstreamSecrets, entry_values
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, ToolResult
from deltamcp.work import WorkLimitError

_MAX_ERROR_CHARS = 500


class McpUpstream:
    """Calls tools of one server. The first call connects or starts it, and so does the first call after it ended."""

    def __init__(
        self,
        name: str,
        upstream: UpstreamEntry,
        environment: Mapping[str, str],
        computations: Computations,
        guard: ProcessGuard | None = None,
    ) -> None:
        """
        Args:
            computations: Searches large results for secrets.
            guard: Ends the server's process if this one is killed.

        Raises:
            ConfigurationError: a variable is not set.
        """
        self._name = name
        words = (upstream.command or "", *upstream.args)
        env = {key: fill_variables(text, environment) for key, text in upstream.env.items()}
        headers = {key: fill_variables(text, environment).strip() for key, text in upstream.headers.items()}
        address = fill_variables(upstream.url or "", environment)
        entry: dict[str, Any] = {
            "command": fill_variables(words[0], environment),
            "args": [fill_variables(word, environment) for word in words[1:]],
            "env": env,
            "cwd": upstream.cwd,
        }
        if upstream.url is not None:
            entry = {"url": address, "headers": headers}
        texts = [*words, upstream.url or "", *upstream.env.values(), *upstream.headers.values()]
        self._secrets = Secrets(
            [
                *variable_secrets(variable_values(texts, environment)),
                *address_secrets(address),
                *named_secrets({**env, **headers}),
            ]
        )
        self._computations = computations
        variables = {str(at): value for at, value in enumerate(variable_values(texts, environment))}
        self._upstream = Upstream(
            name,
            entry,
            UpstreamSettings(idle_seconds=None),
            guard=guard,
            secrets=UpstreamSecrets(entry_values(entry, variables), [name]),
            listen=False,
        )

    async def call(
        self,
        tool: str,
        arguments: dict[str, JSON],
        context: Context,
        *,
        repeatable: bool = False,
        timeout: float | None = None,
    ) -> ToolResult:
        """Calls a tool of the server and returns its result without secrets, and otherwise unchanged.

        Calls may run concurrently. After `close`, a call starts the server again.

        Args:
            repeatable: Whether the call may be sent again if the server is lost before it has answered.

        Raises:
            UpstreamError: the server refused, ended, cannot be reached, or took longer than `timeout` seconds.
        """
        self._upstream.open()
        params: dict[str, JSON] = {"name": tool, "arguments": arguments}
        try:
            raw = await self._upstream.forward("tools/call", params, context, repeatable=repeatable, timeout=timeout)
        except RemoteError as error:
            raise UpstreamError(self._secrets.redact(str(error))[:_MAX_ERROR_CHARS]) from None
        try:
            return await self._computations.run(
                self._name, lambda work: self._secrets.redact_result(parse_tool_result(raw.fields), work)
            )
        except WorkLimitError:
            raise UpstreamError(
                f"The server {self._name} behind this operation answered with too much; ask for less."
            ) from None

    async def close(self) -> None:
        """Closes the connection and ends the process, if there is one; a later call connects again."""
        await self._upstream.close()
