"""`python -m bench.readers`: how right models read tables and changes, beside the same results as compact JSON.

`write FOLDER` writes sheets for models that know nothing else, and what is right into `FOLDER-answers`, which nobody
who answers may see. Each sheet has the tools' definitions, conversations and questions, in two forms: `sent-N.md` has
the replies as the server sends them, `json-N.md` as compact JSON. A model that has read `FOLDER/sent-1.md` writes its
answers to `FOLDER/sent-1.json`. `judge FOLDER` then counts what is right, by form and by kind.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bench.corpus import CORPUS
from bench.readers.conversations import Conversation, definitions_and_conversations
from bench.readers.judge import FORMS, Kind, judge, report
from deltamcp import tokens

SEED = 31
_CONVERSATIONS_PER_SHEET = 5
_TASK = """\
You are a model that uses the tools below. Each conversation shows calls that you made, and their replies.
Answer the questions on each conversation from what it says, by reading: do not run a program, and open no other file.

Write your answers as one JSON object to the file {answers}, with the numbers of the questions as keys, such as
{{"1a": 17, "1b": "open", "1c": ["x", "y"]}}. A value is written as its JSON type: text, number, true, false, null, or a
list of these in the order of the rows. Use the text "absent" for a member that a row does not have.
"""


def write(folder: Path, corpus: Path, seed: int) -> None:
    definitions, tables, changing = asyncio.run(definitions_and_conversations(corpus, seed))
    folder.mkdir(parents=True, exist_ok=True)
    answers = folder.with_name(f"{folder.name}-answers")
    answers.mkdir(exist_ok=True)
    kinds: list[tuple[Kind, list[Conversation]]] = [("tables", tables), ("changes", changing)]
    sheets = [
        (kind, conversations[at : at + _CONVERSATIONS_PER_SHEET])
        for kind, conversations in kinds
        for at in range(0, len(conversations), _CONVERSATIONS_PER_SHEET)
    ]
    for number, (kind, conversations) in enumerate(sheets, 1):
        costs = {}
        for form in FORMS:
            name = f"{form}-{number}"
            text = _sheet(form, name, definitions, conversations)
            (folder / f"{name}.md").write_text(text)
            costs[form] = tokens.count(text)
        right = {f"{at}{letter}": one.answer for at, letter, one in _numbered(conversations)}
        (answers / f"{number}.json").write_text(json.dumps({"kind": kind, "right": right}, indent=1))
        print(
            f"sheet {number}: {kind}, {len(right)} questions, {costs['sent']:,} tokens sent, {costs['json']:,} as JSON"
        )


def _numbered(conversations: Sequence[Conversation]) -> list[tuple[int, str, Any]]:
    return [
        (at, "abcdef"[place], question)
        for at, one in enumerate(conversations, 1)
        for place, question in enumerate(one.questions)
    ]


def _sheet(form: Literal["sent", "json"], name: str, definitions: str, conversations: Sequence[Conversation]) -> str:
    parts = [_TASK.format(answers=f"{name}.json"), f"## Tools\n\n{definitions}\n"]
    for number, one in enumerate(conversations, 1):
        parts.append(f"## Conversation {number}\n")
        for each in one.exchanges:
            arguments = {key: value for key, value in each.arguments.items() if form == "sent" or key != "since"}
            reply = each.sent if form == "sent" else each.json
            parts.append(f">>> {each.tool} {json.dumps(arguments)}\n<<<\n{reply}\n")
        parts += [f"{at}{letter}. {asked.text}" for at, letter, asked in _numbered(conversations) if at == number]
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.readers", description=__doc__)
    parser.add_argument("verb", choices=["write", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=CORPUS, metavar="DIR", help=f"the recorded data ({CORPUS})")
    parser.add_argument("--seed", type=int, default=SEED, help="another one gives other questions")
    given = parser.parse_args()
    if given.verb == "judge":
        print(report(judge(given.folder, given.folder.with_name(f"{given.folder.name}-answers"))))
        return
    if not given.data.is_dir():
        sys.exit(f"There is no {given.data}: say where the data is by --data or DELTA_MCP_SHARED.")
    write(given.folder, given.data, given.seed)


if __name__ == "__main__":
    main()
