"""How an agent works on each task: as a model would that has read the definitions, its task and the replies so far.

Names of operations come from `discover`, names of fields from replies, from the task, or from what the world knows of
GitHub's, PyPI's and npm's answers, which a task's `known` lists. A script may take a name or a handle out of a reply;
it knows nothing else of it beforehand. `Transcript.check_told` holds them to that.
"""

import ast
import re
from typing import Any

from bench.agents.agent import Agent, Query

HUB4J = {"owner": "hub4j", "repo": "github-api"}


async def count_log_lines(agent: Agent) -> Any:
    await agent.discover("read log")
    errors = await agent.run(
        "logs.read_log",
        {"name": "Apache"},
        {"grep": r"\[error\]", "fields": "length(@)"},
        {"pattern": {"grep": "[error]"}, "root": {"fields": "log"}},
    )
    failures = await agent.run("logs.read_log", {"name": "OpenSSH"}, {"grep": "Failed password", "fields": "length(@)"})
    return [errors.value, failures.value]


async def find_log_line(agent: Agent) -> Any:
    await agent.discover("read log")
    found = await agent.run(
        "logs.read_log",
        {"name": "OpenSSH"},
        {"grep": r"Failed password for root from 5\.36\."},
        {"pattern": {"grep": r"\(Failed\)"}},
    )
    return re.findall(r"port (\d+)", found.text)[0]


async def find_largest_wheel(agent: Agent) -> Any:
    await agent.discover("python package releases")
    found = await agent.run(
        "registry.get_pypi_package",
        {"name": "httpx"},
        {"fields": "releases.*[] | [?packagetype=='bdist_wheel'] | max_by(@,&size).[filename,size]"},
        {
            "wide": {"fields": "releases"},
            "root": {"fields": "max_by([?packagetype=='bdist_wheel'],&size).[filename,size]"},
            "pattern": {"grep": r"\.whl\b.*largest"},
        },
    )
    return found.value


async def sum_package_types(agent: Agent) -> Any:
    await agent.discover("python package releases files")
    found = await agent.run(
        "registry.get_pypi_package",
        {"name": "httpx"},
        {
            "fields": "releases.*[] | {wheels:sum([?packagetype=='bdist_wheel'].size),"
            "sources:sum([?packagetype=='sdist'].size)}"
        },
        {"wide": {"fields": "releases.*[]"}, "root": {"fields": "releases[].size"}},
    )
    return [found.value["wheels"], found.value["sources"]]


async def look_up_version(agent: Agent) -> Any:
    await agent.discover("npm package versions")
    found = await agent.run(
        "registry.get_npm_package",
        {"name": "vite"},
        {"fields": '{count:length(versions),at:time."7.0.0"}'},
        {"root": {"fields": "versions.time"}, "pattern": {"grep": r"7\.0\.0 "}},
    )
    return [found.value["count"], found.value["at"][:10]]


async def remind_of_tickets(agent: Agent) -> Any:
    await agent.discover("list project tickets", "send reminders")
    first = await agent.run("feeds.list_tickets", {"project": "PROJ"})
    count = await agent.ask(
        first,
        {"fields": "length([?status=='In Progress'])"},
        {
            "wide": {"fields": "[?status=='In Progress']"},
            "root": {"fields": "tickets[?status=='In Progress'].key"},
            "pattern": {"grep": "in-progress"},
        },
    )
    which: Query = {"fields": "[?status=='In Progress'].key"}
    names = first.read_off(which).value if first.handle is None else {"$result": first.handle, **which}
    await agent.run("mail.send_reminders", {"subject": "Still in progress?", "names": names})
    return count.value


async def count_tickets_by_status(agent: Agent) -> Any:
    await agent.discover("list project tickets")
    found = await agent.run(
        "feeds.list_tickets",
        {"project": "PROJ"},
        {"fields": "count_by(@,&status)"},
        {
            "wide": {"fields": "[].status"},
            "root": {"fields": "count_by(tickets,&status)"},
            "pattern": {"grep": "status: Open"},
        },
    )
    return found.value


async def find_largest_fire(agent: Agent) -> Any:
    await agent.discover("wildfires now")
    first = await agent.run("feeds.get_fire_incidents")
    if not agent.transcript.has_told("AcresBurned"):
        await agent.ask(first, {"fields": "Incidents[0]"})
    found = await agent.ask(
        first,
        {"fields": "max_by(Incidents,&AcresBurned).[Name,AcresBurned]"},
        {
            "wide": {"fields": "Incidents"},
            "root": {"fields": "max_by(Fires,&AcresBurned).[Name,AcresBurned]"},
            "pattern": {"grep": r"AcresBurned: \d+"},
        },
    )
    return found.value


async def count_fires_by_county(agent: Agent) -> Any:
    await agent.discover("wildfires this year")
    first = await agent.run("feeds.get_fire_incidents")
    if not agent.transcript.has_told("CountiesList"):
        await agent.ask(first, {"fields": "AllYearIncidents[0]"})
    found = await agent.ask(
        first,
        {"fields": "count_by(AllYearIncidents,&CountiesList)"},
        {"wide": {"fields": "AllYearIncidents"}, "root": {"fields": "count_by(@,&CountiesList)"}},
    )
    county = next(iter(found.value))
    return [county, found.value[county]]


async def list_labels(agent: Agent) -> Any:
    await agent.discover("GitHub repository issues list")
    found = await agent.run(
        "github.list_issues",
        HUB4J,
        {"fields": "[?labels].{number:number,labels:labels[].name}"},
        {
            "wide": {"fields": "[?labels]"},
            "root": {"fields": "issues[?labels].number"},
            "pattern": {"grep": r"label\(s\)"},
        },
    )
    return [[row["number"], row["labels"]] for row in found.value]


async def list_titles(agent: Agent) -> Any:
    await agent.discover("GitHub repository issues list")
    found = await agent.run(
        "github.list_issues",
        HUB4J,
        {"fields": "[].[number,title]"},
        {"root": {"fields": "issues[].[number,title]"}, "wide": {"fields": "[]"}},
    )
    return await agent.read_rows(found)


async def list_fires(agent: Agent) -> Any:
    await agent.discover("wildfires this year")
    first = await agent.run("feeds.get_fire_incidents")
    if not agent.transcript.has_told("AcresBurnedDisplay"):
        await agent.ask(first, {"fields": "AllYearIncidents[0]"})
    query: Query = {"fields": "AllYearIncidents[].[Name,StartedDate,AcresBurnedDisplay]"}
    found = await agent.ask(first, query, {"root": {"fields": "Year[].[Name,StartedDate,AcresBurnedDisplay]"}})
    return await agent.read_rows(found, query)


async def list_submissions(agent: Agent) -> Any:
    await agent.discover("Hacker News submissions of a domain")
    first = await agent.run("feeds.list_submissions", {"domain": "simonwillison.net"})
    query: Query = {"fields": "[].[title,points,numComments]"}
    found = await agent.ask(first, query, {"root": {"fields": "hits[].[title,points,numComments]"}})
    return await agent.read_rows(found, query)


async def find_code_owners(agent: Agent) -> Any:
    await agent.discover("GitHub search code")
    found = await agent.run(
        "github.search_code",
        {"query": "theme color"},
        {"fields": "{found:total_count,owners:count_by(items,&repository.owner.login)}"},
        {
            "wide": {"fields": "items"},
            "root": {"fields": "count_by(results,&repository.owner.login)"},
            "pattern": {"grep": "owner: .*login"},
        },
    )
    return [found.value["found"], next(iter(found.value["owners"]))]


async def time_workflow_runs(agent: Agent) -> Any:
    await agent.discover("GitHub workflow runs")
    found = await agent.run(
        "github.list_workflow_runs",
        {"owner": "hub4j-test-org", "repo": "GHWorkflowRunTest"},
        {"fields": "max_by(workflow_runs,&run_number).[id,conclusion,actor.login]"},
        {
            "wide": {"fields": "workflow_runs"},
            "root": {"fields": "max_by(runs,&run_number).id"},
            "pattern": {"grep": "run_number: 10"},
        },
    )
    return found.value


async def find_team(agent: Agent) -> Any:
    await agent.discover("GitHub organization teams")
    found = await agent.run(
        "github.list_teams",
        {"organization": "quarkiverse"},
        {"grep": "(?i)hibernate", "fields": "slug,id"},
        {"root": {"fields": "teams[].slug"}, "pattern": {"grep": "HIBERNATE", "fields": "slug,id"}},
    )
    return [row["slug"] for row in found.value]


async def find_busiest_commenter(agent: Agent) -> Any:
    await agent.discover("GitHub issue comments")
    found = await agent.run(
        "github.list_issue_comments",
        {"owner": "eclipse-ee4j", "repo": "jaxb-ri", "issue_number": 103},
        {"fields": "count_by(@,&user.login)"},
        {"wide": {"fields": "[].user"}, "root": {"fields": "count_by(comments,&author)"}},
    )
    name = next(iter(found.value))
    return [name, found.value[name]]


async def keep_issues_in_a_table(agent: Agent) -> Any:
    await agent.discover("GitHub repository issues list", "sqlite create table", "sqlite insert", "sqlite select")
    found = await agent.run(
        "github.list_issues",
        HUB4J,
        {"fields": "reverse(sort_by(@,&comments))[:5].{number:number,comments:comments}"},
        {"wide": {"fields": "reverse(sort_by(@,&comments))[:5]"}, "root": {"fields": "sort_by(issues,&comments)[:5]"}},
    )
    rows = ", ".join(f"({row['number']}, {row['comments']})" for row in found.value)
    await agent.run("sqlite.create_table", {"query": "CREATE TABLE issues (number INTEGER, comments INTEGER)"})
    await agent.run("sqlite.write_query", {"query": f"INSERT INTO issues VALUES {rows}"})
    average = await agent.run("sqlite.read_query", {"query": "SELECT avg(comments) AS average FROM issues"})
    [row] = ast.literal_eval(average.text)
    return row["average"]


async def remember_people(agent: Agent) -> Any:
    await agent.discover("create entities knowledge graph", "create relations", "search nodes")
    people = [{"name": name, "entityType": "person", "observations": [f"maintains {what}"]} for name, what in PEOPLE]
    await agent.run("memory.create_entities", {"entities": people})
    relations = [{"from": "Ada", "to": "Lin", "relationType": "reviews"}]
    await agent.run("memory.create_relations", {"relations": relations})
    found = await agent.run("memory.search_nodes", {"query": "parser"})
    return [entity["name"] for entity in found.value["entities"]]


PEOPLE = (("Ada", "the parser"), ("Lin", "the search"), ("Sam", "the parser"))


async def change_setting(agent: Agent) -> Any:
    await agent.discover("edit file", "read text file", "list allowed directories")
    place = await agent.run("files.list_allowed_directories")
    path = f"{place.text.splitlines()[-1]}/service.toml"
    found = await agent.run(
        "files.read_text_file",
        {"path": path},
        {"grep": r"-C3 \[services.billing\]"},
        {"pattern": {"grep": "[services.billing]"}, "root": {"fields": "services.billing"}},
    )
    section = found.text.partition("[services.billing]\n")[2].splitlines()
    port, timeout = (re.sub(r"^\d+[-:]", "", line) for line in section[:2])
    header = "[services.billing]\n"
    edit = {"oldText": f"{header}{port}\n{timeout}", "newText": f"{header}{port}\ntimeout_seconds = 60"}
    done = await agent.run("files.edit_file", {"path": path, "edits": [edit]})
    return "timeout_seconds = 60" in done.text


async def read_readme(agent: Agent) -> Any:
    await agent.discover("read text file", "list allowed directories")
    place = await agent.run("files.list_allowed_directories")
    found = await agent.run("files.read_text_file", {"path": f"{place.text.splitlines()[-1]}/README.md"})
    text = found.text
    if found.handle is not None:
        # All is to be read, so the agent reads on.
        text = (await agent.read_on(found.handle, path="")).text
    optional = text.partition("optional installs:")[2].partition("A huge amount")[0]
    return re.findall(r"^\* `(\w+)`", optional, re.MULTILINE)


async def count_in_file(agent: Agent) -> Any:
    await agent.discover("read text file", "list allowed directories")
    place = await agent.run("files.list_allowed_directories")
    found = await agent.run(
        "files.read_text_file",
        {"path": f"{place.text.splitlines()[-1]}/ssh.log"},
        {"grep": "Invalid user", "fields": "length(@)"},
        {"root": {"fields": "lines[]"}, "pattern": {"grep": "[Invalid user]"}},
    )
    return found.value


async def find_what_is_down(agent: Agent) -> Any:
    found = await agent.discover()
    [line] = [line for line in found.text.splitlines() if "not running" in line]
    return line.partition(":")[0]


async def compare_two_looks(agent: Agent) -> Any:
    await agent.discover("Hacker News submissions of a domain")
    call = ("feeds.list_submissions", {"domain": "simonwillison.net"})
    query: Query = {"fields": "[].[id,points]"}
    first = await agent.run(*call, query, {"root": {"fields": "hits[].[id,points]"}})
    before, after = dict(first.value), dict((await agent.run_again(first, *call, query)).value)
    return sorted(name for name in after if after[name] != before.get(name))


async def watch_tickets(agent: Agent) -> Any:
    await agent.discover("list project tickets")
    call = ("feeds.list_tickets", {"project": "PROJ"})
    query: Query = {} if agent.names_results else {"fields": "[].[id,status]"}
    last = await agent.run(*call, query)
    changed = []
    rows = [] if agent.names_results else await agent.read_rows(last, query)
    for _ in range(LOOKS - 1):
        last = await agent.run_again(last, *call, query)
        if agent.names_results:
            found = re.findall(r"^ ?(\d+) (?:.*, )?status=(.+)$", last.changes or "", re.MULTILINE)
            changed.append({int(name): status for name, status in found})
        else:
            before, rows = dict(rows), await agent.read_rows(last, query)
            changed.append({name: status for name, status in rows if before.get(name, status) != status})
    return changed


async def watch_fires(agent: Agent) -> Any:
    await agent.discover("wildfires now")
    query: Query = {"fields": "AllYearIncidents[].{IncidentId:IncidentId,UpdatedDate:UpdatedDate}"}
    last = await agent.run("feeds.get_fire_incidents", None, query)
    changed = []
    rows = [] if agent.names_results else await agent.read_rows(last, query)
    for _ in range(LOOKS - 1):
        last = await agent.run_again(last, "feeds.get_fire_incidents", None, query)
        if agent.names_results:
            found = re.findall(r"^(?:\[IncidentId\])? ?(\d+) UpdatedDate=", last.changes or "", re.MULTILINE)
            changed.append(sorted(map(int, found)))
        else:
            before = {row["IncidentId"]: row["UpdatedDate"] for row in rows}
            rows = await agent.read_rows(last, query)
            after = {row["IncidentId"]: row["UpdatedDate"] for row in rows}
            changed.append(sorted(name for name in after if before.get(name, after[name]) != after[name]))
    return changed


LOOKS = 4
"""How often an agent looks at what it watches."""
