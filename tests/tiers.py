"""Chooses the tests of a run: what can run here, in which tier, and on which database.

``make test`` is the commit tier: each test on the databases where it can end differently, without
what is ``exhaustive``, and on SQLite what needs no server. ``make test-all`` leaves out no test,
and runs on every database what uses one, but for a browser's tests. Called directly, pytest runs
on its one database all that can run there, but what is ``exhaustive``.

EMS_TEST_TIER        commit: each test only where it can differ; all: also what is exhaustive
EMS_TEST_DATABASES   all databases of this run, with commas: a test that needs one of them runs on
                     one that is there
EMS_TEST_SHARE       2/3: the second of three shares of what was chosen, for a run in parts
EMS_TEST_LEG         further: this is a second server of its kind. In the commit tier it runs the
                     tests with the marker ``mariadb_11``, in the other all but ``plans/``
"""

from __future__ import annotations

import inspect
import os
import shutil
import unittest
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest

from tests.browser.chromium import program

HERE = Path(__file__).resolve().parent

VENDOR = os.environ.get("EMS_TEST_DB", "sqlite")
TIER = os.environ.get("EMS_TEST_TIER", "")
SHARE = os.environ.pop("EMS_TEST_SHARE", "")  # a pytest that a test starts runs all it is given

# The markers of tests that do not run on a database.
IMPOSSIBLE = {
    "sqlite": {"mysql", "mariadb"},
    "mariadb": {"one_server"},
    "mysql": {"mariadb"},
}

# Where one database is enough: the first of these that the run has. MySQL is what users run EMS
# on; what needs no database is quickest on SQLite.
ON_A_SERVER = ("mysql", "mariadb", "sqlite")
ON_THE_IDLER_SERVER = ("mariadb", "mysql", "sqlite")  # MySQL's leg is the longest
ON_ANY = ("sqlite", "mysql", "mariadb")  # also when all is run
ON_THE_IDLEST = ("sqlite", "mariadb", "mysql")  # but when all is run, on each

# Folders, files and tests that need one database, and why. Other tests need MySQL, which judges
# most strictly, or none; but locks, crashes, plans and what two sessions see differ on each server.
ONE_IS_ENOUGH = {
    "admin": ON_THE_IDLEST,  # pages over the same verbs, which have tests of their own
    "browser": ON_A_SERVER,  # what is on the screen, of the same pages
    "celery_": ON_ANY,  # tasks that call one function each
    # Workers of Celery, on a server as those that people run: their processes claim side by side.
    "celery_/test_broker.py": ON_A_SERVER,
    "celery_/test_broker_faults.py": ON_A_SERVER,
    "celery_/test_hands.py": ON_A_SERVER,  # its writes, given up at each statement
    "chaos": ON_ANY,  # what chaos does with a test of a host project
    "chaos/test_planted_bugs.py": ON_THE_IDLER_SERVER,  # its kills
    "commands": ON_ANY,  # words around the same verbs
    "commands/test_stress.py": ON_THE_IDLER_SERVER,
    "contract": ON_THE_IDLEST,  # the faces of verbs that have tests of their own
    "contract/test_lost_replies.py": ON_A_SERVER,
    "demo": ON_ANY,  # brings a SQLite of its own
    "docs": ON_ANY,  # what the pages say
    "e2e": ON_ANY,  # so do the host projects
    # Web servers, rights and words around claims and outcomes that have tests on every database.
    "http": ON_THE_IDLEST,
    "http/test_consumers.py": ON_ANY,
    "http/test_shards.py": ON_ANY,
    **{
        f"http/test_{name}.py": ON_A_SERVER  # claims, and web servers that die
        for name in ("acks", "busy", "hot", "poller", "pulling", "repeated_pulls")
    },
    **{f"http/test_web_{name}.py": ON_A_SERVER for name in ("kills", "servers")},
    # Pages, alarms and words over figures that have tests of their own, and plans on every server.
    "metrics": ON_THE_IDLER_SERVER,
    "monitoring": ON_THE_IDLER_SERVER,
    # Tasks over sends, claims and outcomes that have tests on every database; kills on a server.
    "tasks_": ON_THE_IDLEST,
    **{
        f"tasks_/test_{name}.py": ON_A_SERVER
        for name in ("batches", "cancel", "kills", "limits", "schedules", "unique")
    },
    "guarantees/test_resource_away.py": ON_THE_IDLER_SERVER,
    "runtime": ON_A_SERVER,  # threads, signals and children
    # Of Spark's, each test reads one database; the plans of what the source reads are in plans/.
    "spark": ON_THE_IDLER_SERVER,  # all on one, since Java takes long to start
    "spark/test_databases.py": ON_ANY,  # without Java, but for one
    "spark/test_databases.py"
    "::test_a_database_that_is_away_fails_its_part_and_the_other_is_rolled_up": ON_THE_IDLER_SERVER,
    "streams/test_audit_resets.py": ON_THE_IDLER_SERVER,
    # What a process says, holds and starts: the same on every database.
    "guarantees/test_memory.py": ON_ANY,
    "guarantees/test_talking.py": ON_ANY,
    # Its random stories run on both.
    "guarantees/test_order_of_keys.py::test_with_processes_side_by_side_that_are_killed"
    "_each_key_is_handled_in_order": ON_A_SERVER,
    # Real processes, which take seconds: one server of the two. What they rely on, such as locks,
    # claims, leases, the sequencer and settlements, is tested on both.
    **{
        f"guarantees/test_{name}.py": ON_A_SERVER
        for name in (
            *("after_a_death", "async_workers", "broadcast", "crashes", "damaged_partitions"),
            *("death_lock", "deaths", "fleets", "flushed_tables", "forks", "give_up", "idle"),
            *("large_claims", "leaving", "neighbours", "own_schema", "pool", "processes"),
            *("sending", "sharing", "supervised", "topic_lifecycle", "unblock"),
        )
    },
    **{
        f"guarantees/test_{name}.py": ON_THE_IDLER_SERVER
        for name in (
            *("autocommit_off", "frozen_connections", "kept_ends", "last_attempts", "moves"),
            *("namespaces", "outages", "rehearsals", "relays", "resets", "rewound_logs", "starts"),
            *("stopping", "two_phase"),
        )
    },
}
# Folders whose tests may end differently on each server. In the commit tier they take turns: one
# server has a test, or a case of it, the other one the next.
IN_TURNS = {"concurrency", "guarantees", "plans"}
# In the commit tier a test that uses the database has its first cases and every third of the rest.
FIRST_CASES = 3
ONE_CASE_OF = 3
SERVERS = ("mysql", "mariadb")
# SQLite is for development. Also when all is run, it leaves to the servers what takes long here.
LEFT_TO_SERVERS = {"concurrency", "guarantees", "http", "spark"}
# Also when all is run, on one: they took a third of the minutes of these parts, and the rows and
# plans of the pages are tested on each.
ON_ONE_ALWAYS = {"browser"}


def left_out(item: pytest.Item, markexpr: str) -> bool:
    """Tell whether this test is not a part of this run."""
    if in_another_share(item.nodeid, SHARE):
        return True
    marks = {mark.name for mark in item.iter_markers()}
    if marks & set(_absent(markexpr)):
        return True
    further = os.environ.get("EMS_TEST_LEG") == "further"
    # With MariaDB 11's costs some whole reads of the few rows of these tests are the better plans.
    if further and item.path.parent == HERE / "plans":
        return True
    there = os.environ.get("EMS_TEST_DATABASES", VENDOR).split(",")
    possible = [name for name in there if not marks & IMPOSSIBLE[name]]
    preferred = preferred_databases(item, marks)
    if TIER == "commit":
        if {"slow", "every_django"} <= marks:  # `make test-django` has them
            return True
        if further:
            return "mariadb_11" not in marks
        if is_no_sample(item):
            return True
        if VENDOR == "sqlite" and len(possible) > 1 and not preferred:
            return "slow" in marks or not asks_for_every_database(item, marks)
        if VENDOR in SERVERS and takes_turns(item, marks):
            servers = [name for name in SERVERS if name in possible]
            first = crc32(item.nodeid.partition("[")[0].encode())
            return servers[(first + case_of(item)) % len(servers)] != VENDOR
    elif TIER == "all":
        on_one = preferred == ON_ANY or folder_of(item) in ON_ONE_ALWAYS
        if not on_one and "any_database" not in marks:
            left = len(possible) > 1 and folder_of(item) in LEFT_TO_SERVERS
            return VENDOR == "sqlite" and left and bool(marks & {"slow", "exhaustive", "spark"})
    elif "any_database" not in marks:
        return False
    return next((name for name in preferred if name in possible), VENDOR) != VENDOR


def in_another_share(nodeid: str, share: str) -> bool:
    """Tell whether a test is in another share: each is in one, in whatever order they are found."""
    number, _, shares = share.partition("/")
    return bool(share) and crc32(nodeid.encode()) % int(shares) != int(number) - 1


def _absent(markexpr: str) -> Iterator[str]:
    """Yield the markers of tests that cannot run here, or were not asked for."""
    yield from IMPOSSIBLE[VENDOR]
    if not os.environ.get("EMS_TEST_REDIS_URL"):
        yield "redis"
    if not _spark_is_there():
        yield "spark"
    if not _browser_is_there():
        yield "browser"
    if "bench" not in markexpr:
        yield "bench"
    if "exhaustive" not in markexpr and TIER != "all":
        yield "exhaustive"


def preferred_databases(item: pytest.Item, marks: set[str]) -> tuple[str, ...]:
    """Return the databases of a test that needs one, the best first; empty if it needs all."""
    if asks_for_every_database(item, marks):
        return ()
    path = item.path.relative_to(HERE) if item.path.is_relative_to(HERE) else item.path
    for place in (f"{path}::{item.name}", str(path), *map(str, path.parents)):
        if place in ONE_IS_ENOUGH:
            return ONE_IS_ENOUGH[place]
    if "any_database" in marks or not _uses_the_database(item):
        return ON_ANY
    return () if folder_of(item) in IN_TURNS else ON_A_SERVER


def asks_for_every_database(item: pytest.Item, marks: set[str]) -> bool:
    """Tell whether a test is to run on each database, also on SQLite."""
    return "every_database" in marks or "vendor" in _fixtures(item)


def is_no_sample(item: pytest.Item) -> bool:
    """Tell whether this is a case of a test of whose many cases the commit tier has others."""
    case = case_of(item)
    return case >= FIRST_CASES and bool(case % ONE_CASE_OF) and _uses_the_database(item)


def takes_turns(item: pytest.Item, marks: set[str]) -> bool:
    """Tell whether one server has this test, or this case of it, and another the next."""
    if folder_of(item) not in IN_TURNS or preferred_databases(item, marks):
        return False
    return not asks_for_every_database(item, marks)


def case_of(item: pytest.Item) -> int:
    """Return the number of a case of a test, from 0; with several parameters, the sum of theirs."""
    indices: dict[str, int] = item.callspec.indices if hasattr(item, "callspec") else {}
    return sum(indices.values())


def folder_of(item: pytest.Item) -> str:
    """Return the folder of ``tests/`` in which a test is."""
    return item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""


def _uses_the_database(item: pytest.Item) -> bool:
    from django.test import TransactionTestCase

    cls = getattr(item, "cls", None)
    if inspect.isclass(cls) and issubclass(cls, unittest.TestCase):
        return issubclass(cls, TransactionTestCase)
    asked = {"db", "transactional_db"} & {*_fixtures(item)}
    return bool(asked or item.get_closest_marker("django_db"))


def _fixtures(item: pytest.Item) -> list[str]:
    names: list[str] = getattr(item, "fixturenames", [])
    return names


@cache
def _browser_is_there() -> bool:
    return bool(program())


@cache
def _spark_is_there() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java").exists() if home else shutil.which("java")
    return bool(java) and find_spec("pyspark") is not None
