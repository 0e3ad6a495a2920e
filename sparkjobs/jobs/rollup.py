"""Roll up traffic, consumption and backlog, in one session."""

from __future__ import annotations

import sys
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparkjobs.config import Config
from sparkjobs.database import connected
from sparkjobs.databases import each
from sparkjobs.errors import Busy
from sparkjobs.instants import now
from sparkjobs.lock import SERVE, alone, is_held
from sparkjobs.rollup.owed import Owed, note_nothing, owed
from sparkjobs.rollup.windows import ROLL_UP, Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjobs.rollup.messages import Messages

# Messages and deliveries up to which a JVM for this run alone does better with the quick compiler
# only.
BRIEF = 200_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fallback",
        action="store_true",
        help="do nothing while a resident service, or another roll-up, is at work",
    )


def run_all(configs: Sequence[Config], options: Namespace) -> int:
    # The figures name topics and groups by their ids: they are of all namespaces.
    starting = Starting([config.everywhere() for config in configs])
    return each("rollup", configs, lambda config: _run(config, options, starting))


class Starting:
    """The start of one session for all databases, when the first of them has work."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._configs = configs
        self._spark: SparkSession | None = None

    def session(self, due: Owed) -> SparkSession:
        """Return the session; ``due`` is what the first database has to roll up."""
        if self._spark is None:
            # Only now: to import pyspark costs more than to look.
            from sparkjobs.session import SMALL_WINDOWS, session

            brief = self._is_brief(due)
            self._spark = session("rollup", brief=brief)
            if brief:
                for name, value in SMALL_WINDOWS.items():
                    self._spark.conf.set(name, value)
        return self._spark

    def _is_brief(self, due: Owed) -> bool:
        """Tell whether no database has much to roll up; one that is away has nothing now."""
        if due.rows > BRIEF:
            return False
        for config in self._configs if len(self._configs) > 1 else ():
            with suppress(Exception), connected(config) as connection:
                if (other := owed(connection)) and other.rows > BRIEF:
                    return False
        return True


def _run(config: Config, options: Namespace, starting: Starting) -> int:
    if options.fallback and is_held(config, SERVE):
        print("rollup: ems_spark serve is at work")
        return 0
    try:
        return _roll_up(config.everywhere(), starting)
    except Busy:
        if not options.fallback:
            raise
        print("rollup: another one is at work")  # a long one, which beat meets again and again
        return 0


def _roll_up(config: Config, starting: Starting) -> int:
    with alone(config, ROLL_UP):
        with connected(config) as connection:
            at = now(connection)
            due = owed(connection)
            if due is None:
                note_nothing(connection, at)
                print("rollup: nothing to do")
                return 0
        return int(bool(roll_up_all(starting.session(due), config, print)))


def roll_up_all(spark: SparkSession, config: Config, say: Say) -> list[Exception]:
    """Run each of the jobs; return the errors.

    Each has a connection of its own. So one that fails, or loses its connection, does not keep the
    others from running, whatever its error is.
    """
    from sparkjobs.jobs.backlog import roll_up_backlog
    from sparkjobs.jobs.consumption import roll_up_consumption
    from sparkjobs.jobs.traffic import roll_up_traffic
    from sparkjobs.rollup.messages import Messages
    from sparkjobs.session import describe

    errors: list[Exception] = []
    messages = Messages(spark, config, keeps=True)
    for job in (roll_up_traffic, roll_up_consumption, roll_up_backlog):
        try:
            describe(spark, job.__name__.removeprefix("roll_up_"))
            with connected(config) as connection:
                job(spark, config, connection, say, messages)
        except Exception as error:  # noqa: BLE001 - of Spark, the driver, py4j or ours
            print(f"{job.__name__}: {type(error).__name__}: {error}", file=sys.stderr)
            traceback.print_exception(error)
            errors.append(error)
            _forget(messages)  # what the others keep may be what has failed
    _forget(messages)
    return errors


def _forget(messages: Messages) -> None:
    with suppress(Exception):  # a JVM that has died has nothing to free
        messages.forget()
