"""`delta-mcp completion` prints a script with which a shell completes the verbs and options."""

import argparse

import shtab

from deltamcp.cli import main


def set_up(verb: argparse.ArgumentParser) -> None:
    verb.description = 'For bash: eval "$(delta-mcp completion bash)" in ~/.bashrc; zsh and fish likewise.'
    verb.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, metavar="SHELL", help=", ".join(shtab.SUPPORTED_SHELLS))
    verb.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    parser = main.make_parser(main.VERBS)
    _complete_files(parser)
    # `-o default`: the shell completes file names where the script has no completion.
    print(shtab.complete(parser, args.shell).replace("complete -o bashdefault", "complete -o default -o bashdefault"))


def _complete_files(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for verb in action.choices.values():
                _complete_files(verb)
        elif any(word in str(action.metavar) for word in ("FILE", "CONFIG", "DIR", "TARGET")):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
