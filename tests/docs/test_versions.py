"""docs/reference/versions.md says what is tested, and what is refused, as the code has it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from streams.observe.tested_servers import KINDS, KnownServer, text
from tests import environments
from tests.docs.documents import DOCS, ROOT
from tests.matrix.table import table
from tests.parts import Part

pytestmark = pytest.mark.any_database

PAGE = (DOCS / "reference" / "versions.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def row(name: str) -> list[str]:
    """Return what is tested, expected and refused of ``name``."""
    found = re.search(rf"^\| {name} \| (.*) \|$", PAGE, re.MULTILINE)
    assert found, name
    return found[1].split(" | ")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_servers_are_those_of_the_checks(kind: KnownServer) -> None:
    tested, expected, refused = row(kind.name)
    assert tested == ", ".join(map(text, kind.series))
    assert f"from {text(kind.oldest)} on" in expected
    assert f"`ems.W040` before {text(kind.series[0])}" in expected
    assert refused == f"before {text(kind.oldest)}: error `ems.E003`"


def test_the_versions_of_django_are_those_of_make_test_django() -> None:
    tested, _expected, refused = row("Django")
    assert tested == ", ".join(environments.DJANGOS)
    oldest = next(iter(environments.DJANGOS))
    assert f"Django>={oldest}" in PROJECT["dependencies"]
    assert refused == f"before {oldest}, by pip"


def test_the_versions_of_python_are_those_that_the_wheel_names() -> None:
    tested, _expected, refused = row("Python")
    named = re.findall(r":: Python :: (3\.\d+)'", str(PROJECT["classifiers"]))
    assert tested == ", ".join(named)
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert refused == f"before {named[0]}, by pip"


@pytest.mark.parametrize(("name", "extra"), [("mysqlclient", "mysql"), ("PyMySQL", "pymysql")])
def test_the_drivers_are_those_of_the_extras(name: str, extra: str) -> None:
    (needed,) = PROJECT["optional-dependencies"][extra]
    oldest = needed.partition(">=")[2]
    _tested, expected, refused = row(name)
    assert expected == f"from {oldest} on"
    assert refused.startswith(f"before {oldest}, by pip")


def test_the_table_of_the_matrix_says_what_passed_and_what_did_not() -> None:
    versions = {"Django": "6.1.3", "Python": "3.13.0", "SQLite": "3.45", "PyMySQL": "1.2.4"}
    parts = [
        Part("6.1/3.13/sqlite", "passed", [33, 120, 50], 60, details={"versions": versions}),
        Part("6.1/3.13/mysql/pymysql", "FAILED", [33, 0, 0], 60, details={"versions": versions}),
        Part("6.2/3.13/sqlite", "FAILED", [0, 0, 0], 1),
    ]
    lines = table(parts, {"date": "2026-11-24", "commit": "abc"}, ["3.14"])
    assert lines[:5] == [
        "| Django | Python | sqlite | mysql, pymysql |",
        "|---|---|---|---|",
        "| 6.1.3 | 3.13.0 | 33 · 120 · 50 | **failed** |",
        "| 6.2 | 3.13 | **failed** | – |",
        "",
    ]
    assert (
        "1 of 3 cells passed on 2026-11-24, commit abc, with PyMySQL 1.2.4; SQLite 3.45."
        in lines[5]
    )
    assert lines[6] == "Python 3.14 was not on this machine."
