"""`Gateway`: configuration in, a `DeltaServer` out that offers what the servers behind it offer."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from importlib import metadata

from deltamcp.catalog.disclosure import Disclosure
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig
from deltamcp.gateway.upstream_items import make_items
from deltamcp.server import DeltaServer
from deltamcp.upstreams.upstream import Upstream

logger = logging.getLogger("deltamcp")


class Gateway:
    """Fronts other MCP servers. `server` is served as any other server is."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self.upstreams = {one.name: Upstream(one.name, one.entry, one.timeout) for one in config.upstreams}
        self.server = DeltaServer(
            config.name,
            metadata.version("delta-mcp"),
            disclosure=Disclosure(config.disclosure, query=config.query),
            results=config.results,
            lifespan=self._run,
        )

    @contextlib.asynccontextmanager
    async def _run(self, server: DeltaServer) -> AsyncIterator[None]:
        try:
            await asyncio.gather(*map(self._load, self._config.upstreams))
            yield
        finally:
            await asyncio.gather(*(upstream.close() for upstream in self.upstreams.values()))

    async def _load(self, config: UpstreamConfig) -> None:
        upstream = self.upstreams[config.name]
        try:
            catalogue = await upstream.fetch_catalogue()
        except DeltaError as error:
            logger.warning("%s: %s", config.name, error)
            return
        for item in make_items(upstream, catalogue, config, self._config.has_prefix):
            try:
                self.server.items.add(item)
            except ConfigurationError as error:
                logger.warning("%s: %s", config.name, error)
