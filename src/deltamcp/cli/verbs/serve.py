"""`delta-mcp serve` runs a server that is written in Python or in an operations file: on stdio, HTTP or gRPC."""

import argparse

from deltamcp.cli.serving.serve_command import add_serving_options, add_target_options, serve
from deltamcp.cli.serving.server_target import OperationsFileOptions, ServerTarget


def set_up(verb: argparse.ArgumentParser) -> None:
    add_target_options(verb)
    add_serving_options(verb)
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    serve(args, ServerTarget(args.target, OperationsFileOptions.read(args)))
