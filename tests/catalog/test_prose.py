"""Summaries of descriptions: the sentence that says what the tool does, whatever stands around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.catalog.text import prose


@pytest.mark.parametrize(
    ("description", "summary"),
    [
        ("Lists pages. Newest first.", "Lists pages"),
        ("🚀 Deploy the app to production. Needs a token.", "Deploy the app to production"),
        (
            "\n  🎯 Purpose:\n    1. Retrieves a list of objects.\n\n  📦 Returns:\n    1. The objects.\n",
            "Retrieves a list of objects",
        ),
        ("🎯 Purpose: 1. Retrieves a list of objects. 📦 Returns: 1. The objects.", "Retrieves a list of objects"),
        (
            "🛡️ Guardrails:\n 1. Warning: it modifies data.\n\n🎯 Purpose:\n 1. Creates objects in bulk.",
            "Creates objects in bulk",
        ),
        ("# Search Tool\n\nSearches the web for pages. Slow.", "Searches the web for pages"),
        ("Search Tool\n===========\nSearches the web for pages.", "Searches the web for pages"),
        ("=== Weather API ===\nReturns the weather of a city.", "Returns the weather of a city"),
        ("**Purpose:** Reads a file.\n**Args:** path", "Reads a file"),
        ("# Search the web", "Search the web"),
        (
            "Enable, configure, or disable one or more of the following settings of a mailbox: When updating, beware.",
            "Enable, configure, or disable settings of a mailbox",
        ),
        (
            "It does one of the following:\n- read\n- write\n\nUse it for files of any size.",
            "Use it for files of any size",
        ),
        ("Supported modes:\n\nManages tasks of a project.", "Manages tasks of a project"),
        ("Manages tasks:\n- create tasks\n- delete tasks", "Manages tasks"),
        ("Notion | Retrieve a user\nError Responses:\n400: 400", "Notion | Retrieve a user"),
        ("Args:\n  path: where the file is.\n\nReturns:\n  The text.", "path: where the file is"),
        (
            "This tool retrieves detailed information about a workflow.",
            "Retrieves detailed information about a workflow",
        ),
        ("Compile C#", "Compile C#"),
        (
            "Show the code of a workbook, module by module (kind:\nclass or form). Never runs it.",
            "Show the code of a workbook, module by module (kind: class…",
        ),
        ("🎯🎯🎯", "🎯🎯🎯"),
        ("", ""),
    ],
)
def test_a_summary_is_the_sentence_that_says_what_the_tool_does(description, summary):
    assert prose.summary(description) == summary


@given(st.text(st.sampled_from("ab .:\n#*-=🎯1)_"), max_size=50))
def test_a_text_with_words_has_a_summary_with_words(text):
    made = prose.summary(text)
    assert prose.utf16_length(made) <= prose.SUMMARY_CHARS
    assert "\n" not in made
    assert not {"a", "b"} & set(text) or {"a", "b"} & set(made)


@pytest.mark.parametrize("run", ["*", "_", "#", "=", "- ", "🎯", "a:", "1.", "\ufe0f", " *", "this tool "])
def test_long_runs_are_summarized_at_once(run):
    assert prose.utf16_length(prose.summary(run * 50_000 + "x")) <= prose.SUMMARY_CHARS
