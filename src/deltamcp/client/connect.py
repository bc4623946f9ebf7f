"""`connect` makes a client for a target."""

from typing import Unpack

from deltamcp.client.client import DeltaClient
from deltamcp.client.options import ClientOptions
from deltamcp.client.target import Target


def connect(target: Target, **options: Unpack[ClientOptions]) -> DeltaClient:
    """Returns a client to use with `async with`.

    Args:
        target: a `DeltaServer`, a URL, a command line (a text or a list of words), a Python file (`FILE.py` or
            `FILE.py:NAME`, served by a process of its own), an entry of an `mcpServers` file (a dict), or `FILE#NAME`
            for an entry in a file.
        options: see `ClientOptions`.

    Raises:
        ConfigurationError: the target is none of these, or there is no such option.
    """
    return DeltaClient(target, **options)
