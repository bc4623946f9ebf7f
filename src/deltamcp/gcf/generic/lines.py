"""A text in the generic profile as its header and the lines that count (SPEC 3, 4)."""

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.header import parse_header

HEADER = "GCF profile=generic"

MAX_DEPTH = 1_000
"""How deep sections may lie in each other. One is an object, an array or a table with all its rows."""

_OTHER_DECODERS = {
    "delta": "a generic delta is read by decode_generic_delta",
    "unchanged": "an unchanged answer is read by decode_unchanged",
    "pack_root": "a set that takes part in deltas is read by decode_generic_full",
    "key": "a set that takes part in deltas is read by decode_generic_full",
}


_SKIPPABLE_SIGNS = ("\t", "\r", " \n", "\n# ", "  # ")
"""Without these no line is blank, a comment or indented by tabs. Measured: looking at each line takes longer."""


class ContentLines:
    """The lines after the header, without blank ones and comments, and an empty one to mark the end."""

    def __init__(self, text: str | bytes, *, headed: bool = True) -> None:
        text = _decode_text(text)
        self.lines = text.split("\n")
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
            kept = [(number, line) for number, line in enumerate(self.lines, self._first) if _is_content(number, line)]
            self._numbers = [number for number, _ in kept]
            self.lines = [line for _, line in kept]
        self.lines.append("")

    def line_number(self, place: int) -> int:
        """The line of the text that `lines[place]` is, counted from 1; the last one where the text is over."""
        place = min(place, len(self.lines) - 2)
        return place + self._first if self._numbers is None else self._numbers[place]


def _decode_text(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise GcfError("invalid_utf8", f"byte {fault.start} begins no character") from None
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
        raise GcfError("graph_profile", "a graph is read by decode or decode_delta", line=1)
    for name, reason in _OTHER_DECODERS.items():
        if name in header:
            raise GcfError("participating_payload", reason, line=1)


def _is_content(number: int, line: str) -> bool:
    content = line.lstrip(" ")
    if content[:1] == "\t" and content.strip(" \t"):
        raise GcfError("tab_indentation", "lines are indented by spaces", line=number)
    return bool(content.strip(" \t")) and not content.startswith("# ")
