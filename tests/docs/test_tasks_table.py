"""Each line of the comparison of tasks names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NAMED = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")


def test_the_tests_that_the_comparison_names_are_there() -> None:
    page = (ROOT / "docs/guides/tasks.md").read_text().partition("## Beside django-ox\n")[2]
    named = NAMED.findall(page)
    assert len(named) >= 15
    for file, name in named:
        assert f"def {name}" in (ROOT / "tests/tasks_" / file).read_text(), (file, name)
