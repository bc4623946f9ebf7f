"""The table of the states of a promise, and the functions that lead from one record to the next."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deltamcp.promises import record
from deltamcp.promises.record import NEXT, PromiseRecord
from deltamcp.values import InputRequest, Inputs, PromiseStatus

S = PromiseStatus
NEW = PromiseRecord("owner", "account", "tool", (), "digest", "3", 1000.0, 1000.0, 2000.0, 9000.0)
QUESTION = InputRequest("elicitation/create", {"requestedSchema": {"properties": {"a": {}}, "required": ["a"]}})
ACCEPT = {"action": "accept", "content": {"a": 1}}

CHANGES: dict[str, Callable[[PromiseRecord], PromiseRecord | None]] = {
    "start": lambda now: record.start(now, now.attempt + 1, "worker", 1100.0, 500.0),
    "start late": lambda now: record.start(now, now.attempt + 1, "worker", 5000.0, 500.0),
    "start an older run": lambda now: record.start(now, now.attempt, "worker", 1100.0, 500.0),
    "report": lambda now: record.report(now, now.attempt, 0.5, 1.0, "half"),
    "report of an older run": lambda now: record.report(now, now.attempt - 1, 0.5, 1.0, "half"),
    "ask": lambda now: record.ask(now, now.attempt, {f"q{now.attempt}": QUESTION}, 1100.0, 500.0),
    "ask two": lambda now: record.ask(now, now.attempt, {f"q{now.attempt}": QUESTION, "r": QUESTION}, 1100.0, 500.0),
    "ask again": lambda now: record.ask(now, now.attempt, dict.fromkeys(now.answers, QUESTION), 1100.0, 500.0),
    "answer": lambda now: record.answer(now, Inputs(dict.fromkeys(now.questions, ACCEPT))),
    "answer one": lambda now: record.answer(now, Inputs(dict.fromkeys(list(now.questions)[:1], ACCEPT))),
    "answer something else": lambda now: record.answer(now, Inputs({"other": ACCEPT})),
    "complete": lambda now: record.finish(now, now.attempt, S.COMPLETED, "name", 1100.0, 500.0),
    "fail": lambda now: record.finish(now, now.attempt, S.FAILED, "name", 1100.0, 500.0),
    "finish an older run": lambda now: record.finish(now, now.attempt - 1, S.COMPLETED, "name", 1100.0, 500.0),
    "requeue": lambda now: record.requeue(now, now.attempt, True),
    "cancel": lambda now: record.cancel(now, 1100.0, 500.0),
    "stop": lambda now: record.finish(now, now.attempt, S.CANCELLED, "", 1100.0, 500.0),
    "end": lambda now: record.end(now, S.FAILED, "name", 1100.0, 500.0),
}
EFFECTS: dict[str, dict[PromiseStatus, PromiseStatus]] = {
    "start": {S.QUEUED: S.WORKING},
    "report": {S.WORKING: S.WORKING},
    "ask": {S.WORKING: S.INPUT_REQUIRED},
    "ask two": {S.WORKING: S.INPUT_REQUIRED},
    "answer": {S.INPUT_REQUIRED: S.QUEUED},
    "complete": {S.WORKING: S.COMPLETED},
    "fail": {S.WORKING: S.FAILED},
    "requeue": {S.WORKING: S.QUEUED},
    "cancel": {S.QUEUED: S.CANCELLED, S.WORKING: S.WORKING, S.INPUT_REQUIRED: S.CANCELLED},
    "stop": {S.WORKING: S.CANCELLED},
    "end": {S.QUEUED: S.FAILED, S.WORKING: S.FAILED, S.INPUT_REQUIRED: S.FAILED},
}
"""The state that each change leads to from each state; from others it leads nowhere."""


def in_state(status: PromiseStatus) -> PromiseRecord:
    questions = {"q1": QUESTION} if status is S.INPUT_REQUIRED else {}
    return replace(NEW, status=status, attempt=1, questions=questions)


def test_the_table_has_a_row_for_every_state_and_final_ones_lead_nowhere():
    assert set(NEXT) == set(S)
    assert {status for status in S if not NEXT[status]} == {status for status in S if status.is_final}
    reachable = {S.QUEUED}.union(*NEXT.values())
    assert reachable == set(S)


@pytest.mark.parametrize(("name", "status"), [*itertools.product(EFFECTS, S)])
def test_every_change_leads_from_every_state_where_it_should(name, status):
    changed = CHANGES[name](in_state(status))
    expected = EFFECTS[name].get(status)
    assert (None if changed is None else changed.status) == expected
    if changed is not None and changed.status is not status:
        assert changed.status in NEXT[status]


STEPS = st.lists(st.sampled_from(sorted(CHANGES)), max_size=40)


@given(STEPS)
def test_no_way_through_the_states_breaks_their_laws(steps):
    current = NEW
    for step in steps:
        changed = CHANGES[step](current)
        if changed is None:
            continue
        assert not current.status.is_final, "a final state never changes"
        assert changed.status is current.status or changed.status in NEXT[current.status]
        assert current.expires_at <= changed.expires_at <= changed.latest_expiry, "what was told stays true"
        assert changed.attempt == current.attempt + (changed.status is S.WORKING and current.status is S.QUEUED)
        assert bool(changed.questions) == (changed.status is S.INPUT_REQUIRED)
        assert not changed.questions.keys() & changed.answers.keys(), "an open question has no answer"
        assert bool(changed.worker) == (changed.status is S.WORKING)
        if changed.status.is_final:
            assert not changed.answers and not changed.questions
        assert record.decode(record.encode(changed)) == changed
        current = changed


def test_a_run_that_is_not_the_next_does_not_start():
    assert CHANGES["start an older run"](NEW) is None
    assert CHANGES["start late"](NEW) is None
    working = CHANGES["start"](NEW)
    assert working is not None
    for name in ("report of an older run", "finish an older run"):
        assert CHANGES[name](working) is None


def test_ml_39_answers_in_part_leave_the_rest_open():
    working = CHANGES["start"](NEW)
    assert working is not None
    asking = CHANGES["ask two"](working)
    assert asking is not None and set(asking.questions) == {"q1", "r"}
    assert CHANGES["answer something else"](asking) is None
    left = CHANGES["answer one"](asking)
    assert left is not None and left.status is S.INPUT_REQUIRED and set(left.questions) == {"r"}
    queued = CHANGES["answer"](left)
    assert queued is not None and queued.status is S.QUEUED and set(queued.answers) == {"q1", "r"}


def test_a_form_without_a_required_field_stays_open_where_the_client_is_asked_again():
    asking = in_state(S.INPUT_REQUIRED)
    empty = Inputs({"q1": {"action": "accept", "content": {"b": 2}}})
    left = record.answer(asking, empty, asks_again=True)
    assert left is not None and left.status is S.INPUT_REQUIRED and left.drafts == {"q1": {"b": 2}}
    assert record.answer(left, empty, asks_again=True) is None, "nothing new"
    queued = record.answer(left, Inputs(fields={"a": 1}), asks_again=True)
    assert queued is not None and queued.status is S.QUEUED and not queued.drafts
    assert queued.answers["q1"]["content"] == {"a": 1, "b": 2}
    told = record.answer(asking, empty)
    assert told is not None and told.status is S.QUEUED


def test_a_question_of_a_cancelled_call_is_not_asked():
    working = CHANGES["start"](NEW)
    assert working is not None
    stopping = CHANGES["cancel"](working)
    assert stopping is not None and stopping.cancel_requested and stopping.status is S.WORKING
    assert CHANGES["cancel"](stopping) is None
    ended = CHANGES["ask"](stopping)
    assert ended is not None and ended.status is S.CANCELLED


def test_records_of_other_versions_are_not_read():
    assert record.decode(record.encode(replace(NEW, format=2))) is None
    assert record.decode(b"{}") is None and record.decode(b"\xff") is None


def test_the_time_to_ask_again_grows_with_the_time_that_passed():
    waits = [record.snapshot(NEW, "prom_x", 1000.0 + seconds).retry_seconds for seconds in (0, 1, 2, 8, 20, 1000)]
    assert waits == [0.25, 0.25, 0.5, 2.0, 5.0, 5.0]
