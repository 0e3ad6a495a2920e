"""The primary fails under load: what was acknowledged is there, and no offset is given twice.

``make scenario NAME=failover ARGS="--cluster group --fault freeze --repeat 20"`` plays one of them
as often as wanted.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("MySQLdb")

from tests.lab.ha.clusters import CLUSTERS
from tests.lab.ha.faults import FAULTS
from tests.processes import ROOT

# Every fault with MySQL's usual cluster, and the death of the primary with the others.
WAYS = [
    *(("semisync", fault) for fault in FAULTS),
    *((cluster, "kill") for cluster in CLUSTERS if cluster != "semisync"),
]
pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("cluster", "fault"), WAYS)
def test_a_failover_loses_nothing_that_was_acknowledged(cluster: str, fault: str) -> None:
    play("--cluster", cluster, "--fault", fault)


def test_haproxy_finds_the_new_primary_by_itself() -> None:
    """With the configuration that docs/guides/failover.md shows."""
    play("--haproxy")


def play(*words: str) -> None:
    played = subprocess.run(
        [sys.executable, "-m", "tests.lab.ha", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert played.returncode == 0, played.stdout + played.stderr[-5000:]
    assert "Every promise held." in played.stdout
