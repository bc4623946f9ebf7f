"""`GatewayClient`: what a gateway asks of a client, beside what programs do."""

from collections.abc import Mapping

from deltamcp.catalog.schema.param_headers import ParameterHeader
from deltamcp.client.callbacks import RequestSender
from deltamcp.client.client import DeltaClient
from deltamcp.client.connection import OnProgress
from deltamcp.values import JSON, LogLevel, RawResult


class GatewayClient(DeltaClient):
    """A client that forwards the requests of others, and whose owner decides when it connects."""

    def disconnect(self) -> None:
        """Gives up the connection, which closes when no request is in flight; a client may be entered again."""
        self._connector.disconnect()

    @property
    def is_connected(self) -> bool:
        """Whether requests have a connection to go to."""
        return self._connector.is_connected

    @property
    def lists_ttl_seconds(self) -> float | None:
        """For how long the lists that were fetched last are valid; None if the server notifies of changes, or does not
        say."""
        return self._lists.ttl_seconds

    async def fetch_tools(self) -> list[dict[str, JSON]]:
        """Returns the definitions of all tools, fetched now: of the operations, where a server of this library lists
        meta-tools in their place. The client does not keep them."""
        fetched = await self._lists.fetch_operations()
        return [fetched.definitions[tool.name].raw for tool in fetched.index if tool.name in fetched.definitions]

    @property
    def operation_ids(self) -> Mapping[str, str]:
        """By tool name, the ids in the tree of the server's operations that `fetch_tools` found."""
        return self._lists.operation_ids

    async def notify(self, method: str, params: Mapping[str, JSON] | None = None) -> None:
        """Sends a notification.

        Raises:
            ClientError: it could not be sent.
        """
        await self._connector.notify(method, params or {})

    async def lower_log_level(self, level: LogLevel) -> None:
        """Asks a server of the handshake era to log messages of this level outside of requests, too.

        Raises:
            ConnectionLostError: the connection broke.
        """
        connection = self._connector.connection
        if connection is not None:
            await connection.lower_log_level(level)

    async def forward(
        self,
        method: str,
        params: Mapping[str, JSON],
        meta: Mapping[str, JSON] | None = None,
        *,
        capabilities: Mapping[str, JSON] | None = None,
        repeatable: bool = False,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        parameter_headers: tuple[ParameterHeader, ...] = (),
        log_level: LogLevel | None = None,
        sender: RequestSender | None = None,
    ) -> RawResult:
        """Sends a request of somebody else, and returns its result as the server encoded it.

        If the server asks for input by its result (2026-07-28), that is the result.

        Args:
            meta: the `_meta` of that request, as far as it is for the server.
            capabilities: what the sender of that request can do, for a server that reads it in every request.
            repeatable: whether the client may send it again if the connection breaks.
            parameter_headers: the arguments that the tool wants in headers.
            log_level: the lowest level of log messages that the sender wants; None if it wants none.
            sender: answers what a server of the handshake era asks meanwhile, and takes what it logs.

        Raises:
            PeerError: the server answered with a JSON-RPC error.
            ConnectionLostError, DeadlineError: as in `call`.
        """
        return await self._connector.forward(
            method,
            params,
            meta or {},
            repeatable=repeatable,
            timeout=timeout,
            progress=progress,
            parameter_headers=parameter_headers if self._connector.mirrors_arguments else (),
            capabilities=capabilities,
            log_level=log_level,
            sender=sender,
        )
