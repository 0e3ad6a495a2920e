"""Do in one resident session what is due: roll-ups each minute, archive and reconcile at night."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import datetime, time
from functools import partial

from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import Connection, connected, fetch
from sparkjobs.errors import Busy
from sparkjobs.instants import instant, now
from sparkjobs.jobs import archive, reconcile, rollup
from sparkjobs.lock import alone
from sparkjobs.resident.duty import Duty
from sparkjobs.resident.service import ResidentService
from sparkjobs.resident.spark import Resident
from sparkjobs.rollup.owed import note_nothing, owed
from sparkjobs.rollup.runs import last_done
from sparkjobs.rollup.windows import ROLL_UP
from sparkjobs.session import SMALL_WINDOWS, describe

# Seconds between two roll-ups, and between two looks whether it is night.
EVERY, NIGHTLY_EVERY = 60.0, 60.0
# Times in UTC. A day is closed ten minutes after midnight. To reconcile reads everything, so it is
# done between two hours of the night or not at all.
ARCHIVE_AFTER = time(0, 15)
RECONCILE_AFTER, RECONCILE_BEFORE = time(2), time(6)
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
            is_reconcile_due,
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


def is_archive_due(config: Config, connection: Connection) -> bool:
    """Tell whether yesterday is closed and not archived yet."""
    moment = now(connection)
    if not config.archive or moment.time() < ARCHIVE_AFTER:
        return False
    last = last_done(connection, "archive", "until")
    if last is not None and last >= _midnight(moment):
        return False
    return bool(fetch(connection, "SELECT 1 FROM `ems_topic` t WHERE t.`archive` = %s", [True]))


def archive_days(config: Config, resident: Resident) -> None:
    archive.archive(_large(resident, "archive"), config, say=partial(_say, "archive"))


def is_reconcile_due(connection: Connection) -> bool:
    """Tell whether it is night, and this night's has not begun.

    The first roll-up comes before: the pages wait for it, and to reconcile takes long.
    """
    moment = now(connection)
    if not RECONCILE_AFTER <= moment.time() < RECONCILE_BEFORE:
        return False
    # The last one of its jobs has ended, well or not.
    if not fetch(
        connection,
        "SELECT 1 FROM `ems_monitoring_run` WHERE `job` = 'backlog'"
        " AND `state` <> 'running' LIMIT 1",
    ):
        return False
    rows = fetch(
        connection,
        "SELECT MAX(`started_at`) FROM `ems_monitoring_run` WHERE `job` = 'reconcile'",
    )
    last = instant(rows[0][0])
    return last is None or last < _midnight(moment)


def reconcile_all(config: Config, resident: Resident) -> None:
    reconcile.check(_large(resident, "reconcile"), config, partial(_say, "reconcile"))


def _say(job: str, text: str) -> None:
    print(f"{job}: {text}", flush=True)


def _large(resident: Resident, name: str) -> SparkSession:
    """Return the session, set for many rows."""
    spark = resident.session()
    for setting in SMALL_WINDOWS:
        spark.conf.unset(setting)
    describe(spark, name)
    return spark


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)
