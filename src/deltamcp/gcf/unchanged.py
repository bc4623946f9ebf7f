"""The `unchanged` answer, which tells a reader that the contents it has are current (SPEC 10.3, 10a.4)."""

from dataclasses import dataclass
from typing import Literal

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.header import (
    V1_UNCHANGED_PREFIX,
    Dialect,
    check_count,
    check_token,
    open_text,
    parse_count,
    write_header,
)

_COUNT_FIELDS = {"graph": "symbols", "generic": "count"}


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The contents with this root have not changed. `count` is the number of their symbols or rows."""

    pack_root: str
    count: int
    tool: str = ""
    profile: Literal["graph", "generic"] = "graph"


def encode_unchanged(answer: Unchanged, *, dialect: Dialect = "v3") -> str:
    """Encode the answer. The v1 dialect writes it without a header, and has none for keyed sets."""
    count = check_count("count", answer.count)
    if dialect == "v1":
        if answer.profile != "graph":
            raise GcfError("unknown_profile", "the v1 dialect has no generic deltas")
        return f"{V1_UNCHANGED_PREFIX}{check_token('pack_root', answer.pack_root)} symbols={count}\n"
    pairs: list[tuple[str, object]] = [("profile", answer.profile)]
    if answer.tool:
        pairs.append(("tool", answer.tool))
    pairs += [("unchanged", "true"), ("pack_root", answer.pack_root), (_COUNT_FIELDS[answer.profile], count)]
    return write_header(pairs) + "\n"


def decode_unchanged(text: str) -> Unchanged:
    """Decode an `unchanged` answer of either dialect."""
    if text.startswith(V1_UNCHANGED_PREFIX):
        words = text.rstrip("\r\n").split(" ")
        if len(words) != 3 or not words[2].startswith("symbols="):
            raise GcfError("malformed_header_field", f"{text!a:.80}", line=1)
        root = check_token("pack_root", words[1].removeprefix("pack_root="))
        return Unchanged(root, parse_count("symbols", words[2].removeprefix("symbols=")))
    header, lines = open_text(text, "graph-unchanged", "generic-unchanged")
    for number, _ in lines:
        raise GcfError("trailing_characters", "an unchanged answer has no lines after its header", line=number)
    profile: Literal["graph", "generic"] = "generic" if header.get("profile") == "generic" else "graph"
    if not header.keys() >= {"pack_root", count_field := _COUNT_FIELDS[profile]}:
        raise GcfError("malformed_header_field", f"pack_root or {count_field} is missing", line=1)
    return Unchanged(
        header["pack_root"], parse_count(count_field, header[count_field]), header.get("tool", ""), profile
    )
