"""Answers a server's elicitations: with the answers of the command line, then by asking the user in a form.

The servers' schemas are flat (MCP 2026-07-28, "Requested Schema"); keywords that MCP does not have there are ignored.
"""

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from deltamcp.catalog.text.clean_text import visible_line
from deltamcp.cli.terminal.arguments import load_json
from deltamcp.cli.terminal.output import print_notice, quoted_lines
from deltamcp.context import Elicited
from deltamcp.errors import ConfigurationError, DeltaError, PeerError
from deltamcp.values import JSON

_KEYWORDS = ("type", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems")
"""The keywords by which a value is checked; choices are checked by themselves."""
_TYPE_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "y or n"}
_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_MAX_CHOICES_SHOWN = 20
"""How many choices a sentence names."""


class UnfitAnswerError(ConfigurationError):
    """An answer does not fit the form; the text says why, without a final full stop."""


class Choice(NamedTuple):
    """One of the values that a field accepts."""

    value: JSON
    title: str


class Field:
    """A field of a form."""

    def __init__(self, name: str, schema: Any, is_required: bool) -> None:
        self.name = name
        self.is_required = is_required
        self._schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        self.is_list: bool = self._schema.get("type") == "array"
        items = self._schema.get("items")
        self.choices: list[Choice] = _read_choices(items if self.is_list and isinstance(items, dict) else self._schema)

    @property
    def label(self) -> str:
        """The field's title, and its description if it has one; one line."""
        title, description = self._schema.get("title"), self._schema.get("description")
        parts = [title if isinstance(title, str) and title else self.name]
        parts += [description] if isinstance(description, str) and description else []
        return " - ".join(" ".join(part.split()) for part in parts)

    @property
    def has_default(self) -> bool:
        return "default" in self._schema

    @property
    def default(self) -> JSON:
        return self._schema.get("default")

    @property
    def kind(self) -> str:
        """What the field accepts, in words."""
        if self.choices:
            shown = ", ".join(str(choice.value) for choice in self.choices[:_MAX_CHOICES_SHOWN])
            more = ", ..." if len(self.choices) > _MAX_CHOICES_SHOWN else ""
            return f"{'some' if self.is_list else 'one'} of {shown}{more}"
        type_ = self._schema.get("type")
        word = _TYPE_WORDS.get(type_, "JSON") if isinstance(type_, str) else "JSON"
        format_ = self._schema.get("format")
        return f"{word} ({format_})" if isinstance(format_, str) else word

    def parse(self, text: str) -> JSON:
        """Returns the value that a person typed.

        Raises:
            UnfitAnswerError: the text is not a value of this field.
        """
        value = self._parse(text)
        self.check(value)
        return value

    def _parse(self, text: str) -> JSON:
        if self.is_list:
            return [self._parse_choice(part.strip()) for part in text.split(",") if part.strip()]
        if self.choices:
            return self._parse_choice(text.strip())
        match self._schema.get("type"):
            case "string":
                return text
            case "boolean":
                if text.strip().casefold() not in _BOOLEANS:
                    raise UnfitAnswerError("Answer y or n")
                return _BOOLEANS[text.strip().casefold()]
            case _:
                try:
                    return load_json(text)
                except (ValueError, RecursionError):
                    return text

    def _parse_choice(self, text: str) -> JSON:
        """Returns the choice that a text names by its value, its title or its number."""
        for choice in self.choices:
            if text == str(choice.value):
                return choice.value
        for number, choice in enumerate(self.choices, 1):
            if text.casefold() == choice.title.casefold() or text == str(number):
                return choice.value
        return text

    def check(self, value: JSON) -> None:
        """
        Raises:
            UnfitAnswerError: the field does not accept the value.
        """
        if self.choices:
            accepted = [choice.value for choice in self.choices]
            for item in value if self.is_list and isinstance(value, list) else [value]:
                if not any(type(item) is type(one) and item == one for one in accepted):
                    raise UnfitAnswerError(f"{json.dumps(item, ensure_ascii=False):.80} is not {self.kind}")
        import jsonschema_rs  # 30 ms to import

        schema = {keyword: self._schema[keyword] for keyword in _KEYWORDS if keyword in self._schema}
        try:
            validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        except ValueError:  # the server's schema is invalid; it has to check the answer itself
            return
        for problem in validator.iter_errors(value):
            raise UnfitAnswerError(problem.message.rstrip("."))


class Form:
    """A form, or a page to open, that a server asks the user for."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """`params` are those of `elicitation/create`."""
        self.message: str = str(params.get("message", ""))
        self.url: str | None = str(params.get("url", "")) if params.get("mode") == "url" else None
        schema = params.get("requestedSchema")
        properties = schema.get("properties") if isinstance(schema, dict) and self.url is None else None
        required = schema.get("required") if isinstance(schema, dict) else None
        self.fields: list[Field] = [
            Field(name, field, isinstance(required, list) and name in required)
            for name, field in (properties.items() if isinstance(properties, dict) else ())
        ]

    def __str__(self) -> str:
        """The question in one line, for an error."""
        message = " ".join(self.message.split())
        if self.url is not None:
            return f"{message!r} (open {self.url})"
        fields = [
            f"{field.name}: {field.kind}{', required' if field.is_required and not field.has_default else ''}"
            for field in self.fields
        ]
        return f"{message!r} ({'; '.join(fields) or 'accept or decline'})"

    def fill_in(self, content: Mapping[str, JSON]) -> dict[str, JSON]:
        """Returns the content to send: a script's answer, and the defaults of the fields that it leaves out.

        Raises:
            UnfitAnswerError: the form does not accept the answer.
        """
        fields = {field.name: field for field in self.fields}
        for name in content:
            if name not in fields:
                raise UnfitAnswerError(f"there is no field {name!r}")
        filled: dict[str, JSON] = {field.name: field.default for field in self.fields if field.has_default}
        filled.update(content)
        for name, field in fields.items():
            if name in content:
                try:
                    field.check(content[name])
                except UnfitAnswerError as error:
                    raise UnfitAnswerError(f"{name}: {error}") from None
            elif field.is_required and not field.has_default:
                raise UnfitAnswerError(f"{name} is required")
        return filled


def _read_choices(schema: Mapping[str, Any]) -> list[Choice]:
    """Reads the choices of a field in every form that MCP has had for them (SEP-1330)."""
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            return [
                Choice(branch["const"], str(branch.get("title", branch["const"])))
                for branch in branches
                if isinstance(branch, dict) and "const" in branch
            ]
    values, titles = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list):
        return []
    named = titles if isinstance(titles, list) and len(titles) == len(values) else values
    return [Choice(value, str(title)) for value, title in zip(values, named, strict=True)]


T = TypeVar("T")

_URL_ELICITATION_REQUIRED = -32042
"""MCP 2025-11-25, "URL Elicitation Required Error": the request can be sent again once the user has opened the URLs."""


def add_answer_option(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--answer",
        action="append",
        type=_parse_answer,
        default=[],
        metavar="JSON",
        help="answers the server's next question: its fields as an object, or accept, decline or cancel; repeatable",
    )


def _parse_answer(text: str) -> Elicited:
    if text in ("accept", "decline", "cancel"):
        return Elicited(text, {} if text == "accept" else None)  # type: ignore[arg-type]
    with suppress(ValueError, RecursionError):
        content = load_json(text)
        if isinstance(content, dict):
            return Elicited("accept", content)
    raise argparse.ArgumentTypeError(f"a JSON object, or accept, decline or cancel, not {text!r:.80}")


class Elicitation:
    """Answers the questions that a server asks during one request, one after the other."""

    def __init__(self, answers: Sequence[Elicited], hide_progress: Callable[[], None]) -> None:
        """
        Args:
            answers: those of the command line, in the order of the questions.
            hide_progress: called before the user is asked.
        """
        self._answers = answers
        self._next = 0
        self._hide_progress = hide_progress
        self._lock = asyncio.Lock()
        self._problem: ConfigurationError | None = None

    async def send(self, request: Callable[[], Awaitable[T]]) -> T:
        """Sends a request and returns its result.

        Raises:
            ConfigurationError: an answer of the command line does not fit its question, which was cancelled therefore.
        """
        try:
            result = await self._send_after_urls(request)
        except DeltaError:
            if self._problem is None:
                raise
        if self._problem is not None:
            raise self._problem
        unused = len(self._answers) - self._next
        if unused:
            print_notice(f"delta-mcp: {unused} --answer {'was' if unused == 1 else 'were'} not asked for.")
        return result

    async def _send_after_urls(self, request: Callable[[], Awaitable[T]]) -> T:
        """Sends a request, and once more if the user has opened the URLs that the server demands."""
        try:
            return await request()
        except PeerError as error:
            if not await self._open_urls(error):
                raise
        return await request()

    async def _open_urls(self, error: PeerError) -> bool:
        """Asks the user to open the URLs that an error names; returns whether there are any and all were opened."""
        data: Any = error.data if error.code == _URL_ELICITATION_REQUIRED else None
        questions = data.get("elicitations") if isinstance(data, dict) else None
        if not isinstance(questions, list) or not questions:
            return False
        for question in questions:
            if not isinstance(question, dict) or not (await self.answer(question)).accepted:
                return False
        return True

    async def answer(self, question: dict[str, JSON]) -> Elicited:
        """Answers one question; the client's `on_elicitation`."""
        async with self._lock:
            form = Form(question)
            if self._problem is not None:
                return Elicited("cancel")
            if self._next < len(self._answers):
                self._next += 1
                return self._fill_in(form, self._answers[self._next - 1])
            self._hide_progress()
            if sys.stdin.isatty() and sys.stderr.isatty():
                return await _ask_user(form)
            print_notice(
                f"delta-mcp: The server asks {form}; there is no terminal to ask at, so the question is cancelled; "
                "--answer JSON answers it."
            )
            return Elicited("cancel")

    def _fill_in(self, form: Form, answer: Elicited) -> Elicited:
        if not answer.accepted:
            return answer
        try:
            return Elicited("accept", form.fill_in(answer.content))
        except UnfitAnswerError as error:
            self._problem = ConfigurationError(
                f"--answer number {self._next} does not fit: {error}; the server asks {form}."
            )
            return Elicited("cancel")


async def _ask_user(form: Form) -> Elicited:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Elicited] = loop.create_future()

    def set_answer(elicited: Elicited) -> None:
        if not answer.done():
            answer.set_result(elicited)

    def read_answer() -> None:
        elicited = _read_answer(form)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_answer, elicited)

    # Not the loop's executor: the program could not end before the user has pressed a key.
    threading.Thread(target=read_answer, daemon=True).start()
    return await answer


def _read_answer(form: Form) -> Elicited:
    print_notice("")
    for line in quoted_lines(f"The server asks: {form.message}"):
        print_notice(line)
    try:
        return _read_form(form) if form.url is None else _read_visit(form.url)
    except EOFError:
        print_notice("")
        print_notice("Cancelled.")
        return Elicited("cancel")


def _read_visit(url: str) -> Elicited:
    with suppress(ValueError):
        print_notice(f"Open this page of {urlsplit(url).hostname} in a browser, and come back (Ctrl-D cancels):")
    print_notice(f"  {url}")
    return Elicited("accept" if read_choice("Done?", "yn") == "y" else "decline")


def _read_form(form: Form) -> Elicited:
    if not form.fields:
        choice = read_choice("Accept? Ctrl-D cancels", "yn")
        return Elicited("accept", {}) if choice == "y" else Elicited("decline")
    print_notice("An empty line takes the [default] or leaves the field out; Ctrl-D cancels.")
    while True:
        read = {field.name: _read_field(field) for field in form.fields}
        content = {name: values[0] for name, values in read.items() if values}
        print_notice(json.dumps(content, ensure_ascii=False))
        choice = read_choice("Send this? e edits it", "yne")
        if choice != "e":
            return Elicited("accept", content) if choice == "y" else Elicited("decline")


def read_choice(question: str, letters: str) -> str:
    """Asks at the terminal until the user types one of the letters, or a word that begins with it.

    Args:
        letters: shown as `[y/n]`; an empty line is the one that is a capital, as in `[y/N]`, if there is one.

    Raises:
        EOFError: the user pressed Ctrl-D.
    """
    default = next((letter for letter in letters if letter.isupper()), "").casefold()
    while True:
        letter = _read_line(f"{question} [{'/'.join(letters)}] ").strip().casefold()[:1] or default
        if letter and letter in letters.casefold():
            return letter


def agrees(question: str, by_default: bool = False) -> bool:
    """Asks at the terminal whether to do something; an empty line is the default, and Ctrl-D is no."""
    try:
        return read_choice(question, "Yn" if by_default else "yN") == "y"
    except EOFError:
        return False


def _read_field(field: Field) -> list[JSON]:
    """Returns the value in a list; an empty list if the user leaves the field out."""
    default = f" [{_default_text(field)}]" if field.has_default else ""
    if field.choices:
        print_notice(f"  {field.label}:")
        for number, choice in enumerate(field.choices, 1):
            print_notice(f"    {number} {' '.join(choice.title.split())}")
        prompt = f"  {'numbers, with commas between' if field.is_list else 'number'}{default}: "
    else:
        prompt = f"  {field.label} ({field.kind}){default}: "
    while True:
        text = _read_line(prompt)
        try:
            if text:
                return [field.parse(text)]
            if field.has_default:
                return [field.default]
            if not field.is_required:
                return []
            print_notice("    This one is required.")
        except UnfitAnswerError as error:
            print_notice(f"    {error}.")


def _default_text(field: Field) -> str:
    default = field.default
    if isinstance(default, bool):
        return "y" if default else "n"
    return default if isinstance(default, str) else json.dumps(default, ensure_ascii=False)


def _read_line(prompt: str) -> str:
    """
    Raises:
        EOFError: the user pressed Ctrl-D.
    """
    print(visible_line(prompt), end="", file=sys.stderr, flush=True)
    line = b""
    # Not `input`, which prompts on a redirected stdout; not the buffered reader, whose lock the waiting thread would
    # hold while the interpreter ends.
    while not line.endswith(b"\n"):
        read = sys.stdin.buffer.raw.read(65536)  # type: ignore[union-attr]
        if not read:
            raise EOFError
        line += read
    return line.decode(sys.stdin.encoding, "replace").rstrip("\r\n")
