"""docs/monitoring.md lists what can be monitored, all of it."""

import re

from deltamcp.runtime.log import FIELDS
from deltamcp.transports.metrics import METRICS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()


def test_every_metric_is_in_the_table_as_it_is():
    rows = re.findall(r"^\| `(delta_mcp_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", PAGE, re.MULTILINE)
    documented = [(name, type_, tuple(re.findall(r"`(\w+)`", labels)), text) for name, type_, labels, text in rows]
    assert documented == [(name, *row) for name, row in METRICS.items()]


def test_every_field_of_the_log_is_in_the_table():
    fields = re.findall(r"`(\w+)`", PAGE[PAGE.index("| field | has |") : PAGE.index("Neither format")])
    assert set(fields) == {"time", "level", "logger", "process", "message", *FIELDS, "exception", "stack"}
