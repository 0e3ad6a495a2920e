"""Measures the Spark sink beside processes that only insert the same rows, in parts."""

from __future__ import annotations

import hashlib
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.benchmarks.figures import Options, Row, interleaved
from tests.lab.benchmarks.server import connect, execute
from tests.lab.benchmarks.spark import TASKS, option_file, session

TOPIC = "bench-sink"
STATEMENT_ROWS = 500


def figures(options: Options) -> Iterator[Row]:
    from streams.models import Topic

    rows, rounds = (20_000, 1) if options.quick else (200_000, 3)
    partition = Topic.objects.create(name=TOPIC).partitions.get().pk
    with tempfile.TemporaryDirectory(prefix="ems-sink-") as folder, session() as spark:
        path = str(option_file(Path(folder)))

        def write(*columns: str) -> float:
            empty()
            frame = spark.range(0, rows, 1, TASKS * 2).selectExpr(
                "cast(id as string) as key", "repeat(sha2(cast(id as string), 256), 16) as body"
            )
            for column in columns:
                frame = frame.selectExpr("*", column)
            started = time.monotonic()
            writer = frame.write.format("ems").options(config=path, topic=TOPIC)
            writer.mode("append").save()
            seconds = time.monotonic() - started
            check(rows)
            return rows / seconds

        raw = bare_inserts(partition, rows)
        yield interleaved("sink, messages of 1 KB/s", write, raw, rounds=rounds, target=0.4)
        yield interleaved(
            "sink with dedup keys, messages of 1 KB/s",
            lambda: write("key as dedup_key"),
            raw,
            rounds=1,
            target=0.2,
        )


def empty() -> None:
    plain = connect()
    for table in ("ems_msg", "ems_dedup"):
        execute(plain, f"TRUNCATE {table}")
    plain.close()


def check(rows: int) -> None:
    plain = connect()
    assert execute(plain, "SELECT COUNT(*) FROM ems_msg")[0][0] == rows
    plain.close()


def bare_inserts(partition: int, rows: int) -> Any:
    """Inserts the same rows by TASKS processes, 500 in a statement, and commits each statement."""

    def raw() -> float:
        empty()
        with multiprocessing.get_context("spawn").Pool(TASKS) as pool:
            pool.map(time.sleep, [0.01] * TASKS)  # they have started
            size = rows // TASKS
            started = time.monotonic()
            pool.starmap(insert, [(partition, n * size, (n + 1) * size) for n in range(TASKS)])
            return rows / (time.monotonic() - started)

    return raw


def insert(partition: int, first: int, end: int) -> None:
    plain = connect()
    for start in range(first, end, STATEMENT_ROWS):
        values = ",".join(
            f"({partition}, '1970-01-01', '{n}', '',"
            f" x'{body_of(n).hex()}', 'text', 1024, 'bench', UTC_TIMESTAMP(6))"
            for n in range(start, min(start + STATEMENT_ROWS, end))
        )
        execute(
            plain,
            "INSERT INTO ems_msg (partition_id, due_at, `key`, tag, body, body_type, size,"
            " producer, created_at) VALUES " + values,
        )
    plain.close()


def body_of(number: int) -> bytes:
    """The body that Spark makes of this number."""
    return (hashlib.sha256(str(number).encode()).hexdigest() * 16).encode()
