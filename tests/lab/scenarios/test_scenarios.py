"""The scenarios, each on servers of its own: all of them small, those of the seed also in full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = [
    "consistency",
    "kill",
    "freeze",
    "order",
    "redis",
    "database",
    "truncate",
    "sever",
    "beat",
    "spark",
    "http",
]  # not "everything", which is all of them by chance: played by hand

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.slow,
    pytest.mark.mysql,
    pytest.mark.redis,
    pytest.mark.one_server,
    pytest.mark.timeout(1800),
]


NEEDS = {"spark": pytest.mark.spark}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS.get(name, ())) for name in SCENARIOS]
)
def test_every_promise_holds(name: str) -> None:
    play(name)


def test_every_promise_holds_for_as_many_messages_as_the_seed_had() -> None:
    """150,000 messages of five producers; three consumers make 200,000 records of them."""
    play("kill", "--full")


@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_each_prepared_message_is_accounted_for(server: str) -> None:
    """Callers prepare at a steady rate while they, the checkers and the database are killed."""
    play("two-phase", "--server", server)


def play(*words: str) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "tests.lab.scenarios", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1780,
    )
    assert played.returncode == 0, played.stdout + played.stderr[-5000:]
    assert "Every promise held." in played.stdout
