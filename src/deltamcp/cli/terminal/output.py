"""Prints servers' bytes and JSON for programs, and text, tables and progress for people; with colour only on terminals.

Whatever is printed may quote a server or a file. A line of ours stays one, with escapes such as `\n` in it. Only what
a user asks for as it is, such as the result of a call, has the ends of lines that the server wrote.
"""

import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from deltamcp.catalog.text.clean_text import HIDDEN_CLASS, visible_line
from deltamcp.errors import ConfigurationError, DeltaError
from deltamcp.values import JSON

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


_UNESCAPED_CONTROL = re.compile(f"[\u2028\u2029{HIDDEN_CLASS}]")
"""A character that JSON need not escape, and that a terminal acts on, cannot write or does not show."""
_TERMINAL_CONTROL = re.compile(f"\r(?!\n)|[\u2028\u2029{HIDDEN_CLASS}]")
"""A character of a text that a terminal would act on, or not show; a tab and an end of line are harmless."""
_FRAME = re.compile(r'[ |]*File "')
"""The beginning of a frame in a traceback, also in that of a group of exceptions."""
_MAX_SENTENCE_CHARS = 2000
_MAX_SUGGESTIONS = 3
_MIN_SCORE = 65
"""How similar a name is to a suggested one, of 100."""
_MAX_SCORE_GAP = 12
"""How much less similar than the first a further suggestion may be."""
_COLOURS = MappingProxyType({"-": "31", "+": "32"})
"""Red and green, as parameters of SGR (ECMA-48, 8.3.117)."""
_DEFAULT_WIDTH = 200
"""Columns of output that does not go to a terminal."""


def print_json(value: JSON) -> None:
    """
    Raises:
        ValueError: the value is nested too deeply.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_lines(_UNESCAPED_CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text))


def write_lines(text: str) -> None:
    """Writes a text to stdout and ends its last line; on a terminal without control characters, else in UTF-8."""
    if text and not text.endswith("\n"):
        text += "\n"
    if sys.stdout.isatty():
        sys.stdout.write(printable_text(text))
    else:
        write_bytes(text.encode(errors="replace"))


def write_bytes(data: bytes) -> None:
    """Writes bytes to stdout and adds nothing."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def print_text(text: str) -> None:
    """Prints a text of several lines to stdout."""
    print(printable_text(text))


def print_line(text: str) -> None:
    """Prints a line to stdout."""
    print(visible_line(text))


def print_changed_line(text: str) -> None:
    """Prints a line of a comparison; on a terminal one that begins with `-` is red, and one with `+` green."""
    line, colour = visible_line(f"  {text}"), _COLOURS.get(text[:1])
    print(f"\x1b[{colour}m{line}\x1b[0m" if colour and _shows_colours() else line)


def _shows_colours() -> bool:
    """Whether stdout is a terminal whose user does not refuse colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_notice(text: str) -> None:
    """Prints a line to stderr."""
    print(visible_line(text), file=sys.stderr, flush=True)


def print_error(error: DeltaError) -> None:
    """Prints the sentence of an error to stderr, and below it what an error of a file or a module has beside it."""
    sentence, details = (error.sentence, error.details) if isinstance(error, ConfigurationError) else (str(error), ())
    print_notice(f"delta-mcp: {shorten(sentence)}")
    for detail in details:
        print_notice(shorten(detail))


def print_traceback(error: BaseException) -> None:
    """Prints a traceback to stderr, in which the text of each error is one line."""
    for line in traceback_lines(traceback.format_exception(error)):
        print_notice(line)


def traceback_lines(parts: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a traceback that Python has formatted; the text of an error is one of them."""
    for part in parts:
        if _FRAME.match(part):
            yield from part.splitlines()
        else:
            yield part.strip("\n")


def quoted_lines(text: str) -> list[str]:
    """Returns the lines of a server's text, of which all but the first are marked as a part of it."""
    first, *others = text.splitlines() or [""]
    return [first, *(f"| {line}" for line in others)]


def make_console(columns: int = _DEFAULT_WIDTH, wraps: bool = False) -> "Console":
    """Makes a console on stdout that prints each text as one line.

    Args:
        columns: how wide tables are where the output does not go to a terminal.
        wraps: whether a text is then several lines, none of them wider.
    """
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else columns
    return _printable_console()(
        width=width, highlight=False, markup=False, emoji=False, soft_wrap=is_terminal or not wraps
    )


def make_error_console() -> "Console":
    """Makes such a console on stderr, for what draws on the terminal."""
    return _printable_console()(file=sys.stderr.stream if isinstance(sys.stderr, PrintableStream) else sys.stderr)


def _printable_console() -> "type[Console]":
    from rich.console import Console
    from rich.text import Text

    def printable(each: Any) -> Any:
        if isinstance(each, Text):  # while a bar is shown, what is written to stderr comes as such
            return Text(printable_text(each.plain))
        return visible_line(each) if isinstance(each, str) else each

    class PrintableConsole(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*map(printable, objects), **options)

    return PrintableConsole


def print_table(
    title: str,
    texts: Sequence[str],
    figures: Sequence[str],
    rows: Iterable[Sequence[str | list[str]]],
    console: "Console",
) -> None:
    """Prints a table with text columns, then number columns; `texts` and `figures` are their headings.

    A cell is one line, or a list of lines, which is for columns that have another before them.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        title=visible_line(title) or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_header=bool(any(texts) or any(figures)),
    )
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*("\n".join(map(visible_line, [cell] if isinstance(cell, str) else cell)) for cell in row))
    console.print(table)


class PrintableStream:
    """A stream to a terminal or a file that texts are written to without control characters.

    stderr is one while a command runs: sentences, logs and tracebacks may quote a server.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        """The stream itself, for what draws on the terminal."""

    def write(self, text: str) -> int:
        return self.stream.write(printable_text(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def shorten(text: str) -> str:
    """Cuts a sentence that quotes more of a server's text than a user reads."""
    return text if len(text) <= _MAX_SENTENCE_CHARS else f"{text[:_MAX_SENTENCE_CHARS]}…"


def printable_text(text: str) -> str:
    """Replaces the characters with which a server's text could control the terminal or reverse the writing."""
    return _TERMINAL_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def suggest(name: str, names: Iterable[str], prefix: str = "", otherwise: str = "") -> str:
    """Returns the end of a sentence: `; did you mean ...?`, or what to do if no name is similar.

    Args:
        prefix: what stands before every name, such as the dashes of options, which would make all names similar.
        otherwise: what to do; empty if the sentence then just ends.
    """
    similar = similar_names(name, names)
    if not similar:
        return f"; {otherwise}." if otherwise else "."
    return f"; did you mean {' or '.join(prefix + match for match in similar)}?"


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Returns the names that may be meant by a wrong one, the most similar first."""
    from rapidfuzz import process  # 30 ms to import, needed only where a name is wrong

    extracted = process.extract(name, list(names), limit=_MAX_SUGGESTIONS, score_cutoff=_MIN_SCORE)
    return [match for match, score, _ in extracted if score >= extracted[0][1] - _MAX_SCORE_GAP]


_DELAY_SECONDS = 1.0
_MAX_LABEL_CHARS = 60
_MAX_NAMED = 3
"""How many of those that are waited for a bar names."""


class ProgressBar:
    """A progress bar on stderr; does nothing if stderr is not a terminal."""

    def __init__(self, label: str, total: float | None = None) -> None:
        """`total` is how often the caller will call `advance`, if that is known."""
        self._label, self._total = visible_line(label), total
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=make_error_console(), transient=True)
            self._task = self._progress.add_task(self._label, total=self._total)
            self._timer = threading.Timer(_DELAY_SECONDS, self._progress.start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None and self._timer is not None:
            self._timer.cancel()
            self._progress.stop()

    def hide(self) -> None:
        """Removes the bar, so that the user can see what they type."""
        self.__exit__(None, None, None)
        self._progress = None

    def set_label(self, text: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, description=visible_line(text))

    def show_progress(self, done: float, total: float | None, text: str | None) -> None:
        """Shows a server's progress notification."""
        if self._progress is not None:
            label = visible_line(" ".join(text.split()))[:_MAX_LABEL_CHARS] if text else self._label
            self._progress.update(self._task, completed=done, total=total, description=label)


class WaitingBar(ProgressBar):
    """Such a bar while several are waited for, which names some of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        super().__init__(self._waiting_label, len(self._names))

    @property
    def _waiting_label(self) -> str:
        more = f" and {len(self._names) - _MAX_NAMED} more" if len(self._names) > _MAX_NAMED else ""
        return f"Waiting for {', '.join(self._names[:_MAX_NAMED])}{more}"

    def note_answer(self, name: str) -> None:
        self._names.remove(name)
        if self._progress is not None:
            self._progress.advance(self._task)
        if self._names:
            self.set_label(self._waiting_label)
