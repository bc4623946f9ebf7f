"""`delta-mcp worker` runs the promises of a server, and serves no clients."""

import argparse
import asyncio
import contextlib
import os
import signal

from deltamcp.cli.serving import monitoring_options, network_options
from deltamcp.cli.serving.serve_command import add_store_option, add_target_options
from deltamcp.cli.serving.server_target import OperationsFileOptions, load
from deltamcp.errors import ConfigurationError
from deltamcp.promises.runner import DEFAULT_CONCURRENCY
from deltamcp.runtime.process import dedicate_process
from deltamcp.server import DeltaServer


def set_up(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    add_store_option(verb, "the Redis server whose promises to run, instead of the server's own: redis://")
    network_options.add_options(verb)
    verb.add_argument(
        "--concurrency",
        type=int,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help=f"how many promises to run at once (default {DEFAULT_CONCURRENCY})",
    )
    monitoring_options.add_tracing_option(verb)
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    if args.concurrency < 1:
        raise ConfigurationError(f"--concurrency takes a number from 1, not {args.concurrency}.")
    options = monitoring_options.read_options(args)
    monitoring_options.configure_log(options)
    server = _load_configured(args)
    if args.tracing:
        monitoring_options.trace_calls(server)
    asyncio.run(_run_promises(server, options))


def _load_configured(args: argparse.Namespace) -> DeltaServer:
    keys = network_options.read_keys(args.state_key_file, os.environ)
    server = load(args.target, OperationsFileOptions.read(args))
    server.configure(store=args.store, state_key=keys or None, promise_concurrency=args.concurrency)
    if server.engine.store.redis_url is None:
        raise ConfigurationError(
            "A worker needs the store in Redis that the server has, which brings it promises: --store redis://host:6379/0."
        )
    return server


async def _run_promises(server: DeltaServer, options: monitoring_options.LogOptions) -> None:
    """Runs promises until SIGTERM or SIGINT; those that run then may end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows has no signal handlers on loops
            loop.add_signal_handler(number, stop.set)
    engine = server.engine
    server.start_promises()
    dedicate_process(engine.lifespan, loads_modules=True)
    async with engine.lifespan.running():
        monitoring_options.tell(f"Running the promises of {engine.info['name']} (Ctrl-C stops)", options)
        await stop.wait()
        engine.lifespan.drain(engine.limits.drain_seconds)
