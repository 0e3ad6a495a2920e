"""Makes the host projects, and says which are left out and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import environments
from tests.e2e.host_project import HostProject, build_wheel, make_environment

HERE = Path(__file__).parent
VARIANTS = ["atomic", pytest.param("local", marks=pytest.mark.exhaustive)]
OLDEST, *NEWER = environments.DJANGOS

_left_out: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    dropped: list[pytest.Item] = []
    if os.environ.get("EMS_TEST_DB", "sqlite") != "sqlite":
        # They bring a database of their own: once, in the run on SQLite, is enough.
        dropped += mine
    else:
        for django in {_django_of(item) for item in mine} - {""}:
            try:
                environments.python_for(django)
            except environments.Missing as reason:
                _left_out.append(f"Django {django}: {reason}")
                dropped += [item for item in mine if _django_of(item) == django]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _django_of(item: pytest.Item) -> str:
    """Return the version that the test is for; empty if for none."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("host_python", "")) if callspec else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in _left_out:
        terminalreporter.write_line(f"*** NOT TESTED on {reason}. ***", yellow=True)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(
    scope="session",
    params=[OLDEST, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in NEWER)],
)
def host_python(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the Python of an environment with only one version of Django, and EMS."""
    return make_environment(tmp_path_factory.mktemp("venv"), request.param, wheel)


@pytest.fixture(scope="session", params=VARIANTS)
def host(
    request: pytest.FixtureRequest, host_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> HostProject:
    """Return a migrated host project."""
    return HostProject(tmp_path_factory.mktemp("host"), host_python, request.param)
