"""Measures the roll-ups of an hour and a day of a million messages beside a loop that reads them.

In a warm session, as a service has it; what a session takes to start is printed apart.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, execute, name
from tests.lab.benchmarks.spark import TASKS, option_file, session

TOPIC = "bench-rollups"
GROUPS, BATCH = 2, 100
KEYS = 1000
BODY = "REPEAT('0123456789abcdef', 64)"
DAY = timedelta(days=1)
TABLES = (
    *("traffic", "consumption", "latency", "error", "hot_key"),
    *("position", "open", "run"),
)
# What the traffic is counted from.
COLUMNS = "`offset`, `key`, `size`, `due_at`, `sequenced_at`"


def figures(options: Options) -> Iterator[Row]:
    rows, rounds = (48_000, 2) if options.quick else (1_000_000, 2)
    with tempfile.TemporaryDirectory(prefix="ems-rollups-") as folder:
        started = time.monotonic()
        with session() as spark:
            print(f"  a session: {time.monotonic() - started:.1f} s", flush=True)
            from sparkjobs.config import Config
            from sparkjobs.database import connected

            config = Config.load(str(option_file(Path(folder))))
            day = fill(rows)
            with connected(config) as connection:
                for period, begin in (("a day", 0), ("an hour", rows * 23 // 24)):
                    raw = bare_loop(begin, rows)
                    for job, roll in jobs(spark, config, connection).items():
                        ours = timed(roll, day, begin, rows)
                        title = f"spark, {job} of {period}, messages/s"
                        # The consumption joins each message with two groups' deliveries; with
                        # the other jobs it reads no message again.
                        target = 0.1 if job == "traffic" else 0.05
                        yield interleaved(title, ours, raw, rounds=rounds, target=target)


def jobs(spark: Any, config: Any, connection: Any) -> dict[str, Callable[[], None]]:
    from sparkjobs.jobs.consumption import roll_up_consumption
    from sparkjobs.jobs.rollup import roll_up_all
    from sparkjobs.jobs.traffic import roll_up_traffic

    def roll_up() -> None:
        if errors := roll_up_all(spark, config, print):
            raise ExceptionGroup("roll-ups", errors)

    return {
        "traffic": lambda: roll_up_traffic(spark, config, connection, print),
        "consumption": lambda: roll_up_consumption(spark, config, connection, print),
        "all three jobs": roll_up,
    }


def timed(roll: Callable[[], None], day: datetime, begin: int, rows: int) -> Callable[[], float]:
    """Messages a second of a roll-up that is done as far as ``begin``."""

    def run() -> float:
        plain = connect()
        for table in TABLES:
            execute(plain, f"DELETE FROM ems_monitoring_{table}")
        if begin:
            (partition,) = execute(plain, "SELECT id FROM ems_partition")[0]
            execute(
                plain,
                "INSERT INTO ems_monitoring_position (partition_id, open_offset, next_offset)"
                f" VALUES ({partition}, {begin}, {begin})",
            )
            resume = day + DAY * begin / rows
            execute(
                plain,
                "INSERT INTO ems_monitoring_run (job, state, missed, error, started_at, until,"
                " resume_at) VALUES ('consumption', 'done', 0, '', UTC_TIMESTAMP(6),"
                f" '{resume:%Y-%m-%d %H:%M:%S}', '{resume:%Y-%m-%d %H:%M:%S}')",
            )
        plain.close()
        started = time.monotonic()
        roll()
        return (rows - begin) / (time.monotonic() - started)

    return run


def fill(rows: int) -> datetime:
    """A message of 1 KB every so often for the 24 hours to now, done by two groups a second later.

    Returns when it began.
    """
    from streams.models import ConsumerGroup, Topic

    topic = Topic.objects.create(name=TOPIC)
    partition = topic.partitions.get().pk
    plain = connect()
    for table in ("ems_msg", "ems_topic_group_log"):
        execute(plain, f"TRUNCATE {table}")
    execute(plain, f"DELETE FROM ems_partition WHERE id <> {partition}")
    begin = datetime.now(UTC).replace(microsecond=0) - DAY

    def at(offset: int, seconds: float = 0.0) -> str:
        return f"'{begin + DAY * offset / rows + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}'"

    for start in range(0, rows, 5000):
        values = ",".join(
            f"({partition}, {n}, '1970-01-01', 'key-{n % KEYS}', '', {BODY}, 'text', 1024,"
            f" 'bench', {at(n, -0.01)}, {at(n)})"
            for n in range(start, min(start + 5000, rows))
        )
        execute(
            plain,
            "INSERT INTO ems_msg (partition_id, `offset`, due_at, `key`, tag, body, body_type,"
            f" size, producer, created_at, sequenced_at) VALUES {values}",
        )
    execute(plain, f"UPDATE ems_partition SET next_offset = {rows} WHERE id = {partition}")
    groups = [
        ConsumerGroup.objects.create(topic=topic, name=f"group-{n}").pk for n in range(GROUPS)
    ]
    # Ids rise with the claims.
    for start in range(0, rows, 5000 * BATCH):
        values = ",".join(
            f"({group}, {partition}, {n}, {n + BATCH - 1}, {n + BATCH}, 'new', 1, 'c', 't', '',"
            f" 'DONE', {at(n + BATCH, 0.1)}, {at(n + BATCH, 60)}, {at(n + BATCH, 1)}, 0, 0, 0, '')"
            for n in range(start, min(start + 5000 * BATCH, rows), BATCH)
            for group in groups
        )
        execute(
            plain,
            "INSERT INTO ems_topic_group_log (group_id, partition_id, first_offset, last_offset,"
            " progress, kind, attempt, client_id, thread, token, state, claimed_at, deadline,"
            f" finished_at, failed, dead, missing, error) VALUES {values}",
        )
    for table in ("ems_msg", "ems_topic_group_log"):
        execute(plain, f"ANALYZE TABLE {table}")
    plain.close()
    return begin


def bare_loop(begin: int, end: int) -> Callable[[], float]:
    """Reads the columns that the traffic is counted from, in TASKS processes, and drops them."""

    def raw() -> float:
        context = multiprocessing.get_context("spawn")
        size = (end - begin) // TASKS
        with context.Pool(TASKS) as pool:
            pool.map(time.sleep, [0.01] * TASKS)  # they have started
            started = time.monotonic()
            parts = [(begin + n * size, begin + (n + 1) * size) for n in range(TASKS)]
            assert sum(pool.starmap(read, parts)) == size * TASKS
            return (end - begin) / (time.monotonic() - started)

    return raw


def read(first: int, end: int) -> int:
    from MySQLdb.cursors import SSCursor

    connection = connect()
    cursor = connection.cursor(SSCursor)
    cursor.execute(
        f"SELECT {COLUMNS} FROM `{name()}`.ems_msg FORCE INDEX (ems_msg_log) WHERE `offset` >= %s"
        f" AND `offset` < %s AND partition_id = (SELECT MAX(id) FROM `{name()}`.ems_partition)"
        " ORDER BY `offset`",
        (first, end),
    )
    found = sum(1 for _row in cursor)
    cursor.close()
    connection.close()
    return found
