"""A parser of command lines that refuses a wrong word in one sentence, which names what to type instead."""

import argparse
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from deltamcp.cli.terminal.output import suggest
from deltamcp.errors import ConfigurationError

HELP_COLUMNS = 80
_MAX_SHOWN_CHOICES = 8
"""How many choices a sentence lists where none is similar."""
_REQUIRED = re.compile(r"the following arguments are required: (.*)", re.DOTALL)
_ABOUT_ARGUMENT = re.compile(r"argument ([^:]+): (.*)", re.DOTALL)
_INVALID_TYPE = re.compile(r"invalid (\w+) value: (.*)", re.DOTALL)
_NOT_ALLOWED = re.compile(r"not allowed with argument (.*)", re.DOTALL)
_EXPLICIT = re.compile(r"ignored explicit argument .*", re.DOTALL)
_AMBIGUOUS = re.compile(r"ambiguous option: (\S+) could match (.*)", re.DOTALL)
_TYPES = {"int": "a whole number", "float": "a number", "Path": "a file"}


class HelpFormatter(argparse.HelpFormatter):
    """Writes help of 80 columns at most, however wide the terminal is: longer lines are hard to read."""

    def __init__(self, prog: str, indent_increment: int = 2, max_help_position: int = 24, width: int | None = None):
        columns = min(shutil.get_terminal_size().columns, HELP_COLUMNS)
        super().__init__(prog, indent_increment, max_help_position, width or columns - 2)


class CommandParser(argparse.ArgumentParser):
    """Parses as argparse does; its faults are errors of one sentence."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": HelpFormatter, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """
        Raises:
            ConfigurationError: a word is wrong, or one is missing.
        """
        parsed, others = self.parse_known_args(args, namespace)
        if others:
            raise ConfigurationError(unknown_word(getattr(parsed, "parser", self), others))
        return parsed

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(self._sentence(message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise ConfigurationError(
                f"{name_verb(self)}: {name} cannot be {value!r}{_hint(str(value), choices, self.prog)}"
            )

    def _sentence(self, message: str) -> str:
        """Writes a message of argparse as a sentence that says what to do."""
        if found := _REQUIRED.fullmatch(message):
            return f"{name_verb(self)} needs {found[1].replace(', ', ' and ')}; {_more(self)}"
        if found := _AMBIGUOUS.fullmatch(message):
            return f"{name_verb(self)} has no option {found[1]}; did you mean {found[2].replace(', ', ' or ')}?"
        about = _ABOUT_ARGUMENT.fullmatch(message)
        if about is None:
            return f"{name_verb(self)}: {message}; {_more(self)}"
        name, fault = about[1], about[2]
        if found := _INVALID_TYPE.fullmatch(fault):
            return f"{name_verb(self)}: {name} takes {_TYPES.get(found[1], 'another value')}, not {found[2]}."
        if found := _NOT_ALLOWED.fullmatch(fault):
            return f"{name_verb(self)}: {name} and {found[1]} exclude each other; leave one of them out."
        if _EXPLICIT.fullmatch(fault):
            return f"{name_verb(self)}: {name} takes no value; leave out what follows the =."
        if fault.startswith("expected"):
            return f"{name_verb(self)}: {name} needs a value; {_more(self)}"
        return f"{name_verb(self)}: {name} takes {fault.rstrip('.')}."


def add_repeatable(verb: argparse._ActionsContainer, option: str, metavar: str, help_text: str) -> None:
    """Adds an option that may be given several times; its value is the list of what is given."""
    verb.add_argument(option, action="append", default=[], metavar=metavar, help=f"{help_text}; repeatable")


def whole_number(noun: str, most: int) -> Callable[[str], int]:
    """Returns a type of argparse: a number from 1 to `most`; a fault says of what."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a number of {noun} from 1 to {most:,}, not {text!r}")
        return int(text)

    return parse


def unknown_word(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Says what to do about words that a parser does not know."""
    verb = name_verb(parser)
    option = next((word for word in words if word.startswith("-") and word != "-"), None)
    if option is None:
        return f"{verb} takes no further word, as {words[0]!r} is; {_more(parser)}"
    name = option.partition("=")[0]
    known = [text[2:] for action in parser._actions for text in action.option_strings if text.startswith("--")]  # noqa: SLF001
    if len(name) == 2:
        known = [text for text in known if text[0] == name[1].lower()]  # many programs have letters for them
        similar = f"; did you mean {' or '.join(f'--{text}' for text in known[:3])}?" if known else "."
    else:
        similar = suggest(name.lstrip("-"), known, "--")
    return f"{verb} has no option {name}{similar if similar != '.' else f'; {_more(parser)}'}"


def name_verb(parser: argparse.ArgumentParser) -> str:
    """Returns the command without the name of the program, which stands before every sentence."""
    return parser.prog.partition(" ")[2] or parser.prog


def _more(parser: argparse.ArgumentParser) -> str:
    return f"{parser.prog} --help tells what it takes."


def _hint(name: str, choices: Sequence[str], prog: str) -> str:
    """Returns the end of a sentence: the choices that are similar, else all of them, if they are few."""
    similar = suggest(name, choices)
    if similar != ".":
        return similar
    if len(choices) <= _MAX_SHOWN_CHOICES:
        return f"; it can be {', '.join(choices[:-1])}{' or ' if len(choices) > 1 else ''}{choices[-1]}."
    return f"; {prog} --help lists what it can be."
