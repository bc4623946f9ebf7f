"""`delta-mcp completion`: a script by which a shell completes our verbs and options."""

import argparse

SHELLS = ("bash", "zsh", "fish", "tcsh", "powershell")


def add_to(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", parser: argparse.ArgumentParser) -> None:
    verb = verbs.add_parser(
        "completion",
        help="a completion script for your shell",
        description='For bash: eval "$(delta-mcp completion bash)" in ~/.bashrc; zsh and fish likewise.',
    )
    verb.add_argument("shell", choices=SHELLS)
    verb.set_defaults(run=lambda given: run(given, parser))


def run(given: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    import shtab  # 40 ms to import

    print(shtab.complete(parser, given.shell))
