"""Shows a progress bar on the terminal while a command takes longer than a second."""

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from deltamcp.catalog.clean_text import visible_line
from deltamcp.cli.terminal.output import make_error_console

if TYPE_CHECKING:
    from rich.progress import Progress

_DELAY_SECONDS = 1.0
_MAX_LABEL_CHARS = 60


class ProgressBar:
    """A progress bar on stderr; does nothing if stderr is not a terminal."""

    def __init__(self, label: str, total: float | None = None) -> None:
        """`total` is how often the caller will call `advance`, if that is known."""
        self._label, self._total = visible_line(label), total
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "ProgressBar":
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

    def advance(self) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)

    def set_label(self, text: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, description=visible_line(text))

    def show_progress(self, done: float, total: float | None, text: str | None) -> None:
        """Shows a server's progress notification."""
        if self._progress is not None:
            label = visible_line(" ".join(text.split()))[:_MAX_LABEL_CHARS] if text else self._label
            self._progress.update(self._task, completed=done, total=total, description=label)
