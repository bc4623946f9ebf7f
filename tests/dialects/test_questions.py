"""Questions and their answers: what a client answers by ids comes to the same as what it answers by keys."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.dialects.questions import list_questions, read_responses
from deltamcp.values import InputRequest, Inputs

NAMES = st.sampled_from(["city", "date", "confirm", "value", "a.b"])


def form(fields: dict[str, bool]) -> InputRequest:
    """A form with these fields, by whether each is required."""
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
    schema["required"] = [name for name, required in fields.items() if required]
    return InputRequest("elicitation/create", {"message": "?", "requestedSchema": schema})


FORMS = st.dictionaries(
    st.sampled_from(["q1", "q2", "confirm pay 1"]),
    st.dictionaries(NAMES, st.booleans(), max_size=3).map(form),
    max_size=3,
)


@given(FORMS)
def test_ml_25_ids_of_questions_differ_and_every_form_has_one(requests):
    questions = list_questions(requests)
    assert len({question.id for question in questions}) == len(questions)
    assert {question.key for question in questions} == requests.keys()


@given(FORMS, st.data())
def test_ml_25_answers_by_ids_come_to_the_same_as_answers_by_keys(requests, data):
    questions = list_questions(requests)
    given = data.draw(st.sets(st.sampled_from(questions))) if questions else set()
    fields = {question.id: "accept" if question.field is None else f"x {question.id}" for question in given}
    by_key: dict[str, Any] = {}
    for question in given:
        content = by_key.setdefault(question.key, {"action": "accept", "content": {}})["content"]
        if question.field is not None:
            content[question.field] = fields[question.id]
    by_ids = read_responses(questions, Inputs(fields=fields), {}, True)
    assert by_ids == read_responses(questions, Inputs(by_key), {}, True)


@given(FORMS, st.data())
def test_ml_25_answers_in_two_rounds_come_to_the_same_as_in_one(requests, data):
    questions = [question for question in list_questions(requests) if question.field is not None]
    first = data.draw(st.sets(st.sampled_from(questions))) if questions else set()
    fields = {question.id: question.id for question in questions}
    draft = read_responses(questions, Inputs(fields={question.id: question.id for question in first}), {}, True)
    pending = [question for question in questions if question.key not in draft.responses]
    rest = {id_: answer for id_, answer in fields.items() if id_ not in {question.id for question in first}}
    later = read_responses(pending, Inputs(fields=rest), draft.drafts, True)
    whole = read_responses(questions, Inputs(fields=fields), {}, True)
    for key, response in {**draft.responses, **later.responses}.items():
        assert response["content"].items() <= whole.responses[key]["content"].items()
    assert {**draft.responses, **later.responses}.keys() <= whole.responses.keys()
    assert not later.drafts


TWO = {"q1": form({"city": True, "date": False}), "q2": form({"city": True})}


def test_a_name_that_two_forms_have_is_told_apart_by_the_key():
    assert [question.id for question in list_questions(TWO)] == ["q1.city", "date", "q2.city"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_an_action_is_that_of_every_question(action):
    found = read_responses(list_questions(TWO), Inputs(action=action), {}, True)
    assert found.responses == {"q1": {"action": action}, "q2": {"action": action}}


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        ("accept", "accept"),
        (True, "accept"),
        ("decline", "decline"),
        ("cancel", "cancel"),
        ("ok?", "decline"),
        (0, "decline"),
        ([], "decline"),
    ],
)
def test_only_a_clear_consent_is_one(answer, action):
    questions = list_questions({"confirm pay 1": form({})})
    assert [question.id for question in questions] == ["confirm"]
    found = read_responses(questions, Inputs(fields={"confirm": answer}), {}, True)
    assert found.responses["confirm pay 1"]["action"] == action


def test_a_form_by_key_without_its_fields_is_asked_again_only_where_that_is_wanted():
    questions, inputs = list_questions(TWO), Inputs({"q2": {"action": "accept", "content": {}}})
    assert read_responses(questions, inputs, {}, True).responses == {}
    assert read_responses(questions, inputs, {}, False).responses == inputs.responses


def test_what_is_no_form_has_no_question():
    assert list_questions({"r": InputRequest("roots/list", {})}) == []
