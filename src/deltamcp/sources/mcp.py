"""Another MCP server behind an operation."""

import asyncio
import logging
from collections.abc import Mapping

from deltamcp.catalog.operations_file.document import UpstreamEntry
from deltamcp.client.client import DeltaClient
from deltamcp.errors import ClientError, ConnectionLostError, DeadlineError, PeerError, ToolError
from deltamcp.sources.environment import fill_variables, variable_values
from deltamcp.sources.secrets import Secrets
from deltamcp.values import JSON, ToolResult

logger = logging.getLogger("deltamcp")

_MAX_ERROR_CHARS = 500


class McpUpstream:
    """One server, reached or started with the first call, and again after it ended."""

    def __init__(self, name: str, upstream: UpstreamEntry, environment: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigurationError: a variable is not set.
        """
        self._name = name
        self._subject = f"The server {name} behind this operation"
        words = (upstream.command or "", *upstream.args)
        self._entry: dict[str, JSON] = {
            "command": fill_variables(words[0], environment),
            "args": [fill_variables(word, environment) for word in words[1:]],
            "env": {key: fill_variables(text, environment) for key, text in upstream.env.items()},
            "cwd": upstream.cwd,
        }
        if upstream.url is not None:
            headers = {key: fill_variables(text, environment).strip() for key, text in upstream.headers.items()}
            self._entry = {"url": fill_variables(upstream.url, environment), "headers": headers}
        texts = [*words, upstream.url or "", *upstream.env.values(), *upstream.headers.values()]
        self._secrets = Secrets(variable_values(texts, environment))
        self._connect_lock = asyncio.Lock()
        self._client: DeltaClient | None = None

    async def call(self, tool: str, arguments: dict[str, JSON], timeout: float | None = None) -> ToolResult:
        """What the server's tool gave, its content as it came. Calls may run side by side.

        Raises:
            ToolError: the server refused, ended, cannot be reached, or took longer than `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                client = await self._connected_client()
                reply = await client.call_tool(tool, arguments)
        except (DeadlineError, TimeoutError):
            raise ToolError(f"{self._subject} took longer than {timeout:g} s; try again later.") from None
        except PeerError as error:
            raise ToolError(self._secrets.redact(str(error))[:_MAX_ERROR_CHARS]) from None
        except ConnectionLostError as error:
            # Whether it was done is for whoever called to think about; the model is not told of our connections.
            self._log(error)
            raise ToolError(f"{self._subject} ended before it had answered; look before you try again.") from None
        except ClientError as error:
            self._log(error)
            raise ToolError(f"{self._subject} did not start, or cannot be reached; try again later.") from None
        return reply.result()

    def _log(self, error: ClientError) -> None:
        logger.warning("%s: %s", self._name, self._secrets.redact(str(error)))

    async def close(self) -> None:
        """Ends the connection, and the process where there is one; a later call starts anew."""
        async with self._connect_lock:
            client, self._client = self._client, None
            if client is not None:
                await client.__aexit__(None, None, None)

    async def _connected_client(self) -> DeltaClient:
        async with self._connect_lock:
            if self._client is None:
                # The operation's own schema was checked already.
                client = DeltaClient(self._entry, validate=False, listen=False, progressive=False)
                await client.__aenter__()
                self._client = client
            return self._client
