"""A checkout of EMS whose processes are measured, with the database that they work in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.server import connect, name
from tests.processes import ROOT, Spawn

POLL_SECONDS = 0.1
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Contender:
    """Names the folder of a checkout and its database, which is migrated."""

    folder: Path
    database: str

    def spawn(self, **settings: Any) -> Spawn:
        """Return what starts its processes, with so many keys of EMS changed."""
        return Spawn(
            {
                "PYTHONPATH": str(self.folder),
                "PYTHONSAFEPATH": "1",  # the folder where they are started is another checkout
                "EMS_TEST_DB_NAME": self.database,
                "EMS_TEST_EMS": json.dumps({"POLL_SECONDS": POLL_SECONDS, **settings}),
                "DJANGO_SETTINGS_MODULE": "tests.lab.benchmarks.settings",
            }
        )

    def connect(self) -> Any:
        return connect(self.database)


def this() -> Contender:
    """Return this checkout, with the database of the benchmark."""
    return Contender(ROOT, name())


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def server_pid(plain: Any) -> int | None:
    """Return the process of the server; None if it does not run on this machine."""
    from tests.lab.benchmarks.server import execute

    ((datadir, pid_file),) = execute(plain, "SELECT @@datadir, @@pid_file")
    try:
        return int((Path(datadir) / pid_file).read_text())
    except (OSError, ValueError):
        return None
