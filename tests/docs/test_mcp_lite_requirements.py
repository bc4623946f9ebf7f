"""Every requirement of MCP-lite has a row on its page and a test, and every such test is on the page."""

from tests.docs.mcp_lite_requirements import IDS, PAGE, fill, named_tests, row_ids

FILL = "python -m tests.docs.mcp_lite_requirements fills the page in"


def test_every_requirement_has_one_row():
    assert row_ids(PAGE.read_text()) == list(IDS)


def test_every_requirement_has_a_test_and_every_test_a_requirement():
    tests = named_tests()
    assert [number for number in IDS if number not in tests] == []
    assert sorted(tests.keys() - set(IDS)) == []


def test_the_page_names_the_tests_that_there_are():
    text = PAGE.read_text()
    assert fill(text, named_tests()) == text, FILL


def test_a_test_that_is_gone_or_new_changes_the_page():
    page = "| ML-7 | must | A rule. | `a/test_b.py::test_ml_7_old` |\n| ML-8 | may | Another. | |\n"
    filled = fill(page, {8: ["a/test_b.py::test_ml_8_new", "c/test_d.py::test_ml_8_too"]})
    assert filled == (
        "| ML-7 | must | A rule. | |\n"
        "| ML-8 | may | Another. | `a/test_b.py::test_ml_8_new`<br>`c/test_d.py::test_ml_8_too` |\n"
    )
