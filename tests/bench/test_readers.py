import json

from bench.readers.__main__ import write
from bench.readers.judge import judge, report


def test_there_are_sixty_questions_on_tables_and_forty_on_changes_and_a_program_judges_them(tmp_path, shared):
    folder = tmp_path / "sheets"
    write(folder, shared / "corpus", seed=31)
    keys = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "sheets-answers").iterdir()}
    counts = {"tables": 0, "changes": 0}
    for number, key in keys.items():
        counts[key["kind"]] += len(key["right"])
        sent, plain = ((folder / f"{form}-{number}.md").read_text() for form in ("sent", "json"))
        assert all(f"\n{question}. " in sent and f"\n{question}. " in plain for question in key["right"])
        assert "[handle " in sent and "[handle " not in plain and '"since"' not in plain.partition("## Conversation")[2]
        (folder / f"sent-{number}.json").write_text(json.dumps(key["right"]))
        (folder / f"json-{number}.json").write_text(json.dumps(key["right"] | {"1a": "no such value"}))
    assert counts == {"tables": 60, "changes": 40}
    judged = judge(folder, tmp_path / "sheets-answers")
    assert len(judged) == 200
    assert [one.question for one in judged if not one.is_right] == ["1a"] * len(keys)
    assert "tables, sent: 60 of 60 right" in report(judged) and "changes, json: 36 of 40 right" in report(judged)
