"""Do in one resident session what is due: roll-ups each minute, archive and reconcile at night."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import Busy
from sparkjobs.instants import now
from sparkjobs.jobs import archive, reconcile, rollup
from sparkjobs.lock import alone
from sparkjobs.resident.due import is_archive_due, is_reconcile_due
from sparkjobs.resident.duty import Duty
from sparkjobs.resident.service import ResidentService
from sparkjobs.resident.spark import Resident
from sparkjobs.rollup.owed import note_nothing, owed
from sparkjobs.rollup.windows import ROLL_UP
from sparkjobs.session import SMALL_WINDOWS, describe

# Seconds between two roll-ups, and between two looks whether it is night.
EVERY, NIGHTLY_EVERY = 60.0, 60.0
# Seconds, far beyond what a duty takes: only a hung one comes to it.
LIMIT, NIGHTLY_LIMIT = 3600, 12 * 3600
# Messages and deliveries up to which a window is small.
SMALL = 50_000


def add_arguments(parser: ArgumentParser) -> None:
    """Add no arguments: the service does what is due."""


def run_all(configs: Sequence[Config], options: Namespace) -> int:
    resident = Resident()
    due = {config: duties(config, resident) for config in configs}
    ResidentService(due, resident, partial(print, flush=True)).run()
    return 0


def duties(config: Config, resident: Resident) -> list[Duty]:
    """Return what the service does, in this order."""
    return [
        Duty(
            "rollup",
            partial(roll_up, config.everywhere(), resident),
            lambda connection: True,
            EVERY,
            LIMIT,
        ),
        Duty(
            "archive",
            partial(archive_days, config, resident),
            partial(is_archive_due, config),
            NIGHTLY_EVERY,
            NIGHTLY_LIMIT,
        ),
        Duty(
            "reconcile",
            partial(reconcile_all, config, resident),
            partial(is_reconcile_due, config),
            NIGHTLY_EVERY,
            NIGHTLY_LIMIT,
        ),
    ]


def roll_up(config: Config, resident: Resident) -> None:
    """Do what a run of the job rollup does; leave it to one that is at work."""
    with connected(config) as connection:
        due = owed(connection)
    # Before the lock: its connection should not wait for the start of a JVM.
    spark = resident.session(brief=due.rows <= rollup.BRIEF) if due else None
    try:
        with alone(config, ROLL_UP), connected(config) as connection:
            if spark is None or due is None:
                at = now(connection)
                if owed(connection) is None:
                    note_nothing(connection, at)
                return
            for name, value in SMALL_WINDOWS.items():
                if due.rows <= SMALL:
                    spark.conf.set(name, value)
                else:
                    spark.conf.unset(name)
            errors = rollup.roll_up_all(spark, config, partial(print, flush=True))
    except Busy:
        return
    if errors:
        raise errors[0]


def archive_days(config: Config, resident: Resident) -> None:
    """Archive what is due; leave it to a run that is at work."""
    spark, due = _large(resident, "archive"), partial(is_archive_due, config)
    with suppress(Busy):
        archive.archive(spark, config, say=partial(_say, "archive"), due=due)


def reconcile_all(config: Config, resident: Resident) -> None:
    """Reconcile if it is due; leave it to a run that is at work."""
    spark, due = _large(resident, "reconcile"), partial(is_reconcile_due, config)
    with suppress(Busy):
        reconcile.check(spark, config, partial(_say, "reconcile"), due)


def _say(job: str, text: str) -> None:
    print(f"{job}: {text}", flush=True)


def _large(resident: Resident, name: str) -> SparkSession:
    """Return the session, set for many rows."""
    spark = resident.session()
    for setting in SMALL_WINDOWS:
        spark.conf.unset(setting)
    describe(spark, name)
    return spark
