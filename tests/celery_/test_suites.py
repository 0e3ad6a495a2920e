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
