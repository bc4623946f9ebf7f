"""A regular expression of a caller, searched in time that grows with the text only, as RE2 does it.

Before it stand options of the command `grep`, as models write them: `-C2` for two lines around each match, `-A2` and
`-B2` for the same, `-c` for the number of matches alone, and `-i` for letters of any case.
"""

import functools
import re
from collections.abc import Iterator

import re2
from msgspec import Struct

from deltamcp.errors import UsageError
from deltamcp.work import Work

MAX_CHARS = 1_000
"""The longest pattern; a model that searches for more of a text has the text."""
MAX_CONTEXT = 50
_MAX_MEMORY = 1024 * 1024
"""The memory of a compiled pattern, by RE2's own count."""
_MAX_PROGRAM = 2_000
"""The most instructions of a compiled pattern. Where its automaton has too many states to keep, RE2 follows each
instruction for each character."""
_INSTRUCTIONS_PER_SCAN = 3
"""Instructions that RE2 follows in the time that a scanned character is counted with: 3,000 take 3.8 µs."""
_CACHED_PATTERNS = 32
_PIECE_BYTES = 256 * 1024
"""Longer texts are searched in pieces, so that no single call takes long."""
_LINES = "(?m)"
"""Has ^ and $ match at the beginning and the end of each line."""
_OPTION = re.compile(r"-(?:[ABC] ?(\d{1,4})|([ci]))(?: |$)")
_ANY_CASE = "(?i)"


class Pattern(Struct, frozen=True):
    """A compiled pattern, and how many lines around a match its caller asks for."""

    expression: str
    context: int
    only_counts: bool
    """Whether the caller asks for the number of matches alone."""
    compiled: re2._Regexp
    program_size: int

    def find(self, data: bytes, begin: int, end: int, work: Work) -> int:
        """Returns where in a part of a text the first match begins, which is within a line; -1 if there is none."""
        for start, stop in self._pieces(data, begin, end, work):
            place = self._find_in_piece(data, start, stop)
            if place >= 0:
                return place
        return -1

    def _pieces(self, data: bytes, begin: int, end: int, work: Work) -> Iterator[tuple[int, int]]:
        """Yields the beginning and end of pieces of whole lines, and count the steps that a search of each takes."""
        while begin < end:
            stop = min(end, begin + _PIECE_BYTES)
            if stop < end:
                stop = data.find(b"\n", stop, end) + 1 or end
            work.scan((stop - begin) * (1 + self.program_size // _INSTRUCTIONS_PER_SCAN))
            yield begin, stop
            begin = stop

    def _find_in_piece(self, data: bytes, begin: int, end: int) -> int:
        match = self.compiled.search(data, begin, end)
        if match is None:
            return -1
        place = int(match.start())
        # Behind the last line break of a piece an empty match is of no line, or of the next piece's.
        return -1 if place == end and data[end - 1 : end] == b"\n" else place

    def matches(self, text: str, work: Work) -> bool:
        data = text.encode()
        if not data:
            return self.compiled.search(data) is not None
        return self.find(data, 0, len(data), work) >= 0

    def matching_lines(self, data: bytes, work: Work) -> Iterator[tuple[int, int, int]]:
        """Yields the beginning, the end and the place of the match of every line that matches.

        A search ends at the line break behind its match, since a pattern matches none; so a text is searched once.
        """
        for begin, stop in self._pieces(data, 0, len(data), work):
            while begin < stop:
                place = self._find_in_piece(data, begin, stop)
                if place < 0:
                    break
                work.spend()
                start = data.rfind(b"\n", begin, place) + 1 or begin
                end = data.find(b"\n", place)
                end = len(data) if end < 0 else end
                yield start, end, place
                begin = end + 1

    @property
    def ignoring_case(self) -> "Pattern":
        """The same pattern for letters of any case."""
        return parse_pattern(_ANY_CASE + self.expression)


def parse_pattern(grep: str) -> Pattern:
    """Compiles a pattern.

    Raises:
        UsageError: RE2 does not know a part of it, or it is too large.
    """
    if len(grep) > MAX_CHARS:
        raise UsageError(f"grep may have at most {MAX_CHARS} characters; search for less.")
    context, letters, expression = 0, set[str](), grep
    while (option := _OPTION.match(expression)) is not None:
        context = context if option[1] is None else min(int(option[1]), MAX_CONTEXT)
        letters.add(option[2])
        expression = expression[option.end() :]
    expression = _ANY_CASE * ("i" in letters) + expression
    compiled = _compile(expression)
    return Pattern(expression, context, "c" in letters, compiled, int(compiled.programsize))


@functools.lru_cache(maxsize=_CACHED_PATTERNS)
def _compile(expression: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.max_mem = _MAX_MEMORY
    try:
        compiled = re2.compile(_LINES + expression, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else ""
        reason = reason.replace(_LINES, "")
        raise UsageError(
            f"grep is a regular expression as RE2 reads it, and this is none: {reason[:100]}. "
            "A backslash takes a character literally."
        ) from None
    except UnicodeEncodeError:
        raise UsageError("grep must be text without halves of surrogate pairs.") from None
    if compiled.programsize > _MAX_PROGRAM:
        raise UsageError("grep: the pattern is too large; repeat less in it.")
    return compiled
