"""Roll up traffic, consumption and backlog, in one session, as is due each minute."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from pyspark.errors import PySparkException

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.errors import SparkJobsError
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
    failed = 0
    with alone(config, ROLL_UP), connected(config) as connection:
        spark = session("rollup")
        for job in JOBS:
            try:
                job(spark, config, connection, print)
            except (SparkJobsError, PySparkException) as error:
                # A job that fails must not keep the others from running.
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                failed += 1
    return int(failed > 0)
