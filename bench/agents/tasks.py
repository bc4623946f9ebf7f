"""The tasks: what an agent is asked, how it works, and the answer computed from the data."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.agents import scripts
from bench.agents.agent import Agent
from bench.agents.setting import DOWN, Setting


@dataclass(frozen=True)
class Task:
    """A question, a script, and the answer."""

    question: str
    script: Callable[[Agent], Awaitable[Any]]
    answer: Callable[[Setting], Any]
    """Returns what is right, from the data and from how often a source that changes was asked."""
    known: str = ""
    """Names of fields that a model knows, because the world knows the service's answers."""

    @property
    def name(self) -> str:
        return self.script.__name__.replace("_", " ")


def _log_counts(setting: Setting) -> Any:
    errors = sum("[error]" in line for line in setting.log("Apache"))
    return [errors, sum("Failed password" in line for line in setting.log("OpenSSH"))]


def _failed_port(setting: Setting) -> Any:
    lines = [line for line in setting.log("OpenSSH") if "Failed password for root from 5.36." in line]
    [port] = {line.split(" port ")[1].split()[0] for line in lines}
    return port


def _files_of_httpx(setting: Setting) -> list[dict[str, Any]]:
    releases = setting.results("pypi_httpx.json")["releases"]
    return [file for files in releases.values() for file in files]


def _largest_wheel(setting: Setting) -> Any:
    wheels = [file for file in _files_of_httpx(setting) if file["packagetype"] == "bdist_wheel"]
    largest = max(wheels, key=lambda file: file["size"])
    return [largest["filename"], largest["size"]]


def _sizes_by_type(setting: Setting) -> Any:
    files = _files_of_httpx(setting)
    return [sum(file["size"] for file in files if file["packagetype"] == kind) for kind in ("bdist_wheel", "sdist")]


def _vite_version(setting: Setting) -> Any:
    package = setting.results("npm_view_vite.json")
    return [len(package["versions"]), package["time"]["7.0.0"][:10]]


def _reminded(setting: Setting) -> Any:
    """The number of tickets, if just these are in the outbox."""
    right = [ticket["key"] for ticket in setting.seen("rows400_nested") if ticket["status"] == "In Progress"]
    [sent] = setting.outbox.read_text().splitlines()
    return len(right) if json.loads(sent)["names"] == right else f"other names were sent: {sent}"


def _statuses(setting: Setting) -> Any:
    return dict(Counter(ticket["status"] for ticket in setting.seen("rows400_nested")))


def _largest_fire(setting: Setting) -> Any:
    fires = setting.seen("calfire_incidents")["Incidents"]
    largest = max(fires, key=lambda fire: fire["AcresBurned"] or 0)
    return [largest["Name"], largest["AcresBurned"]]


def _county_with_most_fires(setting: Setting) -> Any:
    fires = setting.seen("calfire_incidents")["AllYearIncidents"]
    return list(Counter(fire["CountiesList"] for fire in fires).most_common(1)[0])


def _labels(setting: Setting) -> Any:
    issues = setting.results("github", "list_issues.json")
    return [[one["number"], [label["name"] for label in one["labels"]]] for one in issues if one["labels"]]


def _titles(setting: Setting) -> Any:
    return [[issue["number"], issue["title"]] for issue in setting.results("github", "list_issues.json")]


def _fires(setting: Setting) -> Any:
    fires = setting.seen("calfire_incidents")["AllYearIncidents"]
    return [[fire["Name"], fire["StartedDate"], fire["AcresBurnedDisplay"]] for fire in fires]


def _submissions(setting: Setting) -> Any:
    return [[row["title"], row["points"], row["numComments"]] for row in setting.seen("hn_domain_older")]


def _code_owner(setting: Setting) -> Any:
    found = setting.results("github", "search_code.json")
    owners = Counter(item["repository"]["owner"]["login"] for item in found["items"])
    return [found["total_count"], owners.most_common(1)[0][0]]


def _last_run(setting: Setting) -> Any:
    runs = setting.results("github", "workflow_runs.json")["workflow_runs"]
    last = max(runs, key=lambda run: run["run_number"])
    return [last["id"], last["conclusion"], last["actor"]["login"]]


def _teams(setting: Setting) -> Any:
    teams = setting.results("github", "teams.json")
    return [team["slug"] for team in teams if "hibernate" in json.dumps(team).lower()]


def _commenter(setting: Setting) -> Any:
    comments = setting.results("github", "issue_comments.json")
    return list(Counter(comment["user"]["login"] for comment in comments).most_common(1)[0])


def _average_comments(setting: Setting) -> Any:
    counts = sorted((issue["comments"] for issue in setting.results("github", "list_issues.json")), reverse=True)
    return sum(counts[:5]) / 5


def _remembered(setting: Setting) -> Any:
    """Who maintains the parser, by the server's own file."""
    graph = [json.loads(line) for line in setting.graph.read_text().splitlines()]
    assert [item["relationType"] for item in graph if item["type"] == "relation"] == ["reviews"]
    return [
        item["name"] for item in graph if item["type"] == "entity" and "maintains the parser" in item["observations"]
    ]


def _changed_setting(setting: Setting) -> Any:
    """Whether just the one line is another."""
    now, before = (setting.files / "service.toml").read_text(), setting.service_file
    changed = [pair for pair in zip(before.splitlines(), now.splitlines(), strict=True) if pair[0] != pair[1]]
    section = now.partition("[services.billing]")[2].partition("[")[0]
    return len(changed) == 1 and "timeout_seconds = 60\n" in section


def _optional_libraries(setting: Setting) -> Any:
    lines = [line for line in setting.readme.splitlines() if line.startswith("* `") and "Optional" in line]
    return [re.findall(r"`(\w+)`", line)[0] for line in lines]


def _invalid_users(setting: Setting) -> Any:
    return sum("Invalid user" in line for line in setting.log("OpenSSH"))


def _changed_submissions(setting: Setting) -> Any:
    before, after = ({row["id"]: row["points"] for row in setting.seen("hn_domain_older", ago)} for ago in (1, 0))
    return sorted(name for name in after if after[name] != before.get(name))


def _changed_statuses(setting: Setting) -> Any:
    looks = [
        {row["id"]: row["status"] for row in setting.seen("rows400_nested", ago)}
        for ago in reversed(range(scripts.LOOKS))
    ]
    return [
        {name: after[name] for name in after if before.get(name, after[name]) != after[name]}
        for before, after in itertools.pairwise(looks)
    ]


def _changed_fires(setting: Setting) -> Any:
    looks = [
        {row["IncidentId"]: row["UpdatedDate"] for row in setting.seen("calfire_incidents", ago)["AllYearIncidents"]}
        for ago in reversed(range(scripts.LOOKS))
    ]
    return [
        sorted(name for name in after if before.get(name, after[name]) != after[name])
        for before, after in itertools.pairwise(looks)
    ]


_PYPI = "releases packagetype bdist_wheel sdist size filename"
_ISSUE = "number labels name comments user login"

_TWO_LOOKS = Task(
    "Which submissions from simonwillison.net to Hacker News, by id, change their points between two looks?",
    *(scripts.compare_two_looks, _changed_submissions, "id points"),
)

TASKS = (
    Task(
        "How many lines of the log Apache have the level [error], and how many of the log OpenSSH say Failed password?",
        *(scripts.count_log_lines, _log_counts),
    ),
    Task(
        "From which port did the password of root fail from an address that begins with 5.36., by the log OpenSSH?",
        *(scripts.find_log_line, _failed_port),
    ),
    Task(
        "Which wheel of the Python package httpx is the largest, over all releases, and how many bytes has it?",
        *(scripts.find_largest_wheel, _largest_wheel, _PYPI),
    ),
    Task(
        "How many bytes have all wheels of httpx together, and how many all source distributions?",
        *(scripts.sum_package_types, _sizes_by_type, _PYPI),
    ),
    Task(
        "How many versions has the npm package vite, and on which day was 7.0.0 published?",
        *(scripts.look_up_version, _vite_version, "versions time"),
    ),
    Task(
        "Send one reminder about the keys of all tickets of PROJ with the status In Progress; how many are there?",
        *(scripts.remind_of_tickets, _reminded),
    ),
    Task("How many tickets of PROJ are there by status?", scripts.count_tickets_by_status, _statuses),
    Task(
        "Which of California's wildfires of today is the largest, and how many acres has it?",
        *(scripts.find_largest_fire, _largest_fire),
    ),
    Task(
        "Which county of California had most wildfires this year, and how many?",
        *(scripts.count_fires_by_county, _county_with_most_fires),
    ),
    Task(
        "Which issues of hub4j/github-api have labels, and which?",
        *(scripts.list_labels, _labels, _ISSUE),
    ),
    Task(
        "List the issues of hub4j/github-api by number and title.",
        *(scripts.list_titles, _titles, "number title"),
    ),
    Task(
        "List California's wildfires of this year by name, day of the start and acres.",
        *(scripts.list_fires, _fires),
    ),
    Task(
        "List what was submitted from simonwillison.net to Hacker News, by title, with points and number of comments.",
        *(scripts.list_submissions, _submissions),
    ),
    Task(
        "How much code on GitHub is found for theme color, and who owns most of what is shown?",
        *(scripts.find_code_owners, _code_owner, "total_count items repository owner login"),
    ),
    Task(
        "What are id and conclusion of the last run in hub4j-test-org/GHWorkflowRunTest, by number, and whose is it?",
        *(scripts.time_workflow_runs, _last_run, "workflow_runs run_number id conclusion actor login"),
    ),
    Task(
        "Which teams of the organization quarkiverse have to do with Hibernate?",
        *(scripts.find_team, _teams, "slug id"),
    ),
    Task(
        "Who wrote most comments on issue 103 of eclipse-ee4j/jaxb-ri, and how many?",
        *(scripts.find_busiest_commenter, _commenter, "user login"),
    ),
    Task(
        "Put the numbers of the five issues of hub4j/github-api with most comments into a table of SQLite, with how "
        "many they have; what is the average, by a query?",
        *(scripts.keep_issues_in_a_table, _average_comments, _ISSUE),
    ),
    Task(
        "Remember that Ada and Sam maintain the parser, Lin the search, and Ada reviews Lin; who maintains the parser?",
        *(scripts.remember_people, _remembered),
    ),
    Task(
        "Set the timeout of the service billing to 60 seconds in service.toml.",
        *(scripts.change_setting, _changed_setting),
    ),
    Task(
        "Which libraries does README.md name as optional installs?",
        *(scripts.read_readme, _optional_libraries),
    ),
    Task("How many lines of the file ssh.log say Invalid user?", scripts.count_in_file, _invalid_users),
    Task("Which of the servers is not there?", scripts.find_what_is_down, lambda setting: DOWN),
    _TWO_LOOKS,
)

REPEATING_TASKS = (
    _TWO_LOOKS,
    Task(
        "Look at the tickets of PROJ four times. Which, by id, have another status than at the look before, and which?",
        *(scripts.watch_tickets, _changed_statuses, "id status"),
    ),
    Task(
        "Look at California's wildfires of this year four times. Which, by IncidentId, have another UpdatedDate than "
        "at the look before?",
        *(scripts.watch_fires, _changed_fires, "AllYearIncidents"),
    ),
)
"""The tasks that make a call again."""
