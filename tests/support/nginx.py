"""nginx with the configuration of deploy/, at a port of a test's own."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.hostile.stores import SkippedError
from bench.replicas.nginx import run_nginx


@contextlib.contextmanager
def nginx(folder: Path, replicas: Sequence[int], port: int) -> Iterator[str]:
    """The address of nginx in front of replicas at these ports; skips the test where nginx is not installed."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run_nginx(folder, replicas, port))
        except SkippedError as skipped:
            pytest.skip(str(skipped))
        yield f"http://127.0.0.1:{port}"
