"""The integration tests of kombu and of Celery, on EMS: what deviates is named in peers.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.mysql,
    pytest.mark.one_server,
    pytest.mark.redis,
    pytest.mark.timeout(3600),
]


@pytest.mark.parametrize("suite", ["kombu", "celery"])
def test_what_others_test_of_a_broker_holds(suite: str) -> None:
    command = [sys.executable, "-m", "tests.celery_.peers", suite]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]


def test_a_run_in_which_no_test_ran_fails() -> None:
    command = [sys.executable, "-m", "tests.celery_.peers", "kombu", "-k", "no_test_is_named_so"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout[-8000:]
    assert "pytest ended with 5" in done.stdout
