"""What of a server's text reaches a terminal, and what a pipe."""

import base64
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.content import write_blocks
from deltamcp.cli.output import printable_text

ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs"]))
EXPLICIT = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""The explicit formatting characters of UAX #9."""
MARKS = "\u061c\u200e\u200f"
"""The bidirectional controls that Unicode gives the class of a letter."""
SHOWN = {"\u00ad", "\u200c", "\u200d"}
"""Format characters that change how their neighbours look: the soft hyphen and the joiners."""


def is_invisible(char: str) -> bool:
    """Whether this is a format character without a look or direction of its own, which could hide a part of a name."""
    is_format = unicodedata.category(char) == "Cf" and unicodedata.bidirectional(char) in ("BN", "ON")
    return is_format and char not in SHOWN


def is_dangerous(char: str) -> bool:
    """Whether Unicode calls this a control, a bidirectional control or a surrogate; a judge without our ranges."""
    if char in "\n\t\r":
        return False
    is_control = unicodedata.category(char) in ("Cc", "Cs")
    return is_control or char in MARKS or unicodedata.bidirectional(char) in EXPLICIT or is_invisible(char)


@given(ANY_TEXT)
def test_a_terminal_is_shown_every_character_that_is_not_dangerous(text):
    shown = printable_text(text)

    expected = "".join("\ufffd" if is_dangerous(char) else char for char in text)
    assert shown == re.sub(r"\r(?!\n)", "\ufffd", expected)


def test_the_judge_knows_every_bidirectional_control():
    known = {char for char in map(chr, range(0x110000)) if is_dangerous(char) and unicodedata.category(char) == "Cf"}
    controls = {char for char in known if not is_invisible(char)}

    assert controls == {*MARKS, *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
    assert printable_text("".join(sorted(known))) == "\ufffd" * len(known)


@given(text=st.text())
def test_a_pipe_gets_the_bytes_of_any_text(capsysbinary, text):
    write_blocks([{"type": "text", "text": text}])

    assert capsysbinary.readouterr().out == text.encode()


@given(data=st.binary())
def test_a_pipe_gets_any_bytes(capsysbinary, data):
    coded = base64.b64encode(data).decode()
    for block in (
        {"type": "image", "data": coded, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a:b", "blob": coded}},
    ):
        write_blocks([block])
        assert capsysbinary.readouterr().out == data
