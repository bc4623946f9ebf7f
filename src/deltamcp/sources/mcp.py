"""Other MCP servers whose tools perform operations."""

import asyncio
import logging
from collections.abc import Mapping

from deltamcp.catalog.operations_file.document import UpstreamEntry
from deltamcp.client.client import DeltaClient
from deltamcp.errors import ClientError, ConnectionLostError, DeadlineError, PeerError, UnreachableError, UpstreamError
from deltamcp.runtime.computations import Computations
from deltamcp.runtime.secrets import Secrets, address_secrets, named_secrets, variable_secrets
from deltamcp.sources.environment import fill_variables, variable_values
from deltamcp.values import JSON, ToolResult
from deltamcp.work import WorkLimitError

logger = logging.getLogger("deltamcp")

_MAX_ERROR_CHARS = 500


class McpUpstream:
    """Calls tools of one server. The first call connects or starts it, and so does the first call after it ended."""

    def __init__(
        self, name: str, upstream: UpstreamEntry, environment: Mapping[str, str], computations: Computations
    ) -> None:
        """
        Args:
            computations: Searches large results for secrets.

        Raises:
            ConfigurationError: a variable is not set.
        """
        self._name = name
        self._subject = f"The server {name} behind this operation"
        words = (upstream.command or "", *upstream.args)
        env = {key: fill_variables(text, environment) for key, text in upstream.env.items()}
        headers = {key: fill_variables(text, environment).strip() for key, text in upstream.headers.items()}
        address = fill_variables(upstream.url or "", environment)
        self._entry: dict[str, JSON] = {
            "command": fill_variables(words[0], environment),
            "args": [fill_variables(word, environment) for word in words[1:]],
            "env": env,
            "cwd": upstream.cwd,
        }
        if upstream.url is not None:
            self._entry = {"url": address, "headers": headers}
        texts = [*words, upstream.url or "", *upstream.env.values(), *upstream.headers.values()]
        self._secrets = Secrets(
            [
                *variable_secrets(variable_values(texts, environment)),
                *address_secrets(address),
                *named_secrets({**env, **headers}),
            ]
        )
        self._computations = computations
        self._connect_lock = asyncio.Lock()
        self._client: DeltaClient | None = None

    async def call(self, tool: str, arguments: dict[str, JSON], timeout: float | None = None) -> ToolResult:
        """Calls a tool of the server and returns its result without secrets, and otherwise unchanged.

        Calls may run concurrently.

        Raises:
            UpstreamError: the server refused, ended, cannot be reached, or took longer than `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                client = await self._connected_client()
                reply = await client.call_tool(tool, arguments)
        except (DeadlineError, TimeoutError):
            raise UpstreamError(
                f"{self._subject} took longer than {timeout:g} s; try again later.", retryable=True
            ) from None
        except PeerError as error:
            raise UpstreamError(self._secrets.redact(str(error))[:_MAX_ERROR_CHARS]) from None
        except ConnectionLostError as error:
            # The call may have taken effect, so only the caller can decide to retry. The model does not see the cause.
            self._log(error)
            raise UpstreamError(
                f"{self._subject} ended before it answered; check whether the call took effect before you try again."
            ) from None
        except UnreachableError as error:
            self._log(error)
            raise UpstreamError(
                f"{self._subject} did not start, or cannot be reached; try again later.", retryable=True
            ) from None
        except ClientError as error:
            self._log(error)
            raise UpstreamError(
                f"{self._subject} answered with more than can be read; check whether the call took effect, and ask for "
                "less."
            ) from None
        try:
            return await self._computations.run(
                self._name, lambda work: self._secrets.redact_result(reply.result(), work)
            )
        except WorkLimitError:
            raise UpstreamError(f"{self._subject} answered with too much; ask for less.") from None

    def _log(self, error: ClientError) -> None:
        logger.warning("%s: %s", self._name, self._secrets.redact(str(error)))

    async def close(self) -> None:
        """Closes the connection and ends the process, if there is one; a later call connects again."""
        async with self._connect_lock:
            client, self._client = self._client, None
            if client is not None:
                await client.__aexit__(None, None, None)

    async def _connected_client(self) -> DeltaClient:
        async with self._connect_lock:
            if self._client is None:
                # The arguments were validated against the operation's own schema.
                client = DeltaClient(self._entry, validate=False, listen=False, progressive=False)
                await client.__aenter__()
                self._client = client
            return self._client
