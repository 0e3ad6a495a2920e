"""A test that takes too long fails alone, and so does one whose failure cannot be shown."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.legs import Leg, run_all

pytestmark = pytest.mark.any_database

PLUGINS = """
from tests import report, timeouts

def pytest_configure(config):
    config.pluginmanager.register(report.plugin())
    config.pluginmanager.register(timeouts)
"""
# Each waits for what never comes; the limit is short.
HANGING = """
import threading
import pytest

NEVER = threading.Event()

@pytest.fixture
def hangs():
    NEVER.wait()

@pytest.fixture
def ends_late():
    yield
    NEVER.wait()

def test_in_its_function():
    NEVER.wait()

def test_in_a_fixture(hangs):
    pass

def test_in_the_end_of_a_fixture(ends_late):
    raise ValueError

def test_of_somebody_else():
    pass
"""
# pytest parses the file of a test that has failed, to show its lines.
STRUCK = """
import ast
import signal

PARSE = ast.parse

def test_whose_time_is_over_while_pytest_parses_its_file():
    def parse(*args, **kwargs):
        ast.parse = PARSE
        if signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.raise_signal(signal.SIGALRM)
        return PARSE(*args, **kwargs)

    ast.parse = parse
    raise ValueError

def test_whose_file_cannot_be_parsed():
    def parse(*args, **kwargs):
        ast.parse = PARSE
        raise SystemError("AST constructor recursion depth mismatch (before=117, after=195)")

    ast.parse = parse
    raise ValueError("what was wrong")

def test_of_somebody_else():
    pass
"""


def run(folder: Path, tests: str, limit: float) -> Leg:
    (folder / "test_them.py").write_text(tests)
    (folder / "conftest.py").write_text(PLUGINS)
    words = [str(folder / "test_them.py"), "-c", "/dev/null", f"--rootdir={folder}"]
    leg = Leg("leg", Path(sys.executable), [*words, f"--timeout={limit}"])
    run_all([leg], at_a_time=1, again=False)
    assert leg.status == 1  # tests failed, and nothing else
    return leg


def named(leg: Leg, what: str) -> dict[str, str]:
    return {name.split("::")[1]: found for name, found in leg.report[what].items()}


@pytest.mark.exhaustive
def test_what_hangs_in_a_test_or_its_fixtures_fails_alone(tmp_path: Path) -> None:
    leg = run(tmp_path, HANGING, 0.5)
    assert named(leg, "failed") == dict.fromkeys(
        ["test_in_its_function", "test_in_a_fixture", "test_in_the_end_of_a_fixture"],
        "Failed: Timeout (>0.5s) from pytest-timeout.",
    )
    assert "test_of_somebody_else" in named(leg, "seconds")


@pytest.mark.exhaustive
def test_no_failure_to_show_a_failure_ends_the_run(tmp_path: Path) -> None:
    leg = run(tmp_path, STRUCK, 100)
    assert named(leg, "failed") == {
        "test_whose_time_is_over_while_pytest_parses_its_file": "ValueError",
        "test_whose_file_cannot_be_parsed": "ValueError: what was wrong",
    }
    assert "test_of_somebody_else" in named(leg, "seconds")
