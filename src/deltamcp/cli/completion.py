"""`delta-mcp completion`: a script by which a shell completes our verbs and options."""

import argparse

import shtab

from deltamcp.cli import main


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = 'For bash: eval "$(delta-mcp completion bash)" in ~/.bashrc; zsh and fish likewise.'
    verb.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)
    verb.set_defaults(run=run)


def run(given: argparse.Namespace) -> None:
    print(shtab.complete(main.parser(main.VERBS), given.shell))
