"""What of a server's text reaches a terminal, and what a pipe."""

import base64
import json
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.terminal import output
from deltamcp.cli.terminal.content import write_blocks
from deltamcp.cli.terminal.output import printable_text
from deltamcp.errors import ConfigurationError

ANY_TEXT = st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs"]))
EXPLICIT = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""The explicit formatting characters of UAX #9."""
MARKS = "\u061c\u200e\u200f"
"""The bidirectional controls that Unicode gives the class of a letter."""
SHOWN = {"\u200c", "\u200d"}
"""Format characters that change how their neighbours look: the joiners."""
IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
"""What Unicode calls default ignorable beside format characters, or has reserved for that; no variation selectors."""


def is_invisible(char: str) -> bool:
    """Whether this is a format character without a look or direction of its own, which could hide a part of a name."""
    is_format = unicodedata.category(char) == "Cf" and unicodedata.bidirectional(char) in ("BN", "ON")
    return (is_format and char not in SHOWN) or bool(IGNORABLE.match(char))


def is_dangerous(char: str) -> bool:
    """Whether Unicode calls this a control, a separator, a surrogate or a mark of direction; without our ranges."""
    if char in "\n\t\r":
        return False
    is_control = unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
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


def test_the_text_of_an_error_is_one_line_of_its_traceback_whatever_it_is_caused_by(capsys):
    try:
        try:
            raise ValueError("a cause\nFORGED\u202e")
        except ValueError as cause:
            raise ExceptionGroup("two\nFORGED", [KeyError("\x1b[2J\nFORGED"), OSError("\rFORGED")]) from cause
    except ExceptionGroup as error:
        output.print_traceback(error)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and "ValueError: a cause\\nFORGED\\u202e" in lines
    assert not any(re.match(r"[\s|+]*FORGED", line) for line in lines), lines
    assert sum(bool(re.match(r'[\s|]*File "', line)) for line in lines) == 2, "each frame has its line"


@given(st.lists(ANY_TEXT, max_size=3), ANY_TEXT)
def test_an_error_has_a_line_for_itself_and_one_for_each_detail(capsys, details, sentence):
    output.print_error(ConfigurationError(sentence, details))
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 + len(details) == err.count("\n")
    assert err.startswith("delta-mcp: ")


@given(ANY_TEXT)
def test_a_line_that_quotes_a_text_is_one_line(capsys, text):
    output.print_line(f"quoted: {text}")
    assert re.fullmatch(r"quoted: [^\n]*\n", capsys.readouterr().out)


@given(st.recursive(ANY_TEXT, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2)))
def test_json_has_no_dangerous_character_and_decodes_to_the_value(capsysbinary, value):
    output.print_json(value)
    text = capsysbinary.readouterr().out.decode()
    assert json.loads(text) == value
    assert not any(map(is_dangerous, text))
