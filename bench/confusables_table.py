"""Makes the table of characters that look like Latin letters or digits from Unicode's `confusables.txt` (UTS #39).

    python -m bench.confusables_table confusables.txt src/deltamcp/gateway/trust/confusables.txt

It writes only what `skeleton`, in `gateway/trust/imitation.py`, does not do without it, and keeps the notice at the
head of the table.
"""

import re
import sys
import unicodedata
from pathlib import Path

_SMALL_CAPITAL = re.compile(r"LATIN LETTER SMALL CAPITAL ([A-Z])")


def main(source: Path, table: Path) -> None:
    letters: dict[str, list[str]] = {}
    for char in map(chr, range(0x250, 0xAC00)):
        if (letter := _small_capital(char)) != char:
            letters.setdefault(letter, []).append(char)
    for line in source.read_text("utf-8-sig").splitlines():
        fields = line.partition("#")[0].split(";")
        if len(fields) < 3 or len(fields[0].split()) > 1:
            continue
        char = chr(int(fields[0], 16))
        prototype = _base("".join(_small_capital(chr(int(code, 16))) for code in fields[1].split()))
        if not char.isascii() and prototype.isascii() and prototype.isalnum() and _base(char) != prototype:
            letters.setdefault(prototype, []).append(char)
    notice = [line for line in table.read_text().splitlines() if line.startswith("#")]
    rows = [f"{prototype} {''.join(sorted({*chars}))}" for prototype, chars in sorted(letters.items())]
    table.write_text("\n".join([*notice, *rows]) + "\n")


def _small_capital(char: str) -> str:
    """Returns the letter of a small capital, which Unicode tells apart from it."""
    found = _SMALL_CAPITAL.fullmatch(unicodedata.name(char, ""))
    return char if found is None else found[1].lower()


def _base(text: str) -> str:
    """Returns the letters and digits of a text, without case and marks."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return "".join(char for char in decomposed if char.isalnum())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
