"""Rolls up the flights by Spark at the end of the demo, and compares all of them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from django.conf import settings
from rich import box
from rich.console import Console
from rich.table import Table

from emsproject.demo.interruption import Interruption
from emsproject.demo.processes import manage, running
from monitoring import java, report
from monitoring.models import Leg
from streams.conf import database
from streams.database.clock import database_now

LOOK_SECONDS = 0.1
PERIOD_MINUTES = 15
ON_REQUEST = (
    "Not rolled up. Java is here: make demo SPARK=1 installs pyspark (456 MB, once), and ends with"
    " the figures of Spark."
)
# The Python for which `make test` has installed pyspark: the demo's own environment has none.
OF_THE_TESTS = settings.BASE_DIR / ".venv" / "bin" / "python"


def roll_up(folder: Path, console: Console, interruption: Interruption) -> bool:
    """Run the jobs, show the topics and the slowest group; or say in one line what to install.

    Return whether they have run. Raises ChildEnded if one fails.
    """
    if java.missing() and OF_THE_TESTS.exists():
        os.environ.setdefault(java.PYTHON, str(OF_THE_TESTS))
    if (lacking := java.missing()) and lacking == java.lacking_pyspark():
        console.print(ON_REQUEST, markup=False, soft_wrap=True)
        return False
    if lacking:
        # The project is not installed, so pip installs it from its checkout.
        here = f"{os.path.relpath(sys.executable)} -m pip install '.[spark]'"
        lacking = lacking.replace(java.INSTALL, here)
        console.print(f"Not rolled up. {lacking}", markup=False, soft_wrap=True)
        return False
    seconds = _run("reconcile", folder, interruption)
    console.print(f"All messages and deliveries compared by Spark in {seconds:.0f} s.")
    # After it: the pages rank whole minutes, and by now the minute of the flights is mostly over.
    seconds = _run("rollup", folder, interruption)
    console.print(f"Rolled up by Spark in {seconds:.0f} s:")
    _show(console)
    return True


def _run(name: str, folder: Path, interruption: Interruption) -> float:
    """Run a job of Spark; return how many seconds it took."""
    started = time.monotonic()
    with running({name: manage("ems_spark", name)}, folder, interruption) as (job,):
        while job.status is None:
            interruption.check()
            time.sleep(LOOK_SECONDS)
        if job.status != 0:
            job.check()
    return time.monotonic() - started


def _show(console: Console) -> None:
    now = database_now(database())
    table = Table(box=box.SIMPLE)
    for heading in ("rank", "topic", "messages", "bytes", "rank by bytes"):
        table.add_column(heading, justify="left" if heading == "topic" else "right")
    for _minutes, rank, by_bytes, topic, messages, size, _delayed in report.ranking(
        database(), now, PERIOD_MINUTES
    ):
        table.add_row(str(rank), topic, f"{messages:,}", f"{size:,}", str(by_bytes))
    console.print(table)
    slowest = [row for row in report.slowness(database(), now - report.HOUR) if row[1] == Leg.TOTAL]
    for group, _leg, _count, mean, p95, longest in slowest[:1]:
        console.print(
            f"Slowest group: [bold]{group.name}[/], {mean:.2f} s on average from the send to the"
            f" end of the first attempt; 95 % within {p95:.2f} s, all within {longest:.2f} s",
            soft_wrap=True,
        )
