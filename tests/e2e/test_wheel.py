"""What the wheel holds: the three packages, whole, and nothing else."""

from __future__ import annotations

import re
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.e2e.host_project import ROOT

pytestmark = pytest.mark.slow

PACKAGES = ("streams", "monitoring", "sparkjobs")


@pytest.fixture
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture
def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_installs_three_packages_and_no_more(names: set[str]) -> None:
    top = {name.split("/")[0] for name in names}
    (info,) = {name for name in top if name.endswith(".dist-info")}
    assert top == {*PACKAGES, info}
    assert f"{info}/licenses/LICENSE" in names
    assert f"{info}/licenses/monitoring/static/ems_monitoring/uplot/LICENSE" in names


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_has_every_file_of_its_packages(package: str, names: set[str]) -> None:
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{package}/py.typed" in there
    assert {name for name in names if name.startswith(f"{package}/")} == there


def test_the_wheel_brings_its_migrations(names: set[str]) -> None:
    assert "streams/migrations/0001_initial.py" in names


def test_django_is_all_that_an_installation_needs(metadata: Message) -> None:
    needed = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert needed == ["django>=5.2"]


def test_no_extra_moves_the_django_of_a_project(metadata: Message) -> None:
    """django-celery-beat 2.9 refuses Django 6.1: pip would put 6.0 in its place, without a word."""
    extras = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" in text]
    named = [text for text in extras if re.match(r"django(-celery-beat)? ?[<>=!~;]", text.lower())]
    assert extras
    assert named == []


def test_the_extras_are_those_of_the_pages(metadata: Message) -> None:
    extras = set(metadata.get_all("Provides-Extra", []))
    assert {"mysql", "pymysql", "redis", "celery", "spark", "chaos", "all"} <= extras
    assert not extras & {"dev", "test", "docs", "browser", "release"}


def test_the_readme_of_the_index_has_no_link_to_a_file(metadata: Message) -> None:
    text = str(metadata.get_payload())
    assert "The database gives a row its id at the INSERT" in text
    assert "](docs/" not in text
    assert metadata["License-Expression"] == "Apache-2.0 AND MIT"
