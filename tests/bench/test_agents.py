"""The benchmark of agents: every answer is right, and neither a task nor a mistake costs more than was set."""

import asyncio

import pytest

from bench.agents.agent import MISTAKES
from bench.agents.harness import Report, Run, missing_servers, run_all_tasks
from bench.agents.tasks import TASKS
from bench.agents.transcript import Transcript, UntoldWordError, names_in_fields

pytestmark = pytest.mark.interop

AVERAGE_TOKENS, MOST_TOKENS, MISTAKE_TOKENS = 400, 1_500, 500
REPEATED_SHARE = 0.2


@pytest.fixture(scope="module")
def worked(shared) -> tuple[Report, list[tuple[Run, Run]]]:
    if missing := missing_servers():
        pytest.skip(f"not installed: run `python -m tests.interop.install {' '.join(missing)}`")
    return asyncio.run(run_all_tasks(shared / "corpus"))


@pytest.fixture(scope="module")
def report(worked: tuple[Report, list[tuple[Run, Run]]]) -> Report:
    return worked[0]


def test_every_answer_is_right(report: Report) -> None:
    assert len(report.plain) == len(TASKS) >= 16
    assert {run.mistake for run in report.mistaken} == {*MISTAKES}
    wrong = [(run.task.name, run.mistake, run.given, run.right) for run in report.runs if not run.is_right]
    assert not wrong


def test_a_task_costs_few_tokens(report: Report) -> None:
    costs = {run.task.name: run.tokens for run in report.plain}
    assert sum(costs.values()) / len(costs) <= AVERAGE_TOKENS, costs
    assert max(costs.values()) <= MOST_TOKENS, costs


def test_a_mistake_costs_no_more_than_a_preview(report: Report) -> None:
    extra = {(run.task.name, run.mistake): report.extra(run) for run in report.mistaken}
    assert max(extra.values()) <= MISTAKE_TOKENS, extra


def test_tasks_that_make_a_call_again_cost_a_fifth_for_who_names_what_it_has(worked) -> None:
    pairs = worked[1]
    assert all(run.is_right for pair in pairs for run in pair), [
        (run.given, run.right) for pair in pairs for run in pair
    ]
    naming, silent = (sum(pair[at].tokens for pair in pairs) for at in (0, 1))
    assert naming <= REPEATED_SHARE * silent, [(run.task.name, run.tokens) for pair in pairs for run in pair]


def test_an_agent_knows_only_what_it_was_told() -> None:
    transcript = Transcript(["How many rows have the state open?"])
    transcript.check_told(names_in_fields("length([?state=='shut'].{own:rows})"))
    with pytest.raises(UntoldWordError, match="has bogus, count_by"):
        transcript.check_told(names_in_fields("count_by(rows, &bogus)"))
    transcript.add("execute", {}, "there are count_by, unique")
    assert transcript.has_told("unique")
