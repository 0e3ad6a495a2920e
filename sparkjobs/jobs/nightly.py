"""Do what is due of the night: archive closed days, and reconcile the whole history.

Celery beat starts it again and again. It does nothing while a resident service of its namespace is
at work, which does the same, and without anything to do it starts no JVM.
"""

from __future__ import annotations

import sys
import traceback
from argparse import ArgumentParser, Namespace
from functools import partial

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import Busy
from sparkjobs.lock import NIGHTS, alone, is_held
from sparkjobs.resident.due import is_archive_due, is_reconcile_due

# Also the name of the lock with which one of these works at a time.
JOB = "nightly"


def add_arguments(parser: ArgumentParser) -> None:
    """Add no arguments: the job does what is due."""


def run(config: Config, options: Namespace) -> int:
    if is_held(config, config.own(NIGHTS)):
        print(f"{JOB}: ems_spark serve is at work")
        return 0
    try:
        with alone(config, JOB):
            return _do(config)
    except Busy:
        print(f"{JOB}: another one is at work")
        return 0


def _do(config: Config) -> int:
    """Do what is due; one that fails does not keep the other one from running."""
    status = 0
    for due, work in (
        (partial(is_archive_due, config), _archive),
        (partial(is_reconcile_due, config), _reconcile),
    ):
        with connected(config) as connection:
            if not due(connection):
                continue
        try:
            work(config)
        except Busy as busy:
            print(f"{JOB}: {busy}")
        except Exception as error:  # noqa: BLE001 - of Spark, the driver, py4j or ours
            traceback.print_exception(error)
            print(f"{JOB}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            status = 1
    return status


def _archive(config: Config) -> None:
    # Only now: to import pyspark costs more than to look.
    from sparkjobs.jobs.archive import archive
    from sparkjobs.session import session

    archive(session("archive"), config, say=_say, due=partial(is_archive_due, config))


def _reconcile(config: Config) -> None:
    from sparkjobs.jobs.reconcile import check
    from sparkjobs.session import session

    check(session("reconcile"), config, _say, partial(is_reconcile_due, config))


def _say(text: str) -> None:
    print(text, flush=True)
