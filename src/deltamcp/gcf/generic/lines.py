"""Content lines of a text in the generic profile: checks its header, drops blank lines and comments (SPEC 3, 4)."""

from deltamcp.gcf.header import parse_header
from deltamcp.gcf.scalars import GcfError

HEADER = "GCF profile=generic"

MAX_DEPTH = 1_000
"""Levels to which sections may be nested. A section is an object, an array or a table with all its rows."""

_OTHER_DECODERS = {
    "delta": "the text is a generic delta: use decode_generic_delta",
    "unchanged": "the text is an unchanged answer: use decode_unchanged",
    "pack_root": "the text is a set that takes part in deltas: use decode_generic_full",
    "key": "the text is a set that takes part in deltas: use decode_generic_full",
}


_SKIPPABLE_SIGNS = ("\t", "\r", " \n", "\n# ", "  # ")
"""A text without these has no blank lines, comments or tab indentation. Measured: checking each line takes longer."""


class ContentLines:
    """The lines after the header, without blank lines and comments, and an empty line that marks the end."""

    def __init__(self, text: str | bytes, *, headed: bool = True) -> None:
        text = _decode_text(text)
        self.lines: list[str] = text.split("\n")
        if "\r" in text:
            self.lines = [line.removesuffix("\r") for line in self.lines]
        if headed:
            _check_header(self.lines[0])
        self._first = 2 if headed else 1
        self.lines = self.lines[self._first - 1 :]
        if self.lines and not self.lines[-1]:
            self.lines.pop()
        self._numbers: list[int] | None = None
        if not all(self.lines) or text[-1:] == " " or text[:1] == "#" or any(sign in text for sign in _SKIPPABLE_SIGNS):
            content = [
                (number, line) for number, line in enumerate(self.lines, self._first) if _is_content(number, line)
            ]
            self._numbers = [number for number, _ in content]
            self.lines = [line for _, line in content]
        self.lines.append("")

    def line_number(self, place: int) -> int:
        """Returns the number, from 1, that `lines[place]` has in the text; past the end, that of the last line."""
        place = min(place, len(self.lines) - 2)
        return place + self._first if self._numbers is None else self._numbers[place]


def _decode_text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise GcfError("invalid_utf8", f"byte {fault.start} is not valid UTF-8") from None
    try:
        text.isascii() or text.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise GcfError("invalid_surrogate", f"character {fault.start} is half of a surrogate pair") from None
    return text


def _check_header(line: str) -> None:
    header = parse_header(line)
    if "profile" not in header:
        raise GcfError("missing_profile", "the header does not begin with a profile", line=1)
    if header["profile"] == "graph":
        raise GcfError("graph_profile", "the text is a graph: use decode or decode_delta", line=1)
    for name, reason in _OTHER_DECODERS.items():
        if name in header:
            raise GcfError("participating_payload", reason, line=1)


def _is_content(number: int, line: str) -> bool:
    content = line.lstrip(" ")
    if content[:1] == "\t" and content.strip(" \t"):
        raise GcfError("tab_indentation", "lines are indented by spaces", line=number)
    return bool(content.strip(" \t")) and not content.startswith("# ")
