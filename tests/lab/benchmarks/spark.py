"""Measures the Spark source and the archive beside processes that only read rows by a cursor."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, execute, name

TOPIC = "bench-spark"
COLUMNS = "offset, id, `key`, tag, headers, body, body_type, size, producer, created_at"
TASKS = 2  # as many as the cores that the target speaks of


def figures(options: Options) -> Iterator[Row]:
    rows, rounds = (50_000, 2) if options.quick else (1_000_000, 3)
    with tempfile.TemporaryDirectory(prefix="ems-spark-") as folder, session() as spark:
        from sparkjobs.config import Config
        from sparkjobs.source.schemas import MESSAGES, only

        config = Config.load(str(option_file(Path(folder))))
        partition = fill(rows)

        def read(*columns: str) -> float:
            schema = only(MESSAGES, *columns) if columns else MESSAGES
            started = time.monotonic()
            # Other sections have left partitions of their own.
            reader = (
                spark.read.format("ems").schema(schema).options(config=config.path, topic=TOPIC)
            )
            reader.option("split_rows", rows // TASKS // 4).load().write.format("noop").mode(
                "overwrite"
            ).save()
            return rows / (time.monotonic() - started)

        raw = bare_loops(partition, rows)
        all_columns, two = "spark, whole messages of 1 KB/s", "spark, two columns, messages/s"
        yield interleaved(all_columns, read, raw, rounds=rounds, target=0.6)
        yield interleaved(two, lambda: read("offset", "size"), raw, rounds=rounds, target=0.6)
        yield interleaved(
            "spark, archived messages of 1 KB/s",
            lambda: archived(spark, config, rows),
            raw,
            rounds=1,
            target=0.1,
        )


@contextlib.contextmanager
def session() -> Iterator[Any]:
    os.environ["EMS_SPARK_MASTER"] = f"local[{TASKS}]"
    from sparkjobs.session import session

    spark = session("benchmark")
    yield spark
    spark.stop()


def option_file(folder: Path) -> Path:
    from django.db import connections

    given = connections["default"].settings_dict
    path = folder / "ems.cnf"
    path.touch(mode=0o600)
    path.write_text(
        f"[client]\nhost={given['HOST']}\nport={given['PORT']}\nuser={given['USER']}\n"
        f"password={given['PASSWORD']}\ndatabase={given['NAME']}\n"
        f"[ems]\nvendor=mysql\narchive={folder}/archive\n"
    )
    return path


def fill(rows: int) -> int:
    """A log of yesterday, whose bodies zstd cannot make much of; its partition."""
    from streams.models import Topic

    topic = Topic.objects.create(name=TOPIC, archive=True)
    partition = topic.partitions.get().pk
    plain = connect()
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    execute(plain, "TRUNCATE ems_msg")
    for start in range(0, rows, 5000):
        values = ",".join(
            f"({partition}, {offset}, '1970-01-01', '', REPEAT(SHA2({offset}, 256), 16), 'text',"
            f" 1024, 'bench', '{yesterday} 12:00:00', '{yesterday} 12:00:00')"
            for offset in range(start, min(start + 5000, rows))
        )
        execute(
            plain,
            "INSERT INTO ems_msg (partition_id, `offset`, due_at, tag, body, body_type, size,"
            " producer, created_at, sequenced_at) VALUES " + values,
        )
    execute(plain, f"UPDATE ems_partition SET next_offset = {rows} WHERE id = {partition}")
    execute(plain, "ANALYZE TABLE ems_msg")
    plain.close()
    return int(partition)


def bare_loops(partition: int, rows: int) -> Any:
    """Reads the same rows with a server-side cursor in each of TASKS processes, and drops them."""

    def raw() -> float:
        context = multiprocessing.get_context("spawn")
        with context.Pool(TASKS) as pool:
            pool.map(time.sleep, [0.01] * TASKS)  # they have started
            started = time.monotonic()
            size = rows // TASKS
            parts = [(partition, n * size, (n + 1) * size) for n in range(TASKS)]
            assert sum(pool.starmap(bare_loop, parts)) == size * TASKS
            return rows / (time.monotonic() - started)

    return raw


def bare_loop(partition: int, first: int, end: int) -> int:
    from MySQLdb.cursors import SSCursor

    connection = connect()
    cursor = connection.cursor(SSCursor)
    cursor.execute(
        f"SELECT {COLUMNS.replace('offset', '`offset`', 1)} FROM `{name()}`.ems_msg"
        " FORCE INDEX (ems_msg_log) WHERE partition_id = %s AND `offset` >= %s AND `offset` < %s"
        " ORDER BY `offset`",
        (partition, first, end),
    )
    found = sum(1 for _row in cursor)
    cursor.close()
    connection.close()
    return found


def archived(spark: Any, config: Any, rows: int) -> float:
    """Write, read again, compare and record."""
    from sparkjobs.jobs.archive import archive

    plain = connect()
    execute(plain, "UPDATE ems_partition SET archived_offset = 0")
    execute(plain, "DELETE FROM ems_monitoring_archive")
    plain.close()
    started = time.monotonic()
    (said,) = archive(spark, config)
    assert f"{rows:,} messages archived" in said
    return rows / (time.monotonic() - started)
