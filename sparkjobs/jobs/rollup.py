"""Roll up traffic, consumption and backlog, in one session, as is due each minute."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from pyspark.sql import SparkSession

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.jobs.backlog import roll_up_backlog
from sparkjobs.jobs.consumption import roll_up_consumption
from sparkjobs.jobs.traffic import roll_up_traffic
from sparkjobs.lock import alone
from sparkjobs.rollup.windows import ROLL_UP
from sparkjobs.session import session

JOBS = (roll_up_traffic, roll_up_consumption, roll_up_backlog)


def add_arguments(parser: ArgumentParser) -> None:
    """Add no arguments: the job rolls up what is due."""


def run(config: Config, options: Namespace) -> int:
    config = config.everywhere()  # the figures name topics and groups by their ids
    with alone(config, ROLL_UP):
        return int(roll_up_all(session("rollup"), config) > 0)


def roll_up_all(spark: SparkSession, config: Config) -> int:
    """Run each of the jobs; return how many have failed.

    Each has a connection of its own. So one that fails, or loses its connection, does not keep the
    others from running, whatever its error is.
    """
    failed = 0
    for job in JOBS:
        try:
            with connected(config) as connection:
                job(spark, config, connection, print)
        except Exception as error:  # noqa: BLE001 - whatever it is
            print(f"{job.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
    return failed
