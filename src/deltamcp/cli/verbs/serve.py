"""`delta-mcp serve`, `dev` and `worker`, which run a server that is written in Python or in an operations file.

`serve` serves clients on stdio, HTTP or gRPC. `dev` serves over HTTP, restarts the server when its file changes, and
opens the MCP Inspector for it. `worker` runs the promises of a server, and serves no clients.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping

from deltamcp.cli.serving import monitoring_options, network_options
from deltamcp.cli.serving.serve_command import (
    ServeCommand,
    add_serving_options,
    add_store_option,
    add_target_options,
    make_process,
    serve,
)
from deltamcp.cli.serving.server_target import OperationsFileOptions, ServerTarget, load
from deltamcp.cli.terminal.output import print_notice
from deltamcp.errors import ConfigurationError
from deltamcp.promises.runner import DEFAULT_CONCURRENCY
from deltamcp.runtime.process import dedicate_process
from deltamcp.server import DeltaServer

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
"""The npm package, in the version that the tests run: npx would start whatever was published last."""
_OPENING_VARIABLE = re.compile(
    r"DANGEROUSLY_.*|MCP_INSPECTOR_API_TOKEN|MCP_INSPECTOR_ALLOWED_HOSTS|ALLOWED_ORIGINS", re.IGNORECASE
)
"""What would open the Inspector to others, who could have it start programs. Without a token it makes one."""
NODE_VERSION = (22, 19)
"""What `engines` in the package asks for."""
_INSTALL = f"install Node {'.'.join(map(str, NODE_VERSION))} or newer from nodejs.org"
_STOP_SECONDS = 5.0


def set_up(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    add_serving_options(verb)
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    serve(args, ServerTarget(args.target, OperationsFileOptions.read(args)))


# dev


def set_up_dev(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    verb.set_defaults(run=run_dev)


def run_dev(args: argparse.Namespace) -> None:
    source = ServerTarget(args.target, OperationsFileOptions.read(args))
    source.check()
    npx = _find_npx(f"delta-mcp serve {shlex.quote(args.target)} --http 127.0.0.1:8000 --reload")
    process, port = make_process(
        ServeCommand(
            source=source,
            log=monitoring_options.read_options(args),
            debug=args.debug,
        )
    )
    # A client of 2026-07-28 has no session, so it need not notice a restart.
    options = ["--transport", "http", "--protocol-era", "auto", "--server-url", f"http://127.0.0.1:{port}/mcp"]
    print_notice("Starting the Inspector, which npx downloads the first time.")
    with _start_group([npx, "--yes", INSPECTOR, *options], inspector_environment(os.environ)) as inspector:

        def stop_with_inspector() -> None:
            inspector.wait()
            process.stop()

        threading.Thread(target=stop_with_inspector, daemon=True).start()
        code = process.run()
        if inspector.poll():
            raise ConfigurationError("The Inspector has ended; what it said is above.")
    raise SystemExit(code)


def inspector_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for the Inspector: it listens on loopback, and asks for its token, whatever they were."""
    kept = {name: value for name, value in environment.items() if not _OPENING_VARIABLE.fullmatch(name)}
    return {**kept, "HOST": "127.0.0.1"}


def _find_npx(without: str) -> str:
    """
    Args:
        without: the command that does without Node what can be done without it.

    Raises:
        ConfigurationError: Node is missing or too old for the Inspector; the text says what to install.
    """
    node, npx = shutil.which("node"), shutil.which("npx")
    if node is None or npx is None:
        raise ConfigurationError(f"The Inspector needs Node, which is not on PATH; {_INSTALL}, or run {without}")
    output = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    version = re.match(r"v(\d+)\.(\d+)", output)
    if version is None or tuple(map(int, version.groups())) < NODE_VERSION:
        raise ConfigurationError(
            f"The Inspector does not run on Node {output.removeprefix('v')}; {_INSTALL}, or run {without}"
        )
    return npx


@contextlib.contextmanager
def _start_group(command: list[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts a program, and at the end stops it with all that it started: npx does not pass signals on."""
    group = None if sys.platform == "win32" else 0  # a new one, which Windows does not have
    with subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, process_group=group, env=environment
    ) as process:
        try:
            yield process
        finally:
            _send_signal(process, "SIGTERM")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            _send_signal(process, "SIGKILL")


def _send_signal(process: "subprocess.Popen[bytes]", name: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))


# worker


def set_up_worker(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    add_store_option(verb, "the Redis server whose promises to run, instead of the server's own: redis://")
    network_options.add_state_key_option(verb)
    verb.add_argument(
        "--concurrency",
        type=int,
        default=DEFAULT_CONCURRENCY,
        metavar="N",
        help=f"how many promises to run at once (default {DEFAULT_CONCURRENCY})",
    )
    monitoring_options.add_tracing_option(verb)
    verb.set_defaults(run=run_worker)


def run_worker(args: argparse.Namespace) -> None:
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
