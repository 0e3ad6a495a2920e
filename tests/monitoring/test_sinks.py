"""The roll-up tables are written whole or not at all, and the same again changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps

from monitoring.alarms.metrics import measure
from monitoring.models import AuditFinding, Consumption, HotKey, Latency, Position, Run, Traffic
from monitoring.options import option_file
from sparkjobs.database import transaction
from sparkjobs.instants import now
from sparkjobs.rollup import tables
from sparkjobs.rollup.runs import KILLED, Overtaken, last_done, prune
from sparkjobs.rollup.runs import Run as JobRun
from sparkjobs.rollup.tables import upsert
from sparkjobs.rollup.windows import Window, roll_up, write
from tests.processes import Spawn

pytestmark = pytest.mark.django_db(transaction=True)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def traffic(first: int = 0, **figures: Any) -> dict[str, Any]:
    return {
        "partition_id": 1,
        "first_offset": first,
        "end_offset": first + 10,
        "minute": NOON,
        "messages": 10,
        "bytes": 100,
        "keys": 3,
        "delayed": 0,
        **figures,
    }


def latency(**figures: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "messages": 10,
        "mean": 1.0,
        "p50": 1.0,
        "p95": 2.0,
        "p99": 3.0,
        "worst": 4.0,
        "histogram": "80:10",
    }
    return {"group_id": 1, "minute": NOON, "leg": "total", **usual, **figures}


def consumed(**figures: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(tables.CONSUMPTION.figures, 5),
        "group_id": 1,
        "minute": NOON,
        "client_id": "c",
        "thread": "t",
        **figures,
    }


def test_the_sinks_know_the_columns_and_keys_of_the_models() -> None:
    models = {m._meta.db_table: m for m in apps.get_app_config("ems_monitoring").get_models()}
    for table in tables.TABLES:
        meta = models[table.name]._meta
        columns = {field.column for field in meta.concrete_fields} - {"id"}
        assert set(table.columns) == columns, table.name
        (constraint,) = meta.total_unique_constraints
        key = tuple(meta.get_field(name).column for name in constraint.fields)  # type: ignore[union-attr]
        assert table.key == key, table.name


def test_the_same_rows_again_are_the_same_rows(connection) -> None:
    rows = [traffic(first) for first in range(0, 12_000, 10)]  # more than one statement
    for _time in range(2):
        with transaction(connection):
            assert upsert(connection, tables.TRAFFIC, list(reversed(rows))) == len(rows)
    assert Traffic.objects.count() == len(rows)
    row = Traffic.objects.earliest("first_offset")
    assert (row.minute, row.end_offset, row.messages, row.keys) == (NOON, 10, 10, 3)


def test_an_instant_is_stored_as_django_reads_and_compares_it(connection) -> None:
    upsert(connection, tables.TRAFFIC, [traffic()])
    assert Traffic.objects.filter(minute=NOON).exists()
    assert Traffic.objects.filter(minute__gte=NOON, minute__lte=NOON).exists()


def test_figures_are_replaced_only_by_those_that_rest_on_as_much(connection) -> None:
    """What is left after a purge must not replace what was counted when all was there."""
    upsert(connection, tables.LATENCY, [latency()])
    upsert(connection, tables.LATENCY, [latency(messages=9, p95=0.1)])
    assert Latency.objects.get().p95 == 2.0
    upsert(connection, tables.LATENCY, [latency(p95=1.5)])
    assert Latency.objects.get().p95 == 1.5
    upsert(connection, tables.LATENCY, [latency(messages=11, p95=0.5)])
    row = Latency.objects.get()
    assert (row.messages, row.p95) == (11, 0.5)


def test_counts_never_fall(connection) -> None:
    upsert(connection, tables.CONSUMPTION, [consumed()])
    upsert(connection, tables.CONSUMPTION, [consumed(consumed=4, dead=6, busy_seconds=4.5)])
    row = Consumption.objects.get()
    assert (row.consumed, row.dead, row.busy_seconds) == (5, 6, 5.0)


def hot(place: int, key: str, total: int, messages: int = 5) -> dict[str, Any]:
    of_key = {"place": place, "key": key, "messages": messages, "bytes": 1, "share": 0.1}
    return {"topic_id": 1, "hour": NOON, "total": total, **of_key}


def test_a_ranking_is_replaced_as_a_whole_and_never_by_one_that_rests_on_less(connection) -> None:
    def places() -> list[tuple[int, str]]:
        return list(HotKey.objects.order_by("place", "key").values_list("place", "key"))

    three = [hot(1, "a", 40), hot(2, "b", 40), hot(3, "c", 40)]
    upsert(connection, tables.HOT_KEYS, three)
    other = {**hot(1, "x", 1), "topic_id": 2}
    upsert(connection, tables.HOT_KEYS, [other])
    # After a purge there is less to count.
    upsert(connection, tables.HOT_KEYS, [hot(1, "c", 7), hot(2, "a", 7)])
    assert places() == [(1, "a"), (1, "x"), (2, "b"), (3, "c")]
    upsert(connection, tables.HOT_KEYS, [hot(1, "c", 50), hot(2, "a", 50)])
    assert places() == [(1, "c"), (1, "x"), (2, "a")]


def test_of_two_runs_of_a_job_the_older_one_writes_nothing(connection) -> None:
    older = JobRun.begin(connection, "traffic")
    newer = JobRun.begin(connection, "traffic")
    window = Window("", figures=[(tables.TRAFFIC, [traffic()])])
    with pytest.raises(Overtaken):
        write(connection, older, window)
    assert not Traffic.objects.exists()
    assert Run.objects.get(pk=older.id).error == KILLED
    write(connection, newer, window)
    assert Traffic.objects.count() == 1
    done = Run.objects.get(pk=newer.id)
    assert (done.state, done.rows, done.error) == ("done", 1, "")
    assert done.finished_at is not None


def test_a_run_that_fails_says_why_and_writes_nothing(connection) -> None:
    def move(connection: Any) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        roll_up(
            "traffic",
            connection,
            lambda: Window("", figures=[(tables.TRAFFIC, [traffic()])], move=move),
            print,
        )
    run = Run.objects.get()
    assert (run.state, run.error) == ("failed", "OSError: the disk is full")
    assert not Traffic.objects.exists()
    assert last_done(connection, "traffic", "until") is None


def test_runs_are_forgotten_after_a_month(connection) -> None:
    for _ in range(3):
        JobRun.begin(connection, "traffic")
    (old, *_rest) = Run.objects.order_by("pk")
    Run.objects.filter(pk=old.pk).update(started_at=datetime(2020, 1, 1, tzinfo=UTC))
    prune(connection)
    assert Run.objects.count() == 2


def test_the_last_verdict_of_reconcile_is_not_forgotten(connection) -> None:
    """Without it, what an earlier one had found, and this one did not, would fire again."""
    verdict = datetime.now(UTC) - timedelta(days=31)
    before = verdict - timedelta(days=1)
    AuditFinding.objects.create(
        digest=bytes(32), source="reconcile", kind="hole", found_at=before, seen_at=before
    )
    for until in (before, verdict):
        Run.objects.create(job="reconcile", state="done", started_at=until, until=until)
    assert measure("reconcile", "default") == {}
    prune(connection)
    assert measure("reconcile", "default") == {}
    assert Run.objects.get().until == verdict


def test_the_clock_is_the_databases_in_utc(connection) -> None:
    assert abs((now(connection) - datetime.now(UTC)).total_seconds()) < 60


# Each time a process that is killed before its next statement, until one comes to its end.
KILLED_AT_EACH_POINT = """\
import json, os, signal, sys
from datetime import UTC, datetime
from sparkjobs import database; from sparkjobs.rollup import runs, tables as sinks, windows
from sparkjobs.config import Config

config = Config.load(sys.argv[1])
rows = json.loads(sys.argv[2])
for row in rows:
    row["minute"] = datetime.fromisoformat(row["minute"])
real = database.execute
left = 0

def execute(*arguments):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return real(*arguments)

def move(connection):
    execute(connection, "INSERT INTO `ems_monitoring_position`"
            " (`partition_id`, `open_offset`, `next_offset`) VALUES (1, 0, 20)")
    if left == 0:  # between the last statement but one and the commit
        os.kill(os.getpid(), signal.SIGKILL)

for module in (database, runs, sinks):
    module.execute = execute
for point in range(100):
    pid = os.fork()
    if pid == 0:
        left = 10**9
        with database.connected(config) as connection:
            left = point
            window = windows.Window("", [(sinks.TRAFFIC, rows[:1]), (sinks.TRAFFIC, rows[1:])],
                                    {"until": rows[0]["minute"]}, move)
            windows.roll_up("traffic", connection, lambda: window, print)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    left = 10**9
    with database.connected(config) as connection:
        counted = [database.fetch(connection, "SELECT COUNT(*) FROM `" + table + "`")[0][0]
                   for table in ("ems_monitoring_traffic", "ems_monitoring_position")]
        done = database.fetch(connection, "SELECT COUNT(*) FROM `ems_monitoring_run`"
                              " WHERE `state` = 'done'")[0][0]
    print("seen", json.dumps([status, *counted, done]), flush=True)
    if done or status == 0:
        break
"""


def test_a_run_killed_at_any_point_leaves_all_of_its_window_or_nothing(spawn: Spawn) -> None:
    rows = [{**traffic(first), "minute": NOON.isoformat()} for first in (0, 10)]
    with option_file("default") as path:
        child = spawn(KILLED_AT_EACH_POINT, path, json.dumps(rows))
        output = child.succeed()
    lines = [line for line in output.splitlines() if line.startswith("seen ")]
    seen = [json.loads(line.removeprefix("seen ")) for line in lines]
    killed, (_status, *whole) = seen[:-1], seen[-1]
    assert len(killed) >= 6, output
    assert all(status == 9 for status, *_ in killed), output
    assert all(rest == [0, 0, 0] for _status, *rest in killed), output
    assert whole == [2, 1, 1]
    assert Traffic.objects.count() == 2
    assert Position.objects.get().next_offset == 20
    # The one that ended, and those that had begun: each was noticed by the next.
    states = list(Run.objects.order_by("pk").values_list("state", "error"))
    assert states[-1] == ("done", "")
    assert set(states[:-1]) == {("failed", KILLED)}
