"""Judges answers by a program: what is right comes from the data, and no model has a say in it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["tables", "changes"]
Form = Literal["sent", "json"]
FORMS: tuple[Form, ...] = ("sent", "json")


@dataclass(frozen=True)
class Judged:
    """One answer."""

    sheet: str
    form: Form
    kind: Kind
    question: str
    given: Any
    right: Any

    @property
    def is_right(self) -> bool:
        return _is_same(self.given, self.right)


def _is_same(given: Any, right: Any) -> bool:
    """Whether an answer has the right value and type; a list of one may come as its item, a list in any order."""
    if isinstance(right, list):
        given = given if isinstance(given, list) else [given]
        return sorted(map(json.dumps, given)) == sorted(map(json.dumps, right))
    if type(right) is float or type(given) is float:
        return type(given) in (int, float) and type(right) in (int, float) and given == right
    return type(given) is type(right) and bool(given == right)


def judge(folder: Path, answers: Path) -> list[Judged]:
    """Return every answer to a sheet that was answered; a question without an answer counts as wrong."""
    judged = []
    for file in sorted(answers.glob("*.json")):
        key = json.loads(file.read_text())
        for form in FORMS:
            written = folder / f"{form}-{file.stem}.json"
            if not written.is_file():
                continue
            given = json.loads(written.read_text())
            for question, right in key["right"].items():
                judged.append(
                    Judged(written.stem, form, key["kind"], question, given.get(question, "no answer"), right)
                )
    return judged


def report(judged: list[Judged]) -> str:
    lines = []
    kinds: tuple[Kind, ...] = ("tables", "changes")
    for kind in kinds:
        for form in FORMS:
            ours = [one for one in judged if one.kind == kind and one.form == form]
            if ours:
                lines.append(f"{kind}, {form}: {sum(one.is_right for one in ours)} of {len(ours)} right")
    lines += [
        f"  {one.sheet} {one.question}: {json.dumps(one.given)} instead of {json.dumps(one.right)}"
        for one in judged
        if not one.is_right
    ]
    return "\n".join(lines)
