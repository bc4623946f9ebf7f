"""The reference of the site has every name of the code, and the check of the site finds what is broken in it."""

import json
import re

import pytest

import deltamcp
from deltamcp.auth.bearer import TOKEN_FAULTS
from deltamcp.dialects.mcp_lite_bodies import LITE_FAULTS
from deltamcp.errors import FAULTS, ToolErrorCode
from deltamcp.limits import Limits
from tests.support.paths import ROOT
from tests.support.public_names import public_names
from website import errors_reference, reference
from website.links import faults_of
from website.pages import REFERENCE, SECTIONS, llms_text, site_pages, site_text
from website.python_reference import public_members, python_page

NAMES = public_names()


def missing(names, page):
    return [name for name in names if f"`{name}`" not in page]


def test_every_public_name_and_member_has_an_entry_with_its_parameters():
    page = python_page()
    entries = dict(re.findall(r"^#{3,4} `([\w.]+)(?:\(\))?`\n(.*?)(?=^#{2,4} |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(deltamcp.__all__) <= set(entries)
    for name in deltamcp.__all__:
        thing = getattr(deltamcp, name)
        if isinstance(thing, type):
            assert {f"{name}.{member}" for member, _ in public_members(thing)} <= set(entries)
    assert "max_tokens" in entries["ResultPolicy"] and "host" in entries["DeltaServer.run"]


def test_every_keyword_option_has_a_row():
    page = python_page()
    keys = NAMES["keys"]
    assert missing({*keys["HTTP"], *keys["MCP-lite"], *keys["gRPC"], *keys["client"]}, page) == []


def test_every_command_and_option_is_in_the_reference():
    page = reference.commands_page()
    parts = dict(re.findall(r"^## `(delta-mcp[^`]*)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(parts) == set(NAMES["commands"])
    for command, options in NAMES["commands"].items():
        found = set(re.findall(r"`(--?[\w-]+)`", parts[command]))
        assert {option for option in options if option.startswith("-")} <= found, command


def test_every_key_of_a_gateways_file_is_in_the_reference():
    page = reference.gateway_page()
    keys = {*NAMES["keys"]["gateway"], *NAMES["keys"]["servers of a gateway"]}
    assert missing(keys - {"upstreams", "entry", "filled"} | {*NAMES["keys"]["APIs"]}, page) == []


def test_every_key_of_an_operations_file_is_in_the_reference():
    page = reference.operations_page()
    schema = json.loads((ROOT / "docs" / "operations.schema.json").read_text())

    def keys(node):
        if isinstance(node, dict):
            yield from node.get("properties", {})
        for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from keys(one)

    assert [key for key in {*keys(schema)} if not re.search(rf"`(?:[\w.*]+\.)?{re.escape(key)}`", page)] == []


def test_every_error_is_in_the_reference_with_its_meaning():
    page = errors_reference.errors_page()
    exceptions = [one.__name__ for one in errors_reference.exceptions()]
    assert len(exceptions) > 20 and missing(exceptions, page) == []
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert {*(code.value for code in ToolErrorCode), *(fault.value for fault in TOKEN_FAULTS)} <= set(rows)
    for fault, row in FAULTS.items():
        assert re.search(rf"\| `{fault.name}` \| [A-Z].*\. \| {row.handshake}, {row.modern} \|", page), fault
        assert f"| `{fault.name}` | `{LITE_FAULTS[fault].reason}` |" in page


@pytest.mark.parametrize("source", REFERENCE)
def test_nothing_in_the_reference_lacks_its_text(source):
    page = REFERENCE[source]()
    unsaid = [line for line in page.splitlines() if line.startswith("| `") and re.search(r"\|\s*\|$", line)]
    assert unsaid == []
    if source.endswith("python.md"):
        assert (
            re.findall(
                r"^#### `([\w.]+)(?:\(\))?`\n(?:\n```python\n.*?\n```\n)?\n(?=#)", page, re.MULTILINE | re.DOTALL
            )
            == []
        )


def test_every_limit_is_in_the_reference_with_its_default_and_reason():
    rows = dict(re.findall(r"^\| `(\w+)` \| [\d,.]+ \| (.*) \|$", reference.limits_page(), re.MULTILINE))
    assert list(rows) == list(Limits.__struct_fields__) and all(rows.values())


def test_every_metric_variable_and_logger_is_in_the_reference():
    names = {*NAMES["metrics"], *NAMES["variables"], *NAMES["loggers"]}
    assert missing(names, reference.names_page()) == []


def test_every_page_of_the_docs_is_on_the_site_once_and_for_models():
    pages = site_pages()
    paths = [page.path for page in pages]
    assert len(paths) == len(set(paths)) and {page.section for page in pages} == set(SECTIONS)
    listed = llms_text(pages)
    assert all(f"{page.path})" in listed for page in pages)


def test_links_lead_to_pages_of_the_site_or_to_the_repository():
    pages = site_pages()
    texts = {page.path: site_text(page, pages) for page in pages}
    assert "](../examples/" not in "".join(texts.values())
    assert "/blob/main/src/deltamcp/limits.py" in texts["limits.md"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "index.html links to gone.html, which is not there."),
        ('<a href="other/#gone">x</a>', "index.html links to other/#gone, where there is no such anchor."),
        ('<a href="#gone">x</a>', "index.html links to #gone, where there is no such anchor."),
        ('<img src="https://cdn.example/x.png">', "index.html loads https://cdn.example/x.png."),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "index.html loads //cdn.example/x.css."),
        ('<a data-md-component="source" href="#">x</a>', "index.html loads https://api.github.com."),
        ('<a href="other/#there">x</a><a href="https://mcp.example">y</a>', None),
    ],
)
def test_what_is_broken_is_found(tmp_path, body, fault):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "index.html").write_text(body)
    assert faults_of(tmp_path) == ([fault] if fault else [])
