"""Answers a server's elicitations: with the answers of the command line, then by asking the user at the terminal."""

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from deltamcp.catalog.clean_text import visible_line
from deltamcp.cli.terminal.arguments import load_json
from deltamcp.cli.terminal.form import Field, Form, UnfitAnswerError
from deltamcp.cli.terminal.output import print_notice, quoted_lines
from deltamcp.context import Elicited
from deltamcp.errors import ConfigurationError, DeltaError, PeerError
from deltamcp.values import JSON

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
    return Elicited("accept" if read_choice("Done? y accepts, n declines", "yn") == "y" else "decline")


def _read_form(form: Form) -> Elicited:
    if not form.fields:
        choice = read_choice("y accepts, n declines, Ctrl-D cancels", "yn")
        return Elicited("accept", {}) if choice == "y" else Elicited("decline")
    print_notice("An empty line takes the [default] or leaves the field out; Ctrl-D cancels.")
    while True:
        read = {field.name: _read_field(field) for field in form.fields}
        content = {name: values[0] for name, values in read.items() if values}
        print_notice(json.dumps(content, ensure_ascii=False))
        choice = read_choice("Send this? y sends it, n declines, e edits it", "yne")
        if choice != "e":
            return Elicited("accept", content) if choice == "y" else Elicited("decline")


def read_choice(prompt: str, letters: str) -> str:
    """Asks at the terminal until the user types one of the letters.

    Raises:
        EOFError: the user pressed Ctrl-D.
    """
    while True:
        letter = _read_line(f"{prompt}: ").strip().casefold()[:1]
        if letter and letter in letters:
            return letter


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
