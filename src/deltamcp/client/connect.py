"""`connect`: from a target to a client."""

from typing import Unpack

from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.target import Target


def connect(target: Target, **options: Unpack[ClientOptions]) -> DeltaClient:
    """A client for `async with`: of a `DeltaServer`, a URL, a command line (a text or a list of words), an entry of an
    `mcpServers` file (a dict), or `FILE#NAME` for one in a file. `ClientOptions` lists what else can be said.

    Raises:
        ConfigurationError: there is no such target.
    """
    return DeltaClient(target, **options)
