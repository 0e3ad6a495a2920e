"""The processes of a scenario end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, wait_for

PARENT = """\
import time
from pathlib import Path
from tests.lab.scenarios.fleet import Process
words = "import os, time; print(os.getpid()); time.sleep(600)"
process = Process("child", ["-c", words], Path({log!r}))
process.start()
time.sleep(600)
"""


@pytest.mark.any_database
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_a_scenario_that_is_killed_outright_takes_its_processes_along(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(log=str(log))], cwd=ROOT)
    try:
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"), "the child runs")
        child = int(log.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_for(lambda: not _runs(child), "the child has ended")


def _runs(pid: int) -> bool:
    """Tell whether it runs; one that only waits for its parent to look does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
