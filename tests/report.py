"""Reports to dev.py on what a run ran, how each test ended and how long it took.

Written as JSON to EMS_TEST_REPORT at the end of the run::

    {"on": {"Python": "3.11.7", "Django": "5.2.19", "MySQL": "9.4.0"},
     "seconds": {"tests/test_setup.py::test_…": 0.31},
     "failed": {"tests/…": "the error, in one line"}, "skipped": 3}
"""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from pathlib import Path

import pytest

VARIABLE = "EMS_TEST_REPORT"
LONGEST_ERROR = 300  # characters


class Report:
    """Collects the report, as a plugin of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: dict[str, str] = {}
        self._skipped = 0
        self._on = {"Python": platform.python_version()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed[report.nodeid] = _error(report)
        self._skipped += report.skipped

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # then no test runs: the summary says why
            self._failed[report.nodeid] = _error(report)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._on |= versions()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found = {
            "on": self._on,
            "seconds": {name: round(took, 3) for name, took in self._seconds.items()},
            "failed": self._failed,
            "skipped": self._skipped,
        }
        self._path.write_text(json.dumps(found))


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return lines[0][:LONGEST_ERROR] if lines else ""


def versions() -> dict[str, str]:
    """Return the versions of Django and of the database of this run."""
    import django

    return {"Django": django.__version__, **_database()}


def _database() -> dict[str, str]:
    from django.db import connections

    given = connections["default"].settings_dict
    if given["ENGINE"].endswith("sqlite3"):
        import sqlite3

        return {"SQLite": sqlite3.sqlite_version}
    import MySQLdb

    session = MySQLdb.connect(
        host=given["HOST"],
        port=int(given["PORT"] or 3306),
        user=given["USER"],
        password=given["PASSWORD"],
    )
    version = str(session.get_server_info())
    session.close()
    return {"MariaDB" if "MariaDB" in version else "MySQL": version}


def plugin() -> Report | None:
    """Return the plugin if dev.py has asked for a report."""
    path = os.environ.get(VARIABLE)
    return Report(Path(path)) if path else None
