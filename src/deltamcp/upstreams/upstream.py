"""An upstream: one MCP server behind this one, with its connection."""

import asyncio
from collections.abc import Mapping
from typing import Any

from deltamcp.client.client import DeltaClient
from deltamcp.client.negotiation import ProtocolChoice
from deltamcp.context import Context
from deltamcp.errors import (
    ClientError,
    ConnectionLostError,
    DeadlineError,
    PeerError,
    RemoteError,
    UnreachableError,
    UpstreamError,
)
from deltamcp.upstreams.forwarded_request import forward
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.values import JSON, RawResult


class Upstream:
    """Connects to a server, or starts it, on first use and after it ended; requests may run concurrently."""

    def __init__(
        self, name: str, entry: dict[str, Any], timeout: float | None = None, speak: ProtocolChoice = "auto"
    ) -> None:
        """
        Args:
            entry: An entry of an `mcpServers` file, with its variables filled in.
            timeout: The seconds that a request may take.
            speak: The protocol to talk to it, as of `DeltaClient`.
        """
        self.name = name
        self._entry = entry
        self._timeout = timeout
        self._speak: ProtocolChoice = speak
        self._subject = f"The server {name} behind this operation"
        self._connect_lock = asyncio.Lock()
        self._client: DeltaClient | None = None

    async def forward(
        self, method: str, params: Mapping[str, JSON], context: Context, *, repeatable: bool = False, **options: Any
    ) -> RawResult:
        """Has the upstream perform a request of a caller.

        Raises:
            RemoteError: it answered with a JSON-RPC error.
            UpstreamError: it ended, cannot be reached, or took too long.
        """
        try:
            client = await self._connected_client()
            return await forward(
                client, method, params, context, repeatable=repeatable, timeout=self._timeout, **options
            )
        except DeadlineError:
            raise UpstreamError(f"{self._subject} took too long; try again later.", retryable=True) from None
        except PeerError as error:
            raise RemoteError(error, method) from None
        except ConnectionLostError:
            raise UpstreamError(
                f"{self._subject} ended before it answered; check whether the call took effect before you try again."
            ) from None
        except UnreachableError:
            raise UpstreamError(
                f"{self._subject} did not start, or cannot be reached; try again later.", retryable=True
            ) from None
        except ClientError as error:
            raise UpstreamError(str(error)) from None

    async def fetch_catalogue(self) -> UpstreamCatalogue:
        """Returns what the upstream lists now.

        Raises:
            ClientError, PeerError: it cannot be reached or does not list it.
        """
        client = await self._connected_client()
        client.forget_lists()
        server = client.server
        has = server.capabilities.keys()
        return UpstreamCatalogue(
            server.raw,
            server.protocol,
            await client.describe() if "tools" in has else [],
            await client.resources() if "resources" in has else [],
            await client.templates() if "resources" in has else [],
            await client.prompts() if "prompts" in has else [],
        )

    async def close(self) -> None:
        """Ends the connection and the process, if there is one."""
        async with self._connect_lock:
            client, self._client = self._client, None
            if client is not None:
                await client.__aexit__(None, None, None)

    async def _connected_client(self) -> DeltaClient:
        async with self._connect_lock:
            if self._client is None:
                client = DeltaClient(self._entry, validate=False, progressive=False, quiet=True, speak=self._speak)
                await client.__aenter__()
                self._client = client
            return self._client
